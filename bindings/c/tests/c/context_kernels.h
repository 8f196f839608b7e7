/* Kernels that call the host from a context, once for all compilers: of GPUs, and of the host, whose threads are lanes. Service:
 * context_service.h. Each writes what it found wrong, 0 if nothing. */
#include "hostcall_device.h"

enum { AFFINE = 700, MIX = 701, NOTE = 702, REFUSE = 703, SLOW = 704, ECHO = 705, MISSING = 999 };

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define KERNEL extern "C" __global__
#define LANE_OF_ALL (blockIdx.x * blockDim.x + threadIdx.x)
#elif defined(__OPENCL_C_VERSION__)
#define KERNEL kernel
#define LANE_OF_ALL ((uint32_t)(__builtin_amdgcn_workgroup_id_x() * hostcall_workgroup_size_(0) + __builtin_amdgcn_workitem_id_x()))
#else
#define KERNEL static
static __thread uint32_t lane_of_all;
#define LANE_OF_ALL lane_of_all
#endif
/* A kernel's pointer. */
#if defined(__OPENCL_C_VERSION__)
#define GLOBAL global
#else
#define GLOBAL
#endif

/* Each lane calls `rounds` times, each time with what came before: x -> 3 x + 1. */
KERNEL void affine(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t x = (uint64_t)lane << 40 | lane, expected = x, result = 0, status = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        status |= hostcall_call_words(context, HOSTCALL_METHOD(AFFINE, 0), &x, 1, &result, 1, 0);
        expected = 3 * expected + 1;
        x = result;
    }
    out[lane] = status << 32 | (x != expected);
}

/* The same with a slot that is held. */
KERNEL void held(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    if (lane >= lanes)
        return;
    uint64_t x = (uint64_t)lane << 40 | lane, expected = x, result = 0, status = 0;
    hostcall_scope_begin(&scope, context);
    for (uint32_t round = 0; round < rounds; round++) {
        status |= hostcall_scope_call_words(&scope, HOSTCALL_METHOD(AFFINE, 0), &x, 1, &result, 1, 0);
        expected = 3 * expected + 1;
        x = result;
        if (round % 4 == 1 && !hostcall_scope_post_words(&scope, HOSTCALL_METHOD(NOTE, 0), &expected, 1))
            status |= 1u << 16;
        /* With some lanes of the scope. */
        if ((round ^ lane) % 3 == 0) {
            status |= hostcall_scope_call_words(&scope, HOSTCALL_METHOD(AFFINE, 0), &x, 1, &result, 1, 0);
            expected = 3 * expected + 1;
            x = result;
        }
    }
    hostcall_scope_end(&scope);
    out[lane] = status << 32 | (x != expected);
}

/* Lanes diverge: each calls as often as its number says, with other words, or posts. */
KERNEL void diverge(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t words[7], results[7], wrong = 0, sum;
    for (uint32_t n = 0; n < (lane % 5 + 1) * rounds; n++) {
        for (uint32_t word = 0; word < 7; word++)
            words[word] = (uint64_t)lane * UINT64_C(0x9E3779B97F4A7C15) + word + n;
        if (lane % 3 == 0) {
            wrong += hostcall_call_words(context, HOSTCALL_METHOD(MIX, 0), words, 7, results, 7, 0) != HOSTCALL_CALL_OK;
            sum = 0;
            for (uint32_t word = 0; word < 7; word++)
                sum += words[word];
            wrong += results[0] != sum;
            for (uint32_t word = 1; word < 7; word++)
                wrong += results[word] != ~words[word - 1];
        } else if (lane % 3 == 1) {
            wrong += hostcall_call_words(context, HOSTCALL_METHOD(MIX, 0), words, 2, results, 3, 1000000) != HOSTCALL_CALL_OK;
            wrong += results[0] != words[0] + words[1] || results[1] != ~words[0] || results[2] != ~words[1];
        } else {
            wrong += !hostcall_post_words(context, HOSTCALL_METHOD(NOTE, 0), words, n % 2 ? 5 : 1);
        }
    }
    out[lane] = wrong;
}

