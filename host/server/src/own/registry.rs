//! Which handler a service number means. Registering and removing go on while kernels run: consumers hold a
//! snapshot, and fetch a new one when there is another.

use super::counts::{AllCounts, MethodCounts, UNKNOWN};
use super::deferred::DeferredService;
use super::gather::Gathering;
use super::posts::PostQueue;
use crate::engine::Threads;
use crate::engine::caught::Contained;
use hostcall_abi::service::Method;
use hostcall_abi::status::CallError;
use hostcall_abi::word::check_of;
use hostcall_locks::Mutex;
use hostcall_service::{AsyncService, Gather, GatheredService, Service};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A service and where its handlers run, to be registered.
pub struct Handler {
    pub(crate) kind: Kind,
    /// The threads of handlers that may wait.
    pub(crate) threads: Threads,
}

/// Where a service's handlers run.
pub(crate) enum Kind {
    /// On the consumer thread, at once.
    Inline(Contained<Box<dyn Service>>),
    /// On worker threads.
    Blocking(Contained<Box<dyn Service>>),
    /// As futures.
    Async(Contained<Box<dyn AsyncService>>),
    /// Wherever whoever takes its calls runs them.
    Deferred(Contained<Box<dyn DeferredService>>),
    /// As a future for all calls of a method that wait.
    Gathered { service: Contained<Box<dyn GatheredService>>, calls: Gathering },
}

/// Returns the process's copy of a name, for a [`Method`] that is named while the program runs: reports and traces keep names as
/// long as they like, so that each text is kept once and for good.
pub fn static_name(text: &str) -> &'static str {
    static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut names = NAMES.lock();
    if let Some(name) = names.get(text) {
        return name;
    }
    let name = Box::leak(Box::<str>::from(text));
    names.insert(name);
    name
}

impl Handler {
    fn new(kind: Kind) -> Self {
        Self { kind, threads: Threads::Users }
    }

    /// Runs a service's handlers on the consumer thread, at once: the fastest, for handlers that never wait and take
    /// microseconds. One that waits delays every other call, and is named by reports of calls that do not move.
    pub fn inline(service: impl Service) -> Self {
        Self::new(Kind::Inline(Contained::new(Box::new(service))))
    }

    /// Runs a service's handlers on worker threads, where they may wait: one for each call that waits.
    pub fn blocking(service: impl Service) -> Self {
        Self::new(Kind::Blocking(Contained::new(Box::new(service))))
    }

    /// Runs a service's handlers as futures, which wait without a thread.
    pub fn futures(service: impl AsyncService) -> Self {
        Self::new(Kind::Async(Contained::new(Box::new(service))))
    }

    /// Has a service take its calls, to answer them later on a thread of its own.
    pub fn deferred(service: impl DeferredService) -> Self {
        Self::new(Kind::Deferred(Contained::new(Box::new(service))))
    }

    /// Runs a service's handlers as futures, each of which gets the calls of all waves that wait for a method.
    pub fn gathered(service: impl GatheredService, bounds: Gather) -> Self {
        let calls = Gathering::new(service.methods().len(), bounds);
        Self::new(Kind::Gathered { service: Contained::new(Box::new(service)), calls })
    }

    /// Gives the handlers threads apart from those of users' services, which may take all of theirs.
    pub(crate) fn on(self, threads: Threads) -> Self {
        Self { threads, ..self }
    }

    /// Returns the service's methods.
    pub fn methods(&self) -> &[Method] {
        match &self.kind {
            Kind::Inline(service) | Kind::Blocking(service) => service.methods(),
            Kind::Async(service) => service.methods(),
            Kind::Deferred(service) => service.methods(),
            Kind::Gathered { service, .. } => service.methods(),
        }
    }
}

/// Why a service was not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// The number is taken.
    #[error("{}", duplicate(*number, name, taken_by))]
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

