/*
 * A kernel in HIP or CUDA C++ that joins rows with a table by their keys. The GPU has a part of the table; for the rest waves ask
 * the host, which has all of it. examples/hash_join.cpp is its host.
 *
 *     hipcc --offload-arch=gfx942 --cuda-device-only --no-gpu-bundle-output -I include hash_join.hip -o hash_join.co
 *     nvcc -x cu -arch=sm_90 -cubin -I include hash_join.hip -o hash_join.cubin
 */
#include "hostcall_device.h"

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define KERNEL extern "C" __global__
#define FIRST_ROW (blockIdx.x * blockDim.x + threadIdx.x)
#else
/* A thread of the host is a lane. */
#define KERNEL static
static thread_local uint32_t lane_of_all;
#define FIRST_ROW lane_of_all
#endif
#if defined(__HIP__)
#define ANY_OF_WAVE(is_so) __any(is_so)
#elif defined(__CUDACC__) || defined(__CUDA__)
#define ANY_OF_WAVE(is_so) __any_sync(0xffffffffu, is_so)
#else
#define ANY_OF_WAVE(is_so) (is_so)
#endif

/* An entry of the part that the GPU has; the key 0 is none. */
struct entry {
    uint64_t key, price;
};

struct row {
    uint64_t key, amount;
};

/* What a wave's lanes ask: a price of this key, if `wants` is not 0. The answer is whether there is one, and the price. */
enum { PRICES_FIND = 700 };
struct question {
    uint64_t wants, key;
};
struct answer {
    uint64_t is_there, price;
};

/* Where the search for a key begins. */
HOSTCALL_FUNCTION uint32_t place_of(uint64_t key, uint32_t mask) {
    return (uint32_t)(key * UINT64_C(0x9E3779B97F4A7C15) >> 40) & mask;
}

/* What became of rows. */
enum outcome { HIT = 0, ASKED = 1, ABSENT = 2, FAILED = 3, OUTCOMES = 4 };

// ANCHOR: kernel
/* Each lane takes every `lanes`-th row; `places` is a power of two. Writes each row's amount times its price. */
KERNEL void probe(uint64_t context, const struct row *rows, uint32_t count, const struct entry *table, uint32_t places,
                  uint64_t *out, uint64_t *outcomes, uint32_t lanes) {
    const uint32_t first = FIRST_ROW;
    uint64_t seen[OUTCOMES] = {0};
    /* All lanes of a wave go as often round: those that are done, or have their price, ask for nothing. */
    for (uint32_t begin = 0; begin < count; begin += lanes) {
        const uint32_t i = begin + first;
        struct question question = {0, 0};
        struct answer answer = {0, 0};
        if (i < count) {
            question.key = rows[i].key;
            uint32_t at = place_of(question.key, places - 1);
            while (table[at].key != 0 && table[at].key != question.key)
                at = (at + 1) & (places - 1);
            question.wants = table[at].key == 0;
            answer.price = table[at].price;
        }
        uint64_t status = HOSTCALL_CALL_OK;
        if (ANY_OF_WAVE(question.wants != 0)) {
            /* One packet for the wave. */
            const uint64_t words[2] = {question.wants, question.key};
            uint64_t results[2];
            status = hostcall_call_words(context, HOSTCALL_METHOD(PRICES_FIND, 0), words, 2, results, 2, 1000000);
            if (question.wants != 0) {
                answer.is_there = results[0];
                answer.price = results[1];
            }
        }
        if (i < count) {
            const int is_bad = question.wants != 0 && status != HOSTCALL_CALL_OK;
            const int is_there = question.wants == 0 || answer.is_there != 0;
            out[i] = is_bad || !is_there ? 0 : rows[i].amount * answer.price;
            seen[is_bad ? FAILED : question.wants == 0 ? HIT : is_there ? ASKED : ABSENT]++;
        }
    }
    for (uint32_t outcome = 0; outcome < OUTCOMES; outcome++)
        outcomes[first * OUTCOMES + outcome] = seen[outcome];
}
// ANCHOR_END: kernel
