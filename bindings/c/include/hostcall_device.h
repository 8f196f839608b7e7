/*
 * The device's side of hostcall for kernels in CUDA C++, HIP, OpenCL or C: raw channels, through which they write records and
 * bytes that the host reads while they run, and, from `Calls and posts` on, calls of host functions.
 *
 * Raw channels.
 *
 *     __global__ void trace(const float *data, unsigned count, struct hostcall_raw_stream out) {
 *         struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
 *         for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
 *             struct record record = {i, work(data[i])};
 *             hostcall_raw_record(&out, &writer, &record, sizeof record);
 *         }
 *         hostcall_raw_close(&out, &writer);
 *     }
 *
 * The host makes the channel (`RawChannel` in Rust, `hostcall_raw_channel_new` in C) and gives it to a launch, whose kernel
 * takes a `struct hostcall_raw_stream` by value (`KernelArgument::raw_channel`, HOSTCALL_ROCM_KIND_RAW).
 *
 * Writers. Each lane has a writer of its own: a local variable that begins as HOSTCALL_RAW_WRITER and goes with the same
 * channel to every function. It is a few registers; nothing of it is in memory that lanes share. Of lanes that write together
 * the first one's is used, which has a page of the channel open for what they write until that is full. So lanes that write
 * together cost a wave one page, and lanes that each write alone cost one page each. A channel needs more pages than writers
 * have open at the same time, or these wait for each other (or drop): a lane that waits for a page which another lane of its
 * own wave has open may wait until the launch is cancelled.
 *
 * When the host sees it. A page's bytes are seen when it is full, with the first write in each 131 us of the device's clock,
 * by hostcall_raw_flush, and by hostcall_raw_close, which each lane calls before it ends. A page that a lane leaves open the
 * host closes when the launch has ended, by itself or because it was killed: with what was seen of it. The bytes behind are
 * lost, and the page is counted (`RawStatistics::swept_pages`).
 *
 * No free page. The channel says what happens: a lane waits for a reader (or for the host, which overwrites the oldest page),
 * or drops. It also drops where it would wait and nobody reads any more, or the launch was cancelled, or its stream was stopped
 * before it. Records that are dropped are counted, for all such lanes of a channel together, and functions return 0.
 *
 * Compilers. Clang for NVIDIA's and AMD's GPUs (CUDA C++, HIP, C; for AMD's also OpenCL C 2.0, with -ffreestanding), nvcc, and
 * C99 or C++11 compilers with GCC's atomic functions for the host, where each thread is a wave of one lane.
 */
#ifndef HOSTCALL_DEVICE_H
#define HOSTCALL_DEVICE_H

#if defined(__CUDACC_RTC__)
/* NVRTC has no files of its own, and these types only under names of C++'s. */
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef unsigned long long uintptr_t;
#define UINT32_C(value) value##u
#define UINT64_C(value) value##ull
#define UINT32_MAX 0xffffffffu
#else
#include <stddef.h>
#include <stdint.h>
#endif

/* A raw channel as a kernel gets it, by value. The host fills it in; kernels pass its address to the functions below. */
struct hostcall_raw_stream {
    uint64_t shared;
    uint64_t data;
    uint64_t ring;
    uint64_t dropped;
    uint64_t stop_at;
    uint64_t sequence;
    uint32_t pages_log2;
    uint32_t page_bytes_log2;
    uint32_t launch;
    uint32_t slot;
    uint32_t waits;
    uint32_t reserved;
};

/* What a lane remembers of a channel. It begins as HOSTCALL_RAW_WRITER. */
struct hostcall_raw_writer {
    uint64_t place;          /* How far the open page was written, with its ticket. */
    uint32_t page;           /* The open page, plus one; 0 for none. */
    uint32_t published;      /* Bytes of it that the host was told of. */
    uint32_t period;         /* In which it was told last. */
    uint32_t looks_left_out; /* Looks for a free page that are left out, after one that found none. */
    uint32_t workgroup;      /* Whose pages are, as readers are told: on the host the program's to set. */
    uint32_t wave;
};

#ifdef __cplusplus
#define HOSTCALL_RAW_WRITER {}
#else
#define HOSTCALL_RAW_WRITER {0}
#endif

/* Layouts, made from those of core/abi/src/raw.rs. Words have 8 bytes, and count from `shared`. */
#define HOSTCALL_RAW_START_WORDS 16u
#define HOSTCALL_RAW_GIVEN_WORD 1u
#define HOSTCALL_RAW_HEADER_WORDS 8u
#define HOSTCALL_RAW_HEADER_OPENED 0u
#define HOSTCALL_RAW_HEADER_SLOT 1u
#define HOSTCALL_RAW_HEADER_WAVE 2u
#define HOSTCALL_RAW_HEADER_OPENED_NS 3u
#define HOSTCALL_RAW_HEADER_DROPPED 4u
#define HOSTCALL_RAW_RING_HEAD_BYTE 0u
#define HOSTCALL_RAW_RING_KNOWN_BYTE 8u
#define HOSTCALL_RAW_CLOSED UINT64_C(0x100000000)
#define HOSTCALL_RAW_TICKET_SHIFT 33
#define HOSTCALL_RAW_MOST_RECORD_BYTES 128u

/* A lane looks for a free page at every 16th time only after it found none: each look is a read over the link. */
#define HOSTCALL_RAW_LOOKS_LEFT_OUT 15u
/* Polls between two looks at whether anybody reads. */
#define HOSTCALL_RAW_POLLS_A_LOOK 64u
/* Periods of 131,072 ns. */
#define HOSTCALL_RAW_PERIOD_LOG2 17

/*
 * What differs between targets. hostcall_load_, hostcall_store_: relaxed, of the whole system. hostcall_add_, hostcall_cas_:
 * relaxed, of the device; they return what was there. Fences are the whole system's.
 */
#if defined(__CUDACC_RTC__)
#define HOSTCALL_FUNCTION static __forceinline__ __device__
#elif defined(__CUDACC__) && !defined(__clang__)
#define HOSTCALL_FUNCTION static __forceinline__ __host__ __device__
#elif defined(__CUDA__) || defined(__HIP__)
#define HOSTCALL_FUNCTION static __inline__ __attribute__((always_inline, host, device))
#else
#define HOSTCALL_FUNCTION static __inline__ __attribute__((always_inline))
#endif

/* Functions that are too long to stand where they are called. */
#if defined(__CUDACC_RTC__)
#define HOSTCALL_LONG_FUNCTION static __noinline__ __device__ __attribute__((unused))
#elif defined(__CUDACC__) && !defined(__clang__)
#define HOSTCALL_LONG_FUNCTION static __noinline__ __host__ __device__ __attribute__((unused))
#elif defined(__CUDA__) || defined(__HIP__)
#define HOSTCALL_LONG_FUNCTION static __attribute__((noinline, unused, host, device))
#else
#define HOSTCALL_LONG_FUNCTION static __attribute__((noinline, unused))
#endif

#if defined(__CUDACC__) && !defined(__clang__)
#define HOSTCALL_ASM_ asm
#define hostcall_copy_(to, from, bytes) memcpy(to, from, bytes)
#define hostcall_ones_(mask) ((uint32_t)hostcall_popc_(mask))
#else
#define HOSTCALL_ASM_ __asm__
#define hostcall_copy_(to, from, bytes) __builtin_memcpy(to, from, bytes)
#define hostcall_ones_(mask) ((uint32_t)__builtin_popcountll(mask))
#endif
#if defined(__CUDACC__) && !defined(__clang__)
HOSTCALL_FUNCTION uint32_t hostcall_popc_(uint64_t mask) {
#if defined(__CUDA_ARCH__)
    return (uint32_t)__popc((uint32_t)mask);
#else
    return (uint32_t)__builtin_popcountll(mask);
#endif
}
#endif

#if defined(__AMDGCN__) || defined(__NVPTX__)
/* Clang for a GPU. */
typedef __attribute__((address_space(1))) uint64_t hostcall_word_;
typedef uint64_t hostcall_two_words_ __attribute__((vector_size(16)));
typedef __attribute__((address_space(1))) hostcall_two_words_ hostcall_pair_;

