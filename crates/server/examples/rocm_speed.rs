//! What a call over a hostcall buffer takes between two threads, by layout, packets and lanes.
//!
//! ```sh
//! cargo run --release -p hostcall-server --example rocm_speed
//! ```

use hostcall_channel::rocm::client;
use hostcall_server::rocm::{Consumer, Layout, Mode, Options, PacketMemory, Services, Version};
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

/// Calls that are timed at a time.
const CALLS: u32 = 20_000;

fn main() -> Result<(), Box<dyn Error>> {
    let services = Services::new();
    services.register(700, "increment", Mode::Inline, |packet| {
        packet.lanes().for_each(|(_, words)| words[0] += 1);
    })?;
    println!("layout  packets  lanes  ns a call");
    for version in Version::ALL {
        for packets in [16, 1024, 65_536] {
            let buffer = Arc::new(PacketMemory::allocate(Layout::new(version, packets)?));
            let consumer = Consumer::new(&services, Options::default())?;
            consumer.register(&buffer)?;
            consumer.launch()?;
            for mask in [1, u64::MAX] {
                let mut lanes = [[0; 8]; 64];
                let mut best = f64::INFINITY;
                for _ in 0..5 {
                    let begun = Instant::now();
                    for _ in 0..CALLS {
                        client::call(buffer.packets(), 700, mask, &mut lanes, std::hint::spin_loop);
                    }
                    best = best.min(begun.elapsed().as_nanos() as f64 / f64::from(CALLS));
                }
                assert_eq!(lanes[0][0], u64::from(CALLS) * 5);
                println!("{version:?}  {packets:7}  {:5}  {best:9.0}", mask.count_ones());
            }
        }
    }
    Ok(())
}
