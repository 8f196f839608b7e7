/* The service that the kernels of context_kernels.h call. */
#include "hostcall.h"

struct tally {
    uint64_t calls, posts, malformed;
};

static int32_t serve(void *state, const hostcall_call *call, hostcall_reply *reply) {
    struct tally *tally = (struct tally *)state;
    uint64_t result[7] = {0}, word = call->word_count > 0 ? call->words[0] : 0;
    if (call->is_post) {
        __atomic_fetch_add(&tally->posts, 1, __ATOMIC_RELAXED);
        return 0;
    }
    __atomic_fetch_add(&tally->calls, 1, __ATOMIC_RELAXED);
    switch (call->method) {
    case 0:
        result[0] = 3 * word + 1;
        break;
    case 1:
        for (size_t i = 0; i < call->word_count; i++) {
            result[0] += call->words[i];
            if (i < 6)
                result[i + 1] = ~call->words[i];
        }
        break;
    case 3:
        return 42;
    case 4: {
        uint8_t back[8192];
        for (size_t i = 0; i < call->byte_count && i < sizeof back; i++) {
            back[call->byte_count - 1 - i] = call->bytes[i];
            result[0] += call->bytes[i];
        }
        result[1] = call->word_count;
        if (word != call->byte_count || hostcall_reply_bytes(reply, back, call->byte_count) != HOSTCALL_STATUS_OK)
            return 43;
        break;
    }
    default:
        __atomic_fetch_add(&tally->malformed, 1, __ATOMIC_RELAXED);
    }
    return hostcall_reply_words(reply, result, call->method == 4 ? 2 : 7) != HOSTCALL_STATUS_OK;
}

/* Answers once `state`, an int, is not 0. */
static inline int32_t serve_slowly(void *state, const hostcall_call *call, hostcall_reply *reply) {
    uint64_t result = call->word_count;
    while (!get((const int *)state))
        pause_a_moment();
    return hostcall_reply_words(reply, &result, 1) != HOSTCALL_STATUS_OK;
}

/* Methods from 700 on; the fifth is a service of its own. */
static const hostcall_method methods[] = {
    {700, "Context::affine"}, {701, "Context::mix"}, {702, "Context::note"}, {703, "Context::refuse"}, {705, "Context::echo"}};
static const hostcall_method slow_methods[] = {{704, "Context::slow"}};
