//! Signals: a fault on a lane's stack ends the lane, and a lane that never comes back can be interrupted.
//!
//! A lane is ended in its kernel's own code only. Where a signal finds it in another shared object (an allocator takes
//! locks there), the lane goes on until it is out of there: by single steps, where the processor has them, and at the
//! signals of a timer. A lane that overflows its stack there gets the stack's reserve for this.

use crate::lane::{Ending, Lane, Whereabouts};
use crate::mapped::put_zeros;
use crate::thread::ThreadState;
use std::cell::Cell;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// Sent to a thread whose lane shall be ended, or has run for long. Ignored by default, and little used.
const INTERRUPT: i32 = libc::SIGURG;

const SIGNALS: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, INTERRUPT];

/// Single steps in a row that a lane makes out of foreign code. Past them it runs freely until the timer's signal.
const MOST_STEPS: u32 = 20_000;

/// Time that a lane runs freely in foreign code until the timer's signal.
const FREE_RUN_NS: i64 = if machine::STEPS { 1_000_000 } else { 10_000 };

/// The handlers that were there before, in the order of [`SIGNALS`].
static PREVIOUS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();

thread_local! {
    /// The lane that this is the identity of, or null: lanes set it on their own stacks, where they are threads of their own.
    static CURRENT: Cell<*const Lane> = const { Cell::new(ptr::null()) };
    /// What this thread does; null on threads that are not an executor's, and for lanes.
    static RUNNING: Cell<*const ThreadState> = const { Cell::new(ptr::null()) };
}

/// Notes which lane runs on the calling stack, null for none.
pub(crate) fn set_current(lane: *const Lane) {
    CURRENT.set(lane);
}

/// Returns whether the caller is a lane, or what it calls.
pub(crate) fn is_in_lane() -> bool {
    !CURRENT.get().is_null()
}

/// Returns what this thread of an executor does.
#[inline(always)]
pub(crate) fn running() -> *const ThreadState {
    RUNNING.get()
}

/// What signal handlers need of a thread that runs lanes.
#[derive(Default)]
pub(crate) struct Signals {
    /// The timer that interrupts the thread, if the system had one.
    timer: Cell<Option<libc::timer_t>>,
    /// Single steps made in a row; 0 while the thread makes none.
    steps: Cell<u32>,
}

/// Installs the handlers, once in a process.
pub(crate) fn install() -> io::Result<()> {
    if PREVIOUS.get().is_some() {
        return Ok(());
    }
    static INSTALLING: hostcall_locks::Mutex<()> = hostcall_locks::Mutex::new(());
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
        // No interrupt meets a handler halfway.
        // SAFETY: the set is part of the action above.
        unsafe { libc::sigaddset(&mut action.sa_mask, INTERRUPT) };
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

/// Runs `body` on a thread whose lanes may be interrupted: with room for signal handlers beside its stacks, and a timer.
pub(crate) fn with_signals<R>(running: &ThreadState, body: impl FnOnce() -> R) -> R {
    running.signals.timer.set(new_timer());
    RUNNING.set(running);
    let mut memory = vec![0u8; 64 << 10];
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    let mut previous = MaybeUninit::uninit();
    // SAFETY: `memory` outlives its use, which the second call below ends.
    let set = unsafe { libc::sigaltstack(&stack, previous.as_mut_ptr()) };
    assert_eq!(set, 0, "a 64 KiB signal stack is large enough for every system");
    let result = body();
    // SAFETY: written by the first call; what it names is the thread's earlier signal stack, still there.
    unsafe { libc::sigaltstack(previous.as_ptr(), ptr::null_mut()) };
    RUNNING.set(ptr::null());
    if let Some(timer) = running.signals.timer.take() {
        // SAFETY: made above, and used by this thread's handlers only, which do not find it any more.
        unsafe { libc::timer_delete(timer) };
    }
    result
}

/// Makes a timer that sends the interrupt to the calling thread. It is not armed. `None` when the system has none, as when
/// the process has as many as `RLIMIT_SIGPENDING` allows.
fn new_timer() -> Option<libc::timer_t> {
    // SAFETY: all zeros is an empty sigevent.
    let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_THREAD_ID;
    event.sigev_signo = INTERRUPT;
    // SAFETY: has no preconditions.
    event.sigev_notify_thread_id = unsafe { libc::gettid() };
    let mut timer = ptr::null_mut();
    // SAFETY: both are memory made for the call.
    let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &mut event, &mut timer) } == 0;
    made.then_some(timer)
}

