// What starts a program: the kernels that loaders of LLVM's programs call, and a few functions over RPC.
#pragma once
#include "rpc.h"

#ifdef __cplusplus
extern "C" {
#endif

int main(int argc, char **argv, char **envp);

#ifdef __NVPTX__
// NVIDIA's linker makes no such lists: the loader does, of the variables that the compiler defines for each function.
__attribute__((visibility("protected"), used)) void (**__init_array_start)(void);
__attribute__((visibility("protected"), used)) void (**__init_array_end)(void);
__attribute__((visibility("protected"), used)) void (**__fini_array_start)(void);
__attribute__((visibility("protected"), used)) void (**__fini_array_end)(void);
#else
extern __attribute__((visibility("hidden"))) void (*__init_array_start[])(void);
extern __attribute__((visibility("hidden"))) void (*__init_array_end[])(void);
extern __attribute__((visibility("hidden"))) void (*__fini_array_start[])(void);
extern __attribute__((visibility("hidden"))) void (*__fini_array_end[])(void);
#endif

__gpu_kernel void _begin(int argc, char **argv, char **envp) {
  (void)argc, (void)argv, (void)envp;
  for (size_t i = 0; i < (size_t)(__init_array_end - __init_array_start); i++)
    __init_array_start[i]();
}

__gpu_kernel void _start(int argc, char **argv, char **envp, int *result) {
  __scoped_atomic_fetch_or(result, main(argc, argv, envp), __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
}

__gpu_kernel void _end(int code) {
  for (size_t i = __fini_array_end - __fini_array_start; i > 0; i--)
    __fini_array_start[i - 1]();
  struct rpc_port port = rpc_open(RPC_EXIT);
  rpc_send_word(&port, 0);
  rpc_receive(&port);
  rpc_send_word(&port, (uint32_t)code);
  rpc_close(&port);
}

#ifdef __cplusplus
}
#endif

static inline uint64_t length(const char *text) {
  uint64_t bytes = 0;
  while (((const volatile char *)text)[bytes])
    bytes++;
  return bytes;
}

// Prints; the server's answer is the number of bytes.
static uint64_t print(const char *text) {
  struct rpc_port port = rpc_open(RPC_WRITE);
  rpc_send(&port, text, length(text));
  uint64_t written = rpc_receive(&port)->data[0];
  rpc_close(&port);
  return written;
}

static inline uint32_t lane_of_grid(void) {
  return __gpu_block_id_x() * __gpu_num_threads_x() + __gpu_thread_id_x();
}
