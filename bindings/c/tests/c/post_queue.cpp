/* A host that polls what kernels post to a queue: `post_queue DEVICE [CODE]`. Without code lanes are threads of this program. */
extern "C" {
#include "common.h"
}
#include "post_queue_kernels.h"
#include "run_kernels.h"

#include <algorithm>
#include <atomic>
#include <map>

static const kernel ORDERED = KERNEL_OF(ordered), CLAIMED = KERNEL_OF(claimed), VALUES = KERNEL_OF(values), UNTIL_REFUSED = KERNEL_OF(until_refused),
                    TURNS = KERNEL_OF(turns), WAITS = KERNEL_OF(waits), MISUSED = KERNEL_OF(misused), NO_QUEUE = KERNEL_OF(no_queue);

static hostcall_device *device;
static hostcall_rocm_code *code;

/* A kernel that runs beside this thread. */
class running {
  public:
    running(const kernel &kernel, uint64_t queue, uint32_t lanes, uint32_t block, uint32_t rounds)
        : thread([=, this] {
              run(kernel, queue, lanes, block, rounds);
              is_over = true;
          }) {}
    ~running() { thread.join(); }
    std::atomic<bool> is_over{false};
    std::vector<uint64_t> out;

  private:
    void run(const kernel &kernel, uint64_t queue, uint32_t lanes, uint32_t block, uint32_t rounds) {
        out.assign(lanes, UNWRITTEN);
        if (!code)
            return run_threads(6, []() -> uint32_t & { return lane_of_all; }, kernel, queue, rounds, out);
        hostcall_error *error = NULL;
        hostcall_stream *stream;
        EXPECT(hostcall_stream_new(device, &stream, &error) == HOSTCALL_STATUS_OK);
        run_code(device, stream, code, kernel, address_argument(queue), block, rounds, out);
        hostcall_stream_free(&stream);
    }
    std::thread thread;
};

/* What was polled: of each lane the rounds, in their order. */
struct seen {
    std::map<uint32_t, std::vector<uint32_t>> rounds;
    uint64_t batches = 0, most_at_once = 0;
};

/* Messages of `ordered` and `claimed`. */
static void note(void *state, const hostcall_post_batch *batch) {
    seen &all = *(seen *)state;
    const uint32_t lane = (uint32_t)(batch->tag >> 16), round = batch->tag & 0xffff;
    all.batches++;
    EXPECT(batch->words_each == round % 17 && batch->count >= 1);
    for (size_t message = 0; message < batch->count; message++) {
        for (uint32_t i = 0; i < batch->words_each; i++)
            EXPECT(batch->words[message * batch->words_each + i] == word_of(lane, round, i));
        all.rounds[lane].push_back(round);
    }
}

/* Messages of `values`: how many of each kind, and their sum. */
struct tally {
    uint64_t pairs = 0, fours = 0, sixteens = 0, sum = 0, most_in_batch = 0;
};

static void count(void *state, const hostcall_post_batch *batch) {
    tally &all = *(tally *)state;
    all.most_in_batch = all.most_in_batch > batch->count ? all.most_in_batch : batch->count;
    for (size_t i = 0; i < batch->count; i++) {
        const uint64_t *words = batch->words + i * batch->words_each;
        all.sum += words[0] + words[1];
        if (batch->tag == PAIR) {
            EXPECT(batch->words_each == 2);
            all.pairs++;
        } else if (batch->tag == FOUR) {
            EXPECT(batch->words_each == 4 && words[2] == words[0] + words[1] && words[3] == ~UINT64_C(0));
            all.fours++;
        } else {
            EXPECT(batch->tag == SIXTEEN && batch->words_each == 16);
            for (uint32_t word = 0; word < 14; word++)
                EXPECT(words[2 + word] == ~word_of((uint32_t)words[0], (uint32_t)words[1], word));
            all.sixteens++;
        }
    }
}

