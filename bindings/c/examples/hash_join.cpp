/*
 * Joins rows with a table of which the GPU has a part: the kernel asks this host for the other keys, a wave at a time.
 *
 *     hash_join cuda:0 1000000 100000 hash_join.cubin
 *     hash_join cpu 20000 1000
 *
 * The arguments are a device, rows, keys of the table, and examples/hash_join.hip as a code object, a cubin or PTX; on `cpu`
 * threads of this program are the lanes.
 */
#include "hostcall.h"

#include "hash_join.hip"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <unordered_map>
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

// ANCHOR: service
/* The whole table, where a database or a store of pages would be. Nobody changes it while kernels ask. */
struct prices {
    std::unordered_map<uint64_t, uint64_t> of;
    std::atomic<uint64_t> asked{0};
};

/* Answers a lane. It runs inline, on the thread that finds calls, since it waits for nothing. */
static int32_t find(void *state, const hostcall_call *call, hostcall_reply *reply) {
    prices &prices = *(struct prices *)state;
    if (call->word_count != 2)
        return 1;
    uint64_t answer[2] = {0, 0};
    if (call->words[0] != 0) {
        prices.asked.fetch_add(1, std::memory_order_relaxed);
        const auto found = prices.of.find(call->words[1]);
        if (found != prices.of.end())
            answer[0] = 1, answer[1] = found->second;
    }
    return hostcall_reply_words(reply, answer, 2) != HOSTCALL_STATUS_OK;
}

static const hostcall_method METHODS[] = {{PRICES_FIND, "Prices::find"}};
// ANCHOR_END: service

/* A generator of numbers, the same for each run. */
struct numbers {
    uint64_t state = 1;

    uint64_t next() {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return state >> 20;
    }
};

static const uint32_t LANES_OF_BLOCK = 256;

/* Memory of the device with these values. */
template <class Value> struct buffer {
    hostcall_buffer *of_device = NULL;
    std::vector<Value> values;

    buffer(const hostcall_device *device, std::vector<Value> values) : values(std::move(values)) {
        CHECK(hostcall_buffer_alloc, device, HOSTCALL_KIND_U64, bytes() / 8, &of_device);
        CHECK(hostcall_buffer_write, of_device, this->values.data(), bytes());
    }
    size_t bytes() const { return values.size() * sizeof(Value); }
    void read() { CHECK(hostcall_buffer_read, of_device, values.data(), bytes()); }
    ~buffer() { hostcall_buffer_free(&of_device); }
};

