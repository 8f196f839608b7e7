use super::workgroups::contents;
use crate::{Context, Outcome, same};
use conformance::mix;
use conformance::order::{dropped, locked};
use conformance::workgroups::{atomics_alone, atomics_together};
use hostcall::Grid;

pub fn alone(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let lanes = 3 * 70;
    macro_rules! cells {
        ($($t:ty)*) => {($(&session.device.alloc_zeroed::<$t>(lanes).map_err(|error| error.to_string())?,)*)};
    }
    session.run(atomics_alone, Grid::new(3, 70), cells!(u8 i16 u32 i32 u64 i64 f32 f64))
}

pub fn together(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for grid in [Grid::new(1, 1), Grid::new(5, 200)] {
        let failed = |error: hostcall::Error| error.to_string();
        let words = session.device.upload(&[0u32, 0, u32::MAX, 0]).map_err(failed)?;
        let long = session.device.alloc_zeroed::<u64>(4).map_err(failed)?;
        let bytes = session.device.alloc_zeroed::<u8>(3).map_err(failed)?;
        let floats = session.device.upload(&[0.5, f32::NEG_INFINITY, f32::INFINITY]).map_err(failed)?;
        let doubles = session.device.upload(&[0.0, f64::INFINITY]).map_err(failed)?;
        session.run(atomics_together, grid, (&words, &long, &bytes, &floats, &doubles))?;
        let ids = 0..grid.workgroup_count() * grid.workgroup_lanes();
        let bits: Vec<u64> = ids.clone().map(mix).collect();
        let low = || bits.iter().map(|bits| *bits as u32);
        let expected = [
            ids.clone().sum::<u64>() as u32,
            low().max().unwrap_or(0),
            low().min().unwrap_or(0),
            low().fold(0, |a, b| a ^ b),
        ];
        same!(contents(&words)?, expected);
        let sum = bits.iter().fold(0u64, |sum, bits| sum.wrapping_add(*bits));
        let expected = [
            sum,
            bits.iter().copied().max().unwrap_or(0),
            bits.iter().fold(0, |all, bits| all | 1 << (bits % 64)),
            ids.clone().sum(),
        ];
        same!(contents(&long)?, expected);
        let small: Vec<f32> = bits.iter().map(|bits| (bits % 2001) as f32 - 1000.0).collect();
        same!(
            contents(&bytes)?,
            [sum as u8, bits.len() as u8, bits.iter().map(|bits| *bits as u8).max().unwrap_or(0)]
        );
        let (least, largest) = (
            small.iter().copied().fold(f32::INFINITY, f32::min),
            small.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        );
        same!(contents(&floats)?, [0.5 + small.iter().sum::<f32>(), largest, least]);
        same!(contents(&doubles)?, [-small.iter().map(|x| f64::from(*x)).sum::<f64>(), least.into()]);
    }
    Ok(())
}

/// A lock that is made of exchanges keeps words together that are no atomics.
pub fn of_other_crates(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(16, 33);
    for _ in 0..3 {
        let wrong = session.out(grid, 1)?;
        session.run(locked, grid, (50u32, &wrong))?;
        same!(contents(&wrong)?.into_iter().sum::<u64>(), 0);
    }
    Ok(())
}

/// Who drops the last reference to what workgroups share sees what the others wrote.
pub fn shared_by_references(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let told = session.out(Grid::new(1, 1), 4)?;
    session.run(dropped, Grid::new(8, 1), (200u64, &told))?;
    same!(contents(&told)?[3], 0);
    Ok(())
}
