/* What a kernel shall print, as C prints it. */
#include "prints.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **arguments) {
    if (count != 3) return 1;
    unsigned long lane = strtoul(arguments[1], NULL, 10);
    const char *text = arguments[2];
    PRINTS(lane, text);
    return 0;
}
