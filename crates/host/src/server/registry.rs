//! Which handler a service number means. Registering and removing go on while kernels run: consumers hold a
//! snapshot and fetch a new one when its version changed.

use hostcall_abi::service::{AsyncService, Method, Service};
use hostcall_abi::status::CallError;
use hostcall_abi::word::check_of;
use std::sync::Arc;

/// Where a service's handlers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the consumer thread, at once: the fastest, for handlers that never wait and take microseconds.
    /// One that waits delays every other call.
    Inline,
    /// On worker threads, as many as there are calls that wait.
    Blocking,
}

/// A handler and how it runs.
#[derive(Clone)]
pub enum Handler {
    /// Handlers that return when they are done.
    Sync(Arc<dyn Service>, Mode),
    /// Handlers that are futures.
    Async(Arc<dyn AsyncService>),
}

impl Handler {
    /// The handler's methods.
    pub fn methods(&self) -> &[Method] {
        match self {
            Handler::Sync(service, _) => service.methods(),
            Handler::Async(service) => service.methods(),
        }
    }
}

/// Why a service was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The number is taken.
    #[error("service number {number} of {name} is taken by {taken_by}; give one of the two another number")]
    Duplicate {
        /// The number.
        number: u16,
        /// The method that wanted it.
        name: String,
        /// The method that has it.
        taken_by: String,
    },
    /// Number 0 is not a device's to call.
    #[error("service number 0 of {name} is reserved; use `default_service` for calls to unknown numbers")]
    Reserved {
        /// The method that wanted it.
        name: String,
    },
    /// The service has no methods.
    #[error("the service has no methods, so no kernel could call it")]
    Empty,
}

/// A method with its handler.
pub(crate) struct Entry {
    pub method: Method,
    /// Index among the handler's methods.
    pub index: usize,
    pub handler: Handler,
}

/// A snapshot of what is registered.
#[derive(Clone)]
pub(crate) struct Registry {
    /// By number: index into `entries` plus one, or 0.
    by_number: Box<[u16]>,
    entries: Vec<Arc<Entry>>,
    default: Option<Arc<Entry>>,
}

impl Registry {
    pub fn new() -> Self {
        Self { by_number: vec![0; 1 << 16].into(), entries: Vec::new(), default: None }
    }

    /// The entry for a number, or the default service.
    #[inline]
    pub fn find(&self, number: u16) -> Option<&Arc<Entry>> {
        match self.by_number[usize::from(number)] {
            0 => self.default.as_ref(),
            index => Some(&self.entries[usize::from(index) - 1]),
        }
    }

    /// The entry for a call of a number whose types have this check.
    #[inline]
    pub fn entry(&self, number: u16, check: u32) -> Result<&Arc<Entry>, CallError> {
        let entry = self.find(number).ok_or(CallError::NoSuchService)?;
        let schema = entry.method.schema;
        if schema != 0 && check_of(schema) != check {
            return Err(CallError::TypeMismatch);
        }
        Ok(entry)
    }

    pub fn add(&mut self, handler: &Handler) -> Result<(), RegisterError> {
        let methods = handler.methods();
        if methods.is_empty() {
            return Err(RegisterError::Empty);
        }
        for (i, method) in methods.iter().enumerate() {
            let name = method.name.to_string();
            if method.number == 0 {
                return Err(RegisterError::Reserved { name });
            }
            let taken_by = match self.by_number[usize::from(method.number)] {
                0 => methods[..i].iter().find(|other| other.number == method.number).map(|other| other.name),
                index => Some(self.entries[usize::from(index) - 1].method.name),
            };
            if let Some(taken_by) = taken_by {
                let taken_by = taken_by.to_string();
                return Err(RegisterError::Duplicate { number: method.number, name, taken_by });
            }
        }
        for (index, method) in methods.iter().enumerate() {
            self.entries.push(Arc::new(Entry { method: *method, index, handler: handler.clone() }));
            self.by_number[usize::from(method.number)] = self.entries.len() as u16;
        }
        Ok(())
    }

    /// Removes the service whose first method has this number. Whether there was one.
    pub fn remove(&mut self, number: u16) -> bool {
        let index = self.by_number[usize::from(number)];
        if index == 0 {
            return false;
        }
        let handler = self.entries[usize::from(index) - 1].handler.clone();
        let numbers: Vec<u16> = handler.methods().iter().map(|method| method.number).collect();
        self.entries.retain(|entry| !numbers.contains(&entry.method.number));
        self.by_number.fill(0);
        for (i, entry) in self.entries.iter().enumerate() {
            self.by_number[usize::from(entry.method.number)] = i as u16 + 1;
        }
        true
    }

    pub fn set_default(&mut self, handler: Option<Handler>) {
        self.default = handler.map(|handler| {
            let method = Method { name: "the default service", number: 0, schema: 0 };
            Arc::new(Entry { method, index: 0, handler })
        });
    }
}
