// The end of a generated program: runs the phases that `PHASES` lists.
#ifdef __AMDGCN__
static void barrier(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, GROUP))) void run(GLOBAL u64 *out) {
    u32 lane = __builtin_amdgcn_workgroup_id_x() * GROUP + __builtin_amdgcn_workitem_id_x();
    lane_t state;
    start(&state, lane);
    barrier();
#define PHASE(phase) phase(&state, lane); barrier();
    PHASES
    __scoped_atomic_fetch_add(out, end(&state, lane), RELAXED, __MEMORY_SCOPE_SYSTEM);
}
#else
int printf(const char *, ...);
int main(void) {
    static lane_t states[LANES];
    u64 sum = 0;
    for (u32 first = 0; first < LANES; first += GROUP) {
        for (u32 lane = first; lane < first + GROUP; lane++)
            start(&states[lane], lane);
#define PHASE(phase) for (u32 lane = first; lane < first + GROUP; lane++) phase(&states[lane], lane);
        PHASES
        for (u32 lane = first; lane < first + GROUP; lane++)
            sum += end(&states[lane], lane);
    }
    printf("%016lx\n", sum);
    return 0;
}
#endif
