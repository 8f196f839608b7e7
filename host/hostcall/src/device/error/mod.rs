//! What can go wrong with devices, launches and buffers.

mod closure;
mod graph;
mod llvm;
mod path;
mod rocm;

pub use closure::{HostcallState, NotContinuous};
pub use graph::{GraphError, NodeFailure, ReplayFailure};
pub use llvm::ProgramError;
pub(crate) use path::Mark;
pub use path::{NodeId, NodePath};
pub use rocm::CodeObjectError;

use crate::image::NotAnImage;
use hostcall_abi::layout::LayoutError;
use hostcall_seam::{BackendError, DeviceFault};
use hostcall_server::llvm::Fault;
use hostcall_server::services::Panic;
use hostcall_server::{RegisterError, ServerError, Waiting};
use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

/// What can go wrong with a device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No device has this name.
    #[error("there is no device `{}`{}; `hostcall devices` lists those there are", name.escape_debug(), meant(name))]
    NoSuchDevice {
        /// The name that was asked for.
        name: String,
    },
    /// The device cannot be used; the sentence says why and what to do.
    #[error("device {name} cannot be used: {reason}")]
    Unavailable {
        /// The device's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// The channel cannot have these sizes.
    #[error("the device cannot be opened with these sizes: {0}")]
    Sizes(#[from] LayoutError),
    /// The built-in services did not start.
    #[error("the built-in services do not start: {0}")]
    Builtins(#[source] io::Error),
    /// The server did not start.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// A service or closure was refused.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The system has no thread for it.
    #[error("the system has no thread for {what}: {error}")]
    NoThread {
        /// What it was for.
        what: &'static str,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// The device failed, or refused an operation.
    #[error(transparent)]
    Backend(#[from] BackendError),
    /// A raw channel cannot have these sizes.
    #[error(
        "a raw channel cannot have {pages} pages of {page_bytes} bytes: take powers of two, 16 to 65536 pages of 128 bytes to \
         16 MiB, 32 GiB in all at most"
    )]
    RawSizes {
        /// The pages that were asked for.
        pages: u32,
        /// The bytes of each.
        page_bytes: u32,
    },
    /// A raw channel could not be recorded; the sentence names the file.
    #[error("{0}")]
    Recording(io::Error),
    /// The device was closed.
    #[error("the device was closed")]
    Closed,
    /// A post queue is polled already: by another thread, or by the function that gets its posts.
    #[error(
        "the post queue `{name}` is polled already: one thread polls at a time, and what gets its posts does not poll"
    )]
    PostQueueBusy {
        /// The queue's name.
        name: String,
    },
    /// This process is a child of the one that opened the device. A child may open a device of its own, unless another thread of
    /// the parent started or ended a thread, or loaded code, while `fork` ran: locks of the standard library and of libc stay
    /// locked in the child then, and it hangs.
    #[error(
        "{device} was opened before this process was forked, and its threads are the parent's: open the device in the child, or \
         fork before it is opened"
    )]
    Forked {
        /// The device.
        device: String,
    },
    /// The device's trace points are recorded already.
    #[error(
        "trace points of {device} are recorded already, since it was opened with a tracer or by another recording: end that one \
         first"
    )]
    PointsRecorded {
        /// The device.
        device: String,
    },
    /// Memory of the device lies at addresses that have no room in a word of the channel's.
    #[error("trace points cannot be recorded: the device has memory at addresses of more than 48 bits")]
    PointsTooFar,
    /// A buffer, a kernel, a closure or an event belongs to another device.
    #[error(
        "{what} belongs to {}: make it on the one that is used here, {device}{}",
        if *closed { "a device that was closed" } else { "another open device" },
        if *closed { "" } else { ", or use a stream of its own" }
    )]
    OtherDevice {
        /// What it is, such as "the second argument".
        what: String,
        /// The device of the stream.
        device: String,
        /// The other device was closed, or dropped: it has streams no more.
        closed: bool,
    },
    /// An image cannot be used.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A launch cannot be made like this.
    #[error(transparent)]
    Refused(#[from] LaunchRefused),
    /// A part of a buffer that it does not have, or a length that does not fit.
    #[error(transparent)]
    Bounds(#[from] BoundsError),
    /// A launch on the stream failed.
    #[error("kernel {kernel}: {failure}{}", by_force(*forced_lanes))]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// Why.
        #[source]
        failure: LaunchFailure,
        /// Lanes that the software device ended by force, in the middle of their code.
        forced_lanes: u64,
    },
    /// A replay of a graph failed.
    #[error(transparent)]
    Replay(#[from] Box<ReplayFailure>),
    /// A graph, a capture or an instance was refused.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// A host function of the stream panicked.
    #[error("a host function of the stream panicked: {message}")]
    HostFunction {
        /// The panic's message.
        message: String,
    },
    /// Waiting would never end, or not before its limit: what is waited for waits for the thread that
    /// waits, or for another one that waits for it. Of threads that wait for each other the one gets this
    /// that began to wait last. One that waits with a limit goes on by itself, so that it holds up only
    /// those that have less than twice its time left.
    #[error(
        "{operation} of {device} would {}: it was called in {waiting}; do it on a thread that nobody waits for",
        until(*has_limit)
    )]
    WouldDeadlock {
        /// What was called.
        operation: &'static str,
        /// The device.
        device: String,
        /// What the thread does, and what waits for that.
        waiting: String,
        /// The wait would have ended at its limit, without what it waits for.
        has_limit: bool,
    },
    /// The device has as many streams as it can have.
    #[error("a device has at most {limit} streams; drop some")]
    TooManyStreams {
        /// How many it can have.
        limit: usize,
    },
    /// The time that was given has passed.
    #[error(
        "{what} has not ended after {limit:?}{}{}; it goes on: wait longer, or cancel its launches before the stream is dropped, \
         which waits for them",
        clause(longest.as_deref()),
        clause(crowded.as_deref())
    )]
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: std::time::Duration,
        /// Of the calls of the device's kernels that wait for the host, the one that has waited longest: of
        /// what was waited for, or of what keeps that from ending. Where no call waits, and the limit was at
        /// least 100 ms, a wave that waits for a free page of a raw channel, if there is one.
        longest: Option<Box<Waiting>>,
        /// Where there is no such wait either: the launch that the stream which was waited for is at, if it has more workgroups than
        /// run at once. Those that have begun may wait for those that have not.
        crowded: Option<Box<CrowdedGrid>>,
    },
    /// A program that was linked with LLVM's GPU libc cannot be started.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A code object that another compiler made, or a kernel of it, cannot be used.
    #[error(transparent)]
    CodeObject(#[from] CodeObjectError),
}

