// A client that lies, ends things while they are used and forks. The second argument says which of it.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            _exit(1);                                                                                                 \
        }                                                                                                             \
    } while (0)
#define CHECK(call) EXPECT((call) == HSA_STATUS_SUCCESS)
#define SLOTS 64
#define DISPATCH (HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE)

static const char *device_file;
static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t memory;
static hsa_executable_t executable;
static hsa_queue_t *queue;
static _Atomic uint64_t queue_error, fault_address, reported;
static _Atomic uint32_t heart, end;

static hsa_status_t find_agent(hsa_agent_t agent, void *data) {
    hsa_device_type_t type;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    *(type == HSA_DEVICE_TYPE_GPU ? &gpu : &cpu) = agent;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *data) {
    memory = pool;
    return HSA_STATUS_INFO_BREAK;
}

static hsa_status_t on_event(const hsa_amd_event_t *event, void *data) {
    atomic_store(&fault_address, event->memory_fault.virtual_address);
    return HSA_STATUS_SUCCESS;
}

static void on_queue_error(hsa_status_t status, hsa_queue_t *source, void *data) {
    atomic_store(&queue_error, status);
    // Whoever destroys the queue now waits for this.
    usleep(50000);
    atomic_fetch_add(&reported, 1);
}

static void wait_for(_Atomic uint64_t *word) {
    while (atomic_load(word) == 0)
        usleep(1000);
}

static void new_queue(void) {
    CHECK(hsa_queue_create(gpu, SLOTS, HSA_QUEUE_TYPE_MULTI, on_queue_error, NULL, UINT32_MAX, UINT32_MAX, &queue));
}

static void *allocate(size_t bytes) {
    void *pointer;
    CHECK(hsa_amd_memory_pool_allocate(memory, bytes, 0, &pointer));
    CHECK(hsa_amd_agents_allow_access(1, &gpu, NULL, pointer));
    return pointer;
}

static hsa_signal_t new_signal(hsa_signal_value_t value) {
    hsa_signal_t signal;
    CHECK(hsa_signal_create(value, 0, NULL, &signal));
    return signal;
}

static void start(void) {
    CHECK(hsa_init());
    CHECK(hsa_iterate_agents(find_agent, NULL));
    EXPECT(hsa_amd_agent_iterate_memory_pools(cpu, find_pool, NULL) == HSA_STATUS_INFO_BREAK);
    FILE *file = fopen(device_file, "rb");
    EXPECT(file != NULL);
    static char image[1 << 20];
    size_t bytes = fread(image, 1, sizeof image, file);
    fclose(file);
    hsa_code_object_reader_t reader;
    CHECK(hsa_code_object_reader_create_from_memory(image, bytes, &reader));
    CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &executable));
    CHECK(hsa_executable_load_agent_code_object(executable, gpu, reader, NULL, NULL));
    CHECK(hsa_executable_freeze(executable, NULL));
    CHECK(hsa_code_object_reader_destroy(reader));
    void *same;
    CHECK(hsa_amd_memory_lock((void *) &heart, sizeof heart, &gpu, 1, &same));
    CHECK(hsa_amd_memory_lock((void *) &end, sizeof end, &gpu, 1, &same));
    new_queue();
}

static hsa_kernel_dispatch_packet_t packet_of(const char *kernel, const void *arguments, size_t bytes, uint32_t lanes) {
    hsa_kernel_dispatch_packet_t packet = {0};
    hsa_executable_symbol_t symbol;
    CHECK(hsa_executable_get_symbol_by_name(executable, kernel, &gpu, &symbol));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &packet.kernel_object));
    packet.kernarg_address = allocate(512);
    memcpy(packet.kernarg_address, arguments, bytes);
    packet.setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
    packet.workgroup_size_x = lanes < 256 ? (uint16_t) lanes : 256;
    packet.workgroup_size_y = packet.workgroup_size_z = 1;
    packet.grid_size_x = lanes;
    packet.grid_size_y = packet.grid_size_z = 1;
    packet.completion_signal = new_signal(1);
    return packet;
}

