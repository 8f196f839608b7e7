/* A host whose kernels have trace points: `points DEVICE TRACE [CODE]`, or `points endless TRACE`. TRACE is the file, or `none`: then nobody traces. Without
 * code lanes are threads of this program. The test reads the file, and knows what was run (`tests/device/points.rs`). */
extern "C" {
#include "common.h"
}
#include "point_kernels.h"

#include <atomic>
#include <thread>
#include <unistd.h>
#include <vector>

struct kernel {
    const char *name;
    void (*of_thread)(uint64_t, uint64_t *, uint32_t, uint32_t);
};
static const kernel POINTS = {"points", points}, APART = {"points_apart", points_apart}, UNTRACED = {"untraced", untraced};

static hostcall_device *device;
static hostcall_stream *stream;
static hostcall_rocm_code *code;

/* Runs a kernel with so many lanes in blocks of 128, each of which writes 0. */
static void run(const kernel &kernel, uint64_t context, uint32_t lanes, uint32_t rounds) {
    std::vector<uint64_t> out(lanes, ~UINT64_C(0));
    if (code) {
        hostcall_rocm_kernel *loaded;
        hostcall_buffer *buffer;
        works(hostcall_rocm_code_kernel(code, kernel.name, &loaded, &error));
        works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, lanes, &buffer, &error));
        const hostcall_grid grid = {{(lanes + 127) / 128, 1, 1}, {128, 1, 1}, 0};
        hostcall_rocm_argument arguments[4] = {};
        arguments[0].kind = arguments[2].kind = arguments[3].kind = HOSTCALL_ROCM_KIND_VALUE;
        arguments[0].bytes = 8, arguments[0].value.bytes = &context;
        arguments[1].kind = HOSTCALL_ROCM_KIND_BUFFER, arguments[1].value.buffer = buffer;
        arguments[2].bytes = 4, arguments[2].value.bytes = &lanes;
        arguments[3].bytes = 4, arguments[3].value.bytes = &rounds;
        works(hostcall_rocm_kernel_launch(loaded, stream, &grid, arguments, 4, NULL, &error));
        works(hostcall_stream_synchronize(stream, &error));
        works(hostcall_buffer_read(buffer, out.data(), 8 * lanes, &error));
        hostcall_buffer_free(&buffer);
        hostcall_rocm_kernel_free(&loaded);
    } else {
        const uint32_t threads = 8;
        std::vector<std::thread> all;
        for (uint32_t thread = 0; thread < threads; thread++)
            all.emplace_back([&, thread] {
                for (point_lane = thread; point_lane < lanes; point_lane += threads)
                    kernel.of_thread(context, out.data(), lanes, rounds);
            });
        for (auto &thread : all)
            thread.join();
    }
    for (uint32_t lane = 0; lane < lanes; lane++)
        if (out[lane] != 0) {
            fprintf(stderr, "%s: lane %u of %u found %llx\n", kernel.name, lane, lanes, (unsigned long long)out[lane]);
            exit(1);
        }
}

/* Threads write without pause, and hold a slot at their points: the trace ends all the same, and so does the device. */
static int endless(const char *file) {
    hostcall_options *options;
    hostcall_context *context;
    hostcall_tracer *tracer;
    hostcall_trace_summary summary;
    works(hostcall_tracer_new(file, &tracer, &error));
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_trace(options, tracer, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_context_new(device, "endless", &context, &error));
    const uint64_t at = hostcall_context_address(context);
    std::atomic<uint32_t> written(0);
    for (uint32_t thread = 0; thread < 3; thread++)
        std::thread([at, &written] {
            hostcall_scope scope;
            hostcall_scope_begin(&scope, at);
            for (uint64_t round = 0;; round++, written++)
                hostcall_counter(at, "round", round);
        }).detach();
    while (written < 10000)
        std::this_thread::yield();
    works(hostcall_tracer_finish(tracer, UINT64_C(60000000000), &summary, &error));
    EXPECT(summary.is_whole);
    hostcall_context_free(&context);
    hostcall_device_free(&device);
    printf("passed\n");
    fflush(stdout);
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc == 3 && strcmp(argv[1], "endless") == 0)
        return endless(argv[2]);
    hostcall_options *options;
    hostcall_context *context, *other;
    hostcall_tracer *tracer = NULL;
    EXPECT(argc == 3 || argc == 4);
    const int is_traced = strcmp(argv[2], "none") != 0;
    works(hostcall_options_new(argv[1], &options, &error));
    if (is_traced) {
        works(hostcall_tracer_new(argv[2], &tracer, &error));
        works(hostcall_options_trace(options, tracer, &error));
    }
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_stream_new(device, &stream, &error));
    if (argc > 3)
        works(hostcall_rocm_code_load(device, argv[3], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    works(hostcall_context_new(device, "kernels of others", &context, &error));
    works(hostcall_context_new(device, "diverged", &other, &error));
    const uint64_t at = hostcall_context_address(context), at_other = hostcall_context_address(other);
    if (is_traced) {
        for (uint32_t lanes : {1u, 64u, 65u, 777u})
            run(POINTS, at, lanes, 3);
        run(APART, at_other, 333, 5);
        /* More than pages have room for. */
        works(hostcall_context_renew(context, &error));
        run(POINTS, at, 1024, 400);
        works(hostcall_context_flush(context, &error));
        hostcall_trace_summary summary;
        works(hostcall_tracer_finish(tracer, UINT64_C(60000000000), &summary, &error));
        /* What comes after the trace and the context is no part of it, and does no harm. */
        run(POINTS, at, 100, 3);
        hostcall_context_free(&context);
        run(POINTS, at, 100, 3);
        hostcall_tracer_free(&tracer);
    } else {
        run(UNTRACED, at, 300, 5);
        run(POINTS, at, 300, 5);
    }
    hostcall_rocm_code_free(&code);
    hostcall_context_free(&other);
    hostcall_context_free(&context);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    printf("passed\n");
    return 0;
}
