/*
 * Calls, posts and checks of hostcall_device.h as a library, for languages that link code of the device and include no header:
 * Triton, Numba, Julia and whatever reads bitcode, PTX or LTO-IR. `scripts/device-library` compiles it.
 *
 * The first functions take and return what such languages have, one value each, and lanes for which `mask` is 0 do nothing.
 * A wave whose lanes all call goes in one packet; where some lanes are left out, those that call do it one after the other.
 */
/* Loops over words whose number is known are unrolled anyway; whoever links this is not to be warned of the others. */
#define HOSTCALL_UNROLL_
#include "hostcall_device.h"

#if defined(__CUDACC__) || (defined(__clang__) && (defined(__CUDA__) || defined(__HIP__)))
#define HOSTCALL_EXPORTED __device__ __noinline__
#define HOSTCALL_EXPORTED_IN_LINE __device__ __forceinline__
#else
#define HOSTCALL_EXPORTED __attribute__((noinline, used))
#if defined(__clang__)
#define HOSTCALL_EXPORTED_IN_LINE __attribute__((always_inline, used))
#else
#define HOSTCALL_EXPORTED_IN_LINE __attribute__((used))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Calls a method with words, and returns the word that it answers, or `otherwise` where `mask` is 0 or the call fails. */
#define HOSTCALL_CALL_OF_(count, parameters, ...)                                                                          \
    HOSTCALL_EXPORTED int64_t hostcall_call##count(int64_t context, int64_t method, int32_t mask, int64_t otherwise parameters) { \
        const uint64_t words[] = {__VA_ARGS__};                                                                            \
        uint64_t result;                                                                                                   \
        if (mask == 0 || hostcall_call_words((uint64_t)context, (uint64_t)method, words, count, &result, 1, 0) != HOSTCALL_CALL_OK) \
            return otherwise;                                                                                              \
        return (int64_t)result;                                                                                            \
    }

/* Posts words to a method. Returns 1 where they are on their way, and 0 where `mask` is 0 or there is no context. */
#define HOSTCALL_POST_OF_(count, parameters, ...)                                                                          \
    HOSTCALL_EXPORTED int32_t hostcall_post##count(int64_t context, int64_t method, int32_t mask parameters) {            \
        const uint64_t words[] = {__VA_ARGS__};                                                                            \
        return mask != 0 ? hostcall_post_words((uint64_t)context, (uint64_t)method, words, count) : 0;                     \
    }