// Writes a packet of 64 bytes without ringing.
static uint64_t write_packet(const void *packet, uint16_t header) {
    uint64_t id = hsa_queue_add_write_index_relaxed(queue, 1);
    char *slot = (char *) queue->base_address + id % SLOTS * 64;
    memcpy(slot + 4, (const char *) packet + 4, 60);
    uint32_t setup = ((const hsa_kernel_dispatch_packet_t *) packet)->setup;
    __atomic_store_n((uint32_t *) slot, header | setup << 16, __ATOMIC_RELEASE);
    return id;
}

static hsa_signal_t submit(hsa_kernel_dispatch_packet_t packet, uint16_t header) {
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t) write_packet(&packet, header));
    return packet.completion_signal;
}

static hsa_signal_value_t finish(hsa_signal_t signal) {
    return hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
}

static hsa_signal_t dispatch(const char *kernel, const void *arguments, size_t bytes, uint32_t lanes) {
    return submit(packet_of(kernel, arguments, bytes, lanes), DISPATCH);
}

static hsa_signal_t beat(void) {
    void *arguments[] = {(void *) &heart, (void *) &end};
    return dispatch("beat.kd", arguments, sizeof arguments, 64);
}

static void wait_for_beat(void) {
    for (uint32_t before = atomic_load(&heart); atomic_load(&heart) == before;)
        usleep(100);
}

// Runs a launch to its end, which shows that all is well.
static void work(void) {
    uint32_t *counter = allocate(4);
    *counter = 0;
    struct { uint32_t *counter, times; } arguments = {counter, 3};
    EXPECT(finish(dispatch("count.kd", &arguments, sizeof arguments, 1000)) == 0);
    EXPECT(*counter == 3000);
    CHECK(hsa_amd_memory_pool_free(counter));
}

static void lie(hsa_kernel_dispatch_packet_t packet, uint16_t header, hsa_status_t expected) {
    CHECK(hsa_queue_destroy(queue));
    new_queue();
    atomic_store(&queue_error, 0);
    uint64_t before = atomic_load(&reported);
    hsa_signal_t signal = submit(packet, header);
    wait_for(&queue_error);
    EXPECT(queue_error == expected);
    CHECK(hsa_queue_destroy(queue));
    EXPECT(reported == before + 1);
    EXPECT(expected == HSA_STATUS_ERROR_INVALID_SIGNAL || hsa_signal_load_scacquire(signal) == 1);
    new_queue();
}

static void packets(void) {
    uint32_t *counter = allocate(4);
    struct { uint32_t *counter, times; } arguments = {counter, 1};
    const hsa_kernel_dispatch_packet_t good = packet_of("count.kd", &arguments, sizeof arguments, 64);
    hsa_kernel_dispatch_packet_t bad;
#define LIE(status, ...) bad = good; __VA_ARGS__; lie(bad, DISPATCH, HSA_STATUS_ERROR_##status)
    LIE(INVALID_ARGUMENT, bad.setup = 0);
    LIE(INVALID_ARGUMENT, bad.grid_size_x = 0);
    LIE(INVALID_ARGUMENT, bad.workgroup_size_x = 0);
    LIE(INVALID_ARGUMENT, bad.workgroup_size_x = 1025);
    LIE(INVALID_ARGUMENT, bad.setup = 3; bad.workgroup_size_x = bad.workgroup_size_y = bad.workgroup_size_z = 65535);
    LIE(INVALID_ARGUMENT, bad.setup = 3; bad.grid_size_x = bad.grid_size_y = bad.grid_size_z = UINT32_MAX);
    LIE(INVALID_CODE_OBJECT, bad.kernel_object = 0);
    LIE(INVALID_CODE_OBJECT, bad.kernel_object += 8);
    LIE(INVALID_ALLOCATION, bad.group_segment_size = UINT32_MAX);
    LIE(INVALID_ALLOCATION, bad.private_segment_size = UINT32_MAX);
    LIE(INVALID_SIGNAL, bad.completion_signal.handle = 8; bad.completion_signal.handle *= 4096);
    lie(good, 7, HSA_STATUS_ERROR_INVALID_PACKET_FORMAT);
    // A barrier that waits for what is no signal.
    CHECK(hsa_queue_destroy(queue));
    new_queue();
    atomic_store(&queue_error, 0);
    hsa_barrier_and_packet_t barrier = {0};
    barrier.dep_signal[0].handle = 64;
    uint64_t last = write_packet(&barrier, HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE);
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t) last);
    wait_for(&queue_error);
    EXPECT(queue_error == HSA_STATUS_ERROR_INVALID_SIGNAL);
    CHECK(hsa_queue_destroy(queue));
    new_queue();
    // Arguments that lie nowhere.
    bad = good;
    bad.kernarg_address = (void *) 0x1234567000;
    submit(bad, DISPATCH);
    wait_for(&fault_address);
    EXPECT(fault_address == 0x1234567000);
    CHECK(hsa_queue_destroy(queue));
    new_queue();
}

