/*
 * Consumers of ROCm's hostcall buffers.
 *
 * Kernels built with ROCm's device libraries call the host through packets in a hostcall buffer. A consumer is a thread
 * that finds the packets and calls the handler of the service that each names.
 *
 *     amd_hostcall_consumer_t *consumer;
 *     amd_hostcall_create_consumer(&consumer);
 *     amd_hostcall_register_service(700, handler, state);
 *     amd_hostcall_initialize_buffer(buffer, num_packets);
 *     amd_hostcall_register_buffer(consumer, buffer);
 *     amd_hostcall_launch_consumer(consumer);
 *     ... kernels run ...
 *     amd_hostcall_deregister_buffer(consumer, buffer);
 *     amd_hostcall_destroy_consumer(consumer);
 *
 * Threads. Every function may be called by any thread at any time, also while consumers run, and by handlers unless its
 * comment says otherwise. Handlers run on their consumer's thread, one at a time for each consumer; handlers of several
 * consumers run at the same time.
 *
 * Ownership. Buffers are the caller's. The library touches a buffer in amd_hostcall_initialize_buffer and while it is
 * registered, and not after amd_hostcall_deregister_buffer has returned. What a device writes into a buffer, at any time,
 * harms nothing but the answers that the device gets.
 *
 * Handlers must return: a C++ exception that leaves one, or a longjmp out of one, ends the process or is undefined. Two
 * handlers of two consumers that each destroy the other's wait for ever.
 *
 * A child of fork() has no consumers' threads: it calls nothing of the library before exec.
 *
 * The buffers are those of ROCm's releases until 2026, with stacks of packets. HSA's functions are taken from
 * libhsa-runtime64.so.1, or the file that the environment variable HOSTCALL_HSA_LIBRARY names.
 */
#ifndef AMD_HOSTCALL_H
#define AMD_HOSTCALL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What functions return. */
typedef enum amd_hostcall_error_t {
    AMD_HOSTCALL_SUCCESS = 0,
    /* The consumer runs, or some consumer does. */
    AMD_HOSTCALL_ERROR_CONSUMER_ACTIVE = 1,
    /* The consumer does not run. No function of this version returns it. */
    AMD_HOSTCALL_ERROR_CONSUMER_INACTIVE = 2,
    /* The system started no thread for the consumer. */
    AMD_HOSTCALL_ERROR_CONSUMER_LAUNCH_FAILED = 3,
    /* What was asked for cannot be done; the function's comment says when. */
    AMD_HOSTCALL_ERROR_INVALID_REQUEST = 4,
    /* A kernel called a service that has no handler. Error handlers get it. */
    AMD_HOSTCALL_ERROR_SERVICE_UNKNOWN = 5,
    /* The buffer is not aligned to amd_hostcall_get_buffer_alignment(). */
    AMD_HOSTCALL_ERROR_INCORRECT_ALIGNMENT = 6,
    /* A pointer is null that must not be. */
    AMD_HOSTCALL_ERROR_NULLPTR = 7,
    /* HSA is not there or not initialized, or a fault in the library. */
    AMD_HOSTCALL_INTERNAL_ERROR = 8
} amd_hostcall_error_t;

/* Returns an error's name as it stands above, and "unknown error" for other numbers. The text lives as long as the
 * library. */
const char *amd_hostcall_error_string(int error);

/* A consumer. */
typedef struct amd_hostcall_consumer_t amd_hostcall_consumer_t;

/* Makes a consumer, which does nothing until it is launched, and stores its handle. HSA must be initialized (hsa_init), and
 * stay so until the consumer is destroyed. On failure a null handle is stored.
 *
 * NULLPTR        consumer is null.
 * INTERNAL_ERROR HSA is not there or not initialized, or gives no signal.
 */
amd_hostcall_error_t amd_hostcall_create_consumer(amd_hostcall_consumer_t **consumer);

/* Destroys a consumer. It serves what was submitted before once more and then ends; its buffers are deregistered. Waits
 * for the handler that runs. A process may exit without it: consumers end with the process.
 *
 * NULLPTR         consumer is null.
 * INVALID_REQUEST There is no such consumer, or the caller is a handler that runs on it.
 */
amd_hostcall_error_t amd_hostcall_destroy_consumer(amd_hostcall_consumer_t *consumer);

