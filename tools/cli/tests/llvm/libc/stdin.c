// stdin: one\ntwo words\n\nlast
// exit: 0
#include <stdio.h>
#include <string.h>

int main(void) {
  char line[16];
  printf("first: %c\n", getchar());
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    printf("[%s]\n", line);
  }
  printf("at the end: %d\n", feof(stdin) != 0);
  return 0;
}