/* Messages of `turns`, which wait for an answer. Memory of the GPU in software, and of threads, is the host's. */
static void answer(void *, const hostcall_post_batch *batch) {
    for (size_t i = 0; i < batch->count; i++)
        __atomic_store_n((uint64_t *)(uintptr_t)batch->words[2 * i], batch->words[2 * i + 1], __ATOMIC_RELEASE);
}

static void nothing(void *, const hostcall_post_batch *) {}

static size_t poll(const hostcall_post_queue *queue, size_t most, hostcall_post_function take, void *state) {
    size_t count = 77;
    works(hostcall_post_queue_poll(queue, most, take, state, &count, &error));
    EXPECT(count <= most);
    return count;
}

/* Polls until the kernel has ended and all that it posted was taken. Returns how many posts these were. */
static uint64_t poll_all(const hostcall_post_queue *queue, const running &run, size_t most, bool is_slow, hostcall_post_function take, void *state) {
    uint64_t posts = 0;
    while (!run.is_over || hostcall_post_queue_has_posts(queue)) {
        const size_t taken = poll(queue, most, take, state);
        posts += taken;
        if (taken == 0 || is_slow)
            pause_a_moment();
    }
    EXPECT(poll(queue, SIZE_MAX, take, state) == 0);
    return posts;
}

static hostcall_post_counts counts_of(const hostcall_post_queue *queue) {
    hostcall_post_counts counts;
    works(hostcall_post_queue_statistics(queue, &counts, &error));
    return counts;
}

/* A poll in a function that gets posts. */
static void polls_again(void *queue, const hostcall_post_batch *) {
    const hostcall_status status = hostcall_post_queue_poll((const hostcall_post_queue *)queue, 1, nothing, NULL, NULL, &error);
    fails(status, HOSTCALL_STATUS_REFUSED, "the post queue `sends` is polled already: one thread polls at a time");
}

static void takes_everything_in_order(const hostcall_post_queue *queue, uint64_t at, bool is_nvidia) {
    for (uint32_t lanes : {1u, 7u, 64u, 65u, 300u})
        for (const kernel *kernel : {&ORDERED, &CLAIMED})
            for (size_t most : {SIZE_MAX, (size_t)5}) {
                const uint32_t rounds = most == SIZE_MAX ? 51 : 20;
                seen all;
                running run(*kernel, at, lanes, 96, rounds);
                const uint64_t posts = poll_all(queue, run, most, false, note, &all);
                found_nothing(*kernel, run.out);
                /* On NVIDIA a whole wave, or a lone lane, holds a slot; lanes of another part claim one for each message. */
                const bool is_held = kernel == &ORDERED && (!is_nvidia || lanes % 32 <= 1);
                uint64_t expected = 0;
                for (uint32_t lane = 0; lane < lanes; lane++) {
                    std::vector<uint32_t> of_lane;
                    for (uint32_t round = 0; round < rounds; round++)
                        if (kernel == &ORDERED || (lane ^ round) % 3 != 0)
                            of_lane.push_back(round);
                    expected += of_lane.size();
                    std::vector<uint32_t> &found = all.rounds[lane];
                    if (!is_held)
                        std::sort(found.begin(), found.end());
                    EXPECT(found == of_lane);
                }
                EXPECT(posts == expected);
            }
}

static void values_of_two_kernels(const hostcall_post_queue *queue, uint64_t at) {
    const uint64_t lanes = 200, rounds = 40;
    tally all;
    running one(VALUES, at, lanes, 64, rounds), other(VALUES, at, lanes, 64, rounds);
    uint64_t posts = 0;
    while (!one.is_over || !other.is_over || hostcall_post_queue_has_posts(queue))
        posts += poll(queue, SIZE_MAX, count, &all);
    found_nothing(VALUES, one.out);
    found_nothing(VALUES, other.out);
    EXPECT(posts == 2 * 4 * lanes * rounds && all.pairs == 2 * 2 * lanes * rounds);
    EXPECT(all.fours == 2 * lanes * rounds && all.sixteens == all.fours);
    const uint64_t of_lanes = lanes * (lanes - 1) / 2, of_rounds = rounds * (rounds - 1) / 2;
    EXPECT(all.sum == 2 * (4 * rounds * of_lanes + 4 * lanes * of_rounds + lanes * rounds * rounds));
    /* Waves post together. */
    EXPECT(!code || all.most_in_batch >= 8);
}

