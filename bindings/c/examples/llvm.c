/*
 * What LLVM's loader is to a program that was linked with LLVM's libc for the GPU: it loads an AMD code object by HSA, serves
 * its calls of the host in memory of its own, runs it in GRID lanes, and ends with its exit code.
 *
 *     llvm program 64 first second
 *
 * It is linked with libhostcall and an HSA runtime: ROCm's, or libsofthsa, whose GPU is software. The server needs no device of
 * hostcall's. An opcode of the application's own has a handler here; libc's are the server's.
 */
#include "hostcall.h"

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PORTS = 256, WAVE = 64, DOUBLE_IT = 'x' << 24 };

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t shared;
static hsa_executable_t executable;
static hsa_queue_t *queue;
static hostcall_llvm_server *server;
static hostcall_error *error;

static void hsa(hsa_status_t status) {
    const char *text = "";
    if (status == HSA_STATUS_SUCCESS || status == HSA_STATUS_INFO_BREAK)
        return;
    hsa_status_string(status, &text);
    fprintf(stderr, "HSA: %s\n", text);
    exit(1);
}

static void check(hostcall_status status) {
    if (status == HOSTCALL_STATUS_OK)
        return;
    fprintf(stderr, "%s\n", hostcall_error_text(error));
    exit(1);
}

static hsa_status_t find_agent(hsa_agent_t agent, void *unused) {
    hsa_device_type_t type;
    (void)unused;
    hsa(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    *(type == HSA_DEVICE_TYPE_GPU ? &gpu : &cpu) = agent;
    return HSA_STATUS_SUCCESS;
}

/* Memory that both sides reach coherently: ports, arguments, what the program allocates. */
static hsa_status_t find_pool(hsa_amd_memory_pool_t pool, void *unused) {
    uint32_t flags = 0;
    (void)unused;
    hsa(hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags));
    if (flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED)
        shared = pool;
    return HSA_STATUS_SUCCESS;
}

static void *allocate(size_t bytes) {
    void *memory = NULL;
    hsa(hsa_amd_memory_pool_allocate(shared, bytes, 0, &memory));
    hsa(hsa_amd_agents_allow_access(1, &gpu, NULL, memory));
    return memset(memory, 0, bytes);
}

/* The device's `malloc`, on the server's threads: pages are aligned as it asks for. */
static uint64_t device_malloc(void *unused, uint64_t bytes, uint64_t align) {
    void *memory = NULL;
    (void)unused, (void)align;
    if (hsa_amd_memory_pool_allocate(shared, bytes, 0, &memory) != HSA_STATUS_SUCCESS ||
        hsa_amd_agents_allow_access(1, &gpu, NULL, memory) != HSA_STATUS_SUCCESS)
        return 0;
    return (uint64_t)(uintptr_t)memory;
}

static void device_free(void *unused, uint64_t address) {
    (void)unused;
    hsa_amd_memory_pool_free((void *)(uintptr_t)address);
}

static int32_t double_it(void *calls, uint32_t opcode, uint64_t mask, uint64_t (*buffers)[8]) {
    (void)opcode;
    for (int lane = 0; lane < WAVE; lane++)
        if (mask >> lane & 1)
            buffers[lane][0] *= 2, ++*(uint64_t *)calls;
    return 0;
}

static uint64_t symbol(const char *name, hsa_executable_symbol_info_t what) {
    hsa_executable_symbol_t found;
    uint64_t value = 0;
    hsa(hsa_executable_get_symbol_by_name(executable, name, &gpu, &found));
    hsa(hsa_executable_symbol_get_info(found, what, &value));
    return value;
}

/* Runs a kernel to its end and serves its calls meanwhile. Returns 0 when the program has ended itself. */
static int run(const char *name, const void *arguments, size_t bytes, uint32_t lanes) {
    uint32_t workgroup = lanes < WAVE ? lanes : WAVE, blocks[3] = {lanes / workgroup, 1, 1};
    uint16_t threads[3] = {(uint16_t)workgroup, 1, 1};
    char *kernarg = allocate(symbol(name, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE) + 256);
    memcpy(kernarg, arguments, bytes);
    memcpy(kernarg + (bytes + 7) / 8 * 8, blocks, sizeof blocks); /* The arguments that the compiler adds. */
    memcpy(kernarg + (bytes + 7) / 8 * 8 + sizeof blocks, threads, sizeof threads);
    uint64_t place = hsa_queue_add_write_index_relaxed(queue, 1);
    hsa_kernel_dispatch_packet_t *packet = (hsa_kernel_dispatch_packet_t *)queue->base_address + place % queue->size;
    memset((char *)packet + 4, 0, sizeof *packet - 4);
    packet->workgroup_size_x = threads[0];
    packet->workgroup_size_y = packet->workgroup_size_z = packet->grid_size_y = packet->grid_size_z = 1;
    packet->grid_size_x = lanes;
    packet->private_segment_size = 16384; /* The stack of a lane, which calls through pointers. */
    packet->group_segment_size = (uint32_t)symbol(name, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE);
    packet->kernel_object = symbol(name, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT);
    packet->kernarg_address = kernarg;
    hsa(hsa_signal_create(1, 0, NULL, &packet->completion_signal));
    hsa_signal_t done = packet->completion_signal;
    uint32_t header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE |
                      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
                      HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
    __atomic_store_n((uint32_t *)(void *)packet, header | 1u << (16 + HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS),
                     __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t)place);
    int32_t code;
    while (hsa_signal_load_scacquire(done) != 0) {
        hostcall_llvm_server_poll(server);
        if (hostcall_llvm_server_ended(server, &code))
            return 0;
        hostcall_llvm_counts counts;
        check(hostcall_llvm_server_statistics(server, &counts, &error));
        if (counts.faults != 0)
            exit(1); /* The standard error says why a lane waits for ever. */
    }
    return 1;
}

