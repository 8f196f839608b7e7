// internal
// bench
// Times calls that do nothing, as seen by the lanes. Arguments: the calls of each lane, 1000 if absent.
#include "include/llvm-libc-types/test_rpc_opcodes_t.h"
#include "src/__support/GPU/utils.h"
#include "src/__support/RPC/rpc_client.h"
#include <gpuids.h>
#include <stdio.h>
#include <stdlib.h>

using namespace LIBC_NAMESPACE;

static unsigned long long begins[1 << 18], ends[1 << 18];
static unsigned ended, wrong;

// How long the clock's unit is.
#ifdef __NVPTX__
static const double TICK = 1e-9;
#else
static const double TICK = 1e-8;
#endif

extern "C" int main(int argc, char **argv) {
  unsigned calls = argc > 1 ? atoi(argv[1]) : 1000;
  unsigned lanes = threads_in(0) * blocks_in(0);
  unsigned lane = lane_of_grid();
  begins[lane] = gpu::fixed_frequency_clock();
  for (unsigned i = 0; i < calls; i++) {
    rpc::Client::Port port = rpc::client.open<RPC_TEST_INCREMENT>();
    port.send_and_recv([=](rpc::Buffer *buffer) { buffer->data[0] = i; },
                       [=](rpc::Buffer *buffer) {
                         if (buffer->data[0] != i + 1)
                           wrong = 1;
                       });
    port.close();
  }
  ends[lane] = gpu::fixed_frequency_clock();
#ifdef __NVPTX__
  // LLVM 19 has no instruction for a fence there.
  __nvvm_membar_gl();
#else
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
  if (__atomic_fetch_add(&ended, 1, __ATOMIC_RELAXED) == lanes - 1) {
    unsigned long long first = ~0ull, last = 0;
    for (unsigned i = 0; i < lanes; i++) {
      unsigned long long begin = ((volatile unsigned long long *)begins)[i], end = ((volatile unsigned long long *)ends)[i];
      first = begin < first ? begin : first;
      last = end > last ? end : last;
    }
    double seconds = (double)(last - first) * TICK;
    unsigned wave = gpu::get_lane_size();
    unsigned waves = (threads_in(0) + wave - 1) / wave * blocks_in(0);
    printf("%u waves of %u lanes: %.2f us a call, %.3f M wave calls/s\n", waves,
           threads_in(0) < wave ? threads_in(0) : wave, seconds / calls * 1e6, waves * (double)calls / seconds / 1e6);
  }
  return wrong;
}
