// A driver of NVIDIA's in name only, for tests on machines without a GPU: its one device is this process. A module is PTX
// text whose first line names a shared object, `// host: PATH`; a kernel is a function of it, run for one lane after the
// other. A kernel of hostcall's own gets the addresses of its two parameters. Each stream is a thread that does its operations
// in order. PTX text that names no object is interpreted, as far as kernels of one lane without branches need that: those
// that decide about bodies of graphs. If HOSTCALL_DRIVER_COUNTS is set, the standard error is told of graphs at the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// The compute capability that kernels were written for, ten times the number: from 90 on they wait in lists.
#ifndef KERNELS_ARCHITECTURE
#define KERNELS_ARCHITECTURE 80
#endif

enum { SUCCESS = 0, INVALID_IMAGE = 200, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700 };

// An operation of a stream, which a thread of the stream's own does.
struct operation {
  struct operation *next;
  void (*run)(struct operation *);
  struct stream *stream;
  uint64_t words[10];
};

struct stream {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  struct operation *first, *last;
  int busy, result, destroyed;
};

struct event {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  // How often it was recorded, and how often that has happened.
  uint64_t recorded, done;
  struct timespec time;
};

struct function {
  // The text of a kernel that is interpreted, from its name on, which has no other members.
  const char *ptx;
  void (*run)(uint64_t, uint64_t, uint64_t, uint64_t);
  void (*set_lane)(unsigned, unsigned, unsigned);
  int *fault;
  int parameters;
  // Of a kernel of hostcall's own: how many bytes its arguments have behind the launch's parameters.
  int is_hostcall;
  size_t argument_bytes;
};

enum { LAUNCH_PARAMS_BYTES = 80, MOST_PARAMETERS = 4, MOST_NAMES = 64, MOST_OPERANDS = 6 };

// The names of a kernel's text, and what they stand for: parameters, registers.
struct names {
  int count;
  char names[MOST_NAMES][32];
  uint64_t values[MOST_NAMES];
};

static uint64_t *value_of(struct names *names, const char *name) {
  for (int i = 0; i < names->count; i++)
    if (!strcmp(names->names[i], name))
      return &names->values[i];
  strncpy(names->names[names->count], name, 31);
  return &names->values[names->count++];
}

// Reads the parameters' declarations, `.param .u64 name`, and their values; returns where the body begins.
static const char *read_parameters(const char *text, struct names *names, void **parameters) {
  const char *body = strchr(text, '{');
  int width;
  char name[32];
  while ((text = strstr(text, ".param .u")) && text < body && sscanf(text, ".param .u%d %31[a-z_]", &width, name) == 2) {
    *value_of(names, name) = width == 64 ? *(uint64_t *)*parameters : *(uint32_t *)*parameters;
    parameters++;
    text++;
  }
  return body;
}

// A kernel with its parameters: as values, or where they are, or by their names.
struct launch {
  struct function *function;
  unsigned blocks, lanes;
  uint64_t parameters[MOST_PARAMETERS];
  unsigned char *bytes;
  struct names names;
};

static uint64_t operand(struct names *names, const char *text) {
  return *text == '%' ? *value_of(names, text) : strtoull(text, NULL, 0);
}

// `%name`, or `%name+bytes`.
static void *address_of(struct names *names, char *text) {
  char *plus = strchr(text, '+');
  uint64_t offset = plus ? strtoull(plus + 1, NULL, 0) : 0;
  if (plus)
    *plus = 0;
  return (void *)(*value_of(names, text) + offset);
}

static void bad_text(const char *line) {
  fprintf(stderr, "the host's driver does not know: %s\n", line);
  abort();
}

