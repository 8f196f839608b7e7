/* What CUDA's and HIP's headers declare of their language, for clang without these. */
#define __global__ __attribute__((global))

struct place {
    unsigned x, y, z;
};

#if defined(__AMDGCN__)
#define PLACE(amd, nvidia)                                                                                         \
    place { __builtin_amdgcn_##amd##_x(), __builtin_amdgcn_##amd##_y(), __builtin_amdgcn_##amd##_z() }
#else
#define PLACE(amd, nvidia)                                                                                         \
    place {                                                                                                        \
        (unsigned)__nvvm_read_ptx_sreg_##nvidia##_x(), (unsigned)__nvvm_read_ptx_sreg_##nvidia##_y(),              \
            (unsigned)__nvvm_read_ptx_sreg_##nvidia##_z()                                                          \
    }
#endif

#define threadIdx PLACE(workitem_id, tid)
#define blockIdx PLACE(workgroup_id, ctaid)
#define blockDim PLACE(workgroup_size, ntid)

#if defined(__AMDGCN__)
static inline __attribute__((device, always_inline)) void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

#define __any(is_so) (__builtin_amdgcn_ballot_w64(is_so) != 0)
#else
#define __syncthreads() __nvvm_barrier_sync(0)
#define __any_sync(lanes, is_so) __nvvm_vote_any_sync(lanes, is_so)
#endif
