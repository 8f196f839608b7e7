// What a GPU's lanes are told by, for lanes that are run one after the other on the host: each is a wave of its own.
#pragma once
#include <stdint.h>
#include <stdlib.h>

#define __MEMORY_SCOPE_SYSTEM 0
#define __MEMORY_SCOPE_DEVICE 0
#define __scoped_atomic_load_n(from, order, scope) __atomic_load_n(from, order)
#define __scoped_atomic_store_n(to, value, order, scope) __atomic_store_n(to, value, order)
#define __scoped_atomic_fetch_or(to, value, order, scope) __atomic_fetch_or(to, value, order)
#define __scoped_atomic_fetch_and(to, value, order, scope) __atomic_fetch_and(to, value, order)
#define __scoped_atomic_thread_fence(order, scope) __atomic_thread_fence(order)
#define __gpu_kernel __attribute__((visibility("default")))

static __thread uint32_t block_id, num_threads, thread_id;

// For the driver: which lane runs next, and whether it did what no GPU allows.
__attribute__((visibility("default"))) void set_lane(uint32_t block, uint32_t threads, uint32_t thread) {
  block_id = block, num_threads = threads, thread_id = thread;
}
__attribute__((visibility("default"))) int fault;

static inline uint32_t __gpu_block_id_x(void) { return block_id; }
static inline uint32_t __gpu_num_threads_x(void) { return num_threads; }
static inline uint32_t __gpu_thread_id_x(void) { return thread_id; }
static inline uint32_t __gpu_num_lanes(void) { return 32; }
static inline uint32_t __gpu_lane_id(void) { return thread_id % 32; }
static inline uint64_t __gpu_lane_mask(void) { return (uint64_t)1 << __gpu_lane_id(); }
static inline int __gpu_is_first_in_lane(uint64_t mask) { return mask != 0; }
static inline uint32_t __gpu_read_first_lane_u32(uint64_t mask, uint32_t value) { return value; }
static inline uint64_t __gpu_ballot(uint64_t mask, int yes) { return yes ? mask : 0; }
static inline void __gpu_sync_lane(uint64_t mask) {}
static inline void __gpu_thread_suspend(void) {}
