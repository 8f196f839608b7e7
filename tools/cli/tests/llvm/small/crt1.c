// Starts a program that is linked with the small library in this folder, which stands in for LLVM's libc: `hostcall cc` finds
// both in the same way. All that speaks the protocol is here.
#include "../freestanding/start.h"

int print_line(const char *text) {
  struct rpc_port port = rpc_open(OPCODE(5));
  rpc_send(&port, text, length(text));
  int written = (int)rpc_receive(&port)->data[0];
  rpc_close(&port);
  return written;
}
