use crate::context::{done, read};
use crate::{Context, Outcome, echo, same};
use conformance::system::*;
use hostcall::Grid;
use hostcall::server::LaunchId;
use hostcall::services::HeapUse;
use std::fs;
use std::io::Cursor;

pub fn files(context: &Context) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let session = context.open_with(|builtins| builtins.dir(dir.path()), |device| device)?;
    session.all_done(system_files, Grid::new(2, 40))?;
    let mut left: Vec<_> = fs::read_dir(dir.path())
        .map_err(|error| error.to_string())?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    left.sort_unstable();
    let mut expected: Vec<_> = (0..80).filter(|id| id % 2 == 1).map(|id| format!("moved-{id}")).collect();
    expected.sort_unstable();
    same!(left, expected);
    same!(fs::read(dir.path().join("moved-7")).map_err(|error| error.to_string())?.len(), 704);
    Ok(())
}

pub fn folders(context: &Context) -> Outcome {
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let session = context.open_with(|builtins| builtins.dir(dir.path()), |device| device)?;
    session.all_done(system_folders, Grid::new(2, 40))?;
    let left: Result<Vec<_>, _> = fs::read_dir(dir.path()).map_err(|error| error.to_string())?.collect();
    same!(left.map_err(|error| error.to_string())?.len(), 40);
    same!(fs::read(dir.path().join("folder-7/b")).map_err(|error| error.to_string())?, [7; 300]);
    Ok(())
}

pub fn maps(context: &Context) -> Outcome {
    const LEN: u64 = 300_003;
    let grid = Grid::new(2, 40);
    let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
    let write =
        |name: &str, bytes: &[u8]| fs::write(dir.path().join(name), bytes).map_err(|error| error.to_string());
    write("content", &(0..LEN).map(mapped_byte).collect::<Vec<_>>())?;
    write("empty", &[])?;
    write("written", &[9; 80 * MAPPED_STEP as usize + 2])?;
    let session = context.open_with(|builtins| builtins.dir(dir.path()), |device| device)?;
    let out = session.out(grid, 1)?;
    session.run(system_maps, grid, (LEN, &out))?;
    done(&read(&out)?)?;
    let mut expected: Vec<_> = (0..80 * MAPPED_STEP).map(mapped_byte).collect();
    expected.extend([9, 0]);
    same!(fs::read(dir.path().join("written")).map_err(|error| error.to_string())?, expected);
    Ok(())
}

pub fn environment(context: &Context) -> Outcome {
    let session = context.open_with(
        |builtins| builtins.args(["program", "one", "zwölf"]).env("COLOUR", "blau"),
        |device| device,
    )?;
    session.all_done(system_environment, Grid::new(1, 40))
}

pub fn stdin(context: &Context) -> Outcome {
    let input: String = (1..=50).map(|i| format!("line {i}\n")).collect();
    let session = context.open_with(|builtins| builtins.stdin(Cursor::new(input)), |device| device)?;
    let mut numbers = session.values(system_stdin, Grid::new(2, 40))?;
    numbers.sort_unstable();
    let expected: Vec<u64> = [0; 30].into_iter().chain(1..=50).collect();
    same!(numbers, expected);
    Ok(())
}

fn heap_of(context: &Context, leaks: u32) -> Result<HeapUse, String> {
    let session = context.open(|device| device)?;
    let grid = Grid::new(2, 40);
    let out = session.out(grid, 1)?;
    session.run(system_heap, grid, (leaks, &out))?;
    done(&read(&out)?)?;
    let heap = session.device.builtins().heap();
    same!(heap.failed_frees(), 0);
    let held: Vec<HeapUse> = (0..4).map(|index| heap.held_by(LaunchId::new(index, 1))).collect();
    let sum = |number: fn(&HeapUse) -> u64| held.iter().map(number).sum();
    Ok(HeapUse { allocations: sum(|held| held.allocations), bytes: sum(|held| held.bytes) })
}

pub fn heap(context: &Context) -> Outcome {
    same!(heap_of(context, 0)?, HeapUse::default());
    Ok(())
}

/// What a launch leaves behind stays: a static of the program may hold it.
pub fn heap_leaks(context: &Context) -> Outcome {
    same!(heap_of(context, 3)?, HeapUse { allocations: 80 * 3, bytes: 80 * 3 * 32 });
    Ok(())
}

pub fn exit(context: &Context) -> Outcome {
    for code in [3, 0, -1] {
        let session = context.open(|device| device.inline_service(echo()))?;
        // The others wait for the lane that exits: where parts of a wave take turns it is a wave of its own.
        let independent = session.device.properties().independent_lanes;
        let grid = if independent { Grid::new(2, 40) } else { Grid::new(80, 1) };
        same!(session.exit_code(system_exit, grid, (code,))?, Some(code));
    }
    Ok(())
}
