//! A sanitizer of memory accesses: buffers that check each access against their bounds, and kernels with faults for it to find.

use core::cell::Cell;
use core::panic::Location;
use core::ptr;
use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::raw::{Block, RawStream};
use hostcall_device::{Global, Lane, Plain, Shared, Word, kernel, service};

/// Parts of a buffer whose accesses are counted apart.
pub const PARTS: usize = 32;

/// Most buffers of a kernel.
pub const BUFFERS: usize = 3;

/// Counters of a workgroup: reads and writes of each part of each buffer.
pub const COUNTERS: usize = 2 * PARTS * BUFFERS;

/// A place that the host gave no number.
pub const NO_PLACE: u32 = u32::MAX;

// ANCHOR: violation
/// An access outside of its buffer.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
#[hostcall(
    format = "kernel {kernel}, lane {lane} of workgroup {workgroup}: index {index} of buffer {buffer} with {len}"
)]
pub struct Violation {
    /// Below 0 for what lies before the buffer.
    pub index: i64,
    /// Values of the buffer.
    pub len: u64,
    /// The lane, of all of the grid.
    pub lane: u32,
    /// Its workgroup.
    pub workgroup: u32,
    /// Number of the place in the source, as [`Places`] gave it.
    pub place: u32,
    /// The kernel's number, as its host gave it.
    pub kernel: u8,
    /// The buffer's number in the kernel.
    pub buffer: u8,
    /// What the access wanted.
    #[hostcall(unit = "B")]
    pub bytes: u8,
    /// 0 for a read.
    pub is_write: u8,
}

/// How often a workgroup came to a part of a buffer.
#[derive(Clone, Copy, Plain)]
#[repr(C)]
pub struct Touched {
    /// The kernel's number.
    pub kernel: u16,
    /// The buffer's number in the kernel.
    pub buffer: u16,
    /// The part, of [`PARTS`].
    pub part: u32,
    /// How many values were read.
    pub reads: u32,
    /// How many were written.
    pub writes: u32,
}

/// Places in the source.
#[service]
pub trait Places {
    /// Returns the place's number.
    fn number(file: &str, line: u32, column: u32) -> u32;
}
// ANCHOR_END: violation

// ANCHOR: watch
/// What watches the accesses of one lane.
pub struct Watch<'k> {
    lane: &'k Lane,
    kernel: u8,
    counters: &'k [Shared<u32>; COUNTERS],
    violations: RawStream<'k, Violation, Block>,
    /// The place of the lane's last violation, and its number.
    last: Cell<Option<(&'static Location<'static>, u32)>>,
}

impl<'k> Watch<'k> {
    /// Begins to watch. All lanes of the workgroup come here, before any of them has an access.
    pub fn begin(
        lane: &'k Lane,
        kernel: u8,
        counters: &'k [Shared<u32>; COUNTERS],
        violations: RawStream<'k, Violation, Block>,
    ) -> Self {
        own_share(lane, COUNTERS).for_each(|i| counters[i].set(0));
        lane.barrier();
        Self { lane, kernel, counters, violations, last: Cell::new(None) }
    }

    /// A buffer whose accesses are checked. `number` is below [`BUFFERS`].
    pub fn buffer<'w, T: Word>(&'w self, number: u8, cells: &'w [Global<T>]) -> Checked<'w, T> {
        Checked { watch: self, number, cells }
    }

    /// Streams what was counted. All lanes of the workgroup come here, after all of their accesses.
    pub fn end(self, touched: RawStream<'_, Touched, Block>) {
        self.lane.barrier();
        for i in own_share(self.lane, COUNTERS / 2) {
            let [reads, writes] = [2 * i, 2 * i + 1].map(|counter| self.counters[counter].get());
            if reads + writes > 0 {
                let (kernel, buffer) = (self.kernel.into(), (i / PARTS) as u16);
                touched
                    .write(self.lane, &Touched { kernel, buffer, part: (i % PARTS) as u32, reads, writes });
            }
        }
    }

    /// Returns the number of a place. Asks the host, unless it is that of the lane's last violation.
    fn number_of(&self, place: &'static Location<'static>) -> u32 {
        match self.last.get() {
            Some((last, number)) if ptr::eq(last, place) => number,
            _ => {
                let number = Places::number(place.file(), place.line(), place.column()).unwrap_or(NO_PLACE);
                self.last.set(Some((place, number)));
                number
            }
        }
    }
}

/// A lane's share of `0..end`, when the lanes of its workgroup take turns.
fn own_share(lane: &Lane, end: usize) -> impl Iterator<Item = usize> {
    (lane.local_id()..end).step_by(lanes_of_workgroup(lane))
}

fn lanes_of_workgroup(lane: &Lane) -> usize {
    lane.workgroup_size().into_iter().product::<u32>() as usize
}

/// A buffer whose accesses are checked, as one lane has it.
pub struct Checked<'w, T: Word> {
    watch: &'w Watch<'w>,
    number: u8,
    cells: &'w [Global<T>],
}

