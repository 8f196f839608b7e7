/*
 * A host of kernels in HIP that ROCm's compiler made and linked with its device libraries: they call a function of the host
 * and print. The kernels are those of host/hostcall/tests/rocm/kernels.hip. Clang and Debian's rocm-device-libs make the code
 * object: clang-22 -x hip --offload-arch=gfx942 --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib
 * -mprintf-kind=hostcall, with -mlink-builtin-bitcode for each library, as host/hostcall/tests/rocm/compile.rs does it.
 *
 *     rocm gfx942 kernels.co 1000
 *
 * `gfx942` is an AMD GPU in software, `amdgpu:0` is the first one of the machine.
 */
#include "hostcall.h"

#include <stdio.h>
#include <stdlib.h>

enum { TIMES = 3, LANES_OF_WORKGROUP = 256 };

static hostcall_error *error;

static void check(hostcall_status status) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", hostcall_error_text(error));
    exit(1);
}

/* What kernels call: any thread, several lanes at the same time. */
static void combine(void *state, const uint64_t *arguments, uint64_t *result) {
    __atomic_fetch_add((uint64_t *)state, 1, __ATOMIC_RELAXED);
    result[0] = arguments[0] * 10 + arguments[1];
    result[1] = arguments[0] + arguments[1];
}

static hostcall_rocm_argument value(const void *bytes, size_t count) {
    hostcall_rocm_argument argument = {HOSTCALL_ROCM_KIND_VALUE, count, {bytes}};
    return argument;
}

static hostcall_rocm_argument memory(const hostcall_buffer *buffer) {
    hostcall_rocm_argument argument = {HOSTCALL_ROCM_KIND_BUFFER, 0, {NULL}};
    argument.value.buffer = buffer;
    return argument;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: %s DEVICE CODE_OBJECT LANES\n", argv[0]);
        return 2;
    }
    uint64_t lanes = strtoull(argv[3], NULL, 10), times = TIMES, called = 0, function;
    uint32_t workgroups = (uint32_t)((lanes + LANES_OF_WORKGROUP - 1) / LANES_OF_WORKGROUP);
    const hostcall_grid grid = {{workgroups, 1, 1}, {LANES_OF_WORKGROUP, 1, 1}, 0};
    hostcall_options *options;
    hostcall_device *device;
    hostcall_stream *stream;
    hostcall_rocm_code *code;
    hostcall_rocm_kernel *calls, *lines;
    hostcall_buffer *sums, *lengths;

    check(hostcall_options_new(argv[1], &options, &error));
    check(hostcall_device_open(&options, &device, &error));
    check(hostcall_stream_new(device, &stream, &error));
    check(hostcall_rocm_register_function(device, combine, &called, NULL, &function, &error));
    check(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    check(hostcall_rocm_code_kernel(code, "calls", &calls, &error));
    check(hostcall_rocm_code_kernel(code, "lines", &lines, &error));

    /* __global__ void calls(uint64_t *sums, uint64_t lanes, uint64_t function, uint64_t times) */
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, lanes, &sums, &error));
    const hostcall_rocm_argument of_calls[4] = {memory(sums), value(&lanes, sizeof lanes), value(&function, sizeof function),
                                                value(&times, sizeof times)};
    check(hostcall_rocm_kernel_launch(calls, stream, &grid, of_calls, 4, NULL, &error));

    /* __global__ void lines(int *lengths, uint64_t lanes) */
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_I32, lanes, &lengths, &error));
    const hostcall_rocm_argument of_lines[2] = {memory(lengths), value(&lanes, sizeof lanes)};
    check(hostcall_rocm_kernel_launch(lines, stream, &grid, of_lines, 2, NULL, &error));

    check(hostcall_stream_synchronize(stream, &error));
    check(hostcall_device_flush(device, &error));
    uint64_t *host_sums = malloc(lanes * sizeof *host_sums), sum = 0;
    int32_t *host_lengths = malloc(lanes * sizeof *host_lengths), length = 0;
    if (!host_sums || !host_lengths)
        return 1;
    check(hostcall_buffer_read(sums, host_sums, lanes * sizeof *host_sums, &error));
    check(hostcall_buffer_read(lengths, host_lengths, lanes * sizeof *host_lengths, &error));
    for (uint64_t lane = 0; lane < lanes; lane++) {
        sum += host_sums[lane];
        length += host_lengths[lane];
    }
    printf("%llu calls, sum %llu, %d characters\n", (unsigned long long)called, (unsigned long long)sum, length);

    free(host_sums);
    free(host_lengths);
    hostcall_buffer_free(&sums);
    hostcall_buffer_free(&lengths);
    hostcall_rocm_kernel_free(&calls);
    hostcall_rocm_kernel_free(&lines);
    hostcall_rocm_code_free(&code);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    return 0;
}
