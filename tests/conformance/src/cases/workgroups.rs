use crate::context::read;
use crate::{Context, Outcome, ensure, same};
use conformance::mix;
use conformance::waves::numbers;
use conformance::workgroups::{
    BINS, TOGETHER, WORDS, workgroup_apart, workgroup_arrays, workgroup_histogram, workgroup_in_turn,
    workgroup_missing, workgroup_numbers,
};
use hostcall::{DeviceBuffer, Error, Grid, LaunchFailure, Plain};

/// Workgroups of these sizes: partial waves, full ones, and as many as there can be.
const LANES: [u32; 7] = [1, 2, 33, 64, 100, 256, 1024];

pub fn contents<T: Plain + Copy>(buffer: &DeviceBuffer<T>) -> Result<Vec<T>, String> {
    buffer.read().map_err(|error| error.to_string())
}

pub fn arrays(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in LANES {
        let grid = Grid::new(3, lanes).workgroup_memory(8 * lanes + 7);
        let out = session.out(grid, 1)?;
        let values: Vec<u64> = (0..out.len() as u64).map(mix).map(|bits| bits >> 8).collect();
        let buffer = session.device.upload(&values).map_err(|error| error.to_string())?;
        session.run(workgroup_arrays, grid, (&buffer, &out))?;
        let lanes = lanes as usize;
        let other = |at: usize| values[at / lanes * lanes + (at % lanes * 7 + 3) % lanes];
        let expected: Vec<u64> = (0..values.len()).map(|at| other(at) + 2 + lanes as u64).collect();
        same!(read(&out)?, expected);
    }
    Ok(())
}

/// What each lane of a workgroup gets, from what its lanes bring.
fn of_workgroup<T: Copy>(
    brought: &[T],
    bits: impl Fn(T) -> u64,
    add: impl Fn(T, T) -> T,
    min: impl Fn(T, T) -> T,
    max: impl Fn(T, T) -> T,
    [zero, least]: [T; 2],
) -> Vec<[u64; TOGETHER]> {
    let all = |combine: &dyn Fn(T, T) -> T| brought.iter().copied().reduce(combine).expect("a lane");
    let (sum, smallest, largest) = (all(&add), all(&min), all(&max));
    let (mut before, mut largest_before) = (zero, least);
    let of_lane = |&own: &T| {
        let with_own = add(before, own);
        let words = [sum, with_own, smallest, before, largest_before, largest].map(&bits);
        (before, largest_before) = (with_own, max(largest_before, own));
        words
    };
    brought.iter().map(of_lane).collect()
}

pub fn together(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in LANES {
        let grid = Grid::new(2, lanes);
        let out = session.out(grid, WORDS)?;
        session.run(workgroup_numbers, grid, (&out,))?;
        let ids: Vec<u64> = (0..2 * u64::from(lanes)).collect();
        let expected = ids.chunks(lanes as usize).flat_map(|ids| {
            macro_rules! of {
                ($field:tt, $bits:expr, $add:expr, $min:expr, $max:expr, $ends:expr) => {{
                    let brought: Vec<_> = ids.iter().map(|id| numbers(*id).$field).collect();
                    of_workgroup(&brought, $bits, $add, $min, $max, $ends)
                }};
            }
            let types = [
                of!(0, u64::from, u32::wrapping_add, u32::min, u32::max, [0, u32::MIN]),
                of!(1, |x| u64::from(x as u32), i32::wrapping_add, i32::min, i32::max, [0, i32::MIN]),
                of!(2, |x| x, u64::wrapping_add, u64::min, u64::max, [0, u64::MIN]),
                of!(3, |x| x as u64, i64::wrapping_add, i64::min, i64::max, [0, i64::MIN]),
                of!(
                    4,
                    |x: f32| x.to_bits().into(),
                    |a, b| a + b,
                    f32::min,
                    f32::max,
                    [-0.0, f32::NEG_INFINITY]
                ),
                of!(5, f64::to_bits, |a, b| a + b, f64::min, f64::max, [-0.0, f64::NEG_INFINITY]),
            ];
            let lanes = ids.len();
            (0..lanes)
                .flat_map(move |lane| types.clone().map(|words| words[lane]))
                .flatten()
                .collect::<Vec<_>>()
        });
        same!(read(&out)?, expected.collect::<Vec<u64>>());
    }
    Ok(())
}

pub fn histogram(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in LANES {
        let grid = Grid::new(3, lanes);
        let values: Vec<u64> = (0..3 * u64::from(lanes)).map(mix).collect();
        let failed = |error: hostcall::Error| error.to_string();
        let buffer = session.device.upload(&values).map_err(failed)?;
        let counts = session.device.alloc_zeroed::<u32>(BINS).map_err(failed)?;
        let ends = session.device.upload(&[f32::INFINITY, f32::NEG_INFINITY]).map_err(failed)?;
        let sum = session.device.upload(&[0.25f64]).map_err(failed)?;
        session.run(workgroup_histogram, grid, (&buffer, &counts, &ends, &sum))?;
        let mut expected = vec![0u32; BINS];
        values.iter().for_each(|value| expected[(value % BINS as u64) as usize] += 1);
        same!(contents(&counts)?, expected);
        let numbers = || values.iter().map(|value| (value % 2001) as f32 - 1000.0);
        same!(
            contents(&ends)?,
            vec![numbers().fold(f32::INFINITY, f32::min), numbers().fold(f32::NEG_INFINITY, f32::max)]
        );
        same!(contents(&sum)?, vec![0.25 + numbers().map(f64::from).sum::<f64>()]);
    }
    Ok(())
}

pub fn in_turn(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in [1, 100, 1024] {
        let total = session.out(Grid::new(1, 3), 1)?;
        session.run(workgroup_in_turn, Grid::new(3, lanes), (&total,))?;
        let waves = u64::from(lanes.div_ceil(session.device.properties().wave_size));
        let expected = (1..=waves).fold(0u64, |total, wave| total.wrapping_mul(3).wrapping_add(wave));
        same!(read(&total)?, vec![expected; 3]);
    }
    Ok(())
}

/// The software device says which lanes are missing at a barrier, and where they wait.
pub fn missing(context: &Context) -> Outcome {
    if !context.is_software() {
        return Ok(());
    }
    let session = context.open(|device| device)?;
    for (lanes, first) in [(40, 7), (100, 64), (2, 1)] {
        let panic = match session.try_run(workgroup_missing, Grid::new(1, lanes), (first,))? {
            Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(panic), .. }, .. }) => panic,
            other => return Err(format!("the launch ended with {other:?}")),
        };
        let (missing, index) = if panic.lane < first { (lanes - first, first) } else { (first, 0) };
        let text = format!(
            "{missing} of the workgroup's lanes, the first of them lane {index}, are missing at this barrier: they wait at \
             another one, "
        );
        same!(panic.message.get(..text.len()), Some(text.as_str()));
        ensure!(panic.message.contains("workgroups.rs"));
        // All at one barrier.
        session.run(workgroup_missing, Grid::new(2, lanes), (0,))?;
    }
    // In a wave of which some lanes are at the barrier, the others wait for these without having come to another.
    let out = session.device.alloc_zeroed::<u32>(128).map_err(|error| error.to_string())?;
    match session.try_run(workgroup_apart, Grid::new(1, 128), (7, &out))? {
        Err(Error::Launch { failure: LaunchFailure::Fault(fault), .. }) => {
            ensure!(
                fault.reason.contains("cannot go on: ")
                    && fault.reason.contains(" in an operation of their whole wave")
            );
        }
        other => return Err(format!("the launch ended with {other:?}")),
    }
    Ok(())
}
