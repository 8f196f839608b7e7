/* Has the kernels of a program that was linked with LLVM's GPU libc, whose main returns 7. */
#include "device.h"

extern "C" {
__global__ void _begin() {}
__global__ void _start(int, char **, char **, int *result) { *result = 7; }
__global__ void _end() {}
}
