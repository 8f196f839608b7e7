/* Kernels that call from a context, of which the host asks whose calls came. Each says with `tag` which launch it is. */
#include "hostcall_device.h"

#define LANE (blockIdx.x * blockDim.x + threadIdx.x)

/* Each lane calls, by itself and through a held slot, and writes both statuses and what it got. */
extern "C" __global__ void ask(uint64_t context, uint64_t method, uint64_t *out, uint64_t tag) {
    uint64_t *told = out + 3 * LANE;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t result = 0;
    told[0] = hostcall_call_words(context, method, &tag, 1, &result, 1, 0);
    told[1] = result;
    hostcall_scope_begin(&scope, context);
    told[2] = hostcall_scope_call_words(&scope, method, &tag, 1, &result, 1, 0);
    hostcall_scope_end(&scope);
}

/* Each lane posts, one prints, one fails a check, and all call with bytes. */
extern "C" __global__ void tell(uint64_t context, const uint64_t *methods, uint64_t *out, uint64_t tag) {
    const uint32_t lane = LANE;
    unsigned char text[40], back[40];
    uint64_t posted = (uint64_t)hostcall_post_words(context, methods[0], &tag, 1);
    uint64_t result = 0, words[2] = {tag, sizeof text};
    for (uint32_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)(tag + i);
    struct hostcall_bytes call = {words, 2, 1, text, sizeof text, &result, back, sizeof back, 0, 0, 0};
    uint64_t status = hostcall_call_bytes(context, methods[1], &call, 0);
    uint64_t wrong = posted != 1 || status != HOSTCALL_CALL_OK || call.filled != sizeof text || back[39] != text[39];
    if (lane == 3)
        hostcall_printf(context, "tag %lu\n", tag);
    hostcall_check(context, lane != 5);
    out[lane] = wrong || result != tag;
}

/* Calls what nobody serves. */
extern "C" __global__ void stray(uint64_t context, uint64_t *out) {
    out[LANE] = hostcall_call_words(context, HOSTCALL_METHOD(799, 0), 0, 0, 0, 0, 0);
}

/* By two contexts. */
extern "C" __global__ void both(uint64_t one, uint64_t other, uint64_t method, uint64_t *out) {
    uint64_t tags[2] = {1, 2}, result = 0;
    out[0] = hostcall_call_words(one, method, &tags[0], 1, &result, 1, 0);
    out[1] = hostcall_call_words(other, method, &tags[1], 1, &result, 1, 0);
}

/* Trace points of each lane. */
extern "C" __global__ void traced(uint64_t context, uint64_t tag) {
    hostcall_counter(context, "tag", tag);
}
