/* A device's side of the protocol without stacks, which no packaged device libraries have yet. */
#include "device.h"

struct header {
    u64 mask;
    unsigned service, unused;
};

struct buffer {
    unsigned *device_phases, *host_phases, *occupied;
    struct header *headers;
    u64 (*payloads)[64][8];
    u64 doorbell;
    unsigned packets;
};

#define LOAD(at, order) __scoped_atomic_load_n(at, order, __MEMORY_SCOPE_SYSTEM)
#define STORE(at, value, order) __scoped_atomic_store_n(at, value, order, __MEMORY_SCOPE_SYSTEM)

/* Claims a packet, for a wave. */
__device__ static unsigned claim(struct buffer *buffer, unsigned at) {
    for (;; at++) {
        unsigned packet = at % buffer->packets, bit = 1u << packet % 32, *word = &buffer->occupied[packet / 32];
        if (__scoped_atomic_fetch_or(word, bit, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE) & bit) continue;
        if (LOAD(&buffer->device_phases[packet], __ATOMIC_RELAXED) == LOAD(&buffer->host_phases[packet], __ATOMIC_ACQUIRE))
            return packet;
        __scoped_atomic_fetch_and(word, ~bit, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
    }
}

/* Calls a service for the lanes that are here. */
__device__ static u64x2 call(unsigned service, const u64 (&words)[8], unsigned start) {
    struct buffer *buffer = ((struct buffer *__attribute__((address_space(4))) *)__builtin_amdgcn_implicitarg_ptr())[10];
    u64 mask = __builtin_amdgcn_read_exec();
    unsigned lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
    bool leads = lane == (unsigned)__builtin_ctzl(mask);
    unsigned packet = 0;
    if (leads) packet = claim(buffer, start);
    packet = __builtin_amdgcn_readfirstlane(packet);
    u64 *payload = buffer->payloads[packet][lane];
    for (int word = 0; word < 8; word++) STORE(&payload[word], words[word], __ATOMIC_RELAXED);
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    if (leads) {
        unsigned *phase = &buffer->device_phases[packet], next = LOAD(phase, __ATOMIC_RELAXED) ^ 1;
        STORE(&buffer->headers[packet].mask, mask, __ATOMIC_RELAXED);
        STORE(&buffer->headers[packet].service, service, __ATOMIC_RELAXED);
        STORE(phase, next, __ATOMIC_RELEASE);
        while (LOAD(&buffer->host_phases[packet], __ATOMIC_RELAXED) != next) __builtin_amdgcn_s_sleep(1);
    }
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
    u64x2 answer = {LOAD(&payload[0], __ATOMIC_RELAXED), LOAD(&payload[1], __ATOMIC_RELAXED)};
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    if (leads)
        __scoped_atomic_fetch_and(&buffer->occupied[packet / 32], ~(1u << packet % 32), __ATOMIC_RELEASE,
                                  __MEMORY_SCOPE_DEVICE);
    return answer;
}

/* What the kernel of this name in kernels.hip does. */
extern "C" __global__ void calls(u64 *out, u64 lanes, u64 function, u64 times) {
    u64 i = __ockl_get_global_id(0);
    if (i >= lanes || i % 7 == 3) return;
    u64 sum = 0;
    for (u64 time = 0; time < times; time++) {
        u64x2 answer = call(1, {function, i, time, 3, 4, 5, 6, 7}, __builtin_amdgcn_workgroup_id_x());
        sum += answer.x;
        if (answer.y != i + time) sum = ~0ul;
    }
    out[i] = sum;
}
