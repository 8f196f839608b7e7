use crate::context::read;
use crate::{Context, Outcome, same};
use conformance::math::{doubles, floats, math_doubles, math_floats};
use hostcall::Grid;

/// Numbers of many sizes, with the ends of the ranges among them.
fn numbers() -> Vec<f64> {
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.75, 1e-310, 1e300, f64::INFINITY, -f64::INFINITY, f64::NAN];
    let spread = (1..118).map(|i| f64::from(i * 37 % 101 - 50) * 1.37f64.powi(i % 23 - 11));
    special.into_iter().chain(spread).collect()
}

/// A device's mathematics gives the bits that the host's copy of the same functions gives.
pub fn the_same_bits(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let upload = |error: hostcall::Error| error.to_string();
    let x = numbers();
    let y: Vec<f64> = x.iter().rev().copied().collect();
    let (x32, y32) =
        (x.iter().map(|x| *x as f32).collect::<Vec<_>>(), y.iter().map(|y| *y as f32).collect::<Vec<_>>());
    let (mut expected, mut expected32) = (Vec::new(), Vec::new());
    for i in 0..x.len() {
        doubles(x[i], y[i], |bits| expected.push(bits));
        floats(x32[i], y32[i], |bits| expected32.push(bits));
    }
    let grid = Grid::new(2, x.len() as u32 / 2);
    let each = expected.len() / x.len();
    let out = session.out(grid, each)?;
    let (xs, ys) = (session.device.upload(&x).map_err(upload)?, session.device.upload(&y).map_err(upload)?);
    session.run(math_doubles, grid, (&xs, &ys, &out))?;
    for (i, (found, expected)) in read(&out)?.into_iter().zip(expected).enumerate() {
        let x = x[i / each].to_string();
        same!((i % each, &x, found), (i % each, &x, expected));
    }
    let (xs, ys) =
        (session.device.upload(&x32).map_err(upload)?, session.device.upload(&y32).map_err(upload)?);
    session.run(math_floats, grid, (&xs, &ys, &out))?;
    for (i, (found, expected)) in read(&out)?.into_iter().zip(expected32).enumerate() {
        let x = x32[i / each].to_string();
        same!((i % each, &x, found), (i % each, &x, expected));
    }
    Ok(())
}
