//! The server of LLVM's protocol, with kernels on the software device as clients.

use hostcall::hostcall_device::llvm::Client;
use hostcall::hostcall_device::{Global, Lane, kernel};
use hostcall::llvm::{Layout, LlvmClient, LlvmServer, Options, PortMemory, Version};
use hostcall::services::Builtins;
use hostcall::{Device, Grid, LaunchKernel};
use std::sync::Arc;

#[kernel]
fn increments(lane: &Lane, client: Client, sums: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let mut sum = 0;
    for round in 0..50 {
        if !(id + round).is_multiple_of(3) {
            let mut port = client.open(0x6300_8001);
            port.send(&[id << 32 | round]);
            let mut answer = [0];
            port.receive(&mut answer);
            port.close();
            assert_eq!(answer[0], (id << 32 | round) + 1);
            sum += 1;
        }
    }
    sums[id as usize].set(sum);
}

#[test]
fn diverged_waves_get_their_own_answers() {
    for (version, lanes, ports) in [(Version::Llvm20, 32, 7), (Version::Doorbell, 64, 16384)] {
        let device = Device::builder("cpu").wave_size(lanes).open().unwrap();
        let memory = Arc::new(PortMemory::allocate(Layout::new(version, ports, lanes).unwrap()));
        let builtins = Builtins::builder().build().unwrap();
        let server = LlvmServer::start(memory.clone(), &builtins, Options::default().threads(2)).unwrap();
        let client = LlvmClient::new(&device, memory).unwrap();
        let sums = device.alloc_zeroed::<u64>(300).unwrap();
        let stream = device.stream().unwrap();
        increments.launch(&stream, Grid::new(3, 100), (&client, &sums)).unwrap();
        stream.synchronize().unwrap();
        assert!(sums.read().unwrap().iter().all(|sum| (33..=34).contains(sum)));
        drop(server);
    }
}
