// run: --threads 64 --blocks 4
// exit: 7
#include <gpuids.h>
#include <stdlib.h>

// Whether this lane ends the program. Of a wave of AMD's all lanes do: one that loops would keep the others from their branch.
static int ends(void) {
#ifdef __NVPTX__
  return lane_of_grid() == 77;
#else
  return block_in(0) == 1;
#endif
}

// The program ends while other lanes run.
int main(void) {
  if (ends())
    exit(7);
  while (lane_of_grid() < 1000000)
    wait_a_moment();
  return 0;
}
