// The kernels of programs/bench that call and post, in CUDA C++ and HIP, from a context: for kernels that others launch. `mode`:
// 0 claims a slot for each call, 1 holds one.
#include "hostcall_device.h"

#if defined(__clang__) && !defined(__global__)
#define __global__ __attribute__((global))
#endif
#if defined(__AMDGCN__)
#define GLOBAL_ID (__builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x())
#else
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)
#endif

extern "C" __global__ void null_calls(uint64_t context, uint64_t method, uint64_t *ns, uint64_t *failed, uint64_t count, uint32_t mode) {
    uint64_t nothing = 0, status = 0, id = GLOBAL_ID;
    uint64_t start = hostcall_clock_ns_();
    if (mode == 0) {
        for (uint64_t i = 0; i < count; i++)
            status |= hostcall_call_words(context, method, &nothing, 0, &nothing, 0, 0);
    } else {
        struct hostcall_scope scope = HOSTCALL_SCOPE;
        hostcall_scope_begin(&scope, context);
        for (uint64_t i = 0; i < count; i++)
            status |= hostcall_scope_call_words(&scope, method, &nothing, 0, &nothing, 0, 0);
        hostcall_scope_end(&scope);
    }
    ns[id] = hostcall_clock_ns_() - start;
    if (status != HOSTCALL_CALL_OK)
        failed[id] = 1;
}

extern "C" __global__ void wide_calls(uint64_t context, uint64_t method, uint64_t *ns, uint64_t *failed, uint64_t count, uint32_t mode) {
    uint64_t wrong = 0, id = GLOBAL_ID, sum = 0, words[7] = {0, id, 2, 3, 4, 5, ~UINT64_C(0)};
    uint64_t start = hostcall_clock_ns_();
    if (mode == 0) {
        for (words[0] = 0; words[0] < count; words[0]++)
            wrong |= hostcall_call_words(context, method, words, 7, &sum, 1, 0) | (sum ^ (words[0] + id + 13));
    } else {
        struct hostcall_scope scope = HOSTCALL_SCOPE;
        hostcall_scope_begin(&scope, context);
        for (words[0] = 0; words[0] < count; words[0]++)
            wrong |= hostcall_scope_call_words(&scope, method, words, 7, &sum, 1, 0) | (sum ^ (words[0] + id + 13));
        hostcall_scope_end(&scope);
    }
    ns[id] = hostcall_clock_ns_() - start;
    if (wrong != 0)
        failed[id] = 1;
}

extern "C" __global__ void posts(uint64_t context, uint64_t method, uint64_t *ns, uint64_t *failed, uint64_t count, uint32_t mode) {
    uint64_t lost = 0, id = GLOBAL_ID;
    uint64_t start = hostcall_clock_ns_();
    if (mode == 0) {
        for (uint64_t i = 0; i < count; i++)
            lost |= !hostcall_post_words(context, method, &i, 1);
    } else {
        struct hostcall_scope scope = HOSTCALL_SCOPE;
        hostcall_scope_begin(&scope, context);
        for (uint64_t i = 0; i < count; i++)
            lost |= !hostcall_scope_post_words(&scope, method, &i, 1);
        hostcall_scope_end(&scope);
    }
    ns[id] = hostcall_clock_ns_() - start;
    if (lost != 0)
        failed[id] = 1;
}
