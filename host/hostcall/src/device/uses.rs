//! Who uses memory of a device: what conflicts is put in order, so that nobody writes values that another reads plainly.
//!
//! Work that is in flight is known by its *point*: a stream and a position in it. Every allocation lists the points that
//! use it, with the bytes and the kind of access. Work that conflicts with a listed point of another stream waits for
//! it; the streams' own order does the rest. A copy that a thread of the host makes is a point too ([`HostCopy`]): it waits
//! for what conflicts and was entered before it, and what is entered after it waits for it. So nobody who copies waits for
//! what others launch meanwhile.
//!
//! Points of one piece of work are entered under the device's lock ([`Order`]), so that all work has one order: a
//! point depends only on points before it in that order, and nothing waits in a circle. A copy between two devices is entered
//! under the locks of both, so that this holds for all devices together.

use crate::primitive::{Condvar, Mutex};
use hostcall_seam::{BackendError, Queue};
use std::ops::Range;
use std::sync::{Arc, Weak};

/// What work does with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Access {
    /// Plain reads: nobody may write meanwhile.
    Read,
    /// Atomic reads and writes, beside others of their kind.
    Shared,
    /// Plain writes: nobody else may read or write meanwhile.
    Write,
}

impl Access {
    /// Says whether two accesses of the same bytes may happen at once.
    pub fn agrees_with(self, other: Self) -> bool {
        self == other && self != Access::Write
    }
}

/// Something that goes on when what it waits for has ended.
pub(crate) trait Dependent: Send + Sync {
    /// Looks again.
    fn go_on(&self);
}

/// How far a stream has come.
pub(crate) trait Timeline: Send + Sync {
    /// The number of the device whose queues can wait for it; 0 when none can.
    fn device(&self) -> u64 {
        0
    }
    /// Says whether everything up to `position` has ended.
    fn has_reached(&self, position: u64) -> bool;
    /// Waits until it has, and until what was printed up to there is written.
    fn wait_until(&self, position: u64);
    /// Notes that somebody is going to wait for a position, so that it is signalled at its place. Called under the lock of the
    /// device's order: before anything that is entered later.
    fn ask(&self, position: u64) {
        let _ = position;
    }
    /// Says whether `position` has a signal of its own, so that the device can wait for it and for nothing behind it. Gives it
    /// one if it is the last that the device has.
    fn is_signalled(&self, position: u64) -> bool {
        let _ = position;
        false
    }
    /// Has a queue of the device wait for a position that is signalled.
    fn hold_back(&self, queue: &dyn Queue, position: u64) -> Result<(), BackendError> {
        let _ = (queue, position);
        Ok(())
    }
    /// Says whether everything up to `position` has ended; else `whom` is told when something has.
    fn tell(&self, position: u64, whom: &Weak<dyn Dependent>) -> bool {
        let _ = whom;
        self.has_reached(position)
    }
    /// Says whether what is up to `position` waits for `other`, a point of another stream. `seen` are streams that were
    /// looked at, by address, and up to where.
    fn depends_on(&self, position: u64, other: &Point, seen: &mut Vec<(usize, u64)>) -> bool {
        let _ = (position, other, seen);
        false
    }
}

/// A position in a stream. It does not keep the stream: one that is gone has nothing left to do.
#[derive(Clone)]
pub(crate) struct Point {
    pub timeline: Weak<dyn Timeline>,
    pub position: u64,
}

impl Point {
    pub fn is_reached(&self) -> bool {
        self.timeline.upgrade().is_none_or(|timeline| timeline.has_reached(self.position))
    }

    fn ask(&self) {
        if let Some(timeline) = self.timeline.upgrade() {
            timeline.ask(self.position);
        }
    }

    pub fn is_of(&self, timeline: &Weak<dyn Timeline>) -> bool {
        std::ptr::addr_eq(self.timeline.as_ptr(), timeline.as_ptr())
    }

    /// Waits until it is reached.
    pub fn wait(&self) {
        if let Some(timeline) = self.timeline.upgrade() {
            timeline.wait_until(self.position);
        }
    }