/* Each lane posts `rounds` times, through a slot that is held or not. */
KERNEL void posts(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    if (lane >= lanes)
        return;
    uint64_t lost = 0, word;
    hostcall_scope_begin(&scope, context);
    for (uint32_t round = 0; round < rounds; round++) {
        word = round;
        lost += !hostcall_scope_post_words(&scope, HOSTCALL_METHOD(NOTE, 0), &word, 1);
    }
    hostcall_scope_end(&scope);
    for (uint32_t round = 0; round < rounds; round++) {
        word = round;
        lost += !hostcall_post_words(context, HOSTCALL_METHOD(NOTE, 0), &word, 1);
    }
    out[lane] = lost;
}

/* Each lane sends bytes of its own, and gets them in reverse order with their sum. */
KERNEL void bytes(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    unsigned char text[700], back[700];
    uint64_t wrong = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        /* None, what comes with the answer, what fits a lane's share, and what does not. */
        const uint32_t most = round % 4 == 0 ? 9 : round % 4 == 1 ? 60 : 700;
        uint64_t words[4], results[2] = {0, 0}, sum = 0;
        struct hostcall_bytes call = {words, round % 2 ? 1u : 4u, 2, text, (lane * 37 + round * 11) % most, results, back, sizeof back, 0, 0, 0};
        for (uint32_t i = 0; i < call.count; i++)
            sum += text[i] = (unsigned char)(lane + 3 * i + round);
        words[0] = call.count;
        words[1] = words[2] = words[3] = lane;
        uint64_t status = hostcall_call_bytes(context, HOSTCALL_METHOD(ECHO, 0), &call, 0);
        wrong |= status << 32;
        wrong |= (uint64_t)(call.filled != call.count || results[0] != sum || results[1] != call.argument_words);
        for (uint32_t i = 0; i < call.filled; i++)
            wrong |= (uint64_t)(back[i] != text[call.count - 1 - i]) << 1;
        if (round % 4 == 3 && call.count > 16) {
            call.capacity = 5;
            wrong |= (uint64_t)(hostcall_call_bytes(context, HOSTCALL_METHOD(ECHO, 0), &call, 0) != (HOSTCALL_CALL_FAILED | 43 << 8)) << 2;
        }
    }
    out[lane] = wrong;
}

/* How calls end that fail. */
KERNEL void statuses(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t word = 5, result = 0, wrong = 0, many[8] = {5};
    for (uint32_t round = 0; round < rounds; round++) {
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(MISSING, 0), &word, 1, &result, 1, 0) != HOSTCALL_CALL_NO_SUCH_SERVICE);
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(REFUSE, 0), &word, 1, &result, 1, 0) != (HOSTCALL_CALL_FAILED | 42 << 8)) << 1;
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(SLOW, 0), &word, 1, &result, 1, 2000) != HOSTCALL_CALL_TIMED_OUT) << 2;
        wrong |= (uint64_t)(hostcall_call_words(0, HOSTCALL_METHOD(AFFINE, 0), &word, 1, &result, 1, 0) != HOSTCALL_CALL_NO_CONTEXT) << 3;
        wrong |= (uint64_t)(hostcall_post_words(0, HOSTCALL_METHOD(NOTE, 0), &word, 1) != 0) << 4;
        /* More words than there can be leave all as it is. */
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(AFFINE, 0), many, 8, &result, 1, 0) != HOSTCALL_CALL_TOO_LARGE) << 5;
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(AFFINE, 0), &word, 1, many, 8, 0) != HOSTCALL_CALL_TOO_LARGE) << 6;
        wrong |= (uint64_t)(hostcall_post_words(context, HOSTCALL_METHOD(NOTE, 0), many, 6) != 0) << 7;
        struct hostcall_bytes call = {many, 65, 1, 0, 0, &result, 0, 0, 0, 0, 0};
        wrong |= (uint64_t)(hostcall_call_bytes(context, HOSTCALL_METHOD(AFFINE, 0), &call, 0) != HOSTCALL_CALL_TOO_LARGE) << 8;
        struct hostcall_scope scope = HOSTCALL_SCOPE;
        hostcall_scope_begin(&scope, context);
        wrong |= (uint64_t)(hostcall_scope_call_words(&scope, HOSTCALL_METHOD(AFFINE, 0), many, 8, &result, 1, 0) != HOSTCALL_CALL_TOO_LARGE) << 9;
        wrong |= (uint64_t)(hostcall_scope_post_words(&scope, HOSTCALL_METHOD(NOTE, 0), many, 6) != 0) << 10;
        hostcall_scope_end(&scope);
        wrong |= (uint64_t)(hostcall_call_words(context, HOSTCALL_METHOD(AFFINE, 0), &word, 1, &result, 1, 0) != HOSTCALL_CALL_OK) << 11;
    }
    out[lane] = wrong;
}

