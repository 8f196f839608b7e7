// exit: 0
#include <stddef.h>
#include <stdio.h>
#include <time.h>

int main(void) {
  clock_t begin = clock();
  struct timespec pause = {0, 20000000}, from, to;
  clock_gettime(CLOCK_MONOTONIC, &from);
  nanosleep(&pause, NULL);
  clock_gettime(CLOCK_MONOTONIC, &to);
  long long ns = (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
  puts(clock() > begin ? "the clock goes on" : "the clock stands");
  puts(ns >= 20000000 && ns < 10000000000LL ? "slept" : "did not sleep");
  return 0;
}
