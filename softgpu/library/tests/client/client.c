// A client written against the official HSA headers only. It does what LLVM's loader does for a program, and then
// checks queues, signals and failures.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <stdatomic.h>
#include <unistd.h>

#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        hsa_status_t status_ = (call);                                                                                \
        if (status_ != HSA_STATUS_SUCCESS && status_ != HSA_STATUS_INFO_BREAK) {                                      \
            const char *text_ = "?";                                                                                  \
            hsa_status_string(status_, &text_);                                                                       \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, text_);                                     \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)
#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t kernargs, fine, coarse;
static hsa_executable_t executable;
static hsa_queue_t *queue;

static hsa_status_t find_agent(hsa_agent_t agent, void *data) {
    hsa_device_type_t type;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    hsa_agent_feature_t features;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_FEATURE, &features));
    if (type == HSA_DEVICE_TYPE_GPU && (features & HSA_AGENT_FEATURE_KERNEL_DISPATCH))
        gpu = agent;
    if (type == HSA_DEVICE_TYPE_CPU)
        cpu = agent;
    return HSA_STATUS_SUCCESS;
}

typedef struct { uint32_t flag; hsa_amd_memory_pool_t pool; } pool_search_t;

static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *data) {
    pool_search_t *search = data;
    hsa_amd_segment_t segment;
    uint32_t flags;
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_SEGMENT, &segment));
    CHECK(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    if (segment != HSA_AMD_SEGMENT_GLOBAL || !(flags & search->flag))
        return HSA_STATUS_SUCCESS;
    search->pool = pool;
    return HSA_STATUS_INFO_BREAK;
}

static hsa_amd_memory_pool_t pool(hsa_agent_t agent, uint32_t flag) {
    pool_search_t search = {flag, {0}};
    CHECK(hsa_amd_agent_iterate_memory_pools(agent, find_pool, &search));
    EXPECT(search.pool.handle != 0);
    return search.pool;
}

static uint64_t owner_of(void *pointer) {
    hsa_amd_pointer_info_t info = {.size = sizeof info};
    CHECK(hsa_amd_pointer_info(pointer, &info, NULL, NULL, NULL));
    return info.agentOwner.handle;
}

static void *allocate(hsa_amd_memory_pool_t pool, size_t bytes) {
    void *pointer = NULL;
    CHECK(hsa_amd_memory_pool_allocate(pool, bytes, 0, &pointer));
    CHECK(hsa_amd_agents_allow_access(1, &gpu, NULL, pointer));
    return pointer;
}

static void copy(void *to, hsa_agent_t to_agent, const void *from, hsa_agent_t from_agent, size_t bytes) {
    hsa_signal_t signal;
    CHECK(hsa_signal_create(1, 0, NULL, &signal));
    CHECK(hsa_amd_memory_async_copy(to, to_agent, from, from_agent, bytes, 0, NULL, signal));
    while (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX, HSA_WAIT_STATE_ACTIVE) != 0)
        ;
    CHECK(hsa_signal_destroy(signal));
}

typedef struct {
    uint64_t request, answer;
    _Atomic uint32_t rung, served;
} mailbox_t;

static mailbox_t *mailbox;
static uint32_t calls;

static uint64_t answer(uint64_t request) { return request * 7 + 3; }

static void serve(void) {
    uint32_t served = atomic_load(&mailbox->served);
    if (atomic_load(&mailbox->rung) == served)
        return;
    mailbox->answer = answer(mailbox->request);
    calls++;
    atomic_store(&mailbox->served, served + 1);
}

static void *symbol_address(const char *name) {
    hsa_executable_symbol_t symbol;
    CHECK(hsa_executable_get_symbol_by_name(executable, name, &gpu, &symbol));
    uint64_t address;
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS, &address));
    return (void *) address;
}

