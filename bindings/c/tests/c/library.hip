/* The kernel of library_kernels.h for a GPU. */
#include "library_kernels.h"
