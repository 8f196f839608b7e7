/* What the functions of hostcall.h refuse and tell, on the software device with the kernels of programs/inventory. */
#include "common.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called, go_on, freed;
static char printed[4096];

static void count_freed(void *state) {
    pthread_mutex_lock(&lock);
    ++*(int *)state;
    pthread_mutex_unlock(&lock);
}

static void output(void *state, int stream, const char *text, size_t len) {
    pthread_mutex_lock(&lock);
    EXPECT(stream == 1 && state == printed);
    strncat(printed, text, len);
    pthread_mutex_unlock(&lock);
}

/* Says of each key that it is there with amount 7, and waits first for key 99. */
static int32_t find(void *state, const hostcall_call *call, hostcall_reply *reply) {
    const uint64_t result[2] = {1, 7};
    hostcall_place place;
    EXPECT(state == &freed && call->method == 0 && call->word_count == 1 && !call->is_post && call->launch != 0);
    EXPECT(hostcall_caller_place(call->caller, &place) && strcmp(place.kernel, "stock") == 0);
    EXPECT(place.workgroup[0] == call->words[0] / 100 && place.wave == 0 && call->lane == 0);
    if (call->words[0] == 98)
        return -5;
    pthread_mutex_lock(&lock);
    called++;
    pthread_cond_broadcast(&changed);
    while (call->words[0] == 99 && !go_on)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    EXPECT(hostcall_reply_bytes(reply, (const uint8_t *)"thing", 5) == HOSTCALL_STATUS_OK);
    EXPECT(hostcall_reply_bytes(reply, NULL, call->reply_capacity) == HOSTCALL_STATUS_INVALID_ARGUMENT);
    return hostcall_reply_words(reply, result, 2) != HOSTCALL_STATUS_OK;
}

static hostcall_argument arguments[3];

static hostcall_status launch(const hostcall_kernel *kernel, const hostcall_stream *stream, uint32_t workgroups,
                              hostcall_launch **made) {
    const hostcall_grid grid = {{workgroups, 1, 1}, {1, 1, 1}, 0};
    return hostcall_kernel_launch(kernel, stream, &grid, arguments, 3, made, &error);
}

