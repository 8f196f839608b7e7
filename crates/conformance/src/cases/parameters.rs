use crate::context::read;
use crate::{Context, Outcome, same};
use conformance::parameters::{self, Step, first, second};
use hostcall::Grid;

/// Structs, `bool`, tuples, arrays and numbers reach the kernel as they are, more than eight of them.
pub fn of_every_kind(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(2, 40);
    let out = session.out(grid, 1)?;
    let step = Step { factor: 7, counts: [1, 60_000], offset: 5 };
    let steps = [Step { factor: 100, ..step }, Step { factor: 1000, ..step }];
    let steps = session.device.upload(&steps).map_err(|error| error.to_string())?;
    for negative in [false, true] {
        let arguments =
            (step, negative, (3u8, 1 << 40, true), [0, 0, 9u32], 4i8, 2.5f32, 1e6f64, &steps, &steps, &out);
        session.run(parameters::of_every_kind, grid, arguments)?;
        for (i, value) in read(&out)?.into_iter().enumerate() {
            let i = i as u64;
            let sum = 7 * i + 60_000 + 5 + 3 + (1 << 40) + 1 + 9 + 4 + 2 + 1_000_000;
            let sum = sum + if i.is_multiple_of(2) { 100 } else { 1000 } + 5;
            same!((i, value), (i, if negative { sum.wrapping_neg() } else { sum }));
        }
    }
    Ok(())
}

/// Kernels of one name in two modules are two kernels.
pub fn two_of_one_name(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(1, 3);
    same!(session.values(first::same_name, grid)?, vec![1; 3]);
    same!(session.values(second::same_name, grid)?, vec![2; 3]);
    Ok(())
}
