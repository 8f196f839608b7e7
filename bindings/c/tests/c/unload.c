/*
 * A program that has a handler for SIGSEGV, loads the library, opens a device, unloads the library and faults.
 *
 *     unload LIBRARY
 */
#include <dirent.h>
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static sigjmp_buf back;

static void on_fault(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

static void *load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return library;
}

/* Returns the address of a function. */
static void find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    if (!found)
        exit(1);
    *(void **)function = found;
}

/* On a thread of its own: what the library keeps of a thread keeps the library loaded as long as the thread is there. */
static void *use(void *path) {
    int (*options_new)(const char *, void **, void **);
    int (*device_open)(void **, void **, void **);
    void (*device_free)(void **);
    void *library = load(path), *options, *device;
    find(library, "hostcall_options_new", &options_new);
    find(library, "hostcall_device_open", &device_open);
    find(library, "hostcall_device_free", &device_free);
    if (options_new("cpu", &options, NULL) || device_open(&options, &device, NULL))
        exit(1);
    device_free(&device);
    dlclose(library);
    return NULL;
}

/* How many threads the process has. */
static int threads(void) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    struct sigaction action = {0};
    pthread_t thread;
    if (argc != 2)
        return 1;
    action.sa_handler = on_fault;
    sigaction(SIGSEGV, &action, NULL);
    if (pthread_create(&thread, NULL, use, argv[1]))
        return 1;
    pthread_join(thread, NULL);
    while (threads() > 1)
        sched_yield();
    dlclose(load(argv[1]));
    if (!sigsetjmp(back, 1))
        *(volatile int *)8 = 1;
    puts("passed");
    return 0;
}
