/* What a host does with kernels that other compilers made, and what is refused. The arguments are code objects: of
 * kernels.hip and of arguments.cl. */
#include "common.h"

static void sum(void *state, uint32_t service, uint32_t lane, uint64_t *words) {
    EXPECT(service == 700 && lane == 0);
    for (int i = 1; i < 8; i++)
        words[0] += words[i];
    __atomic_fetch_add(&((struct counts *)state)->called, 1, __ATOMIC_RELEASE);
}

static void nothing(void *state, const uint64_t *arguments, uint64_t *result) {
    (void)state, (void)arguments, (void)result;
}

static void report(void *state, const char *text) {
    EXPECT(strstr(text, "service 701"));
    __atomic_fetch_add(&((struct counts *)state)->called, 1, __ATOMIC_RELEASE);
}

int main(int argc, char **argv) {
    const hostcall_grid one = {{1, 1, 1}, {1, 1, 1}, 0}, wave = {{1, 1, 1}, {64, 1, 1}, 0};
    struct counts service = {0, 0}, reports = {0, 0}, functions = {0, 0};
    hostcall_options *options;
    hostcall_device *device, *cpu;
    hostcall_stream *stream;
    hostcall_rocm_code *code, *other;
    hostcall_rocm_kernel *kernel, *missing;
    hostcall_buffer *out;
    hostcall_launch *launch;
    hostcall_pinned *pinned;
    hostcall_rocm_counts counts;
    uint64_t function, answer[2];
    EXPECT(argc == 3);

    works(hostcall_options_new("gfx942", &options, &error));
    works(hostcall_options_rocm_report(options, report, &reports, free_counts, &error));
    works(hostcall_options_set(options, HOSTCALL_SETTING_STACK_BYTES, 64 << 10, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_stream_new(device, &stream, &error));

    /* Loading. */
    fails(hostcall_rocm_code_load(device, argv[1], 0, &code, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "version 0");
    fails(hostcall_rocm_code_load(device, "/nowhere", HOSTCALL_ROCM_VERSION_STACKS, &code, &error), HOSTCALL_STATUS_IMAGE, "/nowhere");
    fails(hostcall_rocm_code_load_bytes(device, (const uint8_t *)"text", 4, HOSTCALL_ROCM_VERSION_PHASES, &code, &error),
          HOSTCALL_STATUS_IMAGE, "it is no code object, cubin or PTX: compile");
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_device_open(&options, &cpu, &error));
    fails(hostcall_rocm_code_load(cpu, argv[1], HOSTCALL_ROCM_VERSION_STACKS, &code, &error), HOSTCALL_STATUS_IMAGE, ", not for cpu: code objects");
    EXPECT(code == NULL);
    hostcall_device_free(&cpu);
    works(hostcall_rocm_code_load(device, argv[1], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    works(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &other, &error));
    fails(hostcall_rocm_code_kernel(code, "missing", &missing, &error), HOSTCALL_STATUS_IMAGE, "no kernel `missing`");
    fails(hostcall_rocm_code_kernel(other, "takes_image", &missing, &error), HOSTCALL_STATUS_IMAGE, "an image");
    works(hostcall_rocm_code_kernel(code, "service", &kernel, &error));
    hostcall_rocm_code_free(&code);
    hostcall_rocm_code_free(&other);
    EXPECT(code == NULL && hostcall_rocm_kernel_argument_count(kernel) == 2);
    EXPECT(hostcall_rocm_kernel_argument_bytes(kernel, 0) == 8 && hostcall_rocm_kernel_argument_bytes(kernel, 1) == 4);
    EXPECT(hostcall_rocm_kernel_argument_bytes(kernel, 2) == 0 && hostcall_rocm_kernel_argument_count(NULL) == 0);

    /* Handlers. */
    works(hostcall_rocm_register_service(device, 700, "sum", false, sum, &service, free_counts, &error));
    fails(hostcall_rocm_register_service(device, 700, "sum", true, sum, &service, free_counts, &error), HOSTCALL_STATUS_REFUSED, "700");
    fails(hostcall_rocm_register_service(device, 702, "sum", true, NULL, &service, free_counts, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "`handler`");
    EXPECT(get(&service.freed) == 2);
    fails(hostcall_rocm_register_function(device, nothing, &functions, free_counts, NULL, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "`number`");
    works(hostcall_rocm_register_function(device, nothing, &functions, free_counts, &function, &error));
    EXPECT(get(&functions.freed) == 1);

    /* Launches. */
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, 2, &out, &error));
    works(hostcall_pinned_alloc(device, HOSTCALL_KIND_U64, 2, &pinned, &error));
    uint32_t number = 700;
    hostcall_rocm_argument arguments[2] = {{HOSTCALL_ROCM_KIND_BUFFER, 0, {NULL}}, {HOSTCALL_ROCM_KIND_VALUE, 4, {&number}}};
    fails(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 2, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "buffer");
    arguments[0].value.buffer = out;
    fails(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 1, NULL, &error), HOSTCALL_STATUS_REFUSED, "takes 2 arguments");
    arguments[1].bytes = 8;
    arguments[1].value.bytes = &function;
    fails(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 2, NULL, &error), HOSTCALL_STATUS_REFUSED, "has 8 bytes");
    arguments[1].kind = 9;
    fails(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 2, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 9");
    arguments[1].kind = HOSTCALL_ROCM_KIND_VALUE;
    arguments[1].bytes = 4;
    arguments[1].value.bytes = &number;
    works(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 2, &launch, &error));
    works(hostcall_launch_wait(launch, UINT64_MAX, NULL, &error));
    hostcall_launch_free(&launch);
    works(hostcall_buffer_read(out, answer, sizeof answer, &error));
    EXPECT(answer[0] == 36 && answer[1] == 2 && get(&service.called) == 1);

    /* A pinned buffer, and a service without a handler. */
    number = 701;
    arguments[0].kind = HOSTCALL_ROCM_KIND_PINNED;
    arguments[0].value.pinned = pinned;
    uint64_t *values = hostcall_pinned_data(pinned);
    __atomic_store_n(&values[0], 9, __ATOMIC_RELAXED);
    works(hostcall_rocm_kernel_launch(kernel, stream, &one, arguments, 2, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(__atomic_load_n(&values[0], __ATOMIC_RELAXED) == 0);
    works(hostcall_rocm_statistics(device, &counts, &error));
    EXPECT(counts.faults == 1);
    while (get(&reports.called) < 1) {
    }
    fails(hostcall_rocm_kernel_launch(kernel, NULL, &wave, arguments, 2, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`stream`");

    hostcall_pinned_free(&pinned);
    hostcall_buffer_free(&out);
    hostcall_rocm_kernel_free(&kernel);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    /* What the device had goes a moment after it. */
    while (get(&service.freed) < 3 || get(&functions.freed) < 2 || get(&reports.freed) < 1) {
    }
    puts("passed");
    return 0;
}
