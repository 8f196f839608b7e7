//! Signals: a fault on a lane's stack ends the lane, and a lane that never comes back can be interrupted.

use crate::hold::Hold;
use crate::lane::{Ending, Lane};
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// Sent to a thread whose lane shall be ended, or has run for long. Ignored by default, and little used.
const INTERRUPT: i32 = libc::SIGURG;

const SIGNALS: [i32; 5] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, INTERRUPT];

/// The handlers that were there before, in the order of [`SIGNALS`].
static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

thread_local! {
    /// The lane that this thread is in, or null while it is in none.
    static CURRENT: Cell<*const Lane> = const { Cell::new(ptr::null()) };
    /// What this thread waits for while its lane is away; null on threads that are not an executor's.
    static HOLD: Cell<*const Hold> = const { Cell::new(ptr::null()) };
}

/// Runs `switch`, which goes on with `lane` and comes back when the lane gives way or ends.
pub(crate) fn with_current<R>(lane: &Lane, switch: impl FnOnce() -> R) -> R {
    CURRENT.set(lane);
    let result = switch();
    CURRENT.set(ptr::null());
    result
}

/// Installs the handlers, once in a process.
pub(crate) fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = INSTALLING.lock();
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    let mut previous = [MaybeUninit::<libc::sigaction>::uninit(); SIGNALS.len()];
    for (&signal, previous) in SIGNALS.iter().zip(&mut previous) {
        // SAFETY: a null new action only asks; the old one is written to memory made for it.
        if unsafe { libc::sigaction(signal, ptr::null(), previous.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    // SAFETY: each was written by the successful call above.
    // Before any handler is in place, so that none runs without it.
    let _ = PREVIOUS.set(previous.map(|action| unsafe { action.assume_init() }));
    for signal in SIGNALS {
        // SAFETY: all zeros is an empty sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        // The alternate stack, since the lane's own may be what is used up.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: `on_signal` is a handler of the three-argument form, async-signal-safe as argued there.
        if unsafe { libc::sigaction(signal, &action, ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Sends the interrupt to a thread that runs.
pub(crate) fn interrupt(thread: libc::pthread_t) {
    // SAFETY: the caller holds the queue, whose list names only threads that have not ended.
    unsafe { libc::pthread_kill(thread, INTERRUPT) };
}

/// Processor time that a thread has used; zero where the system does not say.
pub(crate) fn cpu_time(thread: libc::pthread_t) -> Duration {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as in `interrupt`; both calls write to memory made for them.
    let known = unsafe {
        libc::pthread_getcpuclockid(thread, &mut clock) == 0 && libc::clock_gettime(clock, &mut time) == 0
    };
    if known { Duration::new(time.tv_sec as u64, time.tv_nsec as u32) } else { Duration::ZERO }
}

/// Runs `body` on a thread whose lanes may be interrupted: with room for signal handlers beside its stacks.
pub(crate) fn with_signals<R>(hold: &Hold, body: impl FnOnce() -> R) -> R {
    HOLD.set(hold);
    let mut memory = vec![0u8; 64 << 10];
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    let mut previous = MaybeUninit::uninit();
    // SAFETY: `memory` outlives its use, which the second call below ends.
    let set = unsafe { libc::sigaltstack(&stack, previous.as_mut_ptr()) };
    assert_eq!(set, 0, "a 64 KiB signal stack is large enough for every system");
    let result = body();
    // SAFETY: written by the first call; what it names is the thread's earlier signal stack, still there.
    unsafe { libc::sigaltstack(previous.as_ptr(), ptr::null_mut()) };
    HOLD.set(ptr::null());
    result
}

/// The handler. It only reads memory that the interrupted thread does not change meanwhile, sets atomics of the
/// lane and its seat, and writes the lane's stack, which nobody else uses: all async-signal-safe.
unsafe extern "C" fn on_signal(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the thread's own; what was interrupted may be about to read it.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the arguments are the kernel's own.
    unsafe { handle(signal, info, context) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The handler's work.
///
/// # Safety
/// Called with a handler's arguments, in the handler.
unsafe fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both for a handler with SA_SIGINFO.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    // SAFETY: as above; a ucontext is what the third argument points to.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext };
    // SAFETY: set only while its lane exists, by this thread, which is interrupted.
    if let Some(lane) = unsafe { CURRENT.get().as_ref() }
        && let Some((trap, guard)) = lane.trap()
        && trap.stack_ptr_in_bounds(stack_pointer(registers))
    {
        // A positive code is the processor's doing, others are sent by somebody.
        let ending = match signal {
            INTERRUPT => {
                // SAFETY: set while the thread of the executor runs lanes, and this is one.
                if let (false, Some(hold)) = (lane.may_be_killed(), unsafe { HOLD.get().as_ref() }) {
                    lane.interrupted(hold);
                }
                if !lane.may_be_killed() {
                    return;
                }
                Some(Ending::Killed)
            }
            _ if code <= 0 => None,
            _ if guard.contains(&address) => Some(Ending::Overflow),
            _ => Some(Ending::Fault { signal, address }),
        };
        if let Some(ending) = ending {
            // SAFETY: the stack pointer is on this lane's stack, and the registers are set as asked. What the
            // lane's code was at is given up: it runs on its own data, and the executor's operations leave
            // every state that they pass through fit for this (see `operations`).
            let resume = unsafe { trap.setup_trap_handler(move || ending) };
            lane.ends();
            set_registers(registers, resume);
            return;
        }
    }
    // SAFETY: the arguments are the kernel's own.
    unsafe { pass_on(signal, info, context) };
}

/// Does with a signal what would have been done without this module.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let index = SIGNALS.iter().position(|&known| known == signal);
    let Some(previous) = index.and_then(|index| PREVIOUS.get()?.get(index)) else { return };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN if signal == INTERRUPT => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: puts an action back that the system gave. On return the fault happens again, and now it
            // ends the process.
            unsafe { libc::sigaction(signal, previous, ptr::null_mut()) };
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with SA_SIGINFO an action's address is a function of three arguments.
            let handler: unsafe extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                unsafe { std::mem::transmute(handler) };
            // SAFETY: called as the system would have called it.
            unsafe { handler(signal, info, context) }
        }
        handler => {
            // SAFETY: without SA_SIGINFO an action's address is a function of the signal's number.
            let handler: unsafe extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            // SAFETY: called as the system would have called it.
            unsafe { handler(signal) }
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod machine {
    use corosensei::trap::TrapHandlerRegs;

    pub fn stack_pointer(registers: &libc::mcontext_t) -> usize {
        registers.gregs[libc::REG_RSP as usize] as usize
    }

    pub fn set_registers(registers: &mut libc::mcontext_t, resume: TrapHandlerRegs) {
        let TrapHandlerRegs { rip, rsp, rbp, rdi, rsi } = resume;
        for (register, value) in [
            (libc::REG_RIP, rip),
            (libc::REG_RSP, rsp),
            (libc::REG_RBP, rbp),
            (libc::REG_RDI, rdi),
            (libc::REG_RSI, rsi),
        ] {
            registers.gregs[register as usize] = value as i64;
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "aarch64"))]
mod machine {
    use corosensei::trap::TrapHandlerRegs;

    pub fn stack_pointer(registers: &libc::mcontext_t) -> usize {
        registers.sp as usize
    }

    pub fn set_registers(registers: &mut libc::mcontext_t, resume: TrapHandlerRegs) {
        let TrapHandlerRegs { pc, sp, x0, x1, x29, lr } = resume;
        registers.pc = pc;
        registers.sp = sp;
        registers.regs[0] = x0;
        registers.regs[1] = x1;
        registers.regs[29] = x29;
        registers.regs[30] = lr;
    }
}

#[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
compile_error!("the software device knows the registers of Linux on x86-64 and AArch64 only");

use machine::{set_registers, stack_pointer};
