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
    y.read() // waits for the launches that write it
}
// ANCHOR_END: all

#[test]
fn lines_are_as_expected() {
    assert_eq!(lines().unwrap(), [-1.5, 0.5, 4.5]);
}

mod generic {
    // ANCHOR: generic
    use hostcall::{Device, Global, Grid, Lane, LaunchKernel, NoBuffer, Plain, Word, kernel};
    use std::ops::Add;

    /// Adds to each number `by`, or what `each` has for it.
    #[kernel(instances(increase_u32 = <u32>, increase_f64 = <f64>))]
    fn increase_all<T: Word + Plain + Add<Output = T>>(
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
