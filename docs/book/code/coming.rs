//! The chapters "Coming from ...": what others write, here.

use hostcall::device::LlvmRun;
use hostcall::llvm::End;
use hostcall::services::{Builtins, Sink};
use hostcall::{
    CallError, Device, Error, Global, Grid, Hostcall, HostcallRef, Lane, LaunchKernel, kernel, println,
    service,
};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

// ANCHOR: cuda
#[kernel]
fn hello(lane: &Lane, f: f32) {
    let ([block, ..], [thread, ..]) = (lane.workgroup(), lane.position());
    println!("Hello block {block} thread {thread}, f={f}");
}

fn print(device: &Device) -> Result<(), Error> {
    let stream = device.stream()?;
    hello.launch(&stream, Grid::new(2, 3), (1.5f32,))?; // hello<<<2, 3>>>(1.5f)
    stream.synchronize() // lines appeared while it ran; this tells of a failed kernel
}
// ANCHOR_END: cuda

#[test]
fn cuda() {
    let text = Arc::new(Mutex::new(String::new()));
    let seen = text.clone();
    let sink = Sink::callback(move |_, bytes| *seen.lock().unwrap() += &String::from_utf8_lossy(bytes));
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    print(&device).unwrap();
    device.builtins().stdio().flush().unwrap();
    let text = text.lock().unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!((lines.len(), lines[5]), (6, "Hello block 1 thread 2, f=1.5"));
}

// ANCHOR: llvm
#[service]
trait Files {
    /// What an opcode of LLVM's is: one method. Bytes of any length go and come with the call.
    fn lookup(name: &str, out: &mut [u8]) -> bool;
}

#[kernel]
fn client(_: &Lane, found: &Global<u32>) {
    let mut value = [0; 64];
    let (is_there, len) = Files::lookup("user", &mut value).unwrap();
    found.set(if is_there { len as u32 } else { 0 });
}

struct Environment;

impl FilesHandler for Environment {
    fn lookup(&self, name: &str, out: &mut hostcall::Output<'_>) -> Result<bool, CallError> {
        let value = if name == "user" { "ada" } else { return Ok(false) };
        out.push(value.as_bytes()).map(|()| true)
    }
}
// ANCHOR_END: llvm

#[test]
fn llvm() {
    let device = Device::builder("cpu").service(Files::serve(Environment)).open().unwrap();
    let stream = device.stream().unwrap();
    let found = device.alloc_zeroed::<u32>(1).unwrap();
    client.launch(&stream, Grid::new(1, 1), (&found,)).unwrap();
    assert_eq!(found.read().unwrap(), [3]);
}

// ANCHOR: rocm
/// Service 1 of ROCm's protocol is a function of seven words that gives two. Here a function has a name and types.
#[service]
trait Host {
    fn divide(dividend: u64, divisor: u64) -> Option<(u64, u64)>;
}

#[kernel]
fn quotients(lane: &Lane, x: &[u64], out: &[Global<u64>]) {
    let i = lane.global_id();
    if let Ok(Some((quotient, _remainder))) = Host::divide(x[i], 7) {
        out[i].set(quotient);
    }
}

struct Divider;

impl HostHandler for Divider {
    fn divide(&self, a: u64, b: u64) -> Result<Option<(u64, u64)>, CallError> {
        Ok((b != 0).then(|| (a / b, a % b)))
    }
}
// ANCHOR_END: rocm

#[test]
fn rocm() {
    let device = Device::builder("cpu").service(Host::serve(Divider)).open().unwrap();
    let stream = device.stream().unwrap();
    let (x, out) = (device.upload(&[14u64, 22]).unwrap(), device.alloc_zeroed::<u64>(2).unwrap());
    quotients.launch(&stream, Grid::new(1, 2), (&x, &out)).unwrap();
    assert_eq!(out.read().unwrap(), [2, 3]);
}

