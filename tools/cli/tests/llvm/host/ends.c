// Ends as its first argument says, after a line that must not be lost.
#include "start.h"
#include <string.h>
#include <unistd.h>

static void first(void) { print("the first constructor\n"); }
static void second(void) { print("the second constructor\n"); }
static void last(void) { print("the destructor\n"); }

// As the compiler for GPUs names them.
void (*__init_array_object_second_65535)(void) = second;
void (*__init_array_object_first_101)(void) = first;
void (*__fini_array_object_last_65535)(void) = last;
uint64_t __llvm_libc_clock_freq = 1;

int main(int argc, char **argv, char **envp) {
  const char *how = argc > 1 ? argv[1] : "return";
  print("main\n");
  if (!strcmp(how, "exit")) {
    struct rpc_port port = rpc_open(RPC_EXIT);
    rpc_send_word(&port, 0);
    rpc_receive(&port);
    rpc_send_word(&port, 9);
    rpc_close(&port);
    // As other lanes of a GPU's would go on.
    pause();
  } else if (!strcmp(how, "abort")) {
    struct rpc_port port = rpc_open(OPCODE(13));
    rpc_send_word(&port, 0);
    rpc_receive(&port);
    rpc_send_word(&port, 0);
    rpc_close(&port);
    pause();
  } else if (!strcmp(how, "fault")) {
    fault = 1;
  } else if (!strcmp(how, "hang")) {
    pause();
  } else if (!strcmp(how, "garbage")) {
    struct rpc_port port = rpc_open(0x7777);
    rpc_send_word(&port, 0);
    rpc_receive(&port);
  } else if (!strcmp(how, "clock")) {
    return __llvm_libc_clock_freq == 1000000000 ? 0 : 1;
  }
  return 1 << (lane_of_grid() % 5);
}
