//! The chapter "Kernels".

// ANCHOR: all
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Plain, kernel};

/// What one launch has for all of its lanes.
#[repr(C)]
#[derive(Clone, Copy, Plain)]
struct Line {
    slope: f32,
    offset: f32,
}

/// `y = slope * x + offset`, a lane a number.
#[kernel]
fn apply(lane: &Lane, line: Line, x: &[f32], y: &[Global<f32>]) {
    let i = lane.global_id();
    if i < x.len() {
        y[i].set(line.slope * x[i] + line.offset);
    }
}

fn lines() -> Result<Vec<f32>, hostcall::Error> {
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let x = device.upload(&[-1.0f32, 0.0, 2.0])?; // the device's memory, filled
    let y = device.alloc_zeroed::<f32>(3)?;
    apply.launch(&stream, Grid::lanes(3), (Line { slope: 2.0, offset: 0.5 }, &x, &y))?;
    y.read() // waits for the launches that write it; whether they failed says `stream.synchronize()`
}
// ANCHOR_END: all

#[test]
fn lines_are_as_expected() {
    assert_eq!(lines().unwrap(), [-1.5, 0.5, 4.5]);
}

mod generic {
    // ANCHOR: generic
    use hostcall::{Device, Global, Grid, Lane, LaunchKernel, NoBuffer, Word, kernel};
    use std::ops::Add;

    /// Adds to each number `by`, or what `each` has for it.
    #[kernel(instances(increase_u32 = <u32>, increase_f64 = <f64>))]
    fn increase_all<T: Word + Add<Output = T>>(
        lane: &Lane,
        by: T,
        each: Option<&[T]>,
        numbers: &[Global<T>],
    ) {
        let i = lane.global_id();
        if i < numbers.len() {
            let by = each.map_or(by, |each| each[i]);
            numbers[i].set(numbers[i].get() + by);
        }
    }

    pub fn increase() -> Result<Vec<f64>, hostcall::Error> {
        let device = Device::open("cpu")?;
        let stream = device.stream()?;
        let numbers = device.upload(&[1.0, 2.0, 3.0, 0.5, 0.25])?;
        let (first, last) = (numbers.part(..2)?, numbers.part(3..)?);
        increase_f64.launch(&stream, Grid::lanes(2), (0.0, Some(&last), &first))?;
        increase_f64.launch(&stream, Grid::lanes(5), (1.0, NoBuffer, &numbers))?;
        numbers.read()
    }
    // ANCHOR_END: generic
}

#[test]
fn instances_take_what_is_there() {
    assert_eq!(generic::increase().unwrap(), [2.5, 3.25, 4.0, 1.5, 1.25]);
}

mod cells {
    // ANCHOR: cells
    use hostcall::atomic::{Ordering::Relaxed, Scope};
    use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Plain, kernel};

    const NO_KEY: u64 = u64::MAX;

    #[repr(C)]
    #[derive(Plain)]
    struct Entry {
        key: Global<u64>,
        count: Global<u64>,
    }

    /// Counts how often each key occurs, in a table that has room for all.
    #[kernel]
    fn count(lane: &Lane, keys: &[u64], table: &[Entry]) {
        for i in lane.share(keys.len()) {
            let mut at = keys[i] as usize % table.len();
            loop {
                let found = table[at].key.compare_exchange(NO_KEY, keys[i], Relaxed, Relaxed, Scope::Device);
                if found.is_ok() || found == Err(keys[i]) {
                    break; // the entry is this key's now, or was before
                }
                at = (at + 1) % table.len();
            }
            table[at].count.fetch_add(1, Relaxed, Scope::Device);
        }
    }

    fn counts(keys: &[u64]) -> Result<Vec<(u64, u64)>, hostcall::Error> {
        let device = Device::open("cpu")?;
        let stream = device.stream()?;
        let empty: Vec<_> =
            (0..2 * keys.len()).map(|_| Entry { key: Global::new(NO_KEY), count: Global::new(0) }).collect();
        let (keys, table) = (device.upload(keys)?, device.upload(&empty)?);
        count.launch(&stream, Grid::lanes(keys.len()), (&keys, &table))?;
        let found = table.read()?.into_iter().map(|entry| (entry.key.get(), entry.count.get()));
        Ok(found.filter(|(key, _)| *key != NO_KEY).collect())
    }
    // ANCHOR_END: cells

    #[test]
    fn keys_are_counted() {
        let mut found = counts(&[7, 1 << 40, 7, 0, 7, 14]).unwrap();
        found.sort_unstable();
        assert_eq!(found, [(0, 1), (7, 3), (14, 1), (1 << 40, 1)]);
    }
}

mod shares {
    use hostcall::{Device, Disjoint, Global, Grid, Lane, LaunchKernel, kernel};

    // ANCHOR: shares
    #[kernel]
    fn gather(lane: &Lane, keys: &[u32], table: &[f32], out: &[Global<f32>]) {
        for i in lane.share(keys.len().min(out.len())) {
            out[i].set(table[keys[i] as usize]);
        }
    }

    #[kernel]
    fn saxpy(lane: &Lane, a: f32, x: &[f32], mut y: Disjoint<'_, f32>) {
        let x = &x[..y.len()]; // checked once
        for (i, y) in y.share(lane) {
            *y += a * x[i];
        }
    }
    // ANCHOR_END: shares

    #[test]
    fn each_lane_has_its_share() {
        let device = Device::open("cpu").unwrap();
        let stream = device.stream().unwrap();
        let keys = device.upload(&[2u32, 0, 1]).unwrap();
        let (table, out) =
            (device.upload(&[1f32, 2.0, 4.0]).unwrap(), device.alloc_zeroed::<f32>(3).unwrap());
        gather.launch(&stream, Grid::new(1, 2), (&keys, &table, &out)).unwrap();
        saxpy.launch(&stream, Grid::new(1, 2), (0.5, &table, &out)).unwrap();
        assert_eq!(out.read().unwrap(), [4.5, 2.0, 4.0]);
    }
}