// Does one instruction, without its `;`.
static void step(struct names *names, char *line) {
  char copy[256], *operands[MOST_OPERANDS] = {0}, *rest, *opcode;
  strncpy(copy, line, sizeof copy - 1);
  copy[sizeof copy - 1] = 0;
  opcode = strtok_r(copy, " \n,[]()", &rest);
  if (*opcode == '@') {
    if (!*value_of(names, opcode + 1))
      return;
    opcode = strtok_r(NULL, " \n,[]()", &rest);
  }
  for (int i = 0; i < MOST_OPERANDS && (operands[i] = strtok_r(NULL, " \n,[]()", &rest)); i++) {}
  int is_32 = !!strstr(opcode, "32");
  if (*opcode == '.')
    return;
  if (!strncmp(opcode, "membar.", 7)) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return;
  }
  if (!strncmp(opcode, "st.param", 8)) {
    *value_of(names, operands[0]) = operand(names, operands[1]);
    return;
  }
  if (!strncmp(opcode, "st.volatile.global", 18)) {
    uint64_t value = operand(names, operands[1]);
    void *to = address_of(names, operands[0]);
    is_32 ? (*(volatile uint32_t *)to = value) : (*(volatile uint64_t *)to = value);
    return;
  }
  if (!strcmp(opcode, "call.uni")) {
    if (strcmp(operands[0], "cudaGraphSetConditional"))
      bad_text(line);
    *(unsigned *)*value_of(names, operands[1]) = *value_of(names, operands[2]);
    return;
  }
  uint64_t *to = value_of(names, operands[0]);
  if (!strncmp(opcode, "ld.param", 8)) {
    *to = *value_of(names, operands[1]);
    return;
  }
  if (!strncmp(opcode, "ld.volatile.global", 18)) {
    void *from = address_of(names, operands[1]);
    *to = is_32 ? *(volatile uint32_t *)from : *(volatile uint64_t *)from;
    return;
  }
  uint64_t a = operand(names, operands[1]), b = operands[2] ? operand(names, operands[2]) : 0;
  if (!strncmp(opcode, "min.u", 5))
    *to = a < b ? a : b;
  else if (!strncmp(opcode, "add.u", 5))
    *to = a + b;
  else if (!strncmp(opcode, "setp.gt.u", 9))
    *to = a > b;
  else if (!strncmp(opcode, "setp.ge.u", 9))
    *to = a >= b;
  else if (!strncmp(opcode, "setp.le.u", 9))
    *to = a <= b;
  else if (!strncmp(opcode, "setp.ne.u", 9))
    *to = a != b;
  else if (!strcmp(opcode, "and.pred"))
    *to = a & b;
  else if (!strcmp(opcode, "or.pred"))
    *to = a | b;
  else if (!strncmp(opcode, "selp.u", 6))
    *to = *value_of(names, operands[3]) ? a : b;
  else
    bad_text(line);
}

static void interpret(const char *text, struct names names) {
  char line[256];
  while (*++text) {
    text += strspn(text, " \n{}");
    size_t length = strcspn(text, ";");
    if (!text[length] || length >= sizeof line)
      break;
    memcpy(line, text, length);
    line[length] = 0;
    // Another kernel may follow.
    if (!strcmp(line, "ret"))
      break;
    step(&names, line);
    text += length;
  }
}

static void fill_launch(struct launch *launch, struct function *function, unsigned blocks, unsigned lanes,
                        void **parameters) {
  *launch = (struct launch){.function = function, .blocks = blocks, .lanes = lanes};
  if (function->ptx) {
    read_parameters(function->ptx, &launch->names, parameters);
    return;
  }
  if (function->is_hostcall) {
    launch->bytes = malloc(LAUNCH_PARAMS_BYTES + function->argument_bytes);
    memcpy(launch->bytes, parameters[0], LAUNCH_PARAMS_BYTES);
    memcpy(launch->bytes + LAUNCH_PARAMS_BYTES, parameters[1], function->argument_bytes);
    launch->parameters[0] = (uint64_t)launch->bytes;
    launch->parameters[1] = (uint64_t)(launch->bytes + LAUNCH_PARAMS_BYTES);
    return;
  }
  // The first of each kernel is an `int`, the others are pointers.
  launch->parameters[0] = *(uint32_t *)parameters[0];
  for (int i = 1; i < function->parameters; i++)
    launch->parameters[i] = *(uint64_t *)parameters[i];
}

int cuInit(unsigned flags) { return SUCCESS; }

int cuGetErrorName(int result, const char **name) {
  *name = result == NOT_FOUND ? "CUDA_ERROR_NOT_FOUND" : result == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_INVALID_IMAGE";
  return SUCCESS;
}

int cuGetErrorString(int result, const char **text) {
  *text = result == ILLEGAL_ADDRESS ? "an illegal memory access was encountered" : "the host's driver says no";
  return SUCCESS;
}

