/*
 * Rows of arrays as calls, posts and checks: what XLA's custom calls of hostcall/jax.py run. A row is a lane: on the host a thread
 * goes through rows, on a GPU each thread has one. scripts/device-library compiles it for GPUs.
 */
/* One copy for each number of words would make a GPU's driver compile for seconds. */
#define HOSTCALL_UNROLL_
#include "hostcall_device.h"

#define MOST_WORDS 4
/* Threads of a block, as src/xla.rs launches it. */
#define BLOCK 128

/* What is done with each row. */
enum { CALL = 0, POST = 1, CHECK = 2 };

/* How a value lies in an array: so many bytes, and whether its sign goes into the bits above. */
#define BYTES(form) ((form) & 0xff)
#define SIGNED 0x100

struct rows {
    uint64_t context;
    uint64_t method; /* Of a check: its number. */
    uint64_t count;
    const void *words[MOST_WORDS]; /* Of a check: the condition. */
    const uint8_t *mask;
    void *out;          /* Of a call. */
    uint64_t otherwise; /* Where the mask does not hold or the call fails. */
    uint32_t forms[MOST_WORDS];
    uint32_t word_count;
    uint32_t out_bytes;
    uint32_t what;
    uint32_t reserved;
};

HOSTCALL_FUNCTION uint64_t load_word(const void *array, uint32_t form, uint64_t row) {
    uint64_t word;
    switch (BYTES(form)) {
    case 1: word = ((const uint8_t *)array)[row]; return form & SIGNED ? (uint64_t)(int8_t)word : word;
    case 2: word = ((const uint16_t *)array)[row]; return form & SIGNED ? (uint64_t)(int16_t)word : word;
    case 4: word = ((const uint32_t *)array)[row]; return form & SIGNED ? (uint64_t)(int32_t)word : word;
    default: return ((const uint64_t *)array)[row];
    }
}

HOSTCALL_FUNCTION void store_word(void *array, uint32_t bytes, uint64_t row, uint64_t word) {
    switch (bytes) {
    case 1: ((uint8_t *)array)[row] = (uint8_t)word; break;
    case 2: ((uint16_t *)array)[row] = (uint16_t)word; break;
    case 4: ((uint32_t *)array)[row] = (uint32_t)word; break;
    default: ((uint64_t *)array)[row] = word;
    }
}

HOSTCALL_FUNCTION void do_row(const struct rows *rows, uint64_t row) {
    uint64_t words[MOST_WORDS] = {0, 0, 0, 0}, result = 0, status = HOSTCALL_CALL_OK;
    const int is_meant = rows->mask[row] != 0;
    for (uint32_t i = 0; i < MOST_WORDS; i++)
        words[i] = i < rows->word_count ? load_word(rows->words[i], rows->forms[i], row) : 0;
    if (rows->what == CHECK) {
        if (is_meant && words[0] == 0)
            hostcall_numbered_check_failed_(rows->context, (uint32_t)rows->method);
        return;
    }
    if (is_meant && rows->what == POST)
        hostcall_post_words(rows->context, rows->method, words, rows->word_count);
    else if (is_meant)
        status = hostcall_call_words(rows->context, rows->method, words, rows->word_count, &result, 1, 0);
    if (rows->what == CALL)
        store_word(rows->out, rows->out_bytes, row, is_meant && status == HOSTCALL_CALL_OK ? result : rows->otherwise);
}

#if defined(__NVPTX__)
__attribute__((nvptx_kernel)) void hostcall_rows(struct rows rows) {
    uint32_t block[3], thread[3];
    hostcall_here_(block, thread);
    const uint64_t row = (uint64_t)block[0] * BLOCK + thread[0];
    if (row < rows.count)
        do_row(&rows, row);
}
#else
/* Does every `step`th row from `first` on. */
void hostcall_rows(const struct rows *rows, uint64_t first, uint64_t step) {
    for (uint64_t row = first; row < rows->count; row += step)
        do_row(rows, row);
}
#endif
