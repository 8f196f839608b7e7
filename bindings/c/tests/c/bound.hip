/* Kernels that call a service in Rust by the header that `hostcall bind` makes of it. Each lane writes what it found wrong. */
#include "inventory.h"

extern "C" __global__ void stock(uint64_t context, uint64_t *out, uint32_t lanes) {
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane >= lanes)
        return;
    const uint64_t key = lane + 1;
    const char names[2][7] = {"bolt", "washer"};
    const uint64_t count = lane % 2 ? 6 : 4;
    char name[32];
    uint64_t wrong = 0, name_count = sizeof name;
    struct inventory_option_u64 found;
    struct inventory_result_unit_refused added;
    struct inventory_result_u64_refused moved;
    wrong |= inventory_find(context, key, name, &name_count, &found, 0) != HOSTCALL_CALL_OK || found.is_some || name_count != 0;
    wrong |= (uint64_t)(inventory_add(context, key, 10 + lane, names[lane % 2], count, &added, 0) != HOSTCALL_CALL_OK || !added.is_ok) << 1;
    wrong |= (uint64_t)(inventory_add(context, key, 1, "nut", 3, &added, 0) != HOSTCALL_CALL_OK || added.is_ok) << 2;
    wrong |= (uint64_t)(added.error.tag != INVENTORY_REFUSED_DUPLICATE) << 3;
    name_count = sizeof name;
    wrong |= (uint64_t)(inventory_find(context, key, name, &name_count, &found, 0) != HOSTCALL_CALL_OK || !found.is_some) << 4;
    wrong |= (uint64_t)(found.value != 10 + lane || name_count != count || name[0] != names[lane % 2][0]) << 5;
    wrong |= (uint64_t)(inventory_transfer(context, key, 1u << 30, 1, &moved, 0) != HOSTCALL_CALL_OK || moved.is_ok) << 6;
    wrong |= (uint64_t)(moved.error.tag != INVENTORY_REFUSED_NO_SUCH_ITEM) << 7;
    wrong |= (uint64_t)(inventory_transfer(context, key, key, 1000, &moved, 0) != HOSTCALL_CALL_OK || moved.is_ok) << 8;
    wrong |= (uint64_t)(moved.error.tag != INVENTORY_REFUSED_TOO_FEW || moved.error.too_few != 10 + lane) << 9;
    wrong |= (uint64_t)(inventory_transfer(context, key, key, 3, &moved, 1000000) != HOSTCALL_CALL_OK || !moved.is_ok || moved.value != 7 + lane) << 10;
    out[lane] = wrong;
}

/* The header was made of other types. */
extern "C" __global__ void mismatch(uint64_t context, uint64_t *out, uint32_t lanes) {
    struct inventory_result_u64_refused moved;
    const uint32_t lane = blockIdx.x * blockDim.x + threadIdx.x;
    if (lane < lanes)
        out[lane] = inventory_transfer(context, 1, 2, 3, &moved, 0) != HOSTCALL_CALL_TYPE_MISMATCH;
}
