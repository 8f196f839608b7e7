// Kernels of the tests: threads of this library are lanes, started by a function of ctypes.
#include "hostcall_device.h"

#include <cstring>
#include <thread>
#include <vector>

// Runs `lane` for so many lanes at once.
template <typename Lane> static void run(uint32_t lanes, Lane lane) {
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < lanes; i++)
        threads.emplace_back([=] { lane(i); });
    for (auto &thread : threads)
        thread.join();
}

extern "C" {

// One call of words on the calling thread.
uint64_t call(uint64_t context, uint64_t method, const uint64_t *words, uint32_t count, uint64_t *results, uint32_t result_count,
              uint32_t timeout_us) {
    return hostcall_call_words(context, method, words, count, results, result_count, timeout_us);
}

// One call of bytes.
uint64_t call_bytes(uint64_t context, uint64_t method, const uint64_t *words, uint32_t count, const char *bytes, uint64_t length,
                    uint64_t *results, uint32_t result_count, char *reply, uint64_t capacity, uint64_t *filled) {
    hostcall_bytes call = {words, count, result_count, bytes, length, results, reply, capacity, 0, 0, 0};
    uint64_t status = hostcall_call_bytes(context, method, &call, 0);
    *filled = call.filled;
    return status;
}

// One post of words on the calling thread. Returns whether it was taken.
bool post(uint64_t context, uint64_t method, const uint64_t *words, uint32_t count) {
    return hostcall_post_words(context, method, words, count);
}

// Each lane calls `rounds` times, x -> f(x), from its number on. Returns how many calls failed.
uint64_t chain(uint64_t context, uint64_t method, uint32_t lanes, uint32_t rounds, uint64_t *out) {
    std::vector<uint64_t> failed(lanes);
    auto *counts = failed.data();
    run(lanes, [=](uint32_t lane) {
        uint64_t x = lane;
        for (uint32_t round = 0; round < rounds; round++)
            counts[lane] += hostcall_call_words(context, method, &x, 1, &x, 1, 0) != HOSTCALL_CALL_OK;
        out[lane] = x;
    });
    uint64_t sum = 0;
    for (uint64_t count : failed)
        sum += count;
    return sum;
}

// Each lane posts its number and the round. Returns how many were not taken.
uint64_t posts(uint64_t context, uint64_t method, uint32_t lanes, uint32_t rounds) {
    std::vector<uint64_t> failed(lanes);
    auto *counts = failed.data();
    run(lanes, [=](uint32_t lane) {
        for (uint64_t round = 0; round < rounds; round++) {
            const uint64_t words[2] = {lane, round};
            counts[lane] += !hostcall_post_words(context, method, words, 2);
        }
    });
    uint64_t sum = 0;
    for (uint64_t count : failed)
        sum += count;
    return sum;
}

// Lanes whose number is not less than `limit` find a check failed.
void checks(uint64_t context, uint32_t lanes, uint32_t limit) {
    run(lanes, [=](uint32_t lane) { (void)hostcall_check(context, lane < limit); });
}

// Each lane streams so many records of its own.
struct record {
    uint64_t value;
    float half;
    uint16_t lane;
    bool is_even;
    char letter;
};

void records(const hostcall_raw_stream *at, uint32_t lanes, uint32_t rounds) {
    const hostcall_raw_stream out = *at;
    run(lanes, [=](uint32_t lane) {
        hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
        writer.workgroup = lane;
        for (uint32_t round = 0; round < rounds; round++) {
            const record one = {uint64_t(lane) << 32 | round, round / 2.0f, uint16_t(lane), round % 2 == 0, char('a' + lane)};
            hostcall_raw_record(&out, &writer, &one, sizeof one);
        }
        hostcall_raw_close(&out, &writer);
    });
}

// Streams numbers from 0 on, as records of a word.
void words(const hostcall_raw_stream *at, uint32_t count) {
    const hostcall_raw_stream out = *at;
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    for (uint64_t word = 0; word < count; word++)
        hostcall_raw_record(&out, &writer, &word, sizeof word);
    hostcall_raw_close(&out, &writer);
}

void text(const hostcall_raw_stream *at, const char *bytes, uint32_t count) {
    const hostcall_raw_stream out = *at;
    hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    hostcall_raw_write(&out, &writer, bytes, count);
    hostcall_raw_close(&out, &writer);
}

// Each lane posts so many messages through a slot that it holds. Returns how many were not taken.
struct send {
    uint32_t lane, round;
    uint64_t from, to;
};

uint64_t sends(uint64_t queue, uint64_t tag, uint32_t lanes, uint32_t rounds) {
    std::vector<uint64_t> failed(lanes);
    auto *counts = failed.data();
    run(lanes, [=](uint32_t lane) {
        hostcall_scope scope = HOSTCALL_SCOPE;
        hostcall_scope_begin(&scope, queue);
        for (uint32_t round = 0; round < rounds; round++) {
            const send one = {lane, round, uint64_t(lane) << 32 | round, ~uint64_t(round)};
            counts[lane] += !hostcall_scope_post(&scope, tag, one);
        }
        hostcall_scope_end(&scope);
    });
    uint64_t sum = 0;
    for (uint64_t count : failed)
        sum += count;
    return sum;
}

// One message of words on the calling thread. Returns whether it was taken.
bool message(uint64_t queue, uint64_t tag, const uint64_t *words, uint32_t count) {
    return hostcall_post_message(queue, tag, words, count);
}

// Posts each round, and waits until the host has stored it. Returns how many rounds there were until the queue was cancelled.
uint32_t rounds(uint64_t queue, uint64_t *stored, uint32_t count) {
    for (uint64_t round = 1; round <= count; round++) {
        if (!hostcall_post(queue, 1, round) || !hostcall_wait_word(queue, (uint64_t)stored, round))
            return uint32_t(round - 1);
    }
    return count;
}

// A kernel that never ends.
void spins() {
    for (volatile bool goes_on = true; goes_on;)
        ;
}

void says(uint64_t context, uint32_t lane) {
    hostcall_printf(context, "lane %u is here\n", lane);
}

void traced(uint64_t context, uint32_t steps) {
    hostcall_span(context, "all steps");
    for (uint32_t step = 0; step < steps; step++)
        hostcall_counter(context, "step", step);
}
}