int main(int argc, char **argv) {
    FILE *file = argc > 2 ? fopen(argv[1], "rb") : NULL;
    uint32_t version, lanes = argc > 2 ? (uint32_t)atoi(argv[2]) : 0;
    if (!file || lanes == 0 || fseek(file, 0, SEEK_END) != 0) {
        fprintf(stderr, "usage: %s PROGRAM GRID [ARGUMENT]...: a code object, and 1 to 64 lanes or a multiple\n", argv[0]);
        return 2;
    }
    size_t size = (size_t)ftell(file);
    void *image = malloc(size);
    rewind(file);
    if (!image || fread(image, 1, size, file) != size)
        return 1;
    check(hostcall_llvm_version_of_image(image, size, &version, &error));

    hsa(hsa_init());
    hsa(hsa_iterate_agents(find_agent, NULL));
    hsa(hsa_amd_agent_iterate_memory_pools(cpu, find_pool, NULL));
    hsa(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
    hsa_code_object_reader_t reader;
    hsa(hsa_code_object_reader_create_from_memory(image, size, &reader));
    hsa(hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, "", &executable));
    hsa(hsa_executable_load_agent_code_object(executable, gpu, reader, "", NULL));
    hsa(hsa_executable_freeze(executable, ""));

    /* The server: ports in memory of ours, polled while a kernel runs. */
    hostcall_options *options;
    hostcall_llvm_config config = {0};
    uint64_t doubled = 0;
    config.version = version, config.ports = PORTS, config.lanes = WAVE;
    config.bytes = hostcall_llvm_memory_bytes(version, PORTS, WAVE);
    config.memory = allocate(config.bytes);
    config.device_address = (uint64_t)(uintptr_t)config.memory;
    config.allocate = device_malloc, config.release = device_free;
    check(hostcall_options_new("", &options, &error));
    check(hostcall_options_dir(options, ".", &error));
    check(hostcall_llvm_server_start(&options, &config, &server, &error));
    check(hostcall_llvm_server_handle_packets(server, DOUBLE_IT, DOUBLE_IT + 9, true, double_it, &doubled, NULL, &error));

    /* Its client object, where the version's programs look for it. */
    size_t bytes = hostcall_llvm_client_bytes(version);
    void *object = allocate(bytes), **address = allocate(sizeof *address);
    check(hostcall_llvm_server_client(server, object, bytes, &error));
    if (version == HOSTCALL_LLVM_VERSION_POINTER)
        hsa(hsa_memory_copy(address, (void *)(uintptr_t)symbol("__llvm_libc_rpc_client", HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS), sizeof *address));
    else
        *address = (void *)(uintptr_t)symbol("__llvm_rpc_client", HSA_EXECUTABLE_SYMBOL_INFO_VARIABLE_ADDRESS);
    hsa(hsa_memory_copy(*address, object, bytes));

    struct { uint64_t argc; char **argv, **envp; int *result; } start = {(uint64_t)argc - 2, NULL, NULL, allocate(sizeof(int))};
    start.argv = allocate((size_t)argc * sizeof *start.argv), start.envp = allocate(sizeof *start.envp);
    for (int i = 0; i < argc - 2; i++)
        start.argv[i] = strcpy(allocate(strlen(argv[i ? i + 2 : 1]) + 1), argv[i ? i + 2 : 1]);
    int32_t code = 0;
    if (run("_begin.kd", &start, 24, 1) && run("_start.kd", &start, sizeof start, lanes))
        run("_end.kd", start.result, sizeof *start.result, 1);
    for (int waits = 0; !hostcall_llvm_server_ended(server, &code) && waits < 10000000; waits++)
        hostcall_llvm_server_poll(server); /* The exit's last words. */
    hostcall_llvm_server_flush(server);
    fprintf(stderr, "%llu lanes doubled\n", (unsigned long long)doubled);
    hsa(hsa_queue_destroy(queue)); /* Lanes that still run end with it, and need no memory any more. */
    hostcall_llvm_server_free(&server);
    return code;
}
