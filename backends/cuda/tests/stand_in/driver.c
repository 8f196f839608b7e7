// A driver for tests: streams do one thing after the other, copies are the processor's, and a kernel runs
// until `stand_in_end_kernels`. What a real driver does by waiting for kernels it counts, and does at once.
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef int Result;
typedef uint64_t Address;
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_FOUND = 500, NOT_READY = 600 };

enum kind { KERNEL, COPY, STORE };
struct work { enum kind kind; void *to; const void *from; uint64_t bytes; struct work *next; };
struct stream { struct work *first, **last; struct stream *next; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream *streams;
static Result query_answer, signal_answer, link_answer;
static uint64_t pinned_bytes, waits, event_waits, retains;
// Allocations that pointers are told of, at numbers that no two have; freed ones have no bytes.
static struct allocation { Address start; uint64_t bytes; unsigned kind; } known[1 << 10];
static int retains_to_refused;
static uint64_t linked_bytes, linkers_destroyed;
static _Thread_local void *current;

static void go_on(struct stream *stream) {
    struct work *work;
    while ((work = stream->first) && work->kind != KERNEL) {
        if (work->kind == COPY)
            memmove(work->to, work->from, work->bytes);
        else // An event is a word that says whether it has happened.
            __atomic_store_n((uint64_t *)work->to, work->bytes, __ATOMIC_RELEASE);
        if (!(stream->first = work->next)) stream->last = &stream->first;
        free(work);
    }
}

static Result submit(struct stream *stream, struct work work) {
    struct work *own = malloc(sizeof work);
    *own = work;
    own->next = 0;
    pthread_mutex_lock(&lock);
    *stream->last = own;
    stream->last = &own->next;
    go_on(stream);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static void note_wait(void) {
    pthread_mutex_lock(&lock);
    for (struct stream *stream = streams; stream; stream = stream->next) waits += stream->first != 0;
    pthread_mutex_unlock(&lock);
}

enum { HOST = 1, DEVICE = 2 };

static void note_allocation(Address start, uint64_t bytes, unsigned kind) {
    pthread_mutex_lock(&lock);
    struct allocation *place = known;
    while (place->bytes && place < known + sizeof known / sizeof *known - 1) place++;
    *place = (struct allocation){start, bytes, kind};
    pthread_mutex_unlock(&lock);
}

static void forget_allocation(Address start) {
    pthread_mutex_lock(&lock);
    for (struct allocation *at = known; at < known + sizeof known / sizeof *known; at++)
        if (at->start == start) at->bytes = 0;
    pthread_mutex_unlock(&lock);
}

static struct allocation find_allocation(Address address) {
    struct allocation found = {0};
    pthread_mutex_lock(&lock);
    for (struct allocation *at = known; at < known + sizeof known / sizeof *known; at++)
        if (address - at->start < at->bytes) found = *at;
    pthread_mutex_unlock(&lock);
    return found;
}

// For tests.
void stand_in_end_kernels(void) {
    pthread_mutex_lock(&lock);
    for (struct stream *stream = streams; stream; stream = stream->next)
        while (stream->first) {
            struct work *kernel = stream->first;
            if (!(stream->first = kernel->next)) stream->last = &stream->first;
            free(kernel);
            go_on(stream);
        }
    pthread_mutex_unlock(&lock);
}
void stand_in_answer_queries(Result answer) { query_answer = answer; }
void stand_in_answer_signals(Result answer) { signal_answer = answer; }
void stand_in_refuse_retain(int which) { retains_to_refused = which; }
uint64_t stand_in_pinned_bytes(void) { return pinned_bytes; }
uint64_t stand_in_waits(void) { return waits; }
uint64_t stand_in_event_waits(void) { return event_waits; }
uint64_t stand_in_linked_bytes(void) { return linked_bytes; }
uint64_t stand_in_linkers_destroyed(void) { return linkers_destroyed; }
void stand_in_answer_links(Result answer) { link_answer = answer; }
uint64_t stand_in_retains(void) { return retains; }
uint64_t stand_in_context(void) { return (uint64_t)current; }

Result cuInit(unsigned flags) { return SUCCESS; }
Result cuGetErrorName(Result result, const char **name) { return *name = "CUDA_ERROR_STAND_IN", SUCCESS; }
Result cuGetErrorString(Result result, const char **text) { return *text = "as told by the test", SUCCESS; }
Result cuDeviceGetCount(int *count) { return *count = 2, SUCCESS; }
Result cuDeviceGet(int *device, int index) { return *device = index, SUCCESS; }
Result cuDeviceGetName(char *name, int bytes, int device) { return strncpy(name, "stand-in", bytes), SUCCESS; }
Result cuDeviceGetPCIBusId(char *id, int bytes, int device) { return strncpy(id, "0000:00:00.0", bytes), SUCCESS; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) { return *value = 1, SUCCESS; }
Result cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 1 << 30, SUCCESS; }
Result cuDeviceGetDefaultMemPool(void **pool, int device) { return *pool = &lock, SUCCESS; }
Result cuMemPoolSetAttribute(void *pool, int attribute, void *value) { return SUCCESS; }
Result cuMemPoolTrimTo(void *pool, size_t bytes) { return SUCCESS; }
Result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return SUCCESS; }
Result cuDevicePrimaryCtxRetain(void **context, int device) {
    if (retains_to_refused && !--retains_to_refused) return OUT_OF_MEMORY;
    *context = (char *)&lock + device;
    return __atomic_add_fetch(&retains, 1, __ATOMIC_SEQ_CST), SUCCESS;
}
Result cuDevicePrimaryCtxRelease_v2(int device) {
    return __atomic_sub_fetch(&retains, 1, __ATOMIC_SEQ_CST), SUCCESS;
}
Result cuCtxGetCurrent(void **context) { return *context = current, SUCCESS; }
Result cuCtxSetCurrent(void *context) { return current = context, SUCCESS; }
Result cuCtxGetLimit(size_t *value, int limit) { return *value = 1 << 20, SUCCESS; }
Result cuCtxSetLimit(int limit, size_t value) { return SUCCESS; }
Result cuStreamCreate(struct stream **stream, unsigned flags) {
    struct stream *new = calloc(1, sizeof *new);
    new->last = &new->first;
    pthread_mutex_lock(&lock);
    new->next = streams;
    streams = *stream = new;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
Result cuStreamDestroy_v2(struct stream *stream) { return SUCCESS; }
Result cuStreamSynchronize(struct stream *stream) { return SUCCESS; }
Result cuStreamQuery(struct stream *stream) {
    return query_answer ? query_answer : stream->first ? NOT_READY : SUCCESS;
}
Result cuMemAllocAsync(Address *address, size_t bytes, void *stream) {
    if (!(*address = (Address)calloc(1, bytes))) return OUT_OF_MEMORY;
    return note_allocation(*address, bytes, DEVICE), SUCCESS;
}
Result cuMemFreeAsync(Address address, void *stream) {
    return forget_allocation(address), free((void *)address), SUCCESS;
}
Result cuMemAlloc_v2(Address *address, size_t bytes) { return cuMemAllocAsync(address, bytes, 0); }
Result cuMemFree_v2(Address address) { return cuMemFreeAsync(address, 0); }
Result cuMemsetD8Async(Address to, unsigned char byte, size_t count, void *stream) {
    return memset((void *)to, byte, count), SUCCESS;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, struct stream *stream) {
    return submit(stream, (struct work){COPY, (void *)to, from, bytes});
}
Result cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, struct stream *stream) {
    return submit(stream, (struct work){COPY, to, (void *)from, bytes});
}
Result cuStreamWriteValue64_v2(struct stream *stream, Address to, uint64_t value, unsigned flags) {
    return signal_answer ? signal_answer : submit(stream, (struct work){STORE, (void *)to, 0, value});
}
Result cuMemHostAlloc(void **start, size_t bytes, unsigned flags) {
    uint64_t *block = aligned_alloc(256, 256 + (bytes + 255) / 256 * 256);
    if (!block) return OUT_OF_MEMORY;
    *block = bytes;
    __atomic_add_fetch(&pinned_bytes, bytes, __ATOMIC_SEQ_CST);
    note_allocation((Address)block + 256, bytes, HOST);
    return *start = (char *)block + 256, SUCCESS;
}
Result cuMemHostGetFlags(unsigned *flags, void *start) {
    return find_allocation((Address)start).kind == HOST ? (*flags = 0, SUCCESS) : INVALID_VALUE;
}
Result cuPointerGetAttribute(void *data, int attribute, Address address) {
    struct allocation found = find_allocation(address);
    if (!found.bytes) return INVALID_VALUE;
    switch (attribute) {
    case 2: return *(unsigned *)data = found.kind, SUCCESS;
    case 11: return *(Address *)data = found.start, SUCCESS;
    case 12: return *(size_t *)data = found.bytes, SUCCESS;
    default: return INVALID_VALUE;
    }
}
Result cuMemFreeHost(void *start) {
    uint64_t *block = (uint64_t *)((char *)start - 256);
    forget_allocation((Address)start);
    note_wait();
    __atomic_sub_fetch(&pinned_bytes, *block, __ATOMIC_SEQ_CST);
    return free(block), SUCCESS;
}
Result cuMemHostGetDevicePointer_v2(Address *address, void *start, unsigned flags) {
    return *address = (Address)start, SUCCESS;
}
Result cuLinkCreate_v2(unsigned count, void *options, void *values, void **linker) {
    return *linker = &lock, SUCCESS;
}
Result cuLinkAddData_v2(void *linker, int kind, void *data, size_t bytes, const char *name, unsigned count,
                        void *options, void *values) {
    return linked_bytes = bytes, link_answer;
}
Result cuLinkComplete(void *linker, void **cubin, size_t *bytes) {
    static char linked[] = ".version";
    return *cubin = linked, *bytes = sizeof linked - 1, SUCCESS;
}
Result cuLinkDestroy(void *linker) { return ++linkers_destroyed, SUCCESS; }
Result cuModuleLoadDataEx(void **module, const void *image, unsigned count, void *options, void *values) {
    return *module = &lock, SUCCESS;
}
Result cuEventCreate(uint64_t **event, unsigned flags) { return *event = calloc(1, sizeof **event), SUCCESS; }
Result cuEventDestroy_v2(uint64_t *event) { return SUCCESS; }
Result cuEventRecord(uint64_t *event, struct stream *stream) {
    if (signal_answer) return signal_answer;
    __atomic_store_n(event, 0, __ATOMIC_RELEASE);
    return submit(stream, (struct work){STORE, event, 0, 1});
}
Result cuEventQuery(uint64_t *event) { return __atomic_load_n(event, __ATOMIC_ACQUIRE) ? SUCCESS : NOT_READY; }
Result cuStreamWaitEvent(struct stream *stream, uint64_t *event, unsigned flags) {
    event_waits += cuEventQuery(event) != SUCCESS;
    return SUCCESS;
}
Result cuModuleUnload(void *module) { return note_wait(), SUCCESS; }
Result cuModuleGetFunction(void **function, void *module, const char *name) { return *function = &lock, SUCCESS; }
Result cuModuleGetGlobal_v2(Address *address, size_t *bytes, void *module, const char *name) { return NOT_FOUND; }
Result cuFuncGetAttribute(int *value, int attribute, void *function) { return *value = 1, SUCCESS; }
Result cuFuncSetAttribute(void *function, int attribute, int value) { return SUCCESS; }
Result cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned across, unsigned down,
                      unsigned deep, unsigned bytes, struct stream *stream, void **arguments, void **extra) {
    return submit(stream, (struct work){KERNEL});
}
Result cuThreadExchangeStreamCaptureMode(int *mode) { return SUCCESS; }

// Which the driver is asked for when it is loaded, and no test uses.
#define MISSING(name) Result name(void) { return INVALID_VALUE; }
MISSING(cuEventElapsedTime) MISSING(cuMemsetD16Async) MISSING(cuMemsetD32Async)
MISSING(cuMemcpyDtoDAsync_v2) MISSING(cuStreamBatchMemOp_v2) MISSING(cuMemHostRegister_v2)
MISSING(cuMemHostUnregister) MISSING(cuMemcpyPeerAsync)
MISSING(cuOccupancyMaxActiveBlocksPerMultiprocessor) MISSING(cuGraphCreate) MISSING(cuGraphAddKernelNode_v2)
MISSING(cuGraphInstantiateWithFlags) MISSING(cuGraphLaunch) MISSING(cuGraphExecDestroy) MISSING(cuGraphDestroy)
