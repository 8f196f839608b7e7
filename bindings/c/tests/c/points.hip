/* The kernels of point_kernels.h for a GPU. */
#include "point_kernels.h"
