/* A host whose kernels call from a context: `contexts DEVICE [CODE LINKED [LANES]]`. `LINKED` has the kernel of library_kernels.h.
 * Without code lanes are threads of this program. `LANES`: no more than these, for code that nothing has optimised. */
extern "C" {
#include "common.h"
#include "context_service.h"
}
#include "context_kernels.h"
#include "library_kernels.h"
#include "run_kernels.h"

#include <mutex>
#include <string>
#include <algorithm>

static const kernel AFFINE_KERNEL = KERNEL_OF(affine), HELD = KERNEL_OF(held), DIVERGE = KERNEL_OF(diverge), POSTS = KERNEL_OF(posts), BYTES = KERNEL_OF(bytes),
                    STATUSES = KERNEL_OF(statuses), SAYS = KERNEL_OF(says), MIXED = KERNEL_OF(mixed), CANCELLED = KERNEL_OF(cancelled), LINKED_ONE = KERNEL_OF(linked);

static hostcall_device *device;
static hostcall_stream *stream;
static hostcall_rocm_code *code;
static tally tally_of;
static std::string printed;
static std::mutex printing;
static int answers;

static void take(void *, int stream, const char *text, size_t len) {
    std::lock_guard<std::mutex> lock(printing);
    if (stream == 1)
        printed.append(text, len);
}

/* Where hostcall launches, every other launch is given this context as such: its calls are the launch's. */
static hostcall_context *context;

/* Runs a kernel with so many lanes in blocks of `block`, and checks that each found nothing wrong. */
static void run(const kernel &kernel, uint64_t at, uint32_t lanes, uint32_t block, uint32_t rounds) {
    static uint32_t runs;
    std::vector<uint64_t> out(lanes, UNWRITTEN);
    if (code) {
        hostcall_rocm_argument first = address_argument(at);
        if (context && at == hostcall_context_address(context) && runs++ % 2 == 0)
            first.kind = HOSTCALL_ROCM_KIND_CONTEXT, first.value.context = context;
        run_code(device, stream, code, kernel, first, block, rounds, out);
    } else {
        run_threads(8, []() -> uint32_t & { return lane_of_all; }, kernel, at, rounds, out);
    }
    found_nothing(kernel, out);
}

