/* Kernels that post to a post queue, once for all compilers: of GPUs, and of the host, whose threads are lanes. Each writes what it
 * found wrong, 0 if nothing. */
#include "hostcall_device.h"

enum { CALLED = 700 };

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define KERNEL extern "C" __global__
#define LANE_OF_ALL (blockIdx.x * blockDim.x + threadIdx.x)
#else
#define KERNEL static
static __thread uint32_t lane_of_all;
#define LANE_OF_ALL lane_of_all
#endif

/* Word `i` of a message: top bits are set and not. */
HOSTCALL_FUNCTION uint64_t word_of(uint32_t lane, uint32_t round, uint32_t i) {
    return ((uint64_t)lane << 32 | round << 5 | i) * UINT64_C(0x9E3779B97F4A7C15);
}

/* What a message is called: the lane, and the round, which says how many words there are. */
HOSTCALL_FUNCTION uint64_t tag_of(uint32_t lane, uint32_t round) {
    return (uint64_t)lane << 16 | (round & 0xffff);
}

/* Each lane posts a message of `round % 17` words in each round, through a slot that is held. */
KERNEL void ordered(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t words[HOSTCALL_MOST_MESSAGE_WORDS], lost = 0;
    if (lane >= lanes)
        return;
    hostcall_scope_begin(&scope, queue);
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < round % 17; i++)
            words[i] = word_of(lane, round, i);
        lost += !hostcall_scope_post_message(&scope, tag_of(lane, round), words, round % 17);
    }
    hostcall_scope_end(&scope);
    out[lane] = lost;
}

/* The same with a slot for each message, of which lanes leave some out. */
KERNEL void claimed(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    uint64_t words[HOSTCALL_MOST_MESSAGE_WORDS], lost = 0;
    if (lane >= lanes)
        return;
    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t i = 0; i < round % 17; i++)
            words[i] = word_of(lane, round, i);
        if ((lane ^ round) % 3 != 0)
            lost += !hostcall_post_message(queue, tag_of(lane, round), words, round % 17);
    }
    out[lane] = lost;
}

/* Messages as values of a type, by constants: 16, 32 and 128 bytes, with one tag for all lanes. */
struct pair {
    uint64_t lane, round;
};
struct four {
    uint64_t lane, round, sum, top;
};
struct sixteen {
    uint64_t lane, round, rest[14];
};
enum { PAIR = 0x123456789abc, FOUR = 0xfedcba987654, SIXTEEN = 0xdeadbeef };

KERNEL void values(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t lost = 0;
    if (lane >= lanes)
        return;
    hostcall_scope_begin(&scope, queue);
    for (uint32_t round = 0; round < rounds; round++) {
        const struct pair a = {lane, round};
        const struct four b = {lane, round, (uint64_t)lane + round, ~UINT64_C(0)};
        struct sixteen c = {lane, round, {0}};
        for (uint32_t i = 0; i < 14; i++)
            c.rest[i] = ~word_of(lane, round, i);
        lost += !hostcall_scope_post(&scope, PAIR, a);
        lost += !hostcall_scope_post(&scope, FOUR, b);
        lost += !hostcall_scope_post(&scope, SIXTEEN, c);
    }
    hostcall_scope_end(&scope);
    for (uint32_t round = 0; round < rounds; round++) {
        const struct pair a = {lane, rounds + round};
        lost += !hostcall_post(queue, PAIR, a);
    }
    out[lane] = lost;
}

/* Posts until one finds no room and nobody who makes some. Then such are refused at once, or lie where there is room. */
KERNEL void until_refused(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    uint64_t posted = 0, word = lane;
    if (lane >= lanes)
        return;
    while (hostcall_post_message(queue, tag_of(lane, (uint32_t)posted), &word, 1))
        posted++;
    out[lane] = posted > rounds;
}

/* Waits for a word that nobody stores: the queue is cancelled. */
KERNEL void waits(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t) {
    const uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    out[lane] = 0;
    out[lane] = (uint64_t)hostcall_wait_word(queue, (uint64_t)(uintptr_t)&out[lane], 1) << 32 | 1;
}

/* Each lane waits after each message until the host has stored its number, at the lane's place of `out`. */
KERNEL void turns(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t wrong = 0;
    if (lane >= lanes)
        return;
    hostcall_signal_word((uint64_t)(uintptr_t)&out[lane], 0);
    hostcall_scope_begin(&scope, queue);
    for (uint64_t round = 1; round <= rounds; round++) {
        const uint64_t words[2] = {(uint64_t)(uintptr_t)&out[lane], round};
        wrong += !hostcall_scope_post_message(&scope, 1, words, 2);
        wrong += !hostcall_wait_word(queue, words[0], round);
    }
    hostcall_scope_end(&scope);
    hostcall_signal_word((uint64_t)(uintptr_t)&out[lane], wrong);
}

/* What is no post: calls, of which some come after posts; more words than a message has; no queue. */
KERNEL void misused(uint64_t queue, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t wrong = 0, words[32] = {lane, 2, 3, 4, 5, 6, 7}, result;
    if (lane >= lanes)
        return;
    out[lane] = 0;
    wrong |= (uint64_t)hostcall_post_message(queue, 1, words, 17) << 1 | (uint64_t)hostcall_post_message(0, 1, words, 6) << 2;
    wrong |= (uint64_t)hostcall_post_message(0, 1, words, 1) << 3 | (uint64_t)hostcall_wait_word(0, (uint64_t)(uintptr_t)&out[lane], 1) << 4;
    wrong |= (uint64_t)!hostcall_wait_word(queue, (uint64_t)(uintptr_t)&out[lane], 0) << 5;
    for (uint32_t round = 0; round < rounds; round++)
        wrong |= (uint64_t)(hostcall_call_words(queue, HOSTCALL_METHOD(CALLED, 0), words, round % 8, &result, 1, 0) != HOSTCALL_CALL_NO_SUCH_SERVICE) << 6;
    hostcall_scope_begin(&scope, queue);
    for (uint32_t round = 0; round < rounds; round++) {
        wrong |= (uint64_t)!hostcall_scope_post_message(&scope, lane, words, 7) << 7;
        wrong |= (uint64_t)(hostcall_scope_call_words(&scope, HOSTCALL_METHOD(CALLED, 0), words, 3, &result, 1, 0) != HOSTCALL_CALL_NO_SUCH_SERVICE) << 8;
    }
    hostcall_scope_end(&scope);
    out[lane] = wrong;
}

/* Of a context that is no queue's, and serves nobody. */
KERNEL void no_queue(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t) {
    const uint32_t lane = LANE_OF_ALL;
    uint64_t words[16] = {0};
    if (lane < lanes)
        out[lane] = (uint64_t)hostcall_post_message(context, 1, words, 6);
}