static void doorbells(void) {
    for (int round = 0; round < 20; round++) {
        uint32_t *counter = allocate(4);
        *counter = 0;
        struct { uint32_t *counter, times; } arguments = {counter, 1};
        hsa_kernel_dispatch_packet_t first = packet_of("count.kd", &arguments, sizeof arguments, 64), second = first;
        second.completion_signal = new_signal(1);
        uint64_t one = write_packet(&first, DISPATCH), two = write_packet(&second, DISPATCH);
        // As two threads may do.
        hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t) two);
        hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t) one);
        EXPECT(finish(first.completion_signal) == 0 && finish(second.completion_signal) == 0);
        EXPECT(*counter == 128);
    }
    // As two waves may do, by plain stores, of which the last one is seen.
    hsa_queue_t *own = queue;
    for (int round = 0; round < 10; round++) {
        uint32_t *counter = allocate(4);
        *counter = 0;
        struct { uint32_t *counter, times; } arguments = {counter, 1};
        new_queue();
        hsa_kernel_dispatch_packet_t first = packet_of("count.kd", &arguments, sizeof arguments, 64), second = first;
        second.completion_signal = new_signal(1);
        uint64_t one = write_packet(&first, DISPATCH), two = write_packet(&second, DISPATCH);
        struct { volatile hsa_signal_value_t *doorbell; uint64_t first, second; } rings = {NULL, two, one};
        CHECK(hsa_amd_signal_value_pointer(queue->doorbell_signal, &rings.doorbell));
        hsa_queue_t *rung = queue;
        queue = own;
        EXPECT(finish(dispatch("store.kd", &rings, sizeof rings, 1)) == 0);
        EXPECT(finish(first.completion_signal) == 0 && finish(second.completion_signal) == 0);
        EXPECT(*counter == 128);
        CHECK(hsa_queue_destroy(rung));
    }
}

static void destroy(void) {
    hsa_signal_t beating = beat();
    wait_for_beat();
    // A barrier that nothing opens, and a packet behind it.
    hsa_barrier_and_packet_t barrier = {0};
    barrier.dep_signal[0] = new_signal(1);
    barrier.completion_signal = new_signal(1);
    write_packet(&barrier, HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE);
    hsa_signal_t behind = beat();
    CHECK(hsa_queue_destroy(queue));
    uint32_t last = atomic_load(&heart);
    usleep(20000);
    EXPECT(atomic_load(&heart) == last);
    // What did not come to its end is not said to have.
    EXPECT(hsa_signal_load_scacquire(beating) == 1 && hsa_signal_load_scacquire(behind) == 1);
    EXPECT(hsa_signal_load_scacquire(barrier.completion_signal) == 1);
    EXPECT(hsa_queue_destroy(queue) == HSA_STATUS_ERROR_INVALID_QUEUE);
    new_queue();
}

static _Atomic uint64_t waiting;

static void *wait_for_ever(void *signal) {
    atomic_store(&waiting, 1);
    finish(*(hsa_signal_t *) signal);
    return NULL;
}

static void shut_down(void) {
    beat();
    wait_for_beat();
    // A copy and a thread that wait for what never comes.
    static uint32_t from = 1, to = 0;
    hsa_signal_t never = new_signal(1);
    CHECK(hsa_amd_memory_async_copy(&to, cpu, &from, cpu, 4, 1, &never, new_signal(1)));
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, wait_for_ever, &never) == 0);
    wait_for(&waiting);
    CHECK(hsa_shut_down());
    uint32_t last = atomic_load(&heart);
    EXPECT(pthread_join(thread, NULL) == 0);
    usleep(20000);
    EXPECT(atomic_load(&heart) == last && to == 0);
    EXPECT(hsa_shut_down() == HSA_STATUS_ERROR_NOT_INITIALIZED);
    EXPECT(hsa_signal_destroy(never) == HSA_STATUS_ERROR_NOT_INITIALIZED);
    start();
}

