// run: --threads 96 --blocks 9
// exit: 0
#include "start.h"

// Every lane gets its own answers, also where lanes diverge and sizes differ.
int main(int argc, char **argv, char **envp) {
  (void)argc, (void)argv, (void)envp;
  uint32_t lane = lane_of_grid();
  for (uint32_t i = 0; i < 10 + lane % 3; i++) {
    struct rpc_port port = rpc_open(RPC_TEST_INCREMENT);
    rpc_send_word(&port, (uint64_t)lane << 32 | i);
    uint64_t answer = rpc_receive(&port)->data[0];
    rpc_close(&port);
    if (answer != ((uint64_t)lane << 32 | i) + 1)
      return 1;
  }

  static const char sent[] = "Bytes that the host sends back as they are, in as many pieces as they need; some lanes send "
                             "all of them and others only the first few, or none at all, which costs them nothing.";
  char received[sizeof sent];
  uint64_t bytes = lane * 7 % sizeof sent;
  struct rpc_port port = rpc_open(RPC_TEST_STREAM);
  rpc_send(&port, sent, bytes);
  uint64_t count = rpc_receive_bytes(&port, received, sizeof received);
  rpc_close(&port);
  if (count != bytes)
    return 2;
  for (uint64_t i = 0; i < bytes; i++)
    if (received[i] != sent[i])
      return 4;
  return 0;
}
