//! What makes a lane a thread of its own to all that it can see.
//!
//! Code finds its thread by one register, the *thread pointer*, which points to what the C library keeps of the thread:
//! its thread-local variables, its error number, who it is to locks. Each stack of lanes has such a *thread block* to itself,
//! and the register points there while a lane runs on the stack, whichever thread of the executor runs it. So the values of
//! `thread_local!`, the thread's id and the count of panics are the same before and after each operation of a lane,
//! and no other stack's lane meets them: as with threads of a pool, only a lane that begins on the stack after this one
//! does.
//!
//! The C library alone knows how a thread block is made. So a stack begins as that of a thread, which notes its thread pointer
//! and leaves: its end in the kernel is not told to the library, which keeps the block for as long as the process lives.
//! That is why stacks are never unmapped, but used again.

use corosensei::stack::valgrind::ValgrindStackRegistration;
use std::ffi::{CStr, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The thread pointer while lanes of one stack run, and where the stack of its lanes begins, below the thread block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    thread_pointer: usize,
    pub stack_base: usize,
}

/// What the thread that a stack begins with writes down.
#[derive(Default)]
struct Founder {
    thread_pointer: AtomicUsize,
    stack_base: AtomicUsize,
    /// Its id for the kernel, and where the library keeps that, if the kernel says it.
    id: AtomicI32,
    id_at: AtomicUsize,
    /// 0 once the kernel has taken the thread away.
    is_there: AtomicI32,
}

/// A request of valgrind's memcheck (`memcheck.h`, `VG_USERREQ__MAKE_MEM_UNDEFINED`): memory may be written.
const VALGRIND_IS_WRITABLE: usize = 0x4d43_0001;

/// The first thread id that is none for the kernel, whose ids have at most 22 bits, but fits the words of locks.
const FIRST_ID: usize = 1 << 29;

/// A stack whose thread has begun. It may take its time on a busy machine: so many are begun before one is waited for.
pub(crate) struct Founding {
    stack: Range<usize>,
    founder: Box<Founder>,
}

impl Founding {
    /// Has a thread begin on `stack`, memory that is mapped, whole pages, to make a thread block at its end.
    ///
    /// # Safety
    /// Nobody else uses the memory, which stays mapped as long as the process lives, also after an error.
    pub unsafe fn start(stack: Range<usize>) -> io::Result<Self> {
        let founder = Box::new(Founder { is_there: 1.into(), ..Founder::default() });
        // SAFETY: the stack is the caller's, and `founder` stays until the thread has gone (`Drop`).
        unsafe { start(&stack, &founder)? };
        Ok(Self { stack, founder })
    }

    /// Waits until the thread has gone, and returns what it has made.
    ///
    /// # Errors
    /// The block leaves less than `bytes` of the stack.
    pub fn finish(self, bytes: usize) -> io::Result<Identity> {
        self.wait();
        let (founder, stack) = (&self.founder, &self.stack);
        let thread_pointer = founder.thread_pointer.load(Ordering::Relaxed);
        let stack_base = founder.stack_base.load(Ordering::Relaxed) & !15;
        if !stack.contains(&stack_base) || stack_base - stack.start < bytes {
            return Err(io::Error::other("the thread-local variables of the process leave a lane no stack"));
        }
        let id_at = founder.id_at.load(Ordering::Relaxed);
        if (stack_base..stack.end).contains(&id_at) && id_at.is_multiple_of(4) {
            // SAFETY: a word of the thread block, whose thread has gone.
            let known = unsafe { AtomicI32::from_ptr(ptr::with_exposed_provenance_mut(id_at)) };
            // The kernel may give the number to a thread again: then the library would take two for one, whose locks of
            // threads (recursive mutexes) would be one's.
            if known.load(Ordering::Relaxed) == founder.id.load(Ordering::Relaxed) {
                static NEXT: AtomicUsize = AtomicUsize::new(FIRST_ID);
                known.store(NEXT.fetch_add(1, Ordering::Relaxed) as i32, Ordering::Relaxed);
            }
        }
        // SAFETY: the block's thread has gone.
        unsafe { forget_processor(thread_pointer, stack) };
        // Where the process runs under valgrind, that has taken the stack away with its thread.
        let frames = stack.start..stack_base;
        machine::tell_valgrind(VALGRIND_IS_WRITABLE, &frames);
        let frames_at = ptr::with_exposed_provenance_mut(frames.start);
        // For good, as the stack is.
        std::mem::forget(ValgrindStackRegistration::new(frames_at, frames.len()));
        Ok(Identity { thread_pointer, stack_base })
    }

