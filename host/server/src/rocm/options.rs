//! What a consumer is told when it is made, and what it tells.

use super::buffer::Broken;
use crate::engine::handling::ThreadSetup;
use crate::engine::{Settings, report};
use crate::own::Server;
use hostcall_trace::Source;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Something that a device or a handler did and must not. The packet concerned is answered with zeros, as far as it is known, or
/// the lane concerned where each lane asks for itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The buffer's address on its device.
    pub buffer: u64,
    /// What was wrong.
    pub kind: FaultKind,
}

/// What was wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The chain of submitted packets broke off: what was behind it is not answered.
    Broken(Broken),
    /// No handler is registered for the service, and no default handler.
    NoSuchService(u32),
    /// A call of a function that is not registered.
    NoSuchFunction(u64),
    /// The handler of the service panicked.
    Panicked(u32),
    /// So many messages of lanes, such as lines that they print, were longer than a message may be, or more
    /// than may be open. Their lanes get -1.
    MessagesLost(u32),
    /// A thread of the consumer panicked, which is a bug in hostcall: its buffers are served no more.
    ServerFailed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hostcall buffer {:#x}: ", self.buffer)?;
        match &self.kind {
            FaultKind::Broken(broken) => write!(f, "{broken}; packets behind it get no answer"),
            FaultKind::NoSuchService(service) => {
                write!(f, "a kernel called service {service}, for which no handler is registered")
            }
            FaultKind::NoSuchFunction(number) => {
                write!(f, "a kernel called the function {number:#x}, where none is registered")
            }
            FaultKind::Panicked(service) => write!(f, "the handler of service {service} panicked"),
            FaultKind::MessagesLost(count) => write!(
                f,
                "{count} messages of lanes, such as printed lines, are lost: they were too long or too many at \
                 once (by default, more than 1 MiB each or 256 MiB together)"
            ),
            FaultKind::ServerFailed => {
                f.write_str("its consumer has failed, which is a bug in hostcall: it is served no more")
            }
        }
    }
}

/// Settings of a [`super::Consumer`].
#[derive(Clone)]
pub struct Options {
    pub(super) device: Option<Arc<str>>,
    pub(super) spin: Duration,
    pub(super) setup: ThreadSetup,
    /// Of the engine, except for what each thread does first and the trace.
    pub(super) engine: Settings,
    pub(super) message_limit: usize,
    pub(super) messages_limit: usize,
    pub(super) trace: Option<Source>,
    pub(super) is_told_of_launches: bool,
    pub(super) on_fault: Arc<dyn Fn(&Fault) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: None,
            spin: Duration::from_micros(50),
            setup: ThreadSetup::default(),
            engine: Settings::default(),
            message_limit: 1 << 20,
            messages_limit: 256 << 20,
            trace: None,
            is_told_of_launches: false,
            on_fault: Arc::new(|fault| report::line(fault)),
        }
    }
}

impl Options {
    /// Names the device whose kernels call, in reports of calls that wait. Default: it has no name there, or that of the
    /// server which the consumer is [like](Options::like).
    #[must_use]
    pub fn device(mut self, name: &str) -> Self {
        self.device = Some(name.into());
        self
    }

    /// How long the thread without work looks on before it sleeps, at most 0.9 ms at a time. Default 50 µs.
    #[must_use]
    pub fn spin(mut self, spin: Duration) -> Self {
        self.spin = spin;
        self
    }

    /// Calls `enter` first on each thread of the consumer. Default: nothing.
    #[must_use]
    pub fn on_thread(mut self, enter: impl Fn() + Send + Sync + 'static) -> Self {
        self.setup.on_thread = Arc::new(enter);
        self
    }

    /// Has as many worker threads as this server, of the same kind, and reports calls that wait as it does. Default: what a
    /// server has that is told nothing.
    #[must_use]
    pub fn like(mut self, server: &Server) -> Self {
        self.engine = server.engine_settings().clone();
        self
    }

    /// Most bytes of one lane's message, such as a printed line with its format. Default 1 MiB.
    #[must_use]
    pub fn message_limit(mut self, bytes: usize) -> Self {
        self.message_limit = bytes;
        self
    }

    /// Most bytes of all messages that have begun and not ended, each with 64 besides its words: as
    /// many as the largest GPU has lanes, each with 340 bytes. Beyond that a buffer's oldest are given up. Default 256 MiB.
    #[must_use]
    pub fn messages_limit(mut self, bytes: usize) -> Self {
        self.messages_limit = bytes;
        self
    }

    /// Records packets there as calls. The protocol does not say who calls. Default: nowhere.
    #[must_use]
    pub fn trace(mut self, source: Source) -> Self {
        self.trace = Some(source);
        self
    }

    /// Looks for calls only while there is a [`CallsExpected`](super::CallsExpected). Default: always.
    #[must_use]
    pub fn told_of_launches(mut self) -> Self {
        self.is_told_of_launches = true;
        self
    }

    /// Calls `fault`, on a thread for callbacks, when a device or a handler did what it must not: at most 16 times for each
    /// registration of a buffer, and for lost messages whenever they are twice as many, and at the end. Default: a line on
    /// stderr.
    #[must_use]
    pub fn on_fault(mut self, fault: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        self.on_fault = Arc::new(fault);
        self
    }
}
