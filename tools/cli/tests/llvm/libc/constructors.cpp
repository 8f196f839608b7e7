// exit: 0
#include <stdio.h>

static int counter;

struct Noisy {
  const char *name;
  explicit Noisy(const char *name) : name(name) { printf("%d: made %s\n", ++counter, name); }
  ~Noisy() { printf("%d: destroyed %s\n", ++counter, name); }
};

static Noisy plain("plain");
[[gnu::constructor(200)]] static void late() { printf("%d: priority 200\n", ++counter); }
[[gnu::constructor(101)]] static void early() { printf("%d: priority 101\n", ++counter); }
[[gnu::destructor(101)]] static void last() { printf("%d: destructor 101\n", ++counter); }
[[gnu::destructor(200)]] static void before() { printf("%d: destructor 200\n", ++counter); }

int main() {
  printf("%d: main\n", ++counter);
  return 0;
}
