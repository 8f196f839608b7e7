//! What the examples have in common: how they start and end, and the images of their kernels. Each example is a program of its
//! own in `src/bin`; its kernels are in the module of the same name of the package `kernels`.
//!
//! `cargo run --release --bin mandelbrot` runs one on the software device, and `cargo run --release --bin mandelbrot -- cuda:0`
//! on an NVIDIA GPU. `scripts/examples` runs all of them.
#![forbid(unsafe_code)]

use clap::Parser;
use hostcall::Device;
use hostcall::device::DeviceBuilder;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

/// The `main` of an example: reads the command line, and says in a sentence why something failed.
pub fn main<A: Parser>(run: impl FnOnce(&A) -> Result<(), Box<dyn Error>>) -> ExitCode {
    match run(&A::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line as the standard library's macro does. Where nothing takes it, the program ends: quietly if the reader has
/// left, and else with a sentence.
#[macro_export]
macro_rules! println {
    ($($line:tt)*) => { $crate::print_line(::std::format_args!($($line)*)) };
}

#[doc(hidden)]
pub fn print_line(line: std::fmt::Arguments<'_>) {
    let Err(error) = writeln!(std::io::stdout(), "{line}") else { return };
    if error.kind() != std::io::ErrorKind::BrokenPipe {
        eprintln!("error: cannot write to the standard output: {error}");
    }
    std::process::exit(1)
}

// ANCHOR: images
/// The images of the kernels, for `Device::builder(..).images(..)`.
pub fn images() -> &'static [hostcall::device::EmbeddedImage] {
    hostcall::embedded_images!()
}
// ANCHOR_END: images

/// A builder of the device of this name, with the kernels' images.
pub fn device(name: &str) -> DeviceBuilder {
    Device::builder(name).images(images())
}
