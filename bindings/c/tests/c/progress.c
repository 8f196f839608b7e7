/*
 * What has ended is known whatever follows it: work, behind it a kernel that waits for the host, and every function that asks
 * about the work. One that waits for the kernel as well never returns.
 */
#include "common.h"

/* Longer than anything takes that does not wait for the gate, and shorter than what is cut off. */
static const uint64_t LONG_NS = 60000000000, SHORT_NS = 20000000, NONE = 1000;

static hostcall_device *device;
static hostcall_stream *stream, *other;
static hostcall_kernel *move, *turn;
static hostcall_buffer *zero, *out, *copy, *turns, *go_on;
static const hostcall_grid one = {{1, 1, 1}, {1, 1, 1}, 0};
/* How often the kernel that waits may go on, and how often host functions were called. */
static int open_gates, called;

/* fn next(turn: u64) -> u64, which returns once the gate is open. */
static int32_t wait_for_the_gate(void *state, const hostcall_call *call, hostcall_reply *reply) {
    const uint64_t next = call->words[0] + 1;
    (void)state;
    while (get(&open_gates) < (int)next)
        pause_a_moment();
    return hostcall_reply_words(reply, &next, 1) != HOSTCALL_STATUS_OK;
}

static void function(void *state) {
    __atomic_fetch_add((int *)state, 1, __ATOMIC_RELEASE);
}

/* out = zero + 1 */
static hostcall_launch *launch(const hostcall_stream *on) {
    hostcall_launch *launch;
    hostcall_argument arguments[2] = {{HOSTCALL_KIND_SLICE, {0}}, {HOSTCALL_KIND_GLOBAL_SLICE, {0}}};
    arguments[0].value.buffer = zero;
    arguments[1].value.buffer = out;
    works(hostcall_kernel_launch(move, on, &one, arguments, 2, &launch, &error));
    return launch;
}

/* The kernel that waits. */
static hostcall_launch *block(void) {
    hostcall_launch *launch;
    hostcall_argument arguments[3] = {{HOSTCALL_KIND_GLOBAL_REF, {0}}, {HOSTCALL_KIND_GLOBAL_REF, {0}}, {HOSTCALL_KIND_U64, {0}}};
    arguments[0].value.buffer = turns;
    arguments[1].value.buffer = go_on;
    arguments[2].value.u64 = NONE;
    works(hostcall_kernel_launch(turn, stream, &one, arguments, 3, &launch, &error));
    return launch;
}

/* Lets the kernel that waits end. */
static void unblock(hostcall_launch *blocked) {
    EXPECT(!hostcall_launch_is_done(blocked) && !hostcall_stream_is_done(stream));
    EXPECT(hostcall_stream_synchronize_for(stream, SHORT_NS, &error) == HOSTCALL_STATUS_TIMED_OUT);
    hostcall_error_free(&error);
    __atomic_fetch_add(&open_gates, 1, __ATOMIC_RELEASE);
    works(hostcall_stream_synchronize(stream, &error));
    works(hostcall_stream_synchronize(other, &error));
    EXPECT(hostcall_launch_is_done(blocked));
    hostcall_launch_free(&blocked);
}

static uint64_t value_of(const hostcall_buffer *buffer) {
    uint64_t value;
    works(hostcall_buffer_read(buffer, &value, sizeof value, &error));
    return value;
}

static void launches(void) {
    hostcall_launch *first = launch(stream), *second = launch(stream), *blocked = block();
    works(hostcall_launch_wait(first, LONG_NS, NULL, &error));
    EXPECT(hostcall_launch_is_done(first));
    /* What has ended is neither cancelled nor cut off, and takes nothing with it. */
    works(hostcall_launch_cancel(first, &error));
    works(hostcall_launch_wait(second, UINT64_MAX, NULL, &error));
    works(hostcall_launch_cancel_after(second, 0, &error));
    hostcall_launch_free(&first);
    hostcall_launch_free(&second);
    unblock(blocked);
}

static void buffers(void) {
    const uint64_t seven = 7;
    works(hostcall_buffer_write(out, &seven, sizeof seven, &error));
    hostcall_launch *first = launch(stream);
    works(hostcall_stream_copy(stream, copy, out, &error));
    hostcall_launch *blocked = block();
    EXPECT(value_of(out) == 1 && value_of(copy) == 1);
    works(hostcall_buffer_write(out, &seven, sizeof seven, &error));
    EXPECT(value_of(out) == 7);
    hostcall_launch_free(&first);
    unblock(blocked);
    works(hostcall_stream_write(stream, copy, &seven, sizeof seven, &error));
    works(hostcall_stream_fill(stream, out, &seven, sizeof seven, &error));
    blocked = block();
    EXPECT(value_of(copy) == 7 && value_of(out) == 7);
    unblock(blocked);
}

