/*
 * Hosts of kernels that call them while they run.
 *
 *     hostcall_options_new("cpu", &options, &error);
 *     hostcall_options_service(options, &service, &error);      services are functions of the caller's
 *     hostcall_device_open(&options, &device, &error);
 *     hostcall_image_load(device, "shop.so", &image, &error);   made by `hostcall build`
 *     hostcall_image_kernel(image, "count", &kernel, &error);
 *     hostcall_stream_new(device, &stream, &error);
 *     hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, 64, &buffer, &error);
 *     hostcall_kernel_launch(kernel, stream, &grid, arguments, 1, NULL, &error);
 *     hostcall_stream_synchronize(stream, &error);
 *
 * Errors. Functions that can fail return a status, and put an error with a sentence into `*error` unless `error` is NULL;
 * where they succeed they put NULL there. An error is an object that the caller frees and not a text of the thread, so that
 * it can be kept and handed to other threads, and the library has no state besides its handles. (It keeps names of services,
 * and opening a GPU leaves its driver loaded.) What a function would have made is NULL when it fails.
 *
 * Ownership. Handles are the caller's, each freed by the function for it, in any order: what was made with a handle keeps
 * what it needs. These functions take the handle's address and set it to NULL, and functions refuse NULL or answer it with 0.
 * A handle that was copied before is not known to be freed, and must not be used. Texts and other memory that a function gets
 * are needed until it returns only, unless its comment says otherwise.
 *
 * Threads. Any thread may call any function at any time, also with the same handle, but for options, and for a handle that
 * is being freed. Handlers may call it too, and to wait for what waits for them is refused, but for those of ROCm's protocol;
 * they do not free handles. Other functions that the library calls (outputs, reports, those that free states) do neither wait
 * for a device's work nor free its handles. All of them must return: a C++ exception that leaves one, or a longjmp out of one,
 * ends the process or is undefined. The library never unwinds into its caller.
 *
 * Process. Once loaded the library stays until the process ends, also after dlclose. The first device "cpu" that is opened
 * installs handlers for SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGURG, which call those that were there before for what
 * no lane did; a handler that the program installs later must do the same for them. A process that exits need not free
 * anything; what kernels printed last may be lost then without hostcall_device_flush. A child of fork() has none of the
 * library's threads: it calls nothing of the library before exec.
 *
 * Words. Services and closures get and give values as words of 64 bits, as the kernel's Rust types say. An integer is
 * extended by its sign if it has one, a float's word has its 32 bits, a double's its 64, a bool is 0 or 1, a char is its
 * code. A struct, a tuple or an array has the words of its parts, one after the other, and `()` has none. Option<T> is 0, or 1
 * and the value; Result<T, E> is 0 and the value, or 1 and the error; an enum is the variant's place, from 0, and its fields:
 * these have as many words as their longest value, and the rest are 0. Words that a service's reply lacks are 0. What is no
 * value of the result's type fails the kernel's call (CallError::Malformed).
 *
 * Kernels are loaded code of this process or of a GPU: they are trusted as the program's own. What they pass in calls is
 * copied before a handler gets it.
 */


#ifndef HOSTCALL_H
#define HOSTCALL_H

