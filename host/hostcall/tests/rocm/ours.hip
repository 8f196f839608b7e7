/* Has a symbol that images of hostcall's kernels have. */
#include "device.h"

extern "C" __device__ int hostcall_kernel_info_mine__01234567 = 1;

extern "C" __global__ void mine(int *out) { out[0] = hostcall_kernel_info_mine__01234567; }
