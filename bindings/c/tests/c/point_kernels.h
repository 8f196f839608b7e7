/* Kernels with trace points, once for all compilers of context_kernels.h. Each lane writes `rounds` of each kind. */
#include "hostcall_device.h"

#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define POINT_KERNEL extern "C" __global__
#define POINT_LANE (blockIdx.x * blockDim.x + threadIdx.x)
#else
#define POINT_KERNEL static
static __thread uint32_t point_lane;
#define POINT_LANE point_lane
#endif

/* Whole waves, but for the last one's lanes: a span around all, one for each round, two counters and two events in it. */
POINT_KERNEL void points(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = POINT_LANE;
    if (lane >= lanes)
        return;
    hostcall_span(context, "whole");
    for (uint32_t round = 0; round < rounds; round++) {
        hostcall_span_begin(context, span, "round");
        hostcall_counter(context, "half", 0.5f * (float)round);
        hostcall_counter(context, "below", -(int32_t)round);
        hostcall_event(context, "nothing to say");
        hostcall_event(context, "{} of {:#x}, {} {} {}", round, (uint64_t)rounds, true, -1.5, (short)-7);
        hostcall_span_end(context, span);
    }
    out[lane] = 0;
}

/* Lanes come to points apart: every third begins a span that all end together, and each counts as often as its number says. */
POINT_KERNEL void points_apart(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = POINT_LANE;
    if (lane >= lanes)
        return;
    for (uint32_t round = 0; round < rounds; round++) {
        hostcall_span_begin(lane % 3 == round % 3 ? context : 0, span, "third");
        for (uint32_t count = 0; count < lane % 4; count++)
            hostcall_counter(context, "count", count);
        hostcall_span_end(context, span);
    }
    out[lane] = 0;
}

/* What costs nothing where nobody traces. */
POINT_KERNEL void untraced(uint64_t context, uint64_t *out, uint32_t lanes, uint32_t rounds) {
    uint32_t lane = POINT_LANE;
    if (lane >= lanes)
        return;
    uint64_t computed = 0;
    for (uint32_t round = 0; round < rounds; round++) {
        hostcall_counter(context, "never", ++computed);
        hostcall_counter(0, "never", ++computed);
        hostcall_counter(hostcall_traced(context), "never", ++computed);
        hostcall_event(context, "never {}", ++computed);
    }
    out[lane] = computed | (uint64_t)hostcall_is_traced(context) << 32;
}
