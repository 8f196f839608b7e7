//! The chapter "Files and heap".

// ANCHOR: read
use hostcall::fs::{self, File};
use hostcall::services::Builtins;
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, io, kernel};

/// Adds up the bytes of a file, of which each lane reads every `n`th block.
#[kernel]
fn add_bytes(lane: &Lane, sums: &[Global<u64>]) {
    sums[lane.global_id()].set(add_own(lane).unwrap());
}

fn add_own(lane: &Lane) -> io::Result<u64> {
    let file = lane.once_per_workgroup(|| File::open("data").map(File::into_handle))?;
    let (mut sum, mut block) = (0, [0; 4096]);
    let mut offset = lane.local_id() as u64 * 4096;
    loop {
        match file.read_at(offset, &mut block)? {
            0 => return Ok(sum),
            len => sum += block[..len].iter().map(|byte| u64::from(*byte)).sum::<u64>(),
        }
        offset += 32 * 4096;
    }
}
// ANCHOR_END: read

// ANCHOR: map
/// The same of a file that the host maps where the device reaches it.
#[kernel]
fn add_mapped(lane: &Lane, sums: &[Global<u64>]) {
    let file = File::open("data").unwrap();
    let map = file.map(lane).unwrap();
    let words = map.len() / 8;
    let own = (lane.global_id() as u64..words).step_by(lane.grid_lanes());
    let sum =
        own.map(|i| map.word(i).unwrap().to_ne_bytes().iter().map(|byte| u64::from(*byte)).sum::<u64>());
    sums[lane.global_id()].set(sum.sum());
}
// ANCHOR_END: map

// ANCHOR: heap
/// Writes a text that it makes on the heap.
#[kernel]
fn write_report(lane: &Lane, numbers: &[u32]) {
    let mut text = String::new(); // in a package of kernels: `extern crate alloc`, and `alloc::string::String`
    for number in numbers {
        text += &format!("{number}\n");
    }
    let name = format!("report-{}", lane.global_id());
    fs::write(name, text.as_bytes()).unwrap();
}
// ANCHOR_END: heap

#[test]
fn files() {
    let folder = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..300_000u32).map(|i| i as u8).collect();
    std::fs::write(folder.path().join("data"), &data).unwrap();
    let folder = folder.path();
    // ANCHOR: open
    // Kernels see the files below this folder, and no others. Without `dir`, they see none.
    let builtins = Builtins::builder().dir(folder).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    // ANCHOR_END: open
    let stream = device.stream().unwrap();
    let expected: u64 = data.iter().map(|byte| u64::from(*byte)).sum();
    let sums = device.alloc_zeroed::<u64>(32).unwrap();
    for kernel in [add_bytes, add_mapped] {
        kernel.launch(&stream, Grid::new(1, 32), (&sums,)).unwrap();
        assert_eq!(sums.read().unwrap().iter().sum::<u64>(), expected);
    }
    let numbers = device.upload(&[5u32, 6]).unwrap();
    write_report.launch(&stream, Grid::new(1, 2), (&numbers,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(std::fs::read_to_string(folder.join("report-1")).unwrap(), "5\n6\n");
}
