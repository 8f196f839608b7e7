// run: --blocks-y 2 --blocks-z 2 --threads-x 2 --threads-y 3 --threads-z 2
// sorted
// exit: 0
#include <gpuids.h>
#include <stdio.h>

int main(void) {
  printf("block %u %u %u thread %u %u %u lane %u\n", block_in(0), block_in(1), block_in(2), thread_in(0), thread_in(1),
         thread_in(2), lane_of_grid());
  return 0;
}
