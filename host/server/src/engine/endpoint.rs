//! Settings that an endpoint has whatever protocol it speaks.

use super::budget::Budget;
use super::handling::ThreadSetup;
use hostcall_trace::Source;
use std::sync::Arc;

/// Settings of an endpoint.
#[derive(Clone)]
pub(crate) struct EndpointSettings {
    /// The device whose kernels call, where it has a name.
    pub device: Option<Arc<str>>,
    pub setup: ThreadSetup,
    /// Most bytes of one lane's message.
    pub message_limit: usize,
    /// Most bytes of all messages together.
    pub messages_limit: usize,
    pub trace: Option<Source>,
}

impl EndpointSettings {
    pub fn new(message_limit: usize, messages_limit: usize) -> Self {
        let (device, setup, trace) = (None, ThreadSetup::default(), None);
        Self { device, setup, message_limit, messages_limit, trace }
    }

    pub fn budget(&self) -> Arc<Budget> {
        Budget::new(self.messages_limit, self.message_limit)
    }

    /// Has `enter` called first on each thread, after what was given before.
    pub fn on_thread(&mut self, enter: impl Fn() + Send + Sync + 'static) {
        let before = self.setup.on_thread.clone();
        self.setup.on_thread = Arc::new(move || {
            before();
            enter();
        });
    }
}

/// The functions of a builder with a field `endpoint` that change these settings; the defaults of the limits, in words.
macro_rules! endpoint_settings {
    ($message_limit:literal, $messages_limit:literal) => {
        /// Names the device whose kernels call, in what is told of their calls. Default: it has no name there, or, beside
        /// another server or like one, that one's.
        #[must_use]
        pub fn device(mut self, name: &str) -> Self {
            self.endpoint.device = Some(name.into());
            self
        }

        /// Calls `enter` first on each thread of the server, also on those that run handlers. Each function that was given is
        /// called. Default: nothing.
        #[must_use]
        pub fn on_thread(mut self, enter: impl Fn() + Send + Sync + 'static) -> Self {
            self.endpoint.on_thread(enter);
            self
        }

        #[doc = concat!("Most bytes of one lane's message or reply. Default ", $message_limit, ".")]
        #[must_use]
        pub fn message_limit(mut self, bytes: usize) -> Self {
            self.endpoint.message_limit = bytes;
            self
        }

        #[doc = concat!("Most bytes of all messages that are on their way or held. Default ", $messages_limit, ".")]
        #[must_use]
        pub fn messages_limit(mut self, bytes: usize) -> Self {
            self.endpoint.messages_limit = bytes;
            self
        }

        /// Records calls there: where the protocol does not say who calls, without that. Default: nowhere, which costs a call
        /// nothing.
        #[must_use]
        pub fn trace(mut self, source: Source) -> Self {
            self.endpoint.trace = Some(source);
            self
        }
    };
}

pub(crate) use endpoint_settings;
