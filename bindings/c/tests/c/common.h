/* What the hosts share: how they check, and counts that several threads add to. */
#include "hostcall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPECT(condition)                                                       \
    do {                                                                        \
        if (!(condition)) {                                                     \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                            \
        }                                                                       \
    } while (0)

static hostcall_error *error;

static inline void works(hostcall_status status) {
    if (status != HOSTCALL_STATUS_OK || error) {
        fprintf(stderr, "status %d: %s\n", (int)status, hostcall_error_text(error));
        exit(1);
    }
}

/* Checks a status and that the error's sentence has this in it. */
static inline void fails(hostcall_status status, hostcall_status expected, const char *text) {
    if (status != expected || hostcall_error_status(error) != expected || !strstr(hostcall_error_text(error), text)) {
        fprintf(stderr, "status %d, not %d with \"%s\": %s\n", (int)status, (int)expected, text, hostcall_error_text(error));
        exit(1);
    }
    hostcall_error_free(&error);
    EXPECT(error == NULL);
}

struct counts {
    int called, freed;
};

static inline void add(int *count) {
    __atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
}

static inline int get(const int *count) {
    return __atomic_load_n(count, __ATOMIC_ACQUIRE);
}

/* A function of the host's, and what frees its state. */
static inline void count_call(void *state) {
    add(&((struct counts *)state)->called);
}

static inline void free_counts(void *state) {
    add(&((struct counts *)state)->freed);
}

static inline void pause_a_moment(void) {
    const struct timespec pause = {0, 200000};
    nanosleep(&pause, NULL);
}