// ANCHOR: hip
fn squares(device: &Device, file: &Path) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
    use hostcall::rocm::{KernelArgument, Version};

    let kernel = device.load_code_object(file, Version::Stacks)?.kernel("squares")?;
    let (stream, out) = (device.stream()?, device.alloc_zeroed::<u64>(64)?);
    // SAFETY: the kernel takes a pointer to as many numbers as there are lanes.
    unsafe { kernel.launch(&stream, Grid::new(1, 64), &[KernelArgument::buffer(&out)]) }?;
    stream.synchronize()?;
    Ok(out.read()?)
}
// ANCHOR_END: hip

/// Runs the commands of a page in a folder, after these.
fn run_commands(page: &str, before: &str, folder: &Path) -> String {
    let book = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(book.join("src").join(page)).unwrap();
    let commands =
        text.split("```bash\n").nth(1).and_then(|rest| rest.split("```").next()).expect("it has some");
    let mut bash = Command::new("bash");
    let output = bash.args(["-euc", &format!("{before}\n{commands}")]).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{page}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn hip() {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("code/squares.hip");
    std::fs::copy(source, folder.path().join("squares.hip")).unwrap();
    run_commands("rocm.md", "", folder.path());
    let text = Arc::new(Mutex::new(String::new()));
    let seen = text.clone();
    let sink = Sink::callback(move |_, bytes| *seen.lock().unwrap() += &String::from_utf8_lossy(bytes));
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let device = Device::builder("gfx942").builtins(builtins).open().unwrap();
    let squares = squares(&device, &folder.path().join("squares.co")).unwrap();
    assert!(squares.iter().zip(0..).all(|(square, i)| *square == i * i), "{squares:?}");
    device.builtins().stdio().flush().unwrap();
    assert_eq!(*text.lock().unwrap(), "lane 3: 9\n");
}

#[test]
fn a_program_of_llvms_protocol_for_amd() {
    let folder = tempfile::tempdir().unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/cli/tests/llvm/freestanding");
    let copies = format!("cp {}/* .", sources.display());
    // What the command would run is run here.
    run_commands("llvm.md", &format!("{copies}\nhostcall() {{ true; }}"), folder.path());
    let text = Arc::new(Mutex::new(String::new()));
    let seen = text.clone();
    let sink = Sink::callback(move |_, bytes| *seen.lock().unwrap() += &String::from_utf8_lossy(bytes));
    let builtins = Builtins::builder().output(sink).build().unwrap();
    let device = Device::builder("gfx942").builtins(builtins).open().unwrap();
    let program = device.load_llvm(folder.path().join("hello")).unwrap();
    let run = LlvmRun::new(Grid::new(1, 1)).args(["hello", "one"]);
    assert_eq!(program.run(run).unwrap(), End::Exited(2));
    device.builtins().stdio().flush().unwrap();
    assert_eq!(*text.lock().unwrap(), "Hello from a program without a libc.\none\n");
}

// ANCHOR: julia
#[kernel]
fn kernel_of_two(lane: &Lane, y: &[Global<f32>], hostcall: HostcallRef<f32, f32>) {
    // `hostcall!(hc, 42f0)` calls once for a workgroup, too.
    let answer = lane.once_per_workgroup(|| hostcall.call(42.0).unwrap());
    y[lane.global_id()].set(answer);
}

fn julia(device: &Device) -> Result<Vec<f32>, Error> {
    let stream = device.stream()?;
    let y = device.alloc_zeroed::<f32>(64)?;
    let hostcall = Hostcall::once(device, |x: f32| x + 1.0)?; // HostCallHolder(Float32, Tuple{Float32}) do x
    kernel_of_two.launch(&stream, Grid::new(1, 64), (&y, &hostcall))?;
    stream.synchronize()?; // there is nothing to free
    y.read()
}
// ANCHOR_END: julia

#[test]
fn amdgpu_jl() {
    assert_eq!(julia(&Device::open("cpu").unwrap()).unwrap(), [43.0; 64]);
}