/// Why a launch did not end well.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchFailure {
    /// Lanes panicked; the others were cancelled.
    #[error("{}", panicked(first.as_ref(), *others))]
    Panicked {
        /// The first lane's panic, if it could be told.
        first: Option<Panic>,
        /// How many lanes panicked besides, as far as they told.
        others: u64,
    },
    /// A lane did what the device does not allow, or the device failed.
    #[error(transparent)]
    Fault(DeviceFault),
    /// A call by LLVM's protocol could not go on. Of a program, whose run has ended, lanes that wait for it do so for ever. Lanes of
    /// a code object's kernels got zeros; calls do not say whose they are, so that it is told of each launch of the code object that
    /// had not been settled.
    #[error("{0}")]
    Port(Fault),
    /// It was cancelled.
    #[error("the launch was cancelled")]
    Cancelled,
    /// It was to be cancelled, its time limit passed, or the device was closed, when the device had it: a kernel of a code
    /// object that another compiler made, which ends by itself alone. It has done all that it does, and its calls by
    /// a context were cancelled.
    #[error(
        "the launch was to be cancelled while it ran, and ran to its end: nothing of hostcall is in the kernel that could end it"
    )]
    RanToEnd,
    /// It had not ended when its time limit had passed.
    #[error("the launch was cancelled when its time limit had passed")]
    TimedOut,
    /// It did not run, because a launch before it in its stream panicked, exited, failed or was cancelled.
    #[error("it did not run, since a launch before it in its stream ended early")]
    Skipped,
    /// It did not start; the error says why.
    #[error(transparent)]
    NotStarted(BackendError),
}

