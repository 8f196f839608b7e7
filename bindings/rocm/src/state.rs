//! The consumers and buffers of the process.

use crate::functions::Error;
use crate::handlers::{self, debug};
use crate::hsa::Signal;
use hostcall_locks::{Mutex, MutexGuard};
use hostcall_server::rocm::{ALIGN, Consumer, LaunchError, Layout, Options, PacketMemory, Version};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, LazyLock};

/// A consumer and the doorbell of its buffers.
struct Known {
    consumer: Consumer,
    doorbell: Signal,
}

/// A buffer that was registered with a consumer.
struct Served {
    consumer: usize,
    memory: Arc<PacketMemory>,
}

/// What the interface's functions change.
#[derive(Default)]
pub(crate) struct State {
    /// By the numbers that C has for handles.
    consumers: HashMap<usize, Known>,
    next: usize,
    /// The packets of buffers, by their addresses. A buffer's own memory is not asked: its device may have changed it.
    initialized: HashMap<usize, Layout>,
    served: HashMap<usize, Served>,
}

/// A consumer that can be asked for nothing any more. Its buffers are still served until its end.
pub(crate) struct Removed {
    id: usize,
    known: Known,
}

impl State {
    pub fn lock() -> MutexGuard<'static, Self> {
        static STATE: LazyLock<Mutex<State>> = LazyLock::new(Mutex::default);
        STATE.lock()
    }

    /// Makes a consumer. Returns its number, which is never 0.
    ///
    /// # Errors
    /// [`Error::Internal`] when HSA is not there, or the consumer cannot be made.
    pub fn create(&mut self) -> Result<usize, Error> {
        let doorbell = Signal::create().ok_or(Error::Internal)?;
        let consumer =
            Consumer::new(handlers::services(), Options::default()).map_err(|_| Error::Internal)?;
        self.next += 1;
        // A multiple of a pointer's alignment, though nobody follows it.
        let id = self.next * ALIGN;
        self.consumers.insert(id, Known { consumer, doorbell });
        debug(format_args!("consumer {id:#x} is made"));
        Ok(id)
    }

    fn get(&self, id: usize) -> Result<&Known, Error> {
        self.consumers.get(&id).ok_or(Error::InvalidRequest)
    }

    /// Takes a consumer out of its table. Nobody else gets its buffers before [`Removed::end`] has done with them.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] when there is no such consumer, or a thread of its own asks.
    pub fn destroy(&mut self, id: usize) -> Result<Removed, Error> {
        if self.get(id)?.consumer.is_this_thread() {
            return Err(Error::InvalidRequest);
        }
        let known = self.consumers.remove(&id).ok_or(Error::InvalidRequest)?;
        debug(format_args!("consumer {id:#x} is destroyed"));
        Ok(Removed { id, known })
    }

    /// Starts a consumer's thread.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] when there is no such consumer, [`Error::ConsumerActive`] when it runs, and
    /// [`Error::LaunchFailed`] when the system starts no thread.
    pub fn launch(&mut self, id: usize) -> Result<(), Error> {
        self.get(id)?.consumer.launch().map_err(|error| match error {
            LaunchError::Active => Error::ConsumerActive,
            _ => Error::LaunchFailed,
        })?;
        debug(format_args!("consumer {id:#x} runs"));
        Ok(())
    }

    /// Returns whether a consumer runs.
    pub fn is_active(&self) -> bool {
        self.consumers.values().any(|known| known.consumer.is_active())
    }

    /// Makes an empty buffer.
    ///
    /// # Errors
    /// [`Error::IncorrectAlignment`] of a buffer that is not aligned, and [`Error::InvalidRequest`] when a buffer cannot have
    /// so many packets or is served.
    ///
    /// # Safety
    /// CALLER: if `packets` is possible, the buffer has their bytes, which nobody else uses now.
    pub unsafe fn initialize(&mut self, buffer: NonNull<u8>, packets: u32) -> Result<(), Error> {
        let address = buffer.as_ptr().addr();
        if !address.is_multiple_of(ALIGN) {
            return Err(Error::IncorrectAlignment);
        }
        let layout = Layout::new(Version::Stacks, packets).map_err(|_| Error::InvalidRequest)?;
        if self.served.contains_key(&address) {
            return Err(Error::InvalidRequest);
        }
        // SAFETY: CALLER: the bytes are there through this call; they are aligned.
        unsafe { memory(buffer, layout) }.initialize();
        self.initialized.insert(address, layout);
        Ok(())
    }

    /// Has a consumer serve a buffer.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] when there is no such consumer, the buffer was not initialized, or another consumer serves it.
    ///
    /// # Safety
    /// CALLER: the buffer has its bytes until it is deregistered or its consumer destroyed.
    pub unsafe fn register(&mut self, id: usize, buffer: NonNull<u8>) -> Result<(), Error> {
        let address = buffer.as_ptr().addr();
        let known = self.get(id)?;
        if let Some(served) = self.served.get(&address) {
            return if served.consumer == id { Ok(()) } else { Err(Error::InvalidRequest) };
        }
        let layout = *self.initialized.get(&address).ok_or(Error::InvalidRequest)?;
        // SAFETY: CALLER: the bytes are there until the memory is taken out of the table, after which nobody has it.
        let memory = Arc::new(unsafe { memory(buffer, layout) });
        // SAFETY: the signal lives until no buffer has its handle (`Removed::end`). CALLER: kernels use the
        // buffer no more when it is deregistered or its consumer destroyed.
        unsafe { memory.set_doorbell(known.doorbell.handle()) };
        known.consumer.register(&memory).map_err(|_| Error::InvalidRequest)?;
        self.served.insert(address, Served { consumer: id, memory });
        debug(format_args!("consumer {id:#x} serves the buffer {buffer:p}"));
        Ok(())
    }

    /// Has a consumer serve a buffer no more.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`] when there is no such consumer, or it does not serve the buffer.
    pub fn deregister(&mut self, id: usize, buffer: NonNull<u8>) -> Result<(), Error> {
        let address = buffer.as_ptr().addr();
        let known = self.get(id)?;
        let served = self.served.get(&address).filter(|served| served.consumer == id);
        let memory = &served.ok_or(Error::InvalidRequest)?.memory;
        known.consumer.deregister(memory);
        memory.reset_doorbell();
        self.served.remove(&address);
        debug(format_args!("consumer {id:#x} serves the buffer {buffer:p} no more"));
        Ok(())
    }
}

impl Removed {
    /// Waits for the consumer's end.
    pub fn end(self) {
        let Known { consumer, doorbell } = self.known;
        drop(consumer);
        // Nobody rings the signal from now on.
        let mut state = State::lock();
        let buffers = state.served.extract_if(|_, served| served.consumer == self.id);
        buffers.for_each(|(_, served)| served.memory.reset_doorbell());
        drop(state);
        drop(doorbell);
        handlers::flush();
    }
}

/// Returns a buffer's memory.
///
/// # Safety
/// The buffer is aligned and has the layout's bytes until what is returned is dropped, and only atomic accesses meanwhile.
unsafe fn memory(buffer: NonNull<u8>, layout: Layout) -> PacketMemory {
    let address = buffer.as_ptr().expose_provenance() as u64;
    // SAFETY: by the caller's promise.
    unsafe { PacketMemory::from_parts(buffer, address, layout, Box::new(())) }
}
