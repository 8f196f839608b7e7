//! The software device: runs kernels compiled for the CPU as a GPU would. A launch is a grid of workgroups; a
//! workgroup's lanes run in waves of 32 or 64; every resident wave has the number of a call slot to itself, which it claims when
//! it needs one.
//!
//! A kernel is an [`Entry`](hostcall_abi::cpu::Entry), which runs one lane after the other as long as none waits, and asks
//! for what hardware would do through [`CpuOperations`](hostcall_abi::cpu::CpuOperations). A lane that waits has its stack
//! to itself from then on, a coroutine's; the lanes behind it begin on another one. So lanes progress independently of each
//! other, and meet where they ask to. A workgroup stays on the *seat* that took it on, a share of the resident workgroups
//! that one thread at a time works on.
//!
//! ```
//! use hostcall_abi::cpu::{CpuLane, ENTRY_DONE};
//! use hostcall_abi::launch::LaunchParams;
//! use hostcall_softdev::{Config, Executor, Launch};
//! use std::sync::Arc;
//! use std::sync::atomic::{AtomicU64, Ordering};
//!
//! /// A kernel: adds the lane's index in its wave to what its argument points to.
//! unsafe extern "C" fn add(lane: *mut CpuLane, arguments: *const u8) -> u32 {
//!     // SAFETY: the executor's lane, and arguments as the launch below gives them.
//!     let (lane, sum) = unsafe { (&*lane, &**arguments.cast::<*const AtomicU64>()) };
//!     sum.fetch_add(lane.lane.load(Ordering::Relaxed).into(), Ordering::Relaxed);
//!     ENTRY_DONE
//! }
//!
//! let executor = Executor::new(Config::default())?;
//! let sum = Arc::new(AtomicU64::new(0));
//! let launch = Launch {
//!     entry: add,
//!     arguments: (Arc::as_ptr(&sum) as usize).to_ne_bytes().to_vec(),
//!     params: LaunchParams { workgroups: [3, 1, 1], workgroup_size: [100, 1, 1], ..Default::default() },
//!     keep_alive: Box::new(sum.clone()),
//!     notify: Arc::new(|| ()),
//!     on_failure: Arc::new(|| ()),
//! };
//! // SAFETY: the kernel gets what it takes, which lives as long as the launch.
//! let handle = unsafe { executor.launch(launch) }?;
//! handle.wait(None).expect("waited without a limit")?;
//! assert_eq!(sum.load(Ordering::Relaxed), 3 * (3 * (0..32).sum::<u64>() + 6));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what |
//! |---|---|
//! | `device`, `memory`, `module`, `queue`, `list` | the backend that hostcall opens: what [`hostcall_seam`] asks for |
//! | `executor` | the public [`Executor`]; the queue from which threads take workgroups; ending launches |
//! | `launch` | a launch, its handle and its outcome |
//! | `seat` | turns of a seat's workgroups, waiting when nothing gets on, lanes that leave and come back |
//! | `thread` | threads, which take seats |
//! | `watch` | seats whose lane does not give way get another thread; turns of lanes that are away |
//! | `hold` | what those wait for that it is not the turn of |
//! | `workgroup` | a resident workgroup: turns of its waves, the barrier, ended lanes |
//! | `wave` | a wave: who is ready or blocked, converging and exchanging |
//! | `lane` | a lane: how far it is, what it waits for, and which ones may begin in its place |
//! | `fiber` | what lanes run on, one after the other |
//! | `stack` | a fiber's stack, with its guard page and its reserve |
//! | `identity` | what makes lanes on a stack a thread of their own to all that they can see |
//! | `leaked` | the count of stacks that are never used again |
//! | `image` | the code of the kernel's shared object |
//! | `operations` | what kernels call |
//! | `trap` | signals: faults and forced ends |
//! | `lent` | memory that lanes lend to the host while they wait |
//! | `mapped` | files that lanes read and write in place |
//! | `shield` | allocators of the program's own, inside of which no lane is ended |
//!
//! # Invariants
//! SEAT stands on `seat::Seat`: who touches what belongs to a seat. LENT stands on `lent::Cell`: who touches memory that
//! lanes lend. RUN and LEAKED stand on `lane::Lane`: which lanes began in one place, and what is never used
//! again.
//!
//! # Scheduling
//! A lane runs until an operation blocks it. One that runs on for some milliseconds of processor time (or a second,
//! in the operating system) while others of its seat could run keeps its thread, and the seat goes to another
//! thread: then it is *away*. It runs beside the other lanes, as a lane of a GPU would; nobody waits for it to
//! converge, but exchanges and barriers that it has part in wait. At its next operation it gives its thread up
//! and goes on where the others are. So lanes of one wave can run at the same instant, and share memory by atomics only.
//! To itself a lane stays one thread, whichever thread runs it: its stack has a thread block of its own, with thread-local
//! variables, a thread's id and a count of panics. As many lanes can be away as
//! [`Config::spare_threads`](crate::Config::spare_threads) says; one more holds up the others of its seat, until it
//! gives way, one of those away does, or its launch is cancelled. Lanes that are away take turns of 10 ms on one
//! processor, and on those that threads with nothing to do leave; one that may hold a lock of the process (see
//! [below](#ends-that-are-forced)) goes on until it has left it.
//!
//! Lanes at a `converge` go on, grouped by site, once no other lane of their wave can run, or when the others
//! keep running for long. A thread that makes no progress polls for some ten microseconds, then yields, then
//! sleeps for a growing time of at most 20 ms, or until it is woken ([`Waker`]); with nothing to do it sleeps until a
//! launch.
//!
//! # Ends that are forced
//! A lane that faults, overflows its stack, or outlives the grace of a cancelled launch is ended where it is, without
//! unwinding: what it owns leaks, and locks that the kernel's own code took stay locked. Its stack, its workgroup's memory and
//! what the launch kept alive are never used again nor freed, since safe code may have told others of them (a scoped thread
//! goes on when its scope was ended); [`LaunchHandle::forced_lanes`] counts such lanes, and once 16,384 of a process were ended
//! so, launches are refused. A fault in code that runs on no lane's stack goes to the handler that the process had before.
//!
//! A lane is not ended where it may hold a lock of the process:
//! - In code of another shared object than the kernel's (libc's allocator, the unwinder) it goes on until it comes back
//!   to the kernel, on x86-64 by single steps, elsewhere until a timer finds it there. A lane that overflows its stack in
//!   such code gets a reserve of 256 KiB for this. A system call that waits is interrupted wherever it was made.
//! - In a panic it goes on until the panic is caught, or has run destructors for 100 ms.
//! - In an operation of the executor it goes on to the operation's end.
//!
//! An allocator, or a libc, that is linked into the kernel's own shared object or program cannot be told from the kernel,
//! unless it is the program's and [`Shielded`];
//! neither can locks of the standard library (of its standard output, for example). A fault, unlike the other two, ends
//! the lane wherever it happens, since its instruction cannot be gone on from.
//!
//! # Lanes that unwind
//! They wait for no other lane (see [`CpuOperations`](hostcall_abi::cpu::CpuOperations)), which need not come to where their
//! destructors are. [`CpuLane::unwinding`](hostcall_abi::cpu::CpuLane::unwinding) tells the executor.

mod config;
mod device;
mod executor;
mod fiber;
mod hold;
mod identity;
mod image;
mod lane;
mod launch;
mod leaked;
mod lent;
mod list;
mod mapped;
mod memory;
mod module;
mod operations;
mod queue;
mod seat;
mod shield;
mod stack;
mod thread;
mod trap;
mod watch;
mod wave;
mod workgroup;

/// Holds the locks of the process that executors take, until what is returned is dropped: for the time in which `fork` makes a
/// child, which finds them free then.
pub fn hold_locks() -> impl Sized {
    (image::hold(), stack::hold())
}

pub use config::{Config, Faults};
pub use device::{Cpu, device_info, software_backend};
pub use executor::{Executor, Waker};
pub use launch::{Launch, LaunchError, LaunchHandle, LaunchReport, LaunchResult};
pub use lent::LentMemory;
pub use mapped::MappedFile;
pub use operations::now_ns;
pub use shield::Shielded;
