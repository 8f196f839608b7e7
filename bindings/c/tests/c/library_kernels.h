/* A kernel that links hostcall_library.c and includes no header of it, as compilers of other languages do. */
#if defined(__CUDACC__) || defined(__CUDA__) || defined(__HIP__)
#define LINKED extern "C" __attribute__((device))
#define LINKED_KERNEL extern "C" __attribute__((global))
#define LINKED_LANE (blockIdx.x * blockDim.x + threadIdx.x)
#else
#define LINKED extern "C"
#define LINKED_KERNEL static
#define LINKED_LANE lane_of_all
#endif

LINKED long hostcall_call0(long context, long method, int mask, long otherwise);
LINKED long hostcall_call1(long context, long method, int mask, long otherwise, long a);
LINKED long hostcall_call4(long context, long method, int mask, long otherwise, long a, long b, long c, long d);
LINKED int hostcall_post0(long context, long method, int mask);
LINKED int hostcall_post3(long context, long method, int mask, long a, long b, long c);
LINKED int hostcall_check_number(long context, int mask, int condition, int number);

/* Lanes from `lanes` on are left out. `number` is that of a check. */
LINKED_KERNEL void linked(unsigned long context, unsigned long *out, unsigned lanes, unsigned number) {
    const unsigned lane = LINKED_LANE;
    const int mask = lane < lanes, third = mask && lane % 3 == 0, condition = lane % 10 != 3;
    unsigned long wrong = hostcall_call1(context, 700, mask, -5, lane) != (mask ? 3 * (long)lane + 1 : -5);
    wrong |= (hostcall_call4(context, 701, third, -6, lane, -1, 2, 3) != (third ? (long)lane + 4 : -6)) << 1;
    wrong |= (hostcall_call0(context, 999, mask, -7) != -7) << 2;
    wrong |= (hostcall_post0(context, 702, third) != third) << 3;
    wrong |= (hostcall_post3(context, 702, mask, lane, 1, 2) != mask) << 4;
    wrong |= (hostcall_check_number(context, mask, condition, number) != condition) << 5;
    wrong |= (hostcall_call1(0, 700, mask, -8, lane) != -8) << 6;
    if (mask)
        out[lane] = wrong;
}
