// Kernels that post to a post queue, and the same through one queue for all lanes, after the published design of MSCCL++'s FIFO.
#include "hostcall_device.h"

#if defined(__clang__) && !defined(__global__)
#define __global__ __attribute__((global))
#endif
#if defined(__AMDGCN__)
#define GLOBAL_ID (__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x())
#else
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)
#endif

// Messages of so many words through a slot that is held, of which the first is the message's number.
template <uint32_t WORDS> HOSTCALL_FUNCTION void messages(uint64_t queue, uint64_t *lost, uint64_t count) {
    uint64_t words[WORDS] = {}, failed = 0;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    hostcall_scope_begin(&scope, queue);
    for (uint64_t i = 1; i <= count; i++) {
        words[0] = i;
        failed += !hostcall_scope_post_message(&scope, 7, words, WORDS);
    }
    hostcall_scope_end(&scope);
    lost[GLOBAL_ID] = failed;
}

extern "C" __global__ void messages_1(uint64_t queue, uint64_t *lost, uint64_t count) {
    messages<1>(queue, lost, count);
}

extern "C" __global__ void messages_2(uint64_t queue, uint64_t *lost, uint64_t count) {
    messages<2>(queue, lost, count);
}

extern "C" __global__ void messages_4(uint64_t queue, uint64_t *lost, uint64_t count) {
    messages<4>(queue, lost, count);
}

extern "C" __global__ void messages_16(uint64_t queue, uint64_t *lost, uint64_t count) {
    messages<16>(queue, lost, count);
}

// A message with a slot of its own.
extern "C" __global__ void messages_claimed(uint64_t queue, uint64_t *lost, uint64_t count) {
    uint64_t failed = 0;
    for (uint64_t i = 1; i <= count; i++)
        failed += !hostcall_post_message(queue, 7, &i, 1);
    lost[GLOBAL_ID] = failed;
}

// One lane posts and waits until the host has stored the message's number.
extern "C" __global__ void message_turns(uint64_t queue, uint64_t *lost, uint64_t count, uint64_t signal) {
    uint64_t failed = 0;
    struct hostcall_scope scope = HOSTCALL_SCOPE;
    hostcall_scope_begin(&scope, queue);
    for (uint64_t i = 1; i <= count; i++) {
        failed += !hostcall_scope_post_message(&scope, 7, &i, 1);
        failed += !hostcall_wait_word(queue, signal, i);
    }
    hostcall_scope_end(&scope);
    lost[GLOBAL_ID] = failed;
}

// The rival's queue: `entries` triggers of 16 bytes in memory of the host, which are 0 while they are free; the head in memory of
// the device, with a copy of the tail that lanes renew when they find the queue full.
HOSTCALL_FUNCTION void push(uint64_t triggers, uint64_t entries, uint64_t heads, uint64_t tail, uint64_t first, uint64_t second) {
    const uint64_t head = hostcall_add_(heads, 1), at = triggers + 16 * (head % entries);
    if (head >= entries + hostcall_load_(heads + 8)) {
        uint64_t taken;
        do {
            taken = hostcall_load_(tail);
        } while (head >= entries + taken);
        hostcall_store_(heads + 8, taken);
    }
#if defined(__CUDA_ARCH__)
    asm volatile("st.release.sys.global.v2.u64 [%0], {%1, %2};" : : "l"(at), "l"(first), "l"(second) : "memory");
#else
    hostcall_release_();
    hostcall_store_(at, first);
    hostcall_store_(at + 8, second);
#endif
}

extern "C" __global__ void fifo(uint64_t triggers, uint64_t entries, uint64_t heads, uint64_t tail, uint64_t count) {
    for (uint64_t i = 1; i <= count; i++)
        push(triggers, entries, heads, tail, i, 7);
}

extern "C" __global__ void fifo_turns(uint64_t triggers, uint64_t entries, uint64_t heads, uint64_t tail, uint64_t count, uint64_t signal) {
    for (uint64_t i = 1; i <= count; i++) {
        push(triggers, entries, heads, tail, i, 7);
        while (hostcall_load_(signal) < i) {
        }
        hostcall_acquire_();
    }
}
