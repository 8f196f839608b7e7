/*
 * An all-to-all between ranks of one machine: kernels post what is to be sent, and a thread of each rank polls, copies, and
 * signals. It stands where a library has a NIC's queue or a copy engine: `proxy::send` is the only place that would change.
 *
 *     all_to_all cuda:0 4 65536 1000 all_to_all.cubin
 *     all_to_all cpu 4 65536 100
 *
 * The arguments are a device, ranks, bytes of a message (a multiple of 8), rounds, and examples/all_to_all.hip as a code object,
 * a cubin or PTX; on `cpu` threads of this program are the kernels' blocks. All ranks use one device here, each by a stream of its own.
 */
#include "hostcall.h"

#include "all_to_all.hip"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

static void check(hostcall_status status, hostcall_error *error) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", hostcall_error_text(error));
    exit(1);
}
#define CHECK(function, ...)                                                                                                     \
    do {                                                                                                                         \
        hostcall_error *error = NULL;                                                                                            \
        check(function(__VA_ARGS__, &error), error);                                                                             \
    } while (0)

static const uint32_t THREADS_OF_BLOCK = 128;

/* Memory that host and kernels reach. */
struct pinned {
    hostcall_pinned *buffer = NULL;
    uint64_t *words = NULL;

    void allocate(const hostcall_device *device, size_t count) {
        CHECK(hostcall_pinned_alloc, device, HOSTCALL_KIND_U64, count, &buffer);
        words = (uint64_t *)hostcall_pinned_data(buffer);
    }
    ~pinned() { hostcall_pinned_free(&buffer); }
};

struct rank {
    uint32_t number = 0;
    hostcall_stream *stream = NULL;
    hostcall_post_queue *queue = NULL;
    pinned sends, receives, signals, wrong;
    uint64_t messages = 0, bytes = 0; /* That its proxy has sent. */
};

static std::vector<std::unique_ptr<rank>> ranks;

/* What the proxy of a rank does: it polls until all kernels are done, and sends. */
struct proxy {
    rank &own;
    bool is_bad = false;

    // ANCHOR: proxy
    void send(const struct send &send) {
        rank &peer = *ranks[send.peer];
        const char *from = (const char *)own.sends.words + send.from;
        memcpy((char *)peer.receives.words + send.to, from, send.bytes);
        /* The kernel that sees the signal sees the bytes. */
        __atomic_store_n(&peer.signals.words[own.number], send.signal, __ATOMIC_RELEASE);
        own.messages++;
        own.bytes += send.bytes;
    }

    static void take(void *state, const hostcall_post_batch *batch) {
        proxy &of = *(proxy *)state;
        if (batch->tag != SEND || batch->words_each * 8 != sizeof(struct send)) {
            of.is_bad = true;
            return;
        }
        for (size_t i = 0; i < batch->count; i++) {
            struct send send;
            memcpy(&send, batch->words + i * batch->words_each, sizeof send);
            of.send(send);
        }
    }

    void run(const std::atomic<bool> &is_over) {
        while (!is_over) {
            size_t count;
            CHECK(hostcall_post_queue_poll, own.queue, SIZE_MAX, take, this, &count);
            if (count == 0)
                std::this_thread::yield(); /* A thread with a core of its own polls on. */
        }
    }
    // ANCHOR_END: proxy
};

