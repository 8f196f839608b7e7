// ANCHOR: kernel
// With ROCm installed: #include <hip/hip_runtime.h>
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
extern "C" __device__ int printf(const char *, ...);
extern "C" __device__ unsigned long __ockl_get_global_id(unsigned);

extern "C" __global__ void squares(unsigned long *out) {
    unsigned long i = __ockl_get_global_id(0);
    out[i] = i * i;
    if (i == 3)
        printf("lane %lu: %lu\n", i, out[i]);
}
// ANCHOR_END: kernel
