/*
 * Graphs whose bodies the device's words and the host's functions decide about, and what replays tell, with kernels of
 * programs/conformance.
 */
#include "common.h"

enum { TURNS = 10, NONE = 1000 };

static hostcall_device *device;
static hostcall_stream *stream;
static const hostcall_grid one = {{1, 1, 1}, {1, 1, 1}, 0};

/* The condition of a body: its first, its second, and no body. */
static uint32_t in_turn(void *state) {
    return (uint32_t)__atomic_fetch_add(&((struct counts *)state)->called, 1, __ATOMIC_RELAXED);
}

/* fn next(turn: u64) -> u64 */
static int32_t turns(void *state, const hostcall_call *call, hostcall_reply *reply) {
    const uint64_t next = call->words[0] + 1;
    if (call->word_count != 1)
        return 1;
    add(&((struct counts *)state)->called);
    return hostcall_reply_words(reply, &next, 1) != HOSTCALL_STATUS_OK;
}

/* A graph that calls a function of the host. */
static hostcall_graph *calls(struct counts *counts) {
    hostcall_graph *graph;
    works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
    works(hostcall_stream_repeated_function(stream, count_call, counts, free_counts, &error));
    works(hostcall_stream_end_capture(stream, &graph, &error));
    return graph;
}

static hostcall_instance *instance_of(hostcall_graph **graph) {
    hostcall_instance *instance;
    works(hostcall_graph_instantiate(*graph, &instance, &error));
    hostcall_graph_free(graph);
    return instance;
}

