use crate::context::{done, read};
use crate::{Context, Outcome, echo, ensure, same};
use conformance::waves::{wave_operations, wave_reduction, wave_spinning, wave_spinning_for_ever};
use hostcall::device::SoftwareDeviceConfig;
use hostcall::{Error, Grid, LaunchFailure};
use std::time::Duration;

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

/// Lanes that wait for another one in a loop of their own do not keep it from running.
pub fn spinning(context: &Context) -> Outcome {
    for threads in [1, 3] {
        let config = SoftwareDeviceConfig { threads, ..context.software() };
        let session = context.open(|device| device.inline_service(echo()).software(config))?;
        for grid in [Grid::new(1, 40), Grid::new(3, 10)] {
            let (flag, out) = (session.out(Grid::new(1, 1), 1)?, session.out(grid, 1)?);
            session.run(wave_spinning, grid, (&flag, &out))?;
            done(&read(&out)?)?;
        }
    }
    Ok(())
}

/// A launch most of whose lanes never look up can still be ended by one of them, or from outside.
pub fn spinning_for_ever(context: &Context) -> Outcome {
    if !context.is_software() {
        return Ok(());
    }
    let config =
        SoftwareDeviceConfig { threads: 1, cancel_grace: Duration::from_millis(50), ..context.software() };
    for way in 0..3u32 {
        let session = context.open(|device| device.inline_service(echo()).software(config.clone()))?;
        let stream = session.stream()?;
        let launch = session.launch(&stream, wave_spinning_for_ever, Grid::new(1, 20), (way,))?;
        if way == 2 {
            while session.device.statistics().packets < 100 {
                std::thread::sleep(Duration::from_millis(1));
            }
            session.device.cancel_all();
        }
        match (way, stream.synchronize()) {
            (0, Ok(())) => {
                same!(launch.wait().map_err(|error| error.to_string())?.exit_code, Some(4));
            }
            (1, Err(Error::Launch { failure: LaunchFailure::Panicked { first: Some(panic), .. }, .. })) => {
                same!((panic.lane, panic.message.as_str()), (19, "the last lane gives up"));
            }
            (2, Err(Error::Launch { failure: LaunchFailure::Cancelled, .. })) => {}
            (_, other) => return Err(format!("the launch ended with {other:?}")),
        }
        // The device works as before.
        let (flag, out) = (session.out(Grid::new(1, 1), 1)?, session.out(Grid::new(1, 10), 1)?);
        session.run(wave_spinning, Grid::new(1, 10), (&flag, &out))?;
        ensure!(done(&read(&out)?).is_ok());
    }
    Ok(())
}