int cuDeviceGetCount(int *count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int *device, int index) { return *device = index, SUCCESS; }
int cuDeviceGetName(char *name, int room, int device) { return snprintf(name, room, "a GPU of the host's"), SUCCESS; }
int cuDeviceGetPCIBusId(char *name, int room, int device) { return snprintf(name, room, "0000:00:00.0"), SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = 1 << 30, SUCCESS; }

int cuDeviceGetAttribute(int *value, int attribute, int device) {
  enum { BLOCK_THREADS = 1, MULTIPROCESSORS = 16, THREADS = 39, MAJOR = 75, MINOR = 76, SHARED_BYTES = 97 };
  switch (attribute) {
  case BLOCK_THREADS: return *value = 1024, SUCCESS;
  case MULTIPROCESSORS: return *value = 2, SUCCESS;
  case THREADS: return *value = 2048, SUCCESS;
  case MAJOR: return *value = 9, SUCCESS;
  case MINOR: return *value = 0, SUCCESS;
  case SHARED_BYTES: return *value = 65536, SUCCESS;
  default: return *value = 1, SUCCESS;
  }
}

int cuDeviceGetDefaultMemPool(void **pool, int device) { return *pool = NULL, SUCCESS; }
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) { return SUCCESS; }
int cuMemPoolTrimTo(void *pool, size_t bytes) { return SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = NULL, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxGetCurrent(void **context) { return *context = 0, SUCCESS; }
int cuCtxSetCurrent(void *context) { return SUCCESS; }
int cuThreadExchangeStreamCaptureMode(int *mode) { return SUCCESS; }
static size_t stack_limit = 1024;
int cuCtxSetLimit(int limit, size_t value) { return stack_limit = value, SUCCESS; }
int cuCtxGetLimit(size_t *value, int limit) { return *value = stack_limit, SUCCESS; }

static void *work(void *argument) {
  struct stream *stream = argument;
  pthread_mutex_lock(&stream->lock);
  for (;;) {
    while (!stream->first && !stream->destroyed)
      pthread_cond_wait(&stream->changed, &stream->lock);
    struct operation *operation = stream->first;
    if (!operation)
      break;
    stream->first = operation->next;
    stream->busy = 1;
    int result = stream->result;
    pthread_mutex_unlock(&stream->lock);
    // After a fault nothing runs any more.
    if (result == SUCCESS)
      operation->run(operation);
    free(operation);
    pthread_mutex_lock(&stream->lock);
    stream->busy = 0;
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->lock);
  return NULL;
}

int cuStreamCreate(struct stream **created, unsigned flags) {
  pthread_t thread;
  struct stream *stream = *created = calloc(1, sizeof *stream);
  pthread_mutex_init(&stream->lock, NULL);
  pthread_cond_init(&stream->changed, NULL);
  pthread_create(&thread, NULL, work, stream);
  pthread_detach(thread);
  return SUCCESS;
}

static struct operation *operation(void (*run)(struct operation *), struct stream *stream) {
  struct operation *operation = calloc(1, sizeof *operation);
  operation->run = run;
  operation->stream = stream;
  return operation;
}

static int submit(struct operation *operation) {
  struct stream *stream = operation->stream;
  pthread_mutex_lock(&stream->lock);
  if (stream->first)
    stream->last->next = operation;
  else
    stream->first = operation;
  stream->last = operation;
  int result = stream->result;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  return result;
}

int cuStreamDestroy_v2(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  stream->destroyed = 1;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->lock);
  return SUCCESS;
}

int cuStreamQuery(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  int result = stream->result ? stream->result : stream->first || stream->busy ? NOT_READY : SUCCESS;
  pthread_mutex_unlock(&stream->lock);
  return result;
}

int cuStreamSynchronize(struct stream *stream) {
  pthread_mutex_lock(&stream->lock);
  while ((stream->first || stream->busy) && !stream->result)
    pthread_cond_wait(&stream->changed, &stream->lock);
  int result = stream->result;
  pthread_mutex_unlock(&stream->lock);
  return result;
}

static void write_value(struct operation *operation) {
  atomic_store_explicit((_Atomic uint64_t *)operation->words[0], operation->words[1], memory_order_release);
}

int cuStreamWriteValue64_v2(struct stream *stream, uint64_t address, uint64_t value, unsigned flags) {
  struct operation *new = operation(write_value, stream);
  new->words[0] = address;
  new->words[1] = value;
  return submit(new);
}

struct memory_operation {
  unsigned operation;
  uint64_t address, value;
  unsigned flags;
  uint64_t alias, reserved;
};

