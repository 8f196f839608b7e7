/* The kernels of wait_kernels.h for a GPU. */
#include "wait_kernels.h"