HOSTCALL_FUNCTION uint64_t hostcall_load_(uint64_t at) {
    return __scoped_atomic_load_n((hostcall_word_ *)at, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

HOSTCALL_FUNCTION void hostcall_store_(uint64_t at, uint64_t word) {
    __scoped_atomic_store_n((hostcall_word_ *)at, word, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

HOSTCALL_FUNCTION void hostcall_store_pair_(uint64_t at, uint64_t first, uint64_t second) {
    hostcall_two_words_ pair;
    pair[0] = first;
    pair[1] = second;
    *(hostcall_pair_ *)at = pair;
}

HOSTCALL_FUNCTION uint64_t hostcall_add_(uint64_t at, uint64_t more) {
    return __scoped_atomic_fetch_add((hostcall_word_ *)at, more, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

HOSTCALL_FUNCTION uint64_t hostcall_cas_(uint64_t at, uint64_t old, uint64_t word) {
    __scoped_atomic_compare_exchange_n((hostcall_word_ *)at, &old, word, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                       __MEMORY_SCOPE_DEVICE);
    return old;
}

HOSTCALL_FUNCTION void hostcall_acquire_(void) {
#if __has_builtin(__scoped_atomic_thread_fence)
    __scoped_atomic_thread_fence(__ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM);
#elif defined(__AMDGCN__)
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "");
#else
    __nvvm_membar_sys();
#endif
}

HOSTCALL_FUNCTION void hostcall_release_(void) {
#if __has_builtin(__scoped_atomic_thread_fence)
    __scoped_atomic_thread_fence(__ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
#elif defined(__AMDGCN__)
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
#else
    __nvvm_membar_sys();
#endif
}
#elif defined(__CUDA_ARCH__)
/* nvcc: from sm_70 on a volatile access is a relaxed one of the whole system. */
HOSTCALL_FUNCTION uint64_t hostcall_load_(uint64_t at) {
    return *(volatile unsigned long long *)at;
}

HOSTCALL_FUNCTION void hostcall_store_(uint64_t at, uint64_t word) {
    *(volatile unsigned long long *)at = word;
}

HOSTCALL_FUNCTION void hostcall_store_pair_(uint64_t at, uint64_t first, uint64_t second) {
    *(ulonglong2 *)at = make_ulonglong2(first, second);
}

HOSTCALL_FUNCTION uint64_t hostcall_add_(uint64_t at, uint64_t more) {
    unsigned long long before;
    HOSTCALL_ASM_ volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(more) : "memory");
    return before;
}

HOSTCALL_FUNCTION uint64_t hostcall_cas_(uint64_t at, uint64_t old, uint64_t word) {
    return atomicCAS((unsigned long long *)at, (unsigned long long)old, (unsigned long long)word);
}

HOSTCALL_FUNCTION void hostcall_acquire_(void) {
    __threadfence_system();
}

HOSTCALL_FUNCTION void hostcall_release_(void) {
    __threadfence_system();
}
#else
/* The host. */
HOSTCALL_FUNCTION uint64_t hostcall_load_(uint64_t at) {
    return __atomic_load_n((uint64_t *)(uintptr_t)at, __ATOMIC_RELAXED);
}

HOSTCALL_FUNCTION void hostcall_store_(uint64_t at, uint64_t word) {
    __atomic_store_n((uint64_t *)(uintptr_t)at, word, __ATOMIC_RELAXED);
}

HOSTCALL_FUNCTION void hostcall_store_pair_(uint64_t at, uint64_t first, uint64_t second) {
    hostcall_store_(at, first);
    hostcall_store_(at + 8, second);
}

HOSTCALL_FUNCTION uint64_t hostcall_add_(uint64_t at, uint64_t more) {
    return __atomic_fetch_add((uint64_t *)(uintptr_t)at, more, __ATOMIC_RELAXED);
}

HOSTCALL_FUNCTION uint64_t hostcall_cas_(uint64_t at, uint64_t old, uint64_t word) {
    __atomic_compare_exchange_n((uint64_t *)(uintptr_t)at, &old, word, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return old;
}

HOSTCALL_FUNCTION void hostcall_acquire_(void) {
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
}

HOSTCALL_FUNCTION void hostcall_release_(void) {
    __atomic_thread_fence(__ATOMIC_RELEASE);
}
#endif

/*
 * The wave. hostcall_lanes_: those that are here together. hostcall_rank_: how many of them come before the calling one.
 * hostcall_of_first_: the first one's value. hostcall_meet_: what they did before is seen by each afterwards.
 */
#if defined(__AMDGCN__)
HOSTCALL_FUNCTION uint64_t hostcall_lanes_(void) {
    return __builtin_amdgcn_read_exec();
}

HOSTCALL_FUNCTION uint32_t hostcall_rank_(uint64_t lanes) {
    return __builtin_amdgcn_mbcnt_hi((uint32_t)(lanes >> 32), __builtin_amdgcn_mbcnt_lo((uint32_t)lanes, 0));
}

HOSTCALL_FUNCTION uint64_t hostcall_of_first_(uint64_t lanes, uint64_t value) {
    uint32_t low = (uint32_t)__builtin_amdgcn_readfirstlane((int)(uint32_t)value);
    uint32_t high = (uint32_t)__builtin_amdgcn_readfirstlane((int)(uint32_t)(value >> 32));
    (void)lanes;
    return (uint64_t)high << 32 | low;
}

HOSTCALL_FUNCTION void hostcall_meet_(uint64_t lanes) {
    (void)lanes;
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

/* A counter of 100 MHz. In OpenCL C Clang gives the first builtin a type of 128 bits, and ends with an error of its own. */
HOSTCALL_FUNCTION uint64_t hostcall_clock_ns_(void) {
#if __has_builtin(__builtin_readsteadycounter) && !defined(__OPENCL_C_VERSION__)
    return __builtin_readsteadycounter() * 10;
#else
    return __builtin_amdgcn_s_memrealtime() * 10;
#endif
}

HOSTCALL_FUNCTION void hostcall_pause_(void) {
    __builtin_amdgcn_s_sleep(1);
}

/* Lanes of a workgroup along an axis, as the dispatch's packet says, which all versions of code objects lead to. */
HOSTCALL_FUNCTION uint32_t hostcall_workgroup_size_(uint32_t axis) {
    return ((const __attribute__((address_space(4))) uint16_t *)(uintptr_t)__builtin_amdgcn_dispatch_ptr())[2 + axis];
}

/* Of the workgroup in its grid, x fastest, and of the wave in its workgroup. */
HOSTCALL_FUNCTION uint32_t hostcall_workgroup_(const struct hostcall_raw_writer *writer) {
    uint32_t lanes_x = hostcall_workgroup_size_(0), lanes_y = hostcall_workgroup_size_(1);
    uint32_t in_x = (__builtin_amdgcn_grid_size_x() + lanes_x - 1) / lanes_x;
    uint32_t in_y = (__builtin_amdgcn_grid_size_y() + lanes_y - 1) / lanes_y;
    (void)writer;
    return __builtin_amdgcn_workgroup_id_x() +
           in_x * (__builtin_amdgcn_workgroup_id_y() + in_y * __builtin_amdgcn_workgroup_id_z());
}

HOSTCALL_FUNCTION uint32_t hostcall_wave_(const struct hostcall_raw_writer *writer) {
    uint32_t lanes_x = hostcall_workgroup_size_(0), lanes_y = hostcall_workgroup_size_(1);
    uint32_t lane = __builtin_amdgcn_workitem_id_x() +
                    lanes_x * (__builtin_amdgcn_workitem_id_y() + lanes_y * __builtin_amdgcn_workitem_id_z());
    (void)writer;
    return lane / __builtin_amdgcn_wavefrontsize();
}
#elif defined(__NVPTX__) || defined(__CUDA_ARCH__)
#if defined(__NVPTX__)
#define HOSTCALL_OF_BLOCK_(name, axis) ((uint32_t)__nvvm_read_ptx_sreg_##name##_##axis())
#define HOSTCALL_BLOCK_INDEX_(axis) HOSTCALL_OF_BLOCK_(ctaid, axis)
#define HOSTCALL_GRID_SIZE_(axis) HOSTCALL_OF_BLOCK_(nctaid, axis)
#define HOSTCALL_THREAD_INDEX_(axis) HOSTCALL_OF_BLOCK_(tid, axis)
#define HOSTCALL_BLOCK_SIZE_(axis) HOSTCALL_OF_BLOCK_(ntid, axis)
#else
#define HOSTCALL_BLOCK_INDEX_(axis) blockIdx.axis
#define HOSTCALL_GRID_SIZE_(axis) gridDim.axis
#define HOSTCALL_THREAD_INDEX_(axis) threadIdx.axis
#define HOSTCALL_BLOCK_SIZE_(axis) blockDim.axis
#endif

HOSTCALL_FUNCTION uint64_t hostcall_lanes_(void) {
#if defined(__NVPTX__)
    return __nvvm_activemask();
#else
    return __activemask();
#endif
}

HOSTCALL_FUNCTION uint32_t hostcall_rank_(uint64_t lanes) {
    uint32_t before;
    HOSTCALL_ASM_("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
#if defined(__NVPTX__)
    return (uint32_t)__builtin_popcount((uint32_t)lanes & before);
#else
    return (uint32_t)__popc((uint32_t)lanes & before);
#endif
}

HOSTCALL_FUNCTION uint64_t hostcall_of_first_(uint64_t lanes, uint64_t value) {
#if defined(__NVPTX__)
    uint32_t mask = (uint32_t)lanes;
    int first = __builtin_ctz(mask);
    uint32_t low = (uint32_t)__nvvm_shfl_sync_idx_i32(mask, (int)(uint32_t)value, first, 31);
    uint32_t high = (uint32_t)__nvvm_shfl_sync_idx_i32(mask, (int)(uint32_t)(value >> 32), first, 31);
    return (uint64_t)high << 32 | low;
#else
    return __shfl_sync((uint32_t)lanes, (unsigned long long)value, __ffs((int)(uint32_t)lanes) - 1);
#endif
}

HOSTCALL_FUNCTION void hostcall_meet_(uint64_t lanes) {
#if defined(__NVPTX__)
    __nvvm_bar_warp_sync((uint32_t)lanes);
#else
    __syncwarp((uint32_t)lanes);
#endif
}

HOSTCALL_FUNCTION uint64_t hostcall_clock_ns_(void) {
    uint64_t ns;
    HOSTCALL_ASM_ volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

HOSTCALL_FUNCTION void hostcall_pause_(void) {
    HOSTCALL_ASM_ volatile("nanosleep.u32 100;");
}

HOSTCALL_FUNCTION uint32_t hostcall_workgroup_(const struct hostcall_raw_writer *writer) {
    (void)writer;
    return HOSTCALL_BLOCK_INDEX_(x) +
           HOSTCALL_GRID_SIZE_(x) * (HOSTCALL_BLOCK_INDEX_(y) + HOSTCALL_GRID_SIZE_(y) * HOSTCALL_BLOCK_INDEX_(z));
}

HOSTCALL_FUNCTION uint32_t hostcall_wave_(const struct hostcall_raw_writer *writer) {
    (void)writer;
    return (HOSTCALL_THREAD_INDEX_(x) +
            HOSTCALL_BLOCK_SIZE_(x) *
                (HOSTCALL_THREAD_INDEX_(y) + HOSTCALL_BLOCK_SIZE_(y) * HOSTCALL_THREAD_INDEX_(z))) /
           32;
}
#else
/* A thread of the host is a wave of one lane, and tells of each write at once. */
#if defined(__unix__) || defined(__APPLE__)
#include <sched.h>
#endif

HOSTCALL_FUNCTION uint64_t hostcall_lanes_(void) {
    return 1;
}

HOSTCALL_FUNCTION uint32_t hostcall_rank_(uint64_t lanes) {
    (void)lanes;
    return 0;
}

HOSTCALL_FUNCTION uint64_t hostcall_of_first_(uint64_t lanes, uint64_t value) {
    (void)lanes;
    return value;
}

HOSTCALL_FUNCTION void hostcall_meet_(uint64_t lanes) {
    (void)lanes;
}

/* The clock that pages have the times of: a program that has one defines HOSTCALL_CLOCK_NS. */
HOSTCALL_FUNCTION uint64_t hostcall_clock_ns_(void) {
#if defined(HOSTCALL_CLOCK_NS)
    return HOSTCALL_CLOCK_NS();
#else
    return 0;
#endif
}

HOSTCALL_FUNCTION void hostcall_pause_(void) {
#if defined(__unix__) || defined(__APPLE__)
    sched_yield();
#endif
}

HOSTCALL_FUNCTION uint32_t hostcall_workgroup_(const struct hostcall_raw_writer *writer) {
    return writer->workgroup;
}

HOSTCALL_FUNCTION uint32_t hostcall_wave_(const struct hostcall_raw_writer *writer) {
    return writer->wave;
}
#endif

HOSTCALL_FUNCTION int hostcall_raw_is_due_(const struct hostcall_raw_writer *writer) {
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    return writer->period != (uint32_t)(hostcall_clock_ns_() >> HOSTCALL_RAW_PERIOD_LOG2);
#else
    (void)writer;
    return 1;
#endif
}

HOSTCALL_FUNCTION void hostcall_raw_told_(struct hostcall_raw_writer *writer) {
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    writer->period = (uint32_t)(hostcall_clock_ns_() >> HOSTCALL_RAW_PERIOD_LOG2);
#else
    (void)writer;
#endif
}

/* Addresses of the entry of the ring of free pages at a position, of a page's place, and of its header. */
HOSTCALL_FUNCTION uint64_t hostcall_raw_free_at_(const struct hostcall_raw_stream *stream, uint64_t position) {
    uint64_t pages = UINT64_C(1) << stream->pages_log2;
    return stream->shared + 8 * (HOSTCALL_RAW_START_WORDS + (position & (pages - 1)));
}

HOSTCALL_FUNCTION uint64_t hostcall_raw_commit_at_(const struct hostcall_raw_stream *stream, uint32_t page) {
    uint64_t pages = UINT64_C(1) << stream->pages_log2;
    return stream->shared + 8 * (HOSTCALL_RAW_START_WORDS + pages + page);
}

HOSTCALL_FUNCTION uint64_t hostcall_raw_header_at_(const struct hostcall_raw_stream *stream, uint32_t page) {
    uint64_t pages = UINT64_C(1) << stream->pages_log2;
    return stream->shared + 8 * (HOSTCALL_RAW_START_WORDS + 2 * pages + HOSTCALL_RAW_HEADER_WORDS * (uint64_t)page);
}

/*
 * The word `known` of the ring has in its upper half how many pages are free as far as waves know, which is below 0 for a
 * moment, and in its lower half the low half of the host's word as they have seen it last. Takes the right to a position.
 */
HOSTCALL_FUNCTION int hostcall_raw_take_free_(const struct hostcall_raw_stream *stream) {
    const uint64_t known = stream->ring + HOSTCALL_RAW_RING_KNOWN_BYTE, one = UINT64_C(1) << 32;
    if ((int32_t)(hostcall_load_(known) >> 32) <= 0)
        return 0;
    if ((int32_t)(hostcall_add_(known, 0 - one) >> 32) > 0)
        return 1;
    hostcall_add_(known, one);
    return 0;
}

/* Tells waves how many pages the host has given, ever, and takes the right to a position if there is one. */
HOSTCALL_FUNCTION int hostcall_raw_tell_(const struct hostcall_raw_stream *stream, uint64_t given) {
    const uint64_t known = stream->ring + HOSTCALL_RAW_RING_KNOWN_BYTE;
    uint64_t word = hostcall_load_(known);
    for (;;) {
        uint32_t more = (uint32_t)given - (uint32_t)word;
        if ((int32_t)more <= 0)
            return hostcall_raw_take_free_(stream);
        uint32_t left = (uint32_t)(word >> 32) + more;
        int takes = (int32_t)left > 0;
        uint64_t told = (uint64_t)(left - (uint32_t)takes) << 32 | (uint32_t)given;
        uint64_t now = hostcall_cas_(known, word, told);
        if (now == word)
            return takes;
        word = now;
    }
}

/* Opens a page, if one is free. Asks the host only if it `looks`. */
HOSTCALL_FUNCTION int hostcall_raw_open_(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer,
                                         int looks) {
    if (!hostcall_raw_take_free_(stream) &&
        !(looks && hostcall_raw_tell_(stream, hostcall_load_(stream->shared + 8 * HOSTCALL_RAW_GIVEN_WORD))))
        return 0;
    uint64_t position = hostcall_add_(stream->ring + HOSTCALL_RAW_RING_HEAD_BYTE, 1), entry;
    /* The host has stored it before it said that the page may be taken. */
    while ((entry = hostcall_load_(hostcall_raw_free_at_(stream, position))) >> 16 != (position + 1) << 16 >> 16)
        hostcall_pause_();
    /* The host has read the page before it put it into the ring. */
    hostcall_acquire_();
    uint32_t page = (uint32_t)entry & ((UINT32_C(1) << stream->pages_log2) - 1);
    uint64_t header = hostcall_raw_header_at_(stream, page);
    uint64_t wave = (uint64_t)hostcall_wave_(writer) << 32 | hostcall_workgroup_(writer);
    hostcall_store_(header + 8 * HOSTCALL_RAW_HEADER_OPENED, (position + 1) << 32 | stream->launch);
    hostcall_store_(header + 8 * HOSTCALL_RAW_HEADER_SLOT, stream->slot);
    hostcall_store_(header + 8 * HOSTCALL_RAW_HEADER_WAVE, wave);
    hostcall_store_(header + 8 * HOSTCALL_RAW_HEADER_OPENED_NS, hostcall_clock_ns_());
    hostcall_store_(header + 8 * HOSTCALL_RAW_HEADER_DROPPED, hostcall_load_(stream->dropped));
    writer->place = (position + 1) << HOSTCALL_RAW_TICKET_SHIFT;
    writer->published = 0;
    writer->page = page + 1;
    return 1;
}

/* Takes room for some of `count` records of so many bytes in the open page: the first one's word of all pages in the upper
 * half, and how many in the lower one; 0 when there is no page or no room. */
HOSTCALL_FUNCTION uint64_t hostcall_raw_take_open_(const struct hostcall_raw_stream *stream,
                                                   struct hostcall_raw_writer *writer, uint32_t bytes, uint32_t count) {
    if (writer->page == 0)
        return 0;
    uint32_t from = (uint32_t)writer->place, room = ((UINT32_C(1) << stream->page_bytes_log2) - from) / bytes;
    uint32_t taken = count < room ? count : room;
    if (taken == 0)
        return 0;
    writer->place += (uint64_t)taken * bytes;
    uint64_t word = ((uint64_t)(writer->page - 1) << (stream->page_bytes_log2 - 3)) + from / 8;
    return word << 32 | taken;
}

/* Stores the open page's place. What was written before is there then. */
HOSTCALL_FUNCTION void hostcall_raw_tell_place_(const struct hostcall_raw_stream *stream,
                                                struct hostcall_raw_writer *writer, uint64_t place) {
    hostcall_release_();
    hostcall_store_(hostcall_raw_commit_at_(stream, writer->page - 1), place);
    writer->published = (uint32_t)place;
    hostcall_raw_told_(writer);
}

/* Says whether a lane that waits for a page has nobody to wait for. */
HOSTCALL_FUNCTION int hostcall_raw_is_over_(const struct hostcall_raw_stream *stream) {
    uint64_t lanes, host;
    if (hostcall_load_(stream->shared) != 0)
        return 1;
    if (stream->stop_at == 0)
        return 0;
    lanes = hostcall_load_(stream->stop_at);
    host = hostcall_load_(stream->stop_at + 8);
    return stream->sequence >= (lanes < host ? lanes : host);
}

/* Tells the host at once of what the calling lane's writer has open. */
HOSTCALL_FUNCTION void hostcall_raw_flush(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer) {
    if (writer->page != 0 && (uint32_t)writer->place != writer->published)
        hostcall_raw_tell_place_(stream, writer, writer->place);
}

/* Gives the host what the calling lane's writer has open. Each lane calls it before it ends; a lane that writes afterwards
 * opens another page. */
HOSTCALL_FUNCTION void hostcall_raw_close(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer) {
    if (writer->page != 0)
        hostcall_raw_tell_place_(stream, writer, writer->place | HOSTCALL_RAW_CLOSED);
    writer->page = 0;
}

/* Takes room as hostcall_raw_take_open_ does, in another page if need be. 0 when none is free; the records are counted as
 * dropped then. */
HOSTCALL_FUNCTION uint64_t hostcall_raw_take_(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer,
                                              uint32_t bytes, uint32_t count) {
    uint64_t taken = hostcall_raw_take_open_(stream, writer, bytes, count);
    if (taken != 0)
        return taken;
    hostcall_raw_close(stream, writer);
    if (writer->looks_left_out > 0)
        writer->looks_left_out--;
    int is_open = hostcall_raw_open_(stream, writer, writer->looks_left_out == 0);
    if (!is_open && stream->waits && !hostcall_raw_is_over_(stream)) {
        for (uint32_t polls = 1; !(is_open = hostcall_raw_open_(stream, writer, 1)); polls++) {
            if (polls % HOSTCALL_RAW_POLLS_A_LOOK == 0 && hostcall_raw_is_over_(stream))
                break;
            hostcall_pause_();
        }
    }
    if (is_open && (taken = hostcall_raw_take_open_(stream, writer, bytes, count)) != 0)
        return taken;
    hostcall_add_(stream->dropped, count);
    if (writer->looks_left_out == 0)
        writer->looks_left_out = HOSTCALL_RAW_LOOKS_LEFT_OUT + 1;
    return 0;
}

/*
 * Writes `count` bytes of the calling lane, filled up with zeros to a multiple of 8: they may go on in another page. Returns
 * whether all were kept; of those that were not, words are counted. Each lane that comes here writes by itself, to a page of
 * its own: it is for one lane of a wave, such as the first.
 */
HOSTCALL_FUNCTION int hostcall_raw_write(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer,
                                         const void *bytes, uint32_t count) {
    const unsigned char *from = (const unsigned char *)bytes;
    uint32_t words = count / 8 + (count % 8 != 0), done = 0;
    while (done < words) {
        uint64_t taken = hostcall_raw_take_(stream, writer, 8, words - done);
        uint64_t at = stream->data + 8 * (taken >> 32);
        if (taken == 0)
            return 0;
        for (uint32_t end = done + (uint32_t)taken; done < end; done++, at += 8) {
            uint64_t word = 0;
            if (count - 8 * done >= 8) {
                hostcall_copy_(&word, from + 8 * (uint64_t)done, 8);
            } else {
                for (uint32_t i = 0; i < count - 8 * done; i++)
                    word |= (uint64_t)from[8 * (uint64_t)done + i] << 8 * i;
            }
            hostcall_store_(at, word);
        }
        if (hostcall_raw_is_due_(writer))
            hostcall_raw_flush(stream, writer);
    }
    return 1;
}

/*
 * Writes a record of each lane that comes here, in the order of the lanes, side by side: `bytes` bytes each, a multiple of 8
 * and at most 128, the same for all. Returns whether the records of all of them were kept; those that were not are counted. On
 * NVIDIA's GPUs lanes that have diverged come one part after the other; __syncwarp() before it brings them together.
 *
 * A record never goes on in another page: none of no bytes, of bytes that are no multiple of 8, or of more than a page has, is
 * kept. The host takes whole records only: all records of a channel have the size of its type there, unless it is one of bytes.
 */
HOSTCALL_FUNCTION int hostcall_raw_record(const struct hostcall_raw_stream *stream, struct hostcall_raw_writer *writer,
                                          const void *record, uint32_t bytes) {
    const unsigned char *from = (const unsigned char *)record;
    uint64_t lanes = hostcall_lanes_();
    uint32_t rank = hostcall_rank_(lanes), count = hostcall_ones_(lanes), done = 0;
    if (bytes == 0 || bytes % 8 != 0 || bytes > UINT32_C(1) << stream->page_bytes_log2) {
        if (rank == 0)
            hostcall_add_(stream->dropped, count);
        hostcall_meet_(lanes);
        return 0;
    }
    while (done < count) {
        uint64_t taken = 0;
        int is_due = 0;
        if (rank == 0) {
            taken = hostcall_raw_take_(stream, writer, bytes, count - done);
            is_due = hostcall_raw_is_due_(writer);
        }
        taken = hostcall_of_first_(lanes, taken);
        if (taken == 0)
            break;
        if (rank - done < (uint32_t)taken) {
            uint64_t at = stream->data + 8 * (taken >> 32) + (uint64_t)(rank - done) * bytes, words[2];
            if ((at | bytes) % 16 == 0) {
                for (uint32_t i = 0; i < bytes; i += 16) {
                    hostcall_copy_(words, from + i, 16);
                    hostcall_store_pair_(at + i, words[0], words[1]);
                }
            } else {
                for (uint32_t i = 0; i < bytes; i += 8) {
                    hostcall_copy_(words, from + i, 8);
                    hostcall_store_(at + i, words[0]);
                }
            }
        }
        done += (uint32_t)taken;
        /* What was stored is there before the first lane tells of it, here or later. */
        hostcall_meet_(lanes);
        if (is_due)
            hostcall_raw_flush(stream, writer);
    }
    hostcall_meet_(lanes);
    return done == count;
}

/*
 * Calls and posts. A kernel that anybody launches gets the address of a context (`Device::context` in Rust,
 * `hostcall_context_new` in C) as an argument, or in a variable of its module:
 *
 *     __global__ void prices(uint64_t context, const uint64_t *items, uint64_t *out) {
 *         unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
 *         if (hostcall_call_words(context, HOSTCALL_METHOD(700, 0), &items[i], 1, &out[i], 1, 0) != HOSTCALL_CALL_OK)
 *             out[i] = 0;
 *     }
 *
 * Lanes that come to a call together and for the same method make one packet of it (on NVIDIA a whole wave does, and each lane
 * of a part calls alone, one after the other). It goes through a slot of the channel, which they claim for the call and give back
 * once all have their answers: one exchange and one AND on a word in memory of the device. Nothing is kept from call to call, and
 * nothing is due when a wave ends. Who calls often holds a slot with a `struct hostcall_scope`, which spares each call a
 * microsecond.
 *
 * Each call ends with a status of `hostcall_call_status`, and in no other way: also when nobody serves the channel any more,
 * when the context was cancelled or is gone, and when its host has another version. While it waits, a lane looks for its answer
 * without end, unless the call has a time limit.
 */

/* A method of a service: its number, and the bits of the schema hash that its types have; 0 for a method without types. */
#define HOSTCALL_METHOD(number, check) ((uint64_t)(check) << 16 | (uint64_t)(number))

/* How a call ended: the lower 8 bits of what it returns. Of HOSTCALL_CALL_FAILED the handler's own code is in the next 32. */
enum hostcall_call_status {
    HOSTCALL_CALL_OK = 0,
    HOSTCALL_CALL_NO_SUCH_SERVICE = 1,
    HOSTCALL_CALL_FAILED = 2,
    HOSTCALL_CALL_PANICKED = 3,
    HOSTCALL_CALL_CANCELLED = 4,
    HOSTCALL_CALL_TOO_LARGE = 5,
    HOSTCALL_CALL_TIMED_OUT = 6,
    HOSTCALL_CALL_TYPE_MISMATCH = 7,
    HOSTCALL_CALL_MALFORMED = 8,
    HOSTCALL_CALL_BUSY = 9,
    HOSTCALL_CALL_UNREACHABLE = 10,   /* A service of another process that nobody answers for; the call did not run. */
    HOSTCALL_CALL_MAY_HAVE_RUN = 11,  /* Whoever had the call there is gone or silent. */
    HOSTCALL_CALL_NO_CONTEXT = 254,   /* The address is 0, or no context lies there. */
    HOSTCALL_CALL_OTHER_VERSION = 255 /* Its host has another version than this header. */
};

#if (defined(__CUDACC__) || defined(__CUDA__) || defined(__NVPTX__)) && !defined(__HIP__)
typedef uint32_t hostcall_mask_;
#else
typedef uint64_t hostcall_mask_;
#endif

/* A slot that lanes hold, the same in each of them. It begins as HOSTCALL_SCOPE. */
struct hostcall_scope {
    uint64_t context;
    uint64_t home;       /* Address of the slot's words in memory of the device; 0 without a slot. */
    uint64_t region;     /* Address of the channel. */
    uint64_t kept;       /* What the next holder takes over. */
    uint64_t ring;       /* Address of the slot's ring, and its entries below: known once something was posted. */
    hostcall_mask_ lanes; /* Who holds it. */
    uint32_t launch;
    uint32_t lane;       /* The calling lane's place in its wave. */
    uint32_t wave_lanes; /* Lanes of a wave. */
    uint32_t tail;       /* Low bits of the ring entries that the host had taken, as far as is known. */
    uint32_t state;      /* HOSTCALL_STATE_. */
    uint32_t period;     /* In which posts were announced last. */
    uint32_t doorbell;   /* Places of the slot's doorbell and of its replies. */
    uint32_t reply;
    uint32_t ring_entries;
};

#ifdef __cplusplus
#define HOSTCALL_SCOPE {}
#else
#define HOSTCALL_SCOPE {0}
#endif

/* Layouts of the channel, made from those of core/abi/src. Words count from `region`, bytes from a slot's words or the context. */
#define HOSTCALL_CONTEXT_MAGIC UINT32_C(0x78746368)
#define HOSTCALL_CONTEXT_MAJOR 1u
#define HOSTCALL_CONTEXT_REGION_BYTE 8u
#define HOSTCALL_CONTEXT_HOMES_BYTE 16u
#define HOSTCALL_CONTEXT_SIZES_BYTE 24u
#define HOSTCALL_CONTEXT_LAUNCH_BYTE 32u
#define HOSTCALL_CONTEXT_FLAGS_BYTE 36u
#define HOSTCALL_CONTEXT_MESSAGES 1u
#define HOSTCALL_CONTEXT_WAKE_BYTE 48u
#define HOSTCALL_HOME_BYTES 160u
#define HOSTCALL_HOME_PLACES_BYTE 16u
#define HOSTCALL_HOME_FIRST_BYTE 80u
#define HOSTCALL_HOME_REQUEST_LAPS_BYTE 96u
#define HOSTCALL_HOME_REPLY_LAPS_BYTE 128u
#define HOSTCALL_KEPT_HELD UINT64_C(0xffffffffffffffff)
#define HOSTCALL_KEPT_APART UINT64_C(0x8000000000000000)
#define HOSTCALL_KEPT_REPLY_LAPS 48u
#define HOSTCALL_KEPT_REQUEST_LAPS 36u
#define HOSTCALL_KEPT_PARITY 35u
#define HOSTCALL_KEPT_LAP 34u
#define HOSTCALL_KEPT_QUARTERS 32u
#define HOSTCALL_KEPT_REPLY_ALONE 7u
#define HOSTCALL_KEPT_REQUEST_ALONE 4u
#define HOSTCALL_METHOD_CHECK 207u
#define HOSTCALL_METHOD_PRINT UINT64_C(0x9d40700c0)
#define HOSTCALL_METHOD_NUMBERED_CHECK_FAILED UINT64_C(0xf0f3a00c1)
#define HOSTCALL_LAP UINT64_C(0x8000000000000000)
#define HOSTCALL_LAP_WORDS 8u
#define HOSTCALL_MOST_PAIRS 4u
#define HOSTCALL_STOP_WORD 8u
#define HOSTCALL_ASLEEP_WORD 9u
#define HOSTCALL_HINTS_WORD 16u
#define HOSTCALL_HINTS 32u
#define HOSTCALL_POST_PERIOD_LOG2 13u
#define HOSTCALL_DOORBELL_ 0u
#define HOSTCALL_REQUEST_ 1u
#define HOSTCALL_REPLY_ 2u
#define HOSTCALL_PLANE_ 3u
#define HOSTCALL_AREA_ 4u
#define HOSTCALL_AREA_BYTES_ 5u
#define HOSTCALL_RING_ 6u
#define HOSTCALL_RING_ENTRIES_ 7u
#define HOSTCALL_POST_BELL_ 8u
#define HOSTCALL_RING_TAIL_ 9u
#define HOSTCALL_OWNER_ 10u

/* Of a scope. */
#define HOSTCALL_STATE_APART_ 1u       /* Laps lie beside the slot's word. */
#define HOSTCALL_STATE_OWNED_ 2u       /* Whose calls come was said. */
#define HOSTCALL_STATE_POSTED_ 4u      /* Whose posts come was said. */
#define HOSTCALL_STATE_UNANNOUNCED_ 8u /* Posts were not announced. */
#define HOSTCALL_STATE_UNTOLD_ 16u     /* No call has said that posts come before it. */
#define HOSTCALL_STATE_UNSETTLED_ 32u  /* Stores may be on their way when the slot is given back. */
#define HOSTCALL_STATE_LOST_ 64u       /* Nobody serves any more: the slot is not given back. */

/* Most words of a call there and back, of one with bytes, of a post, and of a message to a post queue. */
#define HOSTCALL_MOST_WORDS_ 7u
#define HOSTCALL_MOST_WORDS_BESIDE_BYTES_ 64u
#define HOSTCALL_MOST_POST_WORDS_ 5u
#define HOSTCALL_MOST_MESSAGE_WORDS 16u

/* Polls after which a lane asks whether anybody serves, and pauses. */
#define HOSTCALL_POLLS_A_LOOK_ 256u

/*
 * Clock cycles of NVIDIA's between what a lane has asked and the earliest answer, which it lets pass: a look takes 1.2 us, and
 * one that comes too early delays the next. A lane alone, what it takes besides if the host has to learn whose the slot is,
 * with bytes, and each pair of the lanes of a wave. Of 650 to 1200 cycles for a lane alone 650 were best on an H200: a call took
 * 1.79 us and with 1200 2.08; without a pause it took 2.73.
 */
#define HOSTCALL_CYCLES_ALONE_ 650u
#define HOSTCALL_CYCLES_OF_OWNER_ 200u
#define HOSTCALL_CYCLES_WITH_BYTES_ 1700u
#define HOSTCALL_CYCLES_A_PAIR_ 300u

/*
 * What differs between targets. hostcall_exchange_, hostcall_and_: a slot's word, which hands its state from holder to holder.
 * hostcall_load32_, hostcall_store32_: the state beside it, which no cache keeps. hostcall_fixed_, hostcall_fixed64_: what never
 * changes; volatile, since compilers load it before they know that there is a slot otherwise. hostcall_load_near_: what may be old,
 * from the nearest cache. hostcall_load_pair_, hostcall_send_pair_: two words of the host's, each valid by itself.
 * hostcall_cycles_: the clock of hostcall_pass_, which does nothing where a look at the host's memory costs nothing.
 */
#if defined(__NVPTX__) || defined(__CUDA_ARCH__)
HOSTCALL_FUNCTION uint64_t hostcall_exchange_(uint64_t at, uint64_t word) {
    unsigned long long old;
    HOSTCALL_ASM_ volatile("atom.relaxed.gpu.global.exch.b64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(word) : "memory");
    return old;
}

HOSTCALL_FUNCTION void hostcall_and_(uint64_t at, uint64_t word) {
    HOSTCALL_ASM_ volatile("red.relaxed.gpu.global.and.b64 [%0], %1;" : : "l"(at), "l"(word) : "memory");
}

HOSTCALL_FUNCTION uint32_t hostcall_load32_(uint64_t at) {
    uint32_t word;
    HOSTCALL_ASM_ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
    return word;
}

HOSTCALL_FUNCTION void hostcall_store32_(uint64_t at, uint32_t word) {
    HOSTCALL_ASM_ volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(at), "r"(word) : "memory");
}

HOSTCALL_FUNCTION uint32_t hostcall_fixed_(uint64_t at) {
    uint32_t word;
    HOSTCALL_ASM_ volatile("ld.global.nc.u32 %0, [%1];" : "=r"(word) : "l"(at));
    return word;
}

HOSTCALL_FUNCTION uint64_t hostcall_fixed64_(uint64_t at) {
    unsigned long long word;
    HOSTCALL_ASM_ volatile("ld.global.nc.u64 %0, [%1];" : "=l"(word) : "l"(at));
    return word;
}

HOSTCALL_FUNCTION uint64_t hostcall_load_near_(uint64_t at) {
    unsigned long long word;
    HOSTCALL_ASM_ volatile("ld.weak.global.ca.u64 %0, [%1];" : "=l"(word) : "l"(at) : "memory");
    return word;
}

HOSTCALL_FUNCTION uint32_t hostcall_cycles_(void) {
    uint32_t cycles;
    HOSTCALL_ASM_ volatile("mov.u32 %0, %%clock;" : "=r"(cycles) : : "memory");
    return cycles;
}

/* Lets the time pass until so many cycles of the clock are over since `begin`. */
HOSTCALL_FUNCTION void hostcall_pass_(uint32_t begin, uint32_t cycles) {
    while (hostcall_cycles_() - begin < cycles) {
    }
}

HOSTCALL_FUNCTION void hostcall_load_pair_(uint64_t at, uint64_t *first, uint64_t *second) {
    unsigned long long a, b;
    HOSTCALL_ASM_ volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];" : "=l"(a), "=l"(b) : "l"(at) : "memory");
    *first = a;
    *second = b;
}

/* Of the whole system: a store that is not may stay in the GPU until a fence. */
HOSTCALL_FUNCTION void hostcall_send_pair_(uint64_t at, uint64_t first, uint64_t second) {
    HOSTCALL_ASM_ volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" : : "l"(at), "l"(first), "l"(second) : "memory");
}

HOSTCALL_FUNCTION void hostcall_fence_(void) {
    HOSTCALL_ASM_ volatile("fence.acq_rel.gpu;" : : : "memory");
}

HOSTCALL_FUNCTION uint32_t hostcall_lane_(void) {
    uint32_t lane;
    HOSTCALL_ASM_("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

/* The place of the wave in the GPU, of which no other wave has it now. */
HOSTCALL_FUNCTION uint32_t hostcall_place_(void) {
    uint32_t multiprocessor, warp;
    HOSTCALL_ASM_ volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    HOSTCALL_ASM_ volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    return multiprocessor * 64 + warp % 64;
}

/* A whole wave. */
#define HOSTCALL_WHOLE_ UINT64_C(0xffffffff)

/*
 * Of lanes that are left, those that call next: the whole wave, if all of it comes here for the same, or one lane. Parts of a
 * wave could call together by operations that name their lanes. But ptxas has parts that run the same code meet where it
 * likes, and such operations then take one part's lanes for all (seen with 12.9 and 13.0): lanes wait for ever.
 */
HOSTCALL_FUNCTION uint64_t hostcall_next_(uint64_t left, uint64_t context, uint64_t method, uint32_t sizes) {
    if (left != HOSTCALL_WHOLE_)
        return left & (0 - left);
#if defined(__NVPTX__)
#define HOSTCALL_OF_FIRST_(word) ((uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffff, (int)(uint32_t)(word), 0, 31))
    /* No shuffle stands behind a condition. */
    int is_same = HOSTCALL_OF_FIRST_(context) == (uint32_t)context;
    is_same &= HOSTCALL_OF_FIRST_(context >> 32) == (uint32_t)(context >> 32);
    is_same &= HOSTCALL_OF_FIRST_(method) == (uint32_t)method;
    is_same &= HOSTCALL_OF_FIRST_(method >> 32) == (uint32_t)(method >> 32);
    is_same &= HOSTCALL_OF_FIRST_(sizes) == sizes;
    is_same = __nvvm_vote_all_sync(0xffffffff, is_same);
#else
    uint64_t first_context = __shfl_sync(0xffffffffu, (unsigned long long)context, 0);
    uint64_t first_method = __shfl_sync(0xffffffffu, (unsigned long long)method, 0);
    uint32_t first_sizes = __shfl_sync(0xffffffffu, sizes, 0);
    int is_same = __all_sync(0xffffffffu, first_context == context && first_method == method && first_sizes == sizes);
#endif
    return is_same ? HOSTCALL_WHOLE_ : 1;
}

/* Whether it is so for all of these lanes. */
HOSTCALL_FUNCTION int hostcall_all_(uint64_t lanes, int is_so) {
    if (lanes != HOSTCALL_WHOLE_)
        return is_so;
#if defined(__NVPTX__)
    return __nvvm_vote_all_sync(0xffffffff, is_so != 0);
#else
    return __all_sync(0xffffffffu, is_so);
#endif
}

/* Whether it is so for all of these lanes, and they have the same value. */
HOSTCALL_FUNCTION int hostcall_all_have_(uint64_t lanes, int is_so, uint32_t value) {
    if (lanes != HOSTCALL_WHOLE_)
        return is_so;
#if defined(__NVPTX__)
    return __nvvm_vote_all_sync(0xffffffff, (HOSTCALL_OF_FIRST_(value) == value) & (is_so != 0));
#else
    return __all_sync(0xffffffffu, (__shfl_sync(0xffffffffu, value, 0) == value) & (is_so != 0));
#endif
}

/* Of these lanes those that are here for the same as the calling one: the whole wave, or it alone, since others may have met it in code
 * of two calls. */
HOSTCALL_FUNCTION uint64_t hostcall_here_for_(uint64_t lanes, const void *what) {
    const int is_whole = lanes == HOSTCALL_WHOLE_ && hostcall_all_have_(lanes, 1, (uint32_t)(uintptr_t)what);
    return is_whole ? lanes : UINT64_C(1) << hostcall_lane_();
}

/* The value of one of these lanes, the same for all. */
HOSTCALL_FUNCTION uint64_t hostcall_of_lane_(uint64_t lanes, uint64_t value, uint32_t lane) {
    if (lanes != HOSTCALL_WHOLE_)
        return value;
#if defined(__NVPTX__)
    uint32_t low = (uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffff, (int)(uint32_t)value, (int)lane, 31);
    uint32_t high = (uint32_t)__nvvm_shfl_sync_idx_i32(0xffffffff, (int)(uint32_t)(value >> 32), (int)lane, 31);
    return (uint64_t)high << 32 | low;
#else
    return __shfl_sync(0xffffffffu, (unsigned long long)value, (int)lane);
#endif
}

/* What these lanes did before is seen by each afterwards. */
HOSTCALL_FUNCTION void hostcall_meet_all_(uint64_t lanes) {
    if (lanes != HOSTCALL_WHOLE_)
        return;
#if defined(__NVPTX__)
    __nvvm_bar_warp_sync(0xffffffff);
#else
    __syncwarp();
#endif
}
#ifndef HOSTCALL_UNROLL_
#define HOSTCALL_UNROLL_ _Pragma("unroll")
#endif
#elif defined(__AMDGCN__)
typedef __attribute__((address_space(1))) uint32_t hostcall_word32_;

HOSTCALL_FUNCTION uint64_t hostcall_exchange_(uint64_t at, uint64_t word) {
    return __scoped_atomic_exchange_n((hostcall_word_ *)at, word, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE);
}

HOSTCALL_FUNCTION void hostcall_and_(uint64_t at, uint64_t word) {
    __scoped_atomic_fetch_and((hostcall_word_ *)at, word, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
}

HOSTCALL_FUNCTION uint32_t hostcall_load32_(uint64_t at) {
    return __scoped_atomic_load_n((hostcall_word32_ *)at, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

HOSTCALL_FUNCTION void hostcall_store32_(uint64_t at, uint32_t word) {
    __scoped_atomic_store_n((hostcall_word32_ *)at, word, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

HOSTCALL_FUNCTION uint32_t hostcall_fixed_(uint64_t at) {
    return *(hostcall_word32_ *)at;
}

HOSTCALL_FUNCTION uint64_t hostcall_fixed64_(uint64_t at) {
    return *(hostcall_word_ *)at;
}

HOSTCALL_FUNCTION uint64_t hostcall_load_near_(uint64_t at) {
    return hostcall_load_(at);
}

HOSTCALL_FUNCTION void hostcall_fence_(void) {
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}

HOSTCALL_FUNCTION uint32_t hostcall_lane_(void) {
    return hostcall_rank_(~UINT64_C(0));
}

HOSTCALL_FUNCTION uint64_t hostcall_of_lane_(uint64_t lanes, uint64_t value, uint32_t lane) {
    uint32_t low = (uint32_t)__builtin_amdgcn_readlane((int)(uint32_t)value, (int)lane);
    uint32_t high = (uint32_t)__builtin_amdgcn_readlane((int)(uint32_t)(value >> 32), (int)lane);
    (void)lanes;
    return (uint64_t)high << 32 | low;
}

HOSTCALL_FUNCTION uint32_t hostcall_place_(void) {
    return hostcall_workgroup_(0) * 16 + hostcall_wave_(0);
}

/* Of lanes that are left, those that call next: all that come here for the same as the first of them. */
HOSTCALL_FUNCTION uint64_t hostcall_next_(uint64_t left, uint64_t context, uint64_t method, uint32_t sizes) {
    const uint32_t first = (uint32_t)__builtin_ctzll(left);
    uint64_t differs = context ^ hostcall_of_lane_(left, context, first);
    differs |= method ^ hostcall_of_lane_(left, method, first);
    differs |= sizes ^ (uint32_t)hostcall_of_lane_(left, sizes, first);
    return __builtin_amdgcn_ballot_w64(differs == 0) & left;
}

HOSTCALL_FUNCTION int hostcall_all_(uint64_t lanes, int is_so) {
    return (__builtin_amdgcn_ballot_w64(!is_so) & lanes) == 0;
}

HOSTCALL_FUNCTION int hostcall_all_have_(uint64_t lanes, int is_so, uint32_t value) {
    return hostcall_all_(lanes, is_so && value == (uint32_t)hostcall_of_lane_(lanes, value, (uint32_t)__builtin_ctzll(lanes)));
}

HOSTCALL_FUNCTION uint64_t hostcall_here_for_(uint64_t lanes, const void *what) {
    (void)what;
    return lanes;
}

HOSTCALL_FUNCTION void hostcall_meet_all_(uint64_t lanes) {
    hostcall_meet_(lanes);
}
#ifndef HOSTCALL_UNROLL_
#define HOSTCALL_UNROLL_ _Pragma("unroll")
#endif
#else
/* A thread of the host proposes a slot by where its stack lies. */
HOSTCALL_FUNCTION uint64_t hostcall_exchange_(uint64_t at, uint64_t word) {
    return __atomic_exchange_n((uint64_t *)(uintptr_t)at, word, __ATOMIC_ACQUIRE);
}

HOSTCALL_FUNCTION void hostcall_and_(uint64_t at, uint64_t word) {
    __atomic_fetch_and((uint64_t *)(uintptr_t)at, word, __ATOMIC_RELEASE);
}

HOSTCALL_FUNCTION uint32_t hostcall_load32_(uint64_t at) {
    return __atomic_load_n((uint32_t *)(uintptr_t)at, __ATOMIC_RELAXED);
}

HOSTCALL_FUNCTION void hostcall_store32_(uint64_t at, uint32_t word) {
    __atomic_store_n((uint32_t *)(uintptr_t)at, word, __ATOMIC_RELAXED);
}

HOSTCALL_FUNCTION uint32_t hostcall_fixed_(uint64_t at) {
    return hostcall_load32_(at);
}

HOSTCALL_FUNCTION uint64_t hostcall_fixed64_(uint64_t at) {
    return hostcall_load_(at);
}

HOSTCALL_FUNCTION uint64_t hostcall_load_near_(uint64_t at) {
    return hostcall_load_(at);
}

HOSTCALL_FUNCTION void hostcall_fence_(void) {
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
}

HOSTCALL_FUNCTION uint32_t hostcall_lane_(void) {
    return 0;
}

HOSTCALL_FUNCTION uint64_t hostcall_of_lane_(uint64_t lanes, uint64_t value, uint32_t lane) {
    (void)lanes, (void)lane;
    return value;
}

HOSTCALL_FUNCTION uint32_t hostcall_place_(void) {
    char here;
    return (uint32_t)((uintptr_t)&here >> 14);
}

HOSTCALL_FUNCTION uint64_t hostcall_next_(uint64_t left, uint64_t context, uint64_t method, uint32_t sizes) {
    (void)context, (void)method, (void)sizes;
    return left;
}

HOSTCALL_FUNCTION int hostcall_all_(uint64_t lanes, int is_so) {
    (void)lanes;
    return is_so;
}

HOSTCALL_FUNCTION int hostcall_all_have_(uint64_t lanes, int is_so, uint32_t value) {
    (void)lanes, (void)value;
    return is_so;
}

HOSTCALL_FUNCTION uint64_t hostcall_here_for_(uint64_t lanes, const void *what) {
    (void)what;
    return lanes;
}

HOSTCALL_FUNCTION void hostcall_meet_all_(uint64_t lanes) {
    (void)lanes;
}
#ifndef HOSTCALL_UNROLL_
#define HOSTCALL_UNROLL_
#endif
#endif

#if !defined(__NVPTX__) && !defined(__CUDA_ARCH__)
HOSTCALL_FUNCTION uint32_t hostcall_cycles_(void) {
    return 0;
}

HOSTCALL_FUNCTION void hostcall_pass_(uint32_t begin, uint32_t cycles) {
    (void)begin, (void)cycles;
}

HOSTCALL_FUNCTION void hostcall_load_pair_(uint64_t at, uint64_t *first, uint64_t *second) {
    *first = hostcall_load_(at);
    *second = hostcall_load_(at + 8);
}

HOSTCALL_FUNCTION void hostcall_send_pair_(uint64_t at, uint64_t first, uint64_t second) {
    hostcall_store_(at, first);
    hostcall_store_(at + 8, second);
}
#endif

/*
 * Whether lanes that call together are one lane, how many they are, and the rank of one of them, which is the calling one. What
 * a constant `is_alone` says, compilers need not work out.
 */
#if defined(__NVPTX__) || defined(__CUDA_ARCH__)
#define HOSTCALL_IS_ALONE_(lanes) ((lanes) != HOSTCALL_WHOLE_)
#define HOSTCALL_COUNT_OF_(is_alone, lanes) ((is_alone) || HOSTCALL_IS_ALONE_(lanes) ? 1u : 32u)
#define HOSTCALL_RANK_IN_(is_alone, lanes, lane) ((is_alone) || HOSTCALL_IS_ALONE_(lanes) ? 0u : (lane))
#else
#define HOSTCALL_IS_ALONE_(lanes) (((lanes) & ((lanes) - 1)) == 0)
#define HOSTCALL_COUNT_OF_(is_alone, lanes) ((is_alone) ? 1u : hostcall_ones_(lanes))
#define HOSTCALL_RANK_IN_(is_alone, lanes, lane) ((void)(lane), (is_alone) ? 0u : hostcall_rank_(lanes))
#endif

/* The first of these lanes. */
HOSTCALL_FUNCTION uint32_t hostcall_first_(uint64_t lanes) {
    return hostcall_ones_((lanes & (0 - lanes)) - 1);
}

/* Wakes the server, if it sleeps. GPUs cannot: they are polled. */
HOSTCALL_FUNCTION void hostcall_wake_(uint64_t context, uint64_t region) {
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    (void)context;
    (void)region;
#else
    /* Either this sees that the server sleeps, or the server sees what was stored before. */
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    if (hostcall_load_(region + 8 * HOSTCALL_ASLEEP_WORD) != 0) {
        uint64_t wake = hostcall_load_(context + HOSTCALL_CONTEXT_WAKE_BYTE);
        if (wake != 0)
            ((void (*)(uint64_t))(uintptr_t)wake)(hostcall_load_(context + HOSTCALL_CONTEXT_WAKE_BYTE + 8));
    }
#endif
}

/* A place of the slot: its first word, or a number, by its number among those that never change. */
HOSTCALL_FUNCTION uint32_t hostcall_slot_(const struct hostcall_scope *scope, uint32_t place) {
    return hostcall_fixed_(scope->home + HOSTCALL_HOME_PLACES_BYTE + 4 * (uint64_t)place);
}

HOSTCALL_FUNCTION uint64_t hostcall_word_at_(const struct hostcall_scope *scope, uint32_t word) {
    return scope->region + 8 * (uint64_t)word;
}

HOSTCALL_FUNCTION uint64_t hostcall_with_lap_(uint64_t word, uint32_t lap) {
    return (word & ~HOSTCALL_LAP) | (uint64_t)(lap & 1) << 63;
}

HOSTCALL_FUNCTION int hostcall_is_over_(uint64_t region) {
    return hostcall_load_(region + 8 * HOSTCALL_STOP_WORD) != 0;
}

/*
 * Laps. A slot has 256 in each direction, 32 in a word: those of its pairs' last uses. In the slot's word are `alone` bits of
 * the first places, one for the other places of the first word, and one for each other word, where its places are alike.
 */
#define HOSTCALL_LAPS_(is_reply) ((is_reply) ? HOSTCALL_KEPT_REPLY_LAPS : HOSTCALL_KEPT_REQUEST_LAPS)
#define HOSTCALL_ALONE_(is_reply) ((is_reply) ? HOSTCALL_KEPT_REPLY_ALONE : HOSTCALL_KEPT_REQUEST_ALONE)

HOSTCALL_FUNCTION uint64_t hostcall_laps_at_(const struct hostcall_scope *scope, int is_reply, uint32_t word) {
    return scope->home + (is_reply ? HOSTCALL_HOME_REPLY_LAPS_BYTE : HOSTCALL_HOME_REQUEST_LAPS_BYTE) + 4 * (uint64_t)word;
}

/* All of a word of laps, of those in the slot's word. */
HOSTCALL_FUNCTION uint32_t hostcall_unpack_(uint64_t kept, int is_reply, uint32_t word) {
    uint32_t laps = (uint32_t)(kept >> HOSTCALL_LAPS_(is_reply)), alone = HOSTCALL_ALONE_(is_reply);
    uint32_t others = 0u - (laps >> (alone + word) & 1);
    if (word != 0)
        return others;
    return (laps & ((UINT32_C(1) << alone) - 1)) | others << alone;
}

/* Puts the laps beside the slot's word, if they are not there. For the first lane. */
HOSTCALL_FUNCTION void hostcall_spill_(struct hostcall_scope *scope) {
    for (uint32_t at = 0; at < 2 * HOSTCALL_LAP_WORDS; at++) {
        uint32_t word = at % HOSTCALL_LAP_WORDS;
        int is_reply = at >= HOSTCALL_LAP_WORDS;
        hostcall_store32_(hostcall_laps_at_(scope, is_reply, word), hostcall_unpack_(scope->kept, is_reply, word));
    }
}

/* Takes the laps beside the slot's word back into it, if they fit there. */
HOSTCALL_FUNCTION void hostcall_pack_(struct hostcall_scope *scope) {
    uint64_t kept = 0;
    uint32_t differ = 0;
    for (uint32_t at = 0; at < 2 * HOSTCALL_LAP_WORDS; at++) {
        uint32_t word = at % HOSTCALL_LAP_WORDS;
        int is_reply = at >= HOSTCALL_LAP_WORDS;
        uint32_t laps = hostcall_load32_(hostcall_laps_at_(scope, is_reply, word)), alone = HOSTCALL_ALONE_(is_reply);
        uint32_t first = word == 0 ? alone : 0, bits = word == 0 ? laps & ((UINT32_C(2) << alone) - 1) : laps & 1;
        differ |= (uint32_t)((int32_t)laps >> 31) ^ (uint32_t)((int32_t)laps >> first);
        kept |= (uint64_t)bits << (HOSTCALL_LAPS_(is_reply) + (word == 0 ? 0 : alone + word));
    }
    if (differ == 0) {
        scope->kept = (scope->kept & ((UINT64_C(1) << HOSTCALL_KEPT_REQUEST_LAPS) - 1)) | kept;
        scope->state &= ~HOSTCALL_STATE_APART_;
    }
}

/* How the pairs of a packet of `count` lanes lie: all in the first plane, or one of each lane in each plane. */
struct hostcall_spread_ {
    uint32_t count;
    uint32_t pairs;
    uint32_t apart; /* Pairs from one of a lane's to its next, in the first plane. */
    int is_dense;
};

HOSTCALL_FUNCTION struct hostcall_spread_ hostcall_spread_of_(int is_reply, uint32_t count, uint32_t pairs,
                                                              uint32_t wave_lanes) {
    struct hostcall_spread_ spread;
    spread.count = count;
    spread.pairs = pairs;
    /* A GPU fetches two pairs of the same 32 bytes one after the other. */
    spread.apart = is_reply && pairs > 1 && count == 1 ? 2 : count;
    /* A lane's pairs fit the first plane of each wave that there is. */
    spread.is_dense = pairs <= 1 || count == 1 || spread.apart * pairs <= wave_lanes;
    return spread;
}

/* The lap of the next use of a lane's pair. */
HOSTCALL_FUNCTION uint32_t hostcall_next_lap_(const struct hostcall_scope *scope, int is_reply,
                                              const struct hostcall_spread_ *spread, uint32_t pair, uint32_t rank) {
    uint32_t place = pair * (spread->is_dense ? spread->apart : 64) + rank, word = place / 32;
    if (scope->state & HOSTCALL_STATE_APART_)
        return ~(hostcall_load32_(hostcall_laps_at_(scope, is_reply, word)) >> place % 32) & 1;
    uint32_t alone = HOSTCALL_ALONE_(is_reply), bit = word != 0 ? alone + word : place < alone ? place : alone;
    return (uint32_t)~(scope->kept >> (HOSTCALL_LAPS_(is_reply) + bit)) & 1;
}

/* What a packet flips in a word of laps. */
HOSTCALL_FUNCTION uint32_t hostcall_flips_(const struct hostcall_spread_ *spread, uint32_t word) {
    uint32_t count = 0, first = word * 32;
    if (spread->is_dense) {
        count = spread->apart * spread->pairs;
    } else if (word / 2 < spread->pairs) {
        count = spread->count;
        first = word % 2 * 32;
    }
    count = count > first ? count - first : 0;
    uint32_t flips = count >= 32 ? UINT32_MAX : (UINT32_C(1) << count) - 1;
    return spread->is_dense && spread->apart > spread->count ? flips & UINT32_C(0x55555555) : flips;
}

/* What a packet flips among the laps in the slot's word: that of a lane alone, or of a whole wave. */
HOSTCALL_FUNCTION uint64_t hostcall_kept_flips_(const struct hostcall_spread_ *spread, int is_reply, uint32_t wave_lanes) {
    uint32_t alone = HOSTCALL_ALONE_(is_reply), flips;
    if (spread->count == 1) {
        flips = hostcall_flips_(spread, 0);
    } else {
        /* Of each plane a bit for 32 lanes. */
        uint32_t planes = (UINT32_C(1) << 2 * spread->pairs) - 1;
        if (wave_lanes <= 32)
            planes &= UINT32_C(0x55555555);
        flips = spread->pairs == 0 ? 0 : ((UINT32_C(1) << alone) - 1) | planes << alone;
    }
    return (uint64_t)flips << HOSTCALL_LAPS_(is_reply);
}

/* Notes that a packet has used its pairs. All lanes come here, and have their laps. */
HOSTCALL_FUNCTION void hostcall_flip_laps_(struct hostcall_scope *scope, const struct hostcall_spread_ *request,
                                           const struct hostcall_spread_ *reply, uint32_t rank) {
    uint32_t count = reply->count;
    int fits = count == 1 || count == scope->wave_lanes;
    if (!(scope->state & HOSTCALL_STATE_APART_)) {
        if (fits) {
            scope->kept ^= hostcall_kept_flips_(request, 0, scope->wave_lanes) |
                           hostcall_kept_flips_(reply, 1, scope->wave_lanes);
            return;
        }
        if (rank == 0)
            hostcall_spill_(scope);
        scope->state |= HOSTCALL_STATE_APART_;
    }
    if (rank == 0) {
        for (uint32_t at = 0; at < 2 * HOSTCALL_LAP_WORDS; at++) {
            uint32_t word = at % HOSTCALL_LAP_WORDS;
            int is_reply = at >= HOSTCALL_LAP_WORDS;
            uint32_t flips = hostcall_flips_(is_reply ? reply : request, word);
            uint64_t laps = hostcall_laps_at_(scope, is_reply, word);
            if (flips != 0)
                hostcall_store32_(laps, hostcall_load32_(laps) ^ flips);
        }
    }
}

/* Claims a slot for these lanes. Returns why there is none. `tries`, a constant, bounds the looks at slots that others hold; 0 for none. */
HOSTCALL_FUNCTION uint64_t hostcall_claim_within_(struct hostcall_scope *scope, uint64_t context, uint64_t lanes, uint32_t rank,
                                                  const uint32_t tries) {
    scope->home = 0;
    if (context == 0)
        return HOSTCALL_CALL_NO_CONTEXT;
    uint64_t version = hostcall_fixed64_(context);
    if ((uint32_t)version != HOSTCALL_CONTEXT_MAGIC)
        return HOSTCALL_CALL_NO_CONTEXT;
    if ((uint16_t)(version >> 32) != HOSTCALL_CONTEXT_MAJOR)
        return HOSTCALL_CALL_OTHER_VERSION;
    uint64_t homes = hostcall_fixed64_(context + HOSTCALL_CONTEXT_HOMES_BYTE);
    uint64_t sizes = hostcall_fixed64_(context + HOSTCALL_CONTEXT_SIZES_BYTE);
    uint64_t kept = HOSTCALL_KEPT_HELD, home = 0;
    scope->context = context;
    scope->region = hostcall_fixed64_(context + HOSTCALL_CONTEXT_REGION_BYTE);
    scope->lane = hostcall_lane_();
    scope->wave_lanes = (uint32_t)(sizes >> 32);
    scope->lanes = (hostcall_mask_)lanes;
    scope->state = 0;
    scope->period = 0;
    scope->ring_entries = 0;
    scope->ring = 0;
    scope->launch = hostcall_load32_(context + HOSTCALL_CONTEXT_LAUNCH_BYTE);
    if (rank == 0) {
        uint32_t slots = (uint32_t)sizes, slot = hostcall_place_(), polls = 0;
        if (slot >= slots)
            slot = (uint32_t)((uint64_t)(slot * UINT32_C(0x9E3779B9)) * slots >> 32);
        do {
            home = homes + HOSTCALL_HOME_BYTES * (uint64_t)slot;
            kept = hostcall_exchange_(home, HOSTCALL_KEPT_HELD);
            slot = slot + 1 < slots ? slot + 1 : 0;
            if (kept == HOSTCALL_KEPT_HELD && ++polls % HOSTCALL_POLLS_A_LOOK_ == 0) {
                if (hostcall_is_over_(scope->region) || (tries != 0 && polls >= tries))
                    home = 0;
                hostcall_pause_();
            }
        } while (kept == HOSTCALL_KEPT_HELD && home != 0);
    }
    kept = hostcall_of_lane_(lanes, kept, hostcall_first_(lanes));
    scope->home = hostcall_of_lane_(lanes, home, hostcall_first_(lanes));
    if (scope->home == 0)
        return HOSTCALL_CALL_CANCELLED;
    scope->doorbell = hostcall_slot_(scope, HOSTCALL_DOORBELL_);
    scope->reply = hostcall_slot_(scope, HOSTCALL_REPLY_);
    if (kept & HOSTCALL_KEPT_APART) {
        hostcall_fence_();
        uint32_t bell = hostcall_load32_(scope->home + HOSTCALL_HOME_FIRST_BYTE);
        kept = hostcall_load32_(scope->home + HOSTCALL_HOME_FIRST_BYTE + 8);
        scope->tail = hostcall_load32_(scope->home + HOSTCALL_HOME_FIRST_BYTE + 12);
        kept |= (uint64_t)(bell >> 31) << HOSTCALL_KEPT_LAP | (uint64_t)(bell & 1) << HOSTCALL_KEPT_PARITY;
        scope->state = HOSTCALL_STATE_APART_;
    } else {
        uint32_t quarters = (uint32_t)(kept >> HOSTCALL_KEPT_QUARTERS) & 3;
        scope->tail = (uint32_t)kept;
        if (quarters != 0)
            scope->tail -= hostcall_slot_(scope, HOSTCALL_RING_ENTRIES_) / 4 * quarters;
    }
    scope->kept = kept;
    return HOSTCALL_CALL_OK;
}

HOSTCALL_FUNCTION uint64_t hostcall_claim_(struct hostcall_scope *scope, uint64_t context, uint64_t lanes, uint32_t rank) {
    return hostcall_claim_within_(scope, context, lanes, rank, 0);
}

/* Leaves a hint of where the slot's doorbell is, which differs from the one before. */
HOSTCALL_FUNCTION void hostcall_hint_(const struct hostcall_scope *scope, uint32_t change) {
    uint32_t doorbell = scope->doorbell, word = HOSTCALL_HINTS_WORD + (doorbell / 64 + doorbell) % HOSTCALL_HINTS;
    hostcall_store_(hostcall_word_at_(scope, word), (uint64_t)change << 32 | doorbell);
}

/* The words that say whose calls or posts come. */
HOSTCALL_FUNCTION uint64_t hostcall_owner_(const struct hostcall_scope *scope, uint64_t *second) {
    struct hostcall_raw_writer none = HOSTCALL_RAW_WRITER;
    *second = hostcall_workgroup_(&none);
    return scope->launch | (uint64_t)(hostcall_wave_(&none) & 127) << 50;
}

/* Announces posts before this position in the ring. For the first lane. */
HOSTCALL_FUNCTION void hostcall_announce_(const struct hostcall_scope *scope, uint32_t position) {
    uint32_t bell = hostcall_slot_(scope, HOSTCALL_POST_BELL_);
    hostcall_store_(hostcall_word_at_(scope, bell), position);
}

/* Gives the slot back. All that the holders have asked for is answered; the first of them does it. */
HOSTCALL_FUNCTION void hostcall_release_slot_(struct hostcall_scope *scope) {
    uint64_t kept;
    uint32_t used = (uint32_t)scope->kept - scope->tail, quarter = 0, quarters = 0;
    if (used != 0) {
        quarter = hostcall_slot_(scope, HOSTCALL_RING_ENTRIES_) / 4;
        quarters = 1u + (used > quarter) + (used > 2 * quarter);
    }
    if (scope->state & HOSTCALL_STATE_UNANNOUNCED_)
        hostcall_announce_(scope, (uint32_t)scope->kept);
    if (scope->state & HOSTCALL_STATE_APART_)
        hostcall_pack_(scope);
    if (used > 3 * quarter && !(scope->state & HOSTCALL_STATE_APART_)) {
        hostcall_spill_(scope);
        scope->state |= HOSTCALL_STATE_APART_;
    }
    kept = (scope->kept & ~(UINT64_C(3) << HOSTCALL_KEPT_QUARTERS)) | (uint64_t)quarters << HOSTCALL_KEPT_QUARTERS;
    if (scope->state & HOSTCALL_STATE_APART_) {
        uint32_t bell = (uint32_t)(kept >> HOSTCALL_KEPT_LAP & 1) << 31 | (uint32_t)(kept >> HOSTCALL_KEPT_PARITY & 1);
        hostcall_store32_(scope->home + HOSTCALL_HOME_FIRST_BYTE, bell);
        hostcall_store32_(scope->home + HOSTCALL_HOME_FIRST_BYTE + 8, (uint32_t)kept);
        hostcall_store32_(scope->home + HOSTCALL_HOME_FIRST_BYTE + 12, scope->tail);
        kept = HOSTCALL_KEPT_APART;
    }
    if (scope->state & (HOSTCALL_STATE_APART_ | HOSTCALL_STATE_UNSETTLED_))
        hostcall_fence_();
    hostcall_and_(scope->home, kept);
}

/*
 * Sends a packet of the lanes that hold the slot, and waits for its reply. `kind`: bits of the doorbell besides. The words of
 * each lane's request and reply are in registers if their numbers are constants. `is_alone`, a constant: they are one lane.
 */
HOSTCALL_FUNCTION uint64_t hostcall_exchange_of_(struct hostcall_scope *scope, const int is_alone, uint64_t method, uint64_t kind,
                                                 const uint64_t *arguments, uint32_t argument_words, uint64_t *results,
                                                 uint32_t result_words, uint32_t timeout_us) {
    const uint64_t lanes = scope->lanes;
    const uint32_t lane = hostcall_lane_(), rank = HOSTCALL_RANK_IN_(is_alone, lanes, lane), count = HOSTCALL_COUNT_OF_(is_alone, lanes);
    const uint32_t after_posts = scope->state & HOSTCALL_STATE_UNTOLD_ ? 1 : 0;
    const uint32_t has_lines = argument_words > 0 || count > 1 || after_posts || timeout_us > 0;
    const uint32_t request_pairs = has_lines ? argument_words / 2 + 1 : 0, reply_pairs = result_words / 2 + 1;
    const struct hostcall_spread_ request = hostcall_spread_of_(0, count, request_pairs, scope->wave_lanes);
    const struct hostcall_spread_ reply = hostcall_spread_of_(1, count, reply_pairs, scope->wave_lanes);
    const uint32_t plane = is_alone ? 0 : hostcall_slot_(scope, HOSTCALL_PLANE_);
    uint64_t words[HOSTCALL_MOST_PAIRS][2];
    uint32_t reply_laps = 0, cycles = is_alone ? HOSTCALL_CYCLES_ALONE_ : HOSTCALL_CYCLES_A_PAIR_ * request_pairs;
    if (is_alone && kind != 0)
        cycles = HOSTCALL_CYCLES_WITH_BYTES_;
    if (!(scope->state & HOSTCALL_STATE_OWNED_))
        cycles += HOSTCALL_CYCLES_OF_OWNER_;
    HOSTCALL_UNROLL_
    for (uint32_t pair = 0; pair < reply_pairs; pair++)
        reply_laps |= hostcall_next_lap_(scope, 1, &reply, pair, rank) << pair;

    scope->kept ^= UINT64_C(1) << HOSTCALL_KEPT_LAP;
    if (!(scope->state & HOSTCALL_STATE_OWNED_))
        scope->kept ^= UINT64_C(1) << HOSTCALL_KEPT_PARITY;
    if (rank == 0) {
        uint64_t lap = scope->kept << (63 - HOSTCALL_KEPT_LAP) & HOSTCALL_LAP;
        uint32_t parity = (uint32_t)(scope->kept >> HOSTCALL_KEPT_PARITY) & 1;
        if (!(scope->state & HOSTCALL_STATE_OWNED_)) {
            uint64_t second, first = hostcall_owner_(scope, &second);
            hostcall_send_pair_(hostcall_word_at_(scope, hostcall_slot_(scope, HOSTCALL_OWNER_)),
                                hostcall_with_lap_(first, parity), hostcall_with_lap_(second, parity));
            hostcall_hint_(scope, parity << 1);
        }
        hostcall_store_(hostcall_word_at_(scope, scope->doorbell),
                        lap | (method & 0xffff) << 47 | (uint64_t)((count - 1) & 63) << 41 | (uint64_t)lane << 35 |
                            (uint64_t)argument_words << 32 | (uint64_t)result_words << 29 |
                            (method >> 16 & 0xfffff) << 9 | kind | (uint64_t)after_posts << 5 | (uint64_t)has_lines << 4 |
                            parity);
    }
    if (has_lines) {
        uint64_t meta = (uint64_t)lane << 50 | (uint64_t)timeout_us << 18 | (scope->kept & 0x3ffff);
        uint64_t at = hostcall_word_at_(scope, hostcall_slot_(scope, HOSTCALL_REQUEST_) + 2 * rank);
        const uint32_t step = request.is_dense ? 2 * request.apart : plane;
        HOSTCALL_UNROLL_
        for (uint32_t i = 0; i < argument_words; i++)
            meta |= (arguments[i] >> 63) << (56 + i);
        HOSTCALL_UNROLL_
        for (uint32_t pair = 0; pair < request_pairs; pair++) {
            uint32_t of_pair = hostcall_next_lap_(scope, 0, &request, pair, rank);
            uint64_t first = pair > 0 ? arguments[2 * pair - 1] : argument_words > 0 ? arguments[0] : 0;
            uint64_t second = pair == 0 ? meta : 2 * pair < argument_words ? arguments[2 * pair] : 0;
            hostcall_send_pair_(at + 8 * (uint64_t)(pair * step), hostcall_with_lap_(first, of_pair),
                                hostcall_with_lap_(second, of_pair));
        }
    }
    const uint32_t asked = hostcall_cycles_();
    /* All have stored what they ask before one waits, and have their laps before these are flipped. */
    if (!is_alone)
        hostcall_meet_all_(lanes);
    hostcall_wake_(scope->context, scope->region);
    hostcall_flip_laps_(scope, &request, &reply, rank);
    scope->state = (scope->state | HOSTCALL_STATE_OWNED_) & ~HOSTCALL_STATE_UNTOLD_;

    const uint64_t at = hostcall_word_at_(scope, scope->reply + 2 * rank);
    const uint32_t step = reply.is_dense ? 2 * reply.apart : plane;
    uint32_t polls = 0, has_come, is_over = 0;
    hostcall_pass_(asked, cycles);
    do {
        has_come = 1;
        HOSTCALL_UNROLL_
        for (uint32_t pair = 0; pair < reply_pairs; pair++) {
            uint32_t of_pair = reply_laps >> pair & 1;
            hostcall_load_pair_(at + 8 * (uint64_t)(pair * step), &words[pair][0], &words[pair][1]);
            has_come &= (uint32_t)(words[pair][0] >> 63) == of_pair && (uint32_t)(words[pair][1] >> 63) == of_pair;
        }
        if (!has_come && ++polls % HOSTCALL_POLLS_A_LOOK_ == 0) {
            is_over = (uint32_t)hostcall_is_over_(scope->region);
            hostcall_pause_();
        }
    } while (!has_come && !is_over);
    uint64_t meta = words[0][1] & ~HOSTCALL_LAP, status = meta & ((UINT64_C(1) << 40) - 1);
    HOSTCALL_UNROLL_
    for (uint32_t i = 0; i < result_words; i++) {
        uint64_t word = i == 0 ? words[0][0] : words[(i + 1) / 2][(i + 1) % 2];
        results[i] = (word & ~HOSTCALL_LAP) | (meta >> (56 + i) & 1) << 63;
    }
    /* Where some have an answer and nobody serves any more, the others' laps are not known. */
    if (is_alone ? !has_come : !hostcall_all_(lanes, (int)has_come))
        scope->state |= HOSTCALL_STATE_LOST_;
    if (!is_alone)
        hostcall_meet_all_(lanes);
    return has_come ? status : (uint64_t)HOSTCALL_CALL_CANCELLED;
}

HOSTCALL_FUNCTION uint64_t hostcall_exchange_words_(struct hostcall_scope *scope, uint64_t method, uint64_t kind,
                                                    const uint64_t *arguments, uint32_t argument_words, uint64_t *results,
                                                    uint32_t result_words, uint32_t timeout_us) {
    if (HOSTCALL_IS_ALONE_(scope->lanes))
        return hostcall_exchange_of_(scope, 1, method, kind, arguments, argument_words, results, result_words, timeout_us);
    return hostcall_exchange_of_(scope, 0, method, kind, arguments, argument_words, results, result_words, timeout_us);
}

/* Counts ring entries as reserved: the low half of the word. */
HOSTCALL_FUNCTION void hostcall_reserve_(struct hostcall_scope *scope, uint32_t entries) {
    scope->kept = (scope->kept & ~UINT64_C(0xffffffff)) | (uint32_t)((uint32_t)scope->kept + entries);
}

/*
 * What posts need now and then: the slot's ring and an entry that says whose they are, the first time; room for `needed` entries;
 * and that the host is told of them in this period, before they lie there, as it may be. Returns whether they can be made.
 */
HOSTCALL_FUNCTION int hostcall_prepare_posts_(struct hostcall_scope *scope, const int is_alone, uint32_t needed, uint32_t period) {
    const uint64_t lanes = scope->lanes;
    const uint32_t rank = HOSTCALL_RANK_IN_(is_alone, lanes, scope->lane), position = (uint32_t)scope->kept;
    const int is_first = !(scope->state & HOSTCALL_STATE_POSTED_);
    uint32_t tail = scope->tail;
    if (is_first) {
        const uint64_t places = hostcall_fixed64_(scope->home + HOSTCALL_HOME_PLACES_BYTE + 4 * HOSTCALL_RING_);
        scope->ring = hostcall_word_at_(scope, (uint32_t)places);
        scope->ring_entries = (uint32_t)(places >> 32);
        needed++;
    }
    const uint32_t ring = scope->ring_entries;
    if (ring - (position - tail) < needed) {
        if (rank == 0) {
            const uint64_t at = hostcall_word_at_(scope, hostcall_slot_(scope, HOSTCALL_RING_TAIL_));
            uint32_t polls = 0, is_over = 0;
            /* Who waits for the host has told it of all that there is. */
            if (scope->state & HOSTCALL_STATE_UNANNOUNCED_)
                hostcall_announce_(scope, (uint32_t)scope->kept);
            hostcall_wake_(scope->context, scope->region);
            while (tail = (uint32_t)hostcall_load_(at), ring - (position - tail) < needed && !is_over) {
                if (++polls % HOSTCALL_POLLS_A_LOOK_ == 0) {
                    is_over = (uint32_t)hostcall_is_over_(scope->region);
                    hostcall_pause_();
                }
            }
        }
        if (!is_alone)
            tail = (uint32_t)hostcall_of_lane_(lanes, tail, hostcall_first_(lanes));
        scope->tail = tail;
        /* The host has read an entry before it said so. */
        hostcall_fence_();
        if (ring - (position - tail) < needed)
            return 0;
    }
    if (is_first) {
        if (rank == 0) {
            uint64_t second, first = hostcall_owner_(scope, &second);
            uint32_t lap = (position & ring) == 0;
            hostcall_send_pair_(scope->ring + 16 * (uint64_t)(position & (ring - 1)),
                                hostcall_with_lap_(first, lap), hostcall_with_lap_(second | UINT64_C(1) << 54, lap));
            hostcall_hint_(scope, position << 1 | 1);
        }
        hostcall_reserve_(scope, 1);
        scope->state |= HOSTCALL_STATE_POSTED_ | HOSTCALL_STATE_UNSETTLED_;
    }
    if (period != scope->period) {
        scope->period = period;
        if (rank == 0)
            hostcall_announce_(scope, position + needed);
    }
    return 1;
}

/* Ring entries of a post. */
HOSTCALL_FUNCTION uint32_t hostcall_entries_(uint32_t count_of_words) {
    return 1 + count_of_words / 2;
}

/* Whether posts of so many entries need nothing of what hostcall_prepare_posts_ does, which is one branch of each post. */
HOSTCALL_FUNCTION int hostcall_may_post_(const struct hostcall_scope *scope, uint32_t needed, uint32_t period) {
    return ((scope->state & (HOSTCALL_STATE_POSTED_ | HOSTCALL_STATE_LOST_)) == HOSTCALL_STATE_POSTED_) & (period == scope->period) &
           (scope->ring_entries + scope->tail - (uint32_t)scope->kept >= needed);
}

/* Writes the posts of the lanes that hold the slot, which may. */
HOSTCALL_FUNCTION void hostcall_write_posts_(struct hostcall_scope *scope, const int is_alone, uint64_t method, const uint64_t *words,
                                             uint32_t count_of_words) {
    const uint64_t lanes = scope->lanes;
    const uint32_t lane = scope->lane, ring = scope->ring_entries, entries = hostcall_entries_(count_of_words);
    const uint32_t first_at = (uint32_t)scope->kept + HOSTCALL_RANK_IN_(is_alone, lanes, lane) * entries;
    uint64_t head = (uint64_t)count_of_words << 55 | (method & 0xffff) << 38 | (uint64_t)lane << 32 | (method >> 16 & UINT64_C(0xffffffff));
    HOSTCALL_UNROLL_
    for (uint32_t i = 0; i < count_of_words; i++)
        head |= (words[i] >> 63) << (58 + i);
    HOSTCALL_UNROLL_
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t at = first_at + entry;
        const uint64_t lap = at & ring ? 0 : HOSTCALL_LAP;
        uint64_t first = entry > 0 ? words[2 * entry - 1] : count_of_words > 0 ? words[0] : 0;
        uint64_t second = entry == 0 ? head : 2 * entry < count_of_words ? words[2 * entry] : 0;
        hostcall_send_pair_(scope->ring + 16 * (uint64_t)(at & (ring - 1)), (first & ~HOSTCALL_LAP) | lap,
                            (second & ~HOSTCALL_LAP) | lap);
    }
    hostcall_reserve_(scope, entries * HOSTCALL_COUNT_OF_(is_alone, lanes));
    scope->state |= HOSTCALL_STATE_UNTOLD_ | HOSTCALL_STATE_UNANNOUNCED_;
}

/* The same for messages, also of more words than a post's head has bits for. Their number need not be a constant. */
HOSTCALL_FUNCTION void hostcall_write_messages_(struct hostcall_scope *scope, const int is_alone, uint64_t tag, const uint64_t *words,
                                                uint32_t count_of_words) {
    const uint64_t lanes = scope->lanes;
    const uint32_t lane = scope->lane, ring = scope->ring_entries, entries = hostcall_entries_(count_of_words);
    const uint32_t first_at = (uint32_t)scope->kept + HOSTCALL_RANK_IN_(is_alone, lanes, lane) * entries;
    uint64_t head = (tag & 0xffff) << 38 | (uint64_t)lane << 32;
    if (count_of_words <= HOSTCALL_MOST_POST_WORDS_)
        head |= (uint64_t)count_of_words << 55 | (tag >> 16 & UINT64_C(0xffffffff));
    else
        head |= UINT64_C(6) << 55 | (uint64_t)(count_of_words - 1) << 16 | (tag >> 16 & 0xffff);
    for (uint32_t i = 0; i < count_of_words; i++)
        head |= (words[i] >> 63) << (i < HOSTCALL_MOST_POST_WORDS_ ? 58 + i : 15 + i);
    for (uint32_t entry = 0; entry < entries; entry++) {
        const uint32_t at = first_at + entry;
        const uint64_t lap = at & ring ? 0 : HOSTCALL_LAP;
        uint64_t first = entry > 0 ? words[2 * entry - 1] : count_of_words > 0 ? words[0] : 0;
        uint64_t second = entry == 0 ? head : 2 * entry < count_of_words ? words[2 * entry] : 0;
        hostcall_send_pair_(scope->ring + 16 * (uint64_t)(at & (ring - 1)), (first & ~HOSTCALL_LAP) | lap,
                            (second & ~HOSTCALL_LAP) | lap);
    }
    hostcall_reserve_(scope, entries * HOSTCALL_COUNT_OF_(is_alone, lanes));
    scope->state |= HOSTCALL_STATE_UNTOLD_ | HOSTCALL_STATE_UNANNOUNCED_;
}

/* Writes posts, or messages; `is_message` is a constant. */
HOSTCALL_FUNCTION void hostcall_write_(struct hostcall_scope *scope, const int is_message, const int is_alone, uint64_t method,
                                       const uint64_t *words, uint32_t count_of_words) {
    if (is_message)
        hostcall_write_messages_(scope, is_alone, method, words, count_of_words);
    else
        hostcall_write_posts_(scope, is_alone, method, words, count_of_words);
}

/*
 * Posts words of the lanes that hold the slot, of which whoever gives it back tells the host. Returns whether they are in the
 * ring. `is_alone`, a constant: they are known to be one lane.
 */
HOSTCALL_FUNCTION int hostcall_put_(struct hostcall_scope *scope, const int is_message, const int is_alone, uint64_t method,
                                    const uint64_t *words, uint32_t count_of_words) {
    const uint32_t needed = hostcall_entries_(count_of_words) * HOSTCALL_COUNT_OF_(is_alone, (uint64_t)scope->lanes);
    if (!hostcall_may_post_(scope, needed, scope->period) && !hostcall_prepare_posts_(scope, is_alone, needed, scope->period))
        return 0;
    hostcall_write_(scope, is_message, is_alone, method, words, count_of_words);
    return 1;
}

HOSTCALL_FUNCTION int hostcall_put_posts_(struct hostcall_scope *scope, const int is_alone, uint64_t method, const uint64_t *words,
                                          uint32_t count_of_words) {
    return hostcall_put_(scope, 0, is_alone, method, words, count_of_words);
}

/*
 * Calls a method of a service of the host with `argument_words` words (0 to 7) and waits for `result_words` (0 to 7; more of either
 * are HOSTCALL_CALL_TOO_LARGE). Returns a hostcall_call_status; results mean something after HOSTCALL_CALL_OK alone. `timeout_us`: how long the host may take for it, or
 * 0 for as long as it takes.
 */
HOSTCALL_FUNCTION uint64_t hostcall_call_words(uint64_t context, uint64_t method, const uint64_t *arguments,
                                               uint32_t argument_words, uint64_t *results, uint32_t result_words,
                                               uint32_t timeout_us) {
    uint64_t status = HOSTCALL_CALL_CANCELLED;
    if (argument_words > HOSTCALL_MOST_WORDS_ || result_words > HOSTCALL_MOST_WORDS_)
        return HOSTCALL_CALL_TOO_LARGE;
    /* Those that come for the same claim, call and give back before the next do: no lane that has a slot waits for one that wants
     * one, and no way leads out of the loop, where compilers would let them meet. */
    for (uint64_t left = hostcall_lanes_(); left != 0;) {
        const uint64_t lanes = hostcall_next_(left, context, method, argument_words << 8 | result_words);
        if (lanes >> hostcall_lane_() & 1) {
            const uint32_t rank = hostcall_rank_(lanes);
            struct hostcall_scope scope;
            status = hostcall_claim_(&scope, context, lanes, rank);
            if (status == HOSTCALL_CALL_OK) {
                status = hostcall_exchange_words_(&scope, method, 0, arguments, argument_words, results, result_words, timeout_us);
                if (rank == 0 && !(scope.state & HOSTCALL_STATE_LOST_))
                    hostcall_release_slot_(&scope);
            }
        }
        left &= ~lanes;
    }
    return status;
}

/* A post of lanes that claim a slot for it. */
HOSTCALL_FUNCTION int hostcall_post_claimed_(uint64_t context, const int is_message, uint64_t method, const uint64_t *words,
                                             uint32_t count_of_words) {
    int is_posted = 0;
    for (uint64_t left = hostcall_lanes_(); left != 0;) {
        const uint64_t lanes = hostcall_next_(left, context, method, count_of_words);
        if (lanes >> hostcall_lane_() & 1) {
            const uint32_t rank = hostcall_rank_(lanes);
            struct hostcall_scope scope;
            if (hostcall_claim_(&scope, context, lanes, rank) == HOSTCALL_CALL_OK) {
                /* The slot's word rounds up how much of the ring is in use, for each holder anew. So that it does not run over, one
                 * lane asks how far the host is where it may be half of it: the answer comes while the posts are written. */
                uint32_t tail = scope.tail;
                if (rank == 0 && ((scope.state & HOSTCALL_STATE_APART_) || (scope.kept >> HOSTCALL_KEPT_QUARTERS & 2)))
                    tail = (uint32_t)hostcall_load_(hostcall_word_at_(&scope, hostcall_slot_(&scope, HOSTCALL_RING_TAIL_)));
                is_posted = hostcall_put_(&scope, is_message, 0, method, words, count_of_words);
                /* What all have stored comes before the word by which another gets the slot. */
                hostcall_meet_all_(lanes);
                if (rank == 0) {
                    if ((uint32_t)scope.kept - tail < (uint32_t)scope.kept - scope.tail)
                        scope.tail = tail;
                    hostcall_release_slot_(&scope);
                }
                hostcall_wake_(scope.context, scope.region);
            }
        }
        left &= ~lanes;
    }
    return is_posted;
}

/*
 * Posts 0 to 5 words to a method of a service: nobody waits for it, and nothing tells whether a handler has it. Waits only for
 * room, while the host handles posts more slowly than they come. Posts of a lane may come in another order; those of a scope do
 * not. Returns whether the post lies in the ring of its slot: not where it has more words.
 */
HOSTCALL_FUNCTION int hostcall_post_words(uint64_t context, uint64_t method, const uint64_t *words, uint32_t count_of_words) {
    return count_of_words <= HOSTCALL_MOST_POST_WORDS_ && hostcall_post_claimed_(context, 0, method, words, count_of_words);
}

/*
 * Holds a slot for the lanes that come here together (on NVIDIA: for a whole wave, or for the only lane that comes), until the
 * first of them calls hostcall_scope_end. It spares calls and posts of these lanes the claim. Where no slot is held, and where a
 * lane calls without all of the others, hostcall_scope_ functions claim for each call as hostcall_call_words does.
 *
 * A device has a slot for each wave: a wave holds one scope at a time, and calls in it by nothing but hostcall_scope_ functions,
 * or waves that hold slots wait for each other's. A lane that ends without hostcall_scope_end keeps the slot from others for good.
 */
HOSTCALL_FUNCTION void hostcall_scope_begin(struct hostcall_scope *scope, uint64_t context) {
    const uint64_t here = hostcall_lanes_(), lanes = hostcall_next_(here, context, 0, 0);
    scope->lanes = 0;
    scope->state = HOSTCALL_STATE_LOST_;
    if (lanes == here && hostcall_claim_(scope, context, lanes, hostcall_rank_(lanes)) != HOSTCALL_CALL_OK) {
        scope->lanes = 0;
        scope->state = HOSTCALL_STATE_LOST_;
    }
    scope->context = context;
}

HOSTCALL_FUNCTION void hostcall_scope_end(struct hostcall_scope *scope) {
    if (scope->lanes != 0 && hostcall_rank_(scope->lanes) == 0 && !(scope->state & HOSTCALL_STATE_LOST_)) {
        hostcall_release_slot_(scope);
        hostcall_wake_(scope->context, scope->region);
    }
    scope->lanes = 0;
    scope->state = HOSTCALL_STATE_LOST_;
}

/* Whether all lanes that hold the slot, and no others, come here for the same; one lane that holds it always does. */
HOSTCALL_FUNCTION int hostcall_is_held_(const struct hostcall_scope *scope, uint64_t method, uint32_t sizes) {
    if (scope->state & HOSTCALL_STATE_LOST_)
        return 0;
    return HOSTCALL_IS_ALONE_(scope->lanes) || hostcall_next_(hostcall_lanes_(), scope->home, method, sizes) == scope->lanes;
}

/* As hostcall_call_words. It comes after the posts of the scope. */
HOSTCALL_FUNCTION uint64_t hostcall_scope_call_words(struct hostcall_scope *scope, uint64_t method, const uint64_t *arguments,
                                                     uint32_t argument_words, uint64_t *results, uint32_t result_words,
                                                     uint32_t timeout_us) {
    if (argument_words > HOSTCALL_MOST_WORDS_ || result_words > HOSTCALL_MOST_WORDS_)
        return HOSTCALL_CALL_TOO_LARGE;
    if (!hostcall_is_held_(scope, method, argument_words << 8 | result_words))
        return hostcall_call_words(scope->context, method, arguments, argument_words, results, result_words, timeout_us);
    return hostcall_exchange_words_(scope, method, 0, arguments, argument_words, results, result_words, timeout_us);
}

/* The time in which a scope's posts are announced once. Where nothing looks at their ring by itself, each is. */
HOSTCALL_FUNCTION uint32_t hostcall_post_period_(const struct hostcall_scope *scope) {
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    (void)scope;
    return (uint32_t)(hostcall_clock_ns_() >> HOSTCALL_POST_PERIOD_LOG2);
#else
    return scope->period + 1;
#endif
}

/* A post of the lanes that hold the slot. */
HOSTCALL_FUNCTION int hostcall_scope_post_(struct hostcall_scope *scope, const int is_message, uint64_t method,
                                           const uint64_t *words, uint32_t count_of_words) {
    /* The clock first: it comes while the rest takes its time. */
    const uint32_t period = hostcall_post_period_(scope), entries = hostcall_entries_(count_of_words);
    const uint64_t lanes = scope->lanes;
    const uint32_t needed = entries * HOSTCALL_COUNT_OF_(0, lanes);
    int are_here = 1;
    /* Most posts go one of two ways that are little more than their store: an instruction mostly waits for the one before. What
     * they post to lanes say each for itself. */
    if (HOSTCALL_IS_ALONE_(lanes)) {
        if (hostcall_may_post_(scope, entries, period)) {
            hostcall_write_(scope, is_message, 1, method, words, count_of_words);
            hostcall_wake_(scope->context, scope->region);
            return 1;
        }
    } else if (hostcall_lanes_() == lanes) {
        if (hostcall_all_have_(lanes, hostcall_may_post_(scope, needed, period), count_of_words)) {
            hostcall_write_(scope, is_message, 0, method, words, count_of_words);
            /* What all have stored comes before the first lane gives the slot back. */
            hostcall_meet_all_(lanes);
            return 1;
        }
        are_here = hostcall_all_have_(lanes, 1, count_of_words);
    } else {
        are_here = 0;
    }
    if (!are_here || (scope->state & HOSTCALL_STATE_LOST_))
        return hostcall_post_claimed_(scope->context, is_message, method, words, count_of_words);
    if (!hostcall_prepare_posts_(scope, 0, needed, period))
        return 0;
    hostcall_write_(scope, is_message, 0, method, words, count_of_words);
    hostcall_wake_(scope->context, scope->region);
    hostcall_meet_all_(lanes);
    return 1;
}

/* As hostcall_post_words. Posts of a scope come in their order. */
HOSTCALL_FUNCTION int hostcall_scope_post_words(struct hostcall_scope *scope, uint64_t method, const uint64_t *words,
                                                uint32_t count_of_words) {
    return count_of_words <= HOSTCALL_MOST_POST_WORDS_ && hostcall_scope_post_(scope, 0, method, words, count_of_words);
}

/*
 * Messages to a post queue (`Device::post_queue` in Rust, `hostcall_post_queue_new` in C), whose address stands in the place of a
 * context's: 0 to 16 words with a tag of 48 bits, or of 32 with more than five words. A thread of the host polls and gets them
 * as they are; no service is called.
 *
 *     struct send { uint32_t peer, bytes; uint64_t from, to, signal; };
 *     hostcall_fence_system();                        what was written before is there when the host gets the message
 *     hostcall_post(queue, SEND, send);               C++; in C hostcall_post_message(queue, SEND, words, 4)
 *     hostcall_wait_word(queue, signal, round);       until the host, or a peer, has stored at least this there
 *
 * A message returns whether it lies in its wave's ring: not when the queue is cancelled or gone while there is no room, and not
 * with more than five words to a context that is no post queue's.
 */

/* Whether a context takes messages of so many words. */
HOSTCALL_FUNCTION int hostcall_takes_(uint64_t context, uint32_t count_of_words) {
    if (count_of_words <= HOSTCALL_MOST_POST_WORDS_)
        return 1;
    return context != 0 && count_of_words <= HOSTCALL_MOST_MESSAGE_WORDS &&
           (hostcall_fixed_(context + HOSTCALL_CONTEXT_FLAGS_BYTE) & HOSTCALL_CONTEXT_MESSAGES) != 0;
}

/* Posts a message. Of a wave's messages each comes after the one before only through a scope. */
HOSTCALL_FUNCTION int hostcall_post_message(uint64_t queue, uint64_t tag, const uint64_t *words, uint32_t count_of_words) {
    return hostcall_takes_(queue, count_of_words) && hostcall_post_claimed_(queue, 1, tag, words, count_of_words);
}

/* The same through a slot that is held. */
HOSTCALL_FUNCTION int hostcall_scope_post_message(struct hostcall_scope *scope, uint64_t tag, const uint64_t *words,
                                                  uint32_t count_of_words) {
    return hostcall_takes_(scope->context, count_of_words) && hostcall_scope_post_(scope, 1, tag, words, count_of_words);
}

/* Orders what the calling lane has read and written before what it does next, for the host and all devices. */
HOSTCALL_FUNCTION void hostcall_fence_system(void) {
    hostcall_acquire_();
    hostcall_release_();
}

/* Stores a word that the host or other devices wait for, after all that the lane wrote before. At a multiple of 8. */
HOSTCALL_FUNCTION void hostcall_signal_word(uint64_t address, uint64_t word) {
    hostcall_release_();
    hostcall_store_(address, word);
}

/*
 * Waits that the host sees. A loop that polls what another device, rank or kernel sets hangs in silence when that does not come. A
 * kernel says in one line what it waits for:
 *
 *     HOSTCALL_WAIT(context, "signal", peer, round, flags[peer] >= round);
 *
 * polls until the condition holds. `name` is a literal, of which reports have the first 16 bytes; `peer` is the rank that is waited
 * for, as its launcher numbers it, or HOSTCALL_NO_PEER; `sequence` counts what that rank does, so that who waits for a later one has
 * had this one. Where the loop is the kernel's own:
 *
 *     struct hostcall_wait wait = HOSTCALL_WAIT_BEGIN;
 *     while (flags[peer] < round)
 *         hostcall_wait_goes_on(&wait, context, "signal", &flags[peer], peer, round);
 *     hostcall_wait_end(&wait, context);
 *
 * Each way out of the loop ends the wait. A wait of less than 1024 polls counts them. A longer one is told in memory of the host, which `hostcall waits`, SIGQUIT of
 * `hostcall run` and Device::waiting in Rust read without a driver, also while all hangs. With a context of 0, a post queue's, and a
 * host that is older than version 1.2, a wait polls and says nothing. OpenCL C has none of it.
 */
#define HOSTCALL_NO_PEER UINT32_C(0xffffffff)

#if !defined(__OPENCL_C_VERSION__)
/* Layouts of waits, made from those of core/abi. Bytes of the context, and of the table that it leads to. */
#define HOSTCALL_CONTEXT_WAITS_BYTE 72u
#define HOSTCALL_WAITS_VERSION 1u
#define HOSTCALL_WAITS_SHIFT 16u
#define HOSTCALL_WAITS_TABLE_BYTE 0u
#define HOSTCALL_WAITS_ENTRIES_BYTE 8u
#define HOSTCALL_WAITS_UNTOLD_BYTE 16u
#define HOSTCALL_WAITS_HERE_BYTE 24u
#define HOSTCALL_WAITS_HOLDERS_BYTE 64u
#define HOSTCALL_WAITS_HEADER_BYTES 64u
#define HOSTCALL_WAITS_UNTOLD_WORD 0u
#define HOSTCALL_WAITS_USED_WORD 1u
#define HOSTCALL_WAIT_ENTRY_BYTES 64u
#define HOSTCALL_WAIT_PLACE_WORD 1u
#define HOSTCALL_WAIT_SINCE_WORD 2u
#define HOSTCALL_WAIT_SEEN_WORD 3u
#define HOSTCALL_WAIT_ADDRESS_WORD 4u
#define HOSTCALL_WAIT_SEQUENCE_WORD 5u
#define HOSTCALL_WAIT_NAME_WORD 6u
#define HOSTCALL_WAIT_TRIES 16u
#define HOSTCALL_WAIT_TRY_STRIDE 65u
#define HOSTCALL_WAIT_LAP_BITS 19u
#define HOSTCALL_WAIT_AFTER_LOG2 10u
#define HOSTCALL_WAIT_EVERY_LOG2 13u

/* Of a wait. */
#define HOSTCALL_WAIT_FLAG_ 1u
/* Polls between two pauses. */
#define HOSTCALL_WAIT_POLLS_A_PAUSE_ 256u

/* A wait, and what the host was told of it. */
struct hostcall_wait {
    uint64_t told; /* The entry, plus one, below, and which use of it above; 0 for none. */
    uint32_t polls;
};

#ifdef __cplusplus
#define HOSTCALL_WAIT_BEGIN {}
#else
#define HOSTCALL_WAIT_BEGIN {0, 0}
#endif

/* The wait table that a context leads to, or 0. */
HOSTCALL_FUNCTION uint64_t hostcall_waits_of_(uint64_t context) {
    const uint64_t version = context == 0 ? 0 : hostcall_fixed64_(context);
    if ((uint32_t)version != HOSTCALL_CONTEXT_MAGIC || (uint16_t)(version >> 32) != HOSTCALL_CONTEXT_MAJOR)
        return 0;
    if ((hostcall_fixed_(context + HOSTCALL_CONTEXT_FLAGS_BYTE) >> HOSTCALL_WAITS_SHIFT & 0xff) != HOSTCALL_WAITS_VERSION)
        return 0;
    return hostcall_fixed64_(context + HOSTCALL_CONTEXT_WAITS_BYTE);
}

/* Eight bytes of a name. */
HOSTCALL_FUNCTION uint64_t hostcall_wait_name_(const char *name, uint32_t from) {
    uint64_t word = 0;
    uint32_t i = 0;
    while (i < from && name[i] != 0)
        i++;
    if (i == from)
        for (uint32_t at = 0; at < 8 && name[from + at] != 0; at++)
            word |= (uint64_t)(unsigned char)name[from + at] << 8 * at;
    return word;
}

/* The address of a word of an entry. */
HOSTCALL_FUNCTION uint64_t hostcall_wait_entry_(uint64_t waits, uint32_t entry) {
    return hostcall_fixed64_(waits + HOSTCALL_WAITS_TABLE_BYTE) + HOSTCALL_WAITS_HEADER_BYTES +
           HOSTCALL_WAIT_ENTRY_BYTES * (uint64_t)entry;
}

HOSTCALL_FUNCTION uint64_t hostcall_wait_holder_(uint64_t waits, uint32_t entry) {
    return waits + HOSTCALL_WAITS_HOLDERS_BYTE + 8 * (uint64_t)entry;
}

/* Bit of an entry that another lane has, which waits with this one. */
#define HOSTCALL_WAIT_OF_ANOTHER_ UINT32_C(0x80000000)

/* The entry of a wait that was told, plus one, if it has it still, and else 0. */
HOSTCALL_FUNCTION uint32_t hostcall_wait_held_(uint64_t context, uint64_t waits, uint64_t told) {
    const uint64_t launch = hostcall_load32_(context + HOSTCALL_CONTEXT_LAUNCH_BYTE);
    const uint32_t entry = (uint32_t)told & ~HOSTCALL_WAIT_OF_ANOTHER_;
    if (waits == 0 || entry == 0)
        return 0;
    return hostcall_load_(hostcall_wait_holder_(waits, entry - 1)) == (launch | told >> 32 << 32) ? entry : 0;
}

/* Says that `lanes` lanes of a wave wait, of which this is the first. */
HOSTCALL_FUNCTION uint64_t hostcall_tell_wait_of_(uint64_t context, uint64_t told, uint32_t lanes, uint64_t name, uint64_t more,
                                                  uint64_t address, uint32_t peer, uint64_t sequence) {
    const uint64_t waits = hostcall_waits_of_(context);
    if (waits == 0)
        return told;
    const uint64_t launch = hostcall_load32_(context + HOSTCALL_CONTEXT_LAUNCH_BYTE);
    uint32_t workgroup, wave, hint;
    uint64_t now_ns;
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    struct hostcall_raw_writer none = HOSTCALL_RAW_WRITER;
    now_ns = hostcall_clock_ns_();
    workgroup = hostcall_workgroup_(&none);
    wave = hostcall_wave_(&none);
    hint = hostcall_place_() * 32 + hostcall_lane_();
#else
    /* The host knows its threads, in whatever compiler's code they are. */
    const uint64_t here = hostcall_load_(waits + HOSTCALL_WAITS_HERE_BYTE);
    workgroup = 0;
    now_ns = here != 0 ? ((uint64_t(*)(uint32_t *))(uintptr_t)here)(&workgroup) : hostcall_clock_ns_();
    wave = 0;
    hint = workgroup;
#endif
    if (told != 0) {
        const uint32_t held = hostcall_wait_held_(context, waits, told);
        if (held != 0)
            hostcall_store_(hostcall_wait_entry_(waits, held - 1) + 8 * HOSTCALL_WAIT_SEEN_WORD, now_ns);
        return told;
    }
    const uint32_t entries = hostcall_fixed_(waits + HOSTCALL_WAITS_ENTRIES_BYTE);
    for (uint32_t i = 0; i < HOSTCALL_WAIT_TRIES && i < entries; i++) {
        const uint32_t entry = (hint + HOSTCALL_WAIT_TRY_STRIDE * (i * (i + 1) / 2)) & (entries - 1);
        const uint64_t holder = hostcall_wait_holder_(waits, entry), known = hostcall_load_(holder);
        const uint32_t lap = ((uint32_t)(known >> 32) + 1) & ((UINT32_C(1) << HOSTCALL_WAIT_LAP_BITS) - 1);
        if ((uint32_t)known != 0 || hostcall_cas_(holder, known, launch | (uint64_t)lap << 32) != known)
            continue;
        const uint64_t at = hostcall_wait_entry_(waits, entry);
        hostcall_acquire_();
        /* Of a wave that was killed there is one. */
        hostcall_store_(at, 0);
        hostcall_release_();
        hostcall_store_(at + 8 * HOSTCALL_WAIT_PLACE_WORD, launch | (uint64_t)workgroup << 32);
        hostcall_store_(at + 8 * HOSTCALL_WAIT_SINCE_WORD, now_ns);
        hostcall_store_(at + 8 * HOSTCALL_WAIT_SEEN_WORD, now_ns);
        hostcall_store_(at + 8 * HOSTCALL_WAIT_ADDRESS_WORD, address);
        hostcall_store_(at + 8 * HOSTCALL_WAIT_SEQUENCE_WORD, sequence);
        hostcall_store_(at + 8 * HOSTCALL_WAIT_NAME_WORD, name);
        hostcall_store_(at + 8 * (HOSTCALL_WAIT_NAME_WORD + 1), more);
        hostcall_store_(hostcall_fixed64_(waits + HOSTCALL_WAITS_TABLE_BYTE) + 8 * HOSTCALL_WAITS_USED_WORD, 1);
        hostcall_release_();
        hostcall_store_(at, peer | (uint64_t)(lanes & 0x7f) << 32 | (uint64_t)(wave & 0x3ff) << 39 |
                                (uint64_t)HOSTCALL_WAIT_FLAG_ << 49 | (uint64_t)(lap & 0x3ff) << 53 | UINT64_C(1) << 63);
        return (uint64_t)lap << 32 | (entry + 1);
    }
    hostcall_store_(hostcall_fixed64_(waits + HOSTCALL_WAITS_TABLE_BYTE) + 8 * HOSTCALL_WAITS_UNTOLD_WORD,
                    hostcall_add_(waits + HOSTCALL_WAITS_UNTOLD_BYTE, 1) + 1);
    return 0;
}

/* Says of the lanes that come here for the same that they wait: the first of them has the entry. */
HOSTCALL_LONG_FUNCTION uint64_t hostcall_tell_wait_(uint64_t context, uint64_t told, uint64_t name, uint64_t more, uint64_t address,
                                                    uint32_t peer, uint64_t sequence) {
    /* Each lane is in one entry's count, whichever lanes come here together the next time. Who has the entry may wait no more. */
    if ((told & HOSTCALL_WAIT_OF_ANOTHER_) != 0 && hostcall_wait_held_(context, hostcall_waits_of_(context), told) == 0)
        told = 0;
    if (told != 0)
        return (told & HOSTCALL_WAIT_OF_ANOTHER_) != 0
                   ? told
                   : hostcall_tell_wait_of_(context, told, 1, name, more, address, peer, sequence);
    for (uint64_t left = hostcall_lanes_(); left != 0;) {
        const uint64_t lanes = hostcall_next_(left, address ^ sequence << 24, name ^ more, peer);
        if (lanes >> hostcall_lane_() & 1) {
            const int is_first = hostcall_rank_(lanes) == 0;
            if (is_first)
                told = hostcall_tell_wait_of_(context, 0, hostcall_ones_(lanes), name, more, address, peer, sequence);
            told = hostcall_of_lane_(lanes, told, hostcall_first_(lanes));
            if (!is_first && told != 0)
                told |= HOSTCALL_WAIT_OF_ANOTHER_;
        }
        left &= ~lanes;
    }
    return told;
}

HOSTCALL_LONG_FUNCTION void hostcall_end_wait_(uint64_t context, uint64_t told) {
    if ((told & HOSTCALL_WAIT_OF_ANOTHER_) != 0)
        return;
    const uint64_t waits = hostcall_waits_of_(context);
    const uint32_t held = hostcall_wait_held_(context, waits, told);
    if (held != 0) {
        hostcall_store_(hostcall_wait_entry_(waits, held - 1), 0);
        hostcall_release_();
        hostcall_store_(hostcall_wait_holder_(waits, held - 1), told >> 32 << 32);
    }
}

/* Whether a wait is told after so many polls: 1024, twice as many each time, and each 8192. */
HOSTCALL_FUNCTION int hostcall_wait_is_due_(uint32_t polls) {
    return (polls & ((UINT32_C(1) << HOSTCALL_WAIT_AFTER_LOG2) - 1)) == 0 &&
           ((polls & (polls - 1)) == 0 || (polls & ((UINT32_C(1) << HOSTCALL_WAIT_EVERY_LOG2) - 1)) == 0);
}

/* Counts a poll of a wait, and tells of the wait now and then. */
HOSTCALL_FUNCTION void hostcall_wait_goes_on(struct hostcall_wait *wait, uint64_t context, const char *name, const void *polled,
                                             uint32_t peer, uint64_t sequence) {
    wait->polls++;
    if (hostcall_wait_is_due_(wait->polls))
        wait->told = hostcall_tell_wait_(context, wait->told, hostcall_wait_name_(name, 0), hostcall_wait_name_(name, 8),
                                         (uint64_t)(uintptr_t)polled, peer, sequence);
    if (wait->polls % HOSTCALL_WAIT_POLLS_A_PAUSE_ == 0)
        hostcall_pause_();
}

/* Ends a wait. */
HOSTCALL_FUNCTION void hostcall_wait_end(struct hostcall_wait *wait, uint64_t context) {
    if (wait->told != 0)
        hostcall_end_wait_(context, wait->told);
    wait->told = wait->polls = 0;
}

/* Polls until the condition holds, and says what the lane waits for once that takes a while. It is a statement. */
#define HOSTCALL_WAIT(context, name, peer, sequence, condition) HOSTCALL_WAIT_AT(context, name, 0, peer, sequence, condition)

/* The same with the address of what is polled. */
#define HOSTCALL_WAIT_AT(context, name, polled, peer, sequence, condition)                                \
    do {                                                                                                  \
        struct hostcall_wait hostcall_wait_ = HOSTCALL_WAIT_BEGIN;                                        \
        while (!(condition))                                                                              \
            hostcall_wait_goes_on(&hostcall_wait_, (context), name, (const void *)(polled), (peer), (sequence)); \
        hostcall_wait_end(&hostcall_wait_, (context));                                                    \
    } while (0)
#endif

/*
 * Waits until the word at `address`, a multiple of 8, is `least` or more: what was written before it was stored is there then.
 * Returns 0 if nobody serves `context` any more, or it is a post queue's that is cancelled, before that.
 */
HOSTCALL_FUNCTION int hostcall_wait_word(uint64_t context, uint64_t address, uint64_t least) {
    const uint64_t version = context == 0 ? 0 : hostcall_fixed64_(context);
    const int is_known = (uint32_t)version == HOSTCALL_CONTEXT_MAGIC && (uint16_t)(version >> 32) == HOSTCALL_CONTEXT_MAJOR;
    const uint64_t region = is_known ? hostcall_fixed64_(context + HOSTCALL_CONTEXT_REGION_BYTE) : 0;
    uint32_t polls = 0, is_over = !is_known;
    int has_come;
    while (has_come = hostcall_load_(address) >= least, !has_come && !is_over) {
        if (++polls % HOSTCALL_POLLS_A_LOOK_ == 0) {
            is_over = (uint32_t)hostcall_is_over_(region);
            hostcall_pause_();
        }
    }
    hostcall_acquire_();
    return has_come;
}

/* What a call with bytes sends, and where its reply goes. */
struct hostcall_bytes {
    const uint64_t *arguments; /* Words; of a parameter that is bytes or text its length. */
    uint32_t argument_words;   /* Up to 64; the call ends with HOSTCALL_CALL_TOO_LARGE where there are more. */
    uint32_t result_words;     /* Up to 64, likewise. */
    const void *bytes;         /* Those of all such parameters, one after the other. */
    uint64_t count;
    uint64_t *results;
    void *reply;       /* Where the reply's bytes go. */
    uint64_t capacity; /* Most of them. */
    uint64_t filled;   /* How many came. */
    const void *more;  /* Bytes that follow the others, if there are some. */
    uint64_t more_count;
};

/* Where words are, of those that the line carries besides the head. */
#define HOSTCALL_HEAD_WORDS_ 3u
#define HOSTCALL_LINE_WORDS_ 2u
#define HOSTCALL_BYTES_ ((uint64_t)1 << 6)
#define HOSTCALL_MORE_BYTES_ ((uint64_t)2 << 6)
/* Lanes for whose messages there is less room each call one after the other. */
#define HOSTCALL_LEAST_SHARE_ 512u
/* Words before a loan's bytes. */
#define HOSTCALL_LOAN_WORDS_ 8u

/* Bytes of a message after its words. */
HOSTCALL_FUNCTION uint64_t hostcall_message_bytes_(const struct hostcall_bytes *call) {
    return call->count + call->more_count;
}

/* Words of a message before its bytes, in bytes. */
HOSTCALL_FUNCTION uint64_t hostcall_words_end_(const struct hostcall_bytes *call) {
    return call->argument_words <= HOSTCALL_LINE_WORDS_ ? 0 : 8 * (uint64_t)call->argument_words;
}

/* Bytes of the slot's area that each of `count` lanes has. */
HOSTCALL_FUNCTION uint64_t hostcall_share_(const struct hostcall_scope *scope, uint32_t count) {
    uint64_t share = hostcall_slot_(scope, HOSTCALL_AREA_BYTES_);
    for (uint32_t lanes = 1; lanes < count; lanes *= 2)
        share /= 2;
    return share;
}

/* A word of a message, which begins at byte `at`. */
HOSTCALL_FUNCTION uint64_t hostcall_message_word_(const struct hostcall_bytes *call, uint64_t at) {
    const uint64_t end = hostcall_words_end_(call);
    if (at < end)
        return call->arguments[at / 8];
    const unsigned char *bytes = (const unsigned char *)call->bytes, *more = (const unsigned char *)call->more;
    uint64_t word = 0;
    at -= end;
    for (uint32_t i = 0; i < 8; i++, at++) {
        if (at < call->count)
            word |= (uint64_t)bytes[at] << 8 * i;
        else if (at < call->count + call->more_count)
            word |= (uint64_t)more[at - call->count] << 8 * i;
    }
    return word;
}

/* Where in a lane's share the bytes of a reply begin. */
HOSTCALL_FUNCTION uint64_t hostcall_reply_at_(uint32_t result_words) {
    return (8 * (uint64_t)result_words + 15) / 16 * 16;
}

/* Takes a reply: `answer` are the words that came, and `share` is where the lane's part of the area begins. */
HOSTCALL_FUNCTION uint64_t hostcall_take_reply_(struct hostcall_bytes *call, const uint64_t *answer, uint32_t answer_words,
                                                uint64_t share) {
    const uint64_t head = 8 * (uint64_t)call->result_words, total = answer[0];
    unsigned char *reply = (unsigned char *)call->reply;
    if (total < head || total - head > call->capacity)
        return HOSTCALL_CALL_MALFORMED;
    call->filled = total - head;
    if (total <= 8 * (uint64_t)(answer_words - 1)) {
        for (uint32_t i = 0; i < call->result_words; i++)
            call->results[i] = answer[1 + i];
        for (uint64_t i = 0; i < call->filled; i++)
            reply[i] = (unsigned char)(answer[1 + call->result_words + i / 8] >> i % 8 * 8);
        return HOSTCALL_CALL_OK;
    }
    uint64_t loan = answer[1], from = loan != 0 ? loan + 8 * HOSTCALL_LOAN_WORDS_ : share + hostcall_reply_at_(call->result_words);
    hostcall_acquire_();
    for (uint32_t i = 0; i < call->result_words; i++)
        call->results[i] = call->result_words + 2 <= answer_words ? answer[2 + i] : hostcall_load_(share + 8 * (uint64_t)i);
    for (uint64_t i = 0; i < call->filled; i += 8) {
        uint64_t word = hostcall_load_(from + i);
        for (uint32_t byte = 0; byte < 8 && i + byte < call->filled; byte++)
            reply[i + byte] = (unsigned char)(word >> 8 * byte);
    }
    /* The host writes there anew once it sees what follows. */
    hostcall_release_();
    if (loan != 0)
        hostcall_store_(loan, 1);
    return HOSTCALL_CALL_OK;
}

/* The call of lanes that each have room for all of it, or of one lane. */
HOSTCALL_FUNCTION uint64_t hostcall_exchange_bytes_(struct hostcall_scope *scope, uint64_t method, struct hostcall_bytes *call,
                                                    uint32_t timeout_us) {
    const uint32_t rank = hostcall_rank_(scope->lanes), count = hostcall_ones_(scope->lanes);
    const uint32_t answer_words = call->result_words <= 1 ? 3 : 7;
    const uint64_t total = hostcall_words_end_(call) + hostcall_message_bytes_(call);
    uint64_t from = 0, status, answer[7], words[7];
    const uint64_t share = hostcall_share_(scope, count);
    const uint64_t area = hostcall_word_at_(scope, hostcall_slot_(scope, HOSTCALL_AREA_)) + rank * share;
    do {
        const uint64_t piece = total - from < share ? total - from : share;
        for (uint64_t at = 0; at < piece; at += 8)
            hostcall_store_(area + at, hostcall_message_word_(call, from + at));
        words[0] = piece | (uint64_t)(from == 0) << 63;
        words[1] = total;
        words[2] = (uint64_t)call->argument_words << 48 | (call->capacity >> 48 != 0 ? (UINT64_C(1) << 48) - 1 : call->capacity);
        words[3] = call->argument_words == 1 || call->argument_words == 2 ? call->arguments[0] : 0;
        words[4] = call->argument_words == 2 ? call->arguments[1] : 0;
        hostcall_release_();
        scope->state |= HOSTCALL_STATE_UNSETTLED_;
        status = hostcall_exchange_words_(scope, method, from + piece == total ? HOSTCALL_BYTES_ : HOSTCALL_MORE_BYTES_, words,
                                          HOSTCALL_HEAD_WORDS_ + HOSTCALL_LINE_WORDS_, answer, answer_words, timeout_us);
        from += piece;
    } while (status == HOSTCALL_CALL_OK && from < total);
    if (status == HOSTCALL_CALL_OK)
        status = hostcall_take_reply_(call, answer, answer_words, area);
    /* All are done with the area before the first gives the slot back. */
    hostcall_meet_all_(scope->lanes);
    return status;
}

/* The call with bytes of lanes that come for the same. */
HOSTCALL_FUNCTION uint64_t hostcall_call_bytes_of_(uint64_t lanes, uint64_t context, uint64_t method, struct hostcall_bytes *call,
                                                   uint32_t timeout_us) {
    const uint32_t rank = hostcall_rank_(lanes), lane = hostcall_lane_();
    struct hostcall_scope scope;
    uint64_t status = hostcall_claim_(&scope, context, lanes, rank);
    if (status != HOSTCALL_CALL_OK)
        return status;
    const uint64_t least = call->capacity < HOSTCALL_LEAST_SHARE_ ? call->capacity : HOSTCALL_LEAST_SHARE_;
    const uint64_t message = hostcall_words_end_(call) + hostcall_message_bytes_(call);
    const uint64_t reply = hostcall_reply_at_(call->result_words) + least;
    const uint64_t share = hostcall_share_(&scope, hostcall_ones_(lanes));
    if (HOSTCALL_IS_ALONE_(lanes) || hostcall_all_(lanes, message <= share && reply <= share)) {
        status = hostcall_exchange_bytes_(&scope, method, call, timeout_us);
    } else {
        for (uint64_t left = lanes; left != 0; left &= left - 1) {
            const uint32_t of = hostcall_first_(left);
            if (lane == of && !(scope.state & HOSTCALL_STATE_LOST_)) {
                scope.lanes = (hostcall_mask_)(left & (0 - left));
                status = hostcall_exchange_bytes_(&scope, method, call, timeout_us);
            } else if (lane == of) {
                status = HOSTCALL_CALL_CANCELLED;
            }
            hostcall_meet_all_(lanes);
            scope.lanes = (hostcall_mask_)lanes;
            scope.kept = hostcall_of_lane_(lanes, scope.kept, of);
            scope.state = (uint32_t)hostcall_of_lane_(lanes, scope.state, of);
        }
    }
    if (rank == 0 && !(scope.state & HOSTCALL_STATE_LOST_))
        hostcall_release_slot_(&scope);
    return status;
}

/*
 * Calls a method with bytes, and takes bytes as its reply: as hostcall_call_words, with what stands in `call`. Lanes that come
 * together call together where their messages are short (64 bytes each, of a whole wave), and else one after the other. A
 * handler is refused a reply that is longer than `capacity`.
 */
HOSTCALL_LONG_FUNCTION uint64_t hostcall_call_bytes(uint64_t context, uint64_t method, struct hostcall_bytes *call,
                                                    uint32_t timeout_us) {
    uint64_t status = HOSTCALL_CALL_CANCELLED;
    call->filled = 0;
    if (call->argument_words > HOSTCALL_MOST_WORDS_BESIDE_BYTES_ || call->result_words > HOSTCALL_MOST_WORDS_BESIDE_BYTES_)
        return HOSTCALL_CALL_TOO_LARGE;
    for (uint64_t left = hostcall_lanes_(); left != 0;) {
        const uint64_t lanes = hostcall_next_(left, context, method, call->argument_words << 8 | call->result_words);
        if (lanes >> hostcall_lane_() & 1)
            status = hostcall_call_bytes_of_(lanes, context, method, call, timeout_us);
        left &= ~lanes;
    }
    return status;
}

/*
 * Lines and checks.
 */

/* Most words of a line's arguments: one each, and texts in whole words with a zero byte. Longer texts are cut. */
#define HOSTCALL_MOST_ARGUMENT_WORDS 48u

/* A literal as the functions below take texts. OpenCL C has literals in a space of their own, from which no pointer leads out
 * but by its number, which is the same. */
#if defined(__OPENCL_C_VERSION__)
#define HOSTCALL_TEXT(literal) ((const char *)(uintptr_t)(literal))
#else
#define HOSTCALL_TEXT(literal) (literal)
#endif

/* A line's arguments. */
struct hostcall_arguments {
    uint64_t words[HOSTCALL_MOST_ARGUMENT_WORDS];
    uint32_t count;
};

/* Bytes of a text before its zero byte, `most` if there are more. */
HOSTCALL_FUNCTION uint32_t hostcall_length_(const char *text, uint32_t most) {
    uint32_t length = 0;
    while (length < most && text[length] != 0)
        length++;
    return length;
}

HOSTCALL_FUNCTION void hostcall_add_word(struct hostcall_arguments *arguments, uint64_t word) {
    if (arguments->count < HOSTCALL_MOST_ARGUMENT_WORDS)
        arguments->words[arguments->count++] = word;
}

HOSTCALL_FUNCTION void hostcall_add_double(struct hostcall_arguments *arguments, double value) {
    uint64_t word;
    hostcall_copy_(&word, &value, 8);
    hostcall_add_word(arguments, word);
}

/* `following`: arguments that are to have a word yet. */
HOSTCALL_FUNCTION void hostcall_add_text(struct hostcall_arguments *arguments, const char *text, uint32_t following) {
    const uint32_t most = following < HOSTCALL_MOST_ARGUMENT_WORDS ? HOSTCALL_MOST_ARGUMENT_WORDS - following : 0;
    uint64_t word = 0, at = 0;
    if (text == 0)
        text = HOSTCALL_TEXT("(null)");
    do {
        word |= (uint64_t)(unsigned char)text[at] << at % 8 * 8;
        if (at % 8 == 7 || text[at] == 0) {
            /* The last word that there is room for ends the text. */
            if (arguments->count + 1 >= most)
                word &= ~(UINT64_C(0xff) << 56);
            hostcall_add_word(arguments, word);
            word = 0;
        }
    } while (text[at++] != 0 && arguments->count < most);
}

/* Prints a line of C's format to stream 1 (stdout) or 2 (stderr) of the host. Returns a hostcall_call_status. */
HOSTCALL_LONG_FUNCTION uint64_t hostcall_print(uint64_t context, uint32_t stream, const char *format,
                                               const struct hostcall_arguments *arguments) {
    uint64_t words[3], printed = 0;
    struct hostcall_bytes call = {words, 3, 1, format, hostcall_length_(format, UINT32_MAX), &printed, 0, 0, 0, 0, 0};
    words[0] = stream;
    words[1] = call.count;
    words[2] = 8 * (uint64_t)arguments->count;
    call.more = arguments->words;
    call.more_count = words[2];
    return hostcall_call_bytes(context, HOSTCALL_METHOD_PRINT, &call, 0);
}

/* Where a check failed, as it is told: block and thread. */
HOSTCALL_FUNCTION void hostcall_here_(uint32_t *block, uint32_t *thread) {
#if defined(__AMDGCN__)
    block[0] = __builtin_amdgcn_workgroup_id_x(), block[1] = __builtin_amdgcn_workgroup_id_y();
    block[2] = __builtin_amdgcn_workgroup_id_z(), thread[0] = __builtin_amdgcn_workitem_id_x();
    thread[1] = __builtin_amdgcn_workitem_id_y(), thread[2] = __builtin_amdgcn_workitem_id_z();
#elif defined(__NVPTX__) || defined(__CUDA_ARCH__)
    block[0] = HOSTCALL_BLOCK_INDEX_(x), block[1] = HOSTCALL_BLOCK_INDEX_(y), block[2] = HOSTCALL_BLOCK_INDEX_(z);
    thread[0] = HOSTCALL_THREAD_INDEX_(x), thread[1] = HOSTCALL_THREAD_INDEX_(y), thread[2] = HOSTCALL_THREAD_INDEX_(z);
#else
    for (uint32_t i = 0; i < 3; i++)
        block[i] = thread[i] = 0;
#endif
}

/* Words of a post in pieces, and bytes that are in one. */
#define HOSTCALL_PIECE_WORDS_ 5u
#define HOSTCALL_PIECE_BYTES_ 40u
#define HOSTCALL_LAST_PIECE_ UINT64_C(0x80000000)
/* To which texts of checks are cut. */
#define HOSTCALL_MOST_CHECK_TEXT_ 1000u

/*
 * Tells the host of a check that has failed. Returns 0. Each lane posts alone, in pieces, and waits for nothing but room: so a
 * kernel with a check needs few registers more than without.
 */
HOSTCALL_LONG_FUNCTION int hostcall_check_failed(uint64_t context, const char *condition, const char *file, uint32_t line) {
    for (uint64_t left = hostcall_lanes_(); left != 0; left &= left - 1) {
        const uint64_t lanes = left & (0 - left);
        struct hostcall_scope scope;
        if ((lanes >> hostcall_lane_() & 1) && hostcall_claim_(&scope, context, lanes, 0) == HOSTCALL_CALL_OK) {
            const uint32_t of_file = hostcall_length_(file, HOSTCALL_MOST_CHECK_TEXT_);
            const uint32_t bytes = of_file + hostcall_length_(condition, HOSTCALL_MOST_CHECK_TEXT_);
            uint32_t block[3], thread[3], done = 0, piece = 0;
            hostcall_here_(block, thread);
            uint64_t words[HOSTCALL_PIECE_WORDS_] = {
                (uint64_t)of_file << 32 | line, (uint64_t)block[1] << 32 | block[0], (uint64_t)thread[0] << 32 | block[2],
                (uint64_t)thread[2] << 32 | thread[1], bytes - of_file};
            uint64_t extra = (uint64_t)HOSTCALL_PIECE_BYTES_ << 16 | (bytes == 0 ? HOSTCALL_LAST_PIECE_ : 0);
            while (hostcall_put_posts_(&scope, 1, HOSTCALL_METHOD(HOSTCALL_METHOD_CHECK, extra | piece), words, HOSTCALL_PIECE_WORDS_) &&
                   done < bytes) {
                const uint32_t count = bytes - done < HOSTCALL_PIECE_BYTES_ ? bytes - done : HOSTCALL_PIECE_BYTES_;
                for (uint32_t word = 0; word < HOSTCALL_PIECE_WORDS_; word++)
                    words[word] = 0;
                HOSTCALL_UNROLL_
                for (uint32_t word = 0; word < HOSTCALL_PIECE_WORDS_; word++)
                    for (uint32_t i = 0; i < 8 && 8 * word + i < count; i++) {
                        const uint32_t at = done + 8 * word + i;
                        const unsigned char letter = (unsigned char)(at < of_file ? file[at] : condition[at - of_file]);
                        words[word] |= (uint64_t)letter << 8 * i;
                    }
                done += count;
                piece++;
                extra = (uint64_t)count << 16 | (done == bytes ? HOSTCALL_LAST_PIECE_ : 0);
            }
            hostcall_release_slot_(&scope);
            hostcall_wake_(scope.context, scope.region);
        }
    }
    return 0;
}

/* Tells the host of a check that has failed and that has a number there. Each lane posts alone, which takes the fewest registers. */
HOSTCALL_LONG_FUNCTION void hostcall_numbered_check_failed_(uint64_t context, uint32_t number) {
    uint32_t block[3], thread[3];
    hostcall_here_(block, thread);
    const uint64_t words[2] = {(uint64_t)(thread[0] | thread[1] << 10 | thread[2] << 20) << 32 | number,
                               block[0] | (uint64_t)(block[1] & 0xffff) << 32 | (uint64_t)block[2] << 48};
    for (uint64_t left = hostcall_lanes_(); left != 0; left &= left - 1) {
        const uint64_t lanes = left & (0 - left);
        if (lanes >> hostcall_lane_() & 1) {
            struct hostcall_scope scope;
            if (hostcall_claim_(&scope, context, lanes, 0) == HOSTCALL_CALL_OK) {
                (void)hostcall_put_posts_(&scope, 1, HOSTCALL_METHOD_NUMBERED_CHECK_FAILED, words, 2);
                hostcall_release_slot_(&scope);
                hostcall_wake_(scope.context, scope.region);
            }
        }
    }
}

/*
 * Checks something, and returns whether it holds. If not, the host is told: with the condition's text, its place, block and
 * thread. The lane goes on, so that the kernel says what follows: `if (!hostcall_check(context, i < n)) return;`. The host counts
 * failures by place. A check that fails and a print need a slot for themselves, also of lanes that hold a scope: where all slots
 * are held by such lanes, they wait for each other.
 */
#define hostcall_check(context, condition) \
    ((condition) ? 1 : hostcall_check_failed((context), HOSTCALL_TEXT(#condition), HOSTCALL_TEXT(__FILE__), (uint32_t)__LINE__))

#if defined(__cplusplus)
/* What a line's arguments are. */
HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, const char *text, uint32_t following) {
    hostcall_add_text(arguments, text, following);
}
HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, char *text, uint32_t following) {
    hostcall_add_text(arguments, text, following);
}
HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, double value, uint32_t) {
    hostcall_add_double(arguments, value);
}
HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, float value, uint32_t) {
    hostcall_add_double(arguments, value);
}
HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, uint64_t word, uint32_t) {
    hostcall_add_word(arguments, word);
}
template <class Value> HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, Value *address, uint32_t) {
    hostcall_add_word(arguments, (uint64_t)(uintptr_t)address);
}
template <class Value> HOSTCALL_FUNCTION void hostcall_add_(struct hostcall_arguments *arguments, Value value, uint32_t) {
    hostcall_add_word(arguments, (uint64_t)(int64_t)value);
}
HOSTCALL_FUNCTION void hostcall_add_all_(struct hostcall_arguments *) {}
template <class First, class... Others>
HOSTCALL_FUNCTION void hostcall_add_all_(struct hostcall_arguments *arguments, First first, Others... others) {
    hostcall_add_(arguments, first, (uint32_t)sizeof...(others));
    hostcall_add_all_(arguments, others...);
}

/* Compilers that can compare a format with the values' types, or read it at least, do so (-Wformat). */
#if defined(__clang__) && !defined(__NVCC__)
#define HOSTCALL_FORMAT_ __attribute__((format(printf, 2, 3)))
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wgcc-compat"
#elif defined(__GNUC__) && !defined(__CUDACC__)
#define HOSTCALL_FORMAT_ __attribute__((format(printf, 2, 0)))
#else
#define HOSTCALL_FORMAT_
#endif

/* printf of C++: prints a line to the host's standard output, formatted there, and waits until it was taken. Lanes that print
 * print one after the other. */
template <class... Arguments>
HOSTCALL_FORMAT_ HOSTCALL_FUNCTION uint64_t hostcall_printf(uint64_t context, const char *format, Arguments... values) {
    struct hostcall_arguments arguments;
    arguments.count = 0;
    hostcall_add_all_(&arguments, values...);
    return hostcall_print(context, 1, format, &arguments);
}
#if defined(__clang__) && !defined(__NVCC__)
#pragma clang diagnostic pop
#endif

/* Posts a value of 8 to 128 bytes, in words of 8, to a post queue: hostcall_post_message of its bytes. */
template <class Value> HOSTCALL_FUNCTION int hostcall_post(uint64_t queue, uint64_t tag, const Value &value) {
    static_assert(sizeof(Value) % 8 == 0 && sizeof(Value) <= 8 * HOSTCALL_MOST_MESSAGE_WORDS,
                  "a message has 8 to 128 bytes, in words of 8");
    uint64_t words[sizeof(Value) / 8];
    hostcall_copy_(words, &value, sizeof value);
    return hostcall_post_message(queue, tag, words, sizeof(Value) / 8);
}

/* The same through a slot that is held. */
template <class Value> HOSTCALL_FUNCTION int hostcall_scope_post(struct hostcall_scope *scope, uint64_t tag, const Value &value) {
    static_assert(sizeof(Value) % 8 == 0 && sizeof(Value) <= 8 * HOSTCALL_MOST_MESSAGE_WORDS,
                  "a message has 8 to 128 bytes, in words of 8");
    uint64_t words[sizeof(Value) / 8];
    hostcall_copy_(words, &value, sizeof value);
    return hostcall_scope_post_message(scope, tag, words, sizeof(Value) / 8);
}
#endif

/*
 * Trace points. What a kernel says to a trace of the device (`DeviceBuilder::trace` in Rust, `hostcall_options_trace` in C, a tracer
 * with a file), in the same file as the points of Rust's kernels: `hostcall trace` shows and exports it.
 *
 *     __global__ void relax(uint64_t context, float *cells, unsigned steps) {
 *         hostcall_span(context, "relax");                           // C++: until the end of the block
 *         for (unsigned step = 0; step < steps; step++) {
 *             hostcall_span_begin(context, sweep, "sweep");          // C too
 *             float change = work(cells);
 *             hostcall_span_end(context, sweep);
 *             hostcall_counter(context, "change", change);
 *             if (change < 1e-6f) {
 *                 hostcall_event(context, "settled after {} steps", step);
 *                 break;
 *             }
 *         }
 *     }
 *
 * Names are literals. An event's is a format of Rust's: `{}` for each of its values, of which it has five at most, `{:x}`,
 * `{:.3}`. Values are numbers of any type, or addresses in C++; of __half and the like give a float.
 *
 * The lanes that come to a point together write one record, with the values of the first of them, in a page of the host's that
 * waves at one place of the GPU have open together. A span begins for all of them, and ends where the first one ends it.
 * On NVIDIA's GPUs whole waves do so, and of a part of one each lane writes: nobody knows there which lanes have met for the same.
 * No lane waits for room: what finds no free page is dropped and counted. At the first use of a point one wave asks the host for a
 * number, for which others that come there wait a quarter of a second at most; and now and then, each tenth of a second or so, a wave
 * asks for the host's time. Where all slots are held for long, such records are dropped.
 *
 * While nobody traces, values are not computed, and a point is a look at a word in memory of the device. Traces may begin and end
 * while kernels run (`Device::record_points` in Rust, `hostcall trace on`); on a GPU a span that was begun is ended all the same. A
 * loop whose steps are short gives its points `hostcall_traced(context)`, taken once before it: that is 0 where nobody traces then,
 * and a point is a look at a register. A context of 0, and a host that is older than trace points, are not traced. OpenCL C has none
 * of it.
 */
#if !defined(__OPENCL_C_VERSION__)

/* Layouts, made from those of core/abi. Bytes of the context, and of the points that it leads to. */
#define HOSTCALL_CONTEXT_POINTS_BYTE 64u
#define HOSTCALL_POINTS_VERSION 2u
#define HOSTCALL_POINTS_SHIFT 8u
#define HOSTCALL_POINTS_STATES_BYTE 72u
#define HOSTCALL_POINTS_PLACES_BYTE 80u
#define HOSTCALL_POINTS_SWITCH_BYTE 128u
#define HOSTCALL_POINT_UNWANTED 16777215u
#define HOSTCALL_POINTS_SAMPLED_BYTE 96u
#define HOSTCALL_POINTS_HERE_BYTE 88u
#define HOSTCALL_PLACE_OPENING UINT64_C(0x80000000)
#define HOSTCALL_PLACE_BY_RECORDS UINT64_C(0x80000000)
#define HOSTCALL_MOST_RECORD_BYTES 64u
#define HOSTCALL_IS_ZERO_SHIFT 56u
#define HOSTCALL_SAMPLE_LOG2 26u
#define HOSTCALL_METHOD_TRACE_NOW UINT64_C(0x1554a0078)
#define HOSTCALL_METHOD_CLOCK_PAIR UINT64_C(0xd2e3d0079)
#define HOSTCALL_METHOD_REGISTER_POINT UINT64_C(0x870a5007a)
#define HOSTCALL_METHOD_TEXT 14u

/* Room in a page is given out in units of so many bytes, from bit 32 of its place's word on. */
#define HOSTCALL_PLACE_UNIT_LOG2_ 4u
#define HOSTCALL_PLACE_UNITS_SHIFT_ 32u
/* Looks at a place at which another wave opens a page, after which a record is dropped: that wave may have been killed. */
#define HOSTCALL_PLACE_LOOKS_ 1024u

/* Units of the device's clock in which it is noted when a wave began to tell the host of a point, as a power of two of ns; for how
 * many of them others wait for it, and after how many one of them does it: that wave may have been killed. */
#define HOSTCALL_TOLD_LOG2_ 27u
#define HOSTCALL_TOLD_WAIT_ 2
#define HOSTCALL_TOLD_AGAIN_ 16

/* Looks at slots that others hold, after which a point does without. */
#define HOSTCALL_CLAIM_TRIES_ 16384u

/* What a point says. */
#define HOSTCALL_POINT_BEGIN_ 1u
#define HOSTCALL_POINT_END_ 2u
#define HOSTCALL_POINT_COUNTER_ 3u
#define HOSTCALL_POINT_EVENT_ 4u

/* A loop that is taken seldom, and whose body is long. */
#if defined(__clang__)
#define HOSTCALL_NO_UNROLL_ _Pragma("clang loop unroll(disable)")
#elif defined(__CUDACC__)
#define HOSTCALL_NO_UNROLL_ _Pragma("unroll 1")
#else
#define HOSTCALL_NO_UNROLL_
#endif

/* Whether a trace point's variable is of one device, so that its number is that device's. */
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
#define HOSTCALL_HAS_ONE_DEVICE_ 1
#else
#define HOSTCALL_HAS_ONE_DEVICE_ 0
#endif

/* A trace point in the source: a static variable. */
struct hostcall_point {
    const char *text;
    const char *file;
    uint64_t tags;  /* Types of its values. */
    uint64_t known; /* Its number, and for which number of the switch in the upper half; 0 for none yet. */
    uint64_t told;  /* When a wave began to tell that device's host of it. */
    uint32_t line;
    uint32_t kind;
};

/* The number of a point that the host has no number for. One that nobody wants has HOSTCALL_POINT_UNWANTED. */
#define HOSTCALL_POINT_REFUSED_ UINT32_C(0xffffffff)

/* The number of the switch while trace points of kernels with the context write, else 0. */
HOSTCALL_FUNCTION uint32_t hostcall_switch_of_(uint64_t context) {
    /* Branches, and no word that is worked out ahead: ptxas keeps that in a register through the kernel's own loops. */
    if (context == 0 ||
        (hostcall_fixed_(context + HOSTCALL_CONTEXT_FLAGS_BYTE) >> HOSTCALL_POINTS_SHIFT & 0xff) != HOSTCALL_POINTS_VERSION)
        return 0;
    return hostcall_load32_(hostcall_fixed64_(context + HOSTCALL_CONTEXT_POINTS_BYTE) + HOSTCALL_POINTS_SWITCH_BYTE);
}

/* Whether trace points of kernels with the context write now. */
HOSTCALL_FUNCTION int hostcall_is_traced(uint64_t context) {
    return hostcall_switch_of_(context) != 0;
}

/* The context if its kernels' trace points write, else 0: what a short loop gives its points. */
HOSTCALL_FUNCTION uint64_t hostcall_traced(uint64_t context) {
    return hostcall_is_traced(context) ? context : 0;
}

/* Who writes a record, and when. */
struct hostcall_writer_ {
    uint64_t now_ns;
    uint32_t workgroup;
    uint32_t wave;
    uint32_t place;
};

HOSTCALL_FUNCTION struct hostcall_writer_ hostcall_writer_of_(uint64_t points) {
    struct hostcall_writer_ writer;
#if defined(__AMDGCN__) || defined(__NVPTX__) || defined(__CUDA_ARCH__)
    struct hostcall_raw_writer none = HOSTCALL_RAW_WRITER;
    (void)points;
    writer.now_ns = hostcall_clock_ns_();
    writer.workgroup = hostcall_workgroup_(&none);
    writer.wave = hostcall_wave_(&none);
    writer.place = hostcall_place_();
#else
    /* The host knows its threads, in whatever compiler's code they are. */
    const uint64_t here = hostcall_load_(points + HOSTCALL_POINTS_HERE_BYTE);
    writer.workgroup = 0;
    writer.now_ns = here != 0 ? ((uint64_t(*)(uint32_t *))(uintptr_t)here)(&writer.workgroup) : hostcall_clock_ns_();
    writer.wave = 0;
    writer.place = writer.workgroup;
#endif
    return writer;
}

/* Bytes of a name or file that are told: up to 256, whole characters. */
HOSTCALL_FUNCTION uint32_t hostcall_text_bytes_(const char *text) {
    uint32_t length = hostcall_length_(text, 256);
    if (length == 256)
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    return length;
}

/* Claims a slot for the calling lane alone, for what is done seldom. Returns whether it has one: waves that all hold a slot do not
 * wait for each other's. */
HOSTCALL_FUNCTION int hostcall_claim_alone_(struct hostcall_scope *scope, uint64_t context) {
#if defined(__NVPTX__) || defined(__CUDA_ARCH__)
    /* It lies in memory: a kernel's registers are those of the call that takes most, whether it is ever made or not. */
    HOSTCALL_ASM_ volatile("" : : "l"(scope) : "memory");
#endif
    return hostcall_claim_within_(scope, context, UINT64_C(1) << hostcall_lane_(), 0, HOSTCALL_CLAIM_TRIES_) == HOSTCALL_CALL_OK;
}

HOSTCALL_FUNCTION void hostcall_release_alone_(struct hostcall_scope *scope) {
    if (!(scope->state & HOSTCALL_STATE_LOST_))
        hostcall_release_slot_(scope);
}

/* The points that a context leads to whose kernels' trace points write or did. */
HOSTCALL_FUNCTION uint64_t hostcall_points_of_(uint64_t context) {
    return hostcall_fixed64_(context + HOSTCALL_CONTEXT_POINTS_BYTE);
}

/* Where it is noted when the clocks were compared last. */
HOSTCALL_FUNCTION uint64_t hostcall_sampled_at_(uint64_t context) {
    return hostcall_points_of_(context) + HOSTCALL_POINTS_SAMPLED_BYTE;
}

/* The number of a point by the word `known`, while the switch has this one; 0 if it was not asked for yet. */
HOSTCALL_FUNCTION uint32_t hostcall_point_number_(uint64_t known, uint32_t on) {
    return (uint32_t)(known >> 32) == on ? (uint32_t)known : 0;
}

/* Whether nobody has compared the clocks in this tick or in the one before. */
HOSTCALL_FUNCTION int hostcall_are_clocks_old_(uint64_t tick, uint64_t sampled) {
    return tick - sampled > 1;
}

/* Compares the device's clock with the host's, if no other wave does. Returns whether somebody does. */
HOSTCALL_FUNCTION int hostcall_compare_clocks_(uint64_t context, uint64_t points, uint64_t sampled, uint64_t tick) {
    uint64_t words[3];
    struct hostcall_scope scope;
    if (hostcall_cas_(points + HOSTCALL_POINTS_SAMPLED_BYTE, sampled, tick) != sampled)
        return 1;
    if (!hostcall_claim_alone_(&scope, context)) {
        hostcall_store_(points + HOSTCALL_POINTS_SAMPLED_BYTE, sampled);
        return 0;
    }
    words[0] = hostcall_writer_of_(points).now_ns;
    if (hostcall_exchange_of_(&scope, 1, HOSTCALL_METHOD_TRACE_NOW, 0, words, 0, &words[1], 1, 0) == HOSTCALL_CALL_OK) {
        words[2] = hostcall_writer_of_(points).now_ns;
        (void)hostcall_put_posts_(&scope, 1, HOSTCALL_METHOD_CLOCK_PAIR, words, 3);
    }
    hostcall_release_alone_(&scope);
    hostcall_wake_(scope.context, scope.region);
    return 1;
}

/* Posts name and file of a point in pieces, and asks the host for its number while the switch has this one, which is stored there.
 * Returns how the call ended. */
HOSTCALL_FUNCTION uint64_t hostcall_register_point_(uint64_t context, uint64_t points, struct hostcall_point *point,
                                                    uint32_t number) {
    const uint32_t of_text = hostcall_text_bytes_(point->text), bytes = 8 + of_text + hostcall_text_bytes_(point->file);
    uint64_t words[6], status = HOSTCALL_CALL_CANCELLED;
    struct hostcall_scope scope;
    if (!hostcall_claim_alone_(&scope, context))
        return status;
    /* Another wave may have stored the texts. */
    hostcall_acquire_();
    HOSTCALL_NO_UNROLL_
    for (uint32_t done = 0; done < bytes; done += HOSTCALL_PIECE_BYTES_) {
        const uint32_t count = bytes - done < HOSTCALL_PIECE_BYTES_ ? bytes - done : HOSTCALL_PIECE_BYTES_;
        const uint64_t is_last = done + count == bytes ? HOSTCALL_LAST_PIECE_ : 0, piece = done / HOSTCALL_PIECE_BYTES_;
        for (uint32_t word = 0; word < HOSTCALL_PIECE_WORDS_; word++)
            words[word] = 0;
        HOSTCALL_NO_UNROLL_
        for (uint32_t i = 0; i < count; i++) {
            /* Eight bytes of the slot's address come first: nobody else has it meanwhile. */
            const uint32_t at = done + i - 8;
            const uint64_t letter = done + i < 8 ? scope.home >> 8 * (done + i) & 0xff
                                                 : (unsigned char)(at < of_text ? point->text[at] : point->file[at - of_text]);
            words[i / 8] |= letter << 8 * (i % 8);
        }
        if (!hostcall_put_posts_(&scope, 1, HOSTCALL_METHOD(HOSTCALL_METHOD_TEXT, is_last | count << 16 | piece), words,
                                 HOSTCALL_PIECE_WORDS_))
            break;
    }
    words[0] = scope.home, words[1] = point->kind, words[2] = point->tags, words[3] = point->line;
    words[4] = hostcall_writer_of_(points).now_ns, words[5] = of_text;
    status = hostcall_exchange_of_(&scope, 1, HOSTCALL_METHOD_REGISTER_POINT, 0, words, 6, words, 1, 0) & 0xff;
    hostcall_release_alone_(&scope);
    hostcall_wake_(scope.context, scope.region);
    /* What the host refuses it refuses again. */
    if (status == HOSTCALL_CALL_TOO_LARGE || status == HOSTCALL_CALL_MALFORMED)
        status = HOSTCALL_CALL_OK, words[0] = HOSTCALL_POINT_REFUSED_;
    if (status == HOSTCALL_CALL_OK)
        hostcall_store_((uint64_t)(uintptr_t)&point->known, (uint64_t)number << 32 | (uint32_t)words[0]);
    return status;
}

/* The address of a wave's place. A wave always comes to the same one, so that its records come in their order. */
HOSTCALL_FUNCTION uint64_t hostcall_place_at_(uint64_t points, uint32_t of_wave) {
    const uint32_t places = hostcall_fixed_(points + HOSTCALL_POINTS_PLACES_BYTE);
    if (of_wave >= places)
        of_wave = (uint32_t)((uint64_t)(of_wave * UINT32_C(0x9E3779B9)) * places >> 32);
    return hostcall_fixed64_(points + HOSTCALL_POINTS_STATES_BYTE) + 8 * (uint64_t)of_wave;
}

/* The address of the next record in the page of a place with this word, or 0 if it has no page, or one without room for a record. */
HOSTCALL_FUNCTION uint64_t hostcall_room_(const struct hostcall_raw_stream *stream, uint64_t state) {
    const uint64_t from = state >> HOSTCALL_PLACE_UNITS_SHIFT_ << HOSTCALL_PLACE_UNIT_LOG2_;
    const uint32_t page = (uint32_t)state & 0xffff;
    if (page == 0 || from + HOSTCALL_MOST_RECORD_BYTES > UINT32_C(1) << stream->page_bytes_log2)
        return 0;
    return stream->data + ((uint64_t)(page - 1) << stream->page_bytes_log2) + from;
}

/* Opens another page at a wave's place if the one there has no room. Returns whether there is one, else the record is counted as
 * dropped. */
HOSTCALL_FUNCTION int hostcall_open_page_(uint64_t points, uint32_t of_wave) {
    const struct hostcall_raw_stream *stream = (const struct hostcall_raw_stream *)(uintptr_t)points;
    const uint64_t place = hostcall_place_at_(points, of_wave);
    struct hostcall_raw_writer writer = HOSTCALL_RAW_WRITER;
    uint32_t looks = 0;
    uint64_t state;
    for (;;) {
        state = hostcall_load_(place);
        if (state & HOSTCALL_PLACE_OPENING) {
            if (++looks == HOSTCALL_PLACE_LOOKS_) {
                hostcall_add_(stream->dropped, 1);
                return 0;
            }
            hostcall_pause_();
            continue;
        }
        if (hostcall_room_(stream, state) != 0)
            return 1;
        /* While the word is that, nobody finds room there. */
        state = hostcall_exchange_(place, HOSTCALL_PLACE_OPENING);
        if (!(state & HOSTCALL_PLACE_OPENING))
            break;
    }
    if (hostcall_room_(stream, state) == 0) {
        writer.looks_left_out = (uint32_t)(state >> 16) & 0xff;
        if (hostcall_raw_take_(stream, &writer, HOSTCALL_MOST_RECORD_BYTES, 1) != 0) {
            /* The page's header is the host's to see first. In place of its bytes stands which pages are written one after the other. */
            hostcall_release_();
            hostcall_store_(hostcall_raw_commit_at_(stream, writer.page - 1),
                            writer.place >> HOSTCALL_RAW_TICKET_SHIFT << HOSTCALL_RAW_TICKET_SHIFT | HOSTCALL_PLACE_BY_RECORDS |
                                (place - hostcall_place_at_(points, 0)) / 8);
        }
        state = writer.page | (uint64_t)writer.looks_left_out << 16;
        hostcall_release_();
    }
    (void)hostcall_exchange_(place, state);
    return (state & 0xffff) != 0;
}

/*
 * Does what a point needs now and then before its record is written: clocks that were compared, a number, and a page. Returns whether
 * to try again; else the record is counted as dropped. No other function is called, since nested calls take the registers of all.
 */
HOSTCALL_LONG_FUNCTION int hostcall_prepare_point_(uint64_t context, struct hostcall_point *point) {
    const uint64_t points = hostcall_points_of_(context), told_at = (uint64_t)(uintptr_t)&point->told;
    if (hostcall_rank_(hostcall_lanes_()) != 0)
        return 1;
    const struct hostcall_writer_ writer = hostcall_writer_of_(points);
    const uint64_t now_ns = writer.now_ns, tick = now_ns >> HOSTCALL_SAMPLE_LOG2;
    const uint64_t sampled = hostcall_load_(points + HOSTCALL_POINTS_SAMPLED_BYTE);
    const uint32_t number = hostcall_switch_of_(context);
    int is_lost = 0;
    /* The end of a span that nobody records any more has its number and no time of the host's. */
    if (number != 0 && hostcall_are_clocks_old_(tick, sampled)) {
        is_lost = !hostcall_compare_clocks_(context, points, sampled, tick);
    } else if (number != 0 && hostcall_point_number_(hostcall_load_((uint64_t)(uintptr_t)&point->known), number) == 0) {
        const uint64_t told = hostcall_load_(told_at);
        const uint32_t now = (uint32_t)(now_ns >> HOSTCALL_TOLD_LOG2_);
        const uint64_t own = (uint64_t)number << 32 | now;
        const int32_t since = (uint32_t)(told >> 32) == number ? (int32_t)(now - (uint32_t)told) : HOSTCALL_TOLD_AGAIN_;
        /* One wave tells the host, and the others wait for it. */
        is_lost = since >= HOSTCALL_TOLD_WAIT_ && since < HOSTCALL_TOLD_AGAIN_;
        if (since < HOSTCALL_TOLD_WAIT_) {
            hostcall_pause_();
        } else if (since >= HOSTCALL_TOLD_AGAIN_ && hostcall_cas_(told_at, told, own) == told) {
            is_lost = hostcall_register_point_(context, points, point, number) != HOSTCALL_CALL_OK;
            /* Nobody waits any more: of another device, which has the same point, somebody may tell now, or later where nobody answers. */
            (void)hostcall_cas_(told_at, own, 0);
        }
    } else {
        return hostcall_open_page_(points, writer.place);
    }
    if (is_lost)
        hostcall_add_(((const struct hostcall_raw_stream *)(uintptr_t)points)->dropped, 1);
    return !is_lost;
}

/* What writing a record gives, if not the time: nothing was written, or something has to be prepared first. */
#define HOSTCALL_NOT_WRITTEN_ UINT64_C(0)
#define HOSTCALL_UNPREPARED_ UINT64_C(1)

/* Writes a record of the calling lane for so many that came with it, with up to five values, where the switch, the point and the clocks
 * are so. Returns the time, HOSTCALL_NOT_WRITTEN_ or HOSTCALL_UNPREPARED_. */
HOSTCALL_FUNCTION uint64_t hostcall_put_point_(uint64_t context, uint32_t on, uint64_t known, uint64_t sampled, uint32_t kind,
                                               uint32_t lanes, const uint64_t *values, const uint32_t count) {
    const uint64_t points = hostcall_points_of_(context);
    /* Loaded now, because a load behind the addition would be waited for. */
    const struct hostcall_raw_stream stream = *(const struct hostcall_raw_stream *)(uintptr_t)points;
    /* A kernel that runs on when its context is renewed may say here that it is the launch before. */
    const uint32_t launch = hostcall_fixed_(context + HOSTCALL_CONTEXT_LAUNCH_BYTE);
    const struct hostcall_writer_ writer = hostcall_writer_of_(points);
    /* A device's number of a point stays the same. What runs on the host may be of several devices. */
    const uint32_t number = kind == HOSTCALL_POINT_END_ && HOSTCALL_HAS_ONE_DEVICE_ ? (uint32_t)known : hostcall_point_number_(known, on);
    if (kind != HOSTCALL_POINT_END_ && on == 0)
        return HOSTCALL_NOT_WRITTEN_;
    if ((number == 0) | ((on != 0) & hostcall_are_clocks_old_(writer.now_ns >> HOSTCALL_SAMPLE_LOG2, sampled)))
        return HOSTCALL_UNPREPARED_;
    if (number == HOSTCALL_POINT_UNWANTED)
        return HOSTCALL_NOT_WRITTEN_;
    if (number == HOSTCALL_POINT_REFUSED_) {
        hostcall_add_(stream.dropped, 1);
        return HOSTCALL_NOT_WRITTEN_;
    }
    const uint64_t bytes = 16 + 16 * (1 + (uint64_t)count / 2);
    const uint64_t more = bytes >> HOSTCALL_PLACE_UNIT_LOG2_ << HOSTCALL_PLACE_UNITS_SHIFT_;
    const uint64_t at = hostcall_room_(&stream, hostcall_add_(hostcall_place_at_(points, writer.place), more));
    if (at == 0)
        return HOSTCALL_UNPREPARED_;
    /* No word is 0: the host knows by that which are there. */
    uint64_t head = number | kind << 24 | count << 27 | (uint64_t)lanes << 32 | (uint64_t)(hostcall_lane_() & 63) << 40 |
                    (uint64_t)(writer.wave & 1023) << 46 | UINT64_C(1) << 63;
    const uint64_t owner = launch | (uint64_t)writer.workgroup << 32;
    uint64_t words[5];
    HOSTCALL_UNROLL_
    for (uint32_t i = 0; i < 5; i++) {
        words[i] = i < count ? values[i] : 1;
        head |= (uint64_t)(words[i] == 0) << (HOSTCALL_IS_ZERO_SHIFT + i);
        words[i] |= words[i] == 0;
    }
    hostcall_send_pair_(at, writer.now_ns, head);
    hostcall_send_pair_(at + 16, owner, words[0]);
    HOSTCALL_UNROLL_
    for (uint32_t i = 1; i < 5; i += 2)
        if (i < count)
            hostcall_send_pair_(at + 16 + 8 * (uint64_t)(i + 1), words[i], words[i + 1]);
    return writer.now_ns;
}

/* Writes a record of the calling lane for so many, whatever has to be prepared for it. Returns the time, or HOSTCALL_NOT_WRITTEN_. */
HOSTCALL_FUNCTION uint64_t hostcall_write_point_(uint64_t context, uint32_t on, struct hostcall_point *point, uint32_t kind,
                                                 uint32_t lanes, const uint64_t *values, const uint32_t count) {
    const uint64_t known_at = (uint64_t)(uintptr_t)&point->known;
    /* What is old there has to be prepared, after a look past the nearest cache. */
    uint64_t known = hostcall_load_near_(known_at), sampled = hostcall_load_near_(hostcall_sampled_at_(context)), result;
    while ((result = hostcall_put_point_(context, on, known, sampled, kind, lanes, values, count)) == HOSTCALL_UNPREPARED_) {
        if (!hostcall_prepare_point_(context, point))
            return HOSTCALL_NOT_WRITTEN_;
        /* Worked out again, because what is kept through the call takes registers of the kernel's. */
        known = hostcall_load_(known_at), sampled = hostcall_load_(hostcall_sampled_at_(context));
        if (kind != HOSTCALL_POINT_END_)
            on = hostcall_switch_of_(context);
    }
    return result;
}

/* The same for lanes that are here for it together, with the first one's values. That lane gets the time. Afterwards a whole wave has
 * to meet: else NVIDIA's lanes would come to the next point one after the other, and each would write. */
HOSTCALL_FUNCTION uint64_t hostcall_point_of_lanes_(uint64_t context, uint32_t on, struct hostcall_point *point, uint32_t kind,
                                                    uint64_t here, const uint64_t *values, const uint32_t count) {
    if (hostcall_rank_(here) != 0)
        return HOSTCALL_NOT_WRITTEN_;
    return hostcall_write_point_(context, on, point, kind, hostcall_ones_(here), values, count);
}

/* What the begin of a span gives lanes of a whole wave whose first one has written it. */
#define HOSTCALL_OF_FIRST_SPAN_ UINT64_C(1)

HOSTCALL_LONG_FUNCTION uint64_t hostcall_begin_(uint64_t context, uint32_t on, struct hostcall_point *point) {
    const uint64_t here = hostcall_here_for_(hostcall_lanes_(), point);
    const uint64_t began_ns = hostcall_point_of_lanes_(context, on, point, HOSTCALL_POINT_BEGIN_, here, 0, 0);
    const uint64_t of_first = hostcall_of_lane_(here, began_ns, hostcall_first_(here));
    hostcall_meet_all_(here);
    return began_ns != HOSTCALL_NOT_WRITTEN_ || of_first == HOSTCALL_NOT_WRITTEN_ ? began_ns : HOSTCALL_OF_FIRST_SPAN_;
}

/* Begins a span where somebody traces. Else it returns 0. */
HOSTCALL_FUNCTION uint64_t hostcall_begin_traced_(uint64_t context, struct hostcall_point *point) {
    const uint32_t on = hostcall_switch_of_(context);
    return on != 0 ? hostcall_begin_(context, on, point) : 0;
}

HOSTCALL_FUNCTION void hostcall_end_all_(uint64_t context, struct hostcall_point *point, uint64_t began_ns) {
    const uint64_t here = hostcall_lanes_(), first = here & (0 - here);
    const int is_of_first = hostcall_rank_(here) == 0 || began_ns == HOSTCALL_OF_FIRST_SPAN_;
    /* It is written also where points are off by now. */
    const uint32_t on = HOSTCALL_HAS_ONE_DEVICE_ ? 0 : hostcall_switch_of_(context);
    /* Lanes that began apart may end together. Each first one has a span of its own. */
    for (uint64_t left = hostcall_all_(here, is_of_first) ? first : here; left != 0; left &= left - 1)
        if (((left & (0 - left)) >> hostcall_lane_() & 1) && began_ns != HOSTCALL_OF_FIRST_SPAN_)
            (void)hostcall_write_point_(context, on, point, HOSTCALL_POINT_END_, 1, &began_ns, 1);
    hostcall_meet_all_(here);
}

HOSTCALL_LONG_FUNCTION void hostcall_end_(uint64_t context, struct hostcall_point *point, uint64_t began_ns) {
    hostcall_end_all_(context, point, began_ns);
}

/* A counter, or an event with up to five values. */
#define HOSTCALL_PUT_VALUES_(name, kind, count, parameters, ...)                                                              \
    HOSTCALL_LONG_FUNCTION void name(uint64_t context, uint32_t on, struct hostcall_point *point parameters) {           \
        const uint64_t values[] = {__VA_ARGS__}, here = hostcall_here_for_(hostcall_lanes_(), point);                   \
        (void)hostcall_point_of_lanes_(context, on, point, kind, here, values, count);                                  \
        hostcall_meet_all_(here);                                                                                       \
    }
#define HOSTCALL_VALUES_0_
#define HOSTCALL_VALUES_1_ , uint64_t a
#define HOSTCALL_VALUES_2_ , uint64_t a, uint64_t b
#define HOSTCALL_VALUES_3_ , uint64_t a, uint64_t b, uint64_t c
#define HOSTCALL_VALUES_4_ , uint64_t a, uint64_t b, uint64_t c, uint64_t d
#define HOSTCALL_VALUES_5_ , uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e
HOSTCALL_PUT_VALUES_(hostcall_put_counter_, HOSTCALL_POINT_COUNTER_, 1, HOSTCALL_VALUES_1_, a)
HOSTCALL_PUT_VALUES_(hostcall_put_event_0_, HOSTCALL_POINT_EVENT_, 0, HOSTCALL_VALUES_0_, 0)
HOSTCALL_PUT_VALUES_(hostcall_put_event_1_, HOSTCALL_POINT_EVENT_, 1, HOSTCALL_VALUES_1_, a)
HOSTCALL_PUT_VALUES_(hostcall_put_event_2_, HOSTCALL_POINT_EVENT_, 2, HOSTCALL_VALUES_2_, a, b)
HOSTCALL_PUT_VALUES_(hostcall_put_event_3_, HOSTCALL_POINT_EVENT_, 3, HOSTCALL_VALUES_3_, a, b, c)
HOSTCALL_PUT_VALUES_(hostcall_put_event_4_, HOSTCALL_POINT_EVENT_, 4, HOSTCALL_VALUES_4_, a, b, c, d)
HOSTCALL_PUT_VALUES_(hostcall_put_event_5_, HOSTCALL_POINT_EVENT_, 5, HOSTCALL_VALUES_5_, a, b, c, d, e)
#undef HOSTCALL_PUT_VALUES_

/* Words and types of values: HOSTCALL_WORD_, HOSTCALL_TAG_, which is a constant. */
HOSTCALL_FUNCTION uint64_t hostcall_word_of_float_(float value) {
    uint32_t bits;
    hostcall_copy_(&bits, &value, 4);
    return bits;
}

HOSTCALL_FUNCTION uint64_t hostcall_word_of_double_(double value) {
    uint64_t bits;
    hostcall_copy_(&bits, &value, 8);
    return bits;
}

#define HOSTCALL_TAG_UNSIGNED_ 1u
#define HOSTCALL_TAG_I8_ 2u
#define HOSTCALL_TAG_I16_ 3u
#define HOSTCALL_TAG_I32_ 4u
#define HOSTCALL_TAG_I64_ 5u
#define HOSTCALL_TAG_F32_ 6u
#define HOSTCALL_TAG_F64_ 7u
#define HOSTCALL_TAG_BOOL_ 8u
#define HOSTCALL_TAG_POINTER_ 11u

#if defined(__cplusplus)
#if defined(__CUDACC_RTC__)
#define HOSTCALL_MEMBER_ __forceinline__ __device__
#define HOSTCALL_DECLARED_ __device__
#elif defined(__CUDACC__) && !defined(__clang__)
#define HOSTCALL_MEMBER_ __forceinline__ __host__ __device__
#define HOSTCALL_DECLARED_ __host__ __device__
#elif defined(__CUDA__) || defined(__HIP__)
#define HOSTCALL_MEMBER_ __inline__ __attribute__((always_inline, host, device))
#define HOSTCALL_DECLARED_ __attribute__((host, device))
#else
#define HOSTCALL_MEMBER_ __inline__ __attribute__((always_inline))
#define HOSTCALL_DECLARED_
#endif

template <class Value> struct hostcall_typed_ {
    static_assert(sizeof(Value) <= 8 && Value(0.5) == Value(0), "values of trace points are numbers of up to 64 bits: cast");
    static const uint64_t is_signed = !(Value(-1) > Value(0));
    static const uint64_t tag = !is_signed           ? HOSTCALL_TAG_UNSIGNED_
                                : sizeof(Value) == 1 ? HOSTCALL_TAG_I8_
                                : sizeof(Value) == 2 ? HOSTCALL_TAG_I16_
                                : sizeof(Value) == 4 ? HOSTCALL_TAG_I32_
                                                     : HOSTCALL_TAG_I64_;
};
template <> struct hostcall_typed_<bool> { static const uint64_t tag = HOSTCALL_TAG_BOOL_; };
template <> struct hostcall_typed_<float> { static const uint64_t tag = HOSTCALL_TAG_F32_; };
template <> struct hostcall_typed_<double> { static const uint64_t tag = HOSTCALL_TAG_F64_; };
template <class Value> struct hostcall_typed_<Value *> { static const uint64_t tag = HOSTCALL_TAG_POINTER_; };
/* As a function takes a value, without const and the like. */
struct hostcall_types_ {
    template <class Value> static HOSTCALL_DECLARED_ hostcall_typed_<Value> of(Value);
};

HOSTCALL_FUNCTION uint64_t hostcall_word_of_(float value) {
    return hostcall_word_of_float_(value);
}
HOSTCALL_FUNCTION uint64_t hostcall_word_of_(double value) {
    return hostcall_word_of_double_(value);
}
template <class Value> HOSTCALL_FUNCTION uint64_t hostcall_word_of_(Value *value) {
    return (uint64_t)(uintptr_t)value;
}
template <class Value> HOSTCALL_FUNCTION uint64_t hostcall_word_of_(Value value) {
    return (uint64_t)(int64_t)value;
}

#define HOSTCALL_TAG_(value) (decltype(hostcall_types_::of(value))::tag)
#define HOSTCALL_WORD_(value) hostcall_word_of_(value)
#else
HOSTCALL_FUNCTION uint64_t hostcall_word_of_integer_(int64_t value) {
    return (uint64_t)value;
}

#define HOSTCALL_TAG_(value)                                                                                       \
    __extension__ _Generic((value), float: HOSTCALL_TAG_F32_, double: HOSTCALL_TAG_F64_, _Bool: HOSTCALL_TAG_BOOL_, \
                           char: (char)-1 < (char)1 ? HOSTCALL_TAG_I8_ : HOSTCALL_TAG_UNSIGNED_, signed char: HOSTCALL_TAG_I8_, short: HOSTCALL_TAG_I16_, int: HOSTCALL_TAG_I32_,          \
                           long: sizeof(long) == 8 ? HOSTCALL_TAG_I64_ : HOSTCALL_TAG_I32_,                          \
                           long long: HOSTCALL_TAG_I64_, default: HOSTCALL_TAG_UNSIGNED_)
#define HOSTCALL_WORD_(value)                                                                                   \
    __extension__ _Generic((value), float: hostcall_word_of_float_, double: hostcall_word_of_double_,            \
                           default: hostcall_word_of_integer_)(value)
#endif

#define HOSTCALL_POINT_(of, text, tags) {text, __FILE__, (uint64_t)(tags), 0, 0, (uint32_t)__LINE__, of}
#define HOSTCALL_JOINED_(a, b) a##b
#define HOSTCALL_JOIN_(a, b) HOSTCALL_JOINED_(a, b)

/* Says what the counter of this name shows now. It is a statement. */
#define hostcall_counter(context, name, value) \
    HOSTCALL_TELL_1_(context, HOSTCALL_POINT_COUNTER_, name, hostcall_put_counter_, HOSTCALL_TAG_(value), value)

/* Says that something happened: a format, and its values. It is a statement. */
#define hostcall_event(context, ...) HOSTCALL_COUNTED_(__VA_ARGS__, 5, 4, 3, 2, 1, 0, 0)(context, __VA_ARGS__)
#define HOSTCALL_COUNTED_(format, a, b, c, d, e, count, ...) HOSTCALL_JOIN_(HOSTCALL_EVENT_, count)
#define HOSTCALL_TAGS_2_(a, b) (HOSTCALL_TAG_(a) | HOSTCALL_TAG_(b) << 4)
#define HOSTCALL_TAGS_3_(a, b, c) (HOSTCALL_TAGS_2_(a, b) | HOSTCALL_TAG_(c) << 8)
#define HOSTCALL_TAGS_4_(a, b, c, d) (HOSTCALL_TAGS_3_(a, b, c) | HOSTCALL_TAG_(d) << 12)
#define HOSTCALL_TAGS_5_(a, b, c, d, e) (HOSTCALL_TAGS_4_(a, b, c, d) | HOSTCALL_TAG_(e) << 16)
#define HOSTCALL_EVENT_0(context, format) HOSTCALL_TELL_0_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_0_, 0)
#define HOSTCALL_EVENT_1(context, format, a) \
    HOSTCALL_TELL_1_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_1_, HOSTCALL_TAG_(a), a)
#define HOSTCALL_EVENT_2(context, format, a, b) \
    HOSTCALL_TELL_2_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_2_, HOSTCALL_TAGS_2_(a, b), a, b)
#define HOSTCALL_EVENT_3(context, format, a, b, c) \
    HOSTCALL_TELL_3_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_3_, HOSTCALL_TAGS_3_(a, b, c), a, b, c)
#define HOSTCALL_EVENT_4(context, format, a, b, c, d) \
    HOSTCALL_TELL_4_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_4_, HOSTCALL_TAGS_4_(a, b, c, d), a, b, c, d)
#define HOSTCALL_EVENT_5(context, format, a, b, c, d, e) \
    HOSTCALL_TELL_5_(context, HOSTCALL_POINT_EVENT_, format, hostcall_put_event_5_, HOSTCALL_TAGS_5_(a, b, c, d, e), a, b, c, d, e)
#define HOSTCALL_TELL_0_(context, kind, text, tell, tags)                                     \
    do {                                                                                      \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                    \
        if (hostcall_on_ != 0) {                                                    \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags); \
            tell((context), hostcall_on_, &hostcall_point_);                                                \
        }                                                                                     \
    } while (0)
#define HOSTCALL_TELL_1_(context, kind, text, tell, tags, a)                                  \
    do {                                                                                      \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                    \
        if (hostcall_on_ != 0) {                                                    \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags); \
            tell((context), hostcall_on_, &hostcall_point_, HOSTCALL_WORD_(a));                             \
        }                                                                                     \
    } while (0)
#define HOSTCALL_TELL_2_(context, kind, text, tell, tags, a, b)                               \
    do {                                                                                      \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                    \
        if (hostcall_on_ != 0) {                                                    \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags); \
            tell((context), hostcall_on_, &hostcall_point_, HOSTCALL_WORD_(a), HOSTCALL_WORD_(b));          \
        }                                                                                     \
    } while (0)
#define HOSTCALL_TELL_3_(context, kind, text, tell, tags, a, b, c)                                      \
    do {                                                                                                \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                              \
        if (hostcall_on_ != 0) {                                                              \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags);           \
            tell((context), hostcall_on_, &hostcall_point_, HOSTCALL_WORD_(a), HOSTCALL_WORD_(b), HOSTCALL_WORD_(c)); \
        }                                                                                               \
    } while (0)
#define HOSTCALL_TELL_4_(context, kind, text, tell, tags, a, b, c, d)                                                      \
    do {                                                                                                                   \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                                                 \
        if (hostcall_on_ != 0) {                                                                                 \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags);                              \
            tell((context), hostcall_on_, &hostcall_point_, HOSTCALL_WORD_(a), HOSTCALL_WORD_(b), HOSTCALL_WORD_(c), HOSTCALL_WORD_(d)); \
        }                                                                                                                  \
    } while (0)
#define HOSTCALL_TELL_5_(context, kind, text, tell, tags, a, b, c, d, e)                                                                      \
    do {                                                                                                                                      \
        const uint32_t hostcall_on_ = hostcall_switch_of_(context);                                                                                                    \
        if (hostcall_on_ != 0) {                                                                                                    \
            static struct hostcall_point hostcall_point_ = HOSTCALL_POINT_(kind, text, tags);                                                 \
            tell((context), hostcall_on_, &hostcall_point_, HOSTCALL_WORD_(a), HOSTCALL_WORD_(b), HOSTCALL_WORD_(c), HOSTCALL_WORD_(d), HOSTCALL_WORD_(e)); \
        }                                                                                                                                     \
    } while (0)

/* Begins a span of this name, which hostcall_span_end ends by the identifier `span`. It is a declaration. */
#define hostcall_span_begin(context, span, name)                                                                  \
    static struct hostcall_point HOSTCALL_JOIN_(hostcall_point_of_, span) = HOSTCALL_POINT_(HOSTCALL_POINT_BEGIN_, name, 0); \
    const uint64_t span = hostcall_begin_traced_((context), &HOSTCALL_JOIN_(hostcall_point_of_, span))

#define hostcall_span_end(context, span) \
    ((span) != 0 ? hostcall_end_((context), &HOSTCALL_JOIN_(hostcall_point_of_, span), (span)) : (void)0)

#if defined(__cplusplus)
/* A span that ends with its block. */
class hostcall_span_until_end_ {
    uint64_t context, began_ns;
    struct hostcall_point *point;

  public:
    HOSTCALL_MEMBER_ hostcall_span_until_end_(uint64_t context, struct hostcall_point *point)
        : context(context), began_ns(hostcall_begin_traced_(context, point)), point(point) {}
    HOSTCALL_MEMBER_ ~hostcall_span_until_end_() {
        if (began_ns != 0)
            hostcall_end_(context, point, began_ns);
    }
    hostcall_span_until_end_(const hostcall_span_until_end_ &) = delete;
    hostcall_span_until_end_ &operator=(const hostcall_span_until_end_ &) = delete;
};

/* Begins a span of this name that ends with the block. It is a declaration. */
#define hostcall_span(context, name)                                                                                     \
    static struct hostcall_point HOSTCALL_JOIN_(hostcall_point_at_, __LINE__) = HOSTCALL_POINT_(HOSTCALL_POINT_BEGIN_, name, 0); \
    const hostcall_span_until_end_ HOSTCALL_JOIN_(hostcall_span_at_, __LINE__)((context), &HOSTCALL_JOIN_(hostcall_point_at_, __LINE__))
#endif

#endif /* no OpenCL C */

#endif
