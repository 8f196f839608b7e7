// args: one 'two words'
// env: COLOUR=blue
// exit: 3
#include "start.h"

int main(int argc, char **argv, char **envp) {
  print("Hello from a program without a libc.\n");
  for (int i = 1; i < argc; i++) {
    print(argv[i]);
    print("\n");
  }
  for (char **variable = envp; *variable; variable++)
    if ((*variable)[0] == 'C' && (*variable)[6] == '=') {
      print(*variable);
      print("\n");
    }
  return argv[argc] ? 1 : argc;
}
