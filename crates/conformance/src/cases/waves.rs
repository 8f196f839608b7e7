use crate::context::read;
use crate::{Context, Outcome, same};
use conformance::waves::{wave_operations, wave_reduction};
use hostcall::Grid;

pub fn operations(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in [1, 31, 64, 100, 256] {
        session.all_done(wave_operations, Grid::new(3, lanes))?;
    }
    Ok(())
}

pub fn reduction(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    for lanes in [1u32, 2, 33, 100, 1024] {
        let grid = Grid::new(3, lanes);
        let out = session.out(grid, 1)?;
        let values: Vec<u64> = (0..out.len() as u64).collect();
        let buffer = session.device.upload(&values).map_err(|error| error.to_string())?;
        session.run(wave_reduction, grid, (&buffer, &out))?;
        for (sums, values) in read(&out)?.chunks(lanes as usize).zip(values.chunks(lanes as usize)) {
            same!(sums, vec![3 * values.iter().sum::<u64>(); lanes as usize]);
        }
    }
    Ok(())
}