impl<T: Word + Default> Checked<'_, T> {
    /// How many values there are.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// Returns the value there, or 0 outside of the buffer.
    #[track_caller]
    pub fn get(&self, index: usize) -> T {
        self.check(index, false, Location::caller()).map(Global::get).unwrap_or_default()
    }

    /// Stores a value there, and nothing outside of the buffer.
    #[track_caller]
    pub fn set(&self, index: usize, value: T) {
        if let Some(cell) = self.check(index, true, Location::caller()) {
            cell.set(value);
        }
    }

    fn check(&self, index: usize, is_write: bool, place: &'static Location<'static>) -> Option<&Global<T>> {
        let Self { watch, number: buffer, cells } = *self;
        let Some(cell) = cells.get(index) else {
            watch.violations.write(
                watch.lane,
                &Violation {
                    index: index as i64,
                    len: cells.len() as u64,
                    lane: watch.lane.global_id() as u32,
                    workgroup: (watch.lane.global_id() / lanes_of_workgroup(watch.lane)) as u32,
                    place: watch.number_of(place),
                    kernel: watch.kernel,
                    buffer,
                    bytes: size_of::<T>() as u8,
                    is_write: is_write.into(),
                },
            );
            return None;
        };
        let part = usize::from(buffer) * PARTS + index * PARTS / cells.len();
        watch.counters[2 * part + usize::from(is_write)].fetch_add(1, Relaxed);
        Some(cell)
    }
}
// ANCHOR_END: watch

/// Numbers of the kernels.
pub mod number {
    /// [`blur`](super::blur).
    pub const BLUR: u8 = 0;
    /// [`transpose`](super::transpose).
    pub const TRANSPOSE: u8 = 1;
    /// [`gather`](super::gather).
    pub const GATHER: u8 = 2;
    /// [`double`](super::double).
    pub const DOUBLE: u8 = 3;
}

/// Columns that [`transpose`] takes at a time.
pub const TILE: usize = 32;

/// This file: the line behind each `// FAULT` is one that the sanitizer is to find, and there is no other.
pub const SOURCE: &str = include_str!("sanitizer.rs");

// ANCHOR: blur
/// Takes the mean of each pixel and its two neighbours.
#[kernel]
pub fn blur(
    lane: &Lane,
    #[workgroup] counters: &[Shared<u32>; COUNTERS],
    pixels: &[Global<u32>],
    blurred: &[Global<u32>],
    violations: RawStream<'_, Violation, Block>,
    touched: RawStream<'_, Touched, Block>,
) {
    let watch = Watch::begin(lane, number::BLUR, counters, violations);
    let (pixels, blurred) = (watch.buffer(0, pixels), watch.buffer(1, blurred));
    for i in lane.strided(blurred.len()) {
        // FAULT: the first pixel has no neighbour before it.
        let before = pixels.get(i.wrapping_sub(1));
        // FAULT: the last pixel has none behind it.
        let after = pixels.get(i + 1);
        blurred.set(i, (before + pixels.get(i) + after) / 3);
    }
    watch.end(touched);
}
// ANCHOR_END: blur

/// Turns a matrix of `rows` by `columns`.
#[kernel]
pub fn transpose(
    lane: &Lane,
    #[workgroup] counters: &[Shared<u32>; COUNTERS],
    rows: u32,
    columns: u32,
    matrix: &[Global<f32>],
    turned: &[Global<f32>],
    violations: RawStream<'_, Violation, Block>,
    touched: RawStream<'_, Touched, Block>,
) {
    let watch = Watch::begin(lane, number::TRANSPOSE, counters, violations);
    let (matrix, turned) = (watch.buffer(0, matrix), watch.buffer(1, turned));
    let (rows, columns) = (rows as usize, columns as usize);
    let all_columns = columns.next_multiple_of(TILE);
    for i in lane.strided(rows * all_columns) {
        // Columns that only fill up the last tile are columns of the next row, or of none.
        let (row, column) = (i / all_columns, i % all_columns);
        // FAULT: the last row has no next one.
        let value = matrix.get(row * columns + column);
        // FAULT: what is turned has no such rows.
        turned.set(column * rows + row, value);
    }
    watch.end(touched);
}

/// Takes values of a table, those that the indices say.
#[kernel]
pub fn gather(
    lane: &Lane,
    #[workgroup] counters: &[Shared<u32>; COUNTERS],
    indices: &[Global<u32>],
    table: &[Global<u64>],
    taken: &[Global<u64>],
    violations: RawStream<'_, Violation, Block>,
    touched: RawStream<'_, Touched, Block>,
) {
    let watch = Watch::begin(lane, number::GATHER, counters, violations);
    let (indices, table, taken) = (watch.buffer(0, indices), watch.buffer(1, table), watch.buffer(2, taken));
    for i in lane.strided(indices.len()) {
        let index = indices.get(i) as usize;
        // FAULT: an index that stands for none is taken for one.
        let value = table.get(index);
        taken.set(i, value);
    }
    watch.end(touched);
}

/// Doubles each value, and has no fault.
#[kernel]
pub fn double(
    lane: &Lane,
    #[workgroup] counters: &[Shared<u32>; COUNTERS],
    values: &[Global<u32>],
    violations: RawStream<'_, Violation, Block>,
    touched: RawStream<'_, Touched, Block>,
) {
    let watch = Watch::begin(lane, number::DOUBLE, counters, violations);
    let values = watch.buffer(0, values);
    for i in lane.strided(values.len()) {
        values.set(i, 2 * values.get(i));
    }
    watch.end(touched);
}
