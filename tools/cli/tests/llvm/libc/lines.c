// run: --threads 128 --blocks 64
// sorted
// prints: seq -w 0000 8191
// exit: 0
#include <gpuids.h>
#include <stdio.h>

// 8192 lanes write a line each; a line stays whole.
int main(void) {
  char line[32];
  int at = 0;
  unsigned lane = lane_of_grid();
  for (unsigned unit = 1000; unit; unit /= 10)
    line[at++] = (char)('0' + lane / unit % 10);
  line[at] = 0;
  puts(line);
  return 0;
}