/* Starts the consumer's thread. Buffers and services may be registered before and after.
 *
 * NULLPTR                consumer is null.
 * INVALID_REQUEST        There is no such consumer.
 * CONSUMER_ACTIVE        It runs already, and goes on.
 * CONSUMER_LAUNCH_FAILED The system starts no thread.
 */
amd_hostcall_error_t amd_hostcall_launch_consumer(amd_hostcall_consumer_t *consumer);

/* Handles the call of one lane: state as it was registered, the service that was called, and the lane's eight words, which
 * are the answer when the handler returns. ROCm's device libraries read the first two. The words are the handler's until it
 * returns. A result other than 0 is fatal: the error handler gets it, and then the process stops as by abort(). Negative
 * results cannot be taken for one of the errors above. */
typedef int (*amd_hostcall_service_handler_t)(void *state, uint32_t service, uint64_t *payload);

/* Registers the handler of a service, for all consumers. It stays. Service 0 is the default: its handler gets the calls of
 * services that have none. When there is no default either, such a call is fatal: the error handler gets SERVICE_UNKNOWN,
 * and then the process stops as by abort().
 *
 * NULLPTR         handler is null.
 * INVALID_REQUEST The service has a handler.
 */
amd_hostcall_error_t amd_hostcall_register_service(uint32_t service, amd_hostcall_service_handler_t handler,
                                                   void *state);

/* Registers the library's own handler of service 2, the printf and fprintf of ROCm's device libraries: lines go to the
 * process's standard output and error, though not through C's buffers of these. They are written soon, and before
 * amd_hostcall_destroy_consumer returns or the process exits.
 *
 * INVALID_REQUEST The service has a handler.
 */
amd_hostcall_error_t amd_hostcall_register_printf(void);

/* Returns the bytes of a buffer with so many packets; 0 when a buffer cannot have so many: 0, or more than 1048576. */
size_t amd_hostcall_get_buffer_size(uint32_t num_packets);

/* Returns what a buffer's address must be a multiple of. */
uint32_t amd_hostcall_get_buffer_alignment(void);

/* Makes an empty buffer of amd_hostcall_get_buffer_size(num_packets) bytes of memory, which host and device have at the
 * same address, and all of whose packets are free. There should be as many packets as waves can run at a time on the queue
 * that it is for.
 *
 * NULLPTR             buffer is null.
 * INCORRECT_ALIGNMENT It is not aligned.
 * INVALID_REQUEST     A buffer cannot have so many packets, or it is registered.
 */
amd_hostcall_error_t amd_hostcall_initialize_buffer(void *buffer, uint32_t num_packets);

/* Has a consumer serve a buffer. To be called before a kernel uses it. The memory must stay until the buffer is deregistered
 * or the consumer is destroyed. The library knows a buffer's packets by its address: memory that was freed and is a buffer
 * again is initialized again before. Registering a buffer again with the same consumer does nothing.
 *
 * NULLPTR         consumer or buffer is null.
 * INVALID_REQUEST There is no such consumer, the buffer is not initialized, or another consumer serves it.
 */
amd_hostcall_error_t amd_hostcall_register_buffer(amd_hostcall_consumer_t *consumer, void *buffer);

/* Has a consumer serve a buffer no more: its memory may be freed when this returns. Packets that the consumer has found and
 * not answered are answered with zeros, and no handler begins for them; other packets in it wait for a consumer that it is
 * registered with later. Waits for no handler.
 *
 * NULLPTR         consumer or buffer is null.
 * INVALID_REQUEST There is no such consumer, or it does not serve the buffer.
 */
amd_hostcall_error_t amd_hostcall_deregister_buffer(amd_hostcall_consumer_t *consumer, void *buffer);

/* Is told of a fatal error, on a consumer's thread, before the process stops: SERVICE_UNKNOWN, or what a service handler
 * returned. */
typedef void (*amd_hostcall_error_handler_t)(void *state, int error);

/* Registers the error handler, for all consumers and for good.
 *
 * NULLPTR         handler is null.
 * INVALID_REQUEST There is one.
 * CONSUMER_ACTIVE A consumer runs.
 */
amd_hostcall_error_t amd_hostcall_on_error(amd_hostcall_error_handler_t handler, void *state);

/* Has the library write on the standard error what consumers do. */
void amd_hostcall_enable_debug(void);

/* What ROCm's service 1 calls, for handlers of it: up to seven words in, two out. The library itself never takes a device's
 * word for an address. */
typedef void (*amd_hostcall_function_call_t)(uint64_t *output, const uint64_t *input);

#ifdef __cplusplus
}
#endif

#endif