    /// Says whether this point is reached only after `other` is.
    pub fn depends_on(&self, other: &Point, seen: &mut Vec<(usize, u64)>) -> bool {
        if self.is_of(&other.timeline) {
            return other.position <= self.position;
        }
        self.timeline.upgrade().is_some_and(|timeline| timeline.depends_on(self.position, other, seen))
    }
}

/// One point's access to bytes.
pub(super) struct Use {
    point: Point,
    access: Access,
    bytes: Range<usize>,
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Most uses that an allocation lists one by one. Beyond it, those of one stream and kind are merged, so that work may
/// wait for more than it must.
pub(super) const MOST_USES: usize = 64;

/// Who uses one allocation.
#[derive(Default)]
pub(crate) struct Uses {
    pub(super) listed: Mutex<UseList>,
}

#[derive(Default)]
pub(super) struct UseList {
    pub(super) work: Vec<Use>,
}

impl UseList {
    /// Lists a point. Uses that have ended, and those that the new one covers, are forgotten.
    fn add(&mut self, new: Use) {
        let covered = |old: &Use| {
            old.access == new.access
                && old.point.is_of(&new.point.timeline)
                && new.bytes.start <= old.bytes.start
                && old.bytes.end <= new.bytes.end
        };
        if self.work.len() >= 8 {
            self.work.retain(|old| !old.point.is_reached());
        }
        self.work.retain(|old| !covered(old));
        if self.work.len() >= MOST_USES {
            // The last one, whose position is the nearest. The merged use names the new one's position, which nothing later
            // that uses the new one's bytes alone stands for.
            let same = |old: &&mut Use| old.access == new.access && old.point.is_of(&new.point.timeline);
            if let Some(old) = self.work.iter_mut().rfind(same) {
                new.point.ask();
                old.bytes = old.bytes.start.min(new.bytes.start)..old.bytes.end.max(new.bytes.end);
                old.point.position = old.point.position.max(new.point.position);
                return;
            }
        }
        self.work.push(new);
    }

    /// The points of others than `own` that conflict, and are not over.
    fn conflicts(
        &self,
        own: Option<&Weak<dyn Timeline>>,
        access: Access,
        bytes: &Range<usize>,
    ) -> impl Iterator<Item = &Point> {
        self.work
            .iter()
            .filter(move |old| !access.agrees_with(old.access) && overlap(bytes, &old.bytes))
            .filter(move |old| own.is_none_or(|own| !old.point.is_of(own)))
            .map(|old| &old.point)
            .filter(|point| !point.is_reached())
    }
}

/// What a piece of work does with an allocation.
pub(crate) struct Request<'a> {
    pub uses: &'a Uses,
    pub access: Access,
    pub bytes: Range<usize>,
}

/// The order of a device's work. See the module.
#[derive(Default)]
pub(crate) struct Order {
    lock: Mutex<()>,
}

