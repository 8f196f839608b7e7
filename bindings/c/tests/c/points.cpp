/* A host whose kernels have trace points: `points DEVICE TRACE [CODE]`, or `points endless TRACE`. TRACE is the file, or `none`: then
 * nobody traces. Without code lanes are threads of this program. The test reads the file, and knows what was run
 * (`tests/device/points.rs`). */
extern "C" {
#include "common.h"
}
#include "point_kernels.h"
#include "run_kernels.h"

#include <atomic>
#include <unistd.h>

static const kernel POINTS = KERNEL_OF(points), APART = KERNEL_OF(points_apart), UNTRACED = KERNEL_OF(untraced);

static hostcall_device *device;
static hostcall_stream *stream;
static hostcall_rocm_code *code;

static void run(const kernel &kernel, uint64_t context, uint32_t lanes, uint32_t rounds) {
    std::vector<uint64_t> out(lanes, UNWRITTEN);
    if (code)
        run_code(device, stream, code, kernel, address_argument(context), 128, rounds, out);
    else
        run_threads(8, []() -> uint32_t & { return point_lane; }, kernel, context, rounds, out);
    found_nothing(kernel, out);
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
    /* One has taken room, and stores its record when the device is closed. */
    const uint64_t points = hostcall_points_of_(at), place = hostcall_place_at_(points, hostcall_writer_of_(points).place);
    uint64_t room;
    do
        hostcall_counter(at, "round", 0);
    while ((room = hostcall_room_((const hostcall_raw_stream *)points, hostcall_add_(place, UINT64_C(2) << 32))) == 0);
    works(hostcall_tracer_finish(tracer, UINT64_C(60000000000), &summary, &error));
    EXPECT(summary.is_whole);
    hostcall_context_free(&context);
    hostcall_device_free(&device);
    for (uint32_t word = 0; word < 4; word += 2)
        hostcall_send_pair_(room + 8 * word, 1, 1);
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
