// echoes: printf.cubin
// exit: 0
#include <stdio.h>

// Copies bytes of any value and number.
int main(void) {
  static char buffer[3000];
  size_t count;
  while ((count = fread(buffer, 1, sizeof buffer, stdin)) > 0)
    if (fwrite(buffer, 1, count, stdout) != count)
      return 1;
  return 0;
}
