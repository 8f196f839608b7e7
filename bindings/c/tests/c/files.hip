/* Kernels that work with files of the host, and with memory that they ask for. Each lane writes what it found wrong. */
#include "hostcall_services.h"

extern "C" __global__ void files(uint64_t context, uint64_t *out, uint32_t lanes) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes)
        return;
    char path[] = "lane-00.txt", line[] = "This is of lane 00.\n", read[80], name[16];
    uint64_t file = 0, written = 0, count = sizeof read, memory = 0, position = 0, wrong = 0, status;
    int64_t now = 0;
    path[5] = line[16] = (char)('0' + lane / 10);
    path[6] = line[17] = (char)('0' + lane % 10);

    status = hostcall_files_open(context, path, 11, HOSTCALL_OPEN_READ, &file, 0);
    wrong |= (uint64_t)((status & 0xff) != HOSTCALL_CALL_FAILED || hostcall_code(status) != HOSTCALL_IO_NOT_FOUND);
    wrong |= (uint64_t)(hostcall_files_open(context, path, 11, HOSTCALL_OPEN_READ | HOSTCALL_OPEN_WRITE | HOSTCALL_OPEN_CREATE, &file, 0) != HOSTCALL_CALL_OK) << 1;
    for (uint32_t i = 0; i < lane; i++)
        wrong |= (uint64_t)(hostcall_files_write(context, file, line, 20, &written, 0) != HOSTCALL_CALL_OK || written != 20) << 2;
    wrong |= (uint64_t)(hostcall_files_seek(context, file, 0, lane / 2 * 20, &position, 0) != HOSTCALL_CALL_OK || position != lane / 2 * 20) << 3;
    wrong |= (uint64_t)(hostcall_files_read(context, file, read, &count, 0) != HOSTCALL_CALL_OK) << 4;
    const uint64_t left = (lane - lane / 2) * 20;
    wrong |= (uint64_t)(count != (left < sizeof read ? left : sizeof read)) << 5;
    for (uint64_t i = 0; i < count; i++)
        wrong |= (uint64_t)(read[i] != line[i % 20]) << 6;
    wrong |= (uint64_t)(hostcall_files_close(context, file, 0) != HOSTCALL_CALL_OK) << 7;
    wrong |= (uint64_t)(hostcall_code(hostcall_files_close(context, file, 0)) != HOSTCALL_IO_CLOSED) << 8;
    wrong |= (uint64_t)(hostcall_code(hostcall_files_remove(context, "../outside", 10, 0)) != HOSTCALL_IO_OUTSIDE_DIR) << 9;

    wrong |= (uint64_t)(hostcall_heap_allocate(context, 256, 64, &memory, 0) != HOSTCALL_CALL_OK || memory == 0 || memory % 64) << 10;
    if (memory) {
        uint64_t *words = (uint64_t *)memory;
        for (uint32_t i = 0; i < 32; i++)
            words[i] = i ^ lane;
        for (uint32_t i = 0; i < 32; i++)
            wrong |= (uint64_t)(words[i] != (i ^ lane)) << 11;
        wrong |= (uint64_t)(hostcall_heap_free(context, memory, 0) != HOSTCALL_CALL_OK) << 12;
    }
    struct hostcall_environment_option_u64 length;
    uint64_t name_count = sizeof name;
    wrong |= (uint64_t)(hostcall_environment_variable(context, "WHAT", 4, name, &name_count, &length, 0) != HOSTCALL_CALL_OK || !length.is_some || length.value != 15) << 13;
    wrong |= (uint64_t)(name_count != 15 || name[0] != 'f' || name[14] != 's') << 14;
    wrong |= (uint64_t)(hostcall_clock_wall_ns(context, &now, 0) != HOSTCALL_CALL_OK || now < INT64_C(1700000000000000000)) << 15;
    out[lane] = wrong;
}
