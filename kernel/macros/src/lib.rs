//! The macros that kernels and services are written with. Packages use them through `hostcall`, or through
//! `hostcall-device` where there is only a device. What a macro cannot take it refuses with a sentence at the
//! place in the source. Begin at [`macro@kernel`] and [`macro@service`].
//!
//! ```
//! use hostcall_device::{Global, Lane, kernel, println, service};
//!
//! #[service]
//! trait Prices {
//!     fn of(item: u32) -> Option<u64>;
//! }
//!
//! #[kernel]
//! fn total(lane: &Lane, items: &[u32], out: &[Global<u64>]) {
//!     let i = lane.global_id();
//!     match Prices::of(items[i]) {
//!         Ok(Some(price)) => out[i].set(price),
//!         Ok(None) => println!("item {} has no price", items[i]),
//!         Err(_) => println!("the host did not answer"),
//!     }
//! }
//! ```
//!
//! # How expansions find hostcall
//! An expansion names everything through the package's own dependency: `hostcall-device` if it has that, else
//! `hostcall`, also when `Cargo.toml` gives it another name. The name is looked up there, because Rust has no
//! `$crate` for these macros. Where it cannot be found, in a macro of another library that expands to one of
//! these, say it: `#[kernel(crate = $crate::hostcall)]`, `#[service(crate = ..)]`, `#[hostcall(crate = ..)]`
//! beside a derive, and `println!(crate = .., "text")`.
//!
//! # Names
//! No name of a user's meets one of an expansion, whatever kernels, parameters, services, methods and types
//! are called, save that names which begin with `__hostcall` are the expansions' own.
#![forbid(unsafe_code)]

mod kernel;
mod lints;
mod names;
mod options;
mod plain;
mod print;
mod service;
mod symbol;
#[cfg(test)]
mod tests;
mod trace;
mod wire;

use proc_macro::TokenStream;

