/* A host that uses the library, one behaviour for each name on the command line. */
#include "amd_hostcall.h"
#include "device.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                            \
            _exit(1);                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(function) EXPECT((function) == AMD_HOSTCALL_SUCCESS)

enum { SERVICE = 700 };

static struct root *new_buffer(uint32_t packets) {
    size_t bytes = amd_hostcall_get_buffer_size(packets);
    size_t alignment = amd_hostcall_get_buffer_alignment();
    void *buffer = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    EXPECT(buffer);
    OK(amd_hostcall_initialize_buffer(buffer, packets));
    return buffer;
}

static amd_hostcall_consumer_t *new_consumer(void) {
    amd_hostcall_consumer_t *consumer;
    OK(amd_hostcall_create_consumer(&consumer));
    return consumer;
}

/* A consumer that runs and serves a buffer. */
static amd_hostcall_consumer_t *serve(struct root *root) {
    amd_hostcall_consumer_t *consumer = new_consumer();
    OK(amd_hostcall_register_buffer(consumer, root));
    OK(amd_hostcall_launch_consumer(consumer));
    return consumer;
}

static int increment(void *state, uint32_t service, uint64_t *payload) {
    EXPECT(service >= SERVICE);
    if (state)
        atomic_fetch_add((_Atomic unsigned *)state, 1);
    payload[0] += 1;
    payload[1] = payload[7];
    return 0;
}

static uint64_t call_one(struct root *root, uint32_t service, uint64_t word) {
    static _Thread_local uint64_t lanes[64][8];
    memset(lanes, 0, sizeof lanes);
    lanes[0][0] = word;
    call(root, service, 1, lanes);
    return lanes[0][0];
}

static void no_hsa(void) {
    amd_hostcall_consumer_t *consumer = (void *)64;
    EXPECT(amd_hostcall_create_consumer(&consumer) == AMD_HOSTCALL_INTERNAL_ERROR);
    EXPECT(!consumer);
    /* Buffers and services need none. */
    free(new_buffer(2));
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
}

