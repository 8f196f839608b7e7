//! How fast calls are recorded, read and exported, and how much memory that takes: `cargo run --release -p hostcall-trace
//! --features export --example export_speed [MILLIONS OF CALLS]`. Files lie in the folder for temporary ones.

use hostcall_abi::launch::LaunchId;
use hostcall_trace::export::{Format, Table, export};
use hostcall_trace::{Call, Ending, Reader, Tracer};
use std::error::Error;
use std::fs::{self, File};
use std::time::{Duration, Instant};

/// Calls after which the recorder waits until they are written, so that none is dropped.
const AT_ONCE: u64 = 30_000;

const METHODS: [&str; 4] = ["Inventory::lookup", "Inventory::reserve", "Files::read", "Clock::now_ns"];

fn main() -> Result<(), Box<dyn Error>> {
    let millions: u64 = std::env::args().nth(1).map_or(Ok(5), |number| number.parse())?;
    let calls = millions * 1_000_000;
    let folder = std::env::temp_dir().join(format!("hostcall-trace-speed-{}", std::process::id()));
    fs::create_dir(&folder)?;
    let result = measure(calls, &folder);
    fs::remove_dir_all(&folder)?;
    result
}

fn measure(calls: u64, folder: &std::path::Path) -> Result<(), Box<dyn Error>> {
    let path = folder.join("calls.trace");
    let tracer = Tracer::builder().file(&path)?.start()?;
    let source = tracer.source("cuda:0", "hostcall");
    let launch = LaunchId::new(1, 1);
    source.launch_began(launch, &"gather".into(), [1000, 1, 1]);
    let mut recording = Duration::ZERO;
    let mut done = 0;
    while done < calls {
        let start = Instant::now();
        for number in done..done + AT_ONCE {
            let at = number * 100;
            let place =
                Call { slot: number as u32 % 9000, workgroup: number as u32 % 1000, wave: 3, ..Call::at(at) };
            let times = Call {
                handler_began_ns: at + 30 + number % 7,
                handler_ended_ns: at + 200 + number % 101,
                replied_ns: at + 350 + number % 1009,
                ..place
            };
            let call = Call { lanes: 32, request_bytes: 256, reply_bytes: 512, ..times };
            source.call(METHODS[number as usize % METHODS.len()], 300, launch, call);
        }
        recording += start.elapsed();
        done += AT_ONCE;
        std::thread::sleep(Duration::from_millis(20));
    }
    source.launch_ended(launch, Ending::OK);
    let summary = tracer.finish(Duration::from_secs(600));
    println!("recorded {done} calls, {:.0} ns a call", recording.as_nanos() as f64 / done as f64);
    summary.lost().into_iter().for_each(|lost| println!("{lost}"));
    let bytes = fs::metadata(&path)?.len() as f64;
    let tell = |what: &str, start: Instant, written: u64| {
        let rate = bytes / start.elapsed().as_secs_f64() / 1e6;
        println!(
            "{what:<8} {rate:>6.0} MB of trace a second, {:>6.0} MB written, peak {} MB",
            written as f64 / 1e6,
            peak_mb()
        );
    };
    let start = Instant::now();
    let read = Reader::new(File::open(&path)?)?.count();
    assert!(read as u64 > summary.calls);
    tell("read", start, 0);
    for (ending, format) in Format::ENDINGS {
        let to = folder.join(ending);
        let start = Instant::now();
        export(&mut Reader::new(File::open(&path)?)?, Table::First, format, File::create(&to)?, |_| ())?;
        tell(ending, start, fs::metadata(&to)?.len());
        fs::remove_file(&to)?;
    }
    Ok(())
}

/// The most memory that the process had so far, in MB.
fn peak_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1000
}
