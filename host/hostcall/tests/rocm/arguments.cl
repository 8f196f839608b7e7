/* Kernels that ask more of a launch than their arguments' bytes. */
kernel void takes_local(global int *out, local int *memory) {
    memory[get_local_id(0)] = get_global_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    out[get_global_id(0)] = memory[get_local_size(0) - 1 - get_local_id(0)];
}

kernel void takes_image(global float4 *out, read_only image2d_t image, sampler_t sampler) {
    int2 at = {get_global_id(0), get_global_id(1)};
    out[get_global_id(0)] = read_imagef(image, sampler, at);
}

kernel __attribute__((reqd_work_group_size(64, 2, 1))) void takes_its_size(global int *out) {
    out[get_global_id(0) + get_global_size(0) * get_global_id(1)] = 1;
}
