// A client of what HSA's headers have besides the way of a launch: other packets, waits for several signals, properties,
// extensions, and functions that are refused.
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <hsa/hsa_ven_amd_loader.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                           \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)
#define CHECK(call) EXPECT((call) == HSA_STATUS_SUCCESS)

size_t softhsa_last_failure(char *text, size_t bytes);

static hsa_agent_t gpu, cpu;
static hsa_amd_memory_pool_t pool;
static hsa_executable_t executable;
static hsa_loaded_code_object_t loaded;
static hsa_queue_t *queue;

static hsa_status_t find_agent(hsa_agent_t agent, void *data) {
    hsa_device_type_t type;
    CHECK(hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type));
    *(type == HSA_DEVICE_TYPE_GPU ? &gpu : &cpu) = agent;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t take_first(uint64_t handle, void *place) {
    *(uint64_t *) place = handle;
    return HSA_STATUS_INFO_BREAK;
}
#define FIRST(iterate, of, place)                                                                                     \
    EXPECT(iterate(of, (void *) take_first, (place)) == HSA_STATUS_INFO_BREAK)

static hsa_signal_t new_signal(hsa_signal_value_t value) {
    hsa_signal_t signal;
    CHECK(hsa_signal_create(value, 0, NULL, &signal));
    return signal;
}

static hsa_signal_value_t wait_for(hsa_signal_t signal, uint64_t timeout_ns) {
    return hsa_signal_wait_scacquire(signal, HSA_SIGNAL_CONDITION_EQ, 0, timeout_ns, HSA_WAIT_STATE_BLOCKED);
}

static void submit(const void *packet, uint32_t header) {
    uint64_t id = hsa_queue_add_write_index_relaxed(queue, 1);
    uint32_t *slot = (uint32_t *) ((char *) queue->base_address + id % queue->size * 64);
    // As a client may do, long before it rings.
    memset(slot, 0, 64);
    usleep(2000);
    memcpy(slot + 1, (const uint32_t *) packet + 1, 60);
    __atomic_store_n(slot, header, __ATOMIC_RELEASE);
    hsa_signal_store_screlease(queue->doorbell_signal, (hsa_signal_value_t) id);
}

static void read_code(const char *path) {
    hsa_code_object_reader_t reader, part;
    int file = open(path, O_RDONLY);
    EXPECT(file >= 0);
    CHECK(hsa_code_object_reader_create_from_file(file, &reader));
    off_t bytes = lseek(file, 0, SEEK_END);
    EXPECT(hsa_code_object_reader_create_from_file(-1, &part) == HSA_STATUS_ERROR_INVALID_FILE);
    hsa_ven_amd_loader_1_03_pfn_t loader = {0};
    CHECK(hsa_system_get_major_extension_table(HSA_EXTENSION_AMD_LOADER, 1, sizeof loader, &loader));
    CHECK(loader.hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size(file, 0, (size_t) bytes, &part));
    EXPECT(loader.hsa_ven_amd_loader_code_object_reader_create_from_file_with_offset_size(
               file, 8, (size_t) bytes, &part) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    close(file);
    CHECK(hsa_executable_create(HSA_PROFILE_FULL, HSA_EXECUTABLE_STATE_UNFROZEN, "", &executable));
    CHECK(hsa_executable_load_agent_code_object(executable, gpu, part, NULL, &loaded));
    hsa_executable_state_t state;
    CHECK(hsa_executable_get_info(executable, HSA_EXECUTABLE_INFO_STATE, &state));
    EXPECT(state == HSA_EXECUTABLE_STATE_UNFROZEN);
    CHECK(hsa_executable_freeze(executable, NULL));
    CHECK(hsa_executable_get_info(executable, HSA_EXECUTABLE_INFO_STATE, &state));
    EXPECT(state == HSA_EXECUTABLE_STATE_FROZEN);
    uint32_t result = 1;
    CHECK(hsa_executable_validate_alt(executable, NULL, &result));
    EXPECT(result == 0);
}

static hsa_status_t count_symbol(hsa_executable_t of, hsa_agent_t agent, hsa_executable_symbol_t symbol, void *count) {
    hsa_symbol_kind_t kind;
    EXPECT(of.handle == executable.handle && agent.handle == gpu.handle);
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_TYPE, &kind));
    ((int *) count)[kind == HSA_SYMBOL_KIND_KERNEL]++;
    return HSA_STATUS_SUCCESS;
}

static hsa_status_t see_object(hsa_executable_t of, hsa_loaded_code_object_t object, void *seen) {
    EXPECT(of.handle == executable.handle && object.handle == loaded.handle);
    *(bool *) seen = true;
    return HSA_STATUS_SUCCESS;
}