impl Order {
    /// Enters a piece of work, which will be at `point`, with all that it uses. Returns the points of other streams that
    /// must be reached before it may begin: the last of each stream. Waits for nothing itself.
    pub fn enter(&self, point: &Point, requests: &[Request<'_>]) -> Vec<Point> {
        let _order = self.lock.lock();
        Self::enter_locked(point, requests)
    }

    /// Does the same for work that uses memory of this device and of another one, whose order `other` is.
    pub fn enter_both(&self, other: &Order, point: &Point, requests: &[Request<'_>]) -> Vec<Point> {
        // By address, so that two that take both do not wait for each other.
        let (first, second) = if std::ptr::from_ref(self) < other { (self, other) } else { (other, self) };
        let _orders = (first.lock.lock(), second.lock.lock());
        Self::enter_locked(point, requests)
    }

    fn enter_locked(point: &Point, requests: &[Request<'_>]) -> Vec<Point> {
        let mut before: Vec<Point> = Vec::new();
        for Request { uses, access, bytes } in requests {
            let mut listed = uses.listed.lock();
            for conflict in listed.conflicts(Some(&point.timeline), *access, bytes) {
                match before.iter_mut().find(|point| point.is_of(&conflict.timeline)) {
                    Some(point) => point.position = point.position.max(conflict.position),
                    None => before.push(conflict.clone()),
                }
            }
            listed.add(Use { point: point.clone(), access: *access, bytes: bytes.clone() });
        }
        before.iter().for_each(Point::ask);
        before
    }

    /// Runs a copy of the host's, after everything that conflicts and was entered before. Work that is entered while it waits
    /// and runs waits for it. Before it waits, `may_wait` is asked with the points that it waits for. What that returns
    /// lives as long as the wait.
    ///
    /// # Errors
    /// What `may_wait` answers. The copy has not run then.
    pub fn host_copy<R, W, E>(
        &self,
        request: &Request<'_>,
        may_wait: impl FnOnce(Vec<Point>) -> Result<W, E>,
        copy: impl FnOnce() -> R,
    ) -> Result<R, E> {
        let order = self.lock.lock();
        let mut listed = request.uses.listed.lock();
        let before: Vec<Point> = listed.conflicts(None, request.access, &request.bytes).cloned().collect();
        before.iter().for_each(Point::ask);
        let _copying = Copying::enter(request, &mut listed, before.clone());
        drop(listed);
        drop(order);
        if !before.is_empty() {
            let _waits = may_wait(before.clone())?;
            before.iter().for_each(Point::wait);
        }
        Ok(copy())
    }

    /// Runs a copy of the host's at once, beside work that accesses the same bytes atomically. Returns `None`, without
    /// having run it, when other work uses them.
    pub fn host_copy_now<R>(&self, request: &Request<'_>, copy: impl FnOnce() -> R) -> Option<R> {
        let order = self.lock.lock();
        let mut listed = request.uses.listed.lock();
        if listed.conflicts(None, request.access, &request.bytes).next().is_some() {
            return None;
        }
        let _copying = Copying::enter(request, &mut listed, Vec::new());
        drop(listed);
        drop(order);
        Some(copy())
    }
}

/// A copy that a thread of the host makes or is going to: a timeline of one position, which is reached when it is over.
struct HostCopy {
    /// What it waits for.
    before: Vec<Point>,
    state: Mutex<Copied>,
    ended: Condvar,
}

#[derive(Default)]
struct Copied {
    is_over: bool,
    /// Whom to tell.
    dependents: Vec<Weak<dyn Dependent>>,
}

impl Timeline for HostCopy {
    fn has_reached(&self, _: u64) -> bool {
        self.state.lock().is_over
    }

    fn wait_until(&self, _: u64) {
        let mut state = self.state.lock();
        while !state.is_over {
            state = self.ended.wait(state);
        }
    }

    fn tell(&self, _: u64, whom: &Weak<dyn Dependent>) -> bool {
        let mut state = self.state.lock();
        if !state.is_over && !state.dependents.iter().any(|known| known.ptr_eq(whom)) {
            state.dependents.push(whom.clone());
        }
        state.is_over
    }

    fn depends_on(&self, _: u64, other: &Point, seen: &mut Vec<(usize, u64)>) -> bool {
        self.before.iter().any(|point| !point.is_reached() && point.depends_on(other, seen))
    }
}

/// A copy that is over when this is dropped, also by a panic.
struct Copying<'a> {
    copy: Arc<HostCopy>,
    uses: &'a Uses,
}

impl<'a> Copying<'a> {
    /// Lists a copy. The caller holds the lock of the device's order.
    fn enter(request: &Request<'a>, listed: &mut UseList, before: Vec<Point>) -> Self {
        let copy = Arc::new(HostCopy { before, state: Mutex::default(), ended: Condvar::new() });
        let timeline: Arc<dyn Timeline> = copy.clone();
        let point = Point { timeline: Arc::downgrade(&timeline), position: 1 };
        listed.add(Use { point, access: request.access, bytes: request.bytes.clone() });
        Self { copy, uses: request.uses }
    }
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let dependents = {
            let mut state = self.copy.state.lock();
            state.is_over = true;
            std::mem::take(&mut state.dependents)
        };
        self.copy.ended.notify_all();
        let timeline: Arc<dyn Timeline> = self.copy.clone();
        let own = Arc::downgrade(&timeline);
        self.uses.listed.lock().work.retain(|of_list| !of_list.point.is_of(&own));
        for dependent in dependents.iter().filter_map(Weak::upgrade) {
            dependent.go_on();
        }
    }
}