// Writes a dispatch packet; returns its completion signal.
static hsa_signal_t dispatch(const char *name, const void *arguments, size_t bytes, uint32_t lanes, uint16_t workgroup) {
    hsa_executable_symbol_t symbol;
    CHECK(hsa_executable_get_symbol_by_name(executable, name, &gpu, &symbol));
    uint64_t object;
    uint32_t kernarg_bytes, group_bytes, private_bytes;
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernarg_bytes));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &group_bytes));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &private_bytes));
    EXPECT(kernarg_bytes >= bytes);
    void *kernarg = allocate(kernargs, kernarg_bytes ? kernarg_bytes : 16);
    memset(kernarg, 0, kernarg_bytes);
    memcpy(kernarg, arguments, bytes);
    uint64_t id = hsa_queue_add_write_index_relaxed(queue, 1);
    while (id - hsa_queue_load_read_index_scacquire(queue) >= queue->size)
        ;
    hsa_kernel_dispatch_packet_t *packet = (hsa_kernel_dispatch_packet_t *) queue->base_address + (id & (queue->size - 1));
    packet->workgroup_size_x = workgroup;
    packet->workgroup_size_y = packet->workgroup_size_z = 1;
    packet->reserved0 = 0;
    packet->grid_size_x = lanes;
    packet->grid_size_y = packet->grid_size_z = 1;
    packet->private_segment_size = private_bytes;
    packet->group_segment_size = group_bytes;
    packet->kernel_object = object;
    packet->kernarg_address = kernarg;
    packet->reserved2 = 0;
    CHECK(hsa_signal_create(1, 0, NULL, &packet->completion_signal));
    hsa_signal_t signal = packet->completion_signal;
    uint16_t setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
    uint16_t header = (HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE) |
                      (HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE) |
                      (HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE);
    __atomic_store_n((uint32_t *) &packet->header, header | (uint32_t) setup << 16, __ATOMIC_RELEASE);
    hsa_signal_store_relaxed(queue->doorbell_signal, (hsa_signal_value_t) id);
    return signal;
}

static void launch(const char *name, const void *arguments, size_t bytes) {
    hsa_signal_t signal = dispatch(name, arguments, bytes, 1, 1);
    while (hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, 1024, HSA_WAIT_STATE_ACTIVE) != 0)
        serve();
    serve();
    CHECK(hsa_signal_destroy(signal));
}

static _Atomic uint64_t fault_address, queue_error;

static hsa_status_t on_event(const hsa_amd_event_t *event, void *data) {
    if (event->event_type == HSA_AMD_GPU_MEMORY_FAULT_EVENT) {
        EXPECT(event->memory_fault.agent.handle == gpu.handle);
        atomic_store(&fault_address, event->memory_fault.virtual_address);
    }
    return HSA_STATUS_SUCCESS;
}

static void on_queue_error(hsa_status_t status, hsa_queue_t *source, void *data) {
    EXPECT(source == queue && data == &queue_error);
    atomic_store(&queue_error, status);
}

static void new_queue(void) {
    uint32_t size = 0;
    CHECK(hsa_agent_get_info(gpu, HSA_AGENT_INFO_QUEUE_MIN_SIZE, &size));
    CHECK(hsa_queue_create(gpu, size, HSA_QUEUE_TYPE_MULTI, on_queue_error, &queue_error, UINT32_MAX, UINT32_MAX, &queue));
    EXPECT(queue->size == size && queue->base_address != NULL);
}

static void wait_for(_Atomic uint64_t *word) {
    for (int i = 0; i < 20000 && !atomic_load(word); i++)
        usleep(1000);
    EXPECT(atomic_load(word) != 0);
}

static bool on_signal(hsa_signal_value_t value, void *data) {
    atomic_store((_Atomic uint64_t *) data, (uint64_t) value);
    return false;
}

