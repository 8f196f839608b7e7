//! What a device knows of calls by LLVM's protocol, of programs and of code objects: how many they are, and which launches learn
//! that one could not go on.

use hostcall_abi::launch::LaunchId;
use hostcall_locks::Mutex;
use hostcall_server::llvm::{Counted, Fault, LlvmServer, Statistics};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub struct LlvmCalls {
    /// Launches of code objects with ports, until they are settled, by the ports' address on the device; and what was wrong first
    /// with a call. Calls do not say whose they are: it is told of all launches with these ports.
    launches: Mutex<HashMap<LaunchId, (u64, Option<Fault>)>>,
    servers: Mutex<Servers>,
}

/// What servers have counted.
#[derive(Default)]
struct Servers {
    live: Vec<Arc<Counted>>,
    /// Those that have ended.
    ended: Statistics,
}

impl LlvmCalls {
    /// Notes a launch whose kernel may call by the ports at this address.
    pub fn began(&self, launch: LaunchId, ports: u64) {
        self.launches.lock().insert(launch, (ports, None));
    }

    /// Notes a fault of the ports at this address, of which their launches tell once they are over.
    pub fn fault(&self, ports: u64, fault: &Fault) {
        let mut launches = self.launches.lock();
        for (_, first) in launches.values_mut().filter(|(of, _)| *of == ports) {
            first.get_or_insert_with(|| fault.clone());
        }
    }

    /// Returns the first fault of a launch's ports, once the launch is over.
    pub fn take(&self, launch: LaunchId) -> Option<Fault> {
        self.launches.lock().remove(&launch)?.1
    }

    /// Counts a server's calls as the device's.
    pub fn count(&self, server: &LlvmServer) {
        let mut servers = self.servers.lock();
        servers.forget_ended();
        servers.live.push(server.counted().clone());
    }

    /// Returns what all servers have counted.
    pub fn statistics(&self) -> Statistics {
        let mut servers = self.servers.lock();
        servers.forget_ended();
        servers.live.iter().fold(servers.ended, |sum, counted| sum + counted.statistics())
    }
}

impl Servers {
    /// Keeps the numbers alone of servers that nobody has any more.
    fn forget_ended(&mut self) {
        self.live.retain(|counted| {
            let is_live = Arc::strong_count(counted) > 1;
            if !is_live {
                self.ended = self.ended + counted.statistics();
            }
            is_live
        });
    }
}
