//! Makes images of the kernels for GPUs a part of each example.

fn main() {
    // For NVIDIA GPUs where a device toolchain is installed; HOSTCALL_TARGETS=sm_90 names others, HOSTCALL_TARGETS=none none.
    hostcall_build::Kernels::new("kernels").embed();
}
