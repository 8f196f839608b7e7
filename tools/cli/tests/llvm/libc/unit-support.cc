// What LLVM's framework of unit tests needs beside LLVM's libc, which has no functions of C++ and, up to LLVM 19, no realloc.
#include <stdlib.h>
#include <string.h>

// How long the latest blocks are that realloc has given, of which only strings of the framework are made.
struct Block {
  void *memory;
  size_t bytes;
};
static Block blocks[64];
static unsigned next;

extern "C" __attribute__((weak)) void *realloc(void *old, size_t bytes) {
  void *memory = malloc(bytes);
  if (!memory)
    return nullptr;
  for (unsigned back = 1; old && back <= 64; back++) {
    const Block &block = blocks[(next - back) % 64];
    if (block.memory == old) {
      memcpy(memory, old, block.bytes < bytes ? block.bytes : bytes);
      break;
    }
  }
  free(old);
  blocks[next++ % 64] = {memory, bytes};
  return memory;
}

void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, size_t) noexcept { free(memory); }
extern "C" void __cxa_pure_virtual() { abort(); }
