//! The macros that `hostcall_device` re-exports: [`macro@kernel`], [`macro@main`], [`macro@service`],
//! [`macro@Wire`], [`println!`] and its like. What they expand to names everything through `::hostcall_device::__private`.
#![forbid(unsafe_code)]

mod kernel;
mod options;
mod print;
mod service;
#[cfg(test)]
mod tests;
mod wire;

use proc_macro::TokenStream;

fn expanded(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a function a kernel: a constant of the function's name, which the host launches, and the exported
/// entry for the device that the crate is compiled for.
///
/// ```ignore
/// #[kernel]
/// pub fn gather(lane: &Lane, keys: &[u64], out: &[Global<u64>]) {
///     let i = lane.global_index();
///     out[i].set(keys[i]);
/// }
/// ```
///
/// The first parameter is `&Lane`. The others are numbers, `&[T]` or `&T` where `T` is `Plain`; what lanes
/// write goes through `&[Global<T>]`. Options: `name = "text"` (else the function's name),
/// `workgroup_memory = BYTES`, and `max_lanes = N`: launches with larger workgroups are refused, and an NVIDIA GPU,
/// whose registers a workgroup's lanes share, gives each lane more of them (64 where 1024 lanes must fit).
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(kernel::kernel(options.into(), item.into()))
}

/// Makes a function the program's `main`, run by every lane of the grid: a kernel named `main`.
///
/// The function takes nothing or `&Lane` and returns nothing or an `i32`; a value other than 0 ends the
/// program with that exit code. Options: `workgroups = N` and `lanes = N`, the grid when the command line
/// names none (1 and 1 if absent), `workgroup_memory = BYTES` and `max_lanes = N`, as for a [`macro@kernel`].
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(kernel::main(options.into(), item.into()))
}

/// Makes a trait a service: a unit struct with the trait's methods as functions to call on the device, and,
/// on the host, the traits by which it is handled.
///
/// ```ignore
/// #[service]
/// pub trait Inventory {
///     fn lookup(key: u64) -> Result<u64, NotFound>;
///     fn name_of(key: u64, out: &mut [u8]) -> u32;
///     fn insert(key: u64, name: &str, data: &[u8]) -> bool;
/// }
/// ```
///
/// Parameters are `Wire` values, `&str`, `&[u8]`, and at most one `&mut [u8]`, the last, which the handler
/// fills; results are `Wire` values. For each method `m` the struct has `Inventory::m(..)`, which gives
/// `Result<R, CallError>`, or `Result<(R, usize), CallError>` with the bytes filled. A method of values only
/// has `start_m`, which gives a `Pending`, and without result `post_m`, which does not wait at all.
/// `Inventory::within_us(time)` has the same methods with a deadline.
///
/// On the host, `Inventory::serve` takes an `InventoryHandler` and `Inventory::serve_async` an
/// `InventoryAsyncHandler`; their methods return `Result<R, CallError>`.
///
/// Options: `number = N` (256 to 32767; else derived from the name). Methods count up from it; there are 16
/// at most.
#[proc_macro_attribute]
pub fn service(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(service::service(options.into(), item.into()))
}

/// Lets a struct or enum travel as words. Its fields must be `Wire` themselves; an enum takes one word for
/// the variant and as many as its largest variant needs.
#[proc_macro_derive(Wire)]
pub fn wire(item: TokenStream) -> TokenStream {
    expanded(syn::parse(item).and_then(wire::derive))
}

/// Prints a line to the host's standard output, as the standard library's macro does.
///
/// Nothing is formatted on the device: the text is sent once, the arguments each time, and a line of at most
/// five numbers is posted without waiting. Arguments are integers up to 64 bits, floats, `bool`, `char`,
/// `&str`, raw pointers (`{:p}`), and references to these; 12 at most. The text must be a literal. A line is
/// lost if the launch was cancelled.
#[proc_macro]
pub fn println(line: TokenStream) -> TokenStream {
    expanded(print::print(line.into(), print::Stream::Stdout, "\n"))
}

/// [`println!`] without the end of line.
#[proc_macro]
pub fn print(line: TokenStream) -> TokenStream {
    expanded(print::print(line.into(), print::Stream::Stdout, ""))
}

/// [`println!`] to the host's standard error.
#[proc_macro]
pub fn eprintln(line: TokenStream) -> TokenStream {
    expanded(print::print(line.into(), print::Stream::Stderr, "\n"))
}

/// [`print!`] to the host's standard error.
#[proc_macro]
pub fn eprint(line: TokenStream) -> TokenStream {
    expanded(print::print(line.into(), print::Stream::Stderr, ""))
}
