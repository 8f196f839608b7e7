// exit: 7
#include "start.h"

static int made;

struct Object {
  int value;
  Object(int value) : value(value) {
    print("an object is made\n");
    made |= value;
  }
};

static Object object(2);

[[gnu::constructor(101)]] static void first() {
  print("the first constructor\n");
  made |= made == 0 ? 1 : 8;
}

[[gnu::destructor]] static void last() { print("a destructor\n"); }

int main(int, char **, char **) {
  print("main\n");
  return made | (object.value == 2 ? 4 : 0);
}
