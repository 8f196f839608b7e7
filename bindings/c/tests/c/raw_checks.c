/* What is refused of raw channels, and what policies do. The argument is the code object of walk.hip. */
#include "common.h"

int main(int argc, char **argv) {
    const hostcall_grid grid = {{2, 1, 1}, {64, 1, 1}, 0};
    const uint32_t nodes = 64, steps = 100;
    hostcall_options *options;
    hostcall_device *device;
    hostcall_stream *stream;
    hostcall_rocm_code *code;
    hostcall_rocm_kernel *kernel;
    hostcall_buffer *next;
    hostcall_raw_channel *channel;
    hostcall_raw_page *page;
    hostcall_raw_info info;
    hostcall_raw_counts counts;
    hostcall_launch *launch;
    EXPECT(argc == 2);

    works(hostcall_options_new("gfx942", &options, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_stream_new(device, &stream, &error));
    works(hostcall_rocm_code_load(device, argv[1], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    works(hostcall_rocm_code_kernel(code, "walk", &kernel, &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, nodes, &next, &error));
    EXPECT(hostcall_rocm_kernel_argument_bytes(kernel, 3) == 72);

    fails(hostcall_raw_channel_new(device, 17, 128, HOSTCALL_RAW_POLICY_BLOCK, &channel, &error), HOSTCALL_STATUS_REFUSED, "17");
    fails(hostcall_raw_channel_new(device, 16, 128, 0, &channel, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "policy 0");
    fails(hostcall_raw_channel_new(NULL, 16, 128, HOSTCALL_RAW_POLICY_BLOCK, &channel, &error), HOSTCALL_STATUS_INVALID_ARGUMENT,
          "`device`");
    fails(hostcall_raw_channel_next(NULL, 0, &page, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`channel`");
    EXPECT(channel == NULL && page == NULL && hostcall_raw_page_data(NULL) == NULL);
    hostcall_rocm_argument arguments[4] = {
        {HOSTCALL_ROCM_KIND_INPUT, 0, {NULL}},
        {HOSTCALL_ROCM_KIND_VALUE, 4, {&nodes}},
        {HOSTCALL_ROCM_KIND_VALUE, 4, {&steps}},
        {HOSTCALL_ROCM_KIND_RAW, 0, {NULL}},
    };
    arguments[0].value.buffer = next;
    fails(hostcall_rocm_kernel_launch(kernel, stream, &grid, arguments, 4, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT,
          "argument 3 (the first is 0): `value.raw` is NULL");

    for (uint32_t policy = HOSTCALL_RAW_POLICY_DROP_NEWEST; policy <= HOSTCALL_RAW_POLICY_OVERWRITE_OLDEST; policy++) {
        works(hostcall_raw_channel_new(device, 16, 128, policy, &channel, &error));
        works(hostcall_raw_channel_next(channel, 1000, &page, &error));
        EXPECT(page == NULL);
        arguments[3].value.raw = channel;
        works(hostcall_rocm_kernel_launch(kernel, stream, &grid, arguments, 4, &launch, &error));
        works(hostcall_stream_synchronize(stream, &error));
        uint64_t kept = 0, dropped = 0;
        for (;;) {
            works(hostcall_raw_channel_next(channel, 0, &page, &error));
            if (!page)
                break;
            works(hostcall_raw_page_info(page, &info, &error));
            EXPECT(info.launch == hostcall_launch_id(launch) && info.workgroup < 2 && info.wave == 0);
            EXPECT(hostcall_raw_page_data(page) != NULL && info.bytes % 16 == 0 && info.offset_bytes + info.bytes <= 128);
            kept += info.bytes;
            dropped += info.dropped_before;
            hostcall_raw_page_free(&page);
        }
        works(hostcall_raw_channel_statistics(channel, &counts, &error));
        EXPECT(counts.malformed_words == 0 && dropped <= counts.dropped_records);
        EXPECT(kept + counts.overwritten_bytes + 16 * counts.dropped_records == 16 * 128 * steps);
        EXPECT((counts.overwritten_bytes > 0) == (policy == HOSTCALL_RAW_POLICY_OVERWRITE_OLDEST));
        EXPECT((counts.dropped_records > 0) == (policy == HOSTCALL_RAW_POLICY_DROP_NEWEST));
        hostcall_launch_free(&launch);
        hostcall_raw_channel_free(&channel);
    }

    hostcall_buffer_free(&next);
    hostcall_rocm_kernel_free(&kernel);
    hostcall_rocm_code_free(&code);
    hostcall_stream_free(&stream);
    hostcall_device_free(&device);
    puts("passed");
    return 0;
}