/* Made by cbindgen from the sources of bindings/c. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// How a function ended.
enum hostcall_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It did what it is for.
  HOSTCALL_STATUS_OK = 0,
  // An argument of the function cannot be: NULL, an unknown kind, a number that is too large, a text that is no UTF-8.
  HOSTCALL_STATUS_INVALID_ARGUMENT = 1,
  // There is no such device, or it cannot be used.
  HOSTCALL_STATUS_NO_DEVICE = 2,
  // The image cannot be used, or has no such kernel.
  HOSTCALL_STATUS_IMAGE = 3,
  // What was asked for does not fit: a launch, a part of a buffer, a service's number, another device's handle.
  HOSTCALL_STATUS_REFUSED = 4,
  // A lane panicked; hostcall_error_panic has its message and place.
  HOSTCALL_STATUS_PANICKED = 5,
  // The launch was cancelled, or did not run because one before it in its stream ended early. A kernel of a code object that
  // was to be cancelled has run to its end.
  HOSTCALL_STATUS_CANCELLED = 6,
  // A lane did what the device does not allow, or the launch did not start.
  HOSTCALL_STATUS_LAUNCH_FAILED = 7,
  // The time that was given has passed.
  HOSTCALL_STATUS_TIMED_OUT = 8,
  // The device was closed.
  HOSTCALL_STATUS_CLOSED = 9,
  // Waiting would never end, or not before its limit: it was called in a function that what it waits for waits for.
  HOSTCALL_STATUS_WOULD_DEADLOCK = 10,
  // The device, its driver or the system failed.
  HOSTCALL_STATUS_DEVICE = 11,
  // A fault in the library.
  HOSTCALL_STATUS_INTERNAL = 12,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_status hostcall_status;
#else
typedef int32_t hostcall_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What can break a capture, besides waiting for its streams and reading on them, which does in every mode.
enum hostcall_capture_mode
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Allocations by any thread.
  HOSTCALL_CAPTURE_MODE_GLOBAL = 1,
  // Allocations by the thread that began the capture, and other threads' work on its streams.
  HOSTCALL_CAPTURE_MODE_THREAD_LOCAL = 2,
  // Nothing else.
  HOSTCALL_CAPTURE_MODE_RELAXED = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_capture_mode hostcall_capture_mode;
#else
typedef uint32_t hostcall_capture_mode;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an argument is. The numbers are also what a type or a buffer is of.
enum hostcall_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // uint8_t, Rust's u8.
  HOSTCALL_KIND_U8 = 1,
  // uint16_t, u16.
  HOSTCALL_KIND_U16 = 2,
  // uint32_t, u32.
  HOSTCALL_KIND_U32 = 3,
  // uint64_t, u64.
  HOSTCALL_KIND_U64 = 4,
  // uint64_t, usize.
  HOSTCALL_KIND_USIZE = 5,
  // int8_t, i8.
  HOSTCALL_KIND_I8 = 6,
  // int16_t, i16.
  HOSTCALL_KIND_I16 = 7,
  // int32_t, i32.
  HOSTCALL_KIND_I32 = 8,
  // int64_t, i64.
  HOSTCALL_KIND_I64 = 9,
  // int64_t, isize.
  HOSTCALL_KIND_ISIZE = 10,
  // float, f32.
  HOSTCALL_KIND_F32 = 11,
  // double, f64.
  HOSTCALL_KIND_F64 = 12,
  // bool. Arguments only, as what follows.
  HOSTCALL_KIND_BOOL = 32,
  // A value of a hostcall_type: a struct or an array.
  HOSTCALL_KIND_PLAIN = 33,
  // A buffer of values `T` for `&[T]`.
  HOSTCALL_KIND_SLICE = 34,
  // A buffer for `&T`, of which the kernel gets the first value.
  HOSTCALL_KIND_REF = 35,
  // A buffer of numbers for `&[Global<T>]`.
  HOSTCALL_KIND_GLOBAL_SLICE = 36,
  // A buffer of numbers for `&Global<T>`.
  HOSTCALL_KIND_GLOBAL_REF = 37,
  // A buffer of integers for `&[AtomicU32]` and its like.
  HOSTCALL_KIND_ATOMIC_SLICE = 38,
  // A buffer of integers for `&AtomicU32` and its like.
  HOSTCALL_KIND_ATOMIC_REF = 39,
  // A pinned buffer for `&[Global<T>]`.
  HOSTCALL_KIND_PINNED_SLICE = 40,
  // A closure for a `HostcallRef`.
  HOSTCALL_KIND_CLOSURE = 41,
  // Is added to a kind from HOSTCALL_KIND_SLICE to HOSTCALL_KIND_PINNED_SLICE: the parameter is an `Option` of it, and
  // the buffer is given.
  HOSTCALL_KIND_OPTIONAL = 256,
  // Is added to a kind from HOSTCALL_KIND_SLICE to HOSTCALL_KIND_ATOMIC_REF: the parameter is an `Option` of it, and no
  // buffer is given, but the type of its values.
  HOSTCALL_KIND_ABSENT = 512,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_kind hostcall_kind;
#else
typedef uint32_t hostcall_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an argument of an Emissary call is.
enum hostcall_llvm_emissary_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // An integer: `word`, with `bits` bits.
  HOSTCALL_LLVM_EMISSARY_KIND_INTEGER = 1,
  // A float or a double: `word` has a double's bits.
  HOSTCALL_LLVM_EMISSARY_KIND_FLOAT = 2,
  // A text: `data`, which a zero byte ends.
  HOSTCALL_LLVM_EMISSARY_KIND_TEXT = 3,
  // An address on the device: `word`.
  HOSTCALL_LLVM_EMISSARY_KIND_ADDRESS = 4,
  // A copy of the device's memory, or memory that the device gets: `data`, of `bytes` bytes, which may be changed.
  HOSTCALL_LLVM_EMISSARY_KIND_MEMORY = 5,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_llvm_emissary_kind hostcall_llvm_emissary_kind;
#else
typedef uint32_t hostcall_llvm_emissary_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a parameter of a typed function is.
enum hostcall_llvm_parameter_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A value of `bytes` bytes: a number, a struct, a pointer to `void` or to what the client does not know.
  HOSTCALL_LLVM_PARAMETER_KIND_VALUE = 1,
  // A pointer to a value, or to an array (`rpc::span`), which the function may change.
  HOSTCALL_LLVM_PARAMETER_KIND_POINTER = 2,
  // A pointer to what the function only reads, such as a `const char *`.
  HOSTCALL_LLVM_PARAMETER_KIND_INPUT = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_llvm_parameter_kind hostcall_llvm_parameter_kind;
#else
typedef uint32_t hostcall_llvm_parameter_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The version of LLVM's protocol that an image speaks. The image tells it, by its client's symbol.
enum hostcall_llvm_version
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // LLVM 19 and before: `__llvm_libc_rpc_client` is a pointer to the client object.
  HOSTCALL_LLVM_VERSION_POINTER = 19,
  // LLVM 20 to 22: `__llvm_rpc_client` is the client object, of 552 bytes.
  HOSTCALL_LLVM_VERSION_OBJECT = 20,
  // LLVM 23 and later: the same with a doorbell, of 2096 bytes.
  HOSTCALL_LLVM_VERSION_DOORBELL = 23,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_llvm_version hostcall_llvm_version;
#else
typedef uint32_t hostcall_llvm_version;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What a wave does that finds no free page of a raw channel.
enum hostcall_raw_policy
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // It waits until one comes back from the reader: nothing is lost while somebody reads.
  HOSTCALL_RAW_POLICY_BLOCK = 1,
  // It drops what it would have written, and counts it.
  HOSTCALL_RAW_POLICY_DROP_NEWEST = 2,
  // The host gives it the oldest page that nobody has read.
  HOSTCALL_RAW_POLICY_OVERWRITE_OLDEST = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_raw_policy hostcall_raw_policy;
#else
typedef uint32_t hostcall_raw_policy;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// What an argument of a code object's kernel is.
enum hostcall_rocm_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // A value: a number, or a struct as C lays it out.
  HOSTCALL_ROCM_KIND_VALUE = 1,
  // The address of a buffer's values, which the kernel may write: what else uses them comes before the launch or after it.
  HOSTCALL_ROCM_KIND_BUFFER = 2,
  // The address of a buffer's values, which the kernel only reads: others may read them at the same time.
  HOSTCALL_ROCM_KIND_INPUT = 3,
  // The address of a pinned buffer's values, which host and kernel may access at the same time.
  HOSTCALL_ROCM_KIND_PINNED = 4,
  // A raw channel, for a parameter that is a `struct hostcall_raw_stream` of hostcall_device.h, by value.
  HOSTCALL_ROCM_KIND_RAW = 5,
  // A context, for a parameter of 64 bits: each launch and each replay gets an address of its own, by which its calls are the
  // launch's. With hostcall_context_address as a value they are the context's.
  HOSTCALL_ROCM_KIND_CONTEXT = 6,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_rocm_kind hostcall_rocm_kind;
#else
typedef uint32_t hostcall_rocm_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// The version of ROCm's protocol that a code object's kernels were compiled with. The file does not tell it.
enum hostcall_rocm_version
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Packets in two stacks: device libraries until 2026.
  HOSTCALL_ROCM_VERSION_STACKS = 1,
  // Packets with phases: device libraries since then.
  HOSTCALL_ROCM_VERSION_PHASES = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_rocm_version hostcall_rocm_version;
#else
typedef uint32_t hostcall_rocm_version;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// A number that a device is opened with.
enum hostcall_setting
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  // Lanes of the software device's waves: 32 or 64.
  HOSTCALL_SETTING_WAVE_LANES = 1,
  // Threads that run lanes of the software device, at most 4096.
  HOSTCALL_SETTING_DEVICE_THREADS = 2,
  // How long lanes of the software device may take to end after they were cancelled, in ns.
  HOSTCALL_SETTING_CANCEL_GRACE_NS = 3,
  // Call slots, at most 65,536 with some extra ones.
  HOSTCALL_SETTING_SLOTS = 4,
  // Most threads for handlers that wait, at least one.
  HOSTCALL_SETTING_HANDLER_THREADS = 5,
  // Most bytes of a message or a reply.
  HOSTCALL_SETTING_MESSAGE_LIMIT_BYTES = 6,
  // Most bytes of all messages and replies that are held.
  HOSTCALL_SETTING_MESSAGES_LIMIT_BYTES = 7,
  // Most files that kernels have open at a time.
  HOSTCALL_SETTING_OPEN_FILES = 8,
  // Bytes of stack of each lane; on a GPU at least so many, where the compiler cannot know how many a lane needs: by itself
  // it has 16 KiB there on AMD's GPUs and 8 KiB on NVIDIA's, and 64 KiB on the software device.
  HOSTCALL_SETTING_STACK_BYTES = 9,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum hostcall_setting hostcall_setting;
#else
typedef uint32_t hostcall_setting;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

// Values in a device's memory. Any thread may use it; it is the caller's, who frees it. Launches keep the memory. Everything
// that uses the same values is done in the order of the calls where it must be.
typedef struct hostcall_buffer hostcall_buffer;

// Who calls, as far as the device can be believed. It lives until the handler returns.
typedef struct hostcall_caller hostcall_caller;

// A function that kernels call through a parameter `HostcallRef<A, R>`. Any thread may use it; it is the caller's, who frees
// it. Launches keep it, and it takes their calls until they have ended.
typedef struct hostcall_closure hostcall_closure;

// What decides about the bodies of a graph. It is looked at when everything before it in the replay is done, and again after
// each turn of a body that is repeated. Any thread may use it; it is the caller's, who frees it. Graphs keep what it needs.
typedef struct hostcall_condition hostcall_condition;

// A place from which kernels call that others launch, by the functions of hostcall_device.h. Any thread may use it; it is the
// caller's, who frees it: calls of its kernels end with HOSTCALL_CALL_CANCELLED from then on. A device that had contexts keeps
// its channel's memory until the process ends, since a kernel may still have the address.
typedef struct hostcall_context hostcall_context;

// A device with its server. Any thread may use it; it is the caller's, who frees it. The device ends when this and all
// that was made on it are freed: some of its threads and its services' states go a moment later.
typedef struct hostcall_device hostcall_device;

// The devices of this machine, and the kinds of which there is none. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_device_list hostcall_device_list;

// Why a function failed. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_error hostcall_error;

// A point in a stream's order. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_event hostcall_event;

// A place in a stream of others, behind kernels with a context. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_fence hostcall_fence;

// Recorded work of a stream. Any thread may use it; it is the caller's, who frees it. It keeps the buffers, closures and
// functions that the work uses.
typedef struct hostcall_graph hostcall_graph;

// A loaded image of kernels. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_image hostcall_image;

// A graph that is ready to be replayed. Any thread may use it; it is the caller's, who frees it. Replays that were launched
// go on without the handle.
typedef struct hostcall_instance hostcall_instance;

// A kernel of an image. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_kernel hostcall_kernel;

// A launch. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_launch hostcall_launch;

// A call that a handler answers: what the client sends the handler receives, and the other way round; the client begins with a
// send. It lives until the handler returns; the handler's thread uses it.
typedef struct hostcall_llvm_call hostcall_llvm_call;

// A server of LLVM's protocol. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_llvm_server hostcall_llvm_server;

// What the devices of this process had counted when it was read, also those that have ended. Any thread may use it; it is the
// caller's, who frees it.
typedef struct hostcall_metrics hostcall_metrics;

// What a device is opened with. One thread at a time uses it. It is the caller's until hostcall_device_open takes it.
typedef struct hostcall_options hostcall_options;

// Numbers in memory that host and running kernels both read and write at any time. Any thread may use it; it is the
// caller's, who frees it. Launches keep the memory.
typedef struct hostcall_pinned hostcall_pinned;

// Trace points of a device that are recorded until this is freed. Any thread may use it; it is the caller's, who frees it. It does
// not keep the device.
typedef struct hostcall_point_recording hostcall_point_recording;

// Where kernels post messages of 0 to 128 bytes for a thread of the caller's that polls, by the functions of hostcall_device.h
// (hostcall_post_message). Any thread may use it; it is the caller's, who frees it. Its memory stays until the process ends,
// since a kernel may still have the address.
typedef struct hostcall_post_queue hostcall_post_queue;

// Memory through which kernels stream bytes to the host while they run, by the functions of hostcall_device.h. Any thread may
// use it; it is the caller's, who frees it. Launches keep its memory, and their waves drop what finds no page once it was freed.
typedef struct hostcall_raw_channel hostcall_raw_channel;

// A page of a raw channel, or the part of one that was written, lent to the reader. Any thread may use it; it is the caller's,
// who frees it: no wave gets the page before that.
typedef struct hostcall_raw_page hostcall_raw_page;

// A service that was registered at an open device. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_registration hostcall_registration;

// A replay of an instance. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_replay hostcall_replay;

// Where a handler puts its reply. It lives until the handler returns; the handler's thread uses it.
typedef struct hostcall_reply hostcall_reply;

// A code object: kernels in HIP, OpenCL C or C for an AMD GPU, or for the device "gfx942". Any thread may use it; it is the
// caller's, who frees it.
typedef struct hostcall_rocm_code hostcall_rocm_code;

// A kernel of a code object. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_rocm_kernel hostcall_rocm_kernel;

// Handlers of ROCm's services that are no device's. Any thread may use them; the handle is the caller's, who frees it.
typedef struct hostcall_rocm_services hostcall_rocm_services;

// Work of a device in order. Any thread may use it; it is the caller's, who frees it. A launch that panicked, exited or was
// cancelled keeps later launches of the stream from running, until hostcall_stream_synchronize has told of it.
typedef struct hostcall_stream hostcall_stream;

// A text of the library's. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_text hostcall_text;

// Records the calls of the devices that are opened with it. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_tracer hostcall_tracer;

// A type of values in memory that host and device share. Any thread may use it; it is the caller's, who frees it.
typedef struct hostcall_type hostcall_type;

// A lane's panic. The texts live as long as the error.
typedef struct {
  // The message; one that was cut after 4 KiB ends with ` [cut]`.
  const char *message;
  // The source file.
  const char *file;
  // The line in the file, from 1.
  uint32_t line;
  // The column in the line, from 1.
  uint32_t column;
  // The workgroup's place in the grid, in x, y and z.
  uint32_t workgroup[3];
  // The lane's index in its workgroup.
  uint32_t lane;
} hostcall_panic;

// Gets what kernels print: `stream` is 1 for the standard output and 2 for the standard error, `text` has `len` bytes and
// no zero at its end. One thread at a time calls it, of the library's.
typedef void (*hostcall_output_function)(void *state, int stream, const char *text, size_t len);

// The function that frees a state which the caller gave with a function. It gets the state, on any thread, once. It may be
// NULL.
typedef void (*hostcall_free_function)(void *state);

// Gets a sentence about a call that waits. One of the library's threads calls it.
typedef void (*hostcall_report_function)(void *state, const char *text);

// A method of a service: the number by which kernels call it, and its name for reports. The library keeps one copy of each
// name as long as the process runs. A header of `hostcall bind` has these of a service as `PRICES_METHODS`, say.
typedef struct {
  // From 1 to 65,535. Services of hostcall's have those up to 255. The methods of a Rust service `#[service(number = N)]`
  // have N, N + 1 and so on in the trait's order. Without a number of its own it has one from 32,768 on, which comes from
  // its name: give it one that hosts in other languages serve.
  //
  // Above these 16 bits are the 20 of the types' hash, as HOSTCALL_METHOD(number, check) of hostcall_device.h puts them: calls
  // with others end with HOSTCALL_CALL_TYPE_MISMATCH, and a line on the standard error says so. With 0 there, calls of all
  // types reach the handler.
  uint64_t number;
  // As "Inventory::find".
  const char *name;
} hostcall_method;

// A lane's call. All of it lives until the handler returns.
typedef struct {
  // The method's place among the service's methods, from 0.
  uint32_t method;
  // The launch's number, which hostcall_launch_id returns too; 0 when it is not known.
  uint32_t launch;
  // The index of the lane in its wave.
  uint32_t lane;
  // Nobody waits for the reply.
  bool is_post;
  // `word_count` words: the values of the parameters in order, with the length in bytes for a `&str` or a `&[u8]`, and
  // nothing for a `&mut [u8]`. Where the method has no check bits, nobody has compared its types with the kernel's: a handler
  // looks how many there are.
  const uint64_t *words;
  // How many words there are.
  size_t word_count;
  // `byte_count` bytes: those of the `&str` and `&[u8]` parameters, one after the other.
  const uint8_t *bytes;
  // How many bytes there are.
  size_t byte_count;
  // How many bytes of reply the caller takes: the length of its `&mut [u8]`, 0 without one.
  size_t reply_capacity;
  // Who calls.
  const hostcall_caller *caller;
} hostcall_call;

// Answers a call. Returns 0, or a number of its own with which the kernel's call fails (CallError::Failed in Rust). It must
// return: a C++ exception that leaves it, or a longjmp out of it, ends the process or is undefined.
typedef int32_t (*hostcall_handler)(void *state, const hostcall_call *call, hostcall_reply *reply);

// A service: methods that kernels call, and the function that answers.
typedef struct {
  // `method_count` methods.
  const hostcall_method *methods;
  // How many methods there are.
  size_t method_count;
  // Answers the calls: of several lanes at the same time, on threads of the library's. With `is_inline` these are the
  // threads that find calls, of which a device has one unless it is told otherwise.
  hostcall_handler handler;
  // What the handler gets. Several threads use it at the same time.
  void *state;
  // Frees `state`, once, when no handler runs any more; it may be NULL.
  hostcall_free_function free_state;
  // The handler never waits and takes microseconds, and runs at once on the thread that finds calls.
  bool is_inline;
} hostcall_service;

// A device that could be opened, or the reason why it cannot. The texts live as long as the list.
typedef struct {
  // The name to open it by.
  const char *name;
  // What it is, in words.
  const char *description;
  // Why it cannot be used, with what to do; NULL when it can.
  const char *unavailable;
} hostcall_device_info;

// What a device's server has counted since it was opened.
typedef struct {
  // Packets taken: calls of waves. Who has an answer finds its packet counted.
  uint64_t packets;
  // Posts taken.
  uint64_t posts;
  // Posts that reached no handler.
  uint64_t refused_posts;
  // How often posts were left in their ring, because their service had no room for more.
  uint64_t declined_posts;
  // Words where a post should have begun and did not.
  uint64_t garbage_posts;
  // Slots given up because the device wrote what is no doorbell.
  uint64_t broken_slots;
  // Bytes of messages and replies that are held now.
  uint64_t message_bytes;
  // Threads for handlers now, those of built-in services included.
  uint64_t handler_threads;
  // Handlers that wait for a thread now.
  uint64_t waiting_handlers;
  // Reports to callbacks that were dropped, because more than 1024 waited.
  uint64_t lost_reports;
} hostcall_statistics;

// Where a function puts a handle.
typedef hostcall_text **Out_hostcall_text;

// Messages of one wave that lie one after the other, with the same tag and number of words. They live until the function that
// gets them returns.
typedef struct {
  // The words of all messages, message after message.
  const uint64_t *words;
  // How many messages there are, at least one.
  size_t count;
  // How many words each has, 0 to 16.
  size_t words_each;
  // What the kernel called them: 48 bits, or 32 with more than five words.
  uint64_t tag;
  // The slot through which they came: of messages through one slot each comes after the one before.
  uint32_t slot;
  // Linear index of the workgroup.
  uint32_t workgroup;
  // Index of the wave in its workgroup.
  uint32_t wave;
  // Zero.
  uint32_t reserved;
} hostcall_post_batch;

// Gets messages, on the thread that polls. It polls no queue itself. It must return: a C++ exception that leaves it, or a longjmp
// out of it, ends the process or is undefined.
typedef void (*hostcall_post_function)(void *state, const hostcall_post_batch *batch);

// What became of a queue's messages since it was made.
typedef struct {
  // Messages that polls handed over.
  uint64_t posts;
  // Messages of before a cancellation or a renewal, which polls dropped; and those that nobody had read when the queue was
  // closed.
  uint64_t dropped;
  // Calls, for which a queue is the wrong place: they ended with HOSTCALL_CALL_NO_SUCH_SERVICE.
  uint64_t refused_calls;
  // Words that made no sense and were skipped: memory was overwritten.
  uint64_t garbage;
} hostcall_post_counts;

// Does something on the host when it is a stream's turn.
typedef void (*hostcall_host_function)(void *state);

// Answers a lane's call: on any thread, of several lanes at the same time. There is a word for each argument, and one for
// the result unless it has none, which is 0 before. Integers are extended to 64 bits by their sign if they have one, a
// float's word has its 32 bits, a double's its 64, a bool is 0 or 1; a call with other words fails. It must return.
typedef void (*hostcall_closure_function)(void *state, const uint64_t *arguments, uint64_t *result);

// How many lanes a launch has, and how they are grouped.
typedef struct {
  // Workgroups in x, y and z.
  uint32_t workgroups[3];
  // Lanes of a workgroup in x, y and z; at most 1024 in all.
  uint32_t lanes[3];
  // Bytes of workgroup memory besides what the kernel declares.
  uint32_t workgroup_memory_bytes;
} hostcall_grid;

// A value of a hostcall_type.
typedef struct {
  // Its type.
  const hostcall_type *of;
  // As many bytes as the type has.
  const void *bytes;
} hostcall_plain;

// An argument's value, by its kind.
typedef union {
  // HOSTCALL_KIND_U8.
  uint8_t u8;
  // HOSTCALL_KIND_U16.
  uint16_t u16;
  // HOSTCALL_KIND_U32.
  uint32_t u32;
  // HOSTCALL_KIND_U64, HOSTCALL_KIND_USIZE.
  uint64_t u64;
  // HOSTCALL_KIND_I8.
  int8_t i8;
  // HOSTCALL_KIND_I16.
  int16_t i16;
  // HOSTCALL_KIND_I32.
  int32_t i32;
  // HOSTCALL_KIND_I64, HOSTCALL_KIND_ISIZE.
  int64_t i64;
  // HOSTCALL_KIND_F32.
  float f32;
  // HOSTCALL_KIND_F64.
  double f64;
  // HOSTCALL_KIND_BOOL: 0 is false.
  uint8_t boolean;
  // HOSTCALL_KIND_PLAIN.
  hostcall_plain plain;
  // HOSTCALL_KIND_SLICE to HOSTCALL_KIND_ATOMIC_REF.
  const hostcall_buffer *buffer;
  // HOSTCALL_KIND_PINNED_SLICE.
  const hostcall_pinned *pinned;
  // HOSTCALL_KIND_CLOSURE.
  const hostcall_closure *closure;
  // HOSTCALL_KIND_ABSENT and another: the type of the values that there are none of, a number for a `Global` or an atomic.
  const hostcall_type *of;
} hostcall_value;

// An argument of a kernel: for each parameter after the lane one, in order.
typedef struct {
  // One of hostcall_kind, with HOSTCALL_KIND_OPTIONAL or HOSTCALL_KIND_ABSENT for an `Option`.
  uint32_t kind;
  // The value.
  hostcall_value value;
} hostcall_argument;

// How a launch ended that nothing went wrong with.
typedef struct {
  // A lane gave an exit code.
  bool has_exit_code;
  // The first exit code that a lane gave.
  int32_t exit_code;
} hostcall_outcome;

// Returns a condition's number. One of the library's threads calls it: several where several instances replay. It may use the
// device, but not wait for the replay's stream, and must return.
typedef uint32_t (*hostcall_condition_function)(void *state);

// Where in its launch a caller is.
typedef struct {
  // The workgroup in the grid, in x, y and z.
  uint32_t workgroup[3];
  // The index of the wave in its workgroup.
  uint32_t wave;
  // The kernel's name, cut after 127 bytes.
  char kernel[128];
} hostcall_place;

// What was written to a raw channel, ever, as far as the host knows.
typedef struct {
  // Pages that were closed.
  uint64_t pages;
  // Bytes that waves said they had written.
  uint64_t bytes;
  // Records (words, of bytes) that waves dropped because no page was free.
  uint64_t dropped_records;
  // Bytes that were overwritten before anybody read them.
  uint64_t overwritten_bytes;
  // Pages that were closed for waves which did not close them: what these wrote last may be lost.
  uint64_t swept_pages;
  // Words of the device that made no sense and were left alone.
  uint64_t malformed_words;
} hostcall_raw_counts;

// What is known of a page. Who wrote it is what the device says.
typedef struct {
  // How many bytes there are: whole records, if the kernel wrote only records.
  size_t bytes;
  // Where in the page they begin.
  uint32_t offset_bytes;
  // The page has no more than this.
  bool is_last;
  // Which page of the channel it is, in the order of their opening. Parts of one page have the same number.
  uint64_t sequence;
  // The launch, as hostcall_launch_id says it.
  uint32_t launch;
  // The writer's home slot; for all kernels that other compilers made it is the same number.
  uint32_t slot;
  // Linear index of the workgroup.
  uint32_t workgroup;
  // Index of the wave in its workgroup.
  uint32_t wave;
  // The device's clock when the page was opened, in ns.
  uint64_t opened_ns;
  // Records (words, of bytes) that writers of the slot have dropped between the page before and this one.
  uint64_t dropped_before;
  // Bytes of the channel that were overwritten between the page that was read before and this one.
  uint64_t overwritten_before;
} hostcall_raw_info;

// What an argument of a code object's kernel refers to, by its kind.
typedef union {
  // HOSTCALL_ROCM_KIND_VALUE: `bytes` bytes, which are copied.
  const void *bytes;
  // HOSTCALL_ROCM_KIND_BUFFER, HOSTCALL_ROCM_KIND_INPUT.
  const hostcall_buffer *buffer;
  // HOSTCALL_ROCM_KIND_PINNED.
  const hostcall_pinned *pinned;
  // HOSTCALL_ROCM_KIND_RAW.
  const hostcall_raw_channel *raw;
  // HOSTCALL_ROCM_KIND_CONTEXT.
  const hostcall_context *context;
} hostcall_rocm_value;

// An argument of a code object's kernel.
typedef struct {
  // One of hostcall_rocm_kind.
  uint32_t kind;
  // How many bytes a value has; of other kinds it is not looked at.
  size_t bytes;
  // The value, the buffer, the channel or the context.
  hostcall_rocm_value value;
} hostcall_rocm_argument;

// Answers a lane's call of a function, as `__ockl_call_host_function` makes it: on any thread, of several lanes at the same
// time. `arguments` are seven words, and `result` two, which are 0 before. It must return, and does not wait for a launch that
// may wait for it, which nobody refuses: these calls do not say whose they are.
typedef void (*hostcall_rocm_function)(void *state, const uint64_t *arguments, uint64_t *result);

// Answers a lane's call of a service: on any thread, of several lanes at the same time. `lane` is the lane's index in its
// wave. `words` are eight words of the lane's, in whose place the handler puts its answer, of which kernels that were linked
// with ROCm's device libraries read the first two. It must return, and waits for no launch that may wait for it, as a
// hostcall_rocm_function.
typedef void (*hostcall_rocm_handler)(void *state, uint32_t service, uint32_t lane, uint64_t *words);

// What was counted of calls by ROCm's protocol.
typedef struct {
  // Packets that were found. Who has an answer finds its packet counted.
  uint64_t packets;
  // What devices and handlers did that they must not. hostcall_options_rocm_report tells of the first 16 of each buffer.
  uint64_t faults;
} hostcall_rocm_counts;

// A parameter of a typed function.
typedef struct {
  // One of hostcall_llvm_parameter_kind.
  uint32_t kind;
  // How many bytes a value has; of other kinds it is not looked at.
  size_t bytes;
} hostcall_llvm_parameter;

// An argument of a typed function: a value's bytes, or a copy of what a pointer points to, behind which there is a zero byte.
typedef struct {
  // The bytes, which may be changed; NULL of a null pointer.
  void *data;
  // How many bytes there are, as the client says.
  size_t bytes;
} hostcall_llvm_argument;

// A typed function: answers one lane's call. `result` has as many bytes as was said, 0 before. Returns 0, or a number of its own
// for a failure.
typedef int32_t (*hostcall_llvm_typed_function)(void *state,
                                                uint32_t lane,
                                                const hostcall_llvm_argument *arguments,
                                                void *result);

// Allocates `bytes` bytes that the device can reach, at a multiple of `align`, and returns their address on the device, or 0.
// Any thread calls it, and it does not wait for kernels.
typedef uint64_t (*hostcall_llvm_allocate_function)(void *state, uint64_t bytes, uint64_t align);

// Frees what was allocated at an address.
typedef void (*hostcall_llvm_release_function)(void *state, uint64_t address);

// What a server of LLVM's protocol serves, and for whom. What may be 0 or NULL says so.
typedef struct {
  // One of hostcall_llvm_version.
  uint32_t version;
  // How many ports the memory has: a multiple of 16 is fastest.
  uint32_t ports;
  // Lanes of a wave: 32 or 64, or 1 where the client is a processor.
  uint32_t lanes;
  // Threads that serve; with 0 the caller's, which calls hostcall_llvm_server_poll.
  uint32_t threads;
  // The ports' memory, of hostcall_llvm_memory_bytes bytes at a multiple of 64, which the device reaches coherently. It is
  // the caller's, all 0, and nothing but the client uses it until hostcall_llvm_server_free has returned. A doorbell in its
  // first 64 bytes is the caller's to set and to reset: the server does not look at it.
  void *memory;
  // How many bytes the memory has.
  size_t bytes;
  // Where the device has the memory.
  uint64_t device_address;
  // Most bytes of one lane's message; 64 MiB with 0.
  size_t message_limit;
  // Most bytes of all messages together; 1 GiB with 0.
  size_t messages_limit;
  // The functions with `state` give and take back memory that clients ask for with `malloc`; with NULL, the process's
  // memory, which GPUs do not reach.
  hostcall_llvm_allocate_function allocate;
  // Frees what `allocate` gave, and is needed with it.
  hostcall_llvm_release_function release;
  // Most bytes that clients may have allocated; 16 GiB with 0.
  uint64_t heap_limit;
  // Gets a sentence for each call that cannot go on, whose client waits for ever unless `answers_faults` is set (up to 1024 that
  // wait to be told; the counts have all); with NULL, a line on the standard error.
  hostcall_report_function report;
  // What the functions get. Several threads use it at the same time.
  void *state;
  // Frees `state`, once, when nothing uses it any more, or when hostcall_llvm_server_start fails, unless the options or `server`
  // are NULL; it may be NULL.
  hostcall_free_function free_state;
  // Lets clients run commands with `system`.
  bool allows_system;
  // Answers what is left of a call that cannot go on with zeros, so that no client waits for ever and the port is served on. The
  // protocol has no status: the counts tell of it. The opcode with all bits set is the server's then.
  bool answers_faults;
} hostcall_llvm_config;

// What a server has counted.
typedef struct {
  // Calls that clients made.
  uint64_t calls;
  // Calls that could not go on. A client that got zeros for one finds it counted.
  uint64_t faults;
} hostcall_llvm_counts;

// Answers a call, on a worker thread: several calls at the same time. Returns 0, or a number of its own for a failure, with
// which the call cannot go on. It must return.
typedef int32_t (*hostcall_llvm_handler)(void *state, hostcall_llvm_call *call);

// Answers packets of several waves at the same time. `buffers` are those of the wave's lanes, by lane; those whose bit in `mask`
// is set call, and get theirs back as the handler leaves it. Returns 0, or a number of its own for a failure, with which the
// call cannot go on. It must return.
typedef int32_t (*hostcall_llvm_packet_handler)(void *state,
                                                uint32_t opcode,
                                                uint64_t mask,
                                                uint64_t (*buffers)[8]);

// An argument of an Emissary call. It lives until the handler returns.
typedef struct {
  // One of hostcall_llvm_emissary_kind.
  uint32_t kind;
  // An integer's bits.
  uint32_t bits;
  // An integer, a double's bits, or an address.
  uint64_t word;
  // A text or memory.
  void *data;
  // How many bytes these have.
  size_t bytes;
} hostcall_llvm_emissary_argument;

// Answers one lane's call of a function of an Emissary API; `result` is 0 before. Several calls run at the same time, on worker
// threads. Returns 0, or a number of its own for a failure, with which the call cannot go on. It must return.
typedef int32_t (*hostcall_llvm_emissary_handler)(void *state,
                                                  uint32_t function,
                                                  uint32_t lane,
                                                  const hostcall_llvm_emissary_argument *arguments,
                                                  size_t count,
                                                  uint64_t *result);

// A function of the host that clients call by the number that they were given for its address. It gets a copy of the bytes that
// the lane sent; its result goes back. Several lanes call it at the same time. It must return.
typedef uint64_t (*hostcall_llvm_function)(void *state, uint8_t *bytes, size_t count);

// What a tracer has counted.
typedef struct {
  // Calls that were recorded: one for each call of a wave.
  uint64_t calls;
  // Posts that were counted.
  uint64_t posts;
  // Calls that were dropped because too many waited to be written.
  uint64_t dropped_calls;
  // Launches, posts and names that were dropped because they were too many.
  uint64_t dropped_others;
  // Records of kernels' trace points that were dropped because they came faster than they were read.
  uint64_t lost_points;
  // Calls that were recorded and are not in the file, if there is to be one.
  uint64_t unwritten_calls;
  // All of it was written in time.
  bool is_whole;
} hostcall_trace_summary;

// A number of a series. The texts live as long as what was read.
typedef struct {
  // The series' name, such as `hostcall_calls_total`.
  const char *name;
  // Which of the series' numbers it is, such as `device="cpu",service="Shop",method="sell",status="ok"`.
  const char *labels;
  // The number.
  double value;
} hostcall_metric;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the status that the function returned; HOSTCALL_STATUS_OK for NULL.
hostcall_status hostcall_error_status(const hostcall_error *error);

// Returns a sentence that says what is wrong and what to do. It lives as long as the error; it is empty for NULL.
const char *hostcall_error_text(const hostcall_error *error);

// Puts a lane's panic into `panic` and returns true, if that is what the error tells of.
bool hostcall_error_panic(const hostcall_error *error, hostcall_panic *panic);

// Frees an error and sets the handle to NULL. NULL is let be.
void hostcall_error_free(hostcall_error **error);

// Makes options for the device of this name: "cpu" is the software device, "cuda:0" the first NVIDIA GPU, "amdgpu:0" the
// first AMD GPU, "gfx942" an AMD GPU in software. Kernels get no files, no arguments and no environment, and the process's
// standard streams. The caller frees them, or opens a device with them.
hostcall_status hostcall_options_new(const char *device_name,
                                     hostcall_options **options,
                                     hostcall_error **error);

// Frees options and what was given with them, and sets the handle to NULL. NULL is let be.
void hostcall_options_free(hostcall_options **options);

// Sets a number, one of hostcall_setting.
hostcall_status hostcall_options_set(hostcall_options *options,
                                     uint32_t setting,
                                     uint64_t value,
                                     hostcall_error **error);

// Opens the files below the folder `path` to kernels; "/" opens all. hostcall_device_open fails when there is no such folder.
hostcall_status hostcall_options_dir(hostcall_options *options,
                                     const char *path,
                                     hostcall_error **error);

// Adds an argument of the kernels' program; the first is the program's name.
hostcall_status hostcall_options_argument(hostcall_options *options,
                                          const char *argument,
                                          hostcall_error **error);

// Sets a variable of the kernels' environment.
hostcall_status hostcall_options_variable(hostcall_options *options,
                                          const char *name,
                                          const char *value,
                                          hostcall_error **error);

// Sends what kernels print to `write`. `free_state` gets `state` when nothing is written any more, or when this function
// fails.
hostcall_status hostcall_options_output(hostcall_options *options,
                                        hostcall_output_function write,
                                        void *state,
                                        hostcall_free_function free_state,
                                        hostcall_error **error);

// Gives kernels file descriptors for their standard streams, of which the library makes copies; -1 leaves a stream as it
// is.
hostcall_status hostcall_options_descriptors(hostcall_options *options,
                                             int input,
                                             int output,
                                             int error_output,
                                             hostcall_error **error);

// Calls `report` once for each call that has waited for `after_ns`. Without it that is 5 s, and a line on the standard
// error. `free_state` gets `state` when nothing is reported any more, or when this function fails.
hostcall_status hostcall_options_stall_report(hostcall_options *options,
                                              uint64_t after_ns,
                                              hostcall_report_function report,
                                              void *state,
                                              hostcall_free_function free_state,
                                              hostcall_error **error);

// Calls `report` with a sentence for each thing that kernels or handlers of ROCm's protocol did and must not, at most 16 times
// for each of the device's hostcall buffers, besides lost messages. Without it that is a line on the standard error.
// `free_state` gets `state` when nothing is reported any more, or when this function fails.
hostcall_status hostcall_options_rocm_report(hostcall_options *options,
                                             hostcall_report_function report,
                                             void *state,
                                             hostcall_free_function free_state,
                                             hostcall_error **error);

// Adds a service. What `service` points to is copied; its `free_state` gets its `state` when the device has ended and no
// handler runs any more, on any thread, or when this function fails.
hostcall_status hostcall_options_service(hostcall_options *options,
                                         const hostcall_service *service,
                                         hostcall_error **error);

// Lists the devices. Any thread may call it.
hostcall_status hostcall_devices(hostcall_device_list **list, hostcall_error **error);

// Returns how many devices are listed; 0 for NULL.
size_t hostcall_device_list_count(const hostcall_device_list *list);

// Puts the device at `index` into `info` and returns true, if there is one.
bool hostcall_device_list_get(const hostcall_device_list *list, size_t index, hostcall_device_info *info);

// Frees a list and sets the handle to NULL. NULL is let be.
void hostcall_device_list_free(hostcall_device_list **list);

// Opens a device and starts its server. It takes the options, whose handle is NULL afterwards, also when it fails.
hostcall_status hostcall_device_open(hostcall_options **options,
                                     hostcall_device **device,
                                     hostcall_error **error);

// Ends the device's work for good: every launch is cancelled, and later ones, new streams and all other work of streams are
// refused with HOSTCALL_STATUS_CLOSED. Buffers can still be made, read and written. Waits until all launches have ended, at
// most five seconds, but for a handler that runs inline without a limit. Not to be called in a function that the library
// calls.
hostcall_status hostcall_device_close(const hostcall_device *device,
                                      hostcall_error **error);

// Frees a device and sets the handle to NULL. NULL is let be. What was made on the device can still be used.
void hostcall_device_free(hostcall_device **device);

// Returns what images for the device are built for, as `hostcall build --target` takes it; NULL for NULL. It lives as long
// as the device's handle.
const char *hostcall_device_target(const hostcall_device *device);

// Returns how many lanes a wave has; 0 for NULL.
uint32_t hostcall_device_wave_lanes(const hostcall_device *device);

// Waits until all that kernels printed is written, and tells of a failure to write it.
hostcall_status hostcall_device_flush(const hostcall_device *device, hostcall_error **error);

// Puts what the device's server has counted into `statistics`.
hostcall_status hostcall_device_statistics(const hostcall_device *device,
                                           hostcall_statistics *statistics,
                                           hostcall_error **error);

// Registers a service while kernels run, as hostcall_options_service does before. It stays until
// hostcall_registration_remove, or as long as the device. `registration` may be NULL.
hostcall_status hostcall_device_register(const hostcall_device *device,
                                         const hostcall_service *service,
                                         hostcall_registration **registration,
                                         hostcall_error **error);

// Removes a service and sets the handle to NULL. Handlers that run finish; when this returns, no more are begun (unless it
// is called by a handler that runs inline). NULL is let be.
void hostcall_registration_remove(hostcall_registration **registration);

// Frees the handle of a registration and sets it to NULL; the service stays. NULL is let be.
void hostcall_registration_free(hostcall_registration **registration);

// Makes a context. `name` is what reports call its kernels.
hostcall_status hostcall_context_new(const hostcall_device *device,
                                     const char *name,
                                     hostcall_context **context,
                                     hostcall_error **error);

// Frees a context and sets the handle to NULL. NULL is let be.
void hostcall_context_free(hostcall_context **context);

// Returns the address that kernels take as an argument, or that is put into a variable of their module; 0 for NULL. It stays
// the same.
uint64_t hostcall_context_address(const hostcall_context *context);

// Says that kernels with the context come soon: whoever looks for calls does it without a pause for a while. Else the first
// call after a long silence may wait for 2.2 ms on a GPU.
hostcall_status hostcall_context_attend(const hostcall_context *context,
                                        hostcall_error **error);

// Waits until the posts have been handled of kernels with the context that have ended. The caller knows that they have: it
// has waited for their stream.
hostcall_status hostcall_context_flush(const hostcall_context *context,
                                       hostcall_error **error);

// Takes the place in a stream of others behind all that has been submitted to it, and says that kernels run there
// (hostcall_context_attend). `stream` is a CUstream or cudaStream_t of the primary context, or 0 for the default stream; only
// CUDA's devices have such. It fails for a stream that is being captured into a graph.
hostcall_status hostcall_context_fence(const hostcall_context *context,
                                       uint64_t stream,
                                       hostcall_fence **fence,
                                       hostcall_error **error);

// Returns whether there is nothing more to wait for: the kernels before the fence have ended and their posts have been handled,
// or the device failed or was closed, which hostcall_fence_wait tells. False for NULL.
bool hostcall_fence_is_done(const hostcall_fence *fence);

// Waits until the kernels before the fence have ended and their posts have been handled, at most for `limit_ns`; UINT64_MAX is
// without a limit.
hostcall_status hostcall_fence_wait(const hostcall_fence *fence,
                                    uint64_t limit_ns,
                                    hostcall_error **error);

// Frees a fence and sets the handle to NULL. NULL is let be.
void hostcall_fence_free(hostcall_fence **fence);

// Gives the next check that has failed in kernels with the context (hostcall_check), as a sentence with its file, line, block,
// thread and count: each place that has failed since it was given last. Of kernels that have ended all are there after
// hostcall_context_flush. `text` is NULL when there is none, which is no error; else it is the caller's, who frees it by
// hostcall_text_free.
hostcall_status hostcall_context_failed_check(const hostcall_context *context,
                                              Out_hostcall_text text,
                                              hostcall_error **error);

// Returns the number of a check by which kernels tell of it that have no text (hostcall_check_number of
// hostcall_library.c): a hash of its text, file ("" if nobody knows it) and line (0), for all devices and processes. Each
// process says the text once before it runs the kernel, and may do so of 4,096 checks.
hostcall_status hostcall_number_check(const char *condition,
                                      const char *file,
                                      uint32_t line,
                                      uint32_t *number,
                                      hostcall_error **error);

// Returns a text's characters, which end with a zero byte; NULL for NULL. They are good until the text is freed.
const char *hostcall_text_get(const hostcall_text *text);

// Frees a text and sets the handle to NULL. NULL is let be.
void hostcall_text_free(hostcall_text **text);

// Ends the calls of kernels with the context: those that wait, and all that come until it is renewed. A kernel that does not
// call runs on.
hostcall_status hostcall_context_cancel(const hostcall_context *context,
                                        hostcall_error **error);

// Has calls answered again after hostcall_context_cancel.
hostcall_status hostcall_context_renew(const hostcall_context *context, hostcall_error **error);

// Makes a post queue. `name` is what errors call it. `waves`: how many waves post at the same time or hold a scope, 1 to 65,536;
// more of them wait for each other. `ring_entries`: of 16 bytes in each wave's ring, a power of two from 16 a lane to 65,536; a
// message of n words takes 1 + n / 2. 0 of both is the usual: 256 waves, 2,048 entries.
hostcall_status hostcall_post_queue_new(const hostcall_device *device,
                                        const char *name,
                                        uint32_t waves,
                                        uint32_t ring_entries,
                                        hostcall_post_queue **queue,
                                        hostcall_error **error);

// Returns the address that kernels take in the place of a context's; 0 for NULL. It stays the same.
uint64_t hostcall_post_queue_address(const hostcall_post_queue *queue);

// Looks once for messages and calls `take` with `state` and those that are there, `most` at most, in batches. Puts into `count`
// how many these were, unless it is NULL. It waits for nothing: whoever wants the next message calls it again, as often as its
// latency matters. One thread polls at a time: HOSTCALL_STATUS_REFUSED for another, and for `take` itself.
hostcall_status hostcall_post_queue_poll(const hostcall_post_queue *queue,
                                         size_t most,
                                         hostcall_post_function take,
                                         void *state,
                                         size_t *count,
                                         hostcall_error **error);

// Returns whether messages lie there, or were announced, that no poll has taken: of kernels that have ended, all of theirs. It looks at
// every wave's bell, which takes longer than a poll. False for NULL, and while another thread polls.
bool hostcall_post_queue_has_posts(const hostcall_post_queue *queue);

// Ends waits for room in the queue's rings (such messages return 0) and of hostcall_wait_word. Polls drop what lies there and what
// comes, until the queue is renewed.
hostcall_status hostcall_post_queue_cancel(const hostcall_post_queue *queue,
                                           hostcall_error **error);

// Has messages handed over again after hostcall_post_queue_cancel. Polls drop what was posted before, and what is posted through
// a slot that was held before.
hostcall_status hostcall_post_queue_renew(const hostcall_post_queue *queue,
                                          hostcall_error **error);

// Puts what became of the queue's messages until the last poll that ended into `counts`.
hostcall_status hostcall_post_queue_statistics(const hostcall_post_queue *queue,
                                               hostcall_post_counts *counts,
                                               hostcall_error **error);

// Cancels a queue for good, frees it and sets the handle to NULL. Puts its counts into `counts`, in which messages that nobody had
// read are among the dropped ones.
hostcall_status hostcall_post_queue_close(hostcall_post_queue **queue,
                                          hostcall_post_counts *counts,
                                          hostcall_error **error);

// Cancels a queue for good, frees it and sets the handle to NULL. NULL is let be. What nobody had read is lost and not told
// (hostcall_post_queue_close tells).
void hostcall_post_queue_free(hostcall_post_queue **queue);

// Loads an image that `hostcall build` made from a file. The path is taken literally. An image is trusted as the program's
// own code is.
hostcall_status hostcall_image_load(const hostcall_device *device,
                                    const char *path,
                                    hostcall_image **image,
                                    hostcall_error **error);

// Loads an image from `len` bytes, of which nothing is needed afterwards. It is trusted as in hostcall_image_load.
hostcall_status hostcall_image_load_bytes(const hostcall_device *device,
                                          const uint8_t *bytes,
                                          size_t len,
                                          hostcall_image **image,
                                          hostcall_error **error);

// Frees an image and sets the handle to NULL. NULL is let be. Its kernels can still be used.
void hostcall_image_free(hostcall_image **image);

// Returns how many kernels the image has; 0 for NULL.
size_t hostcall_image_kernel_count(const hostcall_image *image);

// Returns the name of the kernel at `index`; NULL when there is none. It lives as long as the image's handle.
const char *hostcall_image_kernel_name(const hostcall_image *image, size_t index);

// Finds a kernel by its name, or by its path, as "shop::stock::count".
hostcall_status hostcall_image_kernel(const hostcall_image *image,
                                      const char *name,
                                      hostcall_kernel **kernel,
                                      hostcall_error **error);

// Frees a kernel and sets the handle to NULL. NULL is let be. Its launches run on.
void hostcall_kernel_free(hostcall_kernel **kernel);

// Makes the type of a number, by its hostcall_kind.
hostcall_status hostcall_type_number(uint32_t kind, hostcall_type **made, hostcall_error **error);

// Makes the type of a Rust struct `#[repr(C)] #[derive(Plain)]`, by its name and the types of its `count` fields. Such a
// struct has no padding. The types of the fields can be freed afterwards.
hostcall_status hostcall_type_struct(const char *name,
                                     const hostcall_type *const *fields,
                                     size_t count,
                                     hostcall_type **made,
                                     hostcall_error **error);

// Makes the type of an array of `len` values.
hostcall_status hostcall_type_array(const hostcall_type *of,
                                    size_t len,
                                    hostcall_type **made,
                                    hostcall_error **error);

// Frees a type and sets the handle to NULL. NULL is let be.
void hostcall_type_free(hostcall_type **of);

// Allocates `len` numbers of a hostcall_kind, all zero.
hostcall_status hostcall_buffer_alloc(const hostcall_device *device,
                                      uint32_t kind,
                                      size_t len,
                                      hostcall_buffer **buffer,
                                      hostcall_error **error);

// Allocates `len` values of a type, all zero bytes.
hostcall_status hostcall_buffer_alloc_of(const hostcall_device *device,
                                         const hostcall_type *of,
                                         size_t len,
                                         hostcall_buffer **buffer,
                                         hostcall_error **error);

// Makes another buffer of the same memory: the `len` values from `first` on.
hostcall_status hostcall_buffer_part(const hostcall_buffer *buffer,
                                     size_t first,
                                     size_t len,
                                     hostcall_buffer **part,
                                     hostcall_error **error);

// Frees a buffer and sets the handle to NULL. NULL is let be.
void hostcall_buffer_free(hostcall_buffer **buffer);

// Returns how many values the buffer has; 0 for NULL.
size_t hostcall_buffer_len(const hostcall_buffer *buffer);

// Waits for everything before it that uses the values, and copies these there: `size` bytes, as many as the buffer has.
hostcall_status hostcall_buffer_write(const hostcall_buffer *buffer,
                                      const void *from,
                                      size_t size,
                                      hostcall_error **error);

// Waits for everything before it that may write the values, and copies them to `to`: `size` bytes, as many as the buffer
// has.
hostcall_status hostcall_buffer_read(const hostcall_buffer *buffer,
                                     void *to,
                                     size_t size,
                                     hostcall_error **error);

// Copies values to a buffer in the stream's order: `size` bytes, as many as the buffer has. They are taken at once, and may
// change after the call.
hostcall_status hostcall_stream_write(const hostcall_stream *stream,
                                      const hostcall_buffer *buffer,
                                      const void *from,
                                      size_t size,
                                      hostcall_error **error);

// Copies the values of `from` to `to`, which has the same length, on the device and in the stream's order.
hostcall_status hostcall_stream_copy(const hostcall_stream *stream,
                                     const hostcall_buffer *to,
                                     const hostcall_buffer *from,
                                     hostcall_error **error);

// Sets every value of a buffer in the stream's order to the value at `value`, which has `size` bytes. Unless these are a
// pattern of at most 4 bytes, over and over, the host makes as much memory as the buffer has.
hostcall_status hostcall_stream_fill(const hostcall_stream *stream,
                                     const hostcall_buffer *buffer,
                                     const void *value,
                                     size_t size,
                                     hostcall_error **error);

// Allocates `len` pinned numbers of a hostcall_kind, all zero.
hostcall_status hostcall_pinned_alloc(const hostcall_device *device,
                                      uint32_t kind,
                                      size_t len,
                                      hostcall_pinned **pinned,
                                      hostcall_error **error);

// Returns where the numbers lie; NULL for NULL. Who accesses one that a kernel or a thread may access meanwhile does so
// atomically. It is good until the handle and all launches that got it are gone.
void *hostcall_pinned_data(const hostcall_pinned *pinned);

// Returns how many numbers the buffer has; 0 for NULL.
size_t hostcall_pinned_len(const hostcall_pinned *pinned);

// Frees a pinned buffer and sets the handle to NULL. NULL is let be.
void hostcall_pinned_free(hostcall_pinned **pinned);

// Makes a stream.
hostcall_status hostcall_stream_new(const hostcall_device *device,
                                    hostcall_stream **stream,
                                    hostcall_error **error);

// Waits for the stream's work, frees the stream and sets the handle to NULL. A failure that nobody asked for is written to
// the standard error. NULL is let be. In a function that the library calls it does not wait: the work goes on.
void hostcall_stream_free(hostcall_stream **stream);

// Waits until all work so far is done. Fails with the first failure since the last call: a panic, a fault, a cancelled
// launch. Then the stream goes on.
hostcall_status hostcall_stream_synchronize(const hostcall_stream *stream,
                                            hostcall_error **error);

// Does what hostcall_stream_synchronize does, at most for `limit_ns`. What is not done by then goes on.
hostcall_status hostcall_stream_synchronize_for(const hostcall_stream *stream,
                                                uint64_t limit_ns,
                                                hostcall_error **error);

// Returns whether all work so far is done; false for NULL.
bool hostcall_stream_is_done(const hostcall_stream *stream);

// Calls `function` once when all work so far is done, on a thread of the library's; later work waits until it has returned.
// It may use the device, but not wait for this stream, and must return. `free_state` gets `state` afterwards, when it is not
// called because the stream was stopped, or when this function fails; also on any thread.
hostcall_status hostcall_stream_host_function(const hostcall_stream *stream,
                                              hostcall_host_function function,
                                              void *state,
                                              hostcall_free_function free_state,
                                              hostcall_error **error);

// Does what hostcall_stream_host_function does, with a function that may be called again: a stream that records takes it
// into its graph, whose replays call it: several threads at the same time where several instances replay. `free_state`
// gets `state` when nobody can call it any more.
hostcall_status hostcall_stream_repeated_function(const hostcall_stream *stream,
                                                  hostcall_host_function function,
                                                  void *state,
                                                  hostcall_free_function free_state,
                                                  hostcall_error **error);

// Makes an event that happens when all work so far is done.
hostcall_status hostcall_stream_record(const hostcall_stream *stream,
                                       hostcall_event **event,
                                       hostcall_error **error);

// Lets later work of the stream wait for an event of the same device.
hostcall_status hostcall_stream_wait_for(const hostcall_stream *stream,
                                         const hostcall_event *event,
                                         hostcall_error **error);

// Frees an event and sets the handle to NULL. NULL is let be.
void hostcall_event_free(hostcall_event **event);

// Returns whether the event has happened; false for NULL.
bool hostcall_event_is_done(const hostcall_event *event);

// Waits until the event has happened, at most for `limit_ns`; UINT64_MAX is without a limit.
hostcall_status hostcall_event_wait(const hostcall_event *event, uint64_t limit_ns, hostcall_error **error);

// Puts the time on the device from `earlier` to `event` into `elapsed_ns`: 0 when `event` came first, and UINT64_MAX while
// one of them has not happened and when its device failed before it did.
hostcall_status hostcall_event_elapsed(const hostcall_event *event,
                                       const hostcall_event *earlier,
                                       uint64_t *elapsed_ns,
                                       hostcall_error **error);

// Makes a closure of `count` arguments of these hostcall_kinds, numbers or bools: `A` is the type of one, and the tuple of
// several (12 at most) or none. The result is of one kind, or of none (`()`) with 0. A closure that is not `is_continuous`
// takes one call. `free_state` gets `state` when no call comes any more, on any thread, or when this function fails.
hostcall_status hostcall_closure_new(const hostcall_device *device,
                                     const uint32_t *arguments,
                                     size_t count,
                                     uint32_t result,
                                     bool is_continuous,
                                     hostcall_closure_function function,
                                     void *state,
                                     hostcall_free_function free_state,
                                     hostcall_closure **closure,
                                     hostcall_error **error);

// Lets the closure take no more calls: they fail in their kernels. Calls that run end as ever. Returns whether it still took
// calls before; false for NULL.
bool hostcall_closure_finish(const hostcall_closure *closure);

// Frees a closure and sets the handle to NULL; launches that got it still call it. NULL is let be.
void hostcall_closure_free(hostcall_closure **closure);

// Puts a launch of a kernel on a stream, with `count` arguments, of which nothing but the buffers' memory
// is needed afterwards. It fails when their types are not those of the kernel's parameters; nothing is
// launched then. Structs are described with the names and fields that the kernel's own have, and what the
// documentation of an unsafe kernel asks for holds. A struct with an `align` in its `repr` cannot be
// described. `launch` may be NULL.
hostcall_status hostcall_kernel_launch(const hostcall_kernel *kernel,
                                       const hostcall_stream *stream,
                                       const hostcall_grid *grid,
                                       const hostcall_argument *arguments,
                                       size_t count,
                                       hostcall_launch **launch,
                                       hostcall_error **error);

// Frees a launch's handle and sets it to NULL; the launch runs on. NULL is let be.
void hostcall_launch_free(hostcall_launch **launch);

// Returns the launch's number, which handlers find in their calls; 0 for NULL.
uint32_t hostcall_launch_id(const hostcall_launch *launch);

// Returns whether the launch has ended; false for NULL.
bool hostcall_launch_is_done(const hostcall_launch *launch);

// Waits until the launch has ended, at most for `limit_ns` (UINT64_MAX is without a limit), and puts how into `outcome`,
// which may be NULL. Fails as hostcall_stream_synchronize does, which tells of the launch as well.
hostcall_status hostcall_launch_wait(const hostcall_launch *launch,
                                     uint64_t limit_ns,
                                     hostcall_outcome *outcome,
                                     hostcall_error **error);

// Asks the launch to end: its waiting calls end with an error, those after it end the lane.
hostcall_status hostcall_launch_cancel(const hostcall_launch *launch, hostcall_error **error);

// Cancels the launch if it has not ended when `limit_ns` has passed from now on.
hostcall_status hostcall_launch_cancel_after(const hostcall_launch *launch,
                                             uint64_t limit_ns,
                                             hostcall_error **error);

// Begins to record the stream's work, in one of the hostcall_capture_modes: launches, writes, copies, fills, repeated
// functions and graphs. None of it is done. A stream that waits for an event of the capture is recorded as well.
hostcall_status hostcall_stream_begin_capture(const hostcall_stream *stream,
                                              uint32_t mode,
                                              hostcall_error **error);

// Ends the capture that was begun on this stream. Fails with what broke the capture; the stream is as before it then, too.
hostcall_status hostcall_stream_end_capture(const hostcall_stream *stream,
                                            hostcall_graph **graph,
                                            hostcall_error **error);

// Adds a graph to what a stream records, as one node.
hostcall_status hostcall_stream_add_graph(const hostcall_stream *stream,
                                          const hostcall_graph *graph,
                                          hostcall_error **error);

// Returns how many nodes the graph has; 0 for NULL.
size_t hostcall_graph_len(const hostcall_graph *graph);

// Frees a graph and sets the handle to NULL; its instances stay. NULL is let be.
void hostcall_graph_free(hostcall_graph **graph);

// Makes an instance of the graph as it is now.
hostcall_status hostcall_graph_instantiate(const hostcall_graph *graph,
                                           hostcall_instance **instance,
                                           hostcall_error **error);

// Prepares replays on a stream, so that the device takes kernels that follow each other at once. May wait for kernels that
// run.
hostcall_status hostcall_instance_upload(const hostcall_instance *instance,
                                         const hostcall_stream *stream,
                                         hostcall_error **error);

// Makes later replays those of another graph, which differs from the instance's in grids, arguments, functions and memory
// only. Fails with HOSTCALL_STATUS_REFUSED and the first node that differs else; nothing changes then.
hostcall_status hostcall_instance_update(const hostcall_instance *instance,
                                         const hostcall_graph *graph,
                                         hostcall_error **error);

// Puts a replay on a stream: all of the graph's work, in order, after the instance's replay before it. What fails in it,
// hostcall_stream_synchronize tells. `replay` may be NULL.
hostcall_status hostcall_instance_launch(const hostcall_instance *instance,
                                         const hostcall_stream *stream,
                                         hostcall_replay **replay,
                                         hostcall_error **error);

// Frees an instance and sets the handle to NULL. NULL is let be.
void hostcall_instance_free(hostcall_instance **instance);

// Frees a replay's handle and sets it to NULL; the replay goes on. NULL is let be.
void hostcall_replay_free(hostcall_replay **replay);

// Returns which replay of its instance it is, from 1; 0 for NULL.
uint64_t hostcall_replay_number(const hostcall_replay *replay);

// Returns whether the replay has ended; false for NULL.
bool hostcall_replay_is_done(const hostcall_replay *replay);

// Waits until the replay has ended, at most for `limit_ns`; UINT64_MAX is without a limit. Fails with its first failure, of
// which hostcall_stream_synchronize tells as well.
hostcall_status hostcall_replay_wait(const hostcall_replay *replay,
                                     uint64_t limit_ns,
                                     hostcall_error **error);

// Asks the replay to end: what runs of it is cancelled as by hostcall_launch_cancel, and the rest is not begun.
hostcall_status hostcall_replay_cancel(const hostcall_replay *replay,
                                       hostcall_error **error);

// Cancels the replay if it has not ended when `limit_ns` has passed from now on; it then fails with
// HOSTCALL_STATUS_TIMED_OUT.
hostcall_status hostcall_replay_cancel_after(const hostcall_replay *replay,
                                             uint64_t limit_ns,
                                             hostcall_error **error);

// Makes a condition of the number in a buffer of one HOSTCALL_KIND_U32, which kernels write through a `&Global<u32>` or an
// atomic.
hostcall_status hostcall_condition_word(const hostcall_buffer *word,
                                        hostcall_condition **condition,
                                        hostcall_error **error);

// Makes a condition of what a function returns. `free_state` gets `state` when nobody can call it any more, on any thread, or
// when this function fails.
hostcall_status hostcall_condition_call(hostcall_condition_function function,
                                        void *state,
                                        hostcall_free_function free_state,
                                        hostcall_condition **condition,
                                        hostcall_error **error);

// Frees a condition and sets the handle to NULL; graphs that have it keep it. NULL is let be.
void hostcall_condition_free(hostcall_condition **condition);

// Makes a graph of one node: `then` is done if the condition is not 0, else `otherwise`, which may be NULL. It has both as
// they are now. hostcall_stream_add_graph puts it among other work.
hostcall_status hostcall_graph_if(const hostcall_device *device,
                                  const hostcall_condition *condition,
                                  const hostcall_graph *then,
                                  const hostcall_graph *otherwise,
                                  hostcall_graph **graph,
                                  hostcall_error **error);

// Makes a graph of one node: `body` is done again and again, as long as the condition is not 0, which is looked at before
// each turn. It has the body as it is now. hostcall_stream_add_graph puts it among other work.
hostcall_status hostcall_graph_while(const hostcall_device *device,
                                     const hostcall_condition *condition,
                                     const hostcall_graph *body,
                                     hostcall_graph **graph,
                                     hostcall_error **error);

// Makes a graph of one node: of `count` bodies the one is done whose place the condition's number is, from 0, and none if
// there is no such place. It has the bodies as they are now. hostcall_stream_add_graph puts it among other work.
hostcall_status hostcall_graph_switch(const hostcall_device *device,
                                      const hostcall_condition *condition,
                                      const hostcall_graph *const *bodies,
                                      size_t count,
                                      hostcall_graph **graph,
                                      hostcall_error **error);

// Puts where the caller is into `place` and returns true, if that is known: not of posts, whose wave may have ended. A
// handler whose call was given up, at a deadline or by a cancellation, may learn of the wave that calls there now. Only to be
// called in the handler.
bool hostcall_caller_place(const hostcall_caller *caller,
                           hostcall_place *place);

// Sets the reply's words: the result's value; none are needed where there is no result. Words that were
// set before are gone. Of a method that has text or bytes, they are as many as the result has: the caller
// takes bytes for words that are missing.
hostcall_status hostcall_reply_words(hostcall_reply *reply, const uint64_t *words, size_t count);

// Appends bytes to the reply, for the caller's `&mut [u8]`, which learns how many there are. Fails with HOSTCALL_STATUS_REFUSED past the call's `reply_capacity`
// and when the device's memory for replies is used up.
hostcall_status hostcall_reply_bytes(hostcall_reply *reply,
                                     const uint8_t *bytes,
                                     size_t count);

// Makes a raw channel of so many pages of so many bytes, both powers of two: 16 to 65,536 pages of 128 bytes to 16 MiB. Pages
// of 4 to 64 KiB are good ones. `policy` is one of hostcall_raw_policy.
hostcall_status hostcall_raw_channel_new(const hostcall_device *device,
                                         uint32_t pages,
                                         uint32_t page_bytes,
                                         uint32_t policy,
                                         hostcall_raw_channel **channel,
                                         hostcall_error **error);

// Frees a raw channel and sets the handle to NULL. NULL is let be. Pages that were lent stay.
void hostcall_raw_channel_free(hostcall_raw_channel **channel);

// Gives the next page, or the part of one that is written, and waits for one at most for `limit_ns`. `page` is NULL when none
// came, which is no error. What waves of launches that were waited for have written is there at once. Several threads that
// call it share the pages; those of one writer come in its order.
hostcall_status hostcall_raw_channel_next(const hostcall_raw_channel *channel,
                                          uint64_t limit_ns,
                                          hostcall_raw_page **page,
                                          hostcall_error **error);

// Puts what was written to the channel so far into `counts`: of pages and bytes, what was there when hostcall_raw_channel_next
// looked last; of what waves dropped, all that happened before in launches that have ended.
hostcall_status hostcall_raw_channel_statistics(const hostcall_raw_channel *channel,
                                                hostcall_raw_counts *counts,
                                                hostcall_error **error);

// Returns where a page's bytes lie, at a multiple of 8; NULL for NULL. It is good until the page is freed. A device that breaks
// the rules could still write there.
const void *hostcall_raw_page_data(const hostcall_raw_page *page);

// Puts what is known of a page into `info`.
hostcall_status hostcall_raw_page_info(const hostcall_raw_page *page,
                                       hostcall_raw_info *info,
                                       hostcall_error **error);

// Frees a page and sets the handle to NULL: waves can have it again. NULL is let be.
void hostcall_raw_page_free(hostcall_raw_page **page);

// Loads a code object from a file; the path is taken literally. `version` is the hostcall_rocm_version that its kernels call
// by; kernels that do not call take either. A code object is trusted as the program's own code is.
hostcall_status hostcall_rocm_code_load(const hostcall_device *device,
                                        const char *path,
                                        uint32_t version,
                                        hostcall_rocm_code **code,
                                        hostcall_error **error);

// Loads a code object from `len` bytes, of which nothing is needed afterwards, as hostcall_rocm_code_load does from a file.
hostcall_status hostcall_rocm_code_load_bytes(const hostcall_device *device,
                                              const uint8_t *bytes,
                                              size_t len,
                                              uint32_t version,
                                              hostcall_rocm_code **code,
                                              hostcall_error **error);

// Frees a code object and sets the handle to NULL. NULL is let be. Its kernels can still be used.
void hostcall_rocm_code_free(hostcall_rocm_code **code);

// Finds a kernel by the name of its symbol, without `.kd`. Names of C++ are mangled, unless the kernel is `extern "C"`. Once
// a kernel that may call was found, calls of `printf` print to the device's standard streams, memory that kernels ask for
// comes from the device's heap, and reports of the address sanitizer are lines of the standard error, unless a service was
// registered for them before.
hostcall_status hostcall_rocm_code_kernel(const hostcall_rocm_code *code,
                                          const char *name,
                                          hostcall_rocm_kernel **kernel,
                                          hostcall_error **error);

// Frees a kernel and sets the handle to NULL. NULL is let be. Its launches run on.
void hostcall_rocm_kernel_free(hostcall_rocm_kernel **kernel);

// Returns how many arguments the kernel takes; 0 for NULL.
size_t hostcall_rocm_kernel_argument_count(const hostcall_rocm_kernel *kernel);

// Returns how many bytes the kernel's argument at `index` has; 0 when there is none.
size_t hostcall_rocm_kernel_argument_bytes(const hostcall_rocm_kernel *kernel, size_t index);

// Puts a launch of a code object's kernel on a stream, with `count` arguments, of which nothing but the buffers' memory is
// needed afterwards. It fails when there are more or fewer than the kernel takes, or one has another size. Nothing else can be
// checked: they are of the kernel's types, and the kernel accesses no memory but its own, that of its heap, and the buffers
// that it is given. `launch` may be NULL.
//
// The launch can be waited for as others are. Once the device has it, it runs to its end: nothing ends it before, and one that
// was to be cancelled meanwhile fails with HOSTCALL_STATUS_CANCELLED then. Its waves do not wait for pages of raw channels any
// more, but drop.
hostcall_status hostcall_rocm_kernel_launch(const hostcall_rocm_kernel *kernel,
                                            const hostcall_stream *stream,
                                            const hostcall_grid *grid,
                                            const hostcall_rocm_argument *arguments,
                                            size_t count,
                                            hostcall_launch **launch,
                                            hostcall_error **error);

// Registers a function that kernels call with `__ockl_call_host_function`, on worker threads. `number` is what kernels get in
// place of its address: they can call no other functions. `free_state` gets `state` when the device has ended, the last kernel
// handle of a code object was freed and no kernel calls any more, on any thread, or when this function fails.
hostcall_status hostcall_rocm_register_function(const hostcall_device *device,
                                                hostcall_rocm_function function,
                                                void *state,
                                                hostcall_free_function free_state,
                                                uint64_t *number,
                                                hostcall_error **error);

// Registers the handler of a service, by the number by which kernels call it (`__ockl_hostcall_preview`): one that no service
// has yet. ROCm's device libraries have 1 for functions, 2 for `printf`, 3 for memory and 4 for the address sanitizer; the
// handler of 0 answers calls of services without one. `name` is what traces call it. With `is_inline` the handler never waits,
// takes microseconds, and runs on the thread that finds calls; otherwise it runs on worker threads. `free_state` gets `state`
// as for hostcall_rocm_register_function.
hostcall_status hostcall_rocm_register_service(const hostcall_device *device,
                                               uint32_t service,
                                               const char *name,
                                               bool is_inline,
                                               hostcall_rocm_handler handler,
                                               void *state,
                                               hostcall_free_function free_state,
                                               hostcall_error **error);

// Makes handlers of ROCm's services without a device, for servers of LLVM's protocol: see hostcall_llvm_server_handle_rocm.
hostcall_status hostcall_rocm_services_new(hostcall_rocm_services **services,
                                           hostcall_error **error);

// Frees the handle of services and sets it to NULL. NULL is let be. Servers that serve them keep the handlers.
void hostcall_rocm_services_free(hostcall_rocm_services **services);

// Registers a function as hostcall_rocm_register_function does for a device. `free_state` gets `state` when the handle and all
// servers with these services were freed and no function runs any more, or when this function fails.
hostcall_status hostcall_rocm_services_register_function(const hostcall_rocm_services *services,
                                                         hostcall_rocm_function function,
                                                         void *state,
                                                         hostcall_free_function free_state,
                                                         uint64_t *number,
                                                         hostcall_error **error);

// Registers the handler of a service as hostcall_rocm_register_service does for a device. `free_state` as for
// hostcall_rocm_services_register_function.
hostcall_status hostcall_rocm_services_register(const hostcall_rocm_services *services,
                                                uint32_t service,
                                                const char *name,
                                                bool is_inline,
                                                hostcall_rocm_handler handler,
                                                void *state,
                                                hostcall_free_function free_state,
                                                hostcall_error **error);

// Puts what was counted of calls by ROCm's protocol into `counts`.
hostcall_status hostcall_rocm_statistics(const hostcall_device *device,
                                         hostcall_rocm_counts *counts,
                                         hostcall_error **error);

// Returns what the client asked for; 0 for NULL.
uint32_t hostcall_llvm_call_opcode(const hostcall_llvm_call *call);

// Returns the lanes of the wave that call, one bit a lane; 0 for NULL.
uint64_t hostcall_llvm_call_mask(const hostcall_llvm_call *call);

// Returns a lane's buffer, 8 words: what was received last, or what is sent next. It stays until the next function that receives
// or sends. NULL when no wave has such a lane.
uint64_t *hostcall_llvm_call_words(hostcall_llvm_call *call,
                                   uint32_t lane);

// Returns a lane's bytes that were received last, `count` of them. They stay until the next function that receives or sends.
uint8_t *hostcall_llvm_call_bytes(hostcall_llvm_call *call,
                                  uint32_t lane,
                                  size_t *count);

// Sets the bytes that hostcall_llvm_call_send_bytes sends to a lane; they are copied.
hostcall_status hostcall_llvm_call_set_bytes(hostcall_llvm_call *call,
                                             uint32_t lane,
                                             const uint8_t *bytes,
                                             size_t count);

// Receives the lanes' buffers. Fails with HOSTCALL_STATUS_CLOSED, as the next three functions do, when the call has ended, since
// the server stops or the client broke a limit: the handler returns then.
hostcall_status hostcall_llvm_call_receive(hostcall_llvm_call *call);

// Sends the lanes' buffers.
hostcall_status hostcall_llvm_call_send(hostcall_llvm_call *call);

// Receives bytes of any number from each lane (`send_n` on the device).
hostcall_status hostcall_llvm_call_receive_bytes(hostcall_llvm_call *call);

// Sends each lane its bytes (`recv_n` on the device).
hostcall_status hostcall_llvm_call_send_bytes(hostcall_llvm_call *call);

// Answers a client's `rpc::dispatch` of a function with `count` parameters and a result of `result_bytes` bytes, 0 for `void`:
// calls `function` for each lane. The handler of the opcode does nothing else with the call. Fails with
// HOSTCALL_STATUS_REFUSED when the function fails for a lane or the call has ended: the handler returns a number for a failure
// then.
hostcall_status hostcall_llvm_call_dispatch(hostcall_llvm_call *call,
                                            const hostcall_llvm_parameter *parameters,
                                            size_t count,
                                            size_t result_bytes,
                                            hostcall_llvm_typed_function function,
                                            void *state);

// Puts the version of LLVM's protocol that an image's kernels speak into `version`: of an AMD code object, a cubin or PTX of
// `len` bytes, with the symbol of LLVM's client. None of it is loaded.
hostcall_status hostcall_llvm_version_of_image(const uint8_t *image,
                                               size_t len,
                                               uint32_t *version,
                                               hostcall_error **error);

// Puts the version of LLVM's protocol into `version` whose client has a symbol of this name and size in bytes.
hostcall_status hostcall_llvm_version_of_symbol(const char *name,
                                                uint64_t bytes,
                                                uint32_t *version,
                                                hostcall_error **error);

// Returns how many bytes of memory so many ports take, for waves of so many lanes; 0 when the version has no such ports.
size_t hostcall_llvm_memory_bytes(uint32_t version,
                                  uint32_t ports,
                                  uint32_t lanes);

// Returns how many bytes the version's client object has; 0 when there is no such version.
size_t hostcall_llvm_client_bytes(uint32_t version);

// Starts a server of ports in memory of the caller's. It needs no device: the options' device name is not looked at, and what
// they say of files, arguments and standard streams is what clients of LLVM's libc get. Libc's opcodes, calls of host
// functions and Emissary's `printf` are served; for others there are handlers. All that clients write is checked. The options
// are taken.
hostcall_status hostcall_llvm_server_start(hostcall_options **options,
                                           const hostcall_llvm_config *config,
                                           hostcall_llvm_server **server,
                                           hostcall_error **error);

// Ends the service, if it was not cancelled, and frees the server: nothing looks at the ports' memory from then on. Handlers
// that run are not waited for; their states are freed after them. What clients got by `malloc` and did not free is given to
// `release`: their kernels have ended before, or do not use it any more. The handle is set to NULL; NULL is let be.
void hostcall_llvm_server_free(hostcall_llvm_server **server);

// Writes the client object of the server's ports, of hostcall_llvm_client_bytes bytes, into `object`: it goes to the device in
// the place of the image's `__llvm_rpc_client`, or where `__llvm_libc_rpc_client` points to.
hostcall_status hostcall_llvm_server_client(const hostcall_llvm_server *server,
                                            uint8_t *object,
                                            size_t bytes,
                                            hostcall_error **error);

// Goes on with all calls that wait for the host, of a server without threads, and returns how many there were. It does not wait;
// handlers that may wait run on worker threads. One thread calls it at a time: for another it returns 0.
size_t hostcall_llvm_server_poll(const hostcall_llvm_server *server);

// Ends the service: no port is answered any more, and handlers that receive or send are told that the call has ended.
// Returns true; false for NULL.
bool hostcall_llvm_server_cancel(const hostcall_llvm_server *server);

// Returns true once the program has ended itself, and puts its exit code into `code`: that of `exit`, or 134 of `abort`.
bool hostcall_llvm_server_ended(const hostcall_llvm_server *server,
                                int32_t *code);

// Writes out what files and streams of clients hold back. Returns true; false for NULL.
bool hostcall_llvm_server_flush(const hostcall_llvm_server *server);

// Puts what was counted into `counts`.
hostcall_status hostcall_llvm_server_statistics(const hostcall_llvm_server *server,
                                                hostcall_llvm_counts *counts,
                                                hostcall_error **error);

// Registers the handler of the opcodes from `first` to `last`, before clients use them; of libc's opcodes it comes in the place
// of the server's own. `free_state` gets `state` when no handler runs any more after the server was freed, or when this
// function fails.
hostcall_status hostcall_llvm_server_handle(const hostcall_llvm_server *server,
                                            uint32_t first,
                                            uint32_t last,
                                            hostcall_llvm_handler handler,
                                            void *state,
                                            hostcall_free_function free_state,
                                            hostcall_error **error);

// Registers the handler of opcodes whose clients send one packet and receive one. With `is_inline` it never waits, takes
// microseconds, and runs on the thread that finds calls; otherwise it runs on worker threads. `free_state` as for
// hostcall_llvm_server_handle.
hostcall_status hostcall_llvm_server_handle_packets(const hostcall_llvm_server *server,
                                                    uint32_t first,
                                                    uint32_t last,
                                                    bool is_inline,
                                                    hostcall_llvm_packet_handler handler,
                                                    void *state,
                                                    hostcall_free_function free_state,
                                                    hostcall_error **error);

// Registers the handler of opcodes that nobody else has. Without it such a call cannot go on, and is reported.
// `free_state` as for hostcall_llvm_server_handle.
hostcall_status hostcall_llvm_server_handle_unknown(const hostcall_llvm_server *server,
                                                    hostcall_llvm_handler handler,
                                                    void *state,
                                                    hostcall_free_function free_state,
                                                    hostcall_error **error);

// Registers the functions of one of Emissary's APIs, by the API's number (3 is MPI, 4 HDF5, 5 the application's own).
// `free_state` as for hostcall_llvm_server_handle.
hostcall_status hostcall_llvm_server_handle_emissary(const hostcall_llvm_server *server,
                                                     uint32_t api,
                                                     hostcall_llvm_emissary_handler handler,
                                                     void *state,
                                                     hostcall_free_function free_state,
                                                     hostcall_error **error);

// Serves ROCm's services too, for kernels of HIP that call by LLVM's protocol in the place of hostcall buffers: the opcodes from
// `'r' << 24` on, of functions, memory, the address sanitizer's reports and `printf`. Services that have no handler get
// hostcall's: `printf` prints to the server's standard streams, memory is `allocate`'s, and reports of the address sanitizer are
// lines of the standard error. Several servers may have the same services: streams and memory are the first one's then. What
// goes wrong is answered with zeros and counted as a fault. The handle of the services is not needed any more afterwards.
hostcall_status hostcall_llvm_server_handle_rocm(const hostcall_llvm_server *server,
                                                 const hostcall_rocm_services *services,
                                                 hostcall_error **error);

// Registers a function that clients call by LLVM's host call. `number` is what they get in place of its address: they can call
// no others. `free_state` as for hostcall_llvm_server_handle.
hostcall_status hostcall_llvm_server_register_function(const hostcall_llvm_server *server,
                                                       hostcall_llvm_function function,
                                                       void *state,
                                                       hostcall_free_function free_state,
                                                       uint64_t *number,
                                                       hostcall_error **error);

// Makes a tracer that writes the file `path`, which `hostcall trace` reads; NULL is without a file.
hostcall_status hostcall_tracer_new(const char *path, hostcall_tracer **tracer, hostcall_error **error);

// Has the device record there what its kernels call.
hostcall_status hostcall_options_trace(hostcall_options *options,
                                       const hostcall_tracer *tracer,
                                       hostcall_error **error);

// Records trace points of the device into the tracer's file from now on, also of kernels that run; kernels need no other
// build. `points` is the name of the points, and `kernels` that of the kernels, that are recorded, in which `*` and `?` stand
// for any characters; NULL is all. Points of a device are recorded once at a time: another recording of them is refused.
hostcall_status hostcall_device_record_points(const hostcall_device *device,
                                              const hostcall_tracer *tracer,
                                              const char *points,
                                              const char *kernels,
                                              hostcall_point_recording **recording,
                                              hostcall_error **error);

// Has points written no more, but for the ends of spans that were begun.
hostcall_status hostcall_point_recording_pause(const hostcall_point_recording *recording,
                                               hostcall_error **error);

// Has points written again.
hostcall_status hostcall_point_recording_resume(const hostcall_point_recording *recording,
                                                hostcall_error **error);

// Ends a recording and sets the handle to NULL. What was recorded is in the file once the tracer has finished. NULL is let be.
void hostcall_point_recording_free(hostcall_point_recording **recording);

// Ends the recording and waits until all is written, at most for `limit_ns`. Puts what was counted into `summary`, which may
// be NULL. What could not be written is an error.
hostcall_status hostcall_tracer_finish(const hostcall_tracer *tracer,
                                       uint64_t limit_ns,
                                       hostcall_trace_summary *summary,
                                       hostcall_error **error);

// Frees a tracer and sets the handle to NULL; devices that have it still record, and the last one ends the file. NULL is let
// be.
void hostcall_tracer_free(hostcall_tracer **tracer);

// Reads what the devices of this process have counted. Any thread may call it.
hostcall_status hostcall_metrics_read(hostcall_metrics **metrics, hostcall_error **error);

// Returns how many numbers there are; 0 for NULL.
size_t hostcall_metrics_count(const hostcall_metrics *metrics);

// Puts the number at `index` into `metric` and returns true, if there is one.
bool hostcall_metrics_get(const hostcall_metrics *metrics, size_t index, hostcall_metric *metric);

// Returns all of it as Prometheus scrapes it, as `text/plain; version=0.0.4`; NULL for NULL. It lives as long as what was
// read.
const char *hostcall_metrics_text(const hostcall_metrics *metrics);

// Frees what was read and sets the handle to NULL. NULL is let be.
void hostcall_metrics_free(hostcall_metrics **metrics);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HOSTCALL_H */
