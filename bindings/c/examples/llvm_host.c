/*
 * A host of LLVM's RPC protocol, as a loader or an offload runtime is one: it owns the ports' memory, polls the server while its
 * program runs, answers opcodes of its own, and ends with the program's exit code. libc's opcodes are the server's.
 *
 * The program is a thread of this process in the place of a kernel, so that this runs without a GPU. llvm.c is the same host for
 * programs that HSA loads: there the client object goes into the image.
 */
#include "hostcall.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 64, LANES = 1, LIBC = 'c' << 24, OURS = 'x' << 24 };

static hostcall_error *error;

static void check(hostcall_status status) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", hostcall_error_text(error));
    exit(1);
}

/* The client object of LLVM 20 to 22, which code on the device has as __llvm_rpc_client. */
struct client {
    uint32_t ports, *inbox, *outbox;
    struct { uint64_t mask, opcode; } *headers;
    uint64_t (*buffers)[8];
    uint32_t locks[128];
};

/* Hands port 0 over to the host. This program has one lane and makes one call at a time, so that it locks no port. */
static void hand_over(struct client *client) {
    __atomic_store_n(client->outbox, !*client->outbox, __ATOMIC_RELEASE);
}

static uint64_t *wait_for_host(struct client *client) {
    while (__atomic_load_n(client->inbox, __ATOMIC_ACQUIRE) != *client->outbox)
        sched_yield();
    return client->buffers[0];
}

/* One packet there and one back. Returns what came back. */
static uint64_t *call(struct client *client, uint32_t opcode, const uint64_t *words) {
    memcpy(wait_for_host(client), words, sizeof *client->buffers);
    client->headers[0].mask = 1, client->headers[0].opcode = opcode;
    hand_over(client);
    return wait_for_host(client);
}

/* What code on the device does. */
static void *program(void *of_device) {
    struct client *client = of_device;
    uint64_t words[8] = {40}, text[8] = {0};
    uint64_t sum = *call(client, OURS + 2, words), nobody = *call(client, OURS + 100, words);
    text[0] = (uint64_t)snprintf((char *)&text[1], 56, "40 + 2 is %d, and what nobody has %d\n", (int)sum, (int)nobody);
    call(client, LIBC | 2, text); /* Writes to standard output. */
    call(client, LIBC | 1, words); /* Exits: the host agrees, and gets the code. */
    *wait_for_host(client) = 3;
    hand_over(client);
    return NULL;
}

// ANCHOR: host
/* Answers the opcodes OURS to OURS + 9: adds the opcode's number to the first word of each lane that calls. */
static int32_t add(void *calls, uint32_t opcode, uint64_t mask, uint64_t (*buffers)[8]) {
    for (int lane = 0; lane < LANES; lane++)
        if (mask >> lane & 1)
            buffers[lane][0] += opcode - OURS;
    ++*(int *)calls;
    return 0;
}

int main(void) {
    hostcall_options *options;
    hostcall_llvm_server *server;
    hostcall_llvm_config config = {.version = HOSTCALL_LLVM_VERSION_OBJECT, .ports = PORTS, .lanes = LANES};
    hostcall_llvm_counts counts;
    struct client client;
    pthread_t kernel;
    int32_t code = 0, added = 0;

    config.bytes = hostcall_llvm_memory_bytes(config.version, PORTS, LANES);
    if (posix_memalign(&config.memory, 64, config.bytes) != 0)
        return 1;
    memset(config.memory, 0, config.bytes);
    config.device_address = (uint64_t)(uintptr_t)config.memory;
    config.answers_faults = true; /* What nobody has is answered with zeros, and counted. */
    check(hostcall_options_new("", &options, &error));
    check(hostcall_llvm_server_start(&options, &config, &server, &error));
    check(hostcall_llvm_server_handle_packets(server, OURS, OURS + 9, true, add, &added, NULL, &error));
    check(hostcall_llvm_server_client(server, (uint8_t *)&client, sizeof client, &error));

    pthread_create(&kernel, NULL, program, &client); /* A loader launches the kernel here. */
    while (!hostcall_llvm_server_ended(server, &code))
        if (hostcall_llvm_server_poll(server) == 0)
            sched_yield();
    pthread_join(kernel, NULL);
    hostcall_llvm_server_flush(server);
    check(hostcall_llvm_server_statistics(server, &counts, &error));
    printf("%d calls, %d of ours, %d that nobody has; exit code %d\n", (int)counts.calls, added,
           (int)counts.faults, code);
    hostcall_llvm_server_free(&server);
    free(config.memory);
    return code;
}
// ANCHOR_END: host