static void load(const char *path) {
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL);
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    void *image = malloc((size_t) bytes);
    EXPECT(fread(image, 1, (size_t) bytes, file) == (size_t) bytes);
    fclose(file);
    hsa_code_object_t object;
    CHECK(hsa_code_object_deserialize(image, (size_t) bytes, "", &object));
    CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_ZERO, "", &executable));
    CHECK(hsa_executable_load_code_object(executable, gpu, object, ""));
    // Names are unique on an agent, and those of the first code object stay.
    EXPECT(hsa_executable_load_code_object(executable, gpu, object, "") == HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED);
    CHECK(hsa_executable_freeze(executable, ""));
    uint32_t result;
    CHECK(hsa_executable_validate(executable, &result));
    EXPECT(result == 0);
    CHECK(hsa_code_object_destroy(object));
    // A code object that lies is refused.
    hsa_code_object_reader_t reader;
    hsa_executable_t other;
    ((unsigned char *) image)[16] ^= 1;
    CHECK(hsa_code_object_reader_create_from_memory(image, (size_t) bytes, &reader));
    CHECK(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &other));
    EXPECT(hsa_executable_load_agent_code_object(other, gpu, reader, NULL, NULL) == HSA_STATUS_ERROR_INVALID_CODE_OBJECT);
    CHECK(hsa_executable_destroy(other));
    CHECK(hsa_code_object_reader_destroy(reader));
    free(image);
}

// The host's memory, as the device sees it: pointers and texts in fine-grained memory.
static char **texts(int count, char **from) {
    char **pointers = allocate(fine, sizeof(char *) * (size_t) (count + 1));
    for (int i = 0; i < count; i++) {
        pointers[i] = allocate(fine, strlen(from[i]) + 1);
        strcpy(pointers[i], from[i]);
    }
    pointers[count] = NULL;
    return pointers;
}

static void run_program(void) {
    char *arguments[] = {"program", "first", "second argument"}, *variables[] = {"HOME=/"};
    void *argv = texts(3, arguments), *envp = texts(1, variables);
    int *result = allocate(coarse, sizeof(int)), *host_result = allocate(fine, sizeof(int));
    CHECK(hsa_amd_memory_fill(result, 0, 1));
    mailbox = allocate(fine, sizeof(mailbox_t));
    memset(mailbox, 0, sizeof(mailbox_t));
    uint64_t *pointer = allocate(fine, 8);
    *pointer = (uint64_t) mailbox;
    copy(symbol_address("mailbox"), gpu, pointer, cpu, 8);
    *pointer = 100000000;
    copy(symbol_address("__llvm_libc_clock_freq"), gpu, pointer, cpu, 8);
    struct { int argc; void *argv, *envp; } begin = {3, argv, envp};
    launch("_begin.kd", &begin, sizeof begin);
    struct { int argc; void *argv, *envp; int *result; } start = {3, argv, envp, result};
    launch("_start.kd", &start, sizeof start);
    copy(host_result, cpu, result, gpu, sizeof(int));
    uint64_t expected = 42, expected_calls = 0;
    for (int i = 0; i < 3; i++)
        for (char *c = arguments[i]; *c; c++, expected_calls++)
            expected = answer(expected * 31 + (uint64_t) *c);
    expected += 'H';
    EXPECT(*host_result == (int) (expected & 0xffff));
    EXPECT(calls == expected_calls);
    int end = *host_result;
    launch("_end.kd", &end, sizeof end);
}

