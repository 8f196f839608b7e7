// exit: 0
#include <stdio.h>

int main(void) {
  fputs("to standard output\n", stdout);
  fputs("to standard error\n", stderr);
  fprintf(stderr, "formatted %d\n", 1);
  fprintf(stdout, "formatted %d\n", 2);
  puts("a line");
  putchar('c');
  putchar('\n');
  printf("%zu bytes\n", fwrite("written\n", 1, 8, stdout));
  fflush(stdout);
  return 0;
}
