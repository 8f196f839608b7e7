//! Programs whose kernels are functions of this process, in which the software device's memory lies.
#![allow(unsafe_code)] // kernels reach memory by its address

use super::*;
use crate::device::backend::Running;
use crate::llvm::Version;
use crate::services::Builtins;
use hostcall_channel::llvm::client::{Alone, Client};
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::thread::JoinHandle;

const WRITE: u32 = 2;
const EXIT: u32 = 1;
const HOST_CALL: u32 = 12;
const ABORT: u32 = 13;

/// The client object, where LLVM 19's pointer points or as the later versions' variable.
type Object = Arc<OnceLock<Vec<u64>>>;

/// What a program's kernels use.
#[derive(Clone)]
struct Calls {
    object: Object,
    version: Version,
}

impl Calls {
    fn open(&self, opcode: u32) -> hostcall_channel::llvm::client::Port<'_, Alone<fn()>> {
        let address = self.object.get().expect("set before a kernel starts").as_ptr().expose_provenance();
        // SAFETY: the loader made the object, for the software device's waves of 32 lanes, and keeps its ports.
        let client = unsafe { Client::from_address(address as u64, self.version, 32) };
        client.open(Alone(std::thread::yield_now), opcode, 0)
    }

    /// LLVM 20 put a mark on the opcodes of libc.
    fn opcode(&self, number: u32) -> u32 {
        if self.version == Version::Llvm19 { number } else { u32::from(b'c') << 24 | number }
    }

    fn print(&self, text: &str) {
        let mut port = self.open(self.opcode(WRITE));
        port.send_bytes(text.as_bytes());
        port.receive(&mut [0]);
        port.close();
    }

    fn end(&self, opcode: u32, code: i32) {
        let mut port = self.open(self.opcode(opcode));
        port.send(&[0]);
        port.receive(&mut [0]);
        port.send(&[u64::from(code as u32)]);
        port.close();
    }
}

type Kernel = Arc<dyn Fn(&Calls, &[u64]) -> Result<(), String> + Send + Sync>;

/// A program made of functions.
struct Functions {
    calls: Calls,
    variables: Arc<Mutex<HashMap<String, Vec<u8>>>>,
    kernels: HashMap<&'static str, Kernel>,
}

impl ProgramCode for Functions {
    fn variable(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        Ok(self.variables.lock().unwrap().get(name).cloned())
    }

    fn set_variable(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        if name == Version::OBJECT_SYMBOL {
            return self.write_where_pointed(name, bytes);
        }
        let mut variables = self.variables.lock().unwrap();
        variables.get_mut(name).ok_or("no such variable")?[..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn write_where_pointed(&self, pointer: &str, bytes: &[u8]) -> Result<(), String> {
        assert_eq!((pointer, bytes.len()), (self.calls.version.symbol(), self.calls.version.object_bytes()));
        let words = bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        self.calls.object.set(words).map_err(|_| "there is one client".into())
    }

    fn clock_hz(&self) -> u64 {
        1_000
    }

    fn kernel(&self, name: &str) -> Result<Box<dyn ProgramKernel>, String> {
        let (name, kernel) = self.kernels.get_key_value(name).ok_or("no such kernel")?;
        Ok(Box::new(Function { name, kernel: kernel.clone(), calls: self.calls.clone() }))
    }
}

struct Function {
    name: &'static str,
    kernel: Kernel,
    calls: Calls,
}

impl ProgramKernel for Function {
    fn resources(&self) -> KernelResources {
        KernelResources { kernel: self.name.into(), registers: 1, stack_bytes: 2, workgroup_bytes: 3 }
    }

    fn start(&self, grid: Grid, arguments: &mut [u64]) -> Result<Box<dyn Running>, LaunchFailure> {
        let (kernel, calls, arguments) = (self.kernel.clone(), self.calls.clone(), arguments.to_vec());
        let lanes = if self.name == "_start" { grid.lanes[0] } else { 1 };
        assert!(self.name == "_start" || grid == Grid::new(1, 1));
        let run = move || (0..lanes).try_for_each(|_| kernel(&calls, &arguments));
        Ok(Box::new(Started(Mutex::new(Some(std::thread::spawn(run))))))
    }
}

struct Started(Mutex<Option<JoinHandle<Result<(), String>>>>);

impl Running for Started {
    fn wait(&self, timeout: Option<Duration>) -> Option<Result<(), LaunchFailure>> {
        assert_eq!(timeout, None);
        let result = self.0.lock().unwrap().take().expect("waited for once").join().expect("no panic");
        Some(result.map_err(LaunchFailure::Fault))
    }

    fn cancel(&self) {}
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The strings of a vector of C's.
fn strings(mut vector: u64) -> Vec<String> {
    let mut strings = Vec::new();
    loop {
        // SAFETY: the vector is in the software device's memory, which is this process's, and ends in a null pointer.
        let string = unsafe { *std::ptr::with_exposed_provenance::<u64>(vector as usize) };
        if string == 0 {
            return strings;
        }
        // SAFETY: as above; each string ends in a zero.
        let string = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance::<c_char>(string as usize)) };
        strings.push(string.to_str().unwrap().to_owned());
        vector += 8;
    }
}

fn or_into(address: u64, value: u64) {
    // SAFETY: the loader's result word, which nobody reads while the kernel runs.
    unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(address as usize)) }
        .fetch_or(value, Ordering::Relaxed);
}

