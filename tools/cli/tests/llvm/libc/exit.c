// run: --threads 64 --blocks 4
// exit: 7
#include <gpuids.h>
#include <stdlib.h>

// One lane ends the program while the others run.
int main(void) {
  if (lane_of_grid() == 77)
    exit(7);
  while (lane_of_grid() < 1000000)
    sync_wave();
  return 0;
}