/// What became of lanes that were ended by force, for those who read why their launch failed.
fn by_force(lanes: u64) -> String {
    let (lanes, their) = match lanes {
        0 => return String::new(),
        1 => ("a lane was".to_string(), "its"),
        lanes => (format!("{lanes} lanes were"), "their"),
    };
    format!(
        "; {lanes} ended by force: locks of the program that {their} code held stay locked, and what it could refer to ({their} \
         stack, the launch's buffers) is never freed"
    )
}

fn panicked(first: Option<&Panic>, others: u64) -> String {
    let first = first.map_or("a lane panicked".to_string(), ToString::to_string);
    // Behind a backtrace, whose last line is not about them, a line of their own.
    let gap = if first.contains('\n') { '\n' } else { ' ' };
    match others {
        0 => first,
        1 => format!("{first}{gap}(and another lane)"),
        others => format!("{first}{gap}(and {others} other lanes)"),
    }
}

/// What somebody may have meant who names a device so: a processor is what images are built for.
fn meant(name: &str) -> String {
    let of = |prefix, device: &str| {
        let is_processor =
            name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        is_processor.then(|| {
            format!(
                ": that is what images are built for (`hostcall build --target {name}`), and the first GPU of the kind is \
                 named {device}"
            )
        })
    };
    of("gfx", "amdgpu:0").or_else(|| of("sm_", "cuda:0")).unwrap_or_default()
}

/// The end of "an image was built for another target", for a device and what it executes. Some devices are named as that.
pub(crate) fn other_than(device: &str, target: &str) -> String {
    if device == target { format!("not for {device}") } else { format!("and {device} is {target}") }
}

/// When a wait would return that was refused.
fn until(has_limit: bool) -> &'static str {
    match has_limit {
        true => "not return before its limit",
        false => "never return",
    }
}

fn clause(what: Option<&impl fmt::Display>) -> String {
    what.map_or_else(String::new, |what| format!("; {what}"))
}

/// A launch that has more workgroups than its device runs at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "kernel `{kernel}` has {workgroups} workgroups, of which at most {at_once} run at once: if its workgroups wait for each other, it \
     never ends, and needs a smaller grid"
)]
#[non_exhaustive]
pub struct CrowdedGrid {
    /// The kernel.
    pub kernel: Arc<str>,
    /// Workgroups of its grid.
    pub workgroups: u64,
    /// How many the device has waves for. It may run fewer, of kernels that need much memory or many registers.
    pub at_once: u64,
}

