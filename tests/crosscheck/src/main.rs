//! Runs one script of a client with one server: `hostcall-crosscheck SERVER SCRIPT LANES RECORD`, where SERVER is
//! `llvm` or a version of hostcall's, `19`, `20` or `doorbell`. What lanes noted goes to the file RECORD; the
//! script's files are in the current folder.

use hostcall::device::RawArg;
use hostcall::hostcall_device;
use hostcall::hostcall_device::llvm::Client;
use hostcall::llvm::{End, Layout, LlvmServer, Options, PortMemory, Version};
use hostcall::services::Builtins;
use hostcall_crosscheck::{LlvmRpcServer, Record, SCRIPTS, run};
use std::fmt::Write;
use std::sync::Arc;

/// Ports that each server has.
const PORTS: u32 = 20;

/// A client of ports in this process.
fn in_process(memory: &Arc<PortMemory>, version: Version) -> RawArg<Client<'static>> {
    let object = memory.client_object();
    let words = object.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    let object: Vec<u64> = words.collect();
    let raw = hostcall_device::llvm::raw(object.as_ptr().expose_provenance() as u64, version);
    // SAFETY: the object is one of the version of the ports' layout; the argument keeps it and the ports.
    unsafe { RawArg::new(raw, Arc::new((object, memory.clone()))) }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [server, script, lanes, record] = &arguments[..] else {
        panic!("usage: hostcall-crosscheck SERVER SCRIPT LANES RECORD");
    };
    let script = SCRIPTS.iter().find(|known| known.name == script).expect("there is such a script");
    let lanes: u32 = lanes.parse().expect("LANES is a number");
    let version = match server.as_str() {
        "llvm" => {
            let server = LlvmRpcServer::start(PORTS, lanes);
            let (client, function) = (server.client(), LlvmRpcServer::host_function());
            // SAFETY: the server is LLVM 19's, for waves of so many lanes, and the function is its own.
            let records = unsafe { run(script, lanes, Version::Llvm19, &client, function) };
            return write_records(record, &records);
        }
        "19" => Version::Llvm19,
        "20" => Version::Llvm20,
        "doorbell" => Version::Doorbell,
        _ => panic!("no server is called {server}"),
    };
    let layout = Layout::new(version, PORTS, lanes).expect("the version has such a layout");
    let memory = Arc::new(PortMemory::allocate(layout));
    let builtins = Builtins::builder().dir(".").build().expect("the current folder opens");
    let options = Options::default().on_end(|end| match end {
        End::Exited(code) => std::process::exit(code),
        End::Aborted => std::process::abort(),
    });
    let server = LlvmServer::start(memory.clone(), &builtins, options).expect("the server starts");
    let function = server.register(|argument| {
        let (length, bytes) = argument.split_first_chunk().expect("there is a length");
        hostcall_crosscheck::write_argument(&bytes[..u64::from_le_bytes(*length) as usize]);
        0
    });
    let client = in_process(&memory, version);
    // SAFETY: the ports' layout is the version's, for waves of so many lanes; the server calls no address,
    // but looks the function up.
    write_records(record, &unsafe { run(script, lanes, version, &client, function) });
    drop(server);
}

fn write_records(path: &str, records: &[Record]) {
    let mut text = String::new();
    for (lane, record) in records.iter().enumerate() {
        writeln!(text, "lane {lane}:").expect("strings take all");
        for word in record {
            writeln!(text, "{word:#x}").expect("strings take all");
        }
    }
    std::fs::write(path, text).expect("the record can be written");
}