    fn wait(&self) {
        let is_there = &self.founder.is_there;
        while is_there.load(Ordering::Acquire) != 0 {
            // SAFETY: waits while the word, which is here, is 1. The kernel wakes whoever waits when it sets it to 0: so this one
            // is shared with it.
            unsafe {
                let no_timeout = ptr::null::<libc::timespec>();
                libc::syscall(libc::SYS_futex, is_there.as_ptr(), libc::FUTEX_WAIT, 1, no_timeout)
            };
        }
    }
}

impl Drop for Founding {
    fn drop(&mut self) {
        self.wait();
    }
}

impl Identity {
    /// Runs `switch`, which goes over to the stack of this identity and comes back: code there is this thread meanwhile.
    ///
    /// # Safety
    /// No other thread has the identity meanwhile, and `switch` does nothing on this thread's own stack but go there and come
    /// back.
    #[inline(always)]
    pub unsafe fn with<R>(&self, switch: impl FnOnce() -> R) -> R {
        let own = machine::thread_pointer();
        // SAFETY: the block was made by the C library, and is nobody else's meanwhile.
        unsafe { machine::set_thread_pointer(self.thread_pointer) };
        let result = switch();
        // SAFETY: this thread's own, as found above.
        unsafe { machine::set_thread_pointer(own) };
        result
    }
}

/// Bytes at the end of a stack for a thread block and the frames of the thread that makes it: as many as the C library says
/// that it needs besides the stack of a thread, and those of the smallest one.
pub(crate) fn block_bytes() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        const UNKNOWN: usize = 64 << 10;
        // SAFETY: both write to memory made for them.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__pthread_get_minstack".as_ptr()) };
        if function.is_null() {
            return UNKNOWN;
        }
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: glibc's function of this name takes attributes and returns how large the smallest stack must be.
        unsafe {
            let least: unsafe extern "C" fn(*const libc::pthread_attr_t) -> usize =
                std::mem::transmute(function);
            if libc::pthread_attr_init(attributes.as_mut_ptr()) != 0 {
                return UNKNOWN;
            }
            let bytes = least(attributes.as_ptr());
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
            bytes
        }
    })
}

/// Starts the thread whose stack this is.
///
/// # Safety
/// The stack is the thread's for good, and `founder` stays until it says that the thread has gone.
unsafe fn start(stack: &Range<usize>, founder: &Founder) -> io::Result<()> {
    let check = |code: i32| if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) };
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let mut thread = MaybeUninit::uninit();
    let (mut all, mut before) =
        (MaybeUninit::<libc::sigset_t>::uninit(), MaybeUninit::<libc::sigset_t>::uninit());
    // SAFETY: each writes to memory made for it before it is read. The thread takes no signal: it has the mask of this one.
    unsafe {
        check(libc::pthread_attr_init(attributes.as_mut_ptr()))?;
        let at = ptr::with_exposed_provenance_mut(stack.start);
        let result =
            check(libc::pthread_attr_setstack(attributes.as_mut_ptr(), at, stack.len())).and_then(|()| {
                libc::sigfillset(all.as_mut_ptr());
                libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
                let data = ptr::from_ref(founder).cast_mut().cast();
                let started = libc::pthread_create(thread.as_mut_ptr(), attributes.as_ptr(), found, data);
                libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
                check(started)
            });
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        result
    }
}

/// The thread that a stack begins with.
extern "C" fn found(founder: *mut c_void) -> *mut c_void {
    // SAFETY: `Founding` keeps it until the thread has gone.
    let founder = unsafe { &*founder.cast::<Founder>() };
    founder.thread_pointer.store(machine::thread_pointer(), Ordering::Relaxed);
    founder.stack_base.store(machine::stack_pointer(), Ordering::Relaxed);
    let mut id_at = 0usize;
    // SAFETY: the calls write to memory made for them. The last one ends this thread without a word to the C library, which
    // keeps what it has of it; nothing of this thread is left on its stack that somebody refers to.
    unsafe {
        if libc::prctl(libc::PR_GET_TID_ADDRESS, &raw mut id_at) == 0 {
            founder.id_at.store(id_at, Ordering::Relaxed);
        }
        founder.id.store(libc::gettid(), Ordering::Relaxed);
        // What the kernel sets to 0 when the thread has gone; the library would take its own word for that.
        libc::syscall(libc::SYS_set_tid_address, founder.is_there.as_ptr());
        libc::syscall(libc::SYS_exit, 0);
    }
    unreachable!("the thread has ended")
}