/// Why a launch was refused. Nothing was launched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchRefused {
    /// The grid has no lane.
    #[error(
        "a grid needs at least one workgroup and one lane in x, y and z: do not launch where there is nothing to do"
    )]
    EmptyGrid,
    /// The grid has more lanes than a grid can have.
    #[error("a grid has at most {} lanes, not {workgroups} workgroups of {lanes}", u32::MAX)]
    LargeGrid {
        /// Workgroups, saturated.
        workgroups: u64,
        /// Lanes of each, saturated.
        lanes: u64,
    },
    /// The workgroup has more lanes than a workgroup can have.
    #[error("a workgroup has at most {max} lanes, not {lanes}")]
    LargeWorkgroup {
        /// Lanes asked for, saturated.
        lanes: u64,
        /// Most that the device takes.
        max: u32,
    },
    /// The kernel was written for smaller workgroups.
    #[error(
        "kernel {kernel} takes workgroups of at most {max} lanes, not {lanes}: launch more, smaller ones"
    )]
    KernelLanes {
        /// The kernel.
        kernel: String,
        /// Lanes asked for.
        lanes: u64,
        /// Most that the kernel takes.
        max: u64,
    },
    /// The kernel's source says of what size workgroups are, as OpenCL's `reqd_work_group_size` does.
    #[error("kernel {kernel} was compiled for workgroups of {takes:?} lanes in x, y and z, not {given:?}")]
    WorkgroupSize {
        /// The kernel.
        kernel: String,
        /// The lanes that it takes.
        takes: [u32; 3],
        /// The lanes asked for.
        given: [u32; 3],
    },
    /// The kernel was compiled for smaller workgroups: AMD's compilers are told `max_flat_workgroup_size`, CUDA's launch bounds.
    #[error(
        "kernel {kernel} was compiled for at most {max} lanes of a workgroup ({bound}), not {lanes}: launch more, smaller \
         workgroups, or compile it for larger ones"
    )]
    CompiledLanes {
        /// The kernel.
        kernel: String,
        /// What says so.
        bound: &'static str,
        /// Most lanes.
        max: u32,
        /// Lanes asked for.
        lanes: u64,
    },
    /// The lanes need more registers than a workgroup of so many has.
    #[error(
        "a lane of kernel {kernel} needs {registers} registers, so that a workgroup has at most {max} lanes, not {lanes}"
    )]
    Registers {
        /// The kernel.
        kernel: String,
        /// Registers of a lane.
        registers: u32,
        /// Most lanes.
        max: u32,
        /// Lanes asked for.
        lanes: u64,
    },
    /// The workgroup needs more memory than there is.
    #[error("a workgroup needs {bytes} bytes of its memory, and the device has {max} for it")]
    WorkgroupMemory {
        /// Bytes needed.
        bytes: u64,
        /// Bytes that there are.
        max: u32,
    },
    /// The grid has more workgroups than a GPU counts.
    #[error("a grid has at most {max} workgroups on a GPU, not {workgroups}: launch larger ones")]
    ManyWorkgroups {
        /// Workgroups asked for.
        workgroups: u64,
        /// Most that a GPU takes.
        max: u32,
    },
    /// The workgroup has more waves than the device can run at once, which is as many as it was opened with call slots.
    #[error("a workgroup has {waves} waves, and the device runs {slots} at once; open it with more slots")]
    Slots {
        /// Waves of the workgroup.
        waves: u64,
        /// Waves that the device runs at once.
        slots: u32,
    },
    /// The argument block has another size than the image's kernel takes.
    #[error("kernel {kernel} takes {expected} bytes of arguments, not {given}")]
    ArgumentBytes {
        /// The kernel.
        kernel: String,
        /// Bytes that the kernel takes.
        expected: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// The arguments' types are not those of the kernel's parameters.
    #[error(
        "kernel {kernel} takes other types than those of the {given} arguments given: {}",
        found.as_deref().unwrap_or("give one for each parameter after the lane, in order and of its type")
    )]
    Types {
        /// The kernel.
        kernel: String,
        /// How many arguments were given.
        given: usize,
        /// Which argument is wrong, in words, where it is one alone and the kernel takes a usual type there.
        found: Option<String>,
    },
    /// An argument does not fit its own type.
    #[error("argument {argument} (the first is 0): {why}")]
    Argument {
        /// Place among the arguments, from 0.
        argument: usize,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A kernel of a code object was given more or fewer arguments than it takes.
    #[error("kernel {kernel} takes {takes} arguments, not {given}")]
    ArgumentCount {
        /// The kernel.
        kernel: String,
        /// How many it takes.
        takes: usize,
        /// How many were given.
        given: usize,
    },
    /// An argument of a code object's kernel has not the size that the kernel takes.
    #[error("argument {argument} (the first is 0) has {given} bytes, and the kernel takes {takes}")]
    ArgumentSize {
        /// Place among the arguments, from 0.
        argument: usize,
        /// Bytes that the kernel takes.
        takes: usize,
        /// Bytes that were given.
        given: usize,
    },
    /// A buffer without values was passed for a reference.
    #[error("argument {argument} is an empty buffer, and the kernel takes a reference to one value there")]
    EmptyBuffer {
        /// Place among the arguments, from 0.
        argument: usize,
    },
    /// The launch would read or write values plainly that it may write elsewhere.
    #[error(
        "arguments {plain} and {shared} are parts of the same memory; one is `&[T]`, which nobody may write while the kernel \
         runs, or `Disjoint`, which nobody else may access, and the other may be written: pass copies, or take \
         `&[Global<T>]` for both"
    )]
    Aliases {
        /// Place of the argument that is accessed plainly, from 0.
        plain: usize,
        /// Place of the argument that may be written.
        shared: usize,
    },
    /// Too many launches are in flight.
    #[error(
        "{limit} launches of the device are in flight, and it has no number for another: synchronize a stream first"
    )]
    TooManyLaunches {
        /// How many can be in flight.
        limit: usize,
    },
}