int cuStreamBatchMemOp_v2(struct stream *stream, unsigned count, const struct memory_operation *operations,
                          unsigned flags) {
  int result = SUCCESS;
  for (unsigned i = 0; i < count && result == SUCCESS; i++)
    result = cuStreamWriteValue64_v2(stream, operations[i].address, operations[i].value, 0);
  return result;
}

int cuEventCreate(struct event **created, unsigned flags) {
  struct event *event = *created = calloc(1, sizeof *event);
  pthread_mutex_init(&event->lock, NULL);
  pthread_cond_init(&event->changed, NULL);
  return SUCCESS;
}

static void record(struct operation *operation) {
  struct event *event = (struct event *)operation->words[0];
  pthread_mutex_lock(&event->lock);
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->done = operation->words[1];
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->lock);
}

static void await(struct operation *operation) {
  struct event *event = (struct event *)operation->words[0];
  pthread_mutex_lock(&event->lock);
  while (event->done < operation->words[1])
    pthread_cond_wait(&event->changed, &event->lock);
  pthread_mutex_unlock(&event->lock);
}

static int with_event(void (*run)(struct operation *), struct event *event, struct stream *stream, int more) {
  struct operation *new = operation(run, stream);
  new->words[0] = (uint64_t)event;
  pthread_mutex_lock(&event->lock);
  new->words[1] = event->recorded += more;
  pthread_mutex_unlock(&event->lock);
  return submit(new);
}

int cuEventRecord(struct event *event, struct stream *stream) { return with_event(record, event, stream, 1); }

// For what was recorded last, whatever the event is recorded for later.
int cuStreamWaitEvent(struct stream *stream, struct event *event, unsigned flags) {
  return with_event(await, event, stream, 0);
}

int cuEventQuery(struct event *event) {
  pthread_mutex_lock(&event->lock);
  int done = event->done == event->recorded;
  pthread_mutex_unlock(&event->lock);
  return done ? SUCCESS : NOT_READY;
}

int cuEventElapsedTime(float *milliseconds, struct event *from, struct event *to) {
  *milliseconds = (to->time.tv_sec - from->time.tv_sec) * 1e3 + (to->time.tv_nsec - from->time.tv_nsec) / 1e6;
  return SUCCESS;
}

// Events are small, and something may wait for one that is destroyed.
int cuEventDestroy_v2(struct event *event) { return SUCCESS; }

static void *allocate(size_t bytes) {
  size_t size = (bytes + 255) / 256 * 256;
  // What is not cleared is no accident.
  return memset(aligned_alloc(256, size), 0xee, size);
}

int cuMemAllocAsync(void **memory, size_t bytes, struct stream *stream) { return *memory = allocate(bytes), SUCCESS; }
int cuMemAlloc_v2(void **memory, size_t bytes) { return *memory = allocate(bytes), SUCCESS; }
int cuMemFree_v2(void *memory) { return free(memory), SUCCESS; }
int cuMemFreeAsync(void *memory, struct stream *stream) { return free(memory), SUCCESS; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { return *memory = allocate(bytes), SUCCESS; }
int cuMemFreeHost(void *memory) { return free(memory), SUCCESS; }
int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) { return SUCCESS; }
int cuMemHostUnregister(void *memory) { return SUCCESS; }
int cuMemHostGetFlags(unsigned *flags, void *memory) { return *flags = 0, SUCCESS; }
// Everything is one allocation of the GPU's.
int cuPointerGetAttribute(void *data, int attribute, uint64_t address) {
  switch (attribute) {
  case 2: return *(unsigned *)data = 2, SUCCESS;
  case 11: return *(uint64_t *)data = 0, SUCCESS;
  default: return *(size_t *)data = SIZE_MAX, SUCCESS;
  }
}
int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) { return *device = host, SUCCESS; }

static void fill(struct operation *operation) {
  unsigned char *memory = (unsigned char *)operation->words[0];
  for (uint64_t i = 0; i < operation->words[2]; i++)
    memcpy(memory + i * operation->words[3], &operation->words[1], operation->words[3]);
}

static int submit_fill(uint64_t memory, uint64_t pattern, size_t count, unsigned width, struct stream *stream) {
  struct operation *new = operation(fill, stream);
  new->words[0] = memory;
  new->words[1] = pattern;
  new->words[2] = count;
  new->words[3] = width;
  return submit(new);
}

