//! The built-in services, from a kernel on the software device to the host and back.

use hostcall::hostcall_device::{Lane, env, fs, heap, io, kernel, println, process, time};
use hostcall::server::LaunchId;
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchKernel};
use std::alloc::Layout;
use std::io::Write;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// A writer whose bytes can be looked at.
#[derive(Clone, Default)]
struct Capture(Arc<Mutex<Vec<u8>>>);

impl Capture {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Capture {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn run(builtins: Builtins, kernel: hostcall::hostcall_device::kernel::Kernel<()>, grid: Grid) -> Device {
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    kernel.launch(&stream, grid, ()).unwrap();
    stream.synchronize().unwrap();
    device
}

/// Every lane writes its row of a file that one lane opened, and reads its neighbour's.
#[kernel]
fn share_a_file(lane: &Lane) {
    let options = fs::OpenOptions::new().read().write().create_new();
    let file = lane.once_per_workgroup(|| options.open("rows").map(fs::File::into_handle)).unwrap();
    let id = lane.local_id() as u64;
    let row = [b'a' + id as u8 % 26; 100];
    assert_eq!(file.write_at(id * 100, &row), Ok(100));
    lane.barrier();
    let next = (id + 1) % lane.grid_lanes() as u64;
    let mut row = [0; 100];
    assert_eq!(file.read_at(next * 100, &mut row), Ok(100));
    assert_eq!(row, [b'a' + next as u8 % 26; 100]);
    lane.barrier();
    lane.once_per_workgroup(|| file.close()).unwrap();
    assert_eq!(file.len(), Err(fs::Error::Closed));
}

#[test]
fn lanes_share_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let builtins = Builtins::builder().dir(dir.path()).build().unwrap();
    let device = run(builtins, share_a_file, Grid::new(1, 100));
    let rows = std::fs::read(dir.path().join("rows")).unwrap();
    assert!(
        rows.len() == 10_000 && rows.iter().enumerate().all(|(i, byte)| *byte == b'a' + (i / 100 % 26) as u8)
    );
    assert_eq!(device.builtins().files().open_count(), 0);
}

/// Each lane has files of its own, longer than what a wave's bulk area takes at once.
#[kernel]
fn own_files(lane: &Lane) {
    let path = format!("file{}", lane.global_id());
    let data: Vec<u8> = (0..50_000u32).map(|i| (i / 3) as u8 ^ lane.index() as u8).collect();
    fs::write(&path, &data).unwrap();
    let mut file = fs::read(&path).unwrap();
    assert!(file == data);
    let handle = fs::File::open(&path).unwrap();
    assert_eq!(handle.seek(fs::SeekFrom::End(-10)), Ok(49_990));
    handle.read_to_end(&mut file).unwrap();
    assert_eq!(file[50_000..], data[49_990..]);
    assert!(handle.write(b"x").is_err());
    drop(handle);
    fs::rename(&path, "moved").unwrap();
    assert_eq!(fs::remove(&path), Err(fs::Error::NotFound));
    assert_eq!(fs::File::open("../x").err(), Some(fs::Error::OutsideDir));
    assert_eq!(fs::create_dir("."), Err(fs::Error::AlreadyExists));
}

#[test]
fn each_lane_has_files() {
    let dir = tempfile::tempdir().unwrap();
    let builtins = Builtins::builder().dir(dir.path()).build().unwrap();
    let device = run(builtins, own_files, Grid::new(2, 33));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(device.builtins().files().open_count(), 0);
}

/// Each lane opens a file. Then, as it is told, it returns with the file left open (0), panics (1), exits (2), overflows
/// its stack (3) or waits to be cancelled (4).
#[kernel]
fn leave_files(lane: &Lane, end: u32) {
    let file = fs::File::open("data").unwrap();
    lane.barrier();
    match end {
        0 => _ = file.into_handle(),
        1 => panic!("with an open file"),
        2 => process::exit(3),
        3 => assert!(overflow(end) > 0),
        _ => loop {
            lane.pause();
        },
    }
}

fn overflow(depth: u32) -> u32 {
    let frame = std::hint::black_box([depth; 64]);
    if frame[3] == u32::MAX { 0 } else { overflow(depth + 1) + frame[5] }
}

#[test]
fn launches_that_end_early_leave_no_files() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("data"), "data").unwrap();
    // No more than one launch opens.
    let builtins = Builtins::builder().dir(dir.path()).open_files(96).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    for end in [1u32, 2, 3, 4, 1] {
        let launch = leave_files.launch(&stream, Grid::new(1, 96), (end,)).unwrap();
        if end == 4 {
            while device.builtins().files().open_count() < 96 {
                std::thread::yield_now();
            }
            launch.cancel();
        }
        assert_eq!(launch.wait().is_ok(), end == 2, "{end}");
        assert_eq!(stream.synchronize().is_ok(), end == 2, "{end}");
        assert_eq!(device.builtins().files().open_count(), 0, "{end}");
    }
    // A `static` may have the handles of what ended well.
    leave_files.launch(&stream, Grid::new(1, 96), (0u32,)).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(device.builtins().files().open_count(), 96);
    device.close();
    assert_eq!(device.builtins().files().open_count(), 0);
}

