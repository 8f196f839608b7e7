// A host program for HIP's runtime, which is looked up at run time. Prints "passed", or which error its first function has.
#include <dlfcn.h>
#include <stdio.h>

#define FUNCTION(name, ...)                                                                                           \
    int (*name)(__VA_ARGS__) = dlsym(hip, #name);                                                                     \
    if (!name) {                                                                                                      \
        puts("there is no " #name);                                                                                   \
        return 1;                                                                                                     \
    }
#define CHECK(call)                                                                                                   \
    do {                                                                                                              \
        int error_ = (call);                                                                                          \
        if (error_) {                                                                                                 \
            printf("%s: error %d\n", #call, error_);                                                                  \
            return 1;                                                                                                 \
        }                                                                                                             \
    } while (0)

enum { LANES = 256, TO_DEVICE = 1, TO_HOST = 2 };

int main(int count, char **arguments) {
    void *hip = dlopen("libamdhip64.so.5", RTLD_NOW);
    if (!hip) {
        puts(dlerror());
        return 1;
    }
    FUNCTION(hipGetDeviceCount, int *)
    FUNCTION(hipMalloc, void **, size_t)
    FUNCTION(hipFree, void *)
    FUNCTION(hipMemcpy, void *, const void *, size_t, int)
    FUNCTION(hipModuleLoad, void **, const char *)
    FUNCTION(hipModuleGetFunction, void **, void *, const char *)
    FUNCTION(hipModuleLaunchKernel, void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
             void **, void **)
    int devices = 0, error = hipGetDeviceCount(&devices);
    if (error) {
        printf("error %d\n", error);
        return 0;
    }
    unsigned numbers[LANES], doubled[LANES];
    for (unsigned i = 0; i < LANES; i++)
        numbers[i] = i + 7;
    void *memory, *module, *kernel;
    CHECK(hipMalloc(&memory, sizeof numbers));
    CHECK(hipMemcpy(memory, numbers, sizeof numbers, TO_DEVICE));
    CHECK(hipModuleLoad(&module, arguments[1]));
    CHECK(hipModuleGetFunction(&kernel, module, "twice"));
    void *parameters[] = {&memory};
    CHECK(hipModuleLaunchKernel(kernel, LANES / 64, 1, 1, 64, 1, 1, 0, NULL, parameters, NULL));
    CHECK(hipMemcpy(doubled, memory, sizeof doubled, TO_HOST));
    for (unsigned i = 0; i < LANES; i++)
        if (doubled[i] != 2 * numbers[i]) {
            printf("lane %u has %u\n", i, doubled[i]);
            return 1;
        }
    CHECK(hipFree(memory));
    puts("passed");
    return 0;
}
