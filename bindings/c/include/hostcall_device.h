/*
 * The device's side of hostcall's raw channels: kernels in CUDA C++, HIP or C write records and bytes that the host reads
 * while they run.
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
 * Compilers. Clang for NVIDIA's and AMD's GPUs (CUDA C++, HIP, C), nvcc, and C99 or C++11 compilers with GCC's atomic
 * functions for the host, where each thread is a wave of one lane.
 */
#ifndef HOSTCALL_DEVICE_H
#define HOSTCALL_DEVICE_H

#include <stddef.h>
#include <stdint.h>

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
#if defined(__CUDACC__) && !defined(__clang__)
#define HOSTCALL_FUNCTION static __forceinline__ __host__ __device__
#elif defined(__CUDA__) || defined(__HIP__)
#define HOSTCALL_FUNCTION static __inline__ __attribute__((always_inline, host, device))
#else
#define HOSTCALL_FUNCTION static __inline__ __attribute__((always_inline))
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
    hostcall_two_words_ pair = {first, second};
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
    __scoped_atomic_thread_fence(__ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM);
}

HOSTCALL_FUNCTION void hostcall_release_(void) {
    __scoped_atomic_thread_fence(__ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
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
    return atomicAdd((unsigned long long *)at, (unsigned long long)more);
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

/* A counter of 100 MHz. */
HOSTCALL_FUNCTION uint64_t hostcall_clock_ns_(void) {
#if __has_builtin(__builtin_readsteadycounter)
    return __builtin_readsteadycounter() * 10;
#else
    return __builtin_amdgcn_s_memrealtime() * 10;
#endif
}

HOSTCALL_FUNCTION void hostcall_pause_(void) {
    __builtin_amdgcn_s_sleep(1);
}

/* Of the workgroup in its grid, x fastest, and of the wave in its workgroup. */
HOSTCALL_FUNCTION uint32_t hostcall_workgroup_(const struct hostcall_raw_writer *writer) {
    uint32_t lanes_x = __builtin_amdgcn_workgroup_size_x(), lanes_y = __builtin_amdgcn_workgroup_size_y();
    uint32_t in_x = (__builtin_amdgcn_grid_size_x() + lanes_x - 1) / lanes_x;
    uint32_t in_y = (__builtin_amdgcn_grid_size_y() + lanes_y - 1) / lanes_y;
    (void)writer;
    return __builtin_amdgcn_workgroup_id_x() +
           in_x * (__builtin_amdgcn_workgroup_id_y() + in_y * __builtin_amdgcn_workgroup_id_z());
}

HOSTCALL_FUNCTION uint32_t hostcall_wave_(const struct hostcall_raw_writer *writer) {
    uint32_t lanes_x = __builtin_amdgcn_workgroup_size_x(), lanes_y = __builtin_amdgcn_workgroup_size_y();
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
    __asm__("mov.u32 %0, %%lanemask_lt;" : "=r"(before));
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
    __asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

HOSTCALL_FUNCTION void hostcall_pause_(void) {
    __asm__ volatile("nanosleep.u32 100;");
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
                __builtin_memcpy(&word, from + 8 * (size_t)done, 8);
            } else {
                for (uint32_t i = 0; i < count - 8 * done; i++)
                    word |= (uint64_t)from[8 * (size_t)done + i] << 8 * i;
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
    uint32_t rank = hostcall_rank_(lanes), count = (uint32_t)__builtin_popcountll(lanes), done = 0;
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
                    __builtin_memcpy(words, from + i, 16);
                    hostcall_store_pair_(at + i, words[0], words[1]);
                }
            } else {
                for (uint32_t i = 0; i < bytes; i += 8) {
                    __builtin_memcpy(words, from + i, 8);
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

#endif
