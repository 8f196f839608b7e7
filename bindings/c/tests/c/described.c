/* A host of the service that prices.toml describes: `described` prints the status of each of the kernel's calls. */
#include "common.h"
#include "prices.h"

/* Of described_kernel.cpp. */
void shop(uint64_t context, uint64_t statuses[4], double *price, char label[16]);

static const hostcall_method methods[] = {PRICES_METHODS};

static uint64_t sold;

static int32_t serve(void *state, const hostcall_call *call, hostcall_reply *reply) {
    uint64_t words[2] = {1, 0};
    const double price = 1.5 * (double)call->words[0];
    (void)state;
    switch (methods[call->method].number) {
    case PRICES_OF:
        memcpy(&words[1], &price, sizeof price);
        return hostcall_reply_words(reply, words, 2) != HOSTCALL_STATUS_OK;
    case PRICES_LABEL:
        return hostcall_reply_bytes(reply, call->bytes, call->byte_count) != HOSTCALL_STATUS_OK;
    case PRICES_SOLD:
        __atomic_fetch_add(&sold, call->words[1], __ATOMIC_RELAXED);
        return 0;
    default:
        return 1;
    }
}

int main(void) {
    const hostcall_service service = {methods, 3, serve, NULL, NULL, true};
    hostcall_options *options;
    hostcall_device *device;
    hostcall_context *context;
    uint64_t statuses[4];
    char label[16];
    double price = 0;
    works(hostcall_options_new("cpu", &options, &error));
    works(hostcall_options_service(options, &service, &error));
    works(hostcall_device_open(&options, &device, &error));
    works(hostcall_context_new(device, "shop", &context, &error));
    shop(hostcall_context_address(context), statuses, &price, label);
    works(hostcall_context_flush(context, &error));
    for (int i = 0; i < 4; i++)
        printf("%d ", (int)statuses[i]);
    printf("%.2f %s %d\n", price, label, (int)sold);
    hostcall_context_free(&context);
    works(hostcall_device_close(device, &error));
    hostcall_device_free(&device);
    return 0;
}
