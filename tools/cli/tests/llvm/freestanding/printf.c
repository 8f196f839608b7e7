// run: --threads 4
// sorted
// exit: 0
#include "start.h"

// What C's variadic arguments are to printf, in the layout of the device's calls.
#ifdef __NVPTX__
#define OPCODE_OF_PRINTF RPC_PRINTF
struct arguments {
#else
#define OPCODE_OF_PRINTF RPC_PRINTF_PACKED
struct __attribute__((packed)) arguments {
#endif
  int number;
  double fraction;
  const char *text;
  int letter;
};

int main(int argc, char **argv, char **envp) {
  (void)argc, (void)argv, (void)envp;
  static const char format[] = "lane %d: %.2f %s %c\n";
  uint32_t lane = lane_of_grid();
  struct arguments arguments = {(int)lane, lane + 0.25, lane == 2 ? 0 : "text", 'a' + (int)lane};
  struct rpc_port port = rpc_open(OPCODE_OF_PRINTF);
  rpc_send(&port, format, sizeof format);
  uint64_t bytes = rpc_receive(&port)->data[0];
  rpc_send(&port, &arguments, bytes);
  int printed;
  for (;;) {
    struct rpc_buffer *buffer = rpc_receive(&port);
    const char *wanted = (const char *)buffer->data[1];
    printed = (int)buffer->data[0];
    if (!__gpu_ballot(port.mask, wanted != 0))
      break;
    rpc_send(&port, wanted, wanted ? length(wanted) + 1 : 0);
  }
  rpc_close(&port);
  return bytes != sizeof arguments - (sizeof arguments == 32 ? 4 : 0) ? 1 : printed == (lane == 2 ? 22 : 20) ? 0 : 2;
}
