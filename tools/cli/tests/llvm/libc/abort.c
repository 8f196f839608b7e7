// exit: 134
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  puts("before");
  abort();
  puts("after");
}
