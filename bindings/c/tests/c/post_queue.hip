/* The kernels of post_queue_kernels.h for a GPU. */
#include "post_queue_kernels.h"
