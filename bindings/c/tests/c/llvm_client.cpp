// A host of LLVM's protocol whose clients are threads of the same process. The client is written against the protocol.
#include "hostcall.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#define EXPECT(condition)                                                                                              \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                       \
            std::exit(1);                                                                                              \
        }                                                                                                              \
    } while (0)

static constexpr int CALLS = 10;
static constexpr uint32_t PORTS = 20, LIBC = 'c' << 24, OURS = 'x' << 24, EMISSARY = 'e' << 24 | 1;
static thread_local hostcall_error *error;

static void check(hostcall_status status) {
    if (status != HOSTCALL_STATUS_OK) {
        std::fprintf(stderr, "%s\n", hostcall_error_text(error));
        std::exit(1);
    }
}

/// Expects that a function refuses, with words of its sentence.
static void refused(hostcall_status status, const char *words) {
    if (status == HOSTCALL_STATUS_OK || !std::strstr(hostcall_error_text(error), words)) {
        std::fprintf(stderr, "not refused with \"%s\" but: %s\n", words, hostcall_error_text(error));
        std::exit(1);
    }
    hostcall_error_free(&error);
}

/// The ports of waves of one lane, found by a client object.
struct Client {
    uint32_t *inbox, *outbox;
    uint64_t *headers, *buffers;
    std::vector<std::atomic<bool>> locks = std::vector<std::atomic<bool>>(PORTS);

    Client(uint32_t version, const std::vector<uint64_t> &object) {
        size_t first = version == HOSTCALL_LLVM_VERSION_DOORBELL ? 2 : 1;
        EXPECT((uint32_t)object[0] == PORTS);
        inbox = (uint32_t *)object[first], outbox = (uint32_t *)object[first + 1];
        headers = (uint64_t *)object[first + 2], buffers = (uint64_t *)object[first + 3];
    }
};

/// Gives others the processor: all of these threads may have one together.
static void pause() { std::this_thread::sleep_for(std::chrono::microseconds(20)); }

struct Port {
    Client &client;
    uint32_t index = 0, out = 0;
    bool received = false;

    Port(Client &client, uint32_t opcode) : client(client) {
        for (;; index = (index + 1) % PORTS) {
            if (client.locks[index].exchange(true))
                continue;
            out = __atomic_load_n(&client.outbox[index], __ATOMIC_RELAXED);
            if (__atomic_load_n(&client.inbox[index], __ATOMIC_ACQUIRE) == out)
                break;
            client.locks[index] = false;
            pause();
        }
        client.headers[2 * index] = 1;
        // The rest of the word is padding, which may hold anything.
        client.headers[2 * index + 1] = opcode | (uint64_t)0xabcd << 32;
    }

    ~Port() { client.locks[index] = false; }

    void wait() {
        while (__atomic_load_n(&client.inbox[index], __ATOMIC_ACQUIRE) != out)
            pause();
    }

    void hand_over() {
        out ^= 1, received = false;
        __atomic_store_n(&client.outbox[index], out, __ATOMIC_RELEASE);
    }

    Port &send(const std::vector<uint64_t> &words) {
        wait();
        std::memcpy(&client.buffers[8 * index], words.data(), 8 * words.size());
        hand_over();
        return *this;
    }

    uint64_t *receive() {
        if (received)
            hand_over();
        wait();
        received = true;
        return &client.buffers[8 * index];
    }

    Port &send_bytes(const std::string &bytes) {
        wait();
        client.buffers[8 * index] = bytes.size();
        std::memcpy(&client.buffers[8 * index + 1], bytes.data(), std::min<size_t>(bytes.size(), 56));
        hand_over();
        for (size_t at = 56; at < bytes.size(); at += 64) {
            wait();
            std::memcpy(&client.buffers[8 * index], &bytes[at], std::min<size_t>(bytes.size() - at, 64));
            hand_over();
        }
        return *this;
    }

    std::string receive_bytes() {
        uint64_t *buffer = receive(), size = buffer[0];
        std::string bytes((char *)&buffer[1], std::min<size_t>(size, 56));
        while (bytes.size() < size)
            bytes.append((char *)receive(), std::min<size_t>(size - bytes.size(), 64));
        return bytes;
    }
};

