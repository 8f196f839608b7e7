//! The standard library's locks without poisoning: a panic under a lock leaves the value as it was then. hostcall contains the
//! panics of users' code, and its own code changes values so that they are whole after each step.
//!
//! A lock is its own words and nothing else: no table of waiting threads is the process's. So a child of `fork` may use every
//! lock that no thread held when it was made.
#![forbid(unsafe_code)]

use std::sync::{self, PoisonError, TryLockError};
use std::time::{Duration, Instant};

pub use std::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

fn whole<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// As [`std::sync::Mutex`], without poisoning.
#[derive(Debug, Default)]
pub struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Makes an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        whole(self.0.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until no other thread holds the lock, and takes it. A thread that holds it already waits for ever or panics.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        whole(self.0.lock())
    }

    /// Takes the lock, if nobody holds it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value, which nobody else can reach.
    pub fn get_mut(&mut self) -> &mut T {
        whole(self.0.get_mut())
    }
}

/// As [`std::sync::RwLock`], without poisoning.
#[derive(Debug, Default)]
pub struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Makes an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes, and takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        whole(self.0.read())
    }

    /// Waits until nobody else has the lock, and takes it for writing.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        whole(self.0.write())
    }
}

/// As [`std::sync::Condvar`], for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Makes one that nobody waits for.
    pub const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    /// Gives the lock up, waits to be woken, and takes it again. It may wake for no reason.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        whole(self.0.wait(guard))
    }

    /// Waits while `condition` holds.
    pub fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        whole(self.0.wait_while(guard, condition))
    }

    /// Waits as [`Condvar::wait`] does, at most so long. Returns also whether the time is over.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = whole(self.0.wait_timeout(guard, limit));
        (guard, result.timed_out())
    }

    /// Waits while `condition` holds, at most so long. Returns also whether it holds still.
    pub fn wait_timeout_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        limit: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) = whole(self.0.wait_timeout_while(guard, limit, condition));
        (guard, result.timed_out())
    }

    /// Waits while `condition` holds, until `deadline` at most, or for ever without one.
    pub fn wait_until<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Option<Instant>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        match deadline {
            None => self.wait_while(guard, condition),
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                self.wait_timeout_while(guard, left, condition).0
            }
        }
    }
}
