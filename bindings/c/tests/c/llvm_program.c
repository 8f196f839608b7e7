// A program of LLVM's protocol that examples/llvm.c runs. Its client of the protocol is that of the command's tests.
#include "start.h"

int main(int argc, char **argv, char **envp) {
  (void)envp;
  uint64_t lane = lane_of_grid();
  if (lane == 0) {
    print(argv[argc - 1]);
    print("\n");
  }
  struct rpc_port port = rpc_open(OPCODE(10));
  rpc_send_word(&port, 64 + lane);
  volatile uint64_t *memory = (volatile uint64_t *)rpc_receive(&port)->data[0];
  rpc_close(&port);
  memory[lane % 8] = lane;
  int wrong = memory[lane % 8] != lane;
  port = rpc_open(OPCODE(11));
  rpc_send_word(&port, (uint64_t)memory);
  rpc_close(&port);
#if RPC_VERSION != 19
  port = rpc_open((uint32_t)'x' << 24 | 3);
  rpc_send_word(&port, lane);
  wrong |= rpc_receive(&port)->data[0] != 2 * lane;
  rpc_close(&port);
#endif
  // Each lane's is joined bit by bit.
  return wrong ? 1 : 8 | argc;
}
