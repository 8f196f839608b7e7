// A kernel whose arguments are in registers when it starts, if the compiler is asked for that.

__attribute__((amdgpu_kernel)) void run(unsigned long *out, unsigned long a, unsigned b, unsigned c) {
    unsigned id = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    out[id] = a + b * 3 + c + id;
}