#define HOSTCALL_WORDS_0_
#define HOSTCALL_WORDS_1_ , int64_t a
#define HOSTCALL_WORDS_2_ , int64_t a, int64_t b
#define HOSTCALL_WORDS_3_ , int64_t a, int64_t b, int64_t c
#define HOSTCALL_WORDS_4_ , int64_t a, int64_t b, int64_t c, int64_t d
#define HOSTCALL_BOTH_(count, ...)                         \
    HOSTCALL_CALL_OF_(count, HOSTCALL_WORDS_##count##_, __VA_ARGS__) \
    HOSTCALL_POST_OF_(count, HOSTCALL_WORDS_##count##_, __VA_ARGS__)

HOSTCALL_BOTH_(0, 0)
HOSTCALL_BOTH_(1, (uint64_t)a)
HOSTCALL_BOTH_(2, (uint64_t)a, (uint64_t)b)
HOSTCALL_BOTH_(3, (uint64_t)a, (uint64_t)b, (uint64_t)c)
HOSTCALL_BOTH_(4, (uint64_t)a, (uint64_t)b, (uint64_t)c, (uint64_t)d)

/*
 * Checks something, and returns whether it holds, where `mask` is not 0. If not, the host is told: `number` is that of the check
 * (`services::check_number` in Rust, `hostcall_number_check` in C). Nobody waits for it.
 */
HOSTCALL_EXPORTED_IN_LINE int32_t hostcall_check_number(int64_t context, int32_t mask, int32_t condition, int32_t number) {
    if (mask != 0 && condition == 0)
        hostcall_numbered_check_failed_((uint64_t)context, (uint32_t)number);
    return condition;
}

/* Returns `mask` on the first thread of a block, and 0 on all others: what a whole block does once is done there. */
HOSTCALL_EXPORTED_IN_LINE int32_t hostcall_first(int32_t mask) {
    uint32_t block[3], thread[3];
    hostcall_here_(block, thread);
    return (thread[0] | thread[1] | thread[2]) == 0 ? mask : 0;
}

/* What a token says of its wait's entry, as the header has it. A token is a value of its own: 31 bits of polls, 13 of the entry plus
 * one, a bit of an entry that another lane has, and the use of it. */
#define HOSTCALL_TOKEN_POLLS_ 0x7fffffffu
HOSTCALL_FUNCTION uint64_t hostcall_told_of_(int64_t token) {
    const uint64_t entry = (uint64_t)token >> 31 & 0x1fff, of_another = (uint64_t)token >> 44 & 1;
    return entry != 0 ? (uint64_t)token >> 45 << 32 | entry | of_another * HOSTCALL_WAIT_OF_ANOTHER_ : 0;
}

/*
 * Counts a poll of a loop that waits, and says now and then what it waits for (HOSTCALL_WAIT of the header): `token` is 0 before the
 * loop, and then what this returned last. `name` and `more` are up to 16 bytes, the first of them lowest; `peer` is -1 for none.
 */
HOSTCALL_EXPORTED_IN_LINE int64_t hostcall_wait_poll(int64_t context, int32_t mask, int64_t token, int64_t name, int64_t more,
                                                     int64_t address, int32_t peer, int64_t sequence) {
    if (mask == 0)
        return token;
    const uint32_t polls = ((uint32_t)token + 1) & HOSTCALL_TOKEN_POLLS_;
    uint64_t told = hostcall_told_of_(token);
    if (hostcall_wait_is_due_(polls))
        told = hostcall_tell_wait_((uint64_t)context, told, (uint64_t)name, (uint64_t)more, (uint64_t)address, (uint32_t)peer,
                                   (uint64_t)sequence);
    const uint64_t of_another = (told & HOSTCALL_WAIT_OF_ANOTHER_) != 0;
    return (int64_t)(polls | (told & 0x1fff) << 31 | of_another << 44 | told >> 32 << 45);
}

/* Says that a wait is over. Returns 0: the token of the next one. */
HOSTCALL_EXPORTED_IN_LINE int64_t hostcall_wait_over(int64_t context, int32_t mask, int64_t token) {
    const uint64_t told = hostcall_told_of_(token);
    if (mask != 0 && told != 0)
        hostcall_end_wait_((uint64_t)context, told);
    return 0;
}

/*
 * Trace points of languages without static variables. `number` says which point of the module it is; `name` to `rest` are up to 24
 * bytes of its name and `file` and `end` up to 16 of the file's, the first of them lowest. A module has
 * HOSTCALL_NUMBERED_POINTS_ of them, and what others say is lost.
 */
#define HOSTCALL_NUMBERED_POINTS_ 64u
#define HOSTCALL_POINT_IS_MADE_ (UINT64_C(1) << 32)
#define HOSTCALL_POINT_IS_READY_ (UINT64_C(1) << 33)
#define HOSTCALL_READY_LOOKS_ 1024

struct hostcall_numbered_point_ {
    struct hostcall_point point;
    /* Its number, and how far it is: 0 for none. */
    uint64_t number;
    uint64_t name[4];
    uint64_t file[3];
};

/* The point with this number. Where the module has none yet, it is as `made`, or there is none without it. Whoever reads its texts needs
 * a fence before. */
HOSTCALL_FUNCTION struct hostcall_point *hostcall_numbered_point_of_(uint32_t number, const struct hostcall_numbered_point_ *made) {
    static struct hostcall_numbered_point_ points[HOSTCALL_NUMBERED_POINTS_];
    for (uint32_t i = 0; i < HOSTCALL_NUMBERED_POINTS_; i++) {
        struct hostcall_numbered_point_ *here = &points[(number + i) % HOSTCALL_NUMBERED_POINTS_];
        const uint64_t at = (uint64_t)(uintptr_t)&here->number, own = number | HOSTCALL_POINT_IS_MADE_;
        uint64_t known = hostcall_load_(at);
        if (known == 0 && made == 0)
            return 0;
        if (known == 0 && (known = hostcall_cas_(at, 0, own)) == 0) {
            for (uint32_t word = 0; word < 3; word++)
                here->name[word] = made->name[word], here->file[word] = made->file[word];
            here->point.text = (const char *)here->name, here->point.file = (const char *)here->file;
            here->point.tags = made->point.tags, here->point.line = made->point.line, here->point.kind = made->point.kind;
            hostcall_release_();
            hostcall_store_(at, own | HOSTCALL_POINT_IS_READY_);
            return &here->point;
        }
        if ((uint32_t)known != number)
            continue;
        for (int looks = 0; !(known & HOSTCALL_POINT_IS_READY_); looks++) {
            /* Whoever makes it may have been killed. */
            if (looks == HOSTCALL_READY_LOOKS_)
                return 0;
            hostcall_pause_();
            known = hostcall_load_(at);
        }
        return &here->point;
    }
    return 0;
}

/* Counts a record that is lost, since its point has no place in the table. */
HOSTCALL_FUNCTION void hostcall_lose_point_(uint64_t context) {
    const uint64_t points = hostcall_points_of_(context);
    if (hostcall_rank_(hostcall_lanes_()) == 0)
        hostcall_add_(((const struct hostcall_raw_stream *)(uintptr_t)points)->dropped, 1);
}

/* The point with this number, or 0 where its record is lost. */
HOSTCALL_LONG_FUNCTION struct hostcall_point *hostcall_make_point_(uint64_t context, uint32_t kind, int32_t number, int32_t tags, int32_t line,
                                                                   int64_t name, int64_t more, int64_t rest, int64_t file, int64_t end) {
    struct hostcall_numbered_point_ made;
    struct hostcall_point *point;
    made.point.kind = kind, made.point.tags = (uint64_t)tags, made.point.line = (uint32_t)line;
    made.name[0] = (uint64_t)name, made.name[1] = (uint64_t)more, made.name[2] = (uint64_t)rest;
    made.file[0] = (uint64_t)file, made.file[1] = (uint64_t)end, made.file[2] = 0;
    point = hostcall_numbered_point_of_((uint32_t)number, &made);
    if (point == 0)
        hostcall_lose_point_(context);
    return point;
}

HOSTCALL_LONG_FUNCTION void hostcall_end_numbered_(uint64_t context, int32_t number, uint64_t began_ns) {
    struct hostcall_point *point = hostcall_numbered_point_of_((uint32_t)number, 0);
    if (point != 0)
        hostcall_end_all_(context, point, began_ns);
    else
        hostcall_lose_point_(context);
}

/* Says what a counter shows: a value of 64 bits, and its type (HOSTCALL_TAG_ of the header). */
HOSTCALL_EXPORTED_IN_LINE int32_t hostcall_count_point(int64_t context, int32_t mask, int32_t number, int32_t tag, int32_t line, int64_t name,
                                                       int64_t more, int64_t rest, int64_t file, int64_t end, int64_t value) {
    const uint32_t on = mask != 0 ? hostcall_switch_of_((uint64_t)context) : 0;
    if (on != 0) {
        struct hostcall_point *point =
            hostcall_make_point_((uint64_t)context, HOSTCALL_POINT_COUNTER_, number, tag, line, name, more, rest, file, end);
        if (point != 0)
            hostcall_put_counter_((uint64_t)context, on, point, (uint64_t)value);
    }
    return 0;
}

/* Begins a span. Returns what its end takes: 0 where it is not traced. */
HOSTCALL_EXPORTED_IN_LINE int64_t hostcall_begin_point(int64_t context, int32_t mask, int32_t number, int32_t line, int64_t name, int64_t more,
                                                       int64_t rest, int64_t file, int64_t end) {
    const uint32_t on = mask != 0 ? hostcall_switch_of_((uint64_t)context) : 0;
    if (on == 0)
        return 0;
    struct hostcall_point *point =
        hostcall_make_point_((uint64_t)context, HOSTCALL_POINT_BEGIN_, number, 0, line, name, more, rest, file, end);
    return point != 0 ? (int64_t)hostcall_begin_((uint64_t)context, on, point) : 0;
}

/* Ends a span that has begun. */
HOSTCALL_EXPORTED_IN_LINE int32_t hostcall_end_point(int64_t context, int32_t mask, int64_t began, int32_t number) {
    if (mask != 0 && began != 0)
        hostcall_end_numbered_((uint64_t)context, number, (uint64_t)began);
    return 0;
}

/* Functions of the header that have no symbol there, as they are. */
HOSTCALL_EXPORTED uint64_t hostcall_library_call_words(uint64_t context, uint64_t method, const uint64_t *arguments,
                                                       uint32_t argument_words, uint64_t *results, uint32_t result_words,
                                                       uint32_t timeout_us) {
    return hostcall_call_words(context, method, arguments, argument_words, results, result_words, timeout_us);
}

HOSTCALL_EXPORTED int hostcall_library_post_words(uint64_t context, uint64_t method, const uint64_t *words, uint32_t count) {
    return hostcall_post_words(context, method, words, count);
}

HOSTCALL_EXPORTED uint64_t hostcall_library_call_bytes(uint64_t context, uint64_t method, struct hostcall_bytes *call,
                                                       uint32_t timeout_us) {
    return hostcall_call_bytes(context, method, call, timeout_us);
}

HOSTCALL_EXPORTED uint64_t hostcall_library_print(uint64_t context, uint32_t stream, const char *format,
                                                  const struct hostcall_arguments *arguments) {
    return hostcall_print(context, stream, format, arguments);
}

#ifdef __cplusplus
}
#endif
