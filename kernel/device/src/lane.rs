//! Who a lane is, and what it does with the other lanes of its wave and workgroup.

use crate::global::{Global, Word};
use crate::group::Group;
use crate::target::{self, Params};
use core::marker::PhantomData;
use core::panic::Location;
use hostcall_abi::launch::{LaunchId, RESERVED_WORKGROUP_BYTES};
use hostcall_abi::wire::Wire;

/// The lane that a kernel's function runs on.
pub struct Lane {
    params: Params,
    /// The workgroup's memory is the kernel's typed parameters'.
    has_typed_memory: bool,
    // A lane means something only on its own stack.
    not_send: PhantomData<*const ()>,
}

fn product([x, y, z]: [u32; 3]) -> usize {
    x as usize * y as usize * z as usize
}

/// The position of the `linear`-th thing among so many in x, y and z. The hardware's grids and workgroups have one
/// dimension, so that waves are whole whatever the workgroup's shape.
pub(crate) fn place(linear: u32, [width, height, _]: [u32; 3]) -> [u32; 3] {
    // In one dimension there is nothing to divide, which takes 20 instructions.
    if linear < width {
        return [linear, 0, 0];
    }
    // Neither is 0; said so, a division needs no panic.
    let (width, height) = (width.max(1), height.max(1));
    [linear % width, linear / width % height, linear / width / height]
}

/// The part of `0..end` of the `index`-th of so many lanes, if one part follows the other.
#[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
#[inline]
fn part(end: usize, index: usize, lanes: usize) -> core::ops::Range<usize> {
    // Not 0; said so, a division needs no panic.
    let lanes = lanes.max(1);
    let (each, longer) = (end / lanes, end % lanes);
    let start = index * each + index.min(longer);
    let len = each + usize::from(index < longer);
    // No more than `end` anyway, which compilers do not see.
    start..(start + len).min(end)
}

impl Lane {
    pub(crate) fn new(params: Params) -> Self {
        Self { params, has_typed_memory: false, not_send: PhantomData }
    }

    /// Returns this lane, for a kernel that has parameters in workgroup memory.
    #[inline(always)]
    pub(crate) fn with_typed_memory(&self) -> Self {
        Self { params: self.params, has_typed_memory: true, not_send: PhantomData }
    }

    /// Index in the wave, from 0.
    pub fn index(&self) -> u32 {
        self.params.here().lane_index()
    }

    /// Lanes of a full wave: 32 or 64.
    pub fn wave_size(&self) -> u32 {
        self.params.here().wave_size()
    }

    /// Index of the wave in its workgroup, from 0.
    pub fn wave(&self) -> u32 {
        self.params.here().wave_in_workgroup()
    }

    /// Position in the workgroup: x, y, z.
    pub fn position(&self) -> [u32; 3] {
        place(self.params.here().index_in_workgroup(), self.workgroup_size())
    }

    /// Index in the workgroup: position x runs fastest.
    pub fn local_id(&self) -> usize {
        self.params.here().index_in_workgroup() as usize
    }

    /// Position of the workgroup in the grid: x, y, z.
    pub fn workgroup(&self) -> [u32; 3] {
        place(self.params.here().workgroup_index(), self.workgroups())
    }

