/*
 * A host in C of the kernels of programs/inventory: it serves the service `Inventory` from a table in memory, has lanes
 * stock items and move amounts between them, checks what they did, and prints the table.
 *
 *     hostcall build programs/inventory
 *     cc -I bindings/c/include bindings/c/examples/inventory.c -lhostcall -lpthread -o inventory
 *     ./inventory programs/target/hostcall/cpu/inventory.so [LANES]
 */
#include "hostcall.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ITEMS = 4096, FIRST_METHOD = 512 };

/* What the kernels say that a lane did. */
enum { FOUND = 1, ADDED = 2, DUPLICATE = 3, MOVED = 4 };

struct item {
    uint64_t key, amount;
    char name[32];
    size_t name_len;
};

/* Handlers run on several threads at once. */
struct store {
    pthread_mutex_t lock;
    struct item items[MOST_ITEMS];
    size_t count;
    uint64_t calls, misplaced;
};

static struct item *item_of(struct store *store, uint64_t key) {
    for (size_t i = 0; i < store->count; i++)
        if (store->items[i].key == key)
            return &store->items[i];
    return NULL;
}

/* The words of Rust's values: Option is 0, or 1 and the value; Result is 0 and the value, or 1 and the error; an enum is the
 * variant's place and its fields. Shorter values are filled with zeros. */
enum { REFUSED_DUPLICATE, REFUSED_NO_SUCH_ITEM, REFUSED_TOO_FEW };

/* fn find(key: u64, name: &mut [u8]) -> Option<u64> */
static int32_t find(struct store *store, const hostcall_call *call, hostcall_reply *reply) {
    uint64_t result[2] = {0, 0};
    const struct item *item = item_of(store, call->words[0]);
    if (item) {
        result[0] = 1;
        result[1] = item->amount;
        if (hostcall_reply_bytes(reply, (const uint8_t *)item->name, item->name_len) != HOSTCALL_STATUS_OK)
            return 2;
    }
    return hostcall_reply_words(reply, result, 2) != HOSTCALL_STATUS_OK;
}

/* fn add(key: u64, amount: u64, name: &str) -> Result<(), Refused> */
static int32_t add(struct store *store, const hostcall_call *call, hostcall_reply *reply) {
    uint64_t result[3] = {0, 0, 0};
    struct item *item = &store->items[store->count];
    if (item_of(store, call->words[0])) {
        result[0] = 1;
        result[1] = REFUSED_DUPLICATE;
    } else if (store->count == MOST_ITEMS || call->byte_count > sizeof item->name) {
        return 3;
    } else {
        item->key = call->words[0];
        item->amount = call->words[1];
        item->name_len = call->byte_count;
        memcpy(item->name, call->bytes, call->byte_count);
        store->count++;
    }
    return hostcall_reply_words(reply, result, 3) != HOSTCALL_STATUS_OK;
}

/* fn transfer(from: u64, to: u64, amount: u64) -> Result<u64, Refused> */
static int32_t transfer(struct store *store, const hostcall_call *call, hostcall_reply *reply) {
    uint64_t result[3] = {0, 0, 0}, amount = call->words[2];
    struct item *from = item_of(store, call->words[0]), *to = item_of(store, call->words[1]);
    if (!from || !to) {
        result[0] = 1;
        result[1] = REFUSED_NO_SUCH_ITEM;
    } else if (from->amount < amount) {
        result[0] = 1;
        result[1] = REFUSED_TOO_FEW;
        result[2] = from->amount;
    } else {
        from->amount -= amount;
        to->amount += amount;
        result[1] = from->amount;
    }
    return hostcall_reply_words(reply, result, 3) != HOSTCALL_STATUS_OK;
}

static int32_t handle(void *state, const hostcall_call *call, hostcall_reply *reply) {
    static int32_t (*const methods[])(struct store *, const hostcall_call *, hostcall_reply *) = {find, add, transfer};
    static const size_t words[] = {1, 3, 3};
    struct store *store = state;
    hostcall_place place;
    /* Methods without types of their own check their words themselves. */
    if (call->word_count != words[call->method])
        return 1;
    pthread_mutex_lock(&store->lock);
    store->calls++;
    if (!hostcall_caller_place(call->caller, &place) || strcmp(place.kernel, call->method == 2 ? "transfer" : "stock"))
        store->misplaced++;
    int32_t status = methods[call->method](store, call, reply);
    pthread_mutex_unlock(&store->lock);
    return status;
}

/* The table outlives the device here, since it is printed at the end. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_so;
} freed = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

static void free_store(void *state) {
    (void)state;
    pthread_mutex_lock(&freed.lock);
    freed.is_so = true;
    pthread_cond_signal(&freed.changed);
    pthread_mutex_unlock(&freed.lock);
}

/* The last of the library's threads may be what frees the service's state, soon after the device is freed. */
static void wait_until_freed(void) {
    pthread_mutex_lock(&freed.lock);
    while (!freed.is_so)
        pthread_cond_wait(&freed.changed, &freed.lock);
    pthread_mutex_unlock(&freed.lock);
}

static void check(hostcall_status status, hostcall_error *error) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "inventory: status %d: %s\n", (int)status, hostcall_error_text(error));
    exit(1);
}

static void expect(int is_so, const char *what) {
    if (!is_so) {
        fprintf(stderr, "inventory: not so: %s\n", what);
        exit(1);
    }
}

static hostcall_argument of_buffer(hostcall_kind kind, const hostcall_buffer *buffer) {
    hostcall_argument argument;
    argument.kind = kind;
    argument.value.buffer = buffer;
    return argument;
}

static hostcall_argument of_u64(uint64_t value) {
    hostcall_argument argument;
    argument.kind = HOSTCALL_KIND_U64;
    argument.value.u64 = value;
    return argument;
}

