/* Prints as OpenCL C does: to a buffer that the host reads when the kernel has ended. */
kernel void prints(int number) { printf("%d\n", number); }
