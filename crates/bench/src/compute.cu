// The algorithms of programs/bench/src/compute.rs in CUDA C++. Prints the microseconds of each case of
// crates/bench/src/compute.rs, launch and synchronisation included, the best of eight.
// Usage: compute CASE...    where a case is KERNEL:WORKGROUPS:LANES
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

static const size_t FLOATS = size_t(1) << 26;

__global__ void saxpy(float a, const float *x, size_t x_len, float *y, size_t y_len) {
    size_t n = x_len < y_len ? x_len : y_len;
    size_t step = size_t(gridDim.x) * blockDim.x;
    for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        y[i] = a * x[i] + y[i];
}

__global__ void sum(const float *x, size_t n, float *sums) {
    size_t id = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    size_t step = size_t(gridDim.x) * blockDim.x;
    float total = 0;
    for (size_t i = id; i < n; i += step)
        total += x[i];
    sums[id] = total;
}

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

int main(int count, char **cases) {
    float *x, *y;
    check(cudaMalloc(&x, FLOATS * sizeof(float)));
    check(cudaMalloc(&y, FLOATS * sizeof(float)));
    check(cudaMemset(x, 0x3f, FLOATS * sizeof(float)));
    check(cudaMemset(y, 0x3f, FLOATS * sizeof(float)));
    for (int i = 1; i < count; i++) {
        char kernel[16];
        int blocks, lanes;
        if (sscanf(cases[i], "%15[^:]:%d:%d", kernel, &blocks, &lanes) != 3) {
            fprintf(stderr, "%s is no case\n", cases[i]);
            return 1;
        }
        double best = 1e9;
        for (int turn = 0; turn < 8; turn++) {
            auto start = std::chrono::steady_clock::now();
            if (!strcmp(kernel, "saxpy"))
                saxpy<<<blocks, lanes>>>(2, x, FLOATS, y, FLOATS);
            else
                sum<<<blocks, lanes>>>(x, FLOATS, y);
            check(cudaGetLastError());
            check(cudaDeviceSynchronize());
            std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
            if (time.count() < best)
                best = time.count();
        }
        printf("%.2f\n", best);
    }
    return 0;
}
