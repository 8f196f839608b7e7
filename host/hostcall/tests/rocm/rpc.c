// Kernels that call ROCm's services by LLVM's protocol, with our own client of it in the place of the one of ROCm's device
// libraries: those of Debian are older.
#include "../../../../tools/cli/tests/llvm/freestanding/rpc.h"

enum { FUNCTION = 'r' << 24, DEVICE_MEMORY, SANITIZER, PRINTF };

static uint64_t ask(uint32_t opcode, const uint64_t *words, int count) {
  struct rpc_port port = rpc_open(opcode);
  rpc_wait(&port);
  for (int i = 0; i < count; i++)
    rpc_data(&port)->data[i] = words[i];
  rpc_hand_over(&port);
  uint64_t answer = rpc_receive(&port)->data[0];
  rpc_close(&port);
  return answer;
}

__gpu_kernel void squares(uint64_t *out, uint64_t square) {
  uint64_t lane = __gpu_block_id_x() * __gpu_num_threads_x() + __gpu_thread_id_x();
  uint64_t words[] = {square, lane};
  out[lane] = ask(FUNCTION, words, 2);
}

// Keeps a number in memory of the host's, and gives the memory back.
__gpu_kernel void allocates(uint64_t *out) {
  uint64_t words[] = {0, 64};
  volatile uint64_t *memory = (volatile uint64_t *)ask(DEVICE_MEMORY, words, 2);
  *memory = 42;
  *out = *memory;
  words[0] = (uint64_t)memory;
  ask(DEVICE_MEMORY, words, 2);
}

// Has words answered that nobody knows, in a call of several packets, and writes what came.
__gpu_kernel void asks_nobody(uint64_t *out, uint64_t opcode) {
  struct rpc_port port = rpc_open((uint32_t)opcode);
  rpc_send_word(&port, 5);
  uint64_t answers = rpc_receive(&port)->data[0];
  answers += rpc_receive(&port)->data[0];
  rpc_send_word(&port, 6);
  answers += rpc_receive(&port)->data[0];
  rpc_close(&port);
  out[__gpu_thread_id_x()] = answers;
}

__gpu_kernel void prints(void) {
  // The beginning and end of a message of three words: standard output, the format, the argument.
  uint64_t words[] = {1 | 2 | 3 << 5, 0, 0, 7};
  rpc_copy(&words[2], "n=%lu\n\0", 8);
  ask(PRINTF, words, 4);
}
