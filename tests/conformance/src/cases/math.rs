use crate::context::read;
use crate::fast::FastForm;
use crate::{Context, Outcome, same};
use conformance::math::{doubles, fast_forms, floats, math_doubles, math_fast, math_floats, math_halves};
use hostcall::Grid;
use hostcall::hostcall_device::math::half::{bf16, f16};

fn text(error: hostcall::Error) -> String {
    error.to_string()
}

/// Numbers of many sizes, with the ends of the ranges among them.
fn numbers() -> Vec<f64> {
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, -0.75, 1e-310, 1e300, f64::INFINITY, -f64::INFINITY, f64::NAN];
    let spread = (1..118).map(|i| f64::from(i * 37 % 101 - 50) * 1.37f64.powi(i % 23 - 11));
    special.into_iter().chain(spread).collect()
}

/// A device's mathematics gives the bits that the host's copy of the same functions gives.
pub fn the_same_bits(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let x = numbers();
    let y: Vec<f64> = x.iter().rev().copied().collect();
    let (x32, y32) =
        (x.iter().map(|x| *x as f32).collect::<Vec<_>>(), y.iter().map(|y| *y as f32).collect::<Vec<_>>());
    let (mut expected, mut expected32) = (Vec::new(), Vec::new());
    for i in 0..x.len() {
        doubles(x[i], y[i], |name, bits| expected.push((name, bits)));
        floats(x32[i], y32[i], |name, bits| expected32.push((name, bits)));
    }
    let grid = Grid::new(2, x.len() as u32 / 2);
    let each = expected.len() / x.len();
    let out = session.out(grid, each)?;
    let (xs, ys) = (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
    session.run(math_doubles, grid, (&xs, &ys, &out))?;
    for (i, (found, (name, expected))) in read(&out)?.into_iter().zip(expected).enumerate() {
        let x = x[i / each].to_string();
        same!((name, &x, found), (name, &x, expected));
    }
    let (xs, ys) = (session.device.upload(&x32).map_err(text)?, session.device.upload(&y32).map_err(text)?);
    session.run(math_floats, grid, (&xs, &ys, &out))?;
    for (i, (found, (name, expected))) in read(&out)?.into_iter().zip(expected32).enumerate() {
        let x = x32[i / each].to_string();
        same!((name, &x, found), (name, &x, expected));
    }
    Ok(())
}

/// The fast forms are as close as their documentation says.
pub fn fast(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let x: Vec<f32> = numbers().into_iter().map(|x| x as f32).collect();
    let y: Vec<f32> = x.iter().rev().copied().collect();
    let mut names = Vec::new();
    fast_forms(1.0, 1.0, |name, _| names.push(name));
    let (xs, ys) = (session.device.upload(&x).map_err(text)?, session.device.upload(&y).map_err(text)?);
    let out = session.device.alloc_zeroed::<f32>(x.len() * names.len()).map_err(text)?;
    session.run(math_fast, Grid::new(2, x.len() as u32 / 2), (&xs, &ys, &out))?;
    for (i, found) in out.read().map_err(text)?.into_iter().enumerate() {
        let (name, x, y) = (names[i % names.len()], x[i / names.len()], y[i / names.len()]);
        let form = FastForm::named(name).ok_or_else(|| format!("{name} has no bound"))?;
        let (error, bound) = (form.error(x, y, found).unwrap_or(0.0), form.bound(x));
        if error > bound {
            return Err(format!(
                "{name} of {x:e} and {y:e} is {found:e}, off by {error}, not at most {bound}"
            ));
        }
    }
    Ok(())
}

/// Numbers of 16 bits convert as they do on the host, from every one and beside every one.
pub fn halves(context: &Context) -> Outcome {
    const COUNT: usize = 1 << 16;
    let session = context.open(|device| device)?;
    let x: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    // Each number of 16 bits, both kinds in turn, and what lies in the middle or close to the middle between it and the next.
    let beside = |(i, half): (usize, &f16)| {
        let bits = if i % 2 == 0 { half.to_f32().to_bits() } else { u32::from(half.to_bits()) << 16 };
        let middle = if i % 2 == 0 { 1 << 12 } else { 1 << 15 };
        f32::from_bits(bits.wrapping_add([0, middle, middle - 1, middle + 1][i / 2 % 4]))
    };
    let numbers: Vec<f32> = x.iter().enumerate().map(beside).collect();
    let factor = f16::from_f32(1.5);
    let device = &session.device;
    let narrow = device.alloc_zeroed::<f16>(COUNT).map_err(text)?;
    let narrow_brain = device.alloc_zeroed::<bf16>(COUNT).map_err(text)?;
    let sums = device.alloc_zeroed::<f32>(2 * COUNT).map_err(text)?;
    let (given, halves) = (device.upload(&numbers).map_err(text)?, device.upload(&x).map_err(text)?);
    let arguments = (factor, &given, &halves, &narrow, &narrow_brain, &sums);
    session.run(math_halves, Grid::new(COUNT as u32 / 256, 256), arguments)?;
    let (narrow, brains) = (narrow.read().map_err(text)?, narrow_brain.read().map_err(text)?);
    let sums = sums.read().map_err(text)?;
    // NaNs are alike.
    let bits = |number: f32| if number.is_nan() { u32::MAX } else { number.to_bits() };
    for i in 0..COUNT {
        let expected = (f16::from_f32(numbers[i]).to_f32(), bf16::from_f32(numbers[i]).to_f32());
        let found = (narrow[i].to_f32(), brains[i].to_f32());
        same!((i, bits(found.0), bits(found.1)), (i, bits(expected.0), bits(expected.1)));
        let brain = bf16::from_bits(x[i].to_bits());
        let expected = (x[i].to_f32() * 1.5, brain.to_f32() * 1.5);
        same!((i, bits(sums[2 * i]), bits(sums[2 * i + 1])), (i, bits(expected.0), bits(expected.1)));
    }
    Ok(())
}