static void free_memory(void) {
    uint32_t *counter = allocate(4096);
    void *arguments[] = {counter, (void *) &end};
    dispatch("beat.kd", arguments, sizeof arguments, 64);
    while (__atomic_load_n(counter, __ATOMIC_RELAXED) == 0)
        usleep(100);
    CHECK(hsa_amd_memory_pool_free(counter));
    wait_for(&fault_address);
    EXPECT(fault_address == (uint64_t) counter);
    CHECK(hsa_queue_destroy(queue));
    new_queue();
}

static void forks(void) {
    beat();
    wait_for_beat();
    pid_t child = fork();
    if (child == 0) {
        const char *text;
        hsa_signal_t signal;
        hsa_status_t status = hsa_signal_create(1, 0, NULL, &signal);
        EXPECT(status == HSA_STATUS_ERROR_NOT_INITIALIZED);
        CHECK(hsa_status_string(status, &text));
        EXPECT(strstr(text, "forked"));
        EXPECT(hsa_init() == HSA_STATUS_ERROR_OUT_OF_RESOURCES);
        EXPECT(hsa_shut_down() == HSA_STATUS_ERROR_NOT_INITIALIZED);
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    wait_for_beat();
    atomic_store(&end, 1);
}

static void clients(void) {
    // Another part of the process uses the runtime, too.
    CHECK(hsa_init());
    EXPECT(hsa_amd_register_system_event_handler(on_event, NULL) == HSA_STATUS_ERROR);
    work();
    CHECK(hsa_shut_down());
}

static void *add(void *counter) {
    for (int i = 0; i < 100000; i++)
        __atomic_fetch_add((uint32_t *) counter, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void atomics(void) {
    uint32_t *counter = allocate(4);
    *counter = 0;
    struct { uint32_t *counter, times; } arguments = {counter, 20};
    hsa_signal_t signal = dispatch("count.kd", &arguments, sizeof arguments, 4096);
    add(counter);
    EXPECT(finish(signal) == 0);
    EXPECT(*counter == 100000 + 20 * 4096);
    *counter = 0;
    // 256 lanes a workgroup, of which the first 64 end; the last workgroup has two waves.
    hsa_kernel_dispatch_packet_t packet = packet_of("meet.kd", &counter, sizeof counter, 256 * 3 + 128);
    packet.group_segment_size = 64;
    EXPECT(finish(submit(packet, DISPATCH)) == 0);
    EXPECT(*counter == 3 * (64 + 255) * 192 / 2 + (64 + 127) * 64 / 2);
}

static _Atomic uint64_t called;

static bool count_call(hsa_signal_value_t value, void *data) {
    EXPECT(value == 0);
    atomic_fetch_add(&called, 1);
    return false;
}

static long threads(void) {
    long count = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        sscanf(line, "Threads: %ld", &count);
    fclose(file);
    return count;
}

// As many copies as a program has in flight, which wait: they take no threads, and all come to their end.
static void copies(void) {
    enum { COPIES = 2000 };
    static uint64_t from = 7, to[COPIES];
    static hsa_signal_t done[COPIES];
    hsa_signal_t opened = new_signal(1);
    long before = threads();
    for (int i = 0; i < COPIES; i++) {
        done[i] = new_signal(1);
        CHECK(hsa_amd_memory_async_copy(&to[i], cpu, &from, cpu, 8, 1, &opened, done[i]));
    }
    EXPECT(threads() <= before + 1);
    usleep(20000);
    EXPECT(to[0] == 0 && hsa_signal_load_scacquire(done[0]) == 1);
    hsa_signal_store_screlease(opened, 0);
    for (int i = 0; i < COPIES; i++)
        EXPECT(finish(done[i]) == 0 && to[i] == 7);
}

// A copy waits for a signal that the client has destroyed, as it knows the signal, which a launch may still change.
static void copies_of_destroyed(void) {
    enum { BYTES = 64 << 20 };
    static uint64_t from = 7, to;
    char *large = allocate(2 * BYTES);
    hsa_signal_t first = new_signal(1), opened = new_signal(1), large_done = new_signal(1), done = new_signal(1);
    CHECK(hsa_amd_memory_async_copy(large, cpu, large + BYTES, cpu, BYTES, 1, &first, large_done));
    CHECK(hsa_amd_memory_async_copy(&to, cpu, &from, cpu, 8, 1, &opened, done));
    // It becomes 0 and is destroyed while the other copy is made.
    hsa_signal_store_screlease(first, 0);
    usleep(5000);
    hsa_signal_store_screlease(opened, 0);
    CHECK(hsa_signal_destroy(opened));
    EXPECT(finish(large_done) == 0 && finish(done) == 0 && to == 7);
    // It is destroyed before a launch changes it.
    hsa_signal_t beating = beat();
    wait_for_beat();
    done = new_signal(1);
    to = 0;
    CHECK(hsa_amd_memory_async_copy(&to, cpu, &from, cpu, 8, 1, &beating, done));
    CHECK(hsa_signal_destroy(beating));
    usleep(20000);
    EXPECT(to == 0);
    atomic_store(&end, 1);
    EXPECT(finish(done) == 0 && to == 7);
}

static hsa_signal_t two[2];
static _Atomic uint64_t slept;

static bool sleep_a_while(hsa_signal_value_t value, void *data) {
    atomic_store(&slept, 1);
    usleep(50000);
    return false;
}

static bool destroy_other(hsa_signal_value_t value, void *other) {
    atomic_fetch_add(&called, 1);
    CHECK(hsa_signal_destroy(*(hsa_signal_t *) other));
    return false;
}

static bool close_again(hsa_signal_value_t value, void *data) {
    hsa_signal_store_screlease(two[0], 1);
    return count_call(value, data);
}

static bool end_runtime(hsa_signal_value_t value, void *data) {
    CHECK(hsa_shut_down());
    return count_call(value, data);
}

// Has handlers of two signals be ready at once. Returns how many were called.
static uint64_t call_both(bool (*handler)(hsa_signal_value_t, void *), hsa_signal_t one, hsa_signal_t other) {
    atomic_store(&slept, 0);
    atomic_store(&called, 0);
    CHECK(hsa_amd_signal_async_handler(new_signal(0), HSA_SIGNAL_CONDITION_EQ, 0, sleep_a_while, NULL));
    wait_for(&slept);
    two[0] = one, two[1] = other;
    CHECK(hsa_amd_signal_async_handler(one, HSA_SIGNAL_CONDITION_EQ, 0, handler, &two[1]));
    CHECK(hsa_amd_signal_async_handler(other, HSA_SIGNAL_CONDITION_EQ, 0, handler, &two[0]));
    wait_for(&called);
    usleep(20000);
    return atomic_load(&called);
}

// A handler may change what others wait for: they are called with a value that fits, of a signal that there is.
static void handlers(void) {
    EXPECT(call_both(destroy_other, new_signal(0), new_signal(0)) == 1);
    hsa_signal_t one = new_signal(0);
    EXPECT(call_both(close_again, one, one) == 1);
    hsa_signal_store_screlease(one, 0);
    while (atomic_load(&called) != 2)
        usleep(1000);
    EXPECT(call_both(end_runtime, new_signal(0), new_signal(0)) == 1);
    start();
}

static hsa_status_t see(const char *kernel, void *address, uint64_t *seen) {
    struct { uint64_t *from, *to; } arguments = {address, seen};
    atomic_store(&fault_address, 0);
    hsa_signal_t signal = dispatch(kernel, &arguments, sizeof arguments, 1);
    while (hsa_signal_load_scacquire(signal) != 0 && fault_address == 0)
        usleep(100);
    if (fault_address == 0)
        return HSA_STATUS_SUCCESS;
    CHECK(hsa_queue_destroy(queue));
    new_queue();
    return HSA_STATUS_ERROR_MEMORY_FAULT;
}

// Pins in pins: what is pinned still is seen by kernels, what is not is a fault and nothing worse.
static void pins(void) {
    static uint64_t block[4096];
    uint64_t *seen = allocate(8);
    void *same;
    block[0] = 1, block[9] = 2, block[4000] = 3;
    CHECK(hsa_amd_memory_lock(block, 8, &gpu, 1, &same));
    CHECK(hsa_amd_memory_lock(block, sizeof block, &gpu, 1, &same));
    CHECK(hsa_amd_memory_lock(block + 8, 64, &gpu, 1, &same));
    CHECK(see("read.kd", block + 4000, seen));
    EXPECT(*seen == 3);
    CHECK(hsa_amd_memory_unlock(block));
    EXPECT(see("read.kd", block + 4000, seen) == HSA_STATUS_ERROR_MEMORY_FAULT);
    CHECK(see("read.kd", block + 9, seen));
    EXPECT(*seen == 2);
    CHECK(see("read.kd", block, seen));
    CHECK(hsa_amd_memory_unlock(block + 8));
    CHECK(hsa_amd_memory_unlock(block));
    EXPECT(see("read.kd", block, seen) == HSA_STATUS_ERROR_MEMORY_FAULT);
    EXPECT(hsa_amd_memory_unlock(block) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    // A pin that runs into memory of a pool.
    char *pool = allocate(4096);
    EXPECT(hsa_amd_memory_lock(pool + 2048, 4096, &gpu, 1, &same) == HSA_STATUS_ERROR_INVALID_ALLOCATION);
    // Whose memory is.
    hsa_amd_pointer_info_t info = {.size = sizeof info};
    CHECK(hsa_amd_pointer_info(pool + 5, &info, NULL, NULL, NULL));
    EXPECT(info.agentOwner.handle == cpu.handle && info.agentBaseAddress == pool && info.sizeInBytes == 4096);
    EXPECT(info.global_flags == HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED);
}

static long resident_kib(void) {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT(fscanf(file, "%ld %ld", &pages, &resident) == 2);
    fclose(file);
    return resident * (getpagesize() / 1024);
}

// Memory that nobody touches takes none of the host's, and more than there is is refused.
static void room(void) {
    long before = resident_kib();
    void *large = allocate((size_t) 256 << 20), *more;
    EXPECT(resident_kib() - before < 64 << 10);
    size_t most;
    CHECK(hsa_amd_memory_pool_get_info(memory, HSA_AMD_MEMORY_POOL_INFO_SIZE, &most));
    EXPECT(hsa_amd_memory_pool_allocate(memory, most + 4096, 0, &more) == HSA_STATUS_ERROR_INVALID_ALLOCATION);
    EXPECT(hsa_amd_memory_pool_allocate(memory, most, 0, &more) == HSA_STATUS_ERROR_OUT_OF_RESOURCES);
    CHECK(hsa_amd_memory_pool_free(large));
    hsa_queue_t *small;
    EXPECT(hsa_queue_create(gpu, 1, HSA_QUEUE_TYPE_MULTI, NULL, NULL, 0, 0, &small) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
}

static hsa_status_t refuse_event(const hsa_amd_event_t *event, void *data) {
    on_event(event, data);
    return HSA_STATUS_ERROR;
}

// A handler that does not want a memory fault leaves it to the queue.
static void refused_events(void) {
    CHECK(hsa_amd_register_system_event_handler(NULL, NULL));
    CHECK(hsa_amd_register_system_event_handler(refuse_event, NULL));
    void *arguments[] = {(void *) 0x1234567000, (void *) &end};
    dispatch("beat.kd", arguments, sizeof arguments, 64);
    wait_for(&queue_error);
    EXPECT(fault_address == 0x1234567000 && queue_error == HSA_STATUS_ERROR_MEMORY_FAULT);
    CHECK(hsa_queue_destroy(queue));
    new_queue();
}

static hsa_status_t refuse_late(const hsa_amd_event_t *event, void *data) {
    on_event(event, data);
    usleep(50000);
    return HSA_STATUS_ERROR;
}

// Nothing of the client's is called any more when the runtime has ended, also not for what it refused meanwhile.
static void refused_at_the_end(void) {
    CHECK(hsa_amd_register_system_event_handler(NULL, NULL));
    CHECK(hsa_amd_register_system_event_handler(refuse_late, NULL));
    void *arguments[] = {(void *) 0x1234567000, (void *) &end};
    dispatch("beat.kd", arguments, sizeof arguments, 64);
    wait_for(&fault_address);
    CHECK(hsa_shut_down());
    uint64_t before = atomic_load(&reported);
    usleep(200000);
    EXPECT(atomic_load(&reported) == before);
    start();
}

// A process that is forked when nobody uses the runtime has one of its own.
static void forks_later(void) {
    CHECK(hsa_queue_destroy(queue));
    CHECK(hsa_shut_down());
    pid_t child = fork();
    if (child == 0) {
        start();
        CHECK(hsa_amd_register_system_event_handler(on_event, NULL));
        work();
        CHECK(hsa_shut_down());
        _exit(0);
    }
    int status;
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    start();
}

static void *init(void *unused) {
    CHECK(hsa_init());
    return NULL;
}

// A process that is forked while another thread starts the runtime is answered.
static void forks_first(void) {
    EXPECT(setenv("SOFTHSA_AGENTS", "8", 1) == 0 && setenv("SOFTHSA_THREADS", "64", 1) == 0);
    pthread_t thread;
    EXPECT(pthread_create(&thread, NULL, init, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            hsa_init();
            _exit(0);
        }
        int status;
        EXPECT(waitpid(child, &status, 0) == child && status == 0);
    }
    EXPECT(pthread_join(thread, NULL) == 0);
    CHECK(hsa_shut_down());
}

static void signals(void) {
    // Destroyed while a thread waits for it: the thread goes on when its time is over.
    hsa_signal_t signal = new_signal(1);
    CHECK(hsa_signal_destroy(signal));
    EXPECT(hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 7, 1000, HSA_WAIT_STATE_BLOCKED) == 0);
    // A signal that is made anew has no times of a packet.
    hsa_signal_t done = beat();
    atomic_store(&end, 1);
    EXPECT(finish(done) == 0);
    hsa_amd_profiling_dispatch_time_t times;
    CHECK(hsa_amd_profiling_get_dispatch_time(gpu, done, &times));
    CHECK(hsa_signal_destroy(done));
    for (int i = 0; i < 100; i++)
        EXPECT(hsa_amd_profiling_get_dispatch_time(gpu, new_signal(1), &times) == HSA_STATUS_ERROR);
    // A queue's doorbell is the queue's.
    EXPECT(hsa_signal_destroy(queue->doorbell_signal) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    // A handler of a signal that ended is not called for the next signal, which has its handle.
    for (int i = 0; i < 200; i++) {
        hsa_signal_t ended = new_signal(1);
        CHECK(hsa_amd_signal_async_handler(ended, HSA_SIGNAL_CONDITION_EQ, 0, count_call, NULL));
        CHECK(hsa_signal_destroy(ended));
        CHECK(hsa_signal_destroy(new_signal(0)));
    }
    hsa_signal_t last = new_signal(0);
    CHECK(hsa_amd_signal_async_handler(last, HSA_SIGNAL_CONDITION_EQ, 0, count_call, &last));
    wait_for(&called);
    usleep(20000);
    EXPECT(called == 1);
    // A structure that is older than this library.
    struct { uint32_t size; hsa_amd_pointer_type_t type; uint64_t behind; } info = {8, HSA_EXT_POINTER_TYPE_UNKNOWN, 77};
    void *pointer = allocate(64);
    CHECK(hsa_amd_pointer_info(pointer, (hsa_amd_pointer_info_t *) &info, NULL, NULL, NULL));
    EXPECT(info.size == 8 && info.type == HSA_EXT_POINTER_TYPE_HSA && info.behind == 77);
}

int main(int count, char **arguments) {
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"packets", packets}, {"doorbells", doorbells}, {"destroy", destroy}, {"shut_down", shut_down},
        {"free_memory", free_memory}, {"forks", forks}, {"clients", clients}, {"atomics", atomics}, {"signals", signals},
        {"copies", copies}, {"pins", pins}, {"room", room}, {"refused_events", refused_events},
        {"forks_later", forks_later}, {"copies_of_destroyed", copies_of_destroyed}, {"handlers", handlers},
        {"refused_at_the_end", refused_at_the_end},
    };
    device_file = arguments[1];
    if (!strcmp(arguments[2], "forks_first")) {
        forks_first();
        puts("passed");
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(all[i].name, arguments[2])) {
            start();
            CHECK(hsa_amd_register_system_event_handler(on_event, NULL));
            all[i].run();
            work();
            CHECK(hsa_shut_down());
            puts("passed");
        }
    return 0;
}
