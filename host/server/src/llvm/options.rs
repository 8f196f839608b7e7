//! What a server is told when it starts, and what it tells.

use crate::engine::caught::catch;
use crate::engine::endpoint::{EndpointSettings, endpoint_settings};
use crate::engine::report;
use crate::rocm;
use hostcall_trace::Source;
use std::fmt;
use std::sync::Arc;

/// How a program ended itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It called `exit` with this code.
    Exited(i32),
    /// It called `abort`.
    Aborted,
}

/// A call that cannot go on, because of what its client sent or a handler did; or what a service of ROCm's met. Its port is served
/// no more, unless [`Options::answer_faults`] was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The port.
    pub port: u32,
    /// What was wrong.
    pub kind: FaultKind,
}

/// What was wrong with a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The server knows no such opcode.
    Opcode(u32),
    /// The header's mask names no lane, or lanes that a wave has not.
    Mask(u64),
    /// A message of so many bytes is longer than [`Options::message_limit`].
    TooLong(u64),
    /// All messages on their way are together longer than [`Options::messages_limit`].
    TooMuch,
    /// A host call to a function that is not registered.
    NoSuchFunction(u64),
    /// A call of this function of an API of Emissary's that nobody answers.
    NoSuchEmissary {
        /// The API.
        api: u16,
        /// Its function.
        function: u16,
    },
    /// The arguments of an Emissary call or of a typed function do not lie in what its client sent.
    Arguments,
    /// A client went on after its call's end. Only servers with [`Options::answer_faults`] notice it: for others it is a call of the
    /// same opcode.
    BeyondEnd,
    /// A handler of the embedding program failed, with this number of its own.
    HandlerFailed(i32),
    /// A handler panicked.
    Panicked,
    /// Of a service of ROCm's. It was answered with zeros, and its port is served on.
    OfRocm(rocm::FaultKind),
    /// A thread of the server panicked, which is a bug in hostcall: no port is served any more.
    ServerFailed,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let FaultKind::OfRocm(fault) = &self.kind {
            return write!(f, "port {} of LLVM's protocol: {fault}", self.port);
        }
        write!(f, "a call by port {} of LLVM's protocol cannot go on: ", self.port)?;
        match &self.kind {
            FaultKind::Opcode(opcode) => write!(f, "its client asked for {opcode:#x}, which is no opcode"),
            FaultKind::Mask(mask) => write!(f, "its client has lanes {mask:#x}, which no wave has"),
            FaultKind::TooLong(bytes) => {
                write!(f, "its client sends {bytes} bytes at once, which is over the limit")
            }
            FaultKind::TooMuch => f.write_str("its client and others send more bytes than the limit"),
            FaultKind::NoSuchFunction(address) => {
                write!(f, "its client called {address:#x}, where no function is registered")
            }
            FaultKind::NoSuchEmissary { api, function } => {
                write!(
                    f,
                    "its client called function {function} of Emissary's API {api}, which has no handler"
                )
            }
            FaultKind::Arguments => f.write_str("its client's arguments do not lie in what it sent"),
            FaultKind::BeyondEnd => {
                f.write_str("its client sends or receives more than the call's opcode has")
            }
            FaultKind::HandlerFailed(code) => write!(f, "its handler failed with {code}"),
            FaultKind::Panicked => f.write_str("a handler panicked"),
            FaultKind::OfRocm(_) => Ok(()),
            FaultKind::ServerFailed => f.write_str("the server has failed, which is a bug in hostcall"),
        }
    }
}

/// What is called for each fault.
type OnFault = dyn Fn(&Fault) + Send + Sync;
type OnRocmFault = dyn Fn(&rocm::Fault) + Send + Sync;

