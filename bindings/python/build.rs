//! Compiles kernels that are C, the demo's and the one of JAX's calls on `cpu`, so that they need no compiler where the wheel is
//! installed.

fn main() {
    let (kernels, include) = (["kernels/newton.c", "kernels/rows.c"], "../c/include");
    for kernel in kernels {
        println!("cargo::rerun-if-changed={kernel}");
    }
    println!("cargo::rerun-if-changed={include}/hostcall_device.h");
    cc::Build::new().files(kernels).include(include).opt_level(2).compile("hostcall_kernels");
}
