// exit: 134
// complains: few arguments
#undef NDEBUG
#include <assert.h>

int main(int argc, char **argv) {
  (void)argv;
  assert(argc > 5 && "few arguments");
  return 0;
}
