use crate::context::read;
use crate::{Context, Outcome, echo, ensure, same};
use conformance::grids;
use hostcall::Grid;

/// Each number is in one lane's share, whatever the grid; which lane has which one of `strided` is told.
pub fn shares(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let of_3_dimensions = Grid::new_3d([3, 2, 4], [5, 3, 7]);
    for grid in [Grid::new(1, 1), Grid::new(1, 33), Grid::new(7, 64), Grid::new(2, 256), of_3_dimensions] {
        let lens = session.out(grid, 1)?;
        let lanes = lens.len();
        for count in [0, 1, lanes - 1, lanes, lanes + 1, 3 * lanes, 3 * lanes + 5, 10_007] {
            let shared = session.device.alloc_zeroed::<u32>(count).map_err(|error| error.to_string())?;
            let strided = session.device.alloc_zeroed::<u64>(count).map_err(|error| error.to_string())?;
            session.run(grids::shares, grid, (&shared, &strided, &lens))?;
            let shared = shared.read().map_err(|error| error.to_string())?;
            same!((count, shared), (count, vec![1; count]));
            same!(read(&strided)?, (0..count).map(|i| (i % lanes) as u64).collect::<Vec<_>>());
            let lens = read(&lens)?;
            same!(lens.iter().sum::<u64>(), count as u64);
            let least = (count / lanes) as u64;
            ensure!(lens.iter().all(|&len| len == least || len == least + 1));
        }
    }
    Ok(())
}

/// Lanes write what is theirs, and a launch that would give a lane what is another's is refused.
pub fn own_shares(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let upload = |values: &[u64]| session.device.upload(values).map_err(|error| error.to_string());
    for grid in [Grid::new(1, 1), Grid::new(3, 33), Grid::new_3d([3, 2, 1], [5, 3, 7])] {
        for count in [0, 1, 99, 100, 5000] {
            let values: Vec<u64> = (0..count).map(|i| i * i).collect();
            let (x, sums) = (upload(&values)?, upload(&values)?);
            session.run(grids::own_shares, grid, (&x, &sums))?;
            same!(read(&sums)?, values.iter().zip(0..).map(|(x, i)| 2 * x + i).collect::<Vec<_>>());
        }
    }
    let (grid, both) = (Grid::new(1, 40), upload(&[0; 100])?);
    let part = |range: std::ops::Range<usize>| both.part(range).map_err(|error| error.to_string());
    session.run(grids::own_shares_of_two, grid, (&part(0..50)?, &part(50..100)?))?;
    same!(read(&both)?, [vec![1; 50], vec![2; 50]].concat());
    let stream = session.stream()?;
    let overlap = session.launch(&stream, grids::own_shares_of_two, grid, (&part(0..50)?, &part(49..99)?));
    ensure!(overlap.is_err_and(|error| error.contains("parts of the same memory")));
    let overlap = session.launch(&stream, grids::own_shares, grid, (&both, &both));
    ensure!(overlap.is_err_and(|error| error.contains("parts of the same memory")));
    Ok(())
}

/// Lanes of one wave end, wait, call and go apart beside each other, in waves of every size.
pub fn of_all_sorts(context: &Context) -> Outcome {
    let session = context.open(|device| device.inline_service(echo()))?;
    for lanes in (1..=64).step_by(7).chain([65, 100, 256]) {
        session.all_done(grids::of_all_sorts, Grid::new(3, lanes))?;
    }
    Ok(())
}

/// The library's sorting, whose addresses compilers have mixed up.
pub fn sorted(context: &Context) -> Outcome {
    context.open(|device| device)?.all_done(grids::sorted, Grid::new(2, 40))
}
