/* Lines with every kind of argument, the same as HIP's and as C's. `lane` is a number, `text` a string in memory. */
#define PRINTS(lane, text)                                                                                     \
    printf("plain text\n");                                                                                    \
    printf("%%d %d %i %5d|%-5d|%05d|%+d|% d\n", 0, -3, 42, 42, 42, 42, 42);                                   \
    printf("%%u %u %o %#o %x %X %#x\n", 4000000000u, 8u, 8u, 48879u, 48879u, 48879u);                         \
    printf("sizes %hhd %hd %ld %lld %lu %llx %zu %jd %td\n", (signed char)-1, (short)-2, -3l, -4ll,            \
           18446744073709551615ul, 0x123456789abcdefull, (__SIZE_TYPE__)7, (__INTMAX_TYPE__)-8,                \
           (__PTRDIFF_TYPE__)-9);                                                                              \
    printf("%%c %c%c%5c|%-5c|\n", 'x', '\n', 'y', 'z');                                                        \
    printf("%%s [%s] [%10s] [%-10s] [%.2s] [%*s] [%.*s]\n", "abc", "abc", "abc", "abc", 6, "abc", 1, "abc");    \
    printf("memory [%s]\n", text);                                                                             \
    printf("empty [%s]\n", "");                                                                                \
    printf("%%f %f %.0f %.10f %10.3f|%-10.2f|%+f\n", 1.5, 2.5, 1.0 / 3, 3.14159, 3.14159, 1.0);              \
    printf("%%e %e %E %g %G %g %a %A\n", 12345.678, 12345.678, 1e-10, 1e-10, 100000.0, 1.5, 1.5);             \
    printf("special %f %f %f %F %g\n", __builtin_inf(), -__builtin_inf(), -0.0, __builtin_inf(), 5e-324);       \
    printf("float %f %f\n", (double)0.1f, (double)(lane));                                                    \
    printf("%%p %p %p\n", (void *)0x1234abcd, (void *)(lane));                                                 \
    printf("width %*d %-*d| precision %.*f %.3d\n", 7, 42, 7, 42, 2, 2.71828, 5);                             \
    printf("many %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,    \
           13, 14, 15, 16);                                                                                    \
    printf("mixed %s %d %s %f %s %c\n", "one", 1, "two", 2.0, "three", '3')