int main(int argc, char **argv) {
    hostcall_options *options;
    hostcall_post_queue *queue, *none;
    hostcall_context *context;
    EXPECT(argc == 2 || argc == 3);
    works(hostcall_options_new(argv[1], &options, &error));
    works(hostcall_device_open(&options, &device, &error));
    if (argc > 2)
        works(hostcall_rocm_code_load(device, argv[2], HOSTCALL_ROCM_VERSION_STACKS, &code, &error));
    const uint32_t waves = 8, ring = 1024;
    works(hostcall_post_queue_new(device, "sends", waves, ring, &queue, &error));
    const uint64_t at = hostcall_post_queue_address(queue);
    EXPECT(at != 0 && hostcall_post_queue_address(NULL) == 0 && !hostcall_post_queue_has_posts(queue));

    /* Sizes that cannot be, and wrong arguments. */
    fails(hostcall_post_queue_new(device, "none", 8, 1000, &none, &error), HOSTCALL_STATUS_REFUSED, "a post ring has a power of two of entries");
    fails(hostcall_post_queue_new(device, "none", 8, 1 << 17, &none, &error), HOSTCALL_STATUS_REFUSED, "at most 65536");
    if (argc > 2)
        fails(hostcall_post_queue_new(device, "none", 8, 256, &none, &error), HOSTCALL_STATUS_REFUSED, "at least 16 entries for each lane");
    fails(hostcall_post_queue_new(device, "none", 70000, 0, &none, &error), HOSTCALL_STATUS_REFUSED, "1 to 65536 slots");
    fails(hostcall_post_queue_poll(queue, 1, NULL, NULL, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`take` is NULL");

    takes_everything_in_order(queue, at, argv[1][0] == 'c' && argv[1][1] == 'u');
    values_of_two_kernels(queue, at);

    /* A consumer that is slower than the kernel, which posts more than the rings hold. */
    {
        tally all;
        running run(VALUES, at, 64, 64, 300);
        EXPECT(poll_all(queue, run, 100, true, count, &all) == 4 * 64 * 300);
        found_nothing(VALUES, run.out);
    }

    /* Turns, in which the kernel waits for what comes of each message. */
    if (argv[1][0] != 'c' || argv[1][1] != 'u')
        for (uint32_t lanes : {1u, 40u}) {
            running run(TURNS, at, lanes, 64, 200);
            uint64_t posts = 0;
            while (!run.is_over || hostcall_post_queue_has_posts(queue))
                posts += poll(queue, SIZE_MAX, answer, NULL);
            EXPECT(posts == 200 * lanes);
            found_nothing(TURNS, run.out);
        }

    /* Calls, and what is no message. */
    {
        running run(MISUSED, at, 70, 64, 9);
        EXPECT(poll_all(queue, run, SIZE_MAX, false, nothing, NULL) == 70 * 9);
        found_nothing(MISUSED, run.out);
        EXPECT(counts_of(queue).refused_calls > 0 && counts_of(queue).garbage == 0 && counts_of(queue).dropped == 0);
    }
    works(hostcall_context_new(device, "no queue", &context, &error));
    {
        running run(NO_QUEUE, hostcall_context_address(context), 70, 64, 0);
        while (!run.is_over)
            pause_a_moment();
        found_nothing(NO_QUEUE, run.out);
    }
    hostcall_context_free(&context);

    /* One poll at a time. */
    {
        running run(CLAIMED, at, 1, 1, 3);
        EXPECT(poll_all(queue, run, SIZE_MAX, false, polls_again, queue) == 2);
    }

    /* Nobody polls, and the rings are full: a cancellation ends the waits, and polls drop what lies there. */
    {
        const hostcall_post_counts before = counts_of(queue);
        running run(UNTIL_REFUSED, at, 100, 64, waves * ring), waiting(WAITS, at, 100, 64, 0);
        for (int i = 0; i < 100; i++)
            pause_a_moment();
        EXPECT(!run.is_over && !waiting.is_over);
        works(hostcall_post_queue_cancel(queue, &error));
        while (!run.is_over || !waiting.is_over)
            pause_a_moment();
        found_nothing(UNTIL_REFUSED, run.out);
        for (uint64_t found : waiting.out)
            EXPECT(found == 1);
        EXPECT(hostcall_post_queue_has_posts(queue));
        while (hostcall_post_queue_has_posts(queue))
            EXPECT(poll(queue, SIZE_MAX, nothing, NULL) == 0);
        const hostcall_post_counts after = counts_of(queue);
        EXPECT(after.posts == before.posts && after.dropped - before.dropped >= ring / 2 && after.garbage == 0);
    }

    /* Renewed: posts of before are dropped, those of now are not. */
    {
        const hostcall_post_counts before = counts_of(queue);
        {
            running run(CLAIMED, at, 3, 3, 3);
            while (!run.is_over)
                pause_a_moment();
        }
        works(hostcall_post_queue_renew(queue, &error));
        running run(ORDERED, at, 70, 64, 20);
        seen all;
        EXPECT(poll_all(queue, run, SIZE_MAX, false, note, &all) == 70 * 20);
        found_nothing(ORDERED, run.out);
        EXPECT(counts_of(queue).dropped - before.dropped == 4);
        /* Also without a cancellation. */
        works(hostcall_post_queue_renew(queue, &error));
        running again(CLAIMED, at, 3, 3, 3);
        EXPECT(poll_all(queue, again, SIZE_MAX, false, note, &all) == 4);
    }

    /* Closed with posts that nobody has read, which are counted. */
    {
        hostcall_post_counts before = counts_of(queue), after;
        {
            running run(ORDERED, at, 5, 5, 10);
            while (!run.is_over)
                pause_a_moment();
        }
        works(hostcall_post_queue_close(&queue, &after, &error));
        EXPECT(queue == NULL && after.dropped - before.dropped == 50 && after.posts == before.posts);
        running run(UNTIL_REFUSED, at, 20, 64, waves * ring);
        while (!run.is_over)
            pause_a_moment();
        found_nothing(UNTIL_REFUSED, run.out);
    }
    fails(hostcall_post_queue_poll(queue, 1, nothing, NULL, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`queue` is NULL");

    /* A device that is closed ends the waits too. */
    works(hostcall_post_queue_new(device, "late", waves, ring, &queue, &error));
    if (!code) {
        running run(UNTIL_REFUSED, hostcall_post_queue_address(queue), 20, 64, waves * ring);
        for (int i = 0; i < 20; i++)
            pause_a_moment();
        EXPECT(!run.is_over);
        works(hostcall_device_close(device, &error));
        while (!run.is_over)
            pause_a_moment();
        found_nothing(UNTIL_REFUSED, run.out);
        fails(hostcall_post_queue_poll(queue, 1, nothing, NULL, NULL, &error), HOSTCALL_STATUS_CLOSED, "closed");
        fails(hostcall_post_queue_renew(queue, &error), HOSTCALL_STATUS_CLOSED, "closed");
    }
    hostcall_post_queue_free(&queue);
    hostcall_post_queue_free(&queue);
    hostcall_rocm_code_free(&code);
    hostcall_device_free(&device);
    printf("passed\n");
    return 0;
}
