/* What HIP's headers declare of its language, and functions of ROCm's device libraries. */
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))

typedef unsigned long u64;
typedef u64 u64x2 __attribute__((ext_vector_type(2)));

extern "C" {
__device__ int printf(const char *, ...);
__device__ __attribute__((const)) u64 __ockl_get_global_id(unsigned);
__device__ u64x2 __ockl_call_host_function(u64, u64, u64, u64, u64, u64, u64, u64);
__device__ u64x2 __ockl_hostcall_preview(unsigned, u64, u64, u64, u64, u64, u64, u64, u64);
__device__ u64 __ockl_fprintf_stderr_begin();
__device__ u64 __ockl_fprintf_append_string_n(u64, const char *, u64, unsigned);
__device__ u64 __ockl_fprintf_append_args(u64, unsigned, u64, u64, u64, u64, u64, u64, u64, unsigned);
__device__ void __ockl_sanitizer_report(u64, u64, u64, u64, u64, u64, u64, u64);
__device__ __attribute__((address_space(1))) void *__ockl_dm_alloc(u64);
__device__ void __ockl_dm_dealloc(u64);
}