int main(int argc, char **argv) {
    const uint32_t yes = 1;
    const uint64_t zero = 0;
    uint64_t reached;
    struct counts served = {0, 0}, chosen = {0, 0}, first = {0, 0}, second = {0, 0};
    hostcall_options *options;
    hostcall_image *image;
    hostcall_kernel *turn_kernel;
    hostcall_buffer *turn, *go_on, *both;
    hostcall_condition *condition, *by_function, *missing;
    hostcall_graph *body, *loop, *graph, *bodies[2];
    hostcall_instance *instance;
    hostcall_replay *replay;
    hostcall_panic panic;
    EXPECT(argc == 3);
    /* The service has a number that comes from its name. */
    const hostcall_method method = {(uint32_t)atoi(argv[2]), "Turns::next"};
    const hostcall_service service = {&method, 1, turns, &served, NULL, false};
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_service(options, &service, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_image_load(device, argv[1], &image, &error));
    works(hostcall_image_kernel(image, "graph_turn", &turn_kernel, &error));
    works(hostcall_stream_new(device, &stream, &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, 1, &turn, &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, 2, &both, &error));
    works(hostcall_buffer_part(both, 1, 1, &go_on, &error));

    /* A loop that a word decides about, between other work. */
    hostcall_argument arguments[3] = {{HOSTCALL_KIND_GLOBAL_REF, {0}}, {HOSTCALL_KIND_GLOBAL_REF, {0}}, {HOSTCALL_KIND_U64, {0}}};
    arguments[0].value.buffer = turn;
    arguments[1].value.buffer = go_on;
    arguments[2].value.u64 = NONE;
    fails(hostcall_condition_word(turn, &missing, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "HOSTCALL_KIND_U32");
    fails(hostcall_condition_word(both, &missing, &error), HOSTCALL_STATUS_REFUSED, "four bytes");
    fails(hostcall_condition_call(NULL, &chosen, free_counts, &missing, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`function`");
    EXPECT(missing == NULL && get(&chosen.freed) == 1);
    works(hostcall_condition_word(go_on, &condition, &error));
    hostcall_graph *changed[2];
    for (int i = 0; i < 2; i++) {
        works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
        works(hostcall_kernel_launch(turn_kernel, stream, &one, arguments, 3, NULL, &error));
        works(hostcall_stream_end_capture(stream, &body, &error));
        works(hostcall_graph_while(device, condition, body, &loop, &error));
        works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
        works(hostcall_stream_write(stream, turn, &zero, sizeof zero, &error));
        works(hostcall_stream_fill(stream, both, &yes, sizeof yes, &error));
        works(hostcall_stream_add_graph(stream, loop, &error));
        works(hostcall_stream_end_capture(stream, &changed[i], &error));
        hostcall_graph_free(&loop);
        hostcall_graph_free(&body);
        arguments[2].value.u64 = 3;
    }
    fails(hostcall_graph_while(device, condition, NULL, &loop, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`body`");
    hostcall_condition_free(&condition);
    instance = instance_of(&changed[0]);
    works(hostcall_instance_upload(instance, stream, &error));
    for (uint64_t i = 1; i <= 2; i++) {
        works(hostcall_instance_launch(instance, stream, &replay, &error));
        EXPECT(hostcall_replay_number(replay) == i);
        works(hostcall_replay_wait(replay, UINT64_MAX, &error));
        EXPECT(hostcall_replay_is_done(replay) && get(&served.called) == (int)i * TURNS);
        hostcall_replay_free(&replay);
        works(hostcall_buffer_read(turn, &reached, sizeof reached, &error));
        EXPECT(reached == TURNS);
    }

    /* What goes wrong in a replay is told as of a launch: here the kernel has other arguments now, and panics. */
    works(hostcall_instance_update(instance, changed[1], &error));
    hostcall_graph_free(&changed[1]);
    works(hostcall_instance_launch(instance, stream, &replay, &error));
    for (int i = 0; i < 2; i++) {
        const hostcall_status status =
            i == 0 ? hostcall_replay_wait(replay, UINT64_MAX, &error) : hostcall_stream_synchronize(stream, &error);
        EXPECT(status == HOSTCALL_STATUS_PANICKED && hostcall_error_panic(error, &panic));
        EXPECT(!strcmp(panic.message, "turn 3 panics") && strstr(panic.file, "graphs.rs") && panic.lane == 0);
        EXPECT(strstr(hostcall_error_text(error), "turn 3"));
        hostcall_error_free(&error);
    }
    hostcall_replay_free(&replay);

    /* A replay that is cancelled ends, and says so; one that is given no time as well. */
    bodies[0] = calls(&first);
    fails(hostcall_instance_update(instance, bodies[0], &error), HOSTCALL_STATUS_REFUSED, "node");
    hostcall_instance_free(&instance);
    works(hostcall_condition_call(in_turn, &chosen, NULL, &by_function, &error));
    chosen.called = 1;
    works(hostcall_graph_while(device, by_function, bodies[0], &loop, &error));
    instance = instance_of(&loop);
    for (int i = 0; i < 2; i++) {
        works(hostcall_instance_launch(instance, stream, &replay, &error));
        fails(hostcall_replay_wait(replay, 1000000, &error), HOSTCALL_STATUS_TIMED_OUT, "not ended");
        works(i == 0 ? hostcall_replay_cancel(replay, &error) : hostcall_replay_cancel_after(replay, 0, &error));
        fails(hostcall_replay_wait(replay, UINT64_MAX, &error), i == 0 ? HOSTCALL_STATUS_CANCELLED : HOSTCALL_STATUS_TIMED_OUT,
              "cancelled");
        EXPECT(hostcall_stream_synchronize(stream, &error) == (i == 0 ? HOSTCALL_STATUS_CANCELLED : HOSTCALL_STATUS_TIMED_OUT));
        hostcall_error_free(&error);
        hostcall_replay_free(&replay);
    }
    hostcall_instance_free(&instance);

    /* One body of several, and none. */
    bodies[1] = calls(&second);
    const hostcall_graph *const all[2] = {bodies[0], bodies[1]}, *const none[1] = {NULL};
    fails(hostcall_graph_switch(device, by_function, none, 1, &graph, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "body");
    works(hostcall_graph_switch(device, by_function, all, 2, &graph, &error));
    chosen.called = first.called = 0;
    instance = instance_of(&graph);
    for (int i = 0; i < 3; i++)
        works(hostcall_instance_launch(instance, stream, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(get(&first.called) == 1 && get(&second.called) == 1 && get(&chosen.called) == 3);
    hostcall_instance_free(&instance);
    works(hostcall_graph_if(device, by_function, bodies[0], bodies[1], &graph, &error));
    chosen.called = 0;
    instance = instance_of(&graph);
    works(hostcall_instance_launch(instance, stream, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(get(&first.called) == 1 && get(&second.called) == 2);
    works(hostcall_instance_launch(instance, stream, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(get(&first.called) == 2 && get(&second.called) == 2);

    hostcall_instance_free(&instance);

    /* An instance of a fill takes a fill with any value, whatever its bytes are. */
    for (uint64_t i = 0; i < 4; i++) {
        const uint64_t values[4] = {5, 6, 0, UINT64_MAX};
        works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
        works(hostcall_stream_fill(stream, turn, &values[i], sizeof values[i], &error));
        works(hostcall_stream_end_capture(stream, &graph, &error));
        if (i == 0) {
            instance = instance_of(&graph);
        } else {
            works(hostcall_instance_update(instance, graph, &error));
            hostcall_graph_free(&graph);
        }
        works(hostcall_instance_launch(instance, stream, NULL, &error));
        works(hostcall_stream_synchronize(stream, &error));
        works(hostcall_buffer_read(turn, &reached, sizeof reached, &error));
        EXPECT(reached == values[i]);
    }

    hostcall_instance_free(&instance);
    hostcall_condition_free(&by_function);
    for (int i = 0; i < 2; i++)
        hostcall_graph_free(&bodies[i]);
    hostcall_buffer_free(&turn);
    hostcall_buffer_free(&both);
    hostcall_buffer_free(&go_on);
    hostcall_stream_free(&stream);
    hostcall_kernel_free(&turn_kernel);
    hostcall_image_free(&image);
    hostcall_device_free(&device);
    puts("passed");
    return 0;
}
