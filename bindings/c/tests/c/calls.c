/* A function of each kind that calls. */
#include "hostcall_device.h"

uint64_t call(uint64_t context, uint64_t word);
uint64_t post(uint64_t context, uint64_t word);
uint64_t hold(uint64_t context, uint64_t word);
uint64_t bytes(uint64_t context, const char *text, uint64_t count);

uint64_t call(uint64_t context, uint64_t word) {
    uint64_t result = 0;
    return hostcall_call_words(context, HOSTCALL_METHOD(700, 0), &word, 1, &result, 1, 0) + result;
}

uint64_t post(uint64_t context, uint64_t word) {
    return (uint64_t)hostcall_post_words(context, HOSTCALL_METHOD(701, 0), &word, 1);
}

uint64_t hold(uint64_t context, uint64_t word) {
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    uint64_t result = 0;
    hostcall_scope_begin(&scope, context);
    for (int i = 0; i < 3; i++) {
        result += hostcall_scope_call_words(&scope, HOSTCALL_METHOD(700, 0), &word, 1, &result, 1, 0);
        result += (uint64_t)hostcall_scope_post_words(&scope, HOSTCALL_METHOD(701, 0), &word, 1);
    }
    hostcall_scope_end(&scope);
    return result;
}

uint64_t bytes(uint64_t context, const char *text, uint64_t count) {
    char reply[8];
    struct hostcall_bytes call = {&count, 1, 0, text, count, 0, reply, sizeof reply, 0, 0, 0};
    return hostcall_call_bytes(context, HOSTCALL_METHOD(702, 0), &call, 0) + call.filled;
}

uint64_t points(uint64_t context, uint32_t word);

uint64_t points(uint64_t context, uint32_t word) {
    hostcall_span_begin(context, whole, "whole");
    hostcall_counter(context, "word", word);
    hostcall_counter(context, "half", 0.5f * (float)word);
    hostcall_event(context, "begins");
    hostcall_event(context, "{} of {}, {}", (short)word, (uint64_t)word + 1, 1.5);
    hostcall_event(context, "{}{}{}{}{}", word, 'x', 2L, 3, 4.5f);
    hostcall_span_end(context, whole);
    return hostcall_is_traced(context) ? whole : 0;
}
