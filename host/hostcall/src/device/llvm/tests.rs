//! Programs whose kernels are functions of this process, in which the software device's memory lies.
#![allow(unsafe_code)] // kernels reach memory by its address

use super::*;
use crate::llvm::{FaultKind, Version};
use crate::services::{Block, Builtins, BuiltinsBuilder, HeapMemory, ProcessMemory};
use crate::trace::Tracer;
use hostcall_channel::llvm::client::{Alone, Client};
use hostcall_locks::Mutex;
use hostcall_seam::{
    Backend, BackendError, DeviceAddress, DeviceFault, DeviceFaultKind, Dispatch, DispatchFailure,
    DispatchOutcome, HostMemory, Kernel, KernelLimits, KernelMemory, Mark, Pinned, Properties, Queue,
    Running, Variable,
};
use hostcall_softdev::Cpu;
use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const WRITE: u32 = 2;
const MALLOC: u32 = 10;
const EXIT: u32 = 1;
const HOST_CALL: u32 = 12;
const ABORT: u32 = 13;

/// What a program's kernels use.
#[derive(Clone)]
struct Calls {
    /// Address of the client object.
    object: u64,
    version: Version,
}

impl Calls {
    fn open(&self, opcode: u32) -> hostcall_channel::llvm::client::Port<'_, Alone<fn()>> {
        // SAFETY: the loader wrote the object, for the software device's waves of 32 lanes, and keeps its ports.
        let client = unsafe { Client::from_address(self.object, self.version, 32) };
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

    fn allocate(&self, bytes: u64) -> u64 {
        let mut port = self.open(self.opcode(MALLOC));
        port.send(&[bytes]);
        let mut address = [0];
        port.receive(&mut address);
        port.close();
        address[0]
    }

    fn end(&self, opcode: u32, code: i32) {
        let mut port = self.open(self.opcode(opcode));
        port.send(&[0]);
        port.receive(&mut [0]);
        port.send(&[u64::from(code as u32)]);
        port.close();
    }
}

type Body = Arc<dyn Fn(&Calls, &[u64]) -> Result<(), String> + Send + Sync>;

/// A backend as somebody might write it elsewhere: its memory is the process's, its kernels are functions, and a queue
/// has a thread.
struct Functions {
    memory: Cpu,
    program: Program,
}

/// A program made of functions.
#[derive(Clone)]
struct Program {
    calls: Calls,
    variables: Arc<HashMap<String, HostMemory>>,
    kernels: HashMap<&'static str, Body>,
}

// SAFETY: memory is the software device's; modules and queues are below.
unsafe impl Backend for Functions {
    fn properties(&self) -> &Properties {
        self.memory.properties()
    }

    fn allocate(&self, bytes: usize) -> Result<Arc<dyn Memory>, BackendError> {
        self.memory.allocate(bytes)
    }

    fn pin(&self, bytes: usize) -> Result<Arc<dyn Pinned>, BackendError> {
        self.memory.pin(bytes)
    }

    fn load(&self, _: ImageSource<'_>, _: Option<usize>) -> Result<Arc<dyn Module>, BackendError> {
        Ok(Arc::new(self.program.clone()))
    }

    fn queue(&self, _: Arc<dyn Fn() + Send + Sync>) -> Result<Box<dyn Queue>, BackendError> {
        let (operations, queued) = mpsc::channel::<Operation>();
        let completed = Arc::new(AtomicU64::new(0));
        let reached = completed.clone();
        std::thread::spawn(move || {
            for operation in queued {
                match operation {
                    Operation::Run(run) => run(),
                    Operation::Signal(value) => reached.store(value, Ordering::Release),
                }
            }
        });
        Ok(Box::new(FunctionQueue { operations, completed }))
    }

    unsafe fn write_now(&self, to: DeviceAddress, bytes: &[u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.memory.write_now(to, bytes) }
    }

    unsafe fn read_now(&self, from: DeviceAddress, bytes: &mut [u8]) -> Result<(), BackendError> {
        // SAFETY: by the caller's promise.
        unsafe { self.memory.read_now(from, bytes) }
    }

    fn allocate_for_kernels(&self, bytes: u64, align: u64) -> Option<KernelMemory> {
        self.memory.allocate_for_kernels(bytes, align)
    }
}

