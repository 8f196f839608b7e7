// The algorithms of programs/bench/src/compute.rs in CUDA C++. Prints the microseconds between the events before and after each
// case of tools/bench/src/compute.rs, the best of eight, or "-" where headers are missing.
// Usage: compute CASE...    where a case is KERNEL:WORKGROUPS:LANES, and 0 workgroups are as many as there is work for
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#if __has_include(<cub/device/device_reduce.cuh>)
#include <cub/device/device_reduce.cuh>
#define HAS_CUB 1
#endif

static const size_t FLOATS = size_t(1) << 26;
static const size_t TABLE = size_t(1) << 20;
static const size_t COLLATZ = size_t(1) << 22;
static const size_t BODIES = size_t(1) << 16;
static const unsigned ROWS = 2048;

__device__ size_t global_id() { return size_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ size_t grid_lanes() { return size_t(gridDim.x) * blockDim.x; }

__global__ void saxpy(float a, const float *x, size_t x_len, float *y, size_t y_len) {
    size_t n = x_len < y_len ? x_len : y_len;
    for (size_t i = global_id(); i < n; i += grid_lanes())
        y[i] = a * x[i] + y[i];
}

__global__ void sum(const float *x, size_t n, float *sums) {
    float total = 0;
    for (size_t i = global_id(); i < n; i += grid_lanes())
        total += x[i];
    sums[global_id()] = total;
}

__global__ void gather(const uint32_t *keys, size_t n, const float *table, float *out) {
    for (size_t i = global_id(); i < n; i += grid_lanes())
        out[i] = table[keys[i]];
}

__global__ void collatz(uint32_t *steps, size_t n) {
    for (size_t i = global_id(); i < n; i += grid_lanes()) {
        uint64_t value = i + 1;
        uint32_t count = 0;
        while (value != 1) {
            value = value % 2 == 0 ? value / 2 : 3 * value + 1;
            count++;
        }
        steps[i] = count;
    }
}

__device__ float inverse_root(float x) {
    float y = __uint_as_float(0x5f3759df - (__float_as_uint(x) >> 1));
    for (int step = 0; step < 3; step++)
        y = y * (1.5f - 0.5f * x * y * y);
    return y;
}

__global__ void nbody(const float *bodies, size_t n, float *out) {
    size_t i = global_id();
    if (i >= n)
        return;
    float x = bodies[4 * i], y = bodies[4 * i + 1], z = bodies[4 * i + 2];
    float fx = 0, fy = 0, fz = 0;
    for (size_t j = 0; j < n; j++) {
        float dx = bodies[4 * j] - x, dy = bodies[4 * j + 1] - y, dz = bodies[4 * j + 2] - z;
        float inverse = inverse_root(dx * dx + dy * dy + dz * dz + 1e-4f);
        float weight = bodies[4 * j + 3] * inverse * inverse * inverse;
        fx += dx * weight;
        fy += dy * weight;
        fz += dz * weight;
    }
    out[3 * i] = fx;
    out[3 * i + 1] = fy;
    out[3 * i + 2] = fz;
}

__global__ void __launch_bounds__(256) matmul(unsigned tiles_of_row, const float *a, const float *b, float *c) {
    size_t tiles = tiles_of_row, n = 8 * tiles, id = global_id();
    if (id >= tiles * tiles)
        return;
    size_t row = id / tiles * 8, column = id % tiles * 8;
    float sums[8][8] = {};
    for (size_t k = 0; k < n; k++) {
        float from_b[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
            from_b[j] = b[k * n + column + j];
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float from_a = a[(row + i) * n + k];
#pragma unroll
            for (int j = 0; j < 8; j++)
                sums[i][j] += from_a * from_b[j];
        }
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++)
            c[(row + i) * n + column + j] = sums[i][j];
}

__global__ void __launch_bounds__(256)
    matmul_tiled(unsigned tiles_of_row, const float4 *a, const float4 *b, float *c) {
    __shared__ float4 a_strip[64][4];
    __shared__ float4 b_strip[16][16];
    size_t tiles = tiles_of_row, fours = 16 * tiles;
    size_t tile_row = blockIdx.x / tiles_of_row, tile_column = blockIdx.x % tiles_of_row;
    unsigned x = threadIdx.x % 16, y = threadIdx.x / 16;
    unsigned a_row = threadIdx.x / 4, a_four = threadIdx.x % 4;
    float sums[4][4] = {};
    for (size_t strip = 0; strip < 4 * tiles; strip++) {
        __syncthreads(); // before the last strip is written over
        a_strip[a_row][a_four] = a[(tile_row * 64 + a_row) * fours + strip * 4 + a_four];
        b_strip[y][x] = b[(strip * 16 + y) * fours + tile_column * 16 + x];
        __syncthreads();
#pragma unroll
        for (int four = 0; four < 4; four++) {
            float4 from_a[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                from_a[i] = a_strip[y * 4 + i][four];
#pragma unroll
            for (int k = 0; k < 4; k++) {
                float4 of_b = b_strip[four * 4 + k][x];
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float of_a = k == 0 ? from_a[i].x : k == 1 ? from_a[i].y : k == 2 ? from_a[i].z : from_a[i].w;
                    sums[i][0] += of_a * of_b.x;
                    sums[i][1] += of_a * of_b.y;
                    sums[i][2] += of_a * of_b.z;
                    sums[i][3] += of_a * of_b.w;
                }
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            c[(tile_row * 64 + y * 4 + i) * 4 * fours + tile_column * 64 + x * 4 + j] = sums[i][j];
}

__global__ void __launch_bounds__(256) reduce(const float4 *x, size_t n, float *total) {
    __shared__ float waves[8];
    float4 own = {};
    for (size_t i = global_id(); i < n; i += grid_lanes()) {
        own.x += x[i].x;
        own.y += x[i].y;
        own.z += x[i].z;
        own.w += x[i].w;
    }
    float part = (own.x + own.y) + (own.z + own.w);
    for (int apart = 16; apart > 0; apart /= 2)
        part += __shfl_down_sync(~0u, part, apart);
    if (threadIdx.x % 32 == 0)
        waves[threadIdx.x / 32] = part;
    __syncthreads();
    if (threadIdx.x < 32) {
        part = threadIdx.x < 8 ? waves[threadIdx.x] : 0;
        for (int apart = 4; apart > 0; apart /= 2)
            part += __shfl_down_sync(~0u, part, apart);
        if (threadIdx.x == 0)
            atomicAdd(total, part);
    }
}

__global__ void __launch_bounds__(256) histogram(const uint32_t *x, size_t n, uint32_t *out) {
    __shared__ uint32_t counts[256];
    counts[threadIdx.x] = 0;
    __syncthreads();
    for (size_t i = global_id(); i < n; i += grid_lanes())
        atomicAdd(&counts[x[i] >> 24], 1u);
    __syncthreads();
    atomicAdd(&out[threadIdx.x], counts[threadIdx.x]);
}

__device__ uint32_t scan_wave(uint32_t value) {
    for (unsigned apart = 1; apart < 32; apart *= 2) {
        uint32_t before = __shfl_up_sync(~0u, value, apart);
        if (threadIdx.x % 32 >= apart)
            value += before;
    }
    return value;
}

__global__ void __launch_bounds__(256) scan(const uint32_t *x, size_t n, uint32_t *out) {
    __shared__ uint32_t waves[8], last;
    uint32_t before = 0;
    for (int step = 0; step < 8; step++) {
        size_t i = size_t(blockIdx.x) * 2048 + step * 256 + threadIdx.x;
        uint32_t up_to = scan_wave(i < n ? x[i] : 0);
        if (threadIdx.x % 32 == 31)
            waves[threadIdx.x / 32] = up_to;
        __syncthreads();
        if (threadIdx.x < 32) {
            uint32_t of_waves = scan_wave(threadIdx.x < 8 ? waves[threadIdx.x] : 0);
            if (threadIdx.x < 8)
                waves[threadIdx.x] = of_waves;
        }
        __syncthreads();
        up_to += before + (threadIdx.x < 32 ? 0 : waves[threadIdx.x / 32 - 1]);
        if (i < n)
            out[i] = up_to;
        if (threadIdx.x == 255)
            last = up_to;
        __syncthreads();
        before = last;
    }
}

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        fprintf(stderr, "%s\n", cudaGetErrorString(error));
        exit(1);
    }
}

template <class T> static T *allocate(size_t count) {
    T *memory;
    check(cudaMalloc(&memory, count * sizeof(T)));
    check(cudaMemset(memory, 0, count * sizeof(T)));
    return memory;
}

template <class T, class F> static T *upload(size_t count, F of) {
    T *host = (T *)malloc(count * sizeof(T)), *memory = allocate<T>(count);
    for (size_t i = 0; i < count; i++)
        host[i] = of(i);
    check(cudaMemcpy(memory, host, count * sizeof(T), cudaMemcpyHostToDevice));
    free(host);
    return memory;
}

int main(int count, char **cases) {
    auto hash = [](size_t i) { return uint32_t(i) * 2654435761u; };
    float *x = upload<float>(FLOATS, [](size_t) { return 1.5f; });
    float *out = allocate<float>(FLOATS);
    uint32_t *keys = upload<uint32_t>(FLOATS, [&](size_t i) { return hash(i) >> 8 & (TABLE - 1); });
    uint32_t *hashes = upload<uint32_t>(FLOATS, hash);
    float *table = upload<float>(TABLE, [](size_t i) { return float(i); });
    uint32_t *integers = allocate<uint32_t>(FLOATS), *steps = allocate<uint32_t>(COLLATZ);
    uint32_t *counts = allocate<uint32_t>(256);
    float *bodies = upload<float>(4 * BODIES, [](size_t at) {
        const float each[3] = {0.37f, 0.61f, 0.13f};
        float place = float(at / 4) * each[at % 4 % 3];
        return at % 4 == 3 ? 1 : place - float(long(place));
    });
    float *forces = allocate<float>(3 * BODIES);
    float *a = upload<float>(ROWS * ROWS, [](size_t i) { return float(i * 7 % 16); });
    float *b = upload<float>(ROWS * ROWS, [](size_t i) { return float(i * 5 % 8); });
    float *c = allocate<float>(ROWS * ROWS);
    void *cub_memory = nullptr;
    size_t cub_bytes = 0;
#ifdef HAS_CUB
    check(cub::DeviceReduce::Sum(cub_memory, cub_bytes, x, out, int(FLOATS)));
    check(cudaMalloc(&cub_memory, cub_bytes));
#endif
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin));
    check(cudaEventCreate(&end));
    const unsigned tiles = ROWS / 8;
    for (int i = 1; i < count; i++) {
        char name[16];
        int blocks, lanes;
        if (sscanf(cases[i], "%15[^:]:%d:%d", name, &blocks, &lanes) != 3) {
            fprintf(stderr, "%s is no case\n", cases[i]);
            return 1;
        }
        auto is = [&](const char *other) { return !strcmp(name, other); };
        bool runs = true;
        float best = 1e9;
        for (int turn = 0; turn < 8; turn++) {
            check(cudaDeviceSynchronize());
            check(cudaEventRecord(begin));
            if (is("saxpy"))
                saxpy<<<blocks, lanes>>>(2, x, FLOATS, out, FLOATS);
            else if (is("sum"))
                sum<<<blocks, lanes>>>(x, FLOATS, out);
            else if (is("gather"))
                gather<<<blocks, lanes>>>(keys, FLOATS, table, out);
            else if (is("collatz"))
                collatz<<<blocks, lanes>>>(steps, COLLATZ);
            else if (is("nbody"))
                nbody<<<BODIES / lanes, lanes>>>(bodies, BODIES, forces);
            else if (is("matmul"))
                matmul<<<tiles * tiles / lanes, lanes>>>(tiles, a, b, c);
            else if (is("matmul_tiled"))
                matmul_tiled<<<tiles / 8 * (tiles / 8), lanes>>>(tiles / 8, (float4 *)a, (float4 *)b, c);
            else if (is("reduce"))
                reduce<<<blocks, lanes>>>((float4 *)x, FLOATS / 4, out);
            else if (is("histogram"))
                histogram<<<blocks, lanes>>>(hashes, FLOATS, counts);
            else if (is("scan"))
                scan<<<FLOATS / 2048, lanes>>>(keys, FLOATS, integers);
            else
#ifdef HAS_CUB
                check(cub::DeviceReduce::Sum(cub_memory, cub_bytes, x, out, int(FLOATS)));
#else
                runs = false;
#endif
            check(cudaGetLastError());
            check(cudaEventRecord(end));
            check(cudaDeviceSynchronize());
            float milliseconds;
            check(cudaEventElapsedTime(&milliseconds, begin, end));
            if (milliseconds < best)
                best = milliseconds;
        }
        runs ? printf("%.2f\n", best * 1000) : printf("-\n");
    }
    return 0;
}