    /// Lanes of a workgroup in x, y, z.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.params.get().workgroup_size.map(u32::from)
    }

    /// Workgroups of the grid in x, y, z.
    pub fn workgroups(&self) -> [u32; 3] {
        self.params.get().workgroups
    }

    /// Index in the whole grid, from 0: workgroup after workgroup, in each by [`Lane::local_id`].
    pub fn global_id(&self) -> usize {
        let here = self.params.here();
        here.workgroup_index() as usize * here.lanes_in_workgroup() as usize + self.local_id()
    }

    /// This lane's share of `0..end`, in ascending order: each number is in the share of one lane of the grid, and the shares
    /// of two lanes differ by one number at most. Compilers see that each is below `end`, so that an index of a slice of that
    /// length is not checked again.
    ///
    /// Which numbers these are is what the device is fastest with. On GPUs it is [`Lane::strided`]: lanes that run at the same
    /// time access memory side by side. On the software device, which runs a lane to its end before the next one, the
    /// numbers of a lane follow each other, and those of the next lane follow them.
    ///
    /// ```
    /// use hostcall_device::{Global, Lane, kernel};
    ///
    /// /// `y = a·x + y`, by a grid of any size.
    /// #[kernel]
    /// fn saxpy(lane: &Lane, a: f32, x: &[f32], y: &[Global<f32>]) {
    ///     for i in lane.share(x.len().min(y.len())) {
    ///         y[i].set(a * x[i] + y[i].get());
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn share(&self, end: usize) -> impl Iterator<Item = usize> + use<> {
        #[cfg(any(target_arch = "nvptx64", target_arch = "amdgpu"))]
        return self.strided(end);
        #[cfg(not(any(target_arch = "nvptx64", target_arch = "amdgpu")))]
        return part(end, self.global_id(), self.grid_lanes());
    }

    /// [`Lane::global_id`], and every [`Lane::grid_lanes`]-th number behind it below `end`: for kernels to which it matters
    /// which lane has which number. To others [`Lane::share`] gives the order that the device is fastest with. Compilers see
    /// the bound, as there.
    ///
    /// ```
    /// use hostcall_device::{Lane, Global, kernel, wave};
    ///
    /// /// Sums of 32 or 64 numbers each, as many as a wave has lanes.
    /// #[kernel]
    /// fn sums(lane: &Lane, x: &[u32], out: &[Global<u32>]) {
    ///     let waves = lane.wave_size() as usize;
    ///     for i in lane.strided(x.len() / waves * waves) {
    ///         let sum = lane.wave_reduce(x[i], wave::Add);
    ///         if lane.index() == 0 {
    ///             out[i / waves].set(sum);
    ///         }
    ///     }
    /// }
    /// ```
    #[inline]
    pub fn strided(&self, end: usize) -> impl Iterator<Item = usize> + use<> {
        let step = self.grid_lanes();
        let mut next = self.global_id();
        core::iter::from_fn(move || {
            let at = next;
            // No slice is as long as that. It is far from where the sum overflows.
            (at < end && at < 1 << 62).then(|| {
                next = at.wrapping_add(step);
                at
            })
        })
    }

    /// Lanes of the whole grid.
    pub fn grid_lanes(&self) -> usize {
        product(self.workgroups()) * product(self.workgroup_size())
    }

    #[track_caller]
    #[inline]
    pub(crate) fn group(&self) -> Group {
        Group::converge(core::ptr::from_ref(Location::caller()) as usize as u64)
    }

    /// The lanes of the wave that came here together, one bit a lane. Lanes that could have come may be
    /// missing: a wave may split anywhere.
    #[track_caller]
    pub fn active(&self) -> u64 {
        target::bits(self.group().mask)
    }

    /// The lanes among [`Lane::active`] for which `yes` holds.
    ///
    /// ```
    /// use core::sync::atomic::{AtomicU32, Ordering};
    /// use hostcall_device::{Lane, kernel};
    ///
    /// /// Counts the numbers above a limit, with one addition a wave.
    /// #[kernel]
    /// fn count_above(lane: &Lane, numbers: &[u32], limit: u32, count: &AtomicU32) {
    ///     let above = lane.ballot(numbers[lane.global_id()] > limit);
    ///     lane.once_per_wave(|| count.fetch_add(above.count_ones(), Ordering::Relaxed));
    /// }
    /// ```
    #[track_caller]
    pub fn ballot(&self, yes: bool) -> u64 {
        let group = self.group();
        target::bits(group.here.ballot(group.mask, yes))
    }

    /// The value of the lane of index `from`, or of the first lane that came here when that one did not.
    #[track_caller]
    pub fn broadcast<T: Wire + Copy>(&self, value: T, from: u32) -> T {
        let group = self.group();
        let from = if target::bits(group.mask).checked_shr(from).unwrap_or(0) & 1 != 0 {
            from
        } else {
            group.leader()
        };
        share(&value, |word| group.here.broadcast(group.mask, word, from))
    }

    /// Runs `body` on the first of the lanes that came here and gives its value to all of them: with a call in
    /// it, a call once per wave.
    ///
    /// ```
    /// use hostcall_device::{Lane, kernel, service};
    ///
    /// #[service]
    /// trait Jobs {
    ///     fn next() -> u64;
    /// }
    ///
    /// /// One call a wave, however many lanes it has.
    /// #[kernel]
    /// fn work(lane: &Lane) {
    ///     let job = lane.once_per_wave(|| Jobs::next().unwrap_or(0));
    ///     hostcall_device::println!("{job}");
    /// }
    /// ```
    #[track_caller]
    pub fn once_per_wave<T: Wire + Copy>(&self, body: impl FnOnce() -> T) -> T {
        let group = self.group();
        let mut words = [0; 8];
        const { assert!(T::WORDS <= 8, "at most 8 words are shared") };
        if group.is_leader() {
            body().to_words(&mut words[..T::WORDS]);
        }
        for word in &mut words[..T::WORDS] {
            *word = group.of_leader(*word);
        }
        T::from_words(&words).expect("the leader's value")
    }

    /// Runs `body` on the workgroup's first lane and gives its value to all. Every lane of it comes here, the
    /// first too: where that has ended before, the others get any value, or panic at one that is none.
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    pub fn once_per_workgroup<T: Wire + Copy>(&self, body: impl FnOnce() -> T) -> T {
        const { assert!(T::WORDS <= 8, "at most 8 words are shared") };
        // SAFETY: the launch gave each workgroup `RESERVED_WORKGROUP_BYTES` at the start of its memory, which
        // nothing else uses, and `Global` is accessed atomically.
        let shared = unsafe { &*target::here().workgroup_memory().cast::<[Global<u64>; 8]>() };
        let mut words = [0; 8];
        if self.local_id() == 0 {
            body().to_words(&mut words[..T::WORDS]);
            for (to, word) in shared.iter().zip(words) {
                to.set(word);
            }
        }
        self.barrier();
        for (word, from) in words.iter_mut().zip(shared) {
            *word = from.get();
        }
        self.barrier();
        T::from_words(&words).expect("the first lane's value")
    }

    /// Waits until every lane of the workgroup that has not ended came here, and makes what each wrote before
    /// visible to all.
    ///
    /// All of them come to the same barrier or end before it, as CUDA's and HIP's: a GPU brings the lanes of a wave
    /// together again behind a branch, so that those which pass by a barrier may wait there for those which wait at it.
    ///
    /// # Panics
    /// On the software device, when the workgroup's lanes wait at different barriers of the source. The message says how many
    /// are missing, and where they wait. A GPU takes barriers as the same that are not.
    #[cfg_attr(not(any(target_arch = "nvptx64", target_arch = "amdgpu")), track_caller)]
    pub fn barrier(&self) {
        target::here().barrier();
    }

    /// Bytes of the workgroup's memory, with what this crate keeps of it.
    #[inline(always)]
    pub(crate) fn workgroup_memory_bytes(&self) -> usize {
        self.params.get().workgroup_memory_bytes as usize
    }

    /// The workgroup's memory as `T`s, as many as the launch's bytes hold: zeroed on the software device,
    /// else with any content. It lasts as long as the workgroup. Parameters marked `#[workgroup]` have it all, in types of
    /// their own (see [`crate::workgroup`]): where a kernel has some, this is empty.
    pub fn workgroup_memory<T: Word>(&self) -> &[Global<T>] {
        if self.has_typed_memory {
            return &[];
        }
        let bytes = self.params.get().workgroup_memory_bytes as usize - RESERVED_WORKGROUP_BYTES;
        // SAFETY: the launch gave the workgroup this many bytes after the reserved ones, 64-byte aligned, for
        // the life of the workgroup, and every bit pattern is a `T`, accessed atomically.
        unsafe {
            let first = target::here().workgroup_memory().add(RESERVED_WORKGROUP_BYTES);
            core::slice::from_raw_parts(first.cast::<Global<T>>(), bytes / size_of::<T>())
        }
    }

    /// Lets other lanes run. For loops that wait until another lane writes something.
    pub fn pause(&self) {
        target::here().pause();
    }

    /// Nanoseconds of the device's own clock since some fixed point.
    pub fn clock_ns(&self) -> u64 {
        target::here().clock_ns()
    }

    /// The launch, as the host names it.
    pub fn launch(&self) -> LaunchId {
        self.params.get().launch
    }

    /// Whether the launch was cancelled, for long kernels that make no calls. On a GPU its waves know of it some microseconds
    /// later: one of them looks over the link for all, every 4 µs.
    pub fn is_cancelled(&self) -> bool {
        target::here().cancelled() || crate::packet::is_over(target::here())
    }
}

