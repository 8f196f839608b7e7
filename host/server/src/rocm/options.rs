//! What a consumer is told when it is made, and what it tells.

use super::buffer::Broken;
use crate::engine::endpoint::{EndpointSettings, endpoint_settings};
use crate::engine::{Settings, report};
use crate::own::Server;
use hostcall_trace::Source;
use std::fmt;
use std::sync::Arc;

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
        write!(f, "hostcall buffer {:#x}: {}", self.buffer, self.kind)
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(broken) => write!(f, "{broken}; packets behind it get no answer"),
            Self::NoSuchService(service) => {
                write!(f, "a kernel called service {service}, for which no handler is registered")
            }
            Self::NoSuchFunction(number) => {
                write!(f, "a kernel called the function {number:#x}, where none is registered")
            }
            Self::Panicked(service) => write!(f, "the handler of service {service} panicked"),
            Self::MessagesLost(count) => write!(
                f,
                "{count} messages of lanes, such as printed lines, are lost: they were too long or too many at \
                 once (by default, more than 1 MiB each or 256 MiB together)"
            ),
            Self::ServerFailed => {
                f.write_str("its consumer has failed, which is a bug in hostcall: it is served no more")
            }
        }
    }
}

/// Settings of a [`super::Consumer`].
#[derive(Clone)]
pub struct Options {
    pub(super) endpoint: EndpointSettings,
    /// Of the engine, except for what each thread does first and the trace.
    pub(super) engine: Settings,
    pub(super) is_told_of_launches: bool,
    pub(crate) on_fault: Arc<dyn Fn(&Fault) + Send + Sync>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            // As many as the largest GPU has lanes, each with 340 bytes.
            endpoint: EndpointSettings::new(1 << 20, 256 << 20),
            engine: Settings::default(),
            is_told_of_launches: false,
            on_fault: Arc::new(|fault| report::line(fault)),
        }
    }
}

impl Options {
    endpoint_settings!("1 MiB", "256 MiB");

    /// Has as many worker threads as this server, of the same kind, and reports calls that wait as it does. Default: what a
    /// server has that is told nothing.
    #[must_use]
    pub fn like(mut self, server: &Server) -> Self {
        self.engine = server.engine_settings().clone();
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
