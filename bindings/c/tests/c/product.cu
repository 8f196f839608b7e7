/* A matrix product as libraries write it: a tile of 128 × 128 a block of 256 threads, 8 × 8 a thread, whose registers are nearly all
 * taken. POINT says which trace point each step has: 0 none, 1 a counter, 2 an event, 3 a span. */
#include "hostcall_device.h"

extern "C" __global__ void __launch_bounds__(256, 1) product(uint64_t context, const float *a, const float *b, float *c, int n, int k) {
    __shared__ float of_a[16][128], of_b[16][128];
    const int thread = threadIdx.x, row = thread / 16 * 8, column = thread % 16 * 8;
    float sums[8][8] = {}, left[8], right[8];
    a += (size_t)blockIdx.y * 128 * k;
    b += (size_t)blockIdx.x * 128;
    for (int step = 0; step < k; step += 16) {
#if POINT == 3
        hostcall_span_begin(context, tile, "tile");
#endif
        for (int i = thread; i < 512; i += 256) {
            const float4 four = *(const float4 *)&a[(size_t)(i / 4) * k + step + i % 4 * 4];
            of_a[i % 4 * 4][i / 4] = four.x, of_a[i % 4 * 4 + 1][i / 4] = four.y;
            of_a[i % 4 * 4 + 2][i / 4] = four.z, of_a[i % 4 * 4 + 3][i / 4] = four.w;
            *(float4 *)&of_b[i / 32][i % 32 * 4] = *(const float4 *)&b[(size_t)(step + i / 32) * n + i % 32 * 4];
        }
        __syncthreads();
#pragma unroll
        for (int depth = 0; depth < 16; depth++) {
#pragma unroll
            for (int i = 0; i < 8; i++)
                left[i] = of_a[depth][row + i], right[i] = of_b[depth][column + i];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++)
                    sums[i][j] += left[i] * right[j];
        }
        __syncthreads();
#if POINT == 1
        hostcall_counter(context, "sum", sums[0][0]);
#elif POINT == 2
        hostcall_event(context, "step {} has {}", step, sums[0][0]);
#elif POINT == 3
        hostcall_span_end(context, tile);
#endif
    }
    c += (size_t)(blockIdx.y * 128 + row) * n + blockIdx.x * 128 + column;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++)
            c[(size_t)i * n + j] = sums[i][j];
}