int cuMemsetD8Async(uint64_t memory, unsigned char byte, size_t count, struct stream *stream) {
  return submit_fill(memory, byte, count, 1, stream);
}

int cuMemsetD16Async(uint64_t memory, unsigned short word, size_t count, struct stream *stream) {
  return submit_fill(memory, word, count, 2, stream);
}

int cuMemsetD32Async(uint64_t memory, unsigned word, size_t count, struct stream *stream) {
  return submit_fill(memory, word, count, 4, stream);
}

static void copy(struct operation *operation) {
  memcpy((void *)operation->words[0], (void *)operation->words[1], operation->words[2]);
}

static int submit_copy(uint64_t to, uint64_t from, size_t bytes, struct stream *stream) {
  struct operation *new = operation(copy, stream);
  new->words[0] = to;
  new->words[1] = from;
  new->words[2] = bytes;
  return submit(new);
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct stream *stream) {
  return submit_copy(to, (uint64_t)from, bytes, stream);
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct stream *stream) {
  return submit_copy((uint64_t)to, from, bytes, stream);
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct stream *stream) {
  return submit_copy(to, from, bytes, stream);
}

int cuMemcpyPeerAsync(uint64_t to, void *to_context, uint64_t from, void *from_context, size_t bytes,
                      struct stream *stream) {
  return submit_copy(to, from, bytes, stream);
}

// A loaded text: a shared object, or the text.
struct module {
  void *object;
  char *ptx;
};

int cuModuleLoadDataEx(struct module **module, const char *image, unsigned count, int *options, void **values) {
  char path[4096];
  struct module loaded = {0};
  if (sscanf(image, "// host: %4095s", path) == 1)
    loaded.object = dlopen(path, RTLD_NOW);
  else if (strstr(image, "cudaGraphSetConditional"))
    loaded.ptx = strdup(image);
  if (!loaded.object && !loaded.ptx)
    return INVALID_IMAGE;
  *module = malloc(sizeof **module);
  **module = loaded;
  return SUCCESS;
}

// A linker, which has the one text that was added.
struct linker {
  char *text;
};

int cuLinkCreate_v2(unsigned count, int *options, void **values, struct linker **linker) {
  return *linker = calloc(1, sizeof **linker), SUCCESS;
}

int cuLinkAddData_v2(struct linker *linker, int kind, const char *data, size_t bytes, const char *name, unsigned count,
                     int *options, void **values) {
  return linker->text = strndup(data, bytes), SUCCESS;
}

int cuLinkComplete(struct linker *linker, void **image, size_t *bytes) {
  return *image = linker->text, *bytes = strlen(linker->text), SUCCESS;
}

int cuLinkDestroy(struct linker *linker) { return free(linker->text), free(linker), SUCCESS; }

int cuModuleUnload(struct module *module) { return free(module->ptx), free(module), SUCCESS; }

