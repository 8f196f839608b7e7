/* The header alone, as pedantic C99 and C++. */
#include "amd_hostcall.h"

int main(void) {
    amd_hostcall_consumer_t *consumer = 0;
    amd_hostcall_error_t error = amd_hostcall_destroy_consumer(consumer);
    return error == AMD_HOSTCALL_ERROR_NULLPTR ? 0 : 1;
}