fn duplicate(number: u16, name: &str, taken_by: &str) -> String {
    match name.rsplit_once("::") {
        Some((service, _)) if name == taken_by => {
            format!(
                "service {service}, of number {number}, is registered twice: leave one out, or give one of two \
                 traits of this name another number, 256 to 32767, by `#[service(number = 300)]`"
            )
        }
        _ => {
            format!(
                "service number {number} of {name} is taken by {taken_by}; give one of the two another number, \
                 256 to 32767, by `#[service(number = 300)]`"
            )
        }
    }
}

/// A service that is registered.
pub(crate) struct Registered {
    pub kind: Kind,
    pub threads: Threads,
    pub methods: Box<[Method]>,
    /// It was removed: no handler is begun any more.
    removed: AtomicBool,
    /// Posts to handlers that may wait.
    pub posts: PostQueue,
}

impl Registered {
    fn new(handler: Handler, methods: Box<[Method]>) -> Arc<Self> {
        let Handler { kind, threads } = handler;
        Arc::new(Self { kind, threads, methods, removed: false.into(), posts: PostQueue::default() })
    }

    /// Returns a name for reports: that of the first method.
    pub fn name(&self) -> &'static str {
        self.methods.first().map_or("the default service", |method| method.name())
    }

    /// Returns whether the service was removed: then no handler is begun any more.
    pub fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    /// Returns whether somebody takes its calls and posts, to handle them later.
    pub fn is_deferred(&self) -> bool {
        matches!(self.kind, Kind::Deferred(_))
    }

    /// Returns whether its calls wait for each other, to be handled together.
    pub fn gathers(&self) -> bool {
        matches!(self.kind, Kind::Gathered { .. })
    }

    pub fn set_removed(&self) {
        self.removed.store(true, Ordering::Release);
    }
}

/// A method with its handler.
pub(crate) struct Entry {
    pub method: Method,
    /// Index among the service's methods.
    pub index: usize,
    pub service: Arc<Registered>,
    pub counts: Arc<MethodCounts>,
}

/// Numbers in a page of the table.
const PAGE: usize = 256;

type Page = [Option<Arc<Entry>>; PAGE];

/// A snapshot of what is registered: a table of 256 pages, so that changing one number copies little.
#[derive(Clone)]
pub(crate) struct Registry {
    pages: Box<[Arc<Page>; PAGE]>,
    default: Option<Arc<Entry>>,
    pub counts: Arc<AllCounts>,
}

impl Registry {
    /// Makes an empty one, for a server with so many consumers.
    pub fn new(consumers: usize) -> Self {
        let empty = Arc::new([const { None }; PAGE]);
        let counts = Arc::new(AllCounts::new(consumers));
        Self { pages: Box::new([(); PAGE].map(|()| empty.clone())), default: None, counts }
    }

    /// Returns where calls are counted that reach no service.
    pub fn unknown(&self) -> Arc<MethodCounts> {
        self.counts.of(UNKNOWN)
    }

    fn get(&self, number: u16) -> Option<&Arc<Entry>> {
        self.pages[usize::from(number) / PAGE][usize::from(number) % PAGE].as_ref()
    }

    fn set(&mut self, number: u16, entry: Option<Arc<Entry>>) {
        let page = &mut self.pages[usize::from(number) / PAGE];
        Arc::make_mut(page)[usize::from(number) % PAGE] = entry;
    }

    /// Returns the entry for a number, or the default service's.
    #[inline]
    pub fn find(&self, number: u16) -> Option<&Arc<Entry>> {
        self.get(number).or(self.default.as_ref())
    }

    /// Returns the entry for a call of a number whose types have this check.
    #[inline]
    pub fn entry(&self, number: u16, check: u32) -> Result<&Arc<Entry>, CallError> {
        let entry = self.find(number).ok_or(CallError::NoSuchService)?;
        let schema = entry.method.schema();
        if schema != 0 && check_of(schema) != check {
            return Err(CallError::TypeMismatch);
        }
        Ok(entry)
    }

