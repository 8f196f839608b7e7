// exit: 0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void) {
  int numbers[] = {5, 3, 9, 1, 7};
  qsort(numbers, 5, sizeof *numbers, ascending);
  for (int i = 0; i < 5; i++)
    printf("%d ", numbers[i]);
  printf("\n%ld %f %d\n", strtol("-123abc", NULL, 10), strtod("2.5e3", NULL), atoi("77"));
  char text[32];
  snprintf(text, sizeof text, "%s-%d", "made", 12);
  printf("%s %zu %s\n", text, strlen(text), strchr(text, '-'));
  return 0;
}