/* Runs the kernel of each rank: all blocks of all ranks at once, since they wait for each other. So ranks are few. */
static void launch(const char *code_file, const hostcall_device *device, uint32_t words, uint32_t rounds) {
    uint32_t count = (uint32_t)ranks.size();
    if (!code_file) {
        std::vector<std::thread> blocks;
        for (auto &each : ranks)
            for (uint32_t block = 0; block < count; block++)
                blocks.emplace_back([&, block] {
                    block_of_thread = block;
                    exchange(hostcall_post_queue_address(each->queue), each->number, count, words, rounds, each->sends.words,
                             each->receives.words, each->signals.words, each->wrong.words);
                });
        for (auto &block : blocks)
            block.join();
        return;
    }
    hostcall_rocm_code *code;
    hostcall_rocm_kernel *kernel;
    CHECK(hostcall_rocm_code_load, device, code_file, HOSTCALL_ROCM_VERSION_STACKS, &code);
    CHECK(hostcall_rocm_code_kernel, code, "exchange", &kernel);
    for (auto &each : ranks) {
        const hostcall_grid grid = {{count, 1, 1}, {THREADS_OF_BLOCK, 1, 1}, 0};
        uint64_t queue = hostcall_post_queue_address(each->queue);
        hostcall_rocm_argument arguments[9] = {};
        const void *values[5] = {&queue, &each->number, &count, &words, &rounds};
        const hostcall_pinned *memory[4] = {each->sends.buffer, each->receives.buffer, each->signals.buffer, each->wrong.buffer};
        for (int i = 0; i < 5; i++) {
            arguments[i].kind = HOSTCALL_ROCM_KIND_VALUE;
            arguments[i].bytes = i == 0 ? 8 : 4;
            arguments[i].value.bytes = values[i];
        }
        for (int i = 0; i < 4; i++) {
            arguments[5 + i].kind = HOSTCALL_ROCM_KIND_PINNED;
            arguments[5 + i].value.pinned = memory[i];
        }
        CHECK(hostcall_rocm_kernel_launch, kernel, each->stream, &grid, arguments, 9, NULL);
    }
    for (auto &each : ranks)
        CHECK(hostcall_stream_synchronize, each->stream);
    hostcall_rocm_kernel_free(&kernel);
    hostcall_rocm_code_free(&code);
}

int main(int argc, char **argv) {
    if (argc != 5 && argc != 6) {
        fprintf(stderr, "usage: %s DEVICE RANKS BYTES ROUNDS [CODE]\n", argv[0]);
        return 2;
    }
    const uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10), bytes = (uint32_t)strtoul(argv[3], NULL, 10);
    const uint32_t rounds = (uint32_t)strtoul(argv[4], NULL, 10), words = bytes / 8;
    if (count == 0 || count > 16 || bytes == 0 || bytes % 8 != 0 || rounds == 0) {
        fprintf(stderr, "1 to 16 ranks, messages of whole words of 8 bytes, and one round or more\n");
        return 2;
    }
    hostcall_options *options;
    hostcall_device *device;
    CHECK(hostcall_options_new, argv[1], &options);
    CHECK(hostcall_device_open, &options, &device);
    for (uint32_t number = 0; number < count; number++) {
        auto made = std::make_unique<rank>();
        made->number = number;
        CHECK(hostcall_stream_new, device, &made->stream);
        /* A wave of each block posts. */
        CHECK(hostcall_post_queue_new, device, "sends", count, 1024, &made->queue);
        made->sends.allocate(device, (size_t)2 * count * words);
        made->receives.allocate(device, (size_t)2 * count * words);
        made->signals.allocate(device, count);
        made->wrong.allocate(device, (size_t)count * THREADS_OF_BLOCK);
        ranks.push_back(std::move(made));
    }

    std::atomic<bool> is_over{false}, is_bad{false};
    std::vector<std::thread> proxies;
    for (auto &each : ranks)
        proxies.emplace_back([&] {
            proxy own{*each};
            own.run(is_over);
            if (own.is_bad)
                is_bad = true;
        });
    launch(argc > 5 ? argv[5] : NULL, device, words, rounds);
    is_over = true;
    for (auto &thread : proxies)
        thread.join();

    uint64_t messages = 0, sent = 0, wrong = 0, unread = 0;
    for (auto &each : ranks) {
        hostcall_post_counts counts;
        messages += each->messages;
        sent += each->bytes;
        for (size_t i = 0; i < (size_t)count * THREADS_OF_BLOCK; i++)
            wrong += each->wrong.words[i];
        CHECK(hostcall_post_queue_close, &each->queue, &counts);
        unread += counts.dropped + counts.garbage;
        hostcall_stream_free(&each->stream);
    }
    const bool is_right = wrong == 0 && unread == 0 && !is_bad && messages == (uint64_t)count * count * rounds;
    printf("%u ranks, %u rounds: %llu messages, %llu bytes, %s\n", count, rounds, (unsigned long long)messages,
           (unsigned long long)sent, is_right ? "all of them right" : "NOT all of them right");
    ranks.clear();
    hostcall_device_free(&device);
    return is_right ? 0 : 1;
}