/// A program with these kernels on a new software device, and what it prints.
fn program(
    version: Version,
    variables: &[(&str, Vec<u8>)],
    kernels: [(&'static str, Kernel); 3],
) -> (LlvmProgram, Captured) {
    let printed = Captured::default();
    let builtins = Builtins::builder().stdin(io::empty()).stdout(printed.clone()).build().unwrap();
    let device = Device::builder("cpu").slots(1).builtins(builtins).open().unwrap();
    let variables = variables.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    let calls = Calls { object: Object::default(), version };
    let code = Functions { calls, variables: Arc::new(Mutex::new(variables)), kernels: kernels.into() };
    let object = |kind| move |n: &u32| format!("__{kind}_array_object_f_{n}");
    let symbols = image::LlvmProgram {
        version: Some(version),
        constructors: [1, 2].iter().map(object("init")).collect(),
        destructors: [3].iter().map(object("fini")).collect(),
        unknown_client: None,
    };
    (LlvmProgram::new(device, symbols, Box::new(code)).unwrap(), printed)
}

fn kernel(run: impl Fn(&Calls, &[u64]) + Send + Sync + 'static) -> Kernel {
    Arc::new(move |calls, arguments| {
        run(calls, arguments);
        Ok(())
    })
}

/// Constructors and destructors stand for functions by number.
fn lists() -> Vec<(&'static str, Vec<u8>)> {
    let word = |word: u64| word.to_le_bytes().to_vec();
    vec![
        ("__init_array_start", word(0)),
        ("__init_array_end", word(0)),
        ("__fini_array_start", word(0)),
        ("__fini_array_end", word(0)),
        ("__init_array_object_f_1", word(0x111)),
        ("__init_array_object_f_2", word(0x222)),
        ("__fini_array_object_f_3", word(0x333)),
        (CLOCK_SYMBOL, word(0)),
    ]
}

#[test]
fn a_program_runs_from_start_to_end() {
    for version in Version::ALL {
        let begin = kernel(|calls, arguments| {
            let [count, arguments, environment] = *arguments else { panic!("three arguments") };
            let (arguments, environment) = (strings(arguments), strings(environment));
            calls.print(&format!("begin {count} {arguments:?} {environment:?}\n"));
        });
        let main = kernel(|calls, arguments| {
            let [count, arguments, environment, result] = *arguments else { panic!("four arguments") };
            assert_eq!((count, strings(arguments).len(), strings(environment).len()), (2, 2, 1));
            calls.print("main\n");
            or_into(result, 0x8000_0001);
        });
        let end = kernel(|calls, arguments| {
            calls.print("end\n");
            calls.end(EXIT, arguments[0] as i32);
        });
        let kernels = [("_begin", begin), ("_start", main), ("_end", end)];
        let (program, printed) = program(version, &lists(), kernels);
        assert_eq!(
            program.resources()[1].to_string(),
            "_start: 1 registers and 2 bytes of stack a lane, 3 bytes a workgroup"
        );
        let run = LlvmRun::new(Grid::new(1, 2)).args(["name", "an argument"]).env("LANG", "C").ports(70);
        assert_eq!(program.run(run).unwrap(), End::Exited(0x8000_0001_u32 as i32));
        let expected = "begin 2 [\"name\", \"an argument\"] [\"LANG=C\"]\nmain\nmain\nend\n";
        assert_eq!(String::from_utf8_lossy(&printed.0.lock().unwrap()), expected);
    }
}

#[test]
fn the_loader_lists_constructors_and_sets_the_clock() {
    let nothing = || kernel(|_, _| ());
    let kernels = [("_begin", nothing()), ("_start", nothing()), ("_end", nothing())];
    let (program, _) = program(Version::Llvm19, &lists(), kernels);
    let memory = program.constructors().unwrap();
    let list = |start: &str, end: &str| {
        let word = |name| {
            let bytes = program.code.variable(name).unwrap().unwrap();
            u64::from_le_bytes(bytes.try_into().unwrap())
        };
        let memory = memory.iter().find(|memory| memory.address() == word(start)).unwrap();
        let mut bytes = vec![0; (word(end) - word(start)) as usize];
        memory.read(0, &mut bytes).unwrap();
        bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>()
    };
    assert_eq!(list("__init_array_start", "__init_array_end"), [0x111, 0x222]);
    assert_eq!(list("__fini_array_start", "__fini_array_end"), [0x333]);
    // A program that ends without a word ends with what `main` gave.
    assert_eq!(program.run(LlvmRun::new(Grid::new(1, 1))).unwrap(), End::Exited(0));
}

#[test]
fn programs_end_early() {
    for (opcode, expected) in [(EXIT, End::Exited(9)), (ABORT, End::Aborted)] {
        let main = kernel(move |calls, _| {
            calls.end(opcode, 9);
            // Other lanes of a GPU go on.
            std::thread::sleep(Duration::from_secs(3600));
        });
        let nothing = || kernel(|_, _| ());
        let kernels = [("_begin", nothing()), ("_start", main), ("_end", nothing())];
        let (program, _) = program(Version::Llvm20, &lists(), kernels);
        assert_eq!(program.run(LlvmRun::new(Grid::new(1, 1))).unwrap(), expected);
    }
}

#[test]
fn programs_call_functions_that_are_registered() {
    let main = kernel(|calls, arguments| {
        let function = strings(arguments[1])[1].parse().unwrap();
        let mut port = calls.open(calls.opcode(HOST_CALL));
        port.send_bytes(b"twice ");
        port.send(&[function]);
        let mut result = [0];
        port.receive(&mut result);
        port.close();
        or_into(arguments[3], result[0]);
    });
    let nothing = || kernel(|_, _| ());
    let kernels = [("_begin", nothing()), ("_start", main), ("_end", nothing())];
    let (program, _) = program(Version::Llvm20, &lists(), kernels);
    let run = LlvmRun::new(Grid::new(1, 1)).args(["name"]).host_functions(|server| {
        let function = server.register(|bytes| {
            assert_eq!(bytes, b"twice ");
            42
        });
        vec![function.to_string()]
    });
    assert_eq!(program.run(run).unwrap(), End::Exited(42));
}

#[test]
fn failures_are_told() {
    let fault: Kernel = Arc::new(|_, _| Err("no such memory".into()));
    let nothing = || kernel(|_, _| ());
    let kernels = [("_begin", nothing()), ("_start", fault), ("_end", nothing())];
    let faulty = || program(Version::Llvm19, &lists(), kernels.clone()).0;
    let error = faulty().run(LlvmRun::new(Grid::new(1, 1))).unwrap_err();
    assert_eq!(error.to_string(), "kernel _start: no such memory");
    let error = faulty().run(LlvmRun::new(Grid::new(1, 1)).args(["a\0b"])).unwrap_err();
    assert!(error.to_string().contains("zero byte"), "{error}");
    let error = faulty().run(LlvmRun::new(Grid::new(1, 0))).unwrap_err();
    assert!(error.to_string().contains("at least one"), "{error}");

    let device = Device::open("cpu").unwrap();
    let path = tempfile::NamedTempFile::new().unwrap();
    let refused = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        device.load_llvm(&path, None).err().expect("no program").to_string()
    };
    assert!(refused(b"text").contains("no image"));
    let ptx = ".version 7.8\n.target sm_90\n.visible .entry _begin(\n.visible .entry _start(\n";
    assert!(refused(ptx.as_bytes()).contains("no program that was linked with LLVM's GPU libc"));
    let ptx = format!("{ptx}.visible .entry _end(\n");
    assert!(refused(ptx.as_bytes()).contains("built for NVIDIA GPUs from sm_90 on"));
}