/// Arms this thread's timer. Async-signal-safe.
fn arm_timer(running: &ThreadState) {
    let Some(timer) = running.signals.timer.get() else { return };
    let after = libc::timespec { tv_sec: 0, tv_nsec: FREE_RUN_NS };
    let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: after };
    // SAFETY: `with_signals` takes the timer out before it deletes it.
    unsafe { libc::timer_settime(timer, 0, &once, ptr::null_mut()) };
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
    // Also on a thread that is no executor's: a handler may look at what a kernel has mapped.
    if signal == libc::SIGBUS && code > 0 && put_zeros(address) {
        return;
    }
    // SAFETY: a lane sets it while it exists; where the thread is not on the lane's stack, it is about to go there or just has
    // left it.
    let current = unsafe { CURRENT.get().as_ref() };
    let lane = current.filter(|lane| lane.trap().0.stack_ptr_in_bounds(stack_pointer(registers)));
    // SAFETY: `with_signals` keeps what it set, and lanes run in it only.
    let running = lane.map(Lane::running).or(unsafe { RUNNING.get().as_ref() });
    let is_stepping = running.is_some_and(|running| running.signals.steps.get() > 0);
    let traced = signal == libc::SIGTRAP && is_stepping && machine::is_step(code);
    if let (Some(lane), Some(running)) = (lane, running) {
        let (_, guard) = lane.trap();
        // A positive code is the processor's doing, others are sent by somebody.
        let fault = code > 0 && signal != INTERRUPT && !traced;
        let mut blocked = false;
        match signal {
            // It is about to give the thread back, which sees what this is about.
            INTERRUPT if lane.doomed().is_none() && lane.is_between_lanes() => return,
            INTERRUPT => {
                if lane.doomed().is_none() && !lane.is_to_be_killed() && lane.interrupted(&running.hold) {
                    if code == libc::SI_TKILL {
                        lane.count_interruption();
                    }
                    // Never with a lock of the process: whoever gives the turns may wait for it.
                    blocked = machine::is_blocked(registers);
                    match lane.whereabouts(program_counter(registers), blocked) {
                        Whereabouts::Open => running.hold.wait(),
                        _ => arm_timer(running),
                    }
                }
                if lane.is_to_be_killed() {
                    lane.doom(Ending::Killed);
                }
                if lane.doomed().is_none() {
                    return;
                }
                if code == libc::SI_TKILL {
                    lane.count_interruption();
                }
                blocked = machine::is_blocked(registers);
            }
            libc::SIGTRAP if traced => {}
            _ if !fault => {
                // SAFETY: the arguments are the kernel's own.
                return unsafe { pass_on(signal, info, context) };
            }
            _ if guard.page.contains(&address) || guard.reserve.contains(&address) => {
                lane.doom(Ending::Overflow);
                let open = lane.whereabouts(program_counter(registers), false) == Whereabouts::Open;
                if open || !lane.open_reserve(address) {
                    // Past its reserve the lane is in no allocator.
                    return end(lane, running, registers);
                }
            }
            // The instruction cannot be gone on from, wherever it is.
            _ => {
                lane.doom_again(Ending::Fault { signal, address });
                return end(lane, running, registers);
            }
        }
        // A lane that overflowed in a panic would do so again in the next one, and has only one reserve.
        let overflowed = matches!(lane.doomed(), Some(Ending::Overflow));
        match lane.whereabouts(program_counter(registers), blocked) {
            Whereabouts::Open => end(lane, running, registers),
            Whereabouts::Operation => stop_steps(running, registers),
            Whereabouts::Panic if !overflowed => stop_steps(running, registers),
            Whereabouts::Panic | Whereabouts::Foreign => {
                let steps = running.signals.steps.get();
                if steps < MOST_STEPS && machine::step(registers) {
                    running.signals.steps.set(steps + 1);
                } else {
                    stop_steps(running, registers);
                    arm_timer(running);
                }
            }
        }
        return;
    }
    if let (true, Some(running)) = (traced, running) {
        return stop_steps(running, registers);
    }
    // SAFETY: the arguments are the kernel's own.
    unsafe { pass_on(signal, info, context) };
}

/// Makes the interrupted lane end with how it is doomed to, once the handler returns.
fn end(lane: &Lane, running: &ThreadState, registers: &mut libc::mcontext_t) {
    let ((trap, _), Some(ending)) = (lane.trap(), lane.doomed()) else { return };
    stop_steps(running, registers);
    lane.ends();
    // SAFETY: the stack pointer is on this lane's stack, and the registers are set as asked. What the lane's
    // code was at is given up: it holds no lock of the process (`Whereabouts::Open`), its stack and its
    // thread-local variables are not used again (LEAKED, see `Lane`), and an operation that it faulted in
    // leaves every state that it passes through fit for this (see `operations`).
    let resume = unsafe { trap.setup_trap_handler(move || ending) };
    set_registers(registers, resume);
}

