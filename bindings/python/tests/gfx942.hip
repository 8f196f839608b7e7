// Kernels for the GPU in software; clang includes hostcall_gpu.h in place of HIP's headers.
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

// The sum of each block's places in the grid, by memory that its threads share; the last block posts how many there are.
extern "C" __global__ void __launch_bounds__(128) sums(uint64_t context, uint64_t *out) {
    __shared__ uint64_t sum[128];
    const uint32_t thread = threadIdx.x;
    sum[thread] = blockIdx.x * blockDim.x + thread;
    __syncthreads();
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        if (thread < half)
            sum[thread] += sum[thread + half];
        __syncthreads();
    }
    if (thread == 0)
        out[blockIdx.x] = sum[0];
    const uint64_t sizes[3] = {gridDim.x, gridDim.y, gridDim.z};
    if (thread == 0 && blockIdx.x + 1 == gridDim.x)
        hostcall_post_words(context, HOSTCALL_METHOD(703, 0), sizes, 3);
}

struct record {
    uint64_t lane, square;
};

// Streams a record of each thread, to a channel that comes by value or lies in memory.
static __device__ void stream(const hostcall_raw_stream &out) {
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    const uint64_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    const record one = {lane, lane * lane};
    hostcall_raw_record(&out, &writer, &one, sizeof one);
    hostcall_raw_close(&out, &writer);
}

extern "C" __global__ void squares(hostcall_raw_stream out) { stream(out); }

extern "C" __global__ void squares_at(const hostcall_raw_stream *at) {
    const hostcall_raw_stream out = *at;
    stream(out);
}

// Each thread posts 16 words to a post queue.
struct many {
    uint64_t words[16];
};

extern "C" __global__ void messages(uint64_t queue, uint32_t tag) {
    many one;
    for (uint32_t i = 0; i < 16; i++)
        one.words[i] = (blockIdx.x * blockDim.x + threadIdx.x) * 16 + i;
    hostcall_post(queue, tag, one);
}
