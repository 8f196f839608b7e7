//! Compiles the demo's kernel, which is C, so that the demo needs no compiler where the wheel is installed.

fn main() {
    let (kernel, include) = ("kernels/newton.c", "../c/include");
    println!("cargo::rerun-if-changed={kernel}");
    println!("cargo::rerun-if-changed={include}/hostcall_device.h");
    cc::Build::new().file(kernel).include(include).opt_level(2).compile("hostcall_demo");
}
