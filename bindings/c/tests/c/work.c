/*
 * What else a host gives its device, with a kernel of programs/conformance: a struct, closures, pinned memory, functions
 * of the host, graphs, and a trace.
 */
#include "common.h"

enum { LANES = 96, STEPS = 2, REPLAYS = 5, LIMIT_NS = 1000000000 };

/* The kernel's struct Step. */
struct step {
    uint64_t factor;
    uint16_t counts[2];
    int32_t offset;
};

/* |a, b| a * 10 + b */
static void combine(void *state, const uint64_t *arguments, uint64_t *result) {
    add(&((struct counts *)state)->called);
    *result = arguments[0] * 10 + arguments[1];
}

static hostcall_type *number(hostcall_kind kind) {
    hostcall_type *made;
    works(hostcall_type_number(kind, &made, &error));
    return made;
}

/* Describes the struct. */
static hostcall_type *step_type(void) {
    hostcall_type *fields[3] = {number(HOSTCALL_KIND_U64), NULL, number(HOSTCALL_KIND_I32)}, *count, *made;
    count = number(HOSTCALL_KIND_U16);
    works(hostcall_type_array(count, 2, &fields[1], &error));
    const hostcall_type *const types[3] = {fields[0], fields[1], fields[2]};
    works(hostcall_type_struct("Step", types, 3, &made, &error));
    for (int i = 0; i < 3; i++)
        hostcall_type_free(&fields[i]);
    hostcall_type_free(&count);
    return made;
}