/// Says in the block that the kernel does not write there on which processor the thread runs (`rseq`): else code that asks
/// for this would be told for ever where the first thread was.
///
/// # Safety
/// The block is that of a thread that has gone, whose thread pointer this is.
unsafe fn forget_processor(thread_pointer: usize, stack: &Range<usize>) {
    const UNINITIALIZED: u32 = u32::MAX;
    // SAFETY: glibc's variables of these names are of these types.
    let offset = unsafe {
        let number = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).cast_const();
        let (offset, size) = (number(c"__rseq_offset").cast::<isize>(), number(c"__rseq_size").cast::<u32>());
        match (offset.as_ref(), size.as_ref()) {
            (Some(offset), Some(1..)) => *offset,
            _ => return,
        }
    };
    let area = thread_pointer.wrapping_add_signed(offset);
    if stack.contains(&area) && stack.contains(&(area + 8)) && area.is_multiple_of(4) {
        let word: *mut u32 = ptr::with_exposed_provenance_mut(area);
        // SAFETY: the first two words of the block's area: the processor where the thread may begin, and where it is.
        unsafe {
            word.write(0);
            word.add(1).write(UNINITIALIZED);
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod machine {
    use std::arch::asm;
    use std::ops::Range;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[inline(always)]
    pub fn thread_pointer() -> usize {
        let pointer;
        // SAFETY: by the platform's convention the first word of the thread block is its address.
        unsafe { asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags)) };
        pointer
    }

    pub fn stack_pointer() -> usize {
        let pointer;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, rsp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
        pointer
    }

    /// Makes a request of valgrind's about memory. Anywhere else nothing happens.
    pub fn tell_valgrind(request: usize, memory: &Range<usize>) {
        let request = [request, memory.start, memory.len(), 0, 0, 0];
        // SAFETY: the instructions turn a register round once and exchange one with itself, which valgrind takes for a
        // request; it reads the words that the other register points to.
        unsafe {
            asm!("rol rdi, 3", "rol rdi, 13", "rol rdi, 61", "rol rdi, 51", "xchg rbx, rbx", in("rax") &request,
                inout("rdx") 0usize => _, options(nostack));
        }
    }

    /// Whether programs may write the register themselves: [`UNKNOWN`], [`NO`] or [`YES`].
    static WRITABLE: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;

    /// # Safety
    /// The pointer is that of a thread block that no other thread uses.
    #[inline(always)]
    pub unsafe fn set_thread_pointer(pointer: usize) {
        if WRITABLE.load(Ordering::Relaxed) == YES {
            // SAFETY: the processor has the instruction; the caller's promise.
            unsafe { asm!("wrfsbase {}", in(reg) pointer, options(nostack, preserves_flags)) };
        } else {
            // SAFETY: the caller's promise.
            unsafe { set_slowly(pointer) };
        }
    }

    /// Has the kernel write the register where programs may not.
    ///
    /// # Safety
    /// As [`set_thread_pointer`].
    #[cold]
    #[inline(never)]
    unsafe fn set_slowly(pointer: usize) {
        const HWCAP2_FSGSBASE: u64 = 1 << 1;
        const ARCH_SET_FS: i32 = 0x1002;
        if WRITABLE.load(Ordering::Relaxed) == UNKNOWN {
            // SAFETY: has no preconditions.
            let writable = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0;
            WRITABLE.store(if writable { YES } else { NO }, Ordering::Relaxed);
        }
        // SAFETY: the caller's promise.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_SET_FS, pointer) };
    }
}

#[cfg(target_arch = "aarch64")]
mod machine {
    use std::arch::asm;
    use std::ops::Range;

    #[inline(always)]
    pub fn thread_pointer() -> usize {
        let pointer;
        // SAFETY: reads a register.
        unsafe { asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags)) };
        pointer
    }

    pub fn stack_pointer() -> usize {
        let pointer;
        // SAFETY: reads a register.
        unsafe { asm!("mov {}, sp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
        pointer
    }

    /// Tests run under valgrind on x86-64.
    pub fn tell_valgrind(_request: usize, _memory: &Range<usize>) {}

    /// # Safety
    /// The pointer is that of a thread block that no other thread uses.
    #[inline(always)]
    pub unsafe fn set_thread_pointer(pointer: usize) {
        // SAFETY: the caller's promise.
        unsafe { asm!("msr tpidr_el0, {}", in(reg) pointer, options(nostack, preserves_flags)) };
    }
}
