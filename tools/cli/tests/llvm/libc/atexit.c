// exit: 3
#include <stdio.h>
#include <stdlib.h>

static void first(void) { puts("registered first"); }
static void second(void) { puts("registered second"); }

int main(void) {
  atexit(first);
  atexit(second);
  puts("main");
  return 3;
}
