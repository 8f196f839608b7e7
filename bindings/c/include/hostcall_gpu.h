/*
 * What HIP's and CUDA's headers declare of their language, for clang without ROCm and without CUDA: kernels for AMD's GPUs, for
 * `gfx942` in software, and for NVIDIA's.
 *
 *     clang -x hip --offload-arch=gfx942 --cuda-device-only --no-gpu-bundle-output -nogpuinc -nogpulib -std=c++17 -O2 \
 *         -include hostcall_gpu.h -I FOLDER -o kernels.co kernels.hip
 *
 * FOLDER is this header's; the Python package's is `python -c 'import hostcall; print(hostcall.include())'`. There is no mathematics here, and nothing of the host's side.
 */
#ifndef HOSTCALL_GPU_H
#define HOSTCALL_GPU_H

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

/* A place in three directions, or how many there are. */
struct hostcall_dim3 {
    unsigned x, y, z;
};

#if defined(__AMDGCN__)
#define HOSTCALL_DIM3_(amd, nvidia) \
    (hostcall_dim3{__builtin_amdgcn_##amd##_x(), __builtin_amdgcn_##amd##_y(), __builtin_amdgcn_##amd##_z()})
/* The grid's size is in threads there. */
#define gridDim                                                                        \
    (hostcall_dim3{__builtin_amdgcn_grid_size_x() / __builtin_amdgcn_workgroup_size_x(), \
                   __builtin_amdgcn_grid_size_y() / __builtin_amdgcn_workgroup_size_y(), \
                   __builtin_amdgcn_grid_size_z() / __builtin_amdgcn_workgroup_size_z()})
#else
#define HOSTCALL_DIM3_(amd, nvidia)                                                                             \
    (hostcall_dim3{(unsigned)__nvvm_read_ptx_sreg_##nvidia##_x(), (unsigned)__nvvm_read_ptx_sreg_##nvidia##_y(), \
                   (unsigned)__nvvm_read_ptx_sreg_##nvidia##_z()})
#define gridDim HOSTCALL_DIM3_(grid_size, nctaid)
#endif

#define threadIdx HOSTCALL_DIM3_(workitem_id, tid)
#define blockIdx HOSTCALL_DIM3_(workgroup_id, ctaid)
#define blockDim HOSTCALL_DIM3_(workgroup_size, ntid)

#if defined(__AMDGCN__)
/* Waits for all threads of the block, which see what the others wrote before. For NVIDIA's GPUs clang knows it. */
static inline __attribute__((device, convergent)) void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

#endif