static void life(void) {
    EXPECT(amd_hostcall_create_consumer(NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    EXPECT(amd_hostcall_destroy_consumer(NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    EXPECT(amd_hostcall_launch_consumer(NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    amd_hostcall_consumer_t *idle = new_consumer(), *consumer = new_consumer();
    OK(amd_hostcall_launch_consumer(consumer));
    EXPECT(amd_hostcall_launch_consumer(consumer) == AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE);
    OK(amd_hostcall_destroy_consumer(consumer));
    OK(amd_hostcall_destroy_consumer(idle));
    EXPECT(amd_hostcall_destroy_consumer(consumer) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_launch_consumer(idle) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(!strcmp(amd_hostcall_error_string(0), "AMD_HOSTCALL_SUCCESS"));
    EXPECT(!strcmp(amd_hostcall_error_string(AMD_HOSTCALL_INTERNAL_ERROR), "AMD_HOSTCALL_INTERNAL_ERROR"));
    EXPECT(!strcmp(amd_hostcall_error_string(-7), "unknown error"));
}

static void initialize(void) {
    EXPECT(amd_hostcall_get_buffer_size(0) == 0 && amd_hostcall_get_buffer_size(1u << 31) == 0);
    EXPECT(amd_hostcall_get_buffer_size(43) >= amd_hostcall_get_buffer_size(42) + 64 * 8 * 8);
    EXPECT(amd_hostcall_initialize_buffer(NULL, 42) == AMD_HOSTCALL_ERROR_NULLPTR);
    char *bytes = aligned_alloc(64, amd_hostcall_get_buffer_size(43));
    EXPECT(amd_hostcall_initialize_buffer(bytes + 8, 42) == AMD_HOSTCALL_ERROR_INCORRECT_ALIGNMENT);
    EXPECT(amd_hostcall_initialize_buffer(bytes, 0) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    OK(amd_hostcall_initialize_buffer(bytes, 42));
    struct root *root = (struct root *)bytes;
    unsigned char seen[42] = {0};
    unsigned count = 0;
    for (uint64_t at = root->free; at; at = packet_of(root, at)->next) {
        uint64_t index = at & root->index_mask;
        EXPECT(index < 42 && !seen[index]);
        seen[index] = 1;
        ++count;
    }
    EXPECT(count == 42 && root->ready == 0);
    free(bytes);
}

static void deregister(void) {
    amd_hostcall_consumer_t *consumer = new_consumer(), *other = new_consumer();
    struct root *root = new_buffer(4), *later = new_buffer(4);
    EXPECT(amd_hostcall_deregister_buffer(consumer, root) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_register_buffer(consumer, NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    EXPECT(amd_hostcall_register_buffer(consumer, (char *)root + 64) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    /* Before the launch. */
    OK(amd_hostcall_register_buffer(consumer, root));
    OK(amd_hostcall_register_buffer(consumer, root));
    EXPECT(amd_hostcall_register_buffer(other, root) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_deregister_buffer(other, root) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_initialize_buffer(root, 4) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    OK(amd_hostcall_deregister_buffer(consumer, root));
    EXPECT(amd_hostcall_deregister_buffer(consumer, root) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    /* After it. */
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
    OK(amd_hostcall_launch_consumer(consumer));
    OK(amd_hostcall_register_buffer(consumer, later));
    EXPECT(call_one(later, SERVICE, 1) == 2);
    OK(amd_hostcall_deregister_buffer(consumer, later));
    EXPECT(amd_hostcall_deregister_buffer(consumer, later) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    free(later);
    /* Another one may serve it then. */
    OK(amd_hostcall_launch_consumer(other));
    OK(amd_hostcall_register_buffer(other, root));
    EXPECT(call_one(root, SERVICE, 7) == 8);
    OK(amd_hostcall_destroy_consumer(other));
    free(root);
    OK(amd_hostcall_destroy_consumer(consumer));
}

static void one(void) {
    struct root *root = new_buffer(1);
    amd_hostcall_consumer_t *consumer = serve(root);
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
    EXPECT(call_one(root, SERVICE, 42) == 43);
    OK(amd_hostcall_deregister_buffer(consumer, root));
    OK(amd_hostcall_destroy_consumer(consumer));
    free(root);
}

static void wave(void) {
    _Atomic unsigned calls = 0;
    struct root *root = new_buffer(2);
    OK(amd_hostcall_register_service(SERVICE, increment, &calls));
    amd_hostcall_consumer_t *consumer = serve(root);
    uint64_t lanes[64][8];
    for (int lane = 0; lane < 64; ++lane)
        for (int word = 0; word < 8; ++word)
            lanes[lane][word] = 100 * lane + word;
    call(root, SERVICE, 0x8421, lanes);
    for (uint64_t lane = 0; lane < 64; ++lane) {
        int active = 0x8421ull >> lane & 1;
        EXPECT(lanes[lane][0] == 100 * lane + active);
        EXPECT(lanes[lane][1] == 100 * lane + (active ? 7 : 1));
    }
    EXPECT(calls == 4);
    OK(amd_hostcall_destroy_consumer(consumer));
    free(root);
}

struct waves {
    struct root *root;
    _Atomic unsigned next;
    uint64_t active;
};

static void *call_once(void *arguments) {
    struct waves *waves = arguments;
    uint64_t number = atomic_fetch_add(&waves->next, 1);
    EXPECT(call_one(waves->root, SERVICE, 3 * number) == 3 * number + 1);
    return NULL;
}

/* 1000 threads, each a wave, over few packets. */
static void many(void) {
    enum { THREADS = 1000 };
    _Atomic unsigned calls = 0;
    struct waves waves = {new_buffer(13), 0, 0};
    OK(amd_hostcall_register_service(SERVICE, increment, &calls));
    amd_hostcall_consumer_t *consumer = serve(waves.root);
    static pthread_t threads[THREADS];
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 1 << 16);
    for (int i = 0; i < THREADS; ++i)
        EXPECT(pthread_create(&threads[i], &attributes, call_once, &waves) == 0);
    for (int i = 0; i < THREADS; ++i)
        pthread_join(threads[i], NULL);
    EXPECT(calls == THREADS);
    OK(amd_hostcall_destroy_consumer(consumer));
    free(waves.root);
}

static _Atomic unsigned answers[1024];

static int count_item(void *state, uint32_t service, uint64_t *payload) {
    (void)state;
    (void)service;
    EXPECT(payload[0] < 1000);
    atomic_fetch_add(&answers[payload[0]], 1);
    payload[0] = ~payload[0];
    return 0;
}

static void *call_with_gaps(void *arguments) {
    struct waves *waves = arguments;
    uint64_t wave = atomic_fetch_add(&waves->next, 1), lanes[64][8], mask = 0;
    for (uint64_t lane = 0; lane < 64; ++lane) {
        uint64_t item = 64 * wave + lane;
        if (item < 1000 && item % 7 != 3 && item % 5 != wave % 5)
            mask |= 1ull << lane;
        lanes[lane][0] = item;
    }
    call(waves->root, SERVICE, mask, lanes);
    for (uint64_t lane = 0; lane < 64; ++lane)
        EXPECT(lanes[lane][0] == (mask >> lane & 1 ? ~(64 * wave + lane) : 64 * wave + lane));
    uint64_t active = 0;
    for (; mask; mask &= mask - 1)
        ++active;
    __atomic_fetch_add(&waves->active, active, __ATOMIC_RELAXED);
    return NULL;
}

/* 5 launches of 1000 work-items with gaps in their waves' masks. */
static void gaps(void) {
    enum { LAUNCHES = 5, WAVES = 16 };
    struct waves waves = {new_buffer(3), 0, 0};
    OK(amd_hostcall_register_service(SERVICE, count_item, NULL));
    amd_hostcall_consumer_t *consumer = serve(waves.root);
    for (unsigned launch = 1; launch <= LAUNCHES; ++launch) {
        pthread_t threads[WAVES];
        waves.next = 0;
        waves.active = 0;
        for (int i = 0; i < WAVES; ++i)
            EXPECT(pthread_create(&threads[i], NULL, call_with_gaps, &waves) == 0);
        for (int i = 0; i < WAVES; ++i)
            pthread_join(threads[i], NULL);
        uint64_t called = 0;
        for (int item = 0; item < 1000; ++item) {
            EXPECT(answers[item] == 0 || answers[item] == launch);
            called += answers[item] != 0;
        }
        EXPECT(called == waves.active && called > 600);
    }
    OK(amd_hostcall_destroy_consumer(consumer));
    free(waves.root);
}

static void print_error(void *state, int error) {
    printf("%s %d %s\n", (const char *)state, error, amd_hostcall_error_string(error));
    fflush(stdout);
}

static void unknown(void) {
    OK(amd_hostcall_on_error(print_error, "stops:"));
    struct root *root = new_buffer(2);
    serve(root);
    call_one(root, SERVICE + 1, 0);
    EXPECT(!"the consumer went on");
}

static int fail(void *state, uint32_t service, uint64_t *payload) {
    (void)state;
    (void)service;
    (void)payload;
    return -5;
}

static void fatal(void) {
    OK(amd_hostcall_on_error(print_error, "stops:"));
    OK(amd_hostcall_register_service(SERVICE, fail, NULL));
    struct root *root = new_buffer(2);
    serve(root);
    call_one(root, SERVICE, 0);
    EXPECT(!"the consumer went on");
}

static void on_error(void) {
    amd_hostcall_consumer_t *consumer = new_consumer();
    EXPECT(amd_hostcall_on_error(NULL, NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    OK(amd_hostcall_launch_consumer(consumer));
    EXPECT(amd_hostcall_on_error(print_error, NULL) == AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE);
    OK(amd_hostcall_destroy_consumer(consumer));
    OK(amd_hostcall_on_error(print_error, NULL));
    EXPECT(amd_hostcall_on_error(print_error, NULL) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
}

static int default_handler(void *state, uint32_t service, uint64_t *payload) {
    EXPECT(state == (void *)default_handler);
    payload[0] = service;
    return 0;
}

static void services(void) {
    EXPECT(amd_hostcall_register_service(SERVICE, NULL, NULL) == AMD_HOSTCALL_ERROR_NULLPTR);
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
    EXPECT(amd_hostcall_register_service(SERVICE, fail, NULL) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    OK(amd_hostcall_register_service(0, default_handler, (void *)default_handler));
    EXPECT(amd_hostcall_register_service(0, default_handler, NULL) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    struct root *root = new_buffer(5);
    amd_hostcall_consumer_t *consumer = serve(root);
    EXPECT(call_one(root, SERVICE, 1) == 2);
    EXPECT(call_one(root, 12345, 1) == 12345);
    EXPECT(call_one(root, 0, 1) == 0);
    /* One may come later. */
    OK(amd_hostcall_register_service(SERVICE + 9, increment, NULL));
    EXPECT(call_one(root, SERVICE + 9, 10) == 11);
    OK(amd_hostcall_destroy_consumer(consumer));
    free(root);
}

static void *call_often(void *arguments) {
    for (uint64_t i = 0; i < 60; ++i)
        EXPECT(call_one(arguments, SERVICE, i) == i + 1);
    return NULL;
}

/* Several consumers with several buffers each, which come and go while others are used. */
static void consumers(void) {
    enum { CONSUMERS = 3, BUFFERS = 6 };
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
    amd_hostcall_consumer_t *consumers[CONSUMERS];
    struct root *buffers[BUFFERS];
    pthread_t threads[BUFFERS];
    for (int i = 0; i < CONSUMERS; ++i) {
        consumers[i] = new_consumer();
        OK(amd_hostcall_launch_consumer(consumers[i]));
    }
    for (int i = 0; i < BUFFERS; ++i) {
        buffers[i] = new_buffer(2);
        OK(amd_hostcall_register_buffer(consumers[i % CONSUMERS], buffers[i]));
        EXPECT(pthread_create(&threads[i], NULL, call_often, buffers[i]) == 0);
    }
    for (int round = 0; round < 50; ++round) {
        struct root *root = new_buffer(3);
        OK(amd_hostcall_register_buffer(consumers[round % CONSUMERS], root));
        EXPECT(call_one(root, SERVICE, 5) == 6);
        OK(amd_hostcall_deregister_buffer(consumers[round % CONSUMERS], root));
        memset(root, 0xff, 64);
        free(root);
    }
    for (int i = 0; i < BUFFERS; ++i)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < CONSUMERS; ++i)
        OK(amd_hostcall_destroy_consumer(consumers[i]));
    for (int i = 0; i < BUFFERS; ++i)
        free(buffers[i]);
}

struct within {
    amd_hostcall_consumer_t *consumer;
    struct root *root;
};

static int deregister_within(void *state, uint32_t service, uint64_t *payload) {
    struct within *within = state;
    (void)service;
    payload[0] = 99;
    EXPECT(amd_hostcall_destroy_consumer(within->consumer) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_launch_consumer(within->consumer) == AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE);
    OK(amd_hostcall_deregister_buffer(within->consumer, within->root));
    return 0;
}

/* A handler deregisters the buffer whose packet it handles: the wave gets zeros. */
static void within(void) {
    struct within state = {0};
    state.root = new_buffer(2);
    OK(amd_hostcall_register_service(SERVICE, deregister_within, &state));
    state.consumer = new_consumer();
    OK(amd_hostcall_register_buffer(state.consumer, state.root));
    OK(amd_hostcall_launch_consumer(state.consumer));
    EXPECT(call_one(state.root, SERVICE, 5) == 0);
    OK(amd_hostcall_destroy_consumer(state.consumer));
    free(state.root);
}

struct closing {
    amd_hostcall_consumer_t *consumer, *other;
    struct root *root;
    _Atomic int began;
};

static int register_while_closing(void *state, uint32_t service, uint64_t *payload) {
    struct closing *closing = state;
    (void)service;
    ++payload[0];
    if (!atomic_exchange(&closing->began, 1)) {
        while (amd_hostcall_launch_consumer(closing->consumer) == AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE)
            sched_yield();
        EXPECT(amd_hostcall_register_buffer(closing->other, closing->root) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
        EXPECT(amd_hostcall_initialize_buffer(closing->root, 2) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    }
    return 0;
}

static void *call_closing(void *root) {
    EXPECT(call_one(root, SERVICE, 5) == 6);
    return NULL;
}

/* A consumer's buffers are nobody else's before its end, for which a handler is waited for. */
static void closing(void) {
    struct closing state = {new_consumer(), new_consumer(), new_buffer(2), 0};
    OK(amd_hostcall_register_service(SERVICE, register_while_closing, &state));
    OK(amd_hostcall_register_buffer(state.consumer, state.root));
    OK(amd_hostcall_launch_consumer(state.consumer));
    OK(amd_hostcall_launch_consumer(state.other));
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, call_closing, state.root) == 0);
    while (!state.began)
        sched_yield();
    OK(amd_hostcall_destroy_consumer(state.consumer));
    pthread_join(thread, NULL);
    OK(amd_hostcall_register_buffer(state.other, state.root));
    EXPECT(call_one(state.root, SERVICE, 7) == 8);
    OK(amd_hostcall_destroy_consumer(state.other));
    free(state.root);
}

/* Sends a line as ROCm's device libraries do: a control word, the format, and arguments, in pieces. */
static int64_t print(struct root *root, uint64_t control, const char *format, const uint64_t *arguments, int count) {
    uint64_t message[64] = {control}, lanes[64][8] = {{0}};
    int words = 1 + strlen(format) / 8 + 1, sent = 0;
    memcpy(&message[1], format, strlen(format) + 1);
    memcpy(&message[words], arguments, 8 * count);
    words += count;
    uint64_t descriptor = 1;
    while (sent < words) {
        int length = words - sent < 7 ? words - sent : 7;
        uint64_t end = sent + length == words ? 2 : 0;
        lanes[5][0] = (descriptor & ~0xe0ull) | end | (uint64_t)length << 5;
        memcpy(&lanes[5][1], &message[sent], 8 * length);
        call(root, 2, 1 << 5, lanes);
        descriptor = lanes[5][0];
        sent += length;
    }
    return descriptor;
}

static void printing(void) {
    OK(amd_hostcall_register_printf());
    EXPECT(amd_hostcall_register_printf() == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    EXPECT(amd_hostcall_register_service(2, increment, NULL) == AMD_HOSTCALL_ERROR_INVALID_REQUEST);
    struct root *root = new_buffer(2);
    amd_hostcall_consumer_t *consumer = serve(root);
    double half = 0.5;
    uint64_t arguments[5] = {42, 0, 0, 0, (uint64_t)-7};
    memcpy(&arguments[1], &half, 8);
    strcpy((char *)&arguments[2], "hello world");
    EXPECT(print(root, 0, "%d %.2f [%s] %d, and a longer line than one packet takes\n", arguments, 5) == 66);
    EXPECT(print(root, 1, "to the other\n", NULL, 0) == 13);
    EXPECT(print(root, 2, "no such stream\n", NULL, 0) == -1);
    EXPECT(print(root, 0, "%d", NULL, 0) == -1);
    OK(amd_hostcall_destroy_consumer(consumer));
    free(root);
}

static void *print_on(void *root) {
    uint64_t count = 0;
    for (;;) {
        print(root, 0, "line %d\n", &count, 1);
        ++count;
    }
    return NULL;
}

/* Exits while waves print. */
static void child(void) {
    OK(amd_hostcall_register_printf());
    struct root *root = new_buffer(8);
    serve(root);
    for (int i = 0; i < 3; ++i) {
        pthread_t thread;
        EXPECT(pthread_create(&thread, NULL, print_on, root) == 0);
    }
    EXPECT(print(root, 0, "in flight\n", NULL, 0) == 10);
    exit(0);
}

static _Atomic int done;

static void *scribble(void *arguments) {
    struct root *root = arguments;
    _Atomic uint64_t *words = arguments;
    uint64_t random = (uintptr_t)&random | 1, count = amd_hostcall_get_buffer_size(21) / 8;
    (void)root;
    while (!done) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint64_t value = random >> 50 & 1 ? random >> 8 : random >> 40 & 31;
        atomic_store_explicit(&words[random % (random >> 60 < 14 ? 90 : count)], value, memory_order_relaxed);
    }
    return NULL;
}

/* A device that writes anything anywhere into its buffer; another buffer is served all the while. */
static void hostile(void) {
    OK(amd_hostcall_register_service(SERVICE, increment, NULL));
    OK(amd_hostcall_register_service(0, default_handler, (void *)default_handler));
    OK(amd_hostcall_register_printf());
    struct root *root = new_buffer(21), *good = new_buffer(3);
    amd_hostcall_consumer_t *consumer = serve(root);
    OK(amd_hostcall_register_buffer(consumer, good));
    pthread_t threads[2];
    for (int i = 0; i < 2; ++i)
        EXPECT(pthread_create(&threads[i], NULL, scribble, root) == 0);
    for (uint64_t i = 0; i < 100; ++i)
        EXPECT(call_one(good, SERVICE, i) == i + 1);
    done = 1;
    for (int i = 0; i < 2; ++i)
        pthread_join(threads[i], NULL);
    OK(amd_hostcall_deregister_buffer(consumer, root));
    free(root);
    OK(amd_hostcall_destroy_consumer(consumer));
    free(good);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"life", life},         {"initialize", initialize}, {"deregister", deregister}, {"one", one},
    {"wave", wave},         {"many", many},             {"gaps", gaps},             {"unknown", unknown},
    {"fatal", fatal},       {"on_error", on_error},     {"services", services},     {"consumers", consumers},
    {"within", within},     {"printing", printing},     {"child", child},           {"hostile", hostile},
    {"closing", closing},
};

int main(int count, char **arguments) {
    EXPECT(count == 2);
    if (!strcmp(arguments[1], "no_hsa")) {
        no_hsa();
        puts("passed");
        return 0;
    }
    EXPECT(hsa_init() == HSA_STATUS_SUCCESS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i)
        if (!strcmp(cases[i].name, arguments[1])) {
            cases[i].run();
            EXPECT(hsa_shut_down() == HSA_STATUS_SUCCESS);
            puts("passed");
            return 0;
        }
    EXPECT(!"there is such a case");
}