int main(int argc, char **argv) {
    if (argc != 4 && argc != 5) {
        fprintf(stderr, "usage: %s DEVICE ROWS KEYS [CODE]\n", argv[0]);
        return 2;
    }
    uint32_t count = (uint32_t)strtoul(argv[2], NULL, 10);
    const uint32_t keys = (uint32_t)strtoul(argv[3], NULL, 10);
    if (count == 0 || keys == 0) {
        fprintf(stderr, "one row and one key or more\n");
        return 2;
    }
    /* The keys are odd numbers, and every third of them is on the GPU, in a table that is half empty. */
    prices prices;
    uint32_t places = 4;
    while (places < 2 * (keys / 3 + 1))
        places *= 2;
    std::vector<entry> part(places);
    for (uint32_t i = 0; i < keys; i++) {
        const uint64_t key = 2 * (uint64_t)i + 1, price = 100 + key % 900;
        prices.of[key] = price;
        if (i % 3 == 0) {
            uint32_t at = place_of(key, places - 1);
            while (part[at].key != 0)
                at = (at + 1) & (places - 1);
            part[at] = {key, price};
        }
    }
    /* One row in 16 has a key that nobody has. */
    numbers numbers;
    std::vector<row> all(count);
    for (auto &row : all) {
        const uint64_t key = 2 * (numbers.next() % keys) + 1;
        row = {numbers.next() % 16 == 0 ? key + 1 : key, numbers.next() % 100};
    }

    hostcall_options *options;
    hostcall_device *device;
    hostcall_context *context;
    const hostcall_service service = {METHODS, 1, find, &prices, NULL, true};
    CHECK(hostcall_options_new, argv[1], &options);
    CHECK(hostcall_options_service, options, &service);
    CHECK(hostcall_device_open, &options, &device);
    CHECK(hostcall_context_new, device, "probe", &context);
    uint64_t at = hostcall_context_address(context);
    uint32_t lanes = argc > 4 ? 64 * LANES_OF_BLOCK : 8;
    std::vector<uint64_t> out, outcomes;
    if (argc > 4) {
        hostcall_stream *stream;
        hostcall_rocm_code *code;
        hostcall_rocm_kernel *kernel;
        buffer<row> rows(device, all);
        buffer<entry> table(device, part);
        buffer<uint64_t> joined(device, std::vector<uint64_t>(count)), found(device, std::vector<uint64_t>((size_t)lanes * OUTCOMES));
        const hostcall_grid grid = {{lanes / LANES_OF_BLOCK, 1, 1}, {LANES_OF_BLOCK, 1, 1}, 0};
        hostcall_rocm_argument arguments[8] = {};
        const auto value = [&](int i, size_t bytes, const void *of) {
            arguments[i].kind = HOSTCALL_ROCM_KIND_VALUE;
            arguments[i].bytes = bytes;
            arguments[i].value.bytes = of;
        };
        const auto memory = [&](int i, const hostcall_buffer *of) {
            arguments[i].kind = HOSTCALL_ROCM_KIND_BUFFER;
            arguments[i].value.buffer = of;
        };
        value(0, sizeof at, &at);
        memory(1, rows.of_device);
        value(2, sizeof count, &count);
        memory(3, table.of_device);
        value(4, sizeof places, &places);
        memory(5, joined.of_device);
        memory(6, found.of_device);
        value(7, sizeof lanes, &lanes);
        CHECK(hostcall_stream_new, device, &stream);
        CHECK(hostcall_rocm_code_load, device, argv[4], HOSTCALL_ROCM_VERSION_STACKS, &code);
        CHECK(hostcall_rocm_code_kernel, code, "probe", &kernel);
        CHECK(hostcall_rocm_kernel_launch, kernel, stream, &grid, arguments, 8, NULL);
        CHECK(hostcall_stream_synchronize, stream);
        joined.read();
        found.read();
        out = joined.values;
        outcomes = found.values;
        hostcall_rocm_kernel_free(&kernel);
        hostcall_rocm_code_free(&code);
        hostcall_stream_free(&stream);
    } else {
        out.resize(count);
        outcomes.resize((size_t)lanes * OUTCOMES);
        std::vector<std::thread> threads;
        for (uint32_t lane = 0; lane < lanes; lane++)
            threads.emplace_back([&, lane] {
                lane_of_all = lane;
                probe(at, all.data(), count, part.data(), places, out.data(), outcomes.data(), lanes);
            });
        for (auto &thread : threads)
            thread.join();
    }

    /* The same join here. */
    uint64_t wrong = 0, sum = 0, totals[OUTCOMES] = {0};
    for (uint32_t i = 0; i < count; i++) {
        const auto found = prices.of.find(all[i].key);
        const uint64_t expected = found == prices.of.end() ? 0 : all[i].amount * found->second;
        wrong += out[i] != expected;
        sum += out[i];
    }
    for (size_t i = 0; i < outcomes.size(); i++)
        totals[i % OUTCOMES] += outcomes[i];
    const bool is_right = wrong == 0 && totals[FAILED] == 0 && totals[HIT] + totals[ASKED] + totals[ABSENT] == count &&
                          prices.asked == totals[ASKED] + totals[ABSENT];
    printf("%u rows: %llu on the GPU, %llu asked for, %llu nowhere; sum %llu, %s\n", count, (unsigned long long)totals[HIT],
           (unsigned long long)totals[ASKED], (unsigned long long)totals[ABSENT], (unsigned long long)sum,
           is_right ? "as here" : "NOT as here");
    hostcall_context_free(&context);
    hostcall_device_free(&device);
    return is_right ? 0 : 1;
}
