//! Programs that were linked with LLVM's GPU libc.

use crate::arguments::RunOptions;
use crate::run::watch_signals;
use crate::spawn;
use crate::wait::{BY_SIGNAL, Event, Started};
use hostcall::Device;
use hostcall::device::LlvmRun;
use hostcall::llvm::{End, Options};
use signal_hook::consts::SIGABRT;
use std::error::Error;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::mpsc::Sender;

/// Starts the program, and has its end and signals sent to the channel of `sender`.
///
/// # Errors
/// When the device cannot run it.
pub fn start(
    device: &Device,
    image: &Path,
    options: &RunOptions,
    sender: Sender<Event>,
) -> Result<Started, Box<dyn Error>> {
    let program = device.load_llvm(image)?;
    if options.print_resource_usage {
        for resources in program.resources() {
            eprintln!("{resources}");
        }
    }
    let grid = options.grid(1, 1);
    let server = Options::default().system(options.llvm.allow_system);
    let mut run = options
        .variables()
        .fold(LlvmRun::new(grid), |run, (name, value)| run.env(name.into_vec(), value.as_bytes()))
        .args(options.program.iter().map(|argument| argument.as_bytes()))
        .server(server);
    if let Some(ports) = options.llvm.ports {
        run = run.ports(ports);
    }
    watch_signals(sender.clone())?;
    let device = device.clone();
    spawn("hostcall-wait", move || {
        let end = program.run(run);
        let code = end.map(|end| match end {
            End::Exited(code) => code,
            End::Aborted => BY_SIGNAL + SIGABRT,
        });
        Event::tell_end(&sender, &device, code);
    })?;
    // Nothing ends a GPU's kernel that does not end itself, but the end of the process.
    Ok(Started { grid, can_cancel: false, resident_lanes: None })
}
