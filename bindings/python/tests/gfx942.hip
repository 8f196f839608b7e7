// Kernels for the GPU in software; clang includes gpu.h of bindings/c in place of HIP's headers.
#include "hostcall_device.h"

extern "C" __global__ void chain(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t method, uint32_t rounds) {
    uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes)
        return;
    uint64_t x = lane, status = 0;
    for (uint32_t round = 0; round < rounds; round++)
        status |= hostcall_call_words(context, HOSTCALL_METHOD(method, 0), &x, 1, &x, 1, 0);
    out[lane] = status ? ~UINT64_C(0) : x;
    hostcall_check(context, lane % 50 != 49);
    hostcall_post_words(context, HOSTCALL_METHOD(702, 0), &x, 1);
}
