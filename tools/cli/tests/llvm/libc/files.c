// exit: 0
#include <stdio.h>
#include <string.h>

static const char *NAME = "llvm-files.tmp";

int main(void) {
  FILE *file = fopen("no/such/file", "r");
  printf("missing: %d\n", file != NULL);
  file = fopen(NAME, "w");
  printf("%zu written\n", fwrite("first\nsecond\nthird", 1, 18, file));
  fprintf(file, " %s %d\n", "line", 3);
  printf("closed: %d\n", fclose(file));

  file = fopen(NAME, "r");
  char line[64];
  while (fgets(line, sizeof line, file))
    printf("%zu: %s", strlen(line), line);
  printf("at the end: %d, failed: %d\n", feof(file) != 0, ferror(file) != 0);
  clearerr(file);
  printf("at the end: %d\n", feof(file) != 0);
  printf("seek: %d\n", fseek(file, 6, SEEK_SET));
  int letter = fgetc(file);
  printf("read: %c\n", letter);
  printf("unread: %c\n", ungetc('S', file));
  size_t count = fread(line, 1, 6, file);
  printf("%zu bytes: %.6s\n", count, line);
  fclose(file);

  file = fopen(NAME, "a");
  fputs("appended\n", file);
  fclose(file);
  file = fopen(NAME, "rb");
  int total = 0;
  while (fgetc(file) != EOF)
    total++;
  printf("%d bytes in all\n", total);
  fclose(file);
  printf("removed: %d\n", remove(NAME));
  printf("removed again: %d\n", remove(NAME) == 0);
  return 0;
}
