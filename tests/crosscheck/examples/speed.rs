//! How long calls of one client thread take with LLVM's server and with hostcall's: `cargo run --release -p
//! hostcall-crosscheck --example speed`. Waves of one lane; the server has a thread of its own.

use hostcall::llvm::{Layout, LlvmServer, Options, PortMemory, Version};
use hostcall::services::Builtins;
use hostcall_channel::llvm::client::{Alone, Client};
use hostcall_crosscheck::LlvmRpcServer;
use std::sync::Arc;
use std::time::Instant;

/// Calls that are timed together, and how often that is done. The shortest time counts: others had the machine too.
const CALLS: u64 = 10_000;
const ROUNDS: u32 = 50;

/// Nanoseconds a call, with `flight` ports at once.
fn measure(client: Client<'_>, flight: usize) -> f64 {
    let run = |calls: u64| {
        let start = Instant::now();
        let mut answer = [0];
        let mut done = 0;
        while done < calls {
            let mut ports = Vec::with_capacity(flight);
            for i in 0..flight {
                let mut port = client.open(Alone(std::hint::spin_loop), 0x8001, i as u32);
                port.send(&[done]);
                ports.push(port);
            }
            for mut port in ports {
                port.receive(&mut answer);
                assert_eq!(answer[0], done + 1);
                port.close();
            }
            done += flight as u64;
        }
        start.elapsed().as_nanos() as f64 / done as f64
    };
    (0..ROUNDS).map(|_| run(CALLS)).fold(f64::INFINITY, f64::min)
}

fn main() {
    println!("ports  at once   LLVM's ns/call   hostcall's ns/call");
    for (ports, flight) in [(1, 1), (64, 1), (64, 32), (4096, 1), (4096, 1056)] {
        let llvm = {
            let server = LlvmRpcServer::start(ports, 1);
            // SAFETY: the server's object is for waves of one lane and lives longer than the client.
            measure(unsafe { Client::from_address(server.client().raw() & !7, Version::Llvm19, 1) }, flight)
        };
        let memory =
            Arc::new(PortMemory::allocate(Layout::new(Version::Llvm19, ports, 1).expect("small enough")));
        let builtins = Builtins::builder().build().expect("nothing to open");
        let server = LlvmServer::start(memory.clone(), &builtins, Options::default()).expect("threads start");
        let object = memory.client_object();
        let words = object.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let object: Vec<u64> = words.collect();
        // SAFETY: as above.
        let client = unsafe { Client::from_address(object.as_ptr().addr() as u64, Version::Llvm19, 1) };
        let ours = measure(client, flight);
        println!("{ports:5}  {flight:7}   {llvm:14.0}   {ours:18.0}");
        drop(server);
    }
}
