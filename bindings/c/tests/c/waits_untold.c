/*
 * A wait for which no entry of the table is free is counted once, however often it looks for one, and takes one once there is: with a
 * table of one entry in memory of this program's. Returns 0 if it is so.
 */
#include "hostcall_device.h"
#include <stdio.h>
#include <string.h>

static uint64_t context[512], waits[512], table[64];

static void put(void *memory, uint64_t byte, const void *value, size_t bytes) {
    memcpy((unsigned char *)memory + byte, value, bytes);
}

static void poll(struct hostcall_wait *wait, int count) {
    for (int i = 0; i < count; i++)
        hostcall_wait_goes_on(wait, (uint64_t)(uintptr_t)context, "signal", 0, 1, 5);
}

static int is(const char *what, uint64_t value, uint64_t expected) {
    if (value != expected)
        printf("%s is %llu, and not %llu\n", what, (unsigned long long)value, (unsigned long long)expected);
    return value == expected;
}

int main(void) {
    const uint64_t version = HOSTCALL_CONTEXT_MAGIC | (uint64_t)HOSTCALL_CONTEXT_MAJOR << 32;
    const uint32_t flags = HOSTCALL_WAITS_VERSION << HOSTCALL_WAITS_SHIFT, launch = 7, entries = 1;
    const uint64_t of_waits = (uint64_t)(uintptr_t)waits, of_table = (uint64_t)(uintptr_t)table;
    put(context, 0, &version, sizeof version);
    put(context, HOSTCALL_CONTEXT_FLAGS_BYTE, &flags, sizeof flags);
    put(context, HOSTCALL_CONTEXT_WAITS_BYTE, &of_waits, sizeof of_waits);
    put(context, HOSTCALL_CONTEXT_LAUNCH_BYTE, &launch, sizeof launch);
    put(waits, HOSTCALL_WAITS_TABLE_BYTE, &of_table, sizeof of_table);
    put(waits, HOSTCALL_WAITS_ENTRIES_BYTE, &entries, sizeof entries);

    const uint64_t *untold = &table[HOSTCALL_WAITS_UNTOLD_WORD], *head = &table[HOSTCALL_WAITS_HEADER_BYTES / 8];
    struct hostcall_wait told = HOSTCALL_WAIT_BEGIN, counted = HOSTCALL_WAIT_BEGIN;
    poll(&told, 100000);
    poll(&counted, 100000);
    int good = is("the count", *untold, 1) & is("an entry", *head != 0, 1);
    hostcall_wait_end(&told, (uint64_t)(uintptr_t)context);
    good &= is("the entry", *head, 0);
    poll(&counted, 20000);
    good &= is("the count", *untold, 1) & is("an entry", *head != 0, 1);
    hostcall_wait_end(&counted, (uint64_t)(uintptr_t)context);
    good &= is("the entry", *head, 0) & is("what the lane has", counted.told, 0);
    /* Of the next wait there is nothing left. */
    poll(&told, 2000);
    poll(&counted, 2000);
    hostcall_wait_end(&counted, (uint64_t)(uintptr_t)context);
    good &= is("the count", *untold, 2) & is("an entry", *head != 0, 1);
    return !good;
}