static uint64_t kernel(const char *name) {
    hsa_executable_symbol_t symbol;
    uint64_t object;
    CHECK(hsa_executable_get_symbol(executable, NULL, name, gpu, 0, &symbol));
    CHECK(hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object));
    return object;
}

static void ask_loader(void) {
    int symbols[2] = {0};
    CHECK(hsa_executable_iterate_agent_symbols(executable, gpu, count_symbol, symbols));
    EXPECT(symbols[0] > 0 && symbols[1] > 0);
    const void *object = (const void *) kernel("count.kd"), *host;
    hsa_executable_t found;
    CHECK(hsa_ven_amd_loader_query_host_address(object, &host));
    CHECK(hsa_ven_amd_loader_query_executable(object, &found));
    EXPECT(host == object && found.handle == executable.handle);
    EXPECT(hsa_ven_amd_loader_query_executable(&found, &found) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    bool seen = false;
    CHECK(hsa_ven_amd_loader_executable_iterate_loaded_code_objects(executable, see_object, &seen));
    EXPECT(seen);
    uint64_t base, bytes, storage;
    char uri[200] = {0}, expected[200];
    CHECK(hsa_ven_amd_loader_loaded_code_object_get_info(loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_BASE, &base));
    CHECK(hsa_ven_amd_loader_loaded_code_object_get_info(loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_LOAD_SIZE, &bytes));
    EXPECT((uint64_t) object - base < bytes);
    CHECK(hsa_ven_amd_loader_loaded_code_object_get_info(
        loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_CODE_OBJECT_STORAGE_MEMORY_BASE, &storage));
    EXPECT(memcmp((const void *) storage, "\x7f" "ELF", 4) == 0);
    CHECK(hsa_ven_amd_loader_loaded_code_object_get_info(loaded, HSA_VEN_AMD_LOADER_LOADED_CODE_OBJECT_INFO_URI, uri));
    snprintf(expected, sizeof expected, "memory://%d#offset=0x%lx&size=", getpid(), storage);
    EXPECT(strncmp(uri, expected, strlen(expected)) == 0);
    size_t count = 0;
    CHECK(hsa_ven_amd_loader_query_segment_descriptors(NULL, &count));
    EXPECT(count == 1);
    hsa_ven_amd_loader_segment_descriptor_t descriptor;
    CHECK(hsa_ven_amd_loader_query_segment_descriptors(&descriptor, &count));
    EXPECT((uint64_t) descriptor.segment_base == base && descriptor.segment_size == bytes);
    EXPECT(descriptor.executable.handle == executable.handle && descriptor.agent.handle == gpu.handle);
}

// A packet of one dimension, by `setup`, whose grid has three, as LLVM's loader writes it.
static void dispatch_grid(void) {
    uint32_t *counter;
    void **arguments;
    CHECK(hsa_memory_allocate((hsa_region_t) {pool.handle}, 4, (void **) &counter));
    CHECK(hsa_memory_allocate((hsa_region_t) {pool.handle}, 512, (void **) &arguments));
    *arguments = counter;
    hsa_kernel_dispatch_packet_t packet = {
        .workgroup_size_x = 4, .workgroup_size_y = 4, .workgroup_size_z = 4,
        .grid_size_x = 8, .grid_size_y = 8, .grid_size_z = 7,
        .kernel_object = kernel("count.kd"), .kernarg_address = arguments, .completion_signal = new_signal(1),
    };
    submit(&packet, HSA_PACKET_TYPE_KERNEL_DISPATCH | 1u << 16 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS);
    EXPECT(wait_for(packet.completion_signal, UINT64_MAX) == 0);
    EXPECT(*counter == 8 * 8 * 7);
    CHECK(hsa_memory_free(arguments));
    CHECK(hsa_memory_free(counter));
}

static void barrier_values(void) {
    static const struct { hsa_signal_condition_t condition; int64_t value, mask, before, after; } cases[] = {
        {HSA_SIGNAL_CONDITION_GTE, 40, 0xff, 0x107, 0x128},
        {HSA_SIGNAL_CONDITION_EQ, 0x100, 0xf00, 0x2ff, 0x1ff},
        {HSA_SIGNAL_CONDITION_NE, 3, 3, 7, 4},
        {HSA_SIGNAL_CONDITION_LT, 0, INT64_MIN, 5, -5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        hsa_amd_barrier_value_packet_t packet = {
            .header = {.header = HSA_PACKET_TYPE_VENDOR_SPECIFIC, .AmdFormat = HSA_AMD_PACKET_TYPE_BARRIER_VALUE},
            .signal = new_signal(cases[i].before), .value = cases[i].value, .mask = cases[i].mask,
            .cond = cases[i].condition, .completion_signal = new_signal(1),
        };
        uint32_t header;
        memcpy(&header, &packet, sizeof header);
        submit(&packet, header);
        EXPECT(wait_for(packet.completion_signal, 20000000) == 1);
        hsa_signal_store_relaxed(packet.signal, cases[i].after);
        EXPECT(wait_for(packet.completion_signal, UINT64_MAX) == 0);
        // A signal of handle 0 holds nothing up.
        packet.signal.handle = 0;
        hsa_signal_store_relaxed(packet.completion_signal, 1);
        submit(&packet, header);
        EXPECT(wait_for(packet.completion_signal, UINT64_MAX) == 0);
    }
}

static void wait_for_any(void) {
    hsa_signal_t signals[3] = {{0}, new_signal(5), new_signal(1)};
    hsa_signal_condition_t conditions[3] = {HSA_SIGNAL_CONDITION_EQ, HSA_SIGNAL_CONDITION_EQ, HSA_SIGNAL_CONDITION_LT};
    hsa_signal_value_t values[3] = {0, 5, 1}, got = -1;
    EXPECT(hsa_amd_signal_wait_any(3, signals, conditions, values, UINT64_MAX, HSA_WAIT_STATE_BLOCKED, &got) == 1);
    EXPECT(got == 5);
    values[1] = 6;
    EXPECT(hsa_amd_signal_wait_any(3, signals, conditions, values, 1000000, HSA_WAIT_STATE_BLOCKED, &got) == UINT32_MAX);
    EXPECT(hsa_amd_signal_wait_any(1, signals, conditions, values, UINT64_MAX, HSA_WAIT_STATE_BLOCKED, NULL) == UINT32_MAX);
    hsa_signal_group_t group;
    CHECK(hsa_signal_group_create(2, signals + 1, 0, NULL, &group));
    hsa_signal_subtract_acq_rel(signals[2], 3);
    hsa_signal_t which;
    CHECK(hsa_signal_group_wait_any_relaxed(group, conditions + 1, values + 1, HSA_WAIT_STATE_BLOCKED, &which, &got));
    EXPECT(which.handle == signals[2].handle && got == -2);
    CHECK(hsa_signal_group_destroy(group));
    EXPECT(hsa_signal_group_destroy(group) == HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP);
    // Each order of memory is there.
    hsa_signal_or_acquire(which, 8);
    hsa_signal_xor_release(which, 1);
    EXPECT(hsa_signal_cas_relaxed(which, -1, 4) == -1 && hsa_signal_exchange_acq_rel(which, 0) == 4);
}

static void properties(void) {
    hsa_isa_t isa, named;
    FIRST(hsa_agent_iterate_isas, gpu, &isa);
    uint32_t length, number = 0;
    char name[100];
    CHECK(hsa_isa_get_info(isa, HSA_ISA_INFO_NAME_LENGTH, 0, &length));
    EXPECT(length < sizeof name);
    CHECK(hsa_isa_get_info(isa, HSA_ISA_INFO_NAME, 0, name));
    CHECK(hsa_isa_from_name(name, &named));
    EXPECT(named.handle == isa.handle);
    EXPECT(hsa_isa_from_name("amdgcn-amd-amdhsa--gfx900", &named) == HSA_STATUS_ERROR_INVALID_ISA_NAME);
    CHECK(hsa_isa_get_info(isa, HSA_ISA_INFO_CALL_CONVENTION_INFO_WAVEFRONT_SIZE, 0, &number));
    EXPECT(number == 64);
    EXPECT(hsa_isa_get_info(isa, HSA_ISA_INFO_CALL_CONVENTION_INFO_WAVEFRONT_SIZE, 1, &number) == HSA_STATUS_ERROR_INVALID_INDEX);
    hsa_wavefront_t wavefront;
    FIRST(hsa_isa_iterate_wavefronts, isa, &wavefront);
    CHECK(hsa_wavefront_get_info(wavefront, HSA_WAVEFRONT_INFO_SIZE, &number));
    EXPECT(number == 64);
    bool is = false;
    CHECK(hsa_isa_compatible(isa, isa, &is));
    EXPECT(is);
    hsa_cache_t cache;
    FIRST(hsa_agent_iterate_caches, gpu, &cache);
    CHECK(hsa_cache_get_info(cache, HSA_CACHE_INFO_SIZE, &number));
    EXPECT(number > 0);
    hsa_region_t region;
    hsa_region_segment_t segment;
    FIRST(hsa_agent_iterate_regions, cpu, &region);
    CHECK(hsa_region_get_info(region, HSA_REGION_INFO_SEGMENT, &segment));
    EXPECT(segment == HSA_REGION_SEGMENT_GLOBAL);
    // Extensions: AMD's loader, and no images.
    uint16_t minor = 0;
    uint8_t extensions[128];
    void *table[7] = {0};
    CHECK(hsa_system_major_extension_supported(HSA_EXTENSION_AMD_LOADER, 1, &minor, &is));
    EXPECT(is && minor == 3);
    CHECK(hsa_agent_extension_supported(HSA_EXTENSION_IMAGES, gpu, 1, 0, &is));
    EXPECT(!is);
    CHECK(hsa_system_get_info(HSA_SYSTEM_INFO_EXTENSIONS, extensions));
    EXPECT(extensions[HSA_EXTENSION_AMD_LOADER / 8] >> HSA_EXTENSION_AMD_LOADER % 8 & 1);
    CHECK(hsa_system_get_extension_table(HSA_EXTENSION_AMD_LOADER, 1, 0, table));
    EXPECT(table[2] != NULL && table[3] == NULL);
    char text[200];
    EXPECT(hsa_system_get_major_extension_table(HSA_EXTENSION_AMD_AQLPROFILE, 1, sizeof table, table) == HSA_STATUS_ERROR);
    softhsa_last_failure(text, sizeof text);
    EXPECT(strstr(text, "HSA_EXTENSION_AMD_AQLPROFILE"));
}

static int freed;

static void on_free(void *pointer, void *data) {
    freed += pointer == data;
}

static void *list(size_t bytes) { return malloc(bytes); }

static void memory(void) {
    char *rows, *own = calloc(1, 4096);
    CHECK(hsa_amd_memory_pool_allocate(pool, 4096, 0, (void **) &rows));
    // 3 bytes of 2 rows of 2 layers, from the rows' second byte on, and when a copy was made.
    for (int i = 0; i < 4096; i++)
        rows[i] = (char) (i % 251);
    hsa_signal_t first = new_signal(1), done = new_signal(1);
    hsa_pitched_ptr_t to = {own, 16, 64}, from = {rows, 100, 1000};
    hsa_dim3_t to_offset = {4, 0, 1}, from_offset = {1, 2, 0}, range = {3, 2, 2};
    CHECK(hsa_amd_profiling_async_copy_enable(true));
    CHECK(hsa_amd_memory_async_copy_rect(&to, &to_offset, &from, &from_offset, &range, gpu, hsaDeviceToHost, 1, &first, done));
    hsa_signal_store_relaxed(first, 0);
    EXPECT(wait_for(done, UINT64_MAX) == 0);
    for (int i = 0; i < 4096; i++) {
        int layer = i / 64 - 1, row = i % 64 / 16, column = i % 16 - 4;
        bool is_copied = layer >= 0 && layer < 2 && row < 2 && column >= 0 && column < 3;
        EXPECT(own[i] == (is_copied ? rows[layer * 1000 + (row + 2) * 100 + column + 1] : 0));
    }
    hsa_amd_profiling_async_copy_time_t times;
    CHECK(hsa_amd_profiling_get_async_copy_time(done, &times));
    EXPECT(times.start > 0 && times.start <= times.end);
    // What is noted with memory, who may access it, and who is told when it goes.
    hsa_amd_pointer_info_t info = {.size = sizeof info};
    hsa_agent_t *agents;
    uint32_t count;
    CHECK(hsa_amd_pointer_info_set_userdata(rows, own));
    CHECK(hsa_amd_pointer_info(rows + 9, &info, list, &count, &agents));
    EXPECT(info.userData == own && count >= 2 && agents[0].handle == cpu.handle && agents[1].handle == gpu.handle);
    CHECK(hsa_amd_register_deallocation_callback(rows + 1, on_free, rows + 1));
    CHECK(hsa_amd_register_deallocation_callback(rows + 2, on_free, rows + 2));
    CHECK(hsa_amd_deregister_deallocation_callback(rows + 2, on_free));
    EXPECT(hsa_amd_deregister_deallocation_callback(rows + 2, on_free) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    CHECK(hsa_amd_memory_pool_free(rows));
    EXPECT(freed == 1);
    CHECK(hsa_memory_register(own, 4096));
    CHECK(hsa_amd_pointer_info(own + 9, &info, NULL, NULL, NULL));
    EXPECT(info.type == HSA_EXT_POINTER_TYPE_LOCKED && info.agentBaseAddress == own);
    CHECK(hsa_memory_deregister(own, 4096));
    CHECK(hsa_amd_pointer_info(own + 9, &info, NULL, NULL, NULL));
    EXPECT(info.type == HSA_EXT_POINTER_TYPE_UNKNOWN);
    void *pinned;
    CHECK(hsa_amd_memory_lock_to_pool(own, 4096, &gpu, 1, pool, 0, &pinned));
    EXPECT(pinned == own);
    CHECK(hsa_amd_memory_unlock(own));
}

static void queues(void) {
    CHECK(hsa_amd_queue_set_priority(queue, HSA_AMD_QUEUE_PRIORITY_HIGH));
    EXPECT(hsa_amd_queue_set_priority(queue, 3) == HSA_STATUS_ERROR_INVALID_ARGUMENT);
    uint32_t mask[4], some[2] = {1, 0};
    CHECK(hsa_amd_queue_cu_get_mask(queue, 128, mask));
    EXPECT(mask[0] == UINT32_MAX && mask[1] == UINT32_MAX && mask[2] == 0 && mask[3] == 0);
    CHECK(hsa_amd_queue_cu_set_mask(queue, 64, mask));
    EXPECT(hsa_amd_queue_cu_set_mask(queue, 64, some) == HSA_STATUS_ERROR);
    // A queue that the client processes.
    hsa_queue_t *own;
    hsa_signal_t doorbell = new_signal(-1);
    CHECK(hsa_soft_queue_create((hsa_region_t) {pool.handle}, 16, HSA_QUEUE_TYPE_SINGLE, HSA_QUEUE_FEATURE_AGENT_DISPATCH,
                                doorbell, &own));
    EXPECT(own->size == 16 && own->doorbell_signal.handle == doorbell.handle && own->type == HSA_QUEUE_TYPE_SINGLE);
    EXPECT(own->features == HSA_QUEUE_FEATURE_AGENT_DISPATCH);
    EXPECT(hsa_queue_cas_write_index_acq_rel(own, 0, 1) == 0 && hsa_queue_load_write_index_acquire(own) == 1);
    hsa_queue_store_read_index_release(own, 1);
    EXPECT(hsa_queue_load_read_index_relaxed(own) == 1);
    CHECK(hsa_queue_destroy(own));
    CHECK(hsa_signal_destroy(doorbell));
    // Nothing starts in a queue that is inactive.
    CHECK(hsa_queue_inactivate(queue));
    hsa_barrier_and_packet_t packet = {.completion_signal = new_signal(1)};
    submit(&packet, HSA_PACKET_TYPE_BARRIER_AND);
    EXPECT(wait_for(packet.completion_signal, 20000000) == 1);
    CHECK(hsa_queue_destroy(queue));
}

static void refused(void) {
    char text[200];
    hsa_amd_ipc_memory_t handle;
    EXPECT(hsa_amd_ipc_memory_create(text, 1, &handle) == HSA_STATUS_ERROR);
    softhsa_last_failure(text, sizeof text);
    EXPECT(!strcmp(text, "hsa_amd_ipc_memory_create: this runtime shares nothing with other processes"));
}

// A queue without a callback meets a packet that cannot be: the process ends, as it would wait for ever.
static void wait_in_vain(void) {
    CHECK(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
    hsa_kernel_dispatch_packet_t packet = {
        .workgroup_size_x = 1, .workgroup_size_y = 1, .workgroup_size_z = 1, .grid_size_x = 1, .grid_size_z = 1,
        .completion_signal = new_signal(1),
    };
    submit(&packet, HSA_PACKET_TYPE_KERNEL_DISPATCH | 1 << 16);
    wait_for(packet.completion_signal, UINT64_MAX);
}

int main(int count, char **arguments) {
    EXPECT(hsa_amd_ipc_memory_detach(NULL) == HSA_STATUS_ERROR_NOT_INITIALIZED);
    CHECK(hsa_init());
    CHECK(hsa_iterate_agents(find_agent, NULL));
    FIRST(hsa_amd_agent_iterate_memory_pools, cpu, &pool);
    if (count > 2)
        wait_in_vain();
    CHECK(hsa_queue_create(gpu, 64, HSA_QUEUE_TYPE_MULTI, NULL, NULL, UINT32_MAX, UINT32_MAX, &queue));
    read_code(arguments[1]);
    ask_loader();
    dispatch_grid();
    barrier_values();
    wait_for_any();
    properties();
    memory();
    queues();
    refused();
    CHECK(hsa_executable_destroy(executable));
    CHECK(hsa_shut_down());
    printf("passed\n");
    return 0;
}