int main(int argc, char **argv) {
    hostcall_options *options;
    hostcall_context *other;
    hostcall_statistics before, after;
    const hostcall_service service = {methods, 5, serve, &tally_of, NULL, true}, slow = {slow_methods, 1, serve_slowly, &answers, NULL, false};
    EXPECT(argc == 2 || argc == 4 || argc == 5);
    const uint32_t most = argc == 5 ? (uint32_t)atoi(argv[4]) : UINT32_MAX;
    works(hostcall_options_new(argv[1], &options, &error));
    works(hostcall_options_service(options, &service, &error));
    works(hostcall_options_service(options, &slow, &error));
    works(hostcall_options_output(options, take, NULL, NULL, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_stream_new(device, &stream, &error));
    if (argc > 3)
        works(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    works(hostcall_context_new(device, "kernels of others", &context, &error));
    works(hostcall_context_new(device, "others", &other, &error));
    const uint64_t at = hostcall_context_address(context);
    EXPECT(at != 0 && at != hostcall_context_address(other) && hostcall_context_address(NULL) == 0);

    for (uint32_t lanes : {1u, 7u, 32u, 64u, 65u, 777u, 1500u}) {
        if (lanes > most)
            break;
        run(AFFINE_KERNEL, at, lanes, 128, 3);
        run(HELD, at, lanes, 96, 7);
        run(DIVERGE, at, lanes, 256, 2);
        if (lanes <= 65)
            run(BYTES, at, lanes, 128, 4);
        run(MIXED, at, lanes, 128, 3);
        /* Posts are counted, each once. */
        works(hostcall_context_flush(context, &error));
        works(hostcall_device_statistics(device, &before, &error));
        const uint64_t posts = __atomic_load_n(&tally_of.posts, __ATOMIC_RELAXED);
        run(POSTS, at, lanes, 64, 20);
        works(hostcall_context_flush(context, &error));
        works(hostcall_device_statistics(device, &after, &error));
        EXPECT(after.posts - before.posts == 40 * lanes);
        EXPECT(__atomic_load_n(&tally_of.posts, __ATOMIC_RELAXED) - posts == 40 * lanes);
        EXPECT(after.refused_posts == 0 && after.garbage_posts == 0 && after.broken_slots == 0);
    }
    run(STATUSES, at, 70, 64, 1);
    add(&answers);

    /* Streams of others are CUDA's. */
    if (argv[1][0] == 'c' && argv[1][1] == 'u') {
        hostcall_fence *fence;
        works(hostcall_context_fence(context, 0, &fence, &error));
        works(hostcall_fence_wait(fence, UINT64_C(5000000000), &error));
        EXPECT(hostcall_fence_is_done(fence));
        hostcall_fence_free(&fence);
    } else {
        hostcall_fence *fence;
        EXPECT(hostcall_context_fence(context, 0, &fence, &error) == HOSTCALL_STATUS_DEVICE);
        EXPECT(fence == NULL && !hostcall_fence_is_done(fence));
        hostcall_error_free(&error);
    }

    /* Lines, and checks. */
    run(SAYS, at, 100, 64, 2);
    works(hostcall_device_flush(device, &error));
    {
        std::lock_guard<std::mutex> lock(printing);
        EXPECT(printed.find("lane 17 of says:  8.50 -3% 10000000000\n") != std::string::npos);
        EXPECT(std::count(printed.begin(), printed.end(), '\n') == 14);
    }
    hostcall_text *text;
    works(hostcall_context_flush(context, &error));
    works(hostcall_context_failed_check(context, &text, &error));
    EXPECT(text && strstr(hostcall_text_get(text), "context_kernels.h:") && strstr(hostcall_text_get(text), "`lane % 10 != 3`"));
    EXPECT(strstr(hostcall_text_get(text), "nor for 9 more"));
    hostcall_text_free(&text);
    works(hostcall_context_failed_check(context, &text, &error));
    EXPECT(text == NULL && hostcall_text_get(NULL) == NULL);

    /* Functions that are linked, and a check that has a number. */
    if (argc > 3) {
        hostcall_rocm_code_free(&code);
        works(hostcall_rocm_code_load(device, argv[3], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    }
    uint32_t number, again;
    works(hostcall_number_check("loss is finite", "train.py", 12, &again, &error));
    works(hostcall_number_check("loss is finite", "train.py", 13, &number, &error));
    EXPECT(number != again);
    works(hostcall_number_check("loss is finite", "train.py", 12, &again, &error));
    EXPECT(number != again);
    for (uint32_t lanes : {1u, 64u, 100u, 700u}) {
        const uint64_t posts = __atomic_load_n(&tally_of.posts, __ATOMIC_RELAXED);
        run(LINKED_ONE, at, lanes, 128, number);
        works(hostcall_context_flush(context, &error));
        works(hostcall_context_failed_check(context, &text, &error));
        EXPECT(__atomic_load_n(&tally_of.posts, __ATOMIC_RELAXED) - posts == lanes + (lanes + 2) / 3);
        EXPECT(lanes == 1 ? text == NULL : strstr(hostcall_text_get(text), "train.py:13: block (") && strstr(hostcall_text_get(text), "`loss is finite` does not hold, nor for"));
        hostcall_text_free(&text);
    }
    if (argc > 3) {
        hostcall_rocm_code_free(&code);
        works(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    }

    /* Cancelled, and renewed; the other context is not. */
    works(hostcall_context_cancel(context, &error));
    run(CANCELLED, at, 200, 64, 3);
    run(AFFINE_KERNEL, hostcall_context_address(other), 100, 64, 2);
    works(hostcall_context_renew(context, &error));
    run(AFFINE_KERNEL, at, 100, 64, 2);

    /* What comes after the context. */
    hostcall_context_free(&other);
    EXPECT(other == NULL);
    hostcall_context_free(&context);
    run(CANCELLED, at, 100, 64, 2);
    if (!code) {
        hostcall_stream_free(&stream);
        hostcall_device_free(&device);
        run(CANCELLED, at, 100, 64, 2);
    }
    EXPECT(__atomic_load_n(&tally_of.malformed, __ATOMIC_RELAXED) == 0);
    hostcall_rocm_code_free(&code);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    printf("passed\n");
    return 0;
}