static void count_lanes(void) {
    uint32_t *counter = allocate(fine, 4);
    void *of_gpu = allocate(coarse, 64);
    EXPECT(owner_of(counter) == cpu.handle && owner_of(of_gpu) == gpu.handle);
    CHECK(hsa_amd_memory_pool_free(of_gpu));
    *counter = 0;
    hsa_signal_t signals[100];
    for (int i = 0; i < 100; i++)
        signals[i] = dispatch("count.kd", &counter, sizeof counter, 1000, 256);
    for (int i = 0; i < 100; i++) {
        EXPECT(hsa_signal_wait_scacquire(signals[i], HSA_SIGNAL_CONDITION_LT, 1, UINT64_MAX, HSA_WAIT_STATE_BLOCKED) == 0);
        CHECK(hsa_signal_destroy(signals[i]));
    }
    EXPECT(*counter == 100 * 1000);
    EXPECT(hsa_queue_load_read_index_scacquire(queue) == hsa_queue_load_write_index_relaxed(queue));
    // Memory of the process, pinned.
    static uint32_t own;
    void *pinned;
    CHECK(hsa_amd_memory_lock(&own, sizeof own, &gpu, 1, &pinned));
    EXPECT(owner_of(&own) == cpu.handle);
    _Atomic uint64_t called = 0;
    hsa_signal_t signal = dispatch("count.kd", &pinned, sizeof pinned, 64, 64);
    hsa_signal_t other;
    CHECK(hsa_amd_signal_create(5, 0, NULL, 0, &other));
    CHECK(hsa_amd_signal_async_handler(other, HSA_SIGNAL_CONDITION_GTE, 7, on_signal, &called));
    hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, UINT64_MAX, HSA_WAIT_STATE_BLOCKED);
    EXPECT(own == 64);
    CHECK(hsa_amd_memory_unlock(&own));
    hsa_signal_store_screlease(other, 9);
    wait_for(&called);
    EXPECT(called == 9);
    hsa_signal_subtract_screlease(other, 4);
    EXPECT(hsa_signal_load_scacquire(other) == 5);
    CHECK(hsa_signal_destroy(other));
    CHECK(hsa_signal_destroy(signal));
    EXPECT(hsa_signal_destroy(signal) == HSA_STATUS_ERROR_INVALID_SIGNAL);
}

size_t softhsa_last_failure(char *text, size_t bytes) __attribute__((weak));

static void expect_failure(const char *kernel, const char *reason) {
    char text[400];
    if (!softhsa_last_failure)
        return;
    softhsa_last_failure(text, sizeof text);
    if (!strstr(text, kernel) || !strstr(text, reason)) {
        fprintf(stderr, "the failure reads: %s\n", text);
        exit(1);
    }
}

static void fail(void) {
    uint64_t nowhere = 0x1234567000;
    dispatch("touch.kd", &nowhere, sizeof nowhere, 1, 1);
    wait_for(&fault_address);
    EXPECT(fault_address == nowhere);
    expect_failure("touch.kd", "a write to 0x1234567000");
    CHECK(hsa_queue_destroy(queue));
    new_queue();
    dispatch("trap.kd", NULL, 0, 1, 1);
    wait_for(&queue_error);
    EXPECT(queue_error == HSA_STATUS_ERROR_EXCEPTION);
    expect_failure("trap.kd", "trap 2");
    CHECK(hsa_queue_destroy(queue));
    // A workgroup that is too large.
    new_queue();
    queue_error = 0;
    dispatch("trap.kd", NULL, 0, 4096, 4096);
    wait_for(&queue_error);
    EXPECT(queue_error == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    CHECK(hsa_queue_destroy(queue));
}

int main(int count, char **arguments) {
    EXPECT(hsa_iterate_agents(find_agent, NULL) == HSA_STATUS_ERROR_NOT_INITIALIZED);
    CHECK(hsa_init());
    CHECK(hsa_amd_register_system_event_handler(on_event, NULL));
    CHECK(hsa_iterate_agents(find_agent, NULL));
    uint32_t wavefront = 0;
    CHECK(hsa_agent_get_info(gpu, HSA_AGENT_INFO_WAVEFRONT_SIZE, &wavefront));
    EXPECT(wavefront == 64);
    load(arguments[1]);
    kernargs = pool(cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT);
    fine = pool(cpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED);
    coarse = pool(gpu, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED);
    new_queue();
    run_program();
    count_lanes();
    fail();
    CHECK(hsa_executable_destroy(executable));
    CHECK(hsa_shut_down());
    EXPECT(hsa_shut_down() == HSA_STATUS_ERROR_NOT_INITIALIZED);
    printf("passed\n");
    return 0;
}
