/*
 * A kernel in HIP or CUDA C++ of one rank among several: it sends a part of its memory to each rank, by a thread of the host
 * that copies, and waits for what the others send. examples/all_to_all.cpp is its host.
 *
 *     hipcc --offload-arch=gfx942 --cuda-device-only --no-gpu-bundle-output -I include all_to_all.hip -o all_to_all.co
 *     nvcc -x cu -arch=sm_90 -cubin -I include all_to_all.hip -o all_to_all.cubin
 */
#include "hostcall_device.h"

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define KERNEL extern "C" __global__
#define BLOCK blockIdx.x
#define THREAD threadIdx.x
#define THREADS blockDim.x
#define MEET __syncthreads()
#else
/* A thread of the host is a block of one thread. */
#define KERNEL static
static thread_local uint32_t block_of_thread;
#define BLOCK block_of_thread
#define THREAD 0u
#define THREADS 1u
#define MEET ((void)0)
#endif

// ANCHOR: message
/* What a rank asks its proxy for: to copy bytes to a peer's memory, then to store a number among its signals. */
struct send {
    uint32_t peer, bytes;
    uint64_t from, to; /* Bytes from the start of the rank's `sends`, and of the peer's `receives`. */
    uint64_t signal;   /* At the sender's place. */
};
enum { SEND = 1 };
// ANCHOR_END: message

/* Word `i` of what `from` sends to `to` in a round. */
HOSTCALL_FUNCTION uint64_t word_of(uint32_t from, uint32_t to, uint32_t round, uint32_t i) {
    return ((uint64_t)(from << 16 | to) << 32 | (round << 20 ^ i)) * UINT64_C(0x9E3779B97F4A7C15);
}

/*
 * Block `b` exchanges with rank `b`. `sends` and `receives` have room for a message of each rank twice, for even and for odd
 * rounds: who has a peer's message of a round knows that the peer is done with the round before. Counts wrong words, and rounds
 * that did not come.
 */
KERNEL void exchange(uint64_t queue, uint32_t rank, uint32_t ranks, uint32_t words, uint32_t rounds, uint64_t *sends,
                     const uint64_t *receives, const uint64_t *signals, uint64_t *wrong) {
    const uint32_t peer = BLOCK, thread = THREAD, threads = THREADS;
    const uint64_t arrived = (uint64_t)(uintptr_t)&signals[peer];
    uint64_t found = 0;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    if (thread == 0)
        hostcall_scope_begin(&scope, queue);
    for (uint32_t round = 0; round < rounds; round++) {
        const uint64_t place = (uint64_t)(round % 2 * ranks + peer) * words;
        for (uint32_t i = thread; i < words; i += threads)
            sends[place + i] = word_of(rank, peer, round, i);
        // ANCHOR: exchange
        hostcall_fence_system(); /* Each thread: what it wrote is there for the host. */
        MEET;
        if (thread == 0) {
            const uint64_t to = (uint64_t)(round % 2 * ranks + rank) * words;
            const struct send send = {peer, words * 8, 8 * place, 8 * to, round + 1};
            hostcall_scope_post(&scope, SEND, send);
            hostcall_wait_word(queue, arrived, round + 1);
        }
        MEET;
        /* Each thread sees that it has come, and so what came before it. */
        if (!hostcall_wait_word(queue, arrived, round + 1)) {
            found += (uint64_t)1 << 32; /* The queue was cancelled. */
            break;
        }
        // ANCHOR_END: exchange
        for (uint32_t i = thread; i < words; i += threads)
            found += receives[place + i] != word_of(peer, rank, round, i);
    }
    if (thread == 0)
        hostcall_scope_end(&scope);
    wrong[peer * threads + thread] = found;
}
