/* Kernels in C that write to raw channels, and one that posts: for AMD's GPUs and for NVIDIA's. */
#include "hostcall_device.h"

#if defined(__AMDGCN__)
#define KERNEL __attribute__((amdgpu_kernel)) void
#define WAVE_LANES __builtin_amdgcn_wavefrontsize()
#define LANE __builtin_amdgcn_workitem_id_x()
#define WORKGROUP __builtin_amdgcn_workgroup_id_x()
#define LANES_OF_WORKGROUP __builtin_amdgcn_workgroup_size_x()
#elif defined(__NVPTX__)
#define KERNEL __attribute__((nvptx_kernel)) void
#define WAVE_LANES 32
#define LANE ((uint32_t)__nvvm_read_ptx_sreg_tid_x())
#define WORKGROUP ((uint32_t)__nvvm_read_ptx_sreg_ctaid_x())
#define LANES_OF_WORKGROUP ((uint32_t)__nvvm_read_ptx_sreg_ntid_x())
#else
#error "these are for GPUs"
#endif

static inline uint64_t lane_of_grid(void) {
    return (uint64_t)WORKGROUP * LANES_OF_WORKGROUP + LANE;
}

/* Each lane writes so many records of 16 bytes. */
KERNEL records(struct hostcall_raw_stream out, uint64_t count) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t record[2] = {lane_of_grid(), i};
        hostcall_raw_record(&out, &writer, record, sizeof record);
    }
    hostcall_raw_close(&out, &writer);
}

/* The same with records of 24 bytes, of lanes that go apart and write different numbers of them. */
KERNEL diverges(struct hostcall_raw_stream out, uint64_t count) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    uint64_t lane = lane_of_grid();
    for (uint64_t i = 0; i < count + lane % 5; i++) {
        uint64_t record[3] = {lane, i, lane ^ i};
        if (lane % 3 == 0) {
            hostcall_raw_record(&out, &writer, record, sizeof record);
        } else if (i % 2 == 0 || lane % 7 != 2) {
            hostcall_raw_record(&out, &writer, record, sizeof record);
            if (lane % 11 == 4)
                hostcall_raw_flush(&out, &writer);
        } else {
            hostcall_raw_record(&out, &writer, record, sizeof record);
        }
    }
    hostcall_raw_close(&out, &writer);
}

/* The first lane of each wave writes so many texts: that with number i has 7 * i modulo 300 bytes. */
KERNEL texts(struct hostcall_raw_stream out, uint64_t count) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    unsigned char text[300];
    if (LANE % WAVE_LANES != 0)
        return;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t at = 0; at < sizeof text; at++)
            text[at] = (unsigned char)(i + at + lane_of_grid());
        hostcall_raw_write(&out, &writer, text, 7 * i % 300);
    }
    hostcall_raw_close(&out, &writer);
}

/* Each wave writes a record of each lane and tells of them, then others, and leaves the page open. */
KERNEL leaves(struct hostcall_raw_stream out) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t record[2] = {lane_of_grid(), i};
        hostcall_raw_record(&out, &writer, record, sizeof record);
        if (i == 0)
            hostcall_raw_flush(&out, &writer);
    }
}

/* As `leaves`; when so many lanes have done that, the grid's first lane writes where no memory is. The others wait for ever. */
KERNEL faults(struct hostcall_raw_stream out, uint64_t *arrived, uint64_t lanes, uint64_t *nowhere) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t record[2] = {lane_of_grid(), i};
        hostcall_raw_record(&out, &writer, record, sizeof record);
        if (i == 0)
            hostcall_raw_flush(&out, &writer);
    }
    hostcall_add_((uint64_t)arrived, 1);
    for (;;) {
        if (lane_of_grid() == 0 && hostcall_load_((uint64_t)arrived) == lanes)
            hostcall_store_((uint64_t)nowhere, 1);
        hostcall_pause_();
    }
}

/* Each lane posts its number; when so many have, the grid's first lane writes where no memory is. The others wait for ever. */
KERNEL posts_and_faults(uint64_t context, uint64_t method, uint64_t *arrived, uint64_t lanes, uint64_t *nowhere) {
    uint64_t lane = lane_of_grid();
    hostcall_post_words(context, method, &lane, 1);
    hostcall_add_((uint64_t)arrived, 1);
    for (;;) {
        if (lane == 0 && hostcall_load_((uint64_t)arrived) == lanes)
            hostcall_store_((uint64_t)nowhere, 1);
        hostcall_pause_();
    }
}