// SAFETY: variables are memory that the program keeps.
unsafe impl Module for Program {
    fn kernel(&self, symbol: &str) -> Result<Option<Arc<dyn Kernel>>, BackendError> {
        let kernel = |body: &Body| {
            let kernel = Function { body: body.clone(), calls: self.calls.clone(), ended: Arc::default() };
            Arc::new(kernel) as Arc<dyn Kernel>
        };
        Ok(self.kernels.get(symbol).map(kernel))
    }

    fn variable(&self, symbol: &str) -> Result<Option<Variable>, BackendError> {
        let variable =
            |memory: &HostMemory| Variable { address: Memory::address(memory), bytes: Memory::len(memory) };
        Ok(self.variables.get(symbol).map(variable))
    }
}

struct Function {
    body: Body,
    calls: Calls,
    ended: Arc<OnceLock<DispatchOutcome>>,
}

// SAFETY: the function is a part of the test.
unsafe impl Kernel for Function {
    fn limits(&self) -> KernelLimits {
        KernelLimits {
            registers: Some(1),
            stack_bytes: 2,
            workgroup_bytes: 3,
            max_lanes: 1024,
            max_dynamic_workgroup_bytes: 0,
        }
    }
}

struct Started(Arc<OnceLock<DispatchOutcome>>);

impl Running for Started {
    fn cancel(&self) {}

    fn outcome(&self) -> Option<DispatchOutcome> {
        self.0.get().cloned()
    }
}

enum Operation {
    Run(Box<dyn FnOnce() + Send>),
    Signal(u64),
}

struct FunctionQueue {
    operations: Sender<Operation>,
    completed: Arc<AtomicU64>,
}

// SAFETY: one thread does one operation after the other, and stores what it has reached after what it did.
unsafe impl Queue for FunctionQueue {
    unsafe fn dispatch(&self, dispatch: &Dispatch<'_>) -> Result<Option<Arc<dyn Running>>, BackendError> {
        let kernel: &dyn std::any::Any = &**dispatch.kernel;
        let Function { body, calls, ended } = kernel.downcast_ref().expect("the test's own");
        let (body, calls, ended) = (body.clone(), calls.clone(), ended.clone());
        let word = |bytes: &&[u8]| u64::from_le_bytes((*bytes).try_into().unwrap());
        let arguments: Vec<u64> = dispatch.parameters.iter().map(word).collect();
        let lanes = if dispatch.name == "_start" { dispatch.lanes[0] } else { 1 };
        let told = ended.clone();
        let run = move || {
            let failure = (0..lanes)
                .try_for_each(|_| body(&calls, &arguments))
                .err()
                .map(|reason| DispatchFailure::Fault(DeviceFault { kind: DeviceFaultKind::Device, reason }));
            let _ = ended.set(DispatchOutcome { failure, ..Default::default() });
        };
        self.operations.send(Operation::Run(Box::new(run))).unwrap();
        Ok(Some(Arc::new(Started(told))))
    }

    unsafe fn write(&self, _: DeviceAddress, _: *const u8, _: usize) -> Result<(), BackendError> {
        unimplemented!("programs copy in no queue's order")
    }

    unsafe fn read(&self, _: *mut u8, _: DeviceAddress, _: usize) -> Result<(), BackendError> {
        unimplemented!("programs copy in no queue's order")
    }

    unsafe fn copy(&self, _: DeviceAddress, _: DeviceAddress, _: usize) -> Result<(), BackendError> {
        unimplemented!("programs copy in no queue's order")
    }

    unsafe fn fill(&self, _: DeviceAddress, _: &[u8], _: usize) -> Result<(), BackendError> {
        unimplemented!("programs copy in no queue's order")
    }

    fn signal(&self, value: u64) -> Result<(), BackendError> {
        self.operations.send(Operation::Signal(value)).unwrap();
        Ok(())
    }

    fn completed(&self) -> u64 {
        self.completed.load(Ordering::Acquire)
    }

    fn calls_progress(&self) -> bool {
        false
    }

    fn check(&self) -> Result<(), BackendError> {
        Ok(())
    }

    fn mark(&self) -> Result<Arc<dyn Mark>, BackendError> {
        Err(BackendError::Refused("nobody measures this".into()))
    }
}

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
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

/// Memory with these bytes.
fn holding(bytes: &[u8]) -> HostMemory {
    let memory = HostMemory::new(bytes.len()).unwrap();
    // SAFETY: the memory is new, and as long.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), memory.host_address().as_ptr(), bytes.len()) };
    memory
}