fn expanded(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// What a function becomes, or the error and what is kept of it.
fn expanded_function(
    expand: impl FnOnce(
        proc_macro2::TokenStream,
        proc_macro2::TokenStream,
    ) -> syn::Result<proc_macro2::TokenStream>,
    options: TokenStream,
    item: TokenStream,
) -> TokenStream {
    let item = proc_macro2::TokenStream::from(item);
    let result = expand(options.into(), item.clone());
    let with_kept = |error: syn::Error| {
        let mut all = error.into_compile_error();
        all.extend(kernel::kept(item));
        all
    };
    result.unwrap_or_else(with_kept).into()
}

/// Makes a function a kernel: a constant of the function's name, which a host launches, and the exported entry for the
/// device that the crate is compiled for.
///
#[cfg_attr(not(doctest), doc = include_str!("examples/kernel.md"))]
///
/// # Parameters
/// The first is `lane: &Lane`. Any number of others follow; more than 32 are passed by `hostcall::arguments!`:
///
/// | parameter | the host passes | |
/// |---|---|---|
/// | `x: f32`, any number, `bool` | the value | |
/// | `x: T`, a struct with `#[derive(Plain, Clone, Copy)]` | the value | |
/// | `x: [T; N]`, `x: (T, U)` of these | the value | tuples of up to 8 |
/// | `x: &[T]` where `T` is `Plain` | a buffer of `T` | nobody writes it in the launch |
/// | `x: &T` | a buffer of at least one `T` | its first value |
/// | `x: &[Global<T>]` | a buffer of `T` or `Global<T>` | what lanes write |
/// | `x: &[AtomicU64]`, or of other atomics of `core` | a buffer of these, from `alloc_zeroed` | the same, of the system's scope |
/// | `x: Option<&[T]>`, of any reference above | `Some(&buffer)`, or `NoBuffer` | the launch may do without |
/// | `x: HostcallRef<A, R>` | a `Hostcall<A, R>` | a closure of the host |
///
/// What the references refer to lives until the launch has ended and no longer, so parameters have no lifetimes of their
/// own: `&'static [T]` is refused. A kernel may be generic over lifetimes.
///
/// # Generic kernels
/// A kernel with parameters for types or constants says its instances, each a constant that is launched and a kernel of the
/// image, of its own name. The function stays one that kernels can call. Options hold for all instances.
///
#[cfg_attr(not(doctest), doc = include_str!("examples/instances.md"))]
///
/// Code of a host that is generic itself finds the instance by a trait of its own: `trait Number { const SQUARE:
/// Kernel<(Slice<Global<Self>>,)>; }`. What a parameter's type has of another trait is written in full, `<T as Trait>::Item`.
///
/// # What it makes
/// `apply` above becomes
///
/// ```text
/// const apply: Kernel<(Line, bool, Slice<f32>, Slice<Global<f32>>)> = /* the function is in here */;
/// ```
///
/// An `unsafe fn` becomes an `UnsafeKernel`, which [`assume_safe`] makes one that can be launched. Images export the
/// kernel under its name; where several kernels of an image have the same name, they are told apart by their paths
/// (`crate::module::apply`).
///
/// As any constant's, the kernel's name cannot be that of a variable in the same module.
///
/// # Options
/// - `name = "text"`: the kernel's name in images, else the function's.
/// - `instances(name = <arguments>, ..)` of a generic kernel.
/// - `workgroup_memory = BYTES` of memory that each workgroup shares, for `Lane::workgroup_memory`. Typed arrays in it are
///   parameters marked `#[workgroup]`, which a launch does not pass: `#[workgroup] tile: &[Shared<f32>; 256]`.
/// - `max_lanes = N`: launches with larger workgroups are refused, and an NVIDIA GPU, whose registers a workgroup's lanes
///   share, gives each lane more of them (64 where 1024 lanes must fit).
/// - `crate = path`: where hostcall is, see [the crate's page](crate#how-expansions-find-hostcall).
///
/// [`assume_safe`]: https://docs.rs/hostcall-device/latest/hostcall_device/kernel/struct.UnsafeKernel.html
#[proc_macro_attribute]
pub fn kernel(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded_function(kernel::kernel, options, item)
}

/// Makes a function the program's `main`, run by every lane of the grid: a kernel named `main`.
///
/// The function takes nothing or `&Lane` and returns nothing or an `i32`; a value other than 0 ends the
/// program with that exit code. Options: `workgroups = N` and `lanes = N`, the grid when the command line
/// names none (1 and 1 if absent), or `resident` in place of `workgroups`: as many as the device runs at once;
/// `workgroup_memory = BYTES` and `max_lanes = N`, as for a [`macro@kernel`].
#[proc_macro_attribute]
pub fn main(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded_function(kernel::main, options, item)
}

/// Makes a trait a service: functions that kernels call, and the traits by which a host handles them.
///
#[cfg_attr(not(doctest), doc = include_str!("examples/service.md"))]
///
/// # Methods
/// There are 16 at most. Parameters are `Wire` values, `&str`, `&[u8]`, and as the last one `&mut [u8]`, which the
/// handler fills; 12 at most. Results are `Wire` values. A first parameter `caller: &Caller` is the handler's alone: it
/// says which lane of which launch calls. (The type needs no import in the trait.) An `unsafe fn` is unsafe to call in a
/// kernel.
///
/// # What it makes
/// For the trait above, in kernels:
///
/// ```text
/// pub struct Inventory;
/// impl Inventory {
///     pub fn count(item: u64) -> Result<Option<u64>, CallError>;
///     pub fn sold(item: u64) -> Result<(), CallError>;
///     pub fn name_of(item: u64, out: &mut [u8]) -> Result<(bool, usize), CallError>; // and the bytes filled
///
///     // For methods of values alone: begins the call; `Pending::wait` gives the result.
///     pub fn start_count(lane: &Lane, item: u64) -> Pending<'_, Option<u64>>;
///     pub fn start_sold(lane: &Lane, item: u64) -> Pending<'_, ()>;
///     // For such without a result: nobody waits, and nobody learns how it ended.
///     pub fn post_sold(item: u64) -> Result<(), CallError>;
///
///     // The methods (but for `start_` and `post_`) with a deadline; 0 is none.
///     pub const fn within_us(timeout_us: u32) -> InventoryWithin;
///     // Names, numbers and schemas of the methods.
///     pub const METHODS: &'static [Method; 3];
/// }
/// ```
///
/// and on the host:
///
/// ```text
/// pub trait InventoryHandler: Send + Sync + 'static {
///     fn count(&self, item: u64) -> Result<Option<u64>, CallError>;
///     fn sold(&self, caller: &Caller, item: u64) -> Result<(), CallError>;
///     fn name_of(&self, item: u64, out: &mut Output<'_>) -> Result<bool, CallError>;
/// }
/// pub trait InventoryAsyncHandler: Send + Sync + 'static {
///     async fn count(&self, item: u64) -> Result<Option<u64>, CallError>;
///     async fn sold(&self, caller: Caller, item: u64) -> Result<(), CallError>;
///     // `&str` and `&[u8]` come as `String` and `Vec<u8>`; bytes for the device go back as a `Vec<u8>`.
///     async fn name_of(&self, item: u64, out_capacity: usize) -> Result<(bool, Vec<u8>), CallError>;
/// }
/// // If no method has `&str`, `&[u8]` or `&mut [u8]`; see the page of `hostcall::service::gather`.
/// pub trait InventoryGatheredHandler: Send + Sync + 'static {
///     async fn count(&self, calls: Gathered<u64, Option<u64>>);
///     async fn sold(&self, calls: Gathered<u64, ()>);
/// }
/// impl Inventory {
///     pub fn serve(handler: impl InventoryHandler) -> impl Service;
///     pub fn serve_async(handler: impl InventoryAsyncHandler) -> impl AsyncService;
///     pub fn serve_gathered(handler: impl InventoryGatheredHandler) -> impl GatheredService;
/// }
/// ```
///
/// A handler's `Err` is what the lane's call ends with.
///
/// # Options
/// - `number = N`, 256 to 32767, else derived from the name. Methods count up from it.
/// - `crate = path`: where hostcall is, see [the crate's page](crate#how-expansions-find-hostcall).
#[proc_macro_attribute]
pub fn service(options: TokenStream, item: TokenStream) -> TokenStream {
    expanded(service::service(options.into(), item.into()))
}

/// Lets a struct or enum be a parameter or result of a service's method: it travels as words. Its fields must be `Wire`
/// themselves; an enum takes one word for the variant and as many as its largest variant needs.
///
/// ```
/// use hostcall_device::Wire;
///
/// #[derive(Debug, PartialEq, Wire)]
/// enum Event {
///     Started,
///     Moved { from: u32, to: u32 },
/// }
///
/// assert_eq!(Event::WORDS, 3);
/// assert_eq!(Event::from_words(&[1, 4, 5]), Some(Event::Moved { from: 4, to: 5 }));
/// ```
#[proc_macro_derive(Wire, attributes(hostcall))]
pub fn wire(item: TokenStream) -> TokenStream {
    expanded(syn::parse(item).and_then(wire::derive))
}

/// Lets a struct lie in memory that host and device share, in buffers and as a kernel's parameter.
///
/// ```
/// use hostcall_device::{Global, Plain};
///
/// #[repr(C)]
/// #[derive(Clone, Copy, Plain)]
/// struct Particle {
///     position: [f64; 3],
///     mass: f32,
///     kind: u32,
/// }
///
/// // With cells that lanes write; such a struct is no parameter by value, since it is not `Copy`.
/// #[repr(C)]
/// #[derive(Plain)]
/// struct Bin {
///     count: Global<u32>,
///     sum: Global<f32>,
/// }
/// assert!(Bin::SHARED && !Particle::SHARED);
/// ```
///
/// The struct is `#[repr(C)]` or `#[repr(transparent)]`, all its fields are `Plain`, and it has no padding. All of this is
/// checked when it is compiled:
///
/// ```compile_fail
/// # use hostcall_device::Plain;
/// #[repr(C)]
/// #[derive(Plain)]
/// struct Padded {
///     small: u8, // three bytes of padding follow
///     large: u32,
/// }
/// ```
///
/// # Generic structs
/// The fields of a generic struct are all aligned alike, so that there is no padding whatever its types are: `T`, `Global<T>`,
/// `[T; N]`, other structs of these, and numbers that are as large as `T` where it is used.
///
/// ```
/// use hostcall_device::{Global, Plain, Word};
///
/// #[repr(C)]
/// #[derive(Clone, Copy, Plain)]
/// struct Vector<T> {
///     x: T,
///     y: T,
/// }
///
/// #[repr(C)]
/// #[derive(Plain)]
/// struct Body<T> {
///     position: Vector<T>,
///     moved: [Global<T>; 2],
/// }
///
/// fn bytes<T: Word>() -> usize {
///     fn is_plain<P: Plain>() -> usize {
///         size_of::<P>()
///     }
///     is_plain::<Body<T>>()
/// }
/// assert_eq!((bytes::<f32>(), bytes::<f64>()), (16, 32));
/// ```
///
/// # Fields
/// Files of raw channels keep names and types of a struct's fields, so that `hostcall trace` shows records
/// without the program. What else they are to say of them:
///
/// ```
/// # use hostcall_device::Plain;
/// #[repr(C)]
/// #[derive(Clone, Copy, Plain)]
/// #[hostcall(format = "lane {lane} read {address:#x}, {took} ns")]
/// struct Access {
///     address: u64,
///     lane: u32,
///     #[hostcall(unit = "ns")]
///     took: u32,
/// }
/// ```
///
/// `format` is a format string as for [`println!`], of named fields that are numbers, 12 at most; `unit` is
/// any text. Files keep 1024 bytes of a format and 32 of a unit.
#[proc_macro_derive(Plain, attributes(hostcall))]
pub fn plain(item: TokenStream) -> TokenStream {
    expanded(syn::parse(item).and_then(plain::derive))
}

/// Prints a line to the host's standard output, as the standard library's macro does.
///
/// Arguments are of any type with the trait that their placeholder names (`Display`, `Debug` and so on), 12 at most. The
/// text must be a literal. A line is lost if the launch was cancelled.
///
/// The host formats a line whose arguments are all integers up to 64 bits, floats, `bool`, `char`, strings, errors of
/// calls, pointers (`{:p}`), or references to these: the text is sent once, the arguments each time, and a line of at most
/// five words is posted without waiting. In a generic function the bound `print::Argument` says that a type is one of
/// these.
///
/// Any other line is formatted on the device and sent as text: with `Option`s, tuples, arrays, `u128`, `{:#?}` of your own
/// types. A GPU's program that has such a line also has `core::fmt`, about 50 KB of PTX.
///
/// ```
/// use hostcall_device::{Lane, kernel, println};
///
/// #[kernel]
/// fn greet(lane: &Lane, temperature: f32) {
///     let lane = lane.global_id();
///     println!("lane {lane:>3}: {temperature:.1} °C{}", if temperature > 30.0 { ", hot" } else { "" });
///     println!("lane {lane:>3}: {:?}", Some(temperature)); // formatted on the device
/// }
/// ```
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

/// Says to a trace that something happened: a format string as for [`println!`], with up to five values, of the first of the
/// lanes that come here together. Values are numbers, `bool`, `char` and raw pointers; where the device is not traced they are
/// not computed. The module `hostcall_device::trace` says more.
///
/// ```
/// use hostcall_device::{Lane, event, kernel};
///
/// #[kernel]
/// fn search(lane: &Lane, keys: &[u64], key: u64) {
///     let i = lane.global_id();
///     if keys.get(i) == Some(&key) {
///         event!("found {key:#x} at {i}");
///     }
/// }
/// ```
#[proc_macro]
pub fn event(line: TokenStream) -> TokenStream {
    expanded(trace::event(line.into()))
}
