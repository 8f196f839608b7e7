/*
 * A host of a kernel in HIP or CUDA C++ that streams records while it runs: examples/walk.hip, compiled to a code object, a
 * cubin or PTX.
 *
 *     raw gfx942 walk.co 1000 100
 *
 * `gfx942` is an AMD GPU in software, `amdgpu:0` and `cuda:0` are the first GPUs of the machine.
 */
#include "hostcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES_OF_WORKGROUP = 256, NODES = 4096 };

struct access {
    uint64_t address;
    uint32_t lane, step;
};

static hostcall_error *error;

static void check(hostcall_status status) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", hostcall_error_text(error));
    exit(1);
}

/* Counts the pages that there are, waiting for the first one at most for `limit_ns`. */
static void read_pages(const hostcall_raw_channel *channel, uint64_t limit_ns, uint64_t *reads) {
    hostcall_raw_page *page;
    check(hostcall_raw_channel_next(channel, limit_ns, &page, &error));
    while (page) {
        hostcall_raw_info info;
        check(hostcall_raw_page_info(page, &info, &error));
        const struct access *accesses = hostcall_raw_page_data(page);
        for (size_t i = 0; i < info.bytes / sizeof *accesses; i++)
            reads[accesses[i].address / sizeof(uint32_t) % NODES]++;
        hostcall_raw_page_free(&page);
        check(hostcall_raw_channel_next(channel, 0, &page, &error));
    }
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: %s DEVICE CODE LANES STEPS\n", argv[0]);
        return 2;
    }
    const uint32_t lanes = (uint32_t)strtoul(argv[3], NULL, 10), steps = (uint32_t)strtoul(argv[4], NULL, 10);
    const uint32_t nodes = NODES, workgroups = (lanes + LANES_OF_WORKGROUP - 1) / LANES_OF_WORKGROUP;
    const hostcall_grid grid = {{workgroups, 1, 1}, {LANES_OF_WORKGROUP, 1, 1}, 0};
    static uint32_t next[NODES];
    static uint64_t reads[NODES];
    hostcall_options *options;
    hostcall_device *device;
    hostcall_stream *stream;
    hostcall_rocm_code *code;
    hostcall_rocm_kernel *kernel;
    hostcall_buffer *buffer;
    hostcall_raw_channel *channel;
    hostcall_launch *launch;
    hostcall_raw_counts counts;

    check(hostcall_options_new(argv[1], &options, &error));
    check(hostcall_device_open(&options, &device, &error));
    check(hostcall_stream_new(device, &stream, &error));
    check(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    check(hostcall_rocm_code_kernel(code, "walk", &kernel, &error));
    for (uint32_t i = 0; i < NODES; i++)
        next[i] = (i * 5 + 3) % NODES;
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, NODES, &buffer, &error));
    check(hostcall_buffer_write(buffer, next, sizeof next, &error));

    // ANCHOR: host
    /* 64 pages of 64 KiB: more than waves run at the same time, else these wait for each other. */
    check(hostcall_raw_channel_new(device, 64, 65536, HOSTCALL_RAW_POLICY_BLOCK, &channel, &error));
    hostcall_rocm_argument arguments[4] = {
        {HOSTCALL_ROCM_KIND_INPUT, 0, {NULL}},
        {HOSTCALL_ROCM_KIND_VALUE, sizeof nodes, {&nodes}},
        {HOSTCALL_ROCM_KIND_VALUE, sizeof steps, {&steps}},
        {HOSTCALL_ROCM_KIND_RAW, 0, {NULL}},
    };
    arguments[0].value.buffer = buffer;
    arguments[3].value.raw = channel;
    check(hostcall_rocm_kernel_launch(kernel, stream, &grid, arguments, 4, &launch, &error));
    while (!hostcall_launch_is_done(launch))
        read_pages(channel, 1000000, reads);
    check(hostcall_stream_synchronize(stream, &error));
    read_pages(channel, 0, reads);
    check(hostcall_raw_channel_statistics(channel, &counts, &error));
    // ANCHOR_END: host

    uint64_t most = 0, sum = 0;
    for (uint32_t i = 0; i < NODES; i++) {
        most = reads[i] > most ? reads[i] : most;
        sum += reads[i];
    }
    printf("%llu reads, at most %llu of a node; %llu bytes, %llu dropped, %llu pages left open\n", (unsigned long long)sum,
           (unsigned long long)most, (unsigned long long)counts.bytes, (unsigned long long)counts.dropped_records,
           (unsigned long long)counts.swept_pages);

    hostcall_launch_free(&launch);
    hostcall_raw_channel_free(&channel);
    hostcall_buffer_free(&buffer);
    hostcall_rocm_kernel_free(&kernel);
    hostcall_rocm_code_free(&code);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    return 0;
}
