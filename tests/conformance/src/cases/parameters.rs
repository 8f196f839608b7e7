use crate::context::read;
use crate::{Context, Outcome, ensure, same};
use conformance::parameters::{self, Entry, NO_KEY, Step, first, second};
use hostcall::device::LaunchRefused;
use hostcall::{DeviceBuffer, Global, Grid, NoBuffer, arguments};

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

/// Structs with cells are uploaded, written and filled as others are: a table whose empty key is not 0, of a generic struct.
pub fn cells(context: &Context) -> Outcome {
    let empty = || Entry { key: Global::new(NO_KEY), sums: [0.0, 0.5].map(Global::<f64>::new) };
    let session = context.open(|device| device)?;
    let grid = Grid::new(2, 40);
    let out = session.out(grid, 1)?;
    let text = |error: hostcall::Error| error.to_string();
    let entries: Vec<_> = (0..16).map(|_| empty()).collect();
    let table = session.device.upload(&entries).map_err(text)?;
    for fill in [false, true] {
        session.run(parameters::table_f64, grid, (&table, &out))?;
        for (i, largest) in read(&out)?.into_iter().enumerate() {
            ensure!(largest >= i as u64 && largest / 40 == i as u64 / 40);
        }
        let mut sums = [[0.0; 2]; 5];
        for Entry { key, sums: found } in table.read().map_err(text)? {
            let Some(sum) = sums.get_mut(key.get() as usize) else { continue };
            sum[0] += found[0].get();
            sum[1] += found[1].get() - 0.5;
        }
        // Half of the numbers below 80 that leave this rest by 5.
        same!(sums, [0.0, 1.0, 2.0, 3.0, 4.0].map(|rest: f64| [(16.0 * rest + 600.0) / 2.0; 2]));
        if fill {
            let stream = session.device.stream().map_err(text)?;
            stream.fill(&table, empty()).map_err(text)?;
            let filled = table.read().map_err(text)?;
            ensure!(filled.iter().all(|it| it.key.get() == NO_KEY && it.sums[1].get() == 0.5));
        } else {
            table.write(&entries).map_err(text)?;
        }
    }
    Ok(())
}

/// More parameters than a tuple has.
pub fn many(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(1, 40);
    let out = session.out(grid, 1)?;
    let from: Vec<u64> = (0..40).map(|i| 1 << i).collect();
    let from = session.device.upload(&from).map_err(|error| error.to_string())?;
    let arguments = arguments!(
        7u8,
        1u32,
        2u32,
        3u32,
        4u32,
        5u32,
        6u32,
        7u32,
        8u32,
        9u32,
        10u32,
        11u32,
        12u32,
        13u32,
        14u32,
        15u32,
        16u32,
        17u32,
        18u32,
        19u32,
        20u32,
        21u32,
        22u32,
        23u32,
        24u32,
        25u32,
        26u32,
        27u32,
        28u32,
        29u32,
        30u32,
        31u32,
        32u32,
        33u32,
        34u32,
        1u64 << 50,
        &from,
        &out,
    );
    session.run(parameters::many, grid, arguments)?;
    let squares: u64 = (1..=34).map(|i: u64| i * i).sum();
    for (i, value) in read(&out)?.into_iter().enumerate() {
        same!((i, value), (i, 7 + squares + 35 * (1 << 50) + 36 * (1 << i)));
    }
    Ok(())
}

/// Kernels are told what they do without. A buffer without values is one.
pub fn optional(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(1, 3);
    let [out, copies] = [session.out(grid, 1)?, session.out(grid, 1)?];
    let upload = |values: &[u64]| session.device.upload(values).map_err(|error| error.to_string());
    let (from, empty) = (upload(&[7, 8, 9])?, upload(&[])?);
    let add = upload(&[100])?;
    session.run(parameters::optional, grid, (NoBuffer, NoBuffer, &out, NoBuffer))?;
    same!(read(&out)?, vec![0, 1, 2]);
    session.run(parameters::optional, grid, (Some(&from), Some(&add), &out, Some(&copies)))?;
    same!((read(&out)?, read(&copies)?), (vec![107, 108, 109], vec![108, 109, 110]));
    session.run(parameters::optional, grid, (Some(&empty), None::<&DeviceBuffer<u64>>, &out, NoBuffer))?;
    same!(read(&out)?, vec![1000; 3]);
    let aliases = LaunchRefused::Aliases { plain: 0, shared: 2 }.to_string();
    same!(session.run(parameters::optional, grid, (Some(&out), NoBuffer, &out, NoBuffer)), Err(aliases));
    Ok(())
}

/// Instances of a generic kernel, of types and constants.
pub fn instances(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(1, 2);
    let out = session.out(grid, 3)?;
    session.run(parameters::add_u64_3, grid, (5, &out))?;
    session.run(parameters::add_u64_3, grid, (1 << 40, &out))?;
    same!(read(&out)?, vec![5 + (1 << 40); 6]);
    let floats = session.device.upload(&[0.25f32; 5]).map_err(|error| error.to_string())?;
    session.run(parameters::add_f32_2, grid, (1.5, &floats))?;
    let floats = floats.read().map_err(|error| error.to_string())?;
    same!(floats, vec![1.75, 1.75, 1.75, 1.75, 0.25]);
    Ok(())
}

/// Parts of one buffer are read plainly and written in one launch where they lie apart, and not where they share a value.
pub fn parts(context: &Context) -> Outcome {
    let session = context.open(|device| device)?;
    let grid = Grid::new(1, 3);
    let all = session.device.upload(&[1u64, 2, 3, 0, 0, 0, 9]).map_err(|error| error.to_string())?;
    let part = |range: std::ops::Range<usize>| all.part(range).map_err(|error| error.to_string());
    session.run(parameters::halves, grid, (&part(0..3)?, &part(3..6)?))?;
    same!(read(&all)?, vec![1, 2, 3, 10, 20, 30, 9]);
    session.run(parameters::halves, grid, (&part(4..7)?, &part(1..4)?))?;
    same!(read(&all)?, vec![1, 200, 300, 90, 20, 30, 9]);
    let refused = session.run(parameters::halves, grid, (&part(0..4)?, &part(3..7)?));
    same!(refused, Err(LaunchRefused::Aliases { plain: 0, shared: 1 }.to_string()));
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