int cuModuleGetGlobal_v2(void **address, size_t *bytes, struct module *module, const char *name) {
  Dl_info info;
  struct {
    uint32_t name;
    unsigned char info, other;
    uint16_t section;
    uint64_t value, size;
  } *symbol = NULL;
  *address = module->object ? dlsym(module->object, name) : NULL;
  if (!*address || !dladdr1(*address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
    return NOT_FOUND;
  *bytes = symbol->size;
  return SUCCESS;
}

int cuModuleGetFunction(struct function **function, struct module *named, const char *name) {
  void *module = named->object, *run = module ? dlsym(module, name) : NULL;
  char entry[300];
  snprintf(entry, sizeof entry, ".entry %s(", name);
  const char *text = named->ptx ? strstr(named->ptx, entry) : NULL;
  if (!run && !text)
    return NOT_FOUND;
  *function = calloc(1, sizeof **function);
  if (text) {
    (*function)->ptx = text;
    return SUCCESS;
  }
  (*function)->run = run;
  (*function)->set_lane = dlsym(module, "set_lane");
  (*function)->fault = dlsym(module, "fault");
  if (!strncmp(name, "hostcall_kernel_", 16)) {
    char info[256];
    snprintf(info, sizeof info, "hostcall_kernel_info_%s", name + 16);
    const uint64_t *words = dlsym(module, info);
    (*function)->is_hostcall = 1;
    (*function)->argument_bytes = words[3];
  }
  (*function)->parameters = !strcmp(name, "_begin") ? 3 : !strcmp(name, "_start") ? 4 : 1;
  return SUCCESS;
}

int cuFuncGetAttribute(int *value, int attribute, struct function *function) {
  enum { LANES = 0, STACK_BYTES = 3, REGISTERS = 4, ARCHITECTURE = 5 };
  *value = attribute == LANES          ? 1024
           : attribute == STACK_BYTES  ? 16
           : attribute == REGISTERS    ? 40
           : attribute == ARCHITECTURE ? KERNELS_ARCHITECTURE
                                       : 0;
  return SUCCESS;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, struct function *function, int lanes, size_t bytes) {
  *blocks = 2;
  return SUCCESS;
}

int cuFuncSetAttribute(struct function *function, int attribute, int value) { return SUCCESS; }

static void run_launch(struct launch *launch, struct stream *stream) {
  struct function *function = launch->function;
  if (function->ptx) {
    interpret(strchr(function->ptx, '{'), launch->names);
    return;
  }
  const uint64_t *parameters = launch->parameters;
  for (unsigned block = 0; block < launch->blocks && !*function->fault; block++)
    for (unsigned lane = 0; lane < launch->lanes && !*function->fault; lane++) {
      function->set_lane(block, launch->lanes, lane);
      function->run(parameters[0], parameters[1], parameters[2], parameters[3]);
    }
  if (*function->fault) {
    pthread_mutex_lock(&stream->lock);
    stream->result = ILLEGAL_ADDRESS;
    pthread_mutex_unlock(&stream->lock);
  }
}

static void run(struct operation *operation) {
  struct launch *launch = (struct launch *)operation->words[0];
  run_launch(launch, operation->stream);
  free(launch->bytes);
  free(launch);
}

int cuLaunchKernel(struct function *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned lanes_x,
                   unsigned lanes_y, unsigned lanes_z, unsigned shared_bytes, struct stream *stream, void **parameters,
                   void **extra) {
  struct operation *new = operation(run, stream);
  struct launch *launch = malloc(sizeof *launch);
  fill_launch(launch, function, blocks_x * blocks_y * blocks_z, lanes_x * lanes_y * lanes_z, parameters);
  new->words[0] = (uint64_t)launch;
  return submit(new);
}

// A kernel, or a body that a handle decides about.
struct node {
  struct launch launch;
  struct graph *body;
  unsigned *handle;
  int repeats;
};

// Nodes in a row: a graph, or what was made of one, which stays until it was destroyed and has ended.
struct graph {
  atomic_int users;
  int is_body;
  size_t count;
  struct node *nodes;
};

static atomic_int graphs_alive, graphs_made, graphs_launched, early_nodes;

static struct graph *new_graph(size_t count, int is_body) {
  struct graph *graph = calloc(1, sizeof *graph);
  graph->users = 1;
  graph->is_body = is_body;
  graph->count = count;
  graph->nodes = calloc(count ? count : 1, sizeof *graph->nodes);
  graphs_alive++;
  return graph;
}

static int leave_graph(struct graph *graph) {
  if (atomic_fetch_sub(&graph->users, 1) == 1) {
    for (size_t i = 0; i < graph->count; i++) {
      free(graph->nodes[i].launch.bytes);
      if (graph->nodes[i].body)
        leave_graph(graph->nodes[i].body);
    }
    free(graph->nodes);
    free(graph);
    graphs_alive--;
  }
  return SUCCESS;
}

int cuGraphCreate(struct graph **graph, unsigned flags) { return *graph = new_graph(0, 0), SUCCESS; }
int cuGraphDestroy(struct graph *graph) { return leave_graph(graph); }
int cuGraphExecDestroy(struct graph *graph) { return leave_graph(graph); }

// A node's handle is its number, from 1. It waits for the node before it.
static struct node *add_node(void **node, struct graph *graph, void *const *after, size_t count) {
  if (count != (graph->count > 0) || count && (size_t)after[0] != graph->count)
    return NULL;
  graph->nodes = realloc(graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
  struct node *new = memset(&graph->nodes[graph->count++], 0, sizeof *new);
  *node = (void *)graph->count;
  return new;
}

struct kernel_node {
  struct function *function;
  unsigned blocks_x, blocks_y, blocks_z, lanes_x, lanes_y, lanes_z, shared_bytes;
  void **parameters, **extra, *kernel, *context;
};

int cuGraphAddKernelNode_v2(void **node, struct graph *graph, void *const *after, size_t count,
                            const struct kernel_node *kernel) {
  struct node *new = add_node(node, graph, after, count);
  if (!new)
    return INVALID_IMAGE;
  fill_launch(&new->launch, kernel->function, kernel->blocks_x * kernel->blocks_y * kernel->blocks_z,
              kernel->lanes_x * kernel->lanes_y * kernel->lanes_z, kernel->parameters);
  return SUCCESS;
}

// Drivers before 12.3 have no conditional nodes; tests that want such a driver leave them out.
#ifndef WITHOUT_CONDITIONAL_NODES
int cuGraphConditionalHandleCreate(unsigned **handle, struct graph *graph, void *context, unsigned value, unsigned flags) {
  // A handle is of the graph that the node is in. It starts with the value only if the flag says so.
  if (graph->is_body || flags != 1)
    return INVALID_IMAGE;
  *handle = malloc(sizeof **handle);
  **handle = value;
  return SUCCESS;
}

// How a node follows another one.
struct edge {
  unsigned char from_port, to_port, type, reserved[5];
};

struct conditional_node {
  int type, reserved[3];
  unsigned *handle;
  int kind;
  unsigned size;
  struct graph **bodies;
  void *context;
};

int cuGraphAddNode_v2(void **node, struct graph *graph, void *const *after, const struct edge *edges, size_t count,
                      struct conditional_node *conditional) {
  enum { KERNEL = 0, CONDITIONAL = 13, WHILE = 1, PROGRAMMATIC = 1 };
  if (conditional->type == KERNEL) {
    early_nodes++;
    if (count != 1 || edges->from_port != PROGRAMMATIC || edges->to_port != 0 || edges->type != PROGRAMMATIC)
      return INVALID_IMAGE;
    return cuGraphAddKernelNode_v2(node, graph, after, count, (const struct kernel_node *)&conditional->handle);
  }
  struct node *new = conditional->type == CONDITIONAL && conditional->size == 1 ? add_node(node, graph, after, count) : NULL;
  if (!new)
    return INVALID_IMAGE;
  new->body = new_graph(0, 1);
  new->handle = conditional->handle;
  new->repeats = conditional->kind == WHILE;
  // The caller reads it before it adds another node.
  conditional->bodies = &new->body;
  return SUCCESS;
}
#endif

static struct graph *copy_graph(const struct graph *graph) {
  struct graph *made = new_graph(graph->count, graph->is_body);
  for (size_t i = 0; i < graph->count; i++) {
    struct node *from = &graph->nodes[i], *to = &made->nodes[i];
    *to = *from;
    if (from->body)
      to->body = copy_graph(from->body);
    if (from->launch.bytes) {
      struct launch *launch = &from->launch;
      void *addresses[] = {(void *)launch->parameters[0], (void *)launch->parameters[1]};
      fill_launch(&to->launch, launch->function, launch->blocks, launch->lanes, addresses);
    }
  }
  return made;
}

int cuGraphInstantiateWithFlags(struct graph **made, struct graph *graph, unsigned long long flags) {
  *made = copy_graph(graph);
  graphs_made++;
  return SUCCESS;
}

static void run_nodes(struct graph *graph, struct stream *stream) {
  for (size_t i = 0; i < graph->count && !stream->result; i++) {
    struct node *node = &graph->nodes[i];
    if (!node->body) {
      run_launch(&node->launch, stream);
      continue;
    }
    while (*node->handle && !stream->result) {
      run_nodes(node->body, stream);
      if (!node->repeats)
        break;
    }
  }
}

static void run_graph(struct operation *operation) {
  struct graph *graph = (struct graph *)operation->words[0];
  run_nodes(graph, operation->stream);
  leave_graph(graph);
}

int cuGraphLaunch(struct graph *graph, struct stream *stream) {
  struct operation *new = operation(run_graph, stream);
  new->words[0] = (uint64_t)graph;
  graph->users++;
  graphs_launched++;
  return submit(new);
}

__attribute__((destructor)) static void tell_counts(void) {
  if (getenv("HOSTCALL_DRIVER_COUNTS"))
    fprintf(stderr, "graphs: %d made, %d launched, %d alive, %d early nodes\n", graphs_made, graphs_launched,
            graphs_alive, early_nodes);
}
