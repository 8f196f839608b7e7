// run: --threads 64 --blocks 8
// exit: 0
#include <gpuids.h>
#include <stdio.h>
#include <stdlib.h>

// Every lane keeps blocks of several sizes with bytes of its own in them.
int main(void) {
  unsigned char *blocks[16];
  unsigned lane = lane_of_grid();
  for (unsigned i = 0; i < 16; i++) {
    unsigned size = 1 + (lane * 7 + i * 97) % 1500;
    blocks[i] = malloc(size);
    if (!blocks[i]) {
      puts("no memory");
      return 1;
    }
    for (unsigned at = 0; at < size; at++)
      blocks[i][at] = (unsigned char)(lane + i);
  }
  for (unsigned i = 0; i < 16; i++) {
    unsigned size = 1 + (lane * 7 + i * 97) % 1500;
    for (unsigned at = 0; at < size; at++)
      if (blocks[i][at] != (unsigned char)(lane + i)) {
        printf("lane %u: block %u was overwritten\n", lane, i);
        return 2;
      }
    free(blocks[i]);
  }
  return 0;
}
