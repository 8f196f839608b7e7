/* Has the kernels of a program that was linked with LLVM's GPU libc. */
#include "device.h"

extern "C" {
__global__ void _begin() {}
__global__ void _start() {}
__global__ void _end() {}
}