/// A program with these kernels on a new device, and what it prints.
fn program(
    version: Version,
    variables: &[(&str, Vec<u8>)],
    kernels: [(&'static str, Body); 3],
) -> (LlvmProgram, Captured) {
    let printed = Captured::default();
    let builtins = Builtins::builder().stdin(io::empty()).stdout(printed.clone());
    (program_with(builtins, version, variables, kernels, None), printed)
}

/// A program with these kernels on a new device with these services.
fn program_with(
    builtins: BuiltinsBuilder,
    version: Version,
    variables: &[(&str, Vec<u8>)],
    kernels: [(&'static str, Body); 3],
    tracer: Option<&Tracer>,
) -> LlvmProgram {
    let builtins = builtins.build().unwrap();
    let mut variables: HashMap<String, HostMemory> =
        variables.iter().map(|(name, value)| (name.to_string(), holding(value))).collect();
    let object = holding(&vec![0; version.object_bytes()]);
    let calls = Calls { object: Memory::address(&object).get(), version };
    if version.symbol_is_pointer() {
        variables.insert(version.symbol().into(), holding(&calls.object.to_le_bytes()));
        variables.insert("where it points".into(), object);
    } else {
        variables.insert(version.symbol().into(), object);
    }
    let program = Program { calls, variables: Arc::new(variables), kernels: kernels.into() };
    let few_waves = hostcall_softdev::Config { resident_waves: 64, ..Default::default() };
    let memory = Cpu::open(few_waves).unwrap();
    let backend = Arc::new(Functions { memory, program: program.clone() });
    let mut device = Device::builder("elsewhere").backend(backend).slots(1).builtins(builtins);
    if let Some(tracer) = tracer {
        device = device.trace(tracer);
    }
    let device = device.open().unwrap();
    let object = |kind| move |n: &u32| format!("__{kind}_array_object_f_{n}");
    let symbols = image::LlvmProgram {
        version: Some(version),
        constructors: [1, 2].iter().map(object("init")).collect(),
        destructors: [3].iter().map(object("fini")).collect(),
        unknown_client: None,
    };
    LlvmProgram::new(device, symbols, Arc::new(program)).unwrap()
}

fn kernel(run: impl Fn(&Calls, &[u64]) + Send + Sync + 'static) -> Body {
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
        assert_eq!(String::from_utf8_lossy(&printed.0.lock()), expected);
    }
}

#[test]
fn calls_are_traced_with_their_kernels() {
    let tracer = Tracer::builder().start().unwrap();
    let begin = kernel(|calls, _| calls.print("begin\n"));
    let main = kernel(|calls, _| _ = calls.allocate(100));
    let end = kernel(|calls, _| calls.end(EXIT, 0));
    let kernels = [("_begin", begin), ("_start", main), ("_end", end)];
    let builtins = Builtins::builder().stdin(io::empty()).stdout(io::sink());
    let program = program_with(builtins, Version::Llvm20, &lists(), kernels, Some(&tracer));
    assert_eq!(program.run(LlvmRun::new(Grid::new(1, 1))).unwrap(), End::Exited(0));
    let summary = tracer.finish(Duration::from_secs(60));
    let mut calls: Vec<_> = summary
        .latencies
        .methods()
        .map(|(method, of)| {
            let kernel = of.slowest()[0].kernel.clone().unwrap_or_default();
            (
                summary.names.method(method).unwrap().name.to_string(),
                kernel.to_string(),
                of.calls(),
                of.failed(),
            )
        })
        .collect();
    calls.sort();
    let one = |name: &str, kernel: &str| (name.to_owned(), kernel.to_owned(), 1, 0);
    let expected =
        [one("llvm::exit", "_end"), one("llvm::malloc", "_start"), one("llvm::write_stdout", "_begin")];
    assert_eq!(calls, expected);
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
        let memory = memory.iter().find(|memory| memory.address().get() == word(start)).unwrap();
        let mut bytes = vec![0; (word(end) - word(start)) as usize];
        // SAFETY: the list lies there, and no kernel runs.
        unsafe { program.code.core.backend.read_now(memory.address(), &mut bytes) }.unwrap();
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

/// The process's memory, with the allocations that were not freed.
#[derive(Clone, Default)]
struct Counted(Arc<()>);

impl Counted {
    /// How many allocations live.
    fn live(&self) -> usize {
        // The heap has a reference as well as whoever asks.
        Arc::strong_count(&self.0) - 2
    }
}

// SAFETY: the memory is the process's.
unsafe impl HeapMemory for Counted {
    fn allocate(&self, bytes: u64, align: u64) -> Option<Block> {
        let Block { address, memory } = ProcessMemory.allocate(bytes, align)?;
        Some(Block { address, memory: Box::new((memory, self.0.clone())) })
    }
}

/// Waits until it is so, and fails when it takes longer than anything here does.
fn wait_until(holds: impl Fn() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
    }
}

#[test]
fn nothing_of_a_program_is_left_on_the_heap() {
    let allocates = || {
        kernel(|calls, _| {
            assert!((0..3).all(|_| calls.allocate(100) != 0));
        })
    };
    let kernels = [("_begin", allocates()), ("_start", allocates()), ("_end", allocates())];
    let heap = Counted::default();
    let builtins = Builtins::builder().stdin(io::empty()).heap(heap.clone(), 1 << 20);
    let program = program_with(builtins, Version::Llvm20, &lists(), kernels, None);
    let device = program.device.clone();
    assert_eq!(program.run(LlvmRun::new(Grid::new(1, 2))).unwrap(), End::Exited(0));
    assert_eq!(heap.live(), 0);
    drop(device);
}

#[test]
fn memory_of_a_program_lives_until_its_kernels_have_ended() {
    let (go_on, told) = mpsc::channel::<()>();
    let told = Mutex::new(told);
    let (allocated, address) = mpsc::channel();
    let main = kernel(move |calls, _| {
        allocated.send(calls.allocate(8)).unwrap();
        calls.end(EXIT, 9);
        // Other lanes of a GPU go on.
        let _ = told.lock().recv();
    });
    let begun = Arc::new(AtomicU64::new(0));
    let counts = begun.clone();
    let end = kernel(move |_, _| _ = counts.fetch_add(1, Ordering::SeqCst));
    let kernels = [("_begin", kernel(|_, _| ())), ("_start", main), ("_end", end)];
    let heap = Counted::default();
    let builtins = Builtins::builder().stdin(io::empty()).heap(heap.clone(), 1 << 20);
    let program = program_with(builtins, Version::Llvm20, &lists(), kernels, None);
    let device = program.device.clone();
    assert_eq!(program.run(LlvmRun::new(Grid::new(1, 1))).unwrap(), End::Exited(9));
    assert_ne!(address.recv().unwrap(), 0);
    assert_eq!(heap.live(), 1);
    go_on.send(()).unwrap();
    wait_until(|| heap.live() == 0);
    // Nobody would answer its calls.
    assert_eq!(begun.load(Ordering::SeqCst), 0);
    drop(device);
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
fn a_port_that_is_served_no_more_ends_the_run() {
    let main = || {
        kernel(|calls, _| {
            let mut port = calls.open(0x1234);
            port.send(&[]);
            // As a lane that waits for the answer.
            std::thread::sleep(Duration::from_secs(3600));
        })
    };
    let nothing = || kernel(|_, _| ());
    let broken = |options: Options| {
        let kernels = [("_begin", nothing()), ("_start", main()), ("_end", nothing())];
        let (program, _) = program(Version::Llvm20, &lists(), kernels);
        program.run(LlvmRun::new(Grid::new(1, 1)).server(options)).unwrap_err()
    };
    let is_told = |error: &Error, opcode| {
        let kind = FaultKind::Opcode(opcode);
        matches!(error, Error::Launch { kernel, failure: LaunchFailure::Port(fault), .. }
            if kernel == "_start" && fault.kind == kind)
    };
    let error = broken(Options::default());
    assert!(is_told(&error, 0x1234), "{error}");
    // Whoever asked for faults is told too, and may panic.
    let told = Arc::new(AtomicU64::new(0));
    let counts = told.clone();
    let error = broken(Options::default().on_fault(move |_| {
        counts.fetch_add(1, Ordering::SeqCst);
        panic!("as a test");
    }));
    assert!(is_told(&error, 0x1234), "{error}");
    assert_eq!(told.load(Ordering::SeqCst), 1);
}

#[test]
fn failures_are_told() {
    let fault: Body = Arc::new(|_, _| Err("no such memory".into()));
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
        device.load_llvm(&path).err().expect("no program").to_string()
    };
    assert!(refused(b"text").contains("no program that was linked with LLVM's GPU libc"));
    let ptx = ".version 7.8\n.target sm_90\n.visible .entry _begin(\n.visible .entry _start(\n";
    assert!(refused(ptx.as_bytes()).contains("no program that was linked with LLVM's GPU libc"));
    let ptx = format!("{ptx}.visible .entry _end(\n");
    assert!(refused(ptx.as_bytes()).contains("built for NVIDIA GPUs from sm_90 on"));
}
