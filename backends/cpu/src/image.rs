//! The code of the shared object that a kernel belongs to.

use hostcall_locks::Mutex;
use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::sync::Arc;

/// The ranges of addresses that hold a shared object's code.
#[derive(Clone, Debug, Default)]
pub(crate) struct ImageCode(Vec<Range<usize>>);

impl ImageCode {
    /// Returns whether the code at this address is the shared object's. Async-signal-safe.
    pub fn contains(&self, address: usize) -> bool {
        self.0.iter().any(|range| range.contains(&address))
    }
}

/// The shared object that was asked for last, which is found again without looking at its headers.
#[derive(Default)]
pub(crate) struct Images(Mutex<Known>);

/// Held while the loader's list of objects is looked at: the loader has a lock of its own, which a child of `fork` finds as it was.
static LOOKING: Mutex<()> = Mutex::new(());

/// Nobody looks at the loader's list for the executor while what is returned lives.
pub(crate) fn hold() -> impl Sized {
    LOOKING.lock()
}

/// A shared object, and how many the process had loaded and unloaded when it was found.
#[derive(Clone, Default)]
struct Known {
    loads: u64,
    unloads: u64,
    code: Arc<ImageCode>,
}

impl Images {
    /// Finds the shared object, or the program, that `address` lies in. Returns no ranges if there is none.
    pub fn around(&self, address: usize) -> Arc<ImageCode> {
        struct Search {
            address: usize,
            known: Known,
        }
        unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, search: *mut c_void) -> c_int {
            // SAFETY: `dl_iterate_phdr` passes an object's description, whose headers are there for the call, and the
            // pointer that it was given below.
            let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
            let known = &mut search.known;
            if (known.loads, known.unloads) != (info.dlpi_adds, info.dlpi_subs) {
                *known = Known { loads: info.dlpi_adds, unloads: info.dlpi_subs, code: Arc::default() };
            }
            if known.code.contains(search.address) {
                return 1;
            }
            if info.dlpi_phdr.is_null() {
                return 0;
            }
            // SAFETY: as above.
            let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
            let code = headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0);
            let range = |header: &libc::Elf64_Phdr| {
                let start = (info.dlpi_addr as usize).wrapping_add(header.p_vaddr as usize);
                start..start.wrapping_add(header.p_memsz as usize)
            };
            let ranges: Vec<_> = code.map(range).collect();
            let is_it = ranges.iter().any(|range| range.contains(&search.address));
            if is_it {
                known.code = Arc::new(ImageCode(ranges));
            }
            is_it.into()
        }
        let known = self.0.lock().clone();
        let mut search = Search { address, known };
        let looking = hold();
        // SAFETY: `look` treats its arguments as the function passes them, and does not unwind: running out of memory
        // ends the process.
        let found = unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) } != 0;
        drop(looking);
        if !found {
            return Arc::default();
        }
        let code = Arc::clone(&search.known.code);
        *self.0.lock() = search.known;
        code
    }
}

#[cfg(test)]
mod tests {
    use super::Images;

    #[test]
    fn code_of_other_objects_is_told_apart() {
        let images = Images::default();
        let around = |address: *const ()| images.around(address as usize);
        let here = around(Images::around as *const ());
        assert!(here.contains(code_of_other_objects_is_told_apart as *const () as usize));
        assert!(!here.contains(libc::malloc as *const () as usize));
        assert!(!here.contains(std::ptr::from_ref(&here) as usize));
        let libc = around(libc::malloc as *const ());
        assert!(libc.contains(libc::free as *const () as usize));
        assert!(around(Images::around as *const ()).contains(Images::default as *const () as usize));
        assert!(!images.around(1).contains(1));
    }
}