/// Longer than a message may be.
#[kernel]
fn long_file(_lane: &Lane) {
    let data: Vec<u8> = (0..65u32 << 20).map(|i| (i >> 12) as u8).collect();
    fs::write("long", &data).unwrap();
    assert!(fs::read("long").unwrap() == data);
}

#[test]
fn a_file_may_be_longer_than_a_message() {
    let dir = tempfile::tempdir().unwrap();
    run(Builtins::builder().dir(dir.path()).build().unwrap(), long_file, Grid::new(1, 1));
    assert_eq!(std::fs::metadata(dir.path().join("long")).unwrap().len(), 65 << 20);
}

#[kernel]
fn say_or_panic(lane: &Lane) {
    if lane.global_id() == 2 {
        panic!("one of four");
    }
    println!("the first line of lane {}", lane.global_id());
}

/// To print a line for the first time takes a call, which the panic of another lane comes before or after.
#[test]
fn first_lines_are_printed_although_another_lane_panics() {
    for _ in 0..20 {
        let stdout = Capture::default();
        let builtins = Builtins::builder().stdout(stdout.clone()).build().unwrap();
        let device = Device::builder("cpu").builtins(builtins).open().unwrap();
        let stream = device.stream().unwrap();
        say_or_panic.launch(&stream, Grid::new(1, 4), ()).unwrap();
        assert!(stream.synchronize().unwrap_err().to_string().contains("one of four"));
        device.builtins().stdio().flush().unwrap();
        let text = stdout.text();
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, [0, 1, 3].map(|lane| format!("the first line of lane {lane}")), "{text}");
    }
}

#[kernel]
fn echo(lane: &Lane) {
    if lane.global_id() != 0 {
        return;
    }
    let mut buffer = [0; 64];
    assert_eq!(env::args_count(), Ok(2));
    assert_eq!(env::arg(1, &mut buffer), Ok(Some("one")));
    assert_eq!(env::arg(2, &mut buffer), Ok(None));
    assert!(env::arg(1, &mut buffer[..2]).is_err());
    assert_eq!(env::var("COLOUR", &mut buffer), Ok(Some("red")));
    assert_eq!(env::var("PATH", &mut buffer), Ok(None));
    assert_eq!(env::args().unwrap(), ["echo", "one"]);
    assert_eq!(env::var_string("COLOUR").unwrap().as_deref(), Some("red"));
    assert!(time::now_ns().unwrap() > 0);
    let start = time::Instant::now();
    time::sleep(core::time::Duration::from_micros(50));
    assert!(start.elapsed().as_micros() >= 50);
    loop {
        let line = io::stdin().read_line(&mut buffer).unwrap();
        if line.is_empty() {
            break;
        }
        io::stdout().write(line.as_bytes()).unwrap();
    }
    io::stderr().write(b"done\n").unwrap();
    io::stderr().flush().unwrap();
    process::exit(3);
}

#[test]
fn a_program_has_streams_arguments_and_an_exit_code() {
    let (stdout, stderr) = (Capture::default(), Capture::default());
    let builtins = Builtins::builder()
        .args(["echo", "one"])
        .env("COLOUR", "red")
        .stdin(&b"first\nsecond"[..])
        .stdout(stdout.clone())
        .stderr(stderr.clone())
        .build()
        .unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    let launch = echo.launch(&stream, Grid::new(2, 64), ()).unwrap();
    // A launch that exits ends early, and well.
    stream.synchronize().unwrap();
    assert_eq!(launch.wait().unwrap().exit_code, Some(3));
    assert_eq!(stdout.text(), "first\nsecond");
    assert_eq!(stderr.text(), "done\n");
}

