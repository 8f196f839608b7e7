//! ROCm's services by LLVM's protocol, to which ROCm's runtime is moving (rocm-systems#4720): the same words in a port's buffers
//! as in a hostcall buffer's packets, each service by an opcode of its own.

use super::buffer::Lanes;
use super::messages::Messages;
use super::options::FaultKind;
use super::services::{From, Services, handle_lanes, number};
use crate::engine::budget::Budget;
use hostcall_channel::rocm::LANES;
use hostcall_locks::Mutex;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// The opcodes.
const FIRST: u32 = (b'r' as u32) << 24;
const FUNCTION: u32 = FIRST;
const DEVICE_MEMORY: u32 = FIRST + 1;
const SANITIZER: u32 = FIRST + 2;
const PRINTF: u32 = FIRST + 3;

/// In the sanitizer's seventh word: the access was a store. In a hostcall buffer that word says whether it was a load.
const IS_STORE: u64 = 1;

/// The handlers, with the messages that waves have begun over the ports of one memory.
pub(crate) struct RpcServices {
    services: Services,
    messages: Mutex<Messages>,
    /// The ports' address on the device.
    address: u64,
}

impl RpcServices {
    pub const OPCODES: RangeInclusive<u32> = FUNCTION..=PRINTF;

    pub fn new(services: &Services, budget: &Arc<Budget>, address: u64) -> Self {
        Self { services: services.clone(), messages: Mutex::new(Messages::new(budget)), address }
    }

    /// Answers the lanes of a wave in their words, on a thread that may wait; those for which something is wrong get zeros. Returns
    /// what that was.
    pub fn answer(&self, opcode: u32, mask: u64, lanes: &mut Lanes) -> Vec<FaultKind> {
        let service = match opcode {
            FUNCTION => number::FUNCTION_CALL,
            DEVICE_MEMORY => number::DEVICE_MEMORY,
            SANITIZER => number::SANITIZER,
            _ => number::PRINTF,
        };
        if opcode == SANITIZER {
            for words in lanes.iter_mut() {
                words[6] = u64::from(words[6] & IS_STORE == 0);
            }
        }
        let Some((entry, _)) = self.services.find(service) else {
            *lanes = [Default::default(); LANES as usize];
            return vec![FaultKind::NoSuchService(service)];
        };
        let (mut left, mut faults) = (0, Vec::new());
        loop {
            let from = From { messages: &self.messages, address: self.address };
            faults.extend(handle_lanes(&entry, service, mask, lanes, &mut left, from, true));
            if left == 0 {
                return faults;
            }
        }
    }
}
