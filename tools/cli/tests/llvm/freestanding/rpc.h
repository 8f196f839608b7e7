// A client of LLVM's GPU RPC protocol in a few lines, without any libc: RPC_VERSION is 19, 20, or 26 for the layout with
// a doorbell.
#pragma once
#include <gpuintrin.h>
#include <stddef.h>
#include <stdint.h>

#ifndef RPC_VERSION
#define RPC_VERSION 19
#endif

#define MAX_PORTS (RPC_VERSION == 26 ? 16384 : 4096)

struct rpc_header {
  uint64_t mask;
  uint64_t opcode;
};

struct rpc_buffer {
  uint64_t data[8];
};

struct rpc_client {
  uint32_t ports;
#if RPC_VERSION == 26
  void *doorbell;
#endif
  uint32_t *inbox;
  uint32_t *outbox;
  struct rpc_header *headers;
  struct rpc_buffer *buffers;
  uint32_t locks[MAX_PORTS / 32];
};

// What a loader writes: where the pointer of LLVM 19 points, or the later versions' object itself.
#if RPC_VERSION == 19
#define OPCODE(number) (number)
static struct rpc_client client;
__attribute__((visibility("protected"), used)) struct rpc_client *__llvm_libc_rpc_client = &client;
#else
#define OPCODE(number) ((uint32_t)'c' << 24 | (number))
#define client __llvm_rpc_client
__attribute__((visibility("protected"), used)) struct rpc_client __llvm_rpc_client;
#endif

enum {
  RPC_EXIT = OPCODE(1),
  RPC_WRITE = OPCODE(2),
  RPC_PRINTF = OPCODE(21),
  RPC_PRINTF_PACKED = OPCODE(24),
  RPC_TEST_INCREMENT = 0x8001,
  RPC_TEST_STREAM = 0x8003,
};

// An open port, as the lanes have it that opened it together.
struct rpc_port {
  uint64_t mask;
  uint32_t index;
  uint32_t out;
  int received;
};

static inline struct rpc_buffer *rpc_data(const struct rpc_port *port) {
  return &client.buffers[(size_t)port->index * __gpu_num_lanes() + __gpu_lane_id()];
}

static inline uint32_t rpc_mailbox(uint32_t *words, uint32_t index) {
  return __scoped_atomic_load_n(&words[index], __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

static inline void rpc_unlock(uint32_t index) {
  __scoped_atomic_thread_fence(__ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
  __scoped_atomic_fetch_and(&client.locks[index / 32], ~(1u << index % 32), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

static struct rpc_port rpc_open(uint32_t opcode) {
  struct rpc_port port = {__gpu_lane_mask(), 0, 0, 0};
  for (port.index = __gpu_block_id_x() % client.ports;; port.index = (port.index + 1) % client.ports) {
    uint32_t claimed = 0;
    if (__gpu_is_first_in_lane(port.mask)) {
      uint32_t bit = 1u << port.index % 32;
      uint32_t before = __scoped_atomic_fetch_or(&client.locks[port.index / 32], bit, __ATOMIC_RELAXED,
                                                 __MEMORY_SCOPE_DEVICE);
      __scoped_atomic_thread_fence(__ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE);
      if (!(before & bit)) {
        port.out = rpc_mailbox(client.outbox, port.index);
        claimed = rpc_mailbox(client.inbox, port.index) == port.out;
        if (!claimed)
          rpc_unlock(port.index);
      }
    }
    __gpu_sync_lane(port.mask);
    if (__gpu_read_first_lane_u32(port.mask, claimed))
      break;
  }
  port.out = __gpu_read_first_lane_u32(port.mask, port.out);
  if (__gpu_is_first_in_lane(port.mask)) {
    client.headers[port.index].mask = port.mask;
    client.headers[port.index].opcode = opcode;
  }
  __gpu_sync_lane(port.mask);
  return port;
}

// Waits until the lanes own the buffers.
static inline void rpc_wait(const struct rpc_port *port) {
  while (rpc_mailbox(client.inbox, port->index) != port->out)
    __gpu_thread_suspend();
  __scoped_atomic_thread_fence(__ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM);
  __gpu_sync_lane(port->mask);
}

static inline void rpc_hand_over(struct rpc_port *port) {
  __scoped_atomic_thread_fence(__ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
  __gpu_sync_lane(port->mask);
  port->out ^= 1;
  port->received = 0;
  if (__gpu_is_first_in_lane(port->mask))
    __scoped_atomic_store_n(&client.outbox[port->index], port->out, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
  __gpu_sync_lane(port->mask);
}

static inline void rpc_send_word(struct rpc_port *port, uint64_t word) {
  rpc_wait(port);
  rpc_data(port)->data[0] = word;
  rpc_hand_over(port);
}

static inline struct rpc_buffer *rpc_receive(struct rpc_port *port) {
  if (port->received)
    rpc_hand_over(port);
  rpc_wait(port);
  port->received = 1;
  return rpc_data(port);
}

static inline void rpc_copy(void *to, const void *from, uint64_t bytes) {
  for (uint64_t i = 0; i < bytes; i++)
    ((volatile char *)to)[i] = ((const volatile char *)from)[i];
}

static inline uint64_t rpc_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

// Sends bytes, as many as each lane likes.
static void rpc_send(struct rpc_port *port, const void *bytes, uint64_t count) {
  rpc_wait(port);
  rpc_data(port)->data[0] = count;
  rpc_copy(&rpc_data(port)->data[1], bytes, rpc_least(count, 56));
  rpc_hand_over(port);
  for (uint64_t at = 56; __gpu_ballot(port->mask, at < count); at += 64) {
    rpc_wait(port);
    if (at < count)
      rpc_copy(rpc_data(port), (const char *)bytes + at, rpc_least(count - at, 64));
    rpc_hand_over(port);
  }
}

// Receives bytes, of which it keeps the first `room`; how many were sent.
static uint64_t rpc_receive_bytes(struct rpc_port *port, char *into, uint64_t room) {
  struct rpc_buffer *buffer = rpc_receive(port);
  uint64_t count = buffer->data[0], keep = rpc_least(count, room);
  rpc_copy(into, &buffer->data[1], rpc_least(keep, 56));
  for (uint64_t at = 56; __gpu_ballot(port->mask, at < count); at += 64) {
    buffer = rpc_receive(port);
    if (at < keep)
      rpc_copy(into + at, buffer, rpc_least(keep - at, 64));
  }
  return count;
}

static void rpc_close(struct rpc_port *port) {
  __gpu_sync_lane(port->mask);
  if (__gpu_is_first_in_lane(port->mask))
    rpc_unlock(port->index);
  __gpu_sync_lane(port->mask);
}
