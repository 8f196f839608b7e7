// A kernel for hip.c.
__attribute__((amdgpu_kernel)) void twice(unsigned *numbers) {
    unsigned lane = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    numbers[lane] *= 2;
}
