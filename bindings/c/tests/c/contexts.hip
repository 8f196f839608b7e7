/* The kernels of context_kernels.h for a GPU. */
#include "context_kernels.h"
