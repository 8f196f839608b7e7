/*
 * A kernel in HIP or CUDA C++ that says what it reads, while it runs. examples/raw.c is its host.
 *
 *     hipcc --offload-arch=gfx942 --cuda-device-only --no-gpu-bundle-output -I include walk.hip -o walk.co
 *     nvcc -x cu -arch=sm_90 -cubin -I include walk.hip -o walk.cubin
 */
// ANCHOR: kernel
#include "hostcall_device.h"

struct access {
    uint64_t address;
    uint32_t lane, step;
};

extern "C" __global__ void walk(const uint32_t *next, uint32_t nodes, uint32_t steps, hostcall_raw_stream out) {
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x, node = lane % nodes;
    for (uint32_t step = 0; step < steps; step++) {
        struct access access = {(uint64_t)&next[node], lane, step};
        hostcall_raw_record(&out, &writer, &access, sizeof access); /* One record of each lane, side by side. */
        node = next[node];
    }
    hostcall_raw_close(&out, &writer); /* Each lane, before it ends. */
}
// ANCHOR_END: kernel