#[kernel]
fn allocate(lane: &Lane) {
    let id = lane.global_id() as u64;
    for round in 0..8 {
        let layout = Layout::from_size_align(8 << (round % 4), 64).unwrap();
        let memory = heap::alloc(layout);
        assert!(!memory.is_null() && memory.addr().is_multiple_of(64));
        // SAFETY: the memory is the lane's own, aligned and long enough for a `u64`; it is freed once.
        unsafe {
            memory.cast::<u64>().write(id);
            lane.pause();
            assert_eq!(memory.cast::<u64>().read(), id);
            assert!(heap::dealloc(memory.add(4)).is_err());
            // The last round's memory is left.
            if round < 7 {
                heap::dealloc(memory).unwrap();
            }
        }
    }
}

#[test]
fn what_a_launch_leaves_on_the_heap_stays() {
    let device = run(Builtins::builder().build().unwrap(), allocate, Grid::new(3, 40));
    let heap = device.builtins().heap();
    let held: u64 = (0..4).map(|index| heap.held_by(LaunchId::new(index, 1)).allocations).sum();
    assert_eq!(held, 120);
    assert_eq!(heap.failed_frees(), 120 * 8);
}

/// Prints a line, one that is longer than a line may be, and another line.
#[kernel]
fn print_too_much(_: &Lane, bytes: u64) {
    println!("before");
    println!("{}", "x".repeat(bytes as usize));
    println!("after");
}

#[test]
fn a_line_that_the_host_refuses_is_told_of() {
    const MOST: usize = 64 << 20;
    let stdout = Capture::default();
    let builtins = Builtins::builder().stdout(stdout.clone()).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    for _ in 0..2 {
        print_too_much.launch(&stream, Grid::new(1, 1), (MOST as u64,)).unwrap();
        stream.synchronize().unwrap();
    }
    let told = device.builtins().stdio().flush().unwrap_err().to_string();
    let expected = "standard output: a text of 67108872 bytes was refused: a line has at most 67108864 bytes";
    assert!(told.starts_with(expected), "{told}");
    assert!(told.ends_with("; 2 texts were refused in all"), "{told}");
    assert_eq!(stdout.text(), "before\nafter\n".repeat(2));
}

/// Allocates the first number of bytes, which is there, and the second one, which is not.
#[kernel]
fn allocate_two(_: &Lane, there: u64, not: u64) {
    let memory = |bytes: u64| heap::alloc(Layout::from_size_align(bytes as usize, 8).unwrap());
    assert!(!memory(there).is_null() && memory(not).is_null());
}

#[test]
fn calls_for_memory_are_bounded() {
    let builtins = Builtins::builder().heap_limit(10_000).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    allocate_two.launch(&stream, Grid::new(1, 1), (1000u64, 9000u64)).unwrap();
    stream.synchronize().unwrap();
}

/// A writer that takes nothing before it is let.
struct Held(mpsc::Receiver<()>, bool);

impl Write for Held {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !self.1 {
            let _ = self.0.recv();
            self.1 = true;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[kernel]
fn says_nothing(_lane: &Lane) {}

#[kernel]
fn says_something(_lane: &Lane) {
    println!("something");
}

/// Whoever waits for a launch may be who reads what later ones print.
#[test]
fn a_wait_does_not_wait_for_what_later_launches_print() {
    let (read, held) = mpsc::channel();
    let builtins = Builtins::builder().stdout(Held(held, false)).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    let quiet = says_nothing.launch(&stream, Grid::new(1, 1), ()).unwrap();
    let event = stream.record().unwrap();
    let loud = says_something.launch(&stream, Grid::new(1, 1), ()).unwrap();
    // It has ended, and its text is not written.
    assert!(loud.wait_for(Duration::from_millis(200)).is_err() && !loud.is_done());
    assert!(quiet.is_done() && event.is_done());
    quiet.wait_for(Duration::from_secs(20)).unwrap();
    event.wait().unwrap();
    read.send(()).unwrap();
    loud.wait().unwrap();
    stream.synchronize().unwrap();
}
