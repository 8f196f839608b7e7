//! Files that lanes read and write in place.
//!
//! The system sends SIGBUS to whoever touches a page of a mapping that the file does not reach any more,
//! since somebody has cut it. The handler then puts zeros in the page's place, and the thread goes on.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

/// Most mappings of the process at a time.
const MOST: usize = 1024;

/// Where a mapping lies.
struct Range {
    /// 0 while the place is free, 1 while a mapping comes or goes.
    start: AtomicUsize,
    end: AtomicUsize,
    /// How often the place was taken.
    taken: AtomicUsize,
}

static RANGES: [Range; MOST] =
    [const { Range { start: AtomicUsize::new(0), end: AtomicUsize::new(0), taken: AtomicUsize::new(0) } };
        MOST];

impl Range {
    /// Whether a mapping that stays while this looks has the address. None that comes or goes has it: nobody
    /// uses its pages, and once they are unmapped others may have them.
    fn holds(&self, address: usize) -> bool {
        let taken = self.taken.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Acquire);
        let end = self.end.load(Ordering::Relaxed);
        // Pairs with that of `MappedFile::new`: who sees the end of another mapping sees that the place was
        // taken again.
        fence(Ordering::Acquire);
        start > 1 && (start..end).contains(&address) && self.taken.load(Ordering::Relaxed) == taken
    }
}

/// A file that is mapped into the process. Its pages are read and written by words and bytes only, since
/// others may write the file too. A thread of an executor that touches a page past the file's end finds zeros
/// there.
pub struct MappedFile {
    range: &'static Range,
    start: usize,
    bytes: usize,
}

fn page_bytes() -> usize {
    static PAGE: OnceLock<usize> = OnceLock::new();
    // SAFETY: has no preconditions.
    *PAGE.get_or_init(|| usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096))
}

impl MappedFile {
    /// Maps the first `len` bytes of a file, to be read and, if it is `writable`, written.
    ///
    /// # Errors
    /// What the system answers; `OutOfMemory` when the process has 1024 mappings.
    pub fn new(file: &File, len: usize, writable: bool) -> io::Result<Self> {
        // The handler knows it.
        let page = page_bytes();
        let bytes = len.checked_next_multiple_of(page).ok_or(io::ErrorKind::InvalidInput)?;
        let free =
            |range: &&Range| range.start.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let range = RANGES.iter().find(free).ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        // SAFETY: new pages, at an address that the system chooses.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), bytes, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            range.start.store(0, Ordering::Relaxed);
            return Err(error);
        }
        // Lanes get the address as a number.
        let start = start.expose_provenance();
        range.taken.fetch_add(1, Ordering::Release);
        fence(Ordering::Release);
        range.end.store(start + bytes, Ordering::Relaxed);
        range.start.store(start, Ordering::Release);
        Ok(Self { range, start, bytes })
    }

    /// Where the file's first byte lies: at a page's start.
    pub fn address(&self) -> usize {
        self.start
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // Before the pages go: those that come in their place are not this mapping's.
        self.range.start.store(1, Ordering::SeqCst);
        // SAFETY: the pages are this mapping's own, and nobody uses them once it is dropped.
        unsafe { libc::munmap(ptr::with_exposed_provenance_mut(self.start), self.bytes) };
        self.range.start.store(0, Ordering::Release);
    }
}

/// Puts zeros in the place of the page at `address`, if a file is mapped there. Returns whether it did.
/// Async-signal-safe: it reads atomics and makes one system call.
pub(crate) fn put_zeros(address: usize) -> bool {
    if !RANGES.iter().any(|range| range.holds(address)) {
        return false;
    }
    // Known, since a file is mapped.
    let page = page_bytes();
    let at = ptr::with_exposed_provenance_mut(address / page * page);
    let (protection, flags) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED);
    // SAFETY: the page is that of a mapped file, whose users load and store words and bytes of whatever
    // value.
    unsafe { libc::mmap(at, page, protection, flags, -1, 0) != libc::MAP_FAILED }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Executor};
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// Whatever becomes of the file, the process goes on, on any thread.
    #[test]
    fn a_file_that_is_cut_reads_as_zeros() {
        let _executor = Executor::new(Config { threads: 1, ..Config::default() }).unwrap();
        let path = std::env::temp_dir().join(format!("hostcall-mapped-{}", std::process::id()));
        std::fs::write(&path, vec![7; 4 * page_bytes()]).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mapped = MappedFile::new(&file, 4 * page_bytes(), true).unwrap();
        let word = |page: usize| {
            let at = ptr::with_exposed_provenance::<AtomicU64>(mapped.address() + page * page_bytes());
            // SAFETY: the pages are mapped, and accessed atomically.
            unsafe { &*at }
        };
        let seven = u64::from_ne_bytes([7; 8]);
        assert_eq!([0, 1, 2, 3].map(|page| word(page).load(Ordering::Relaxed)), [seven; 4]);
        file.set_len(page_bytes() as u64 + 1).unwrap();
        assert_eq!([0, 2, 3].map(|page| word(page).load(Ordering::Relaxed)), [seven, 0, 0]);
        word(2).store(1, Ordering::Relaxed);
        assert_eq!(word(2).load(Ordering::Relaxed), 1);
        assert_eq!(file.metadata().unwrap().len(), page_bytes() as u64 + 1);
        word(0).store(2, Ordering::Relaxed);
        let mut first = [0; 1];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut first, 0).unwrap();
        assert_eq!(first, 2u64.to_ne_bytes()[..1]);
    }

    #[test]
    fn there_are_no_more_mappings_than_places() {
        let file = File::open("/proc/self/exe").unwrap();
        let mapped: Vec<_> = (0..2 * MOST).map_while(|_| MappedFile::new(&file, 1, false).ok()).collect();
        assert!(mapped.len() <= MOST && mapped.len() > MOST / 2);
        drop(mapped);
        assert!(MappedFile::new(&file, 1, false).is_ok());
        // Nothing is mapped: the page of a number that no file has.
        assert!(!put_zeros(4096));
    }

    /// The system gives the addresses of a mapping that goes to whoever asks next.
    #[test]
    fn pages_of_others_stay_what_they_are() {
        let goes_on = AtomicBool::new(true);
        let map = || {
            let file = File::open("/proc/self/exe").unwrap();
            while goes_on.load(Ordering::Relaxed) {
                for pages in [1, 16] {
                    drop(MappedFile::new(&file, pages * page_bytes(), false).unwrap());
                }
            }
        };
        let look = || {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let mut changed = 0;
            for _ in 0..100_000 {
                // SAFETY: a new page, at an address that the system chooses.
                let page = unsafe { libc::mmap(ptr::null_mut(), page_bytes(), protection, flags, -1, 0) };
                changed += u32::from(put_zeros(page.addr()));
                // SAFETY: it is this thread's own.
                unsafe { libc::munmap(page, page_bytes()) };
            }
            goes_on.store(false, Ordering::Relaxed);
            changed
        };
        std::thread::scope(|scope| {
            scope.spawn(map);
            assert_eq!(look(), 0, "pages were changed");
        });
    }
}