fn share<T: Wire>(value: &T, word: impl Fn(u64) -> u64) -> T {
    const { assert!(T::WORDS <= 8, "at most 8 words are shared") };
    let mut words = [0; 8];
    value.to_words(&mut words[..T::WORDS]);
    for w in &mut words[..T::WORDS] {
        *w = word(*w);
    }
    T::from_words(&words).expect("a lane's value")
}

#[cfg(test)]
mod tests {
    use super::part;

    /// The lanes' parts follow each other without a gap from 0 to `end`, and are as long as each other but for one.
    fn check(end: usize, lanes: usize, indices: impl Iterator<Item = usize>) {
        for index in indices {
            let this = part(end, index, lanes);
            assert!(this.start <= this.end && this.end <= end, "{end} {lanes} {index}: {this:?}");
            let len = this.end - this.start;
            assert!(len == end / lanes || len == end / lanes + 1 && !end.is_multiple_of(lanes));
            let before = if index == 0 { 0 } else { part(end, index - 1, lanes).end };
            let after = if index == lanes - 1 { end } else { part(end, index + 1, lanes).start };
            assert_eq!((this.start, this.end), (before, after), "{end} {lanes} {index}");
        }
    }

    #[test]
    fn parts_are_all_of_the_range() {
        for lanes in [1, 2, 3, 31, 32, 33, 1000] {
            for end in (0..70).chain([999, 1000, 1001, 65_537]) {
                check(end, lanes, 0..lanes);
            }
        }
    }

    #[test]
    fn parts_of_huge_ranges_do_not_overflow() {
        for lanes in [1, 7, u32::MAX as usize] {
            for end in [usize::MAX, usize::MAX - 1, isize::MAX as usize] {
                let middle = lanes / 2;
                check(end, lanes, [0, middle, lanes - 1].into_iter());
            }
        }
    }
}
