/* Threads of the host as waves: each call is one wave's work. */
#define HOSTCALL_CLOCK_NS() UINT64_C(4711)
#include "hostcall_device.h"

/* Writes so many records of three words, each with what its place says. Returns how many were kept. */
uint64_t wave_records(const struct hostcall_raw_stream *out, uint32_t workgroup, uint32_t wave, uint64_t count, int closes) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    uint64_t kept = 0;
    writer.workgroup = workgroup;
    writer.wave = wave;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t record[3] = {(uint64_t)workgroup << 32 | wave, i, ~i};
        kept += (uint64_t)hostcall_raw_record(out, &writer, record, sizeof record);
    }
    if (closes)
        hostcall_raw_close(out, &writer);
    return kept;
}

/* Writes so many records that fit no page: of no bytes, of 12, and of more than it has. Returns how many were kept. */
uint64_t wave_misfits(const struct hostcall_raw_stream *out, uint32_t workgroup, uint32_t wave, uint64_t count,
                      int closes) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    uint32_t longer = (UINT32_C(1) << out->page_bytes_log2) + 8;
    unsigned char record[1024] = {0};
    uint64_t kept = 0;
    writer.workgroup = workgroup;
    writer.wave = wave;
    for (uint64_t i = 0; i < count; i++)
        kept += (uint64_t)hostcall_raw_record(out, &writer, record, i % 4 == 0 ? 0 : i % 4 == 2 ? 12 : longer);
    if (closes)
        hostcall_raw_close(out, &writer);
    return kept;
}

/* Writes so many texts: that with number i has 7 * i modulo 300 bytes. Returns how many were kept. */
uint64_t wave_texts(const struct hostcall_raw_stream *out, uint32_t workgroup, uint32_t wave, uint64_t count, int closes) {
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    unsigned char text[300];
    uint64_t kept = 0;
    writer.workgroup = workgroup;
    writer.wave = wave;
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t at = 0; at < sizeof text; at++)
            text[at] = (unsigned char)(i + at + wave);
        kept += (uint64_t)hostcall_raw_write(out, &writer, text, 7 * i % 300);
    }
    if (closes)
        hostcall_raw_close(out, &writer);
    return kept;
}

/* Byte offsets, from the shared memory's start, of a free entry, of a page's place, and of its header. */
void places(const struct hostcall_raw_stream *out, uint64_t position, uint32_t page, uint64_t *found) {
    found[0] = hostcall_raw_free_at_(out, position) - out->shared;
    found[1] = hostcall_raw_commit_at_(out, page) - out->shared;
    found[2] = hostcall_raw_header_at_(out, page) - out->shared;
}
