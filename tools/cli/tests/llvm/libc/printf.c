// exit: 0
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int main(void) {
  const char *missing = NULL;
  char buffer[64] = "text";
  int len = printf("[%d] [%5d] [%-5d] [%05d] [%+d] [% d] [%.3d]\n", 42, 42, 42, 42, 42, 42, 7);
  printf("%d bytes\n", len);
  printf("[%hhd] [%hd] [%ld] [%lld] [%zu] [%jd] [%td]\n", 300, 70000, -1L, 1LL << 62, (size_t)-1, (intmax_t)5, (ptrdiff_t)-6);
  printf("[%u] [%x] [%X] [%#x] [%o] [%#o] [%lx]\n", 3000000000u, 48879, 48879, 255, 8, 8, -1L);
  printf("[%c] [%3c] [%s] [%10s] [%-10s] [%.2s] [%s]\n", 'x', 'y', buffer, buffer, buffer, buffer, missing);
  printf("[%*d] [%-*d] [%.*f] [%*.*f]\n", 6, 1, 6, 2, 2, 3.14159, 8, 3, -2.71828);
  printf("[%f] [%F] [%e] [%E] [%g] [%G] [%a]\n", 1.5, -0.0, 12345.678, 1e-300, 0.0001, 1e10, 0.1);
  printf("[%p] [%p] [%%]\n", (void *)0x1234, (void *)0);
  printf("mixed %d %f %s %c %ld %s %.1f\n", 1, 2.5, "three", '4', 5L, "six", 7.0);
  return 0;
}
