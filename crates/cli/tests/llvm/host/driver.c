// A driver of NVIDIA's in name only, for tests on machines without a GPU: its one device is this process. A module is PTX
// text whose first line names a shared object, `// host: PATH`; a kernel is a function of it, run for one lane after the
// other in a thread.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_IMAGE = 200, NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700 };

struct stream {
  atomic_int result;
};

struct function {
  void (*run)(uint64_t, uint64_t, uint64_t, uint64_t);
  void (*set_lane)(unsigned, unsigned, unsigned);
  int *fault;
  int parameters;
};

struct launch {
  struct function *function;
  struct stream *stream;
  unsigned blocks, lanes;
  uint64_t parameters[4];
};

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
  enum { MULTIPROCESSORS = 16, MAJOR = 75, MINOR = 76, SHARED_BYTES = 97 };
  *value = attribute == MULTIPROCESSORS ? 2 : attribute == MAJOR ? 9 : attribute == MINOR ? 0 : attribute == SHARED_BYTES ? 65536 : 1;
  return SUCCESS;
}

int cuDeviceGetDefaultMemPool(void **pool, int device) { return *pool = NULL, SUCCESS; }
int cuMemPoolSetAttribute(void *pool, int attribute, void *value) { return SUCCESS; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) { return SUCCESS; }
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = NULL, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
int cuCtxSetCurrent(void *context) { return SUCCESS; }
int cuCtxSetLimit(int limit, size_t value) { return SUCCESS; }

int cuStreamCreate(struct stream **stream, unsigned flags) {
  *stream = calloc(1, sizeof **stream);
  return SUCCESS;
}

int cuStreamDestroy_v2(struct stream *stream) { return SUCCESS; }
int cuStreamQuery(struct stream *stream) { return stream->result; }

int cuStreamSynchronize(struct stream *stream) {
  while (stream->result == NOT_READY)
    usleep(10);
  return stream->result;
}

static void *allocate(size_t bytes) {
  size_t size = (bytes + 255) / 256 * 256;
  // What is not cleared is no accident.
  return memset(aligned_alloc(256, size), 0xee, size);
}

int cuMemAllocAsync(void **memory, size_t bytes, struct stream *stream) { return *memory = allocate(bytes), SUCCESS; }
int cuMemFreeAsync(void *memory, struct stream *stream) { return free(memory), SUCCESS; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) { return *memory = allocate(bytes), SUCCESS; }
int cuMemFreeHost(void *memory) { return free(memory), SUCCESS; }
int cuMemHostGetDevicePointer_v2(void **device, void *host, unsigned flags) { return *device = host, SUCCESS; }

int cuMemsetD8Async(void *memory, unsigned char byte, size_t bytes, struct stream *stream) {
  memset(memory, byte, bytes);
  return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(void *to, const void *from, size_t bytes, struct stream *stream) {
  memcpy(to, from, bytes);
  return SUCCESS;
}

int cuMemcpyDtoHAsync_v2(void *to, const void *from, size_t bytes, struct stream *stream) {
  memcpy(to, from, bytes);
  return SUCCESS;
}

int cuModuleLoadDataEx(void **module, const char *image, unsigned count, int *options, void **values) {
  char path[4096];
  *module = sscanf(image, "// host: %4095s", path) == 1 ? dlopen(path, RTLD_NOW) : NULL;
  return *module ? SUCCESS : INVALID_IMAGE;
}

int cuModuleUnload(void *module) { return SUCCESS; }

int cuModuleGetGlobal_v2(void **address, size_t *bytes, void *module, const char *name) {
  Dl_info info;
  struct {
    uint32_t name;
    unsigned char info, other;
    uint16_t section;
    uint64_t value, size;
  } *symbol = NULL;
  *address = dlsym(module, name);
  if (!*address || !dladdr1(*address, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
    return NOT_FOUND;
  *bytes = symbol->size;
  return SUCCESS;
}

int cuModuleGetFunction(struct function **function, void *module, const char *name) {
  void *run = dlsym(module, name);
  if (!run)
    return NOT_FOUND;
  *function = calloc(1, sizeof **function);
  (*function)->run = run;
  (*function)->set_lane = dlsym(module, "set_lane");
  (*function)->fault = dlsym(module, "fault");
  (*function)->parameters = !strcmp(name, "_begin") ? 3 : !strcmp(name, "_start") ? 4 : 1;
  return SUCCESS;
}

int cuFuncGetAttribute(int *value, int attribute, struct function *function) {
  enum { LANES = 0, STACK_BYTES = 3, REGISTERS = 4 };
  *value = attribute == LANES ? 1024 : attribute == STACK_BYTES ? 16 : attribute == REGISTERS ? 40 : 0;
  return SUCCESS;
}

int cuFuncSetAttribute(struct function *function, int attribute, int value) { return SUCCESS; }

static void *run(void *argument) {
  struct launch *launch = argument;
  struct function *function = launch->function;
  const uint64_t *parameters = launch->parameters;
  for (unsigned block = 0; block < launch->blocks && !*function->fault; block++)
    for (unsigned lane = 0; lane < launch->lanes && !*function->fault; lane++) {
      function->set_lane(block, launch->lanes, lane);
      function->run(parameters[0], parameters[1], parameters[2], parameters[3]);
    }
  launch->stream->result = *function->fault ? ILLEGAL_ADDRESS : SUCCESS;
  return NULL;
}

int cuLaunchKernel(struct function *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z, unsigned lanes_x,
                   unsigned lanes_y, unsigned lanes_z, unsigned shared_bytes, struct stream *stream, void **parameters,
                   void **extra) {
  struct launch *launch = calloc(1, sizeof *launch);
  pthread_t thread;
  launch->function = function;
  launch->stream = stream;
  launch->blocks = blocks_x * blocks_y * blocks_z;
  launch->lanes = lanes_x * lanes_y * lanes_z;
  // The first of each kernel is an `int`, the others are pointers.
  launch->parameters[0] = *(uint32_t *)parameters[0];
  for (int i = 1; i < function->parameters; i++)
    launch->parameters[i] = *(uint64_t *)parameters[i];
  stream->result = NOT_READY;
  pthread_create(&thread, NULL, run, launch);
  pthread_detach(thread);
  return SUCCESS;
}
