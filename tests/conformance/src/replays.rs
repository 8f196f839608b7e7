//! Very many replays of a graph whose kernels call: each call is answered once, and neither the host's memory nor the device's
//! grows.

use crate::context::read;
use crate::{Context, echo, same};
use conformance::graphs::graph_add;
use hostcall::Grid;
use hostcall::graph::CaptureMode;
use std::process::Command;
use std::time::Instant;

/// Every lane of each of the graph's two kernels makes a call.
const GRID: Grid = Grid::new(2, 40);
const LANES: u64 = 80;

/// Replays until all are waited for and looked at.
const REPLAYS_A_ROUND: u64 = 1000;

/// By how much the host's memory may grow: what the system's allocator keeps of what was given back.
pub(crate) const HOST_LIMIT_BYTES: u64 = 16 << 20;

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub replays: u64,
    pub calls: u64,
    pub seconds: f64,
    /// Host memory after the first tenth of the replays and after all, in bytes.
    pub host_bytes: [u64; 2],
    /// Memory of the GPU after the first tenth of the replays and after all, in MiB as its driver counts; `None` where no driver does.
    pub device_mib: Option<[u64; 2]>,
}

impl std::fmt::Display for Done {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { replays, calls, seconds, host_bytes: [before, after], device_mib } = self;
        let [before, after] = [before, after].map(|bytes| bytes >> 20);
        write!(f, "{replays} replays with {calls} calls, each answered once, in {seconds:.1} s; ")?;
        write!(f, "host memory {before} MiB after a tenth of them, {after} MiB after all")?;
        match device_mib {
            Some([before, after]) => write!(f, "; the GPU's {before} and {after} MiB"),
            None => Ok(()),
        }
    }
}

/// Bytes of memory that this process has.
pub(crate) fn host_bytes() -> Result<u64, String> {
    let text = std::fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    let kib = kib.and_then(|kib| kib.trim().parse::<u64>().ok()).ok_or("the system does not say VmRSS")?;
    Ok(kib << 10)
}

/// The GPU's memory that is in use, in MiB.
fn device_mib(device: &str) -> Result<Option<u64>, String> {
    let Some(index) = device.strip_prefix("cuda:") else { return Ok(None) };
    let query = ["--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", index];
    let output = Command::new("nvidia-smi").args(query).output();
    let output = output.map_err(|error| format!("nvidia-smi, which tells the GPU's memory: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mib = text.trim().parse().map_err(|_| format!("nvidia-smi printed {text:?}"))?;
    Ok(Some(mib))
}

/// Replays the graph `count` times.
///
/// # Errors
/// What went wrong, in a sentence.
pub fn run(context: &Context, count: u64) -> Result<Done, String> {
    let text = |error: hostcall::Error| error.to_string();
    let session = context.open(|device| device.inline_service(echo()))?;
    let stream = session.stream()?;
    let (out, copy) = (session.out(GRID, 1)?, session.out(GRID, 1)?);
    stream.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
    session.launch(&stream, graph_add, GRID, (&out,))?;
    stream.copy(&copy, &out).map_err(text)?;
    session.launch(&stream, graph_add, GRID, (&out,))?;
    let graph = stream.end_capture().map_err(text)?;
    let instance = graph.instantiate().map_err(|error| error.to_string())?;
    let start = Instant::now();
    let mut done = 0;
    let mut replay_until = |until: u64| {
        while done < until {
            let replays = REPLAYS_A_ROUND.min(until - done);
            for _ in 0..replays {
                instance.launch(&stream).map_err(text)?;
            }
            stream.synchronize().map_err(text)?;
            done += replays;
            same!(read(&out)?, vec![2 * done; LANES as usize]);
            same!(read(&copy)?, vec![2 * done - 1; LANES as usize]);
        }
        Ok::<_, String>((host_bytes()?, device_mib(&context.device)?))
    };
    let (host_before, device_before) = replay_until(count / 10)?;
    let (host_after, device_after) = replay_until(count)?;
    if host_after > host_before + HOST_LIMIT_BYTES {
        return Err(format!("the host's memory grew from {host_before} to {host_after} bytes"));
    }
    if device_after > device_before {
        return Err(format!("the GPU's memory grew: {device_before:?}, then {device_after:?} MiB"));
    }
    same!(session.device.server().launches().count(), 0);
    Ok(Done {
        replays: count,
        calls: 2 * LANES * count,
        seconds: start.elapsed().as_secs_f64(),
        host_bytes: [host_before, host_after],
        device_mib: device_before.zip(device_after).map(<[u64; 2]>::from),
    })
}
