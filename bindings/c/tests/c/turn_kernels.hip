/* Kernels that are replayed while handlers fail, wait, are cancelled and go away: for GPUs, and for threads of the host, which say
 * which lane they are. The host that counts with them is tests/conformance/src/foreign.rs. */
#include "hostcall_device.h"

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define KERNEL extern "C" __global__
#define LANE_OF_ALL (blockIdx.x * blockDim.x + threadIdx.x)
#else
#define KERNEL static
static __thread uint32_t lane_of_all;
#define LANE_OF_ALL lane_of_all
#endif

/* What the kernels are given: words that calls go by. */
enum { ANSWER, RAISE, NOTE, GONE, ECHO, WAIT, MEET };
/* What a lane tells: turns, how calls ended by their status, what was wrong, posts, and calls that it was asked for. */
enum { TURNS = 0, ENDED = 1, WRONG = 11, POSTS = 12, ASKED = 13, TOLD = 16 };
/* What a lane is asked for, beside a key. */
enum { WITH_A_LIMIT = 1, WITHOUT = 2, KEY_SHIFT = 2 };

/* Notes how a call ended, and returns whether it has a result. */
HOSTCALL_FUNCTION int note_end(uint64_t *told, uint64_t status) {
    if ((status & 255) > 9)
        told[WRONG]++;
    else
        told[ENDED + (status & 255)]++;
    return status == HOSTCALL_CALL_OK;
}

/* A turn of each lane: calls with a slot for each and with one that is held, with bytes, and posts. Each has its turn's number. */
KERNEL void turn(uint64_t context, const uint64_t *methods, uint64_t *told, uint32_t lanes) {
    const uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    told += TOLD * lane;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    unsigned char text[300], back[300];
    uint64_t id = told[TURNS]++ << 8 | lane, results[2] = {0, 0}, asked = 0, key;
    if (note_end(told, hostcall_call_words(context, methods[ANSWER], &id, 1, results, 2, 0))) {
        told[WRONG] += results[0] != 3 * id + 1;
        asked = results[1];
    }
    hostcall_scope_begin(&scope, context);
    told[WRONG] += (uint64_t)note_end(told, hostcall_scope_call_words(&scope, methods[RAISE], &id, 1, results, 1, 0));
    if (note_end(told, hostcall_scope_call_words(&scope, methods[GONE], &id, 1, results, 1, 0)))
        told[WRONG] += results[0] != ~id;
    told[POSTS] += (uint64_t)hostcall_scope_post_words(&scope, methods[NOTE], &id, 1);
    hostcall_scope_end(&scope);
    uint64_t count = id * 7 % sizeof text;
    struct hostcall_bytes call = {&count, 1, 1, text, count, results, back, sizeof back, 0, 0, 0};
    for (uint32_t i = 0; i < count; i++)
        text[i] = (unsigned char)(id + 3 * i);
    if (note_end(told, hostcall_call_bytes(context, methods[ECHO], &call, 0))) {
        told[WRONG] += call.filled != count || results[0] != count;
        for (uint32_t i = 0; i < count; i++)
            told[WRONG] += back[i] != text[i];
    }
    if (asked == 0)
        return;
    told[ASKED]++;
    key = asked >> KEY_SHIFT;
    note_end(told, hostcall_call_words(context, methods[WAIT], &key, 1, results, 1, asked & WITH_A_LIMIT ? 200 : 0));
}

/* Lanes that have a slot each at the same time. */
KERNEL void meet(uint64_t context, const uint64_t *methods, uint64_t key, uint32_t lanes) {
    uint64_t result;
    if (LANE_OF_ALL < lanes)
        hostcall_call_words(context, methods[MEET], &key, 1, &result, 1, 0);
}

#if !defined(__CUDACC__) && !defined(__CUDA__) && !defined(__HIP__)
void hostcall_test_turn(uint32_t lane, uint64_t context, const uint64_t *methods, uint64_t *told, uint32_t lanes);
void hostcall_test_turn(uint32_t lane, uint64_t context, const uint64_t *methods, uint64_t *told, uint32_t lanes) {
    lane_of_all = lane;
    turn(context, methods, told, lanes);
}

void hostcall_test_meet(uint64_t context, const uint64_t *methods, uint64_t key);
void hostcall_test_meet(uint64_t context, const uint64_t *methods, uint64_t key) {
    lane_of_all = 0;
    meet(context, methods, key, 1);
}
#endif