static void events(void) {
    hostcall_event *earlier, *event;
    uint64_t elapsed;
    works(hostcall_stream_record(stream, &earlier, &error));
    hostcall_launch *first = launch(stream);
    works(hostcall_stream_record(stream, &event, &error));
    hostcall_launch *blocked = block();
    works(hostcall_event_wait(event, LONG_NS, &error));
    EXPECT(hostcall_event_is_done(earlier) && hostcall_event_is_done(event));
    works(hostcall_event_elapsed(event, earlier, &elapsed, &error));
    EXPECT(elapsed != UINT64_MAX);
    /* Another stream waits for the event, and for the buffer. */
    works(hostcall_stream_wait_for(other, event, &error));
    works(hostcall_stream_copy(other, copy, out, &error));
    works(hostcall_stream_synchronize_for(other, LONG_NS, &error));
    EXPECT(hostcall_stream_is_done(other));
    hostcall_event_free(&earlier);
    hostcall_event_free(&event);
    hostcall_launch_free(&first);
    unblock(blocked);
}

static void functions_and_graphs(void) {
    hostcall_graph *graph;
    hostcall_instance *instance;
    hostcall_replay *replay, *later;
    called = 0;
    works(hostcall_stream_host_function(stream, function, &called, function, &error));
    hostcall_launch *blocked = block();
    while (get(&called) < 2) /* the function, and what frees its state */
        pause_a_moment();
    unblock(blocked);

    works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
    hostcall_launch *recorded = launch(stream);
    works(hostcall_stream_repeated_function(stream, function, &called, NULL, &error));
    works(hostcall_stream_end_capture(stream, &graph, &error));
    works(hostcall_graph_instantiate(graph, &instance, &error));
    hostcall_graph_free(&graph);
    hostcall_launch_free(&recorded);
    works(hostcall_instance_launch(instance, stream, &replay, &error));
    blocked = block();
    works(hostcall_replay_wait(replay, LONG_NS, &error));
    EXPECT(hostcall_replay_is_done(replay) && get(&called) == 3 && value_of(out) == 1);
    works(hostcall_replay_cancel(replay, &error));
    works(hostcall_replay_cancel_after(replay, 0, &error));
    /* The instance's next replay goes on another stream. */
    works(hostcall_instance_launch(instance, other, &later, &error));
    works(hostcall_replay_wait(later, LONG_NS, &error));
    hostcall_replay_free(&replay);
    hostcall_replay_free(&later);
    hostcall_instance_free(&instance);
    unblock(blocked);
}

int main(int argc, char **argv) {
    hostcall_options *options;
    hostcall_image *image;
    EXPECT(argc == 3);
    /* The service has a number that comes from its name. */
    const hostcall_method method = {(uint32_t)atoi(argv[2]), "Turns::next"};
    const hostcall_service service = {&method, 1, wait_for_the_gate, NULL, NULL, false};
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_service(options, &service, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_image_load(device, argv[1], &image, &error));
    works(hostcall_image_kernel(image, "graph_move", &move, &error));
    works(hostcall_image_kernel(image, "graph_turn", &turn, &error));
    works(hostcall_stream_new(device, &stream, &error));
    works(hostcall_stream_new(device, &other, &error));
    hostcall_buffer **const buffers_of[] = {&zero, &out, &copy, &turns};
    for (int i = 0; i < 4; i++)
        works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, 1, buffers_of[i], &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, 1, &go_on, &error));

    for (int round = 0; round < 5; round++) {
        launches();
        buffers();
        events();
        functions_and_graphs();
    }
    /* A stream that is freed waits for its own work, and no other's does. */
    hostcall_launch *blocked = block(), *last = launch(other);
    hostcall_stream_free(&other);
    EXPECT(hostcall_launch_is_done(last));
    hostcall_launch_free(&last);
    __atomic_fetch_add(&open_gates, 1, __ATOMIC_RELEASE);
    works(hostcall_stream_synchronize(stream, &error));
    hostcall_launch_free(&blocked);
    for (int i = 0; i < 4; i++)
        hostcall_buffer_free(buffers_of[i]);
    hostcall_buffer_free(&go_on);
    hostcall_stream_free(&stream);
    hostcall_kernel_free(&move);
    hostcall_kernel_free(&turn);
    hostcall_image_free(&image);
    hostcall_device_free(&device);
    puts("passed");
    return 0;
}
