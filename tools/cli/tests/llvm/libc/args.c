// args: one 'two words' ''
// env: COLOUR=blue
// exit: 4
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv, char **envp) {
  printf("%d arguments\n", argc);
  for (int i = 1; i < argc; i++)
    printf("%d: [%s]\n", i, argv[i]);
  printf("after the last: %p\n", (void *)argv[argc]);
  for (char **variable = envp; *variable; variable++)
    if (!strncmp(*variable, "COLOUR=", 7))
      puts(*variable);
  return argc;
}
