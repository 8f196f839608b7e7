/* How hosts in C++ run kernels of (context, out, lanes, rounds), in which each lane writes 0: on a device, or as threads of this
 * program. Include common.h before it. */
#include <thread>
#include <vector>

struct kernel {
    const char *name;
    void (*of_thread)(uint64_t, uint64_t *, uint32_t, uint32_t);
};
#define KERNEL_OF(name) {#name, name}

/* What lanes have not written. */
static const uint64_t UNWRITTEN = ~UINT64_C(0);

/* The argument that is the address of a context, or of a queue. */
static inline hostcall_rocm_argument address_argument(const uint64_t &address) {
    hostcall_rocm_argument argument = {};
    argument.kind = HOSTCALL_ROCM_KIND_VALUE;
    argument.bytes = 8, argument.value.bytes = &address;
    return argument;
}

/* Runs a kernel of loaded code in blocks of `block`, a lane for each place of `out`. Any thread may. */
static inline void run_code(hostcall_device *device, hostcall_stream *stream, hostcall_rocm_code *code, const kernel &kernel,
                            const hostcall_rocm_argument &first, uint32_t block, uint32_t rounds, std::vector<uint64_t> &out) {
    const uint32_t lanes = (uint32_t)out.size();
    hostcall_error *error = NULL;
    hostcall_rocm_kernel *loaded;
    hostcall_buffer *buffer;
    const auto works = [&error](hostcall_status status) {
        if (status != HOSTCALL_STATUS_OK) {
            fprintf(stderr, "status %d: %s\n", (int)status, hostcall_error_text(error));
            exit(1);
        }
    };
    works(hostcall_rocm_code_kernel(code, kernel.name, &loaded, &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, lanes, &buffer, &error));
    const hostcall_grid grid = {{(lanes + block - 1) / block, 1, 1}, {block, 1, 1}, 0};
    hostcall_rocm_argument arguments[4] = {first};
    arguments[1].kind = HOSTCALL_ROCM_KIND_BUFFER, arguments[1].value.buffer = buffer;
    arguments[2].kind = arguments[3].kind = HOSTCALL_ROCM_KIND_VALUE;
    arguments[2].bytes = 4, arguments[2].value.bytes = &lanes;
    arguments[3].bytes = 4, arguments[3].value.bytes = &rounds;
    works(hostcall_rocm_kernel_launch(loaded, stream, &grid, arguments, 4, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    works(hostcall_buffer_read(buffer, out.data(), 8 * lanes, &error));
    hostcall_buffer_free(&buffer);
    hostcall_rocm_kernel_free(&loaded);
}

/* Runs a kernel as threads, of which each is every so-manieth lane. `lane_of_thread` is what the kernel asks which it is. */
static inline void run_threads(uint32_t threads, uint32_t &(*lane_of_thread)(void), const kernel &kernel, uint64_t address,
                               uint32_t rounds, std::vector<uint64_t> &out) {
    const uint32_t lanes = (uint32_t)out.size();
    std::vector<std::thread> all;
    for (uint32_t thread = 0; thread < threads; thread++)
        all.emplace_back([=, &kernel, &out] {
            uint32_t &lane = lane_of_thread();
            for (lane = thread; lane < lanes; lane += threads)
                kernel.of_thread(address, out.data(), lanes, rounds);
        });
    for (auto &thread : all)
        thread.join();
}

static inline void found_nothing(const kernel &kernel, const std::vector<uint64_t> &out) {
    for (size_t lane = 0; lane < out.size(); lane++)
        if (out[lane] != 0) {
            fprintf(stderr, "%s: lane %zu of %zu found %llx\n", kernel.name, lane, out.size(), (unsigned long long)out[lane]);
            exit(1);
        }
}
