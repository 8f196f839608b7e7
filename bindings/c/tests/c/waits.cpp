/* A host whose kernels wait, in the end for ever: `waits DEVICE [CODE]`. Without code lanes are threads of this program. The test looks
 * into the process, and ends it (`tests/device/waits.rs`). */
extern "C" {
#include "common.h"
}
#include "run_kernels.h"
#include "wait_kernels.h"

static const kernel END = KERNEL_OF(waits_end), FOR_EVER = KERNEL_OF(waits_for_ever);

int main(int argc, char **argv) {
    hostcall_options *options;
    hostcall_device *device;
    hostcall_stream *stream;
    hostcall_context *context;
    hostcall_rocm_code *code = NULL;
    EXPECT(argc == 2 || argc == 3);
    works(hostcall_options_new(argv[1], &options, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_stream_new(device, &stream, &error));
    if (argc > 2)
        works(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    works(hostcall_context_new(device, "kernels that wait", &context, &error));
    const uint64_t at = hostcall_context_address(context);
    const auto run = [&](const kernel &kernel, uint32_t lanes, uint32_t rounds) {
        std::vector<uint64_t> out(lanes, UNWRITTEN);
        if (code)
            run_code(device, stream, code, kernel, address_argument(at), 64, rounds, out);
        else
            run_threads(8, []() -> uint32_t & { return wait_lane; }, kernel, at, rounds, out);
        found_nothing(kernel, out);
    };
    run(END, 70, 4);
    printf("waits\n");
    fflush(stdout);
    run(FOR_EVER, code ? 70 : 8, 5);
    return 1;
}