    /// Adds a service and returns it.
    pub fn add(&mut self, handler: Handler) -> Result<Arc<Registered>, RegisterError> {
        let methods: Box<[Method]> = handler.methods().into();
        if methods.is_empty() {
            return Err(RegisterError::Empty);
        }
        for (i, method) in methods.iter().enumerate() {
            let (name, number) = (method.name().to_string(), method.number());
            if number == 0 {
                return Err(RegisterError::Reserved { name });
            }
            let same = methods[..i].iter().find(|other| other.number() == number).map(Method::name);
            if let Some(taken_by) = same.or(self.get(number).map(|entry| entry.method.name())) {
                let taken_by = taken_by.to_string();
                return Err(RegisterError::Duplicate { number, name, taken_by });
            }
        }
        let service = Registered::new(handler, methods);
        for (index, method) in service.methods.iter().enumerate() {
            let counts = self.counts.of(method.name());
            let entry = Entry { method: *method, index, service: service.clone(), counts };
            self.set(method.number(), Some(Arc::new(entry)));
        }
        Ok(service)
    }

    /// Removes a service.
    pub fn remove(&mut self, service: &Arc<Registered>) {
        for method in &service.methods {
            if self.get(method.number()).is_some_and(|entry| Arc::ptr_eq(&entry.service, service)) {
                self.set(method.number(), None);
            }
        }
    }

    pub fn set_default(&mut self, handler: Handler) {
        let method = Method::untyped("the default service", 0);
        let service = Registered::new(handler, Box::default());
        let counts = self.counts.of(method.name());
        self.default = Some(Arc::new(Entry { method, index: 0, service, counts }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall_service::{Reply, Request};

    struct Methods(Vec<Method>);

    impl Service for Methods {
        fn methods(&self) -> &[Method] {
            &self.0
        }

        fn call(&self, _: usize, _: Request<'_>, _: &mut dyn Reply) -> Result<(), CallError> {
            Ok(())
        }
    }

    fn handler(numbers: &[u16]) -> Handler {
        let method = |number: &u16| Method::untyped("a method", *number);
        Handler::inline(Methods(numbers.iter().map(method).collect()))
    }

    #[test]
    fn a_number_that_is_taken_says_what_to_do() {
        let said = |first: &'static str, second: &'static str| {
            let mut registry = Registry::new(1);
            let one = |name| Handler::inline(Methods(vec![Method::untyped(name, 7)]));
            registry.add(one(first)).unwrap();
            registry.add(one(second)).map(drop).unwrap_err().to_string()
        };
        assert_eq!(
            said("Loop::more", "Loop::more"),
            "service Loop, of number 7, is registered twice: leave one out, or give one of two traits of this \
             name another number, 256 to 32767, by `#[service(number = 300)]`"
        );
        let other = "service number 7 of Shop::sell is taken by Loop::more; give one of the two another number, \
                     256 to 32767, by `#[service(number = 300)]`";
        assert_eq!(said("Loop::more", "Shop::sell"), other);
    }

    #[test]
    fn numbers_are_taken_once_and_come_back() {
        let mut registry = Registry::new(1);
        let first = registry.add(handler(&[1, 0xffff])).unwrap();
        let before = registry.clone();
        assert!(matches!(registry.add(handler(&[7, 7])), Err(RegisterError::Duplicate { number: 7, .. })));
        assert!(matches!(registry.add(handler(&[7, 1])), Err(RegisterError::Duplicate { number: 1, .. })));
        assert!(matches!(registry.add(handler(&[0])), Err(RegisterError::Reserved { .. })));
        assert!(matches!(registry.add(handler(&[])), Err(RegisterError::Empty)));
        assert!(registry.entry(7, 0).is_err());
        registry.remove(&first);
        let second = registry.add(handler(&[1])).unwrap();
        // The first is gone already; its numbers are the second's.
        registry.remove(&first);
        assert!(Arc::ptr_eq(&registry.find(1).unwrap().service, &second));
        assert!(registry.find(0xffff).is_none());
        assert!(Arc::ptr_eq(&before.find(1).unwrap().service, &first));
        registry.set_default(handler(&[]));
        assert_eq!(registry.find(9).unwrap().method.name(), "the default service");
    }
}