/* Every call is cancelled. */
KERNEL void cancelled(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t word = 5, result = 0, wrong = 0;
    for (uint32_t round = 0; round < rounds; round++)
        wrong += hostcall_call_words(context, HOSTCALL_METHOD(AFFINE, 0), &word, 1, &result, 1, 0) != HOSTCALL_CALL_CANCELLED;
    out[lane] = wrong;
}

/* Some lanes print, and of some a check fails. */
KERNEL void says(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t wrong = 0;
    for (uint32_t round = 0; round < rounds; round++)
        if (lane % 16 == round) {
#if defined(__cplusplus)
            wrong |= hostcall_printf(context, "lane %u of %s: %5.2f %d%% %lx\n", lane, "says", 0.5 * lane, -3, UINT64_C(1) << 40);
#else
            struct hostcall_arguments arguments;
            arguments.count = 0;
            hostcall_add_word(&arguments, lane);
            hostcall_add_text(&arguments, HOSTCALL_TEXT("says"), 3);
            hostcall_add_double(&arguments, 0.5 * lane);
            hostcall_add_word(&arguments, (uint64_t)-3);
            hostcall_add_word(&arguments, UINT64_C(1) << 40);
            wrong |= hostcall_print(context, 1, HOSTCALL_TEXT("lane %u of %s: %5.2f %d%% %lx\n"), &arguments);
#endif
        }
    if (!hostcall_check(context, lane % 10 != 3))
        wrong |= lane % 10 != 3 ? UINT64_C(1) << 32 : 0;
    out[lane] = wrong;
}

/* Lanes that come to one call for different methods, with other numbers of words and from two contexts. */
KERNEL void mixed(uint64_t context, GLOBAL uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = LANE_OF_ALL;
    if (lane >= lanes)
        return;
    uint64_t wrong = 0, word = lane, results[3] = {0, 0, 0};
    for (uint32_t round = 0; round < rounds; round++) {
        const uint64_t methods[3] = {HOSTCALL_METHOD(AFFINE, 0), HOSTCALL_METHOD(MIX, 0), HOSTCALL_METHOD(REFUSE, 0)};
        const uint32_t which = (lane + round) % 3;
        uint64_t status = hostcall_call_words(context, methods[which], &word, 1, results, 1 + which % 2, 0);
        wrong |= (uint64_t)(status != (which == 2 ? (uint64_t)HOSTCALL_CALL_FAILED | 42 << 8 : (uint64_t)HOSTCALL_CALL_OK)) << which;
        wrong |= (uint64_t)(which == 0 && results[0] != 3 * word + 1) << 4 | (uint64_t)(which == 1 && results[1] != ~word) << 5;
        wrong |= (uint64_t)!hostcall_post_words(context, HOSTCALL_METHOD(NOTE, 0), &word, lane % 2) << 6;
    }
    out[lane] = wrong;
}
