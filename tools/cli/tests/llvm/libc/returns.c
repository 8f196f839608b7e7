// run: --threads 7
// exit: 127
#include <gpuids.h>

// What the lanes return is gathered bit by bit.
int main(void) { return 1 << lane_of_grid(); }
