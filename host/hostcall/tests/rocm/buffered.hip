/* Prints to a buffer that the host reads when the kernel has ended, as OpenCL C does. */
#include "device.h"

extern "C" __global__ void prints(int number) { printf("%d\n", number); }