/// Why an image cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImageError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system answered.
        #[source]
        error: io::Error,
    },
    /// It is no image.
    #[error("{name}: {error}")]
    NotAnImage {
        /// The file, or "the image" when it is bytes.
        name: String,
        /// What it is instead.
        #[source]
        error: NotAnImage,
    },
    /// It has no kernel that hostcall launches.
    #[error(
        "{name}: it has no kernel of hostcall's: write one with `#[kernel]`, and build it with `hostcall build`"
    )]
    NoKernels {
        /// The file, or "the image".
        name: String,
    },
    /// It was built for another device.
    #[error(
        "{name} was built for {built_for}, {}: use `hostcall build --target {target}`",
        other_than(device, target)
    )]
    OtherTarget {
        /// The file, or "the image".
        name: String,
        /// What it was built for.
        built_for: String,
        /// The device.
        device: String,
        /// What is to be built for the device.
        target: String,
    },
    /// The driver or the system refused it.
    #[error("cannot load {name}: {error}")]
    Load {
        /// The file, or "the image".
        name: String,
        /// Why.
        #[source]
        error: BackendError,
    },
    /// It was made with another version of hostcall.
    #[error(
        "the image was made with another version of hostcall than this program: build the older of the two again"
    )]
    OtherVersion,
    /// It has no kernel of this name.
    #[error("the image has no kernel `{kernel}`")]
    NoKernel {
        /// The name.
        kernel: String,
    },
    /// It has several kernels of this name.
    #[error("the image has {count} kernels `{kernel}`: say which by its path, as `crate::module::{kernel}`")]
    SeveralKernels {
        /// The name.
        kernel: String,
        /// How many have it.
        count: usize,
    },
    /// Its kernel takes other parameters than the program's kernel of this name.
    #[error("the image's kernel {kernel} takes other arguments than this program's; build it again")]
    OtherTypes {
        /// The kernel.
        kernel: String,
    },
    /// No image of the program has the kernel.
    #[error("kernel {kernel} is in no image for {device} ({target}): {hint}")]
    NotEmbedded {
        /// The kernel.
        kernel: String,
        /// The device.
        device: String,
        /// What is to be built for the device.
        target: String,
        /// What to do.
        hint: String,
    },
}

/// A part of a buffer that does not exist, or a length that does not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BoundsError {
    /// The part does not lie in the buffer.
    #[error("values {start}..{end} do not lie in a buffer of {len}")]
    Part {
        /// First value.
        start: usize,
        /// One after the last value.
        end: usize,
        /// Values of the buffer.
        len: usize,
    },
    /// The two sides of a copy have different lengths.
    #[error("{given} values do not fit a part of {len}: take the part that they are for")]
    Length {
        /// Values given.
        given: usize,
        /// Values of the target.
        len: usize,
    },
    /// So many values are more than any memory holds.
    #[error("a buffer of {len} values is larger than any memory")]
    TooLarge {
        /// How many values.
        len: usize,
    },
    /// The bytes that a buffer is filled with, over and over, do not end where it does.
    #[error("a buffer of {bytes} bytes does not hold a whole number of values of {value} bytes")]
    Fill {
        /// Bytes of the value.
        value: usize,
        /// Bytes of the buffer.
        bytes: usize,
    },
    /// Source and target of a copy overlap.
    #[error("the parts that are copied to and from overlap: copy through another buffer")]
    Overlap,
}

/// The message of a panic of a user's function.
pub(crate) fn message_of(payload: Box<dyn Any + Send>) -> String {
    let text = match payload.downcast_ref::<&str>() {
        Some(text) => (*text).to_owned(),
        None => payload.downcast_ref::<String>().cloned().unwrap_or_else(|| "no message".into()),
    };
    // Its drop may panic as well, and so on.
    let _ = catch_unwind(AssertUnwindSafe(|| drop(payload))).map_err(std::mem::forget);
    text
}