int main(int argc, char **argv) {
    hostcall_options *options;
    hostcall_device *device;
    hostcall_image *image;
    hostcall_kernel *stock, *missing;
    hostcall_stream *stream;
    hostcall_event *before, *after;
    hostcall_buffer *keys, *outcomes, *part, *pairs;
    hostcall_launch *launched;
    hostcall_registration *registration;
    hostcall_statistics statistics;
    hostcall_outcome outcome;
    hostcall_panic panic;
    EXPECT(argc == 2);

    /* Devices are listed; what cannot be opened is said. */
    hostcall_device_list *list;
    hostcall_device_info info;
    works(hostcall_devices(&list, &error));
    EXPECT(hostcall_device_list_get(list, 0, &info) && !strcmp(info.name, "cpu") && !info.unavailable);
    EXPECT(!hostcall_device_list_get(list, hostcall_device_list_count(list), &info));
    hostcall_device_list_free(&list);
    works(hostcall_options_new("nothing", &options, &error));
    fails(hostcall_device_open(&options, &device, &error), HOSTCALL_STATUS_NO_DEVICE, "no device `nothing`; `hostcall_devices` lists");
    EXPECT(options == NULL && device == NULL);
    fails(hostcall_device_open(&options, &device, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`options` is NULL");
    fails(hostcall_options_new(NULL, &options, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`device_name` is NULL");
    fails(hostcall_options_new("cpu", NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`options` is NULL");
    EXPECT(hostcall_options_new(NULL, &options, NULL) == HOSTCALL_STATUS_INVALID_ARGUMENT);

    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_set(options, HOSTCALL_SETTING_DEVICE_THREADS, 1 << 20, &error));
    fails(hostcall_device_open(&options, &device, &error), HOSTCALL_STATUS_NO_DEVICE, "at most 4096 threads");

    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_set(options, HOSTCALL_SETTING_WAVE_LANES, 64, &error));
    works(hostcall_options_set(options, HOSTCALL_SETTING_HANDLER_THREADS, 0, &error));
    fails(hostcall_options_set(options, 77, 1, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "no setting 77");
    fails(hostcall_options_output(options, NULL, &freed, count_freed, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`write`");
    EXPECT(freed == 1);
    works(hostcall_options_output(options, output, printed, NULL, &error));
    fails(hostcall_options_descriptors(options, -1, 12345, -1, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "12345");
    works(hostcall_options_argument(options, "checks", &error));
    fails(hostcall_options_variable(options, "", "value", &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`name` is empty");
    fails(hostcall_options_variable(options, "NAME=value", "", &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`name` is empty or has");
    fails(hostcall_options_set(options, HOSTCALL_SETTING_SLOTS, UINT64_MAX, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "at most 4294967295");
    works(hostcall_options_variable(options, "NAME", "value", &error));

    /* Two services of one number. */
    hostcall_options *twice = NULL;
    hostcall_device *refused = NULL;
    const hostcall_method same = {512, "Inventory::find"};
    const hostcall_service of_one_number = {&same, 1, find, NULL, NULL, false};
    works(hostcall_options_new("cpu", &twice, &error));
    works(hostcall_options_service(twice, &of_one_number, &error));
    works(hostcall_options_service(twice, &of_one_number, &error));
    fails(hostcall_device_open(&twice, &refused, &error), HOSTCALL_STATUS_REFUSED, "registered twice");
    EXPECT(!twice && !refused);

    works(hostcall_device_open(&options, &device, &error));
    EXPECT(!strcmp(hostcall_device_target(device), "cpu") && hostcall_device_wave_lanes(device) == 64);

    /* Services come and go. Their state is freed once, also when they are refused. */
    const hostcall_method method = {512, "Inventory::find"}, large = {UINT64_C(1) << 36 | 512, "Inventory::find"},
                          none = {0, "Inventory::find"};
    hostcall_service service = {&method, 1, find, &freed, count_freed, false};
    works(hostcall_device_register(device, &service, &registration, &error));
    fails(hostcall_device_register(device, &service, NULL, &error), HOSTCALL_STATUS_REFUSED, "registered twice");
    service.methods = &large;
    fails(hostcall_device_register(device, &service, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "pass 1 to 65535, or HOSTCALL_METHOD");
    service.methods = &none;
    fails(hostcall_device_register(device, &service, NULL, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "has the number 0");
    EXPECT(freed == 4);

    fails(hostcall_image_load(device, "/nowhere", &image, &error), HOSTCALL_STATUS_IMAGE, "/nowhere");
    fails(hostcall_image_load_bytes(device, (const uint8_t *)"none", 4, &image, &error), HOSTCALL_STATUS_IMAGE, "the image");
    works(hostcall_image_load(device, argv[1], &image, &error));
    EXPECT(hostcall_image_kernel_count(image) == 2 && !hostcall_image_kernel_name(image, 2));
    fails(hostcall_image_kernel(image, "none", &missing, &error), HOSTCALL_STATUS_IMAGE, "no kernel `none`");
    works(hostcall_image_kernel(image, "stock", &stock, &error));
    works(hostcall_stream_new(device, &stream, &error));

    /* Buffers and their types. */
    const uint64_t values[3] = {1, 101, 201};
    uint32_t outcome_values[3];
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U64, 3, &keys, &error));
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U32, 3, &outcomes, &error));
    fails(hostcall_buffer_alloc(device, HOSTCALL_KIND_SLICE, 3, &part, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "kind 34");
    fails(hostcall_buffer_part(keys, 2, 2, &part, &error), HOSTCALL_STATUS_REFUSED, "2 values from value 2 on do not lie in a buffer of 3");
    fails(hostcall_buffer_part(keys, SIZE_MAX, SIZE_MAX, &part, &error), HOSTCALL_STATUS_REFUSED, "do not lie");
    works(hostcall_buffer_part(outcomes, 0, 1, &part, &error));
    EXPECT(hostcall_buffer_len(part) == 1 && hostcall_buffer_len(keys) == 3);
    fails(hostcall_buffer_write(keys, values, 23, &error), HOSTCALL_STATUS_REFUSED, "23 bytes were given for a buffer of 3 U64 (24 bytes)");
    fails(hostcall_buffer_read(keys, outcome_values, 8, &error), HOSTCALL_STATUS_REFUSED, "8 bytes were given for a buffer of 3 U64 (24 bytes)");
    fails(hostcall_stream_write(stream, keys, values, 8, &error), HOSTCALL_STATUS_REFUSED, "8 bytes were given for a buffer of 3 U64 (24 bytes)");
    fails(hostcall_stream_copy(stream, keys, outcomes, &error), HOSTCALL_STATUS_REFUSED, "a buffer of 3 U32 (12 bytes) does not fit a buffer of 3 U64 (24 bytes)");
    works(hostcall_buffer_write(keys, values, sizeof values, &error));
    hostcall_type *fields[2], *pair;
    works(hostcall_type_number(HOSTCALL_KIND_U32, &fields[0], &error));
    works(hostcall_type_number(HOSTCALL_KIND_U64, &fields[1], &error));
    const hostcall_type *const padded[2] = {fields[0], fields[1]};
    fails(hostcall_type_struct("Pair", padded, 2, &pair, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "padding");
    works(hostcall_type_array(fields[0], 2, &pair, &error));
    works(hostcall_buffer_alloc_of(device, pair, 2, &pairs, &error));
    const uint32_t one_pair[2] = {5, 6};
    uint32_t both[4];
    works(hostcall_stream_fill(stream, pairs, one_pair, sizeof one_pair, &error));
    works(hostcall_buffer_read(pairs, both, sizeof both, &error));
    EXPECT(both[0] == 5 && both[1] == 6 && both[2] == 5 && both[3] == 6);

    /* A launch, its events, its prints and its service. */
    arguments[0].kind = HOSTCALL_KIND_SLICE;
    arguments[0].value.buffer = keys;
    arguments[1].kind = HOSTCALL_KIND_U64;
    arguments[1].value.u64 = 10;
    arguments[2].kind = HOSTCALL_KIND_GLOBAL_SLICE;
    arguments[2].value.buffer = outcomes;
    works(hostcall_stream_record(stream, &before, &error));
    works(launch(stock, stream, 3, &launched));
    works(hostcall_stream_record(stream, &after, &error));
    works(hostcall_launch_wait(launched, UINT64_MAX, &outcome, &error));
    works(hostcall_event_wait(after, UINT64_MAX, &error));
    EXPECT(hostcall_launch_is_done(launched) && hostcall_event_is_done(after) && !outcome.has_exit_code);
    uint64_t elapsed_ns;
    works(hostcall_event_elapsed(after, before, &elapsed_ns, &error));
    EXPECT(elapsed_ns != UINT64_MAX);
    works(hostcall_buffer_read(outcomes, outcome_values, sizeof outcome_values, &error));
    EXPECT(called == 3 && outcome_values[0] == 1 && outcome_values[2] == 1);
    works(hostcall_device_flush(device, &error));
    EXPECT(strstr(printed, "found 7 of item 201, thing\n"));
    works(hostcall_device_statistics(device, &statistics, &error));
    EXPECT(statistics.packets >= 3 && statistics.broken_slots == 0);
    hostcall_launch_free(&launched);

    /* What does not fit is refused: types, kinds, missing buffers. */
    arguments[1].kind = HOSTCALL_KIND_I64;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_REFUSED, "argument 1 (the first is 0) is i64, and the kernel takes u64");
    arguments[1].kind = HOSTCALL_KIND_BOOL;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_REFUSED, "argument 1 (the first is 0) is bool, and the kernel takes u64");
    const uint64_t amount = 10;
    arguments[1].kind = HOSTCALL_KIND_PLAIN;
    arguments[1].value.plain.of = pair;
    arguments[1].value.plain.bytes = &amount;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_REFUSED, "argument 1 (the first is 0) is of another type, and the kernel takes u64");
    arguments[1].value.plain.of = fields[1];
    works(launch(stock, stream, 3, NULL));
    works(hostcall_stream_synchronize(stream, &error));
    arguments[1].kind = 99;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_INVALID_ARGUMENT, "argument 1 (the first is 0): there is no kind 99 of arguments: pass a hostcall_kind");
    arguments[1].kind = UINT32_MAX;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_INVALID_ARGUMENT, "there is no kind 4294967295 of arguments");
    arguments[1].kind = HOSTCALL_KIND_U64;
    arguments[1].value.u64 = amount;
    arguments[0].value.buffer = NULL;
    fails(launch(stock, stream, 3, NULL), HOSTCALL_STATUS_INVALID_ARGUMENT, "argument 0 (the first is 0): `value.buffer` is NULL");
    arguments[0].value.buffer = keys;
    fails(launch(stock, stream, 0, NULL), HOSTCALL_STATUS_REFUSED, "at least one workgroup");

    /* A panic: two of three lanes are past the end of a shorter buffer. */
    arguments[2].value.buffer = part;
    works(launch(stock, stream, 2, NULL));
    EXPECT(hostcall_stream_synchronize(stream, &error) == HOSTCALL_STATUS_PANICKED);
    EXPECT(hostcall_error_panic(error, &panic) && panic.workgroup[0] == 1 && panic.lane == 0 && panic.line > 0);
    EXPECT(strstr(panic.message, "index out of bounds") && strstr(panic.file, "lib.rs"));
    hostcall_error_free(&error);
    arguments[2].value.buffer = outcomes;

    /* A handler's own failure is the kernel's to deal with. */
    const uint64_t fails_key[3] = {98, 101, 201}, waits_key[3] = {99, 101, 201};
    works(hostcall_buffer_write(keys, fails_key, sizeof fails_key, &error));
    works(launch(stock, stream, 1, NULL));
    works(hostcall_stream_synchronize(stream, &error));
    works(hostcall_buffer_read(outcomes, outcome_values, sizeof outcome_values, &error));
    EXPECT(outcome_values[0] == 7);

    /* Limits and a cancelled launch, while its handler waits. */
    works(hostcall_buffer_write(keys, waits_key, sizeof waits_key, &error));
    const int called_before = called;
    works(launch(stock, stream, 1, &launched));
    pthread_mutex_lock(&lock);
    while (called == called_before)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    fails(hostcall_stream_synchronize_for(stream, 1000, &error), HOSTCALL_STATUS_TIMED_OUT, "not ended");
    fails(hostcall_launch_wait(launched, 1000, NULL, &error), HOSTCALL_STATUS_TIMED_OUT, "not ended");
    works(hostcall_launch_cancel(launched, &error));
    fails(hostcall_launch_wait(launched, UINT64_MAX, NULL, &error), HOSTCALL_STATUS_CANCELLED, "cancelled");
    fails(hostcall_stream_synchronize(stream, &error), HOSTCALL_STATUS_CANCELLED, "cancelled");
    pthread_mutex_lock(&lock);
    go_on = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);

    /* Without the service the kernel's calls fail, and the device ends its work. */
    hostcall_registration_remove(&registration);
    works(launch(stock, stream, 1, NULL));
    works(hostcall_stream_synchronize(stream, &error));
    works(hostcall_device_close(device, &error));
    fails(launch(stock, stream, 1, NULL), HOSTCALL_STATUS_CLOSED, "closed");
    fails(hostcall_stream_fill(stream, outcomes, &outcome_values[0], sizeof outcome_values[0], &error), HOSTCALL_STATUS_CLOSED, "closed");
    hostcall_buffer *late = NULL;
    works(hostcall_buffer_alloc(device, HOSTCALL_KIND_U8, 1, &late, &error));
    works(hostcall_buffer_write(late, "x", 1, &error));
    hostcall_buffer_free(&late);

    hostcall_launch_free(&launched);
    hostcall_event_free(&before);
    hostcall_event_free(&after);
    hostcall_buffer_free(&keys);
    hostcall_buffer_free(&keys);
    hostcall_buffer_free(&outcomes);
    hostcall_buffer_free(&part);
    hostcall_buffer_free(&pairs);
    hostcall_buffer_free(NULL);
    for (int i = 0; i < 2; i++)
        hostcall_type_free(&fields[i]);
    hostcall_type_free(&pair);
    hostcall_stream_free(&stream);
    hostcall_kernel_free(&stock);
    hostcall_image_free(&image);
    hostcall_device_free(&device);
    fails(hostcall_stream_synchronize(stream, &error), HOSTCALL_STATUS_INVALID_ARGUMENT, "`stream` is NULL");
    puts("passed");
    return 0;
}
