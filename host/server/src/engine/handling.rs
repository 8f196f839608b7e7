//! What handler a thread runs.

use super::caught::catch;
use hostcall_abi::launch::LaunchId;
use std::cell::Cell;
use std::sync::Arc;

/// The handler that a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handling {
    /// The token of the server, see [`crate::ServerBuilder::token`].
    pub server: u64,
    /// The launch whose call or post it handles.
    pub launch: LaunchId,
    /// The method.
    pub service: &'static str,
}

thread_local! {
    /// The server whose handlers the thread runs.
    static SERVER: Cell<Option<u64>> = const { Cell::new(None) };
    /// The method that was called last.
    static SERVICE: Cell<&'static str> = const { Cell::new("") };
}

/// Returns the handler that the calling thread runs; `None` when it runs none.
pub fn handling() -> Option<Handling> {
    let caller = hostcall_service::caller()?;
    Some(Handling { server: SERVER.get().unwrap_or_default(), launch: caller.launch, service: SERVICE.get() })
}

/// What each thread of a server does first.
#[derive(Clone)]
pub(crate) struct ThreadSetup {
    /// Tells the server's threads from those of others.
    pub token: u64,
    /// Whoever started the server has something to do on each of its threads.
    pub on_thread: Arc<dyn Fn() + Send + Sync>,
}

impl Default for ThreadSetup {
    fn default() -> Self {
        Self { token: 0, on_thread: Arc::new(|| ()) }
    }
}

impl ThreadSetup {
    /// Notes whose handlers the calling thread runs.
    pub fn enter(&self) {
        SERVER.set(Some(self.token));
        let _ = catch(|| (self.on_thread)());
    }

    /// Does what [`ThreadSetup::enter`] does on a thread that runs handlers of several servers, if it ran another one's.
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "the server's threads are its own"))]
    pub fn enter_again(&self) {
        if SERVER.get() != Some(self.token) {
            self.enter();
        }
    }
}

/// Notes the method whose handler the calling thread runs next.
#[inline(always)]
pub(crate) fn set_service(name: &'static str) {
    SERVICE.set(name);
}