/// Settings of an [`super::LlvmServer`].
pub struct Options {
    pub(super) endpoint: EndpointSettings,
    pub(super) threads: u32,
    pub(super) system: bool,
    pub(super) on_end: Box<dyn Fn(End) + Send + Sync>,
    /// A line on stderr when there is none.
    on_fault: Option<Box<OnFault>>,
    /// Told of what ROCm's services met, in the place of `on_fault`.
    on_rocm_fault: Option<Arc<OnRocmFault>>,
    /// Told of a fault before its client gets zeros.
    pub(super) before_zeros: Option<Box<OnFault>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: EndpointSettings::new(64 << 20, 1 << 30),
            threads: 1,
            system: false,
            on_end: Box::new(|_| ()),
            on_fault: None,
            on_rocm_fault: None,
            before_zeros: None,
        }
    }
}

impl Options {
    endpoint_settings!("64 MiB", "1 GiB");

    /// Does what [`Options::device`] does, where that was not called before.
    #[must_use]
    pub fn or_device(self, name: &str) -> Self {
        if self.endpoint.device.is_some() { self } else { self.device(name) }
    }

    /// Threads that serve, which share the ports out among them. Default 1.
    #[must_use]
    pub fn threads(mut self, threads: u32) -> Self {
        self.threads = threads;
        self
    }

    /// Whether `system` runs commands; else it gives -1. Default: no.
    #[must_use]
    pub fn system(mut self, allowed: bool) -> Self {
        self.system = allowed;
        self
    }

    /// Calls `end` when the program ends itself, on a thread for callbacks: files and streams are flushed. Other
    /// lanes go on until the launch is ended.
    #[must_use]
    pub fn on_end(mut self, end: impl Fn(End) + Send + Sync + 'static) -> Self {
        self.on_end = Box::new(end);
        self
    }

    /// Calls `fault`, on a thread for callbacks, when a call cannot go on. Its client waits for ever, so the launch should be ended,
    /// unless [`Options::answer_faults`] was asked for. Default: a line on stderr.
    #[must_use]
    pub fn on_fault(mut self, fault: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        self.on_fault = Some(Box::new(fault));
        self
    }

    /// Calls `fault` after what [`Options::on_fault`] said before. If it was not said, nothing else tells of a fault.
    #[must_use]
    pub fn also_on_fault(mut self, fault: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        let Some(first) = self.on_fault.take() else { return self.on_fault(fault) };
        let both = move |it: &Fault| {
            // Whoever asked for the second waits for it.
            let _ = catch(|| first(it));
            fault(it);
        };
        self.on_fault(both)
    }

    /// Answers what is left of a call after a fault with zeros, whatever its client sends and receives, so that no client waits for
    /// ever and its port is served on. `note` is called first, on the thread that found the fault: it does not wait. The protocol
    /// has no status, so that it is `note` by which a host knows that a launch went wrong before the launch can end.
    ///
    /// The opcode with all bits set (0xffff of LLVM 19) is the server's then: it stands in the headers of ports whose call is known.
    #[must_use]
    pub fn answer_faults(mut self, note: impl Fn(&Fault) + Send + Sync + 'static) -> Self {
        self.before_zeros = Some(Box::new(note));
        self
    }

    /// Tells of each [`FaultKind::OfRocm`] as a consumer with these options tells of its faults, with the ports' address in the
    /// place of the buffer's. Default: as of other faults.
    #[must_use]
    pub fn rocm_faults(mut self, options: &rocm::Options) -> Self {
        self.on_rocm_fault = Some(options.on_fault.clone());
        self
    }

    /// Tells of a fault at ports that have this address.
    pub(super) fn tell(&self, fault: &Fault, address: u64) {
        match (&fault.kind, &self.on_rocm_fault, &self.on_fault) {
            (FaultKind::OfRocm(kind), Some(on_fault), _) => {
                on_fault(&rocm::Fault { buffer: address, kind: kind.clone() });
            }
            (_, _, Some(on_fault)) => on_fault(fault),
            _ => report::line(fault),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_keeps_the_name_that_it_was_given() {
        let name = |options: Options| options.or_device("of the device").endpoint.device;
        assert_eq!(name(Options::default()).as_deref(), Some("of the device"));
        assert_eq!(name(Options::default().device("given")).as_deref(), Some("given"));
        assert_eq!(name(Options::default().device("")).as_deref(), Some(""));
    }
}
