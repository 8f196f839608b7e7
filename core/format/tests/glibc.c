/* Prints each line of standard input as a conversion: FORMAT, stars, kind, values, separated by tabs. Each result
 * is its length, a space and its bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRINT(value)                                                                                     \
    (stars == 0   ? snprintf(out, sizeof out, format, value)                                             \
     : stars == 1 ? snprintf(out, sizeof out, format, star[0], value)                                    \
                  : snprintf(out, sizeof out, format, star[0], star[1], value))

int main(void) {
    static char line[65536], out[65536];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        char *format = strtok(line, "\t");
        int stars = atoi(strtok(NULL, "\t"));
        char kind = *strtok(NULL, "\t");
        int star[2];
        for (int i = 0; i < stars; i++) star[i] = atoi(strtok(NULL, "\t"));
        char *value = strtok(NULL, "\t");
        unsigned long long bits = kind == 's' ? 0 : strtoull(value, NULL, 16);
        double number;
        memcpy(&number, &bits, sizeof number);
        int len = kind == 'i'   ? PRINT((int)bits)
                  : kind == 'l' ? PRINT(bits)
                  : kind == 'd' ? PRINT(number)
                  : kind == 'p' ? PRINT((void *)bits)
                  : kind == '0' ? PRINT((char *)NULL)
                                : PRINT(value);
        if (len < 0 || len >= (int)sizeof out) return 1;
        printf("%d ", len);
        fwrite(out, 1, len, stdout);
    }
    return 0;
}