/// A handler's state, which counts how often it was used and freed, and what it holds.
struct Counted {
    std::atomic<int> calls{0}, freed{0}, allocated{0}, printed{0};
};

static void free_counted(void *state) { ++((Counted *)state)->freed; }

static int32_t add(void *state, uint32_t opcode, uint64_t mask, uint64_t (*buffers)[8]) {
    EXPECT(mask == 1);
    ++((Counted *)state)->calls;
    buffers[0][0] += opcode - OURS;
    return opcode == OURS + 9 ? 5 : 0;
}

static int32_t reverse(void *state, hostcall_llvm_call *call) {
    size_t count;
    ++((Counted *)state)->calls;
    if (hostcall_llvm_call_receive_bytes(call) != HOSTCALL_STATUS_OK)
        return 1;
    uint8_t *bytes = hostcall_llvm_call_bytes(call, 0, &count);
    std::string text(bytes, bytes + count), back(text.rbegin(), text.rend());
    EXPECT(hostcall_llvm_call_set_bytes(call, 0, (const uint8_t *)back.data(), count) == HOSTCALL_STATUS_OK);
    EXPECT(hostcall_llvm_call_set_bytes(call, 64, nullptr, 0) == HOSTCALL_STATUS_INVALID_ARGUMENT);
    EXPECT(!hostcall_llvm_call_words(call, 64) && hostcall_llvm_call_mask(call) == 1);
    if (hostcall_llvm_call_send_bytes(call) != HOSTCALL_STATUS_OK)
        return 2;
    return hostcall_llvm_call_receive(call) != HOSTCALL_STATUS_OK ||
           (++*hostcall_llvm_call_words(call, 0), hostcall_llvm_call_send(call) != HOSTCALL_STATUS_OK);
}

// double scaled(double by, const char *text, double *values): a function that clients dispatch.
static int32_t scaled(void *state, uint32_t, const hostcall_llvm_argument *arguments, void *result) {
    double by, sum = 0, *values = (double *)arguments[2].data;
    std::memcpy(&by, arguments[0].data, sizeof by);
    EXPECT(arguments[1].bytes == 5 && !std::strcmp((char *)arguments[1].data, "text"));
    for (size_t i = 0; i < arguments[2].bytes / sizeof(double); i++)
        sum += values[i] *= by;
    std::memcpy(result, &sum, sizeof sum);
    ++((Counted *)state)->calls;
    return 0;
}

static int32_t dispatch_scaled(void *state, hostcall_llvm_call *call) {
    static const hostcall_llvm_parameter parameters[] = {{HOSTCALL_LLVM_PARAMETER_KIND_VALUE, sizeof(double)},
                                                         {HOSTCALL_LLVM_PARAMETER_KIND_INPUT, 0},
                                                         {HOSTCALL_LLVM_PARAMETER_KIND_POINTER, 0}};
    return hostcall_llvm_call_dispatch(call, parameters, 3, sizeof(double), scaled, state) != HOSTCALL_STATUS_OK;
}

static int32_t emissary(void *state, uint32_t function, uint32_t lane, const hostcall_llvm_emissary_argument *arguments,
                        size_t count, uint64_t *result) {
    EXPECT(function == 4 && lane == 0 && count == 2);
    EXPECT(arguments[0].kind == HOSTCALL_LLVM_EMISSARY_KIND_TEXT && !std::strcmp((char *)arguments[0].data, "abc"));
    EXPECT(arguments[1].kind == HOSTCALL_LLVM_EMISSARY_KIND_INTEGER && arguments[1].bits == 32);
    *result = arguments[1].word * 2;
    ++((Counted *)state)->calls;
    return 0;
}

static uint64_t host_function(void *state, uint8_t *bytes, size_t count) {
    ++((Counted *)state)->calls;
    return count + bytes[0];
}

static int32_t wait_for_ever(void *state, hostcall_llvm_call *call) {
    hostcall_llvm_call_receive(call);
    ((Counted *)state)->calls = 1;
    hostcall_status status = hostcall_llvm_call_receive(call);
    ((Counted *)state)->calls = status == HOSTCALL_STATUS_CLOSED ? 2 : 3;
    return 1;
}