/* Counts the lanes that did `what`. */
static size_t count(const uint32_t *outcomes, size_t lanes, uint32_t what) {
    size_t found = 0;
    for (size_t i = 0; i < lanes; i++)
        found += outcomes[i] == what;
    return found;
}

static int by_key(const void *a, const void *b) {
    const struct item *one = a, *other = b;
    return one->key < other->key ? -1 : one->key > other->key;
}

int main(int argc, char **argv) {
    /* Without launches, for tools that cannot follow the software device's switches of stacks. */
    int launches = argc != 3 || strcmp(argv[2], "none") != 0;
    size_t lanes = argc == 3 && launches ? strtoul(argv[2], NULL, 10) : 300;
    hostcall_error *error;
    hostcall_options *options;
    hostcall_device *device;
    hostcall_image *image;
    hostcall_kernel *stock, *move;
    hostcall_stream *stream;
    hostcall_buffer *key_buffer, *to_buffer, *outcome_buffer;
    expect(argc >= 2 && lanes > 0 && lanes <= MOST_ITEMS, "inventory IMAGE [LANES]");

    struct store *store = calloc(1, sizeof *store);
    uint64_t *keys = calloc(lanes, sizeof *keys), *to = calloc(lanes, sizeof *to);
    uint32_t *outcomes = calloc(lanes, sizeof *outcomes);
    pthread_mutex_init(&store->lock, NULL);
    const hostcall_method methods[] = {
        {FIRST_METHOD, "Inventory::find"},
        {FIRST_METHOD + 1, "Inventory::add"},
        {FIRST_METHOD + 2, "Inventory::transfer"},
    };
    const hostcall_service service = {methods, 3, handle, store, free_store, false};

    check(hostcall_options_new("cpu", &options, &error), error);
    check(hostcall_options_service(options, &service, &error), error);
    check(hostcall_device_open(&options, &device, &error), error);
    check(hostcall_image_load(device, argv[1], &image, &error), error);
    check(hostcall_image_kernel(image, "stock", &stock, &error), error);
    check(hostcall_image_kernel(image, "transfer", &move, &error), error);
    check(hostcall_stream_new(device, &stream, &error), error);
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, lanes, &key_buffer, &error), error);
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, lanes, &to_buffer, &error), error);
    check(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, lanes, &outcome_buffer, &error), error);

    /* Three of four lanes have an item of their own; the others come for one that a lane before them has. */
    for (size_t i = 0; i < lanes; i++) {
        keys[i] = i % 4 == 3 ? i : i + 1;
        to[i] = keys[i] % 3 + 1;
    }
    check(hostcall_buffer_write(key_buffer, keys, lanes * sizeof *keys, &error), error);
    check(hostcall_stream_write(stream, to_buffer, to, lanes * sizeof *to, &error), error);

    if (launches) {
        const hostcall_grid grid = {{((uint32_t)lanes + 63) / 64, 1, 1}, {64, 1, 1}, 0};
        const hostcall_argument stocked[] = {
            of_buffer(HOSTCALL_KIND_SLICE, key_buffer),
            of_u64(10),
            of_buffer(HOSTCALL_KIND_GLOBAL_SLICE, outcome_buffer),
        };
        check(hostcall_kernel_launch(stock, stream, &grid, stocked, 3, NULL, &error), error);
        check(hostcall_stream_synchronize(stream, &error), error);
        check(hostcall_buffer_read(outcome_buffer, outcomes, lanes * sizeof *outcomes, &error), error);
        size_t added = count(outcomes, lanes, ADDED);
        expect(added == store->count, "each item is added once");
        expect(added + count(outcomes, lanes, FOUND) + count(outcomes, lanes, DUPLICATE) == lanes, "each lane was answered");

        const hostcall_argument moved[] = {
            of_buffer(HOSTCALL_KIND_SLICE, key_buffer),
            of_buffer(HOSTCALL_KIND_SLICE, to_buffer),
            of_u64(3),
            of_buffer(HOSTCALL_KIND_GLOBAL_SLICE, outcome_buffer),
        };
        check(hostcall_kernel_launch(move, stream, &grid, moved, 4, NULL, &error), error);
        check(hostcall_stream_synchronize(stream, &error), error);
        check(hostcall_buffer_read(outcome_buffer, outcomes, lanes * sizeof *outcomes, &error), error);
        expect(count(outcomes, lanes, MOVED) == lanes, "each lane moved 3 of its item's 10, which at most two do");

        /* What the kernel does not take is refused before anything runs. */
        hostcall_status status = hostcall_kernel_launch(stock, stream, &grid, moved, 4, NULL, &error);
        expect(status == HOSTCALL_STATUS_REFUSED, "arguments of another kernel are refused");
        hostcall_error_free(&error);
        expect(error == NULL && store->misplaced == 0, "handlers know who calls");
    }

    /* In any order; the device goes with the last. */
    hostcall_device_free(&device);
    hostcall_image_free(&image);
    hostcall_kernel_free(&stock);
    hostcall_kernel_free(&move);
    hostcall_buffer_free(&key_buffer);
    hostcall_buffer_free(&to_buffer);
    hostcall_buffer_free(&outcome_buffer);
    hostcall_stream_free(&stream);
    wait_until_freed();

    qsort(store->items, store->count, sizeof *store->items, by_key);
    for (size_t i = 0; i < store->count; i++) {
        const struct item *item = &store->items[i];
        printf("%" PRIu64 " %.*s: %" PRIu64 "\n", item->key, (int)item->name_len, item->name, item->amount);
    }
    pthread_mutex_destroy(&store->lock);
    free(store);
    free(keys);
    free(to);
    free(outcomes);
    return 0;
}