/// Ends the single steps of this thread.
fn stop_steps(running: &ThreadState, registers: &mut libc::mcontext_t) {
    running.signals.steps.set(0);
    machine::run_freely(registers);
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

    /// The processor can run single steps.
    pub const STEPS: bool = true;

    /// The flag that makes the processor trap after each instruction.
    const TRAP_FLAG: i64 = 0x100;

    pub fn stack_pointer(registers: &libc::mcontext_t) -> usize {
        registers.gregs[libc::REG_RSP as usize] as usize
    }

    pub fn program_counter(registers: &libc::mcontext_t) -> usize {
        registers.gregs[libc::REG_RIP as usize] as usize
    }

    /// Returns whether a trap with this code is a single step's.
    pub fn is_step(code: i32) -> bool {
        code == libc::TRAP_TRACE
    }

    /// Makes the interrupted code run one instruction until the next trap. Returns whether that is possible.
    pub fn step(registers: &mut libc::mcontext_t) -> bool {
        registers.gregs[libc::REG_EFL as usize] |= TRAP_FLAG;
        true
    }

    pub fn run_freely(registers: &mut libc::mcontext_t) {
        registers.gregs[libc::REG_EFL as usize] &= !TRAP_FLAG;
    }

    /// Returns whether the signal interrupted a system call that waits.
    pub fn is_blocked(registers: &libc::mcontext_t) -> bool {
        let (pc, result) = (program_counter(registers), registers.gregs[libc::REG_RAX as usize]);
        let is_call = |address: usize| {
            // SAFETY: `pc` is an instruction that the thread is about to run: its first byte is mapped, and its second
            // where it has two, as one has that begins with 0x0F. Two bytes before `pc` lie on its page.
            let bytes = unsafe {
                let first = address as *const u8;
                (first.read(), if first.read() == 0x0F { first.add(1).read() } else { 0 })
            };
            bytes == (0x0F, 0x05)
        };
        if result == -i64::from(libc::EINTR) {
            pc % 4096 >= 2 && is_call(pc - 2)
        } else {
            is_call(pc) && super::waits(pc, result)
        }
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

    /// The system lets no program of its own accord run single steps.
    pub const STEPS: bool = false;

    pub fn stack_pointer(registers: &libc::mcontext_t) -> usize {
        registers.sp as usize
    }

    pub fn program_counter(registers: &libc::mcontext_t) -> usize {
        registers.pc as usize
    }

    pub fn is_step(_code: i32) -> bool {
        false
    }

    pub fn step(_registers: &mut libc::mcontext_t) -> bool {
        false
    }

    pub fn run_freely(_registers: &mut libc::mcontext_t) {}

    /// Returns whether the signal interrupted a system call that waits.
    pub fn is_blocked(registers: &libc::mcontext_t) -> bool {
        const SVC_0: u32 = 0xD400_0001;
        let (pc, result) = (program_counter(registers), registers.regs[0] as i64);
        // SAFETY: the thread is about to run this instruction, or just did run the one before it, so both are mapped.
        let is_call = |address: usize| unsafe { (address as *const u32).read() } == SVC_0;
        if result == -i64::from(libc::EINTR) {
            is_call(pc - 4)
        } else {
            is_call(pc) && super::waits(pc, registers.regs[8] as i64)
        }
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

use machine::{program_counter, set_registers, stack_pointer};

/// Returns whether the system call of this number, which the thread is about to make again at this address, waits for
/// something. No allocator waits in these, but in `futex`; the standard library calls that by `syscall`, others do not.
fn waits(address: usize, number: i64) -> bool {
    const SYSCALL_BYTES: usize = 64;
    match number {
        libc::SYS_futex => {
            let function = libc::syscall as *const () as usize;
            (function..function + SYSCALL_BYTES).contains(&address)
        }
        libc::SYS_read | libc::SYS_readv | libc::SYS_write | libc::SYS_writev | libc::SYS_recvfrom => true,
        libc::SYS_recvmsg | libc::SYS_sendto | libc::SYS_sendmsg | libc::SYS_connect => true,
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_wait4 | libc::SYS_waitid | libc::SYS_flock => true,
        _ => false,
    }
}