static uint64_t allocate(void *state, uint64_t bytes, uint64_t align) {
    ++((Counted *)state)->allocated;
    return (uint64_t)std::aligned_alloc(align, (bytes + align - 1) / align * align);
}

static void release(void *state, uint64_t address) {
    --((Counted *)state)->allocated;
    std::free((void *)address);
}

static void report(void *state, const char *text) {
    EXPECT(std::strstr(text, "cannot go on") || std::strstr(text, "where none is registered"));
    ++((Counted *)state)->calls;
}

/// Waits for what another thread does.
static void until(const std::function<bool()> &holds) {
    for (int waits = 0; !holds(); waits++) {
        EXPECT(waits < 60000);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

static void print(void *state, int stream, const char *text, size_t size) {
    EXPECT(stream == 1 && size == 8 && !std::memcmp(text, "printed\n", 8));
    ++((Counted *)state)->printed;
}

static hostcall_options *options(Counted *output) {
    hostcall_options *made;
    check(hostcall_options_new("", &made, &error));
    if (output)
        check(hostcall_options_output(made, print, output, nullptr, &error));
    return made;
}

/// A server, its memory and its client.
struct Host {
    hostcall_llvm_config config{};
    hostcall_llvm_server *server = nullptr;
    std::vector<uint64_t> object;
    Counted of_config;

    Host(uint32_t version, uint32_t threads, bool answers_faults = false) {
        config.answers_faults = answers_faults;
        config.version = version, config.ports = PORTS, config.lanes = 1, config.threads = threads;
        config.bytes = hostcall_llvm_memory_bytes(version, PORTS, 1);
        config.memory = std::aligned_alloc(64, (config.bytes + 63) / 64 * 64);
        std::memset(config.memory, 0, config.bytes);
        config.device_address = (uint64_t)config.memory;
        config.allocate = allocate, config.release = release;
        config.report = report, config.state = &of_config, config.free_state = free_counted;
        auto made = options(&of_config);
        check(hostcall_llvm_server_start(&made, &config, &server, &error));
        EXPECT(!made);
        object.resize(hostcall_llvm_client_bytes(version) / 8);
        check(hostcall_llvm_server_client(server, (uint8_t *)object.data(), 8 * object.size(), &error));
    }

    ~Host() {
        hostcall_llvm_server_free(&server);
        until([&] { return of_config.freed == 1; });
        std::free(config.memory);
    }
};

static void calls_of(uint32_t version, uint32_t threads) {
    Host host(version, threads);
    bool is_19 = version == HOSTCALL_LLVM_VERSION_POINTER;
    auto ours = [&](uint32_t number) { return is_19 ? number + 0x4000 : OURS + number; };
    auto libc = [&](uint32_t number) { return is_19 ? number : LIBC | number; };
    std::atomic<bool> polls{threads == 0};
    std::thread poller([&] {
        while (polls)
            if (hostcall_llvm_server_poll(host.server) == 0)
                pause();
    });
    Counted packets, worker, talks, typed, functions, apis;
    if (!is_19)
        check(hostcall_llvm_server_handle_packets(host.server, OURS, OURS + 4, true, add, &packets, free_counted, &error));
    if (!is_19)
        check(hostcall_llvm_server_handle_packets(host.server, OURS + 5, OURS + 9, false, add, &worker, free_counted, &error));
    check(hostcall_llvm_server_handle(host.server, ours(10), ours(10), reverse, &talks, free_counted, &error));
    check(hostcall_llvm_server_handle(host.server, ours(11), ours(11), dispatch_scaled, &typed, free_counted, &error));
    check(hostcall_llvm_server_handle_emissary(host.server, 5, emissary, &apis, free_counted, &error));
    uint64_t function;
    check(hostcall_llvm_server_register_function(host.server, host_function, &functions, free_counted, &function, &error));
    Counted refused_state;
    refused(hostcall_llvm_server_handle(host.server, ours(11), ours(12), reverse, &refused_state, free_counted, &error),
            "have a handler");
    EXPECT(refused_state.freed == 1);

    Client client(version, host.object);
    auto one = [&](uint64_t seed) {
        if (!is_19) {
            EXPECT(*Port(client, OURS + 3).send({seed}).receive() == seed + 3);
            EXPECT(*Port(client, OURS + 7).send({seed}).receive() == seed + 7);
        }
        {
            Port port(client, ours(10));
            std::string text(100 + seed % 90, 'a');
            text += "bc";
            port.send_bytes(text);
            EXPECT(port.receive_bytes() == "cb" + text.substr(0, text.size() - 2));
            EXPECT(*port.send({seed}).receive() == seed + 1);
        }
        {
            Port port(client, ours(11));
            double values[9], by = 2, result;
            for (int i = 0; i < 9; i++)
                values[i] = i + 1;
            port.send_bytes(std::string("text", 5));
            uint64_t text = *port.receive();
            port.send_bytes(std::string((char *)values, sizeof values));
            uint64_t memory = *port.receive(), word;
            std::memcpy(&word, &by, sizeof by);
            port.send({word, text, memory});
            EXPECT(port.receive_bytes().empty());
            std::string back = port.receive_bytes();
            EXPECT(back.size() == sizeof values && ((double *)back.data())[8] == 18);
            std::memcpy(&result, port.receive(), sizeof result);
            EXPECT(result == 90);
        }
        {
            Port port(client, libc(12));
            EXPECT(*port.send_bytes("xyz").send({function}).receive() == 3 + 'x');
        }
        uint64_t address = *Port(client, libc(10)).send({seed + 1}).receive();
        EXPECT(address && address % 16 == 0);
        std::memset((void *)address, 1, seed + 1);
        Port(client, libc(11)).send({address});
        EXPECT(*Port(client, 0x8001).send({seed}).receive() == seed + 1);
        if (!is_19) {
            uint32_t keys[] = {36, 3, 2 << 16 | 64, 3 << 16 | 1, 2 << 16 | 32};
            uint64_t own = (uint64_t)5 << 48 | (uint64_t)4 << 32;
            uint32_t arguments[] = {4, 21};
            std::string block((char *)keys, sizeof keys);
            block.append(4, '\0').append((char *)&own, 8).append((char *)arguments, 8).append("abc", 4);
            *(uint32_t *)&block[0] = (uint32_t)block.size() - 4;
            EXPECT(*Port(client, EMISSARY).send_bytes(block).receive() == 42);
        }
    };
    std::vector<std::thread> clients;
    for (uint64_t thread = 0; thread < 4; thread++)
        clients.emplace_back([&, thread] {
            for (uint64_t call = 0; call < CALLS; call++)
                one(1000 * thread + call);
        });
    for (auto &thread : clients)
        thread.join();
    EXPECT(*Port(client, libc(2)).send_bytes("printed\n").receive() == 8);
    EXPECT(packets.calls == (is_19 ? 0 : 4 * CALLS) && talks.calls == 4 * CALLS && typed.calls == 4 * CALLS && functions.calls == 4 * CALLS);
    EXPECT(apis.calls == (is_19 ? 0 : 4 * CALLS) && worker.calls == packets.calls);
    until([&] { return host.of_config.allocated == 0; });
    EXPECT(hostcall_llvm_server_flush(host.server) && host.of_config.printed == 1);

    // What ends a port: a failure, an opcode that nobody has; then one that the last handler has, and the rest goes on.
    if (!is_19)
        std::thread([&] { Port(client, OURS + 9).send({1}); }).join();
    std::thread([&] { Port(client, ours(99)).send({1}); }).join();
    until([&] { return host.of_config.calls == (is_19 ? 1 : 2); });
    Counted unknown;
    check(hostcall_llvm_server_handle_unknown(host.server, reverse, &unknown, free_counted, &error));
    {
        Port port(client, ours(98));
        EXPECT(port.send_bytes("ab").receive_bytes() == "ba" && *port.send({1}).receive() == 2);
    }
    hostcall_llvm_counts counts;
    check(hostcall_llvm_server_statistics(host.server, &counts, &error));
    EXPECT(counts.calls > 20 * CALLS && counts.faults == (is_19 ? 1 : 2));

    // The program ends itself.
    int32_t code = 0;
    EXPECT(!hostcall_llvm_server_ended(host.server, &code));
    {
        Port port(client, libc(1));
        port.send({0}).receive();
        port.send({7});
    }
    until([&] { return hostcall_llvm_server_ended(host.server, &code); });
    EXPECT(code == 7);

    // A handler that waits for a client is let go.
    Counted waits;
    check(hostcall_llvm_server_handle(host.server, ours(20), ours(20), wait_for_ever, &waits, free_counted, &error));
    Port(client, ours(20)).send({1});
    until([&] { return waits.calls == 1; });
    EXPECT(hostcall_llvm_server_cancel(host.server));
    until([&] { return waits.calls == 2; });
    polls = false;
    poller.join();
    hostcall_llvm_server_free(&host.server);
    EXPECT(!host.server && hostcall_llvm_server_poll(host.server) == 0);
    for (Counted *state : {&talks, &typed, &functions, &apis, &unknown, &waits})
        until([&] { return state->freed == 1; });
    until([&] { return packets.freed == (is_19 ? 0 : 1); });
}

static void square(void *state, const uint64_t *arguments, uint64_t *result) {
    result[0] = arguments[0] * arguments[0], result[1] = arguments[6];
    ++((Counted *)state)->calls;
}

static void sanitizer(void *state, uint32_t service, uint32_t lane, uint64_t *words) {
    EXPECT(service == 4 && lane == 0 && words[0] == 0x1000);
    words[0] = 77;
    ++((Counted *)state)->calls;
}

/// ROCm's services by opcodes, and calls that cannot go on, of a server that answers those with zeros.
static void services_of_rocm() {
    enum : uint32_t { FUNCTION = 'r' << 24, MEMORY, SANITIZER, PRINTF };
    Host host(HOSTCALL_LLVM_VERSION_DOORBELL, 1, true);
    Counted functions, reports;
    hostcall_rocm_services *services = nullptr;
    uint64_t number = 0;
    check(hostcall_rocm_services_new(&services, &error));
    check(hostcall_rocm_services_register_function(services, square, &functions, free_counted, &number, &error));
    check(hostcall_rocm_services_register(services, 4, "reports", true, sanitizer, &reports, free_counted, &error));
    Counted refused_state;
    refused(hostcall_rocm_services_register(services, 4, "reports", true, sanitizer, &refused_state, free_counted, &error),
            "has a handler");
    EXPECT(refused_state.freed == 1);
    check(hostcall_llvm_server_handle_rocm(host.server, services, &error));
    refused(hostcall_llvm_server_handle_rocm(host.server, services, &error), "have a handler");
    refused(hostcall_llvm_server_handle_rocm(host.server, nullptr, &error), "`services` is NULL");
    hostcall_rocm_services_free(&services);
    EXPECT(!services && functions.freed == 0);

    Client client(HOSTCALL_LLVM_VERSION_DOORBELL, host.object);
    auto ask = [&](uint32_t opcode, const std::vector<uint64_t> &words) {
        uint64_t *answer = Port(client, opcode).send(words).receive();
        return std::vector<uint64_t>(answer, answer + 2);
    };
    using words = std::vector<uint64_t>;
    EXPECT(ask(FUNCTION, {number, 5, 0, 0, 0, 0, 0, 9}) == (words{25, 9}) && functions.calls == 1);
    EXPECT(ask(SANITIZER, {0x1000, 0, 0, 0, 0, 0, 0, 8})[0] == 77 && reports.calls == 1);
    uint64_t memory = ask(MEMORY, {0, 64, 0, 0, 0, 0, 0, 0})[0];
    EXPECT(memory && host.of_config.allocated == 1);
    std::memset((void *)memory, 1, 64);
    ask(MEMORY, {memory, 0, 0, 0, 0, 0, 0, 0});
    EXPECT(host.of_config.allocated == 0);
    uint64_t format;
    std::memcpy(&format, "printed\n", 8);
    EXPECT(ask(PRINTF, {1 | 2 | 3 << 5, 0, format, 0, 0, 0, 0, 0})[0] == 8);
    EXPECT(hostcall_llvm_server_flush(host.server) && host.of_config.printed == 1);

    // What nobody has, in a call of several packets: the client ends, and the port is served on.
    EXPECT(ask(FUNCTION, {number + 1, 5, 0, 0, 0, 0, 0, 0}) == (words{0, 0}));
    {
        Port port(client, OURS);
        EXPECT(*port.send({5}).receive() == 0 && *port.receive() == 0);
        EXPECT(port.send({6}).receive_bytes().empty());
    }
    EXPECT(ask(FUNCTION, {number, 6, 0, 0, 0, 0, 0, 0})[0] == 36);
    hostcall_llvm_counts counts;
    check(hostcall_llvm_server_statistics(host.server, &counts, &error));
    EXPECT(counts.faults == 2);
    until([&] { return host.of_config.calls == 2; });
    hostcall_llvm_server_free(&host.server);
    until([&] { return functions.freed == 1 && reports.freed == 1; });
}

static void refusals() {
    uint32_t version = 0;
    check(hostcall_llvm_version_of_symbol("__llvm_rpc_client", 552, &version, &error));
    EXPECT(version == HOSTCALL_LLVM_VERSION_OBJECT);
    refused(hostcall_llvm_version_of_symbol("__llvm_rpc_client", 553, &version, &error), "no version of LLVM's protocol");
    refused(hostcall_llvm_version_of_image((const uint8_t *)"text", 4, &version, &error), "is no image");
    EXPECT(hostcall_llvm_memory_bytes(HOSTCALL_LLVM_VERSION_OBJECT, 4097, 32) == 0);
    EXPECT(hostcall_llvm_memory_bytes(HOSTCALL_LLVM_VERSION_OBJECT, 64, 16) == 0);
    EXPECT(hostcall_llvm_memory_bytes(21, 64, 32) == 0 && hostcall_llvm_client_bytes(21) == 0);
    alignas(64) static char memory[4096];
    hostcall_llvm_config good{}, config;
    Counted state;
    good.version = HOSTCALL_LLVM_VERSION_OBJECT, good.ports = 16, good.lanes = 1, good.threads = 1;
    good.memory = memory, good.bytes = sizeof memory, good.state = &state, good.free_state = free_counted;
    hostcall_llvm_server *server;
    auto refuses = [&](const char *words) {
        auto made = options(nullptr);
        refused(hostcall_llvm_server_start(&made, &config, &server, &error), words);
        EXPECT(!server && !made);
    };
    config = good, config.version = 22, refuses("no version 22");
    config = good, config.ports = 0, refuses("1 to 4096 ports");
    config = good, config.lanes = 48, refuses("1, 32 or 64 lanes");
    config = good, config.memory = memory + 8, refuses("multiple of 64");
    config = good, config.bytes = 1000, refuses("hostcall_llvm_memory_bytes");
    config = good, config.allocate = allocate, refuses("set both, or none");
    memory[0] = 1, config = good, refuses("used before");
    memory[0] = 0;
    EXPECT(state.freed == 7);
    auto made = options(nullptr);
    check(hostcall_llvm_server_start(&made, &good, &server, &error));
    uint8_t object[8];
    refused(hostcall_llvm_server_client(server, object, sizeof object, &error), "has 552");
    refused(hostcall_llvm_server_handle(server, 9, 8, reverse, nullptr, nullptr, &error), "is no range");
    refused(hostcall_llvm_server_handle(server, 8, 9, nullptr, nullptr, nullptr, &error), "`handler` is NULL");
    refused(hostcall_llvm_server_handle_emissary(server, 70000, emissary, nullptr, nullptr, &error), "too large");
    refused(hostcall_llvm_server_statistics(nullptr, nullptr, &error), "`server` is NULL");
    hostcall_llvm_server_free(&server);
    until([&] { return state.freed == 8; });
}

int main() {
    refusals();
    services_of_rocm();
    std::vector<std::thread> hosts;
    for (uint32_t version : {HOSTCALL_LLVM_VERSION_POINTER, HOSTCALL_LLVM_VERSION_OBJECT, HOSTCALL_LLVM_VERSION_DOORBELL})
        calls_of(version, 1), calls_of(version, 0);
    // Several servers at once.
    for (uint32_t threads : {0, 1, 2})
        hosts.emplace_back(calls_of, HOSTCALL_LLVM_VERSION_DOORBELL, threads);
    for (auto &host : hosts)
        host.join();
    std::puts("passed");
}
