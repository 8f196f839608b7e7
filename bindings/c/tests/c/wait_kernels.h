/* Kernels that say what they wait for, once for all compilers of context_kernels.h. */
#include "hostcall_device.h"

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define WAIT_KERNEL extern "C" __global__
#define WAIT_LANE (blockIdx.x * blockDim.x + threadIdx.x)
#else
#define WAIT_KERNEL static
static __thread uint32_t wait_lane;
#define WAIT_LANE wait_lane
#endif

/* Waits that end after some polls, of which the host is told and is not: by the macro, and in a loop of the kernel's own. */
WAIT_KERNEL void waits_end(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = WAIT_LANE;
    if (lane >= lanes)
        return;
    for (uint32_t round = 0; round < rounds; round++) {
        uint32_t polls = 0, own = 0;
        HOSTCALL_WAIT(context, "ends", lane % 3, round, ++polls > 5000 * (round % 2));
        HOSTCALL_WAIT(0, "of nobody", HOSTCALL_NO_PEER, round, ++polls > 12000);
        struct hostcall_wait wait = HOSTCALL_WAIT_BEGIN;
        while (++own < 3000)
            hostcall_wait_goes_on(&wait, context, "of a loop of its own", &out[lane], lane, round);
        hostcall_wait_end(&wait, context);
    }
    out[lane] = 0;
}

/* Waits for a signal that does not come. */
WAIT_KERNEL void waits_for_ever(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    const uint32_t lane = WAIT_LANE;
    if (lane >= lanes)
        return;
    HOSTCALL_WAIT_AT(context, "signal", &out[lane % 3], lane % 3, rounds, *(volatile uint64_t *)&out[lane] == 7);
    out[lane] = 0;
}