int main(int argc, char **argv) {
    const struct step step = {3, {0, 7}, -2}, steps[STEPS] = {{100, {0, 0}, 0}, {200, {0, 0}, 0}};
    const uint32_t kinds[2] = {HOSTCALL_KIND_U64, HOSTCALL_KIND_U64}, wrong[1] = {HOSTCALL_KIND_SLICE};
    const uint32_t many[13] = {HOSTCALL_KIND_U64};
    const hostcall_grid grid = {{LANES / 32, 1, 1}, {32, 1, 1}, 0};
    struct counts closure_counts = {0, 0}, once_counts = {0, 0}, host = {0, 0}, replayed = {0, 0};
    hostcall_options *options;
    hostcall_tracer *tracer;
    hostcall_device *device;
    hostcall_image *image;
    hostcall_kernel *kernel;
    hostcall_stream *stream;
    hostcall_buffer *step_buffer;
    hostcall_pinned *out;
    hostcall_closure *closure, *once;
    hostcall_graph *graph;
    hostcall_instance *instance;
    hostcall_trace_summary summary;
    hostcall_tracer *points;
    hostcall_point_recording *recording;
    hostcall_device *beside;
    hostcall_metrics *metrics;
    hostcall_metric metric;
    double ended = 0;
    EXPECT(argc == 3);

    fails(hostcall_tracer_new("/nowhere/trace", &tracer, &error), HOSTCALL_STATUS_DEVICE, "cannot write the trace /nowhere/trace");
    works(hostcall_tracer_new(argv[2], &tracer, &error));
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_trace(options, tracer, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_image_load(device, argv[1], &image, &error));
    works(hostcall_image_kernel(image, "of_other_languages", &kernel, &error));
    works(hostcall_stream_new(device, &stream, &error));

    hostcall_type *type = step_type();
    works(hostcall_buffer_alloc_of(device, type, STEPS, &step_buffer, &error));
    works(hostcall_stream_write(stream, step_buffer, steps, sizeof steps, &error));
    fails(hostcall_pinned_alloc(device, HOSTCALL_KIND_BOOL, 1, &out, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 32 is no number's: pass one of");
    works(hostcall_pinned_alloc(device, HOSTCALL_KIND_U64, LANES, &out, &error));
    EXPECT(hostcall_pinned_len(out) == LANES);
    uint64_t *values = hostcall_pinned_data(out);

    fails(hostcall_closure_new(device, wrong, 1, HOSTCALL_KIND_U64, true, combine, &once_counts, free_counts, &closure, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 34 of `arguments[0]` is no number or bool");
    fails(hostcall_closure_new(device, kinds, 2, HOSTCALL_KIND_PLAIN, true, combine, &once_counts, free_counts, &closure, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 33 of `result` is no number or bool");
    fails(hostcall_closure_new(device, many, 13, 0, true, combine, &once_counts, free_counts, &closure, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "at most 12 arguments");
    fails(hostcall_closure_new(device, kinds, 2, HOSTCALL_KIND_U64, true, NULL, &once_counts, free_counts, &closure, &error),
          HOSTCALL_STATUS_INVALID_ARGUMENT, "`function`");
    EXPECT(closure == NULL && get(&once_counts.freed) == 4);
    works(hostcall_closure_new(device, kinds, 2, HOSTCALL_KIND_U64, true, combine, &closure_counts, free_counts, &closure, &error));
    works(hostcall_closure_new(device, kinds, 2, HOSTCALL_KIND_U64, false, combine, &once_counts, free_counts, &once, &error));

    hostcall_type *number;
    works(hostcall_type_number(HOSTCALL_KIND_U32, &number, &error));
    hostcall_argument arguments[6];
    arguments[0].kind = HOSTCALL_KIND_PLAIN;
    arguments[0].value.plain.of = type;
    arguments[0].value.plain.bytes = &step;
    arguments[1].kind = HOSTCALL_KIND_SLICE;
    arguments[1].value.buffer = step_buffer;
    arguments[2].kind = HOSTCALL_KIND_CLOSURE;
    arguments[2].value.closure = closure;
    arguments[3].kind = HOSTCALL_KIND_PINNED_SLICE;
    arguments[3].value.pinned = out;
    arguments[4].kind = HOSTCALL_KIND_SLICE | HOSTCALL_KIND_OPTIONAL;
    arguments[4].value.buffer = step_buffer;
    arguments[5].kind = HOSTCALL_KIND_REF | HOSTCALL_KIND_ABSENT;
    arguments[5].value.of = number;

    /* A launch, and a function of the host behind it. */
    works(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error));
    works(hostcall_stream_host_function(stream, count_call, &host, free_counts, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(get(&closure_counts.called) == LANES && get(&host.called) == 1 && get(&host.freed) == 1);
    for (uint64_t i = 0; i < LANES; i++)
        EXPECT(__atomic_load_n(&values[i], __ATOMIC_RELAXED) == (step.factor * i + 7 - 2 + 10000 * STEPS) * 10 + steps[i % STEPS].factor);
    arguments[4].kind = HOSTCALL_KIND_SLICE | HOSTCALL_KIND_ABSENT;
    arguments[4].value.of = type;
    works(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    for (uint64_t i = 0; i < LANES; i++)
        EXPECT(__atomic_load_n(&values[i], __ATOMIC_RELAXED) == (step.factor * i + 7 - 2) * 10 + steps[i % STEPS].factor);
    arguments[4].kind = HOSTCALL_KIND_CLOSURE | HOSTCALL_KIND_OPTIONAL;
    fails(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 297");
    arguments[4].kind = HOSTCALL_KIND_SLICE | HOSTCALL_KIND_ABSENT;

    /* A closure for one call takes one; other arguments than the kernel's are refused. */
    arguments[2].value.closure = once;
    works(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    size_t answered = 0;
    for (size_t i = 0; i < LANES; i++)
        answered += values[i] != UINT64_MAX;
    EXPECT(answered == 1 && get(&once_counts.called) == 1 && !hostcall_closure_finish(once));
    arguments[2].kind = HOSTCALL_KIND_U64;
    fails(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error), HOSTCALL_STATUS_REFUSED, "other types");
    arguments[2].kind = HOSTCALL_KIND_CLOSURE;
    arguments[2].value.closure = NULL;
    fails(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "closure");

    /* A graph of the same work. */
    fails(hostcall_stream_begin_capture(stream, 9, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "mode 9");
    works(hostcall_stream_begin_capture(stream, HOSTCALL_CAPTURE_MODE_THREAD_LOCAL, &error));
    arguments[2].value.closure = closure;
    works(hostcall_kernel_launch(kernel, stream, &grid, arguments, 6, NULL, &error));
    works(hostcall_stream_repeated_function(stream, count_call, &replayed, free_counts, &error));
    works(hostcall_stream_end_capture(stream, &graph, &error));
    EXPECT(hostcall_graph_len(graph) == 2 && get(&replayed.called) == 0);
    works(hostcall_graph_instantiate(graph, &instance, &error));
    hostcall_graph_free(&graph);
    works(hostcall_instance_upload(instance, stream, &error));
    for (int i = 0; i < REPLAYS; i++)
        works(hostcall_instance_launch(instance, stream, NULL, &error));
    works(hostcall_stream_synchronize(stream, &error));
    EXPECT(get(&replayed.called) == REPLAYS && get(&closure_counts.called) == (2 + REPLAYS) * LANES);
    fails(hostcall_stream_end_capture(stream, &graph, &error), HOSTCALL_STATUS_REFUSED, "does not");
    EXPECT(hostcall_closure_finish(closure));

    /* Points are recorded by the device's tracer already; of a device without one they are when somebody wants it. */
    works(hostcall_tracer_new(NULL, &points, &error));
    fails(hostcall_device_record_points(device, points, "step*", NULL, &recording, &error), HOSTCALL_STATUS_REFUSED, "recorded already");
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_device_open(&options, &beside, &error));
    works(hostcall_device_record_points(beside, points, "step*", "of_other*", &recording, &error));
    works(hostcall_point_recording_pause(recording, &error));
    works(hostcall_point_recording_resume(recording, &error));
    hostcall_point_recording_free(&recording);
    works(hostcall_device_record_points(beside, points, NULL, NULL, &recording, &error));
    hostcall_device_close(beside, NULL);
    fails(hostcall_point_recording_pause(recording, &error), HOSTCALL_STATUS_CLOSED, "closed");
    hostcall_point_recording_free(&recording);
    hostcall_device_free(&beside);
    works(hostcall_tracer_finish(points, LIMIT_NS, NULL, &error));
    hostcall_tracer_free(&points);
    works(hostcall_tracer_finish(tracer, LIMIT_NS, &summary, &error));
    EXPECT(summary.is_whole && summary.calls >= (3 + REPLAYS) * (LANES / 32) && summary.dropped_calls == 0);
    hostcall_tracer_free(&tracer);
    works(hostcall_metrics_read(&metrics, &error));
    for (size_t at = 0; hostcall_metrics_get(metrics, at, &metric); at++)
        if (strcmp(metric.name, "hostcall_launches_total") == 0 && strstr(metric.labels, "result=\"ok\""))
            ended += metric.value;
    EXPECT(ended >= 3 && hostcall_metrics_count(metrics) > 20 && !hostcall_metrics_get(metrics, 1 << 20, &metric));
    EXPECT(strstr(hostcall_metrics_text(metrics), "# TYPE hostcall_launches_total counter\n") != NULL);
    hostcall_metrics_free(&metrics);
    hostcall_instance_free(&instance);
    hostcall_closure_free(&closure);
    hostcall_closure_free(&once);
    hostcall_pinned_free(&out);
    hostcall_buffer_free(&step_buffer);
    hostcall_type_free(&type);
    hostcall_type_free(&number);
    hostcall_stream_free(&stream);
    hostcall_kernel_free(&kernel);
    hostcall_image_free(&image);
    hostcall_device_free(&device);
    /* What the device had goes a moment after it. */
    const struct timespec pause = {0, 1000000};
    while (get(&closure_counts.freed) < 1 || get(&once_counts.freed) < 5 || get(&replayed.freed) < 1)
        nanosleep(&pause, NULL);
    puts("passed");
    return 0;
}
