//! Many ranks in one process, each with a wait table of its own: what each has and says does not depend on how many there are.
#![allow(unsafe_code, reason = "plays the waves' side of wait tables")]

use super::collect::wait;
use super::groups::{groups, told};
use super::state::{DeviceState, Identity, Process};
use super::{DeviceMetrics, Why, explain};
use crate::device::core::Holders;
use crate::device::wait_table::WaitTable;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::layout::Layout;
use hostcall_abi::waits::{Entry, Head, Kind, name_words};
use hostcall_channel::SharedMemory;
use hostcall_channel::waits::{ToldWait, Waits};
use hostcall_server::{LaunchRecord, Server};
use hostcall_softdev::{Config, Cpu};
use std::sync::Arc;

struct Job {
    backend: Cpu,
    server: Server,
    launch: LaunchId,
    layout: Layout,
}

/// A rank that waits.
struct Rank {
    table: WaitTable,
    process: Process,
    message_bytes: usize,
}

impl Job {
    fn new() -> Self {
        let backend = Cpu::open(Config::default()).unwrap();
        let layout = Layout::small(64, 32, 128, 2048).check().unwrap();
        let server = Server::builder(Arc::new(SharedMemory::allocate(layout))).start().unwrap();
        let record =
            LaunchRecord { kernel: "exchange".into(), workgroups: [1; 3], ..LaunchRecord::default() };
        let launch = server.begin(record).unwrap();
        Self { backend, server, launch, layout }
    }

    /// The rank `rank`, of which a lane waits for each of these peers' signals of this number.
    fn rank(&self, rank: u32, peers: impl Iterator<Item = u32>, sequence: u64) -> Rank {
        let table = WaitTable::new(&self.backend, self.layout).unwrap();
        // SAFETY: WAIT-ENTRY: the table is there as long as `waits` is used.
        let waits = unsafe { Waits::from_address(table.address().get()) };
        let place = self.launch.to_bits().into();
        for (hint, peer) in peers.enumerate() {
            let head = Head { peer, lanes: 1, wave: 0, kind: Kind::Flag as u8, lap: 0 };
            let entry = Entry { place, sequence, name: name_words("signal"), ..Entry::default() };
            let told = waits.begin(self.launch, hint as u32, head, &entry, ToldWait::NONE);
            waits.still(self.launch, told, 7);
        }
        let all = table.waiting(&self.server, &Holders::default());
        let waiting_calls = all.len() as u64;
        let (groups, ungrouped) = groups(&all);
        let (waiting, kinds_untold) = told(all);
        let device = DeviceState {
            metrics: DeviceMetrics { launches_running: 1, waiting_calls, ..DeviceMetrics::default() },
            waiting: waiting.into_iter().map(wait).collect(),
            kinds_untold,
            groups,
            ungrouped,
            waits_untold: table.untold(),
            may_wait_untold: table.may_wait_untold(),
            ..DeviceState::default()
        };
        let who = Identity { pid: 1 + rank, rank: Some(rank.into()), ..Identity::default() };
        let process = Process { who, devices: vec![device], ..Process::default() };
        let message_bytes = serde_json::to_string(&timeless(&process)).unwrap().len();
        Rank { table, process, message_bytes }
    }

    /// So many ranks of an all-to-all, of which rank 0 has left out its signal 5 to rank 2.
    fn ranks(&self, count: u32) -> Vec<Rank> {
        let of = |rank| match rank {
            2 => self.rank(rank, [0].into_iter(), 5),
            _ => self.rank(rank, [2].into_iter(), 6),
        };
        (0..count).map(of).collect()
    }
}

/// The process without its times, which take more or fewer digits.
fn timeless(process: &Process) -> Process {
    let mut process = process.clone();
    for device in &mut process.devices {
        device.groups.iter_mut().for_each(|group| group.longest_s = 0.0);
        for wait in &mut device.waiting {
            wait.waited_s = 0.0;
            wait.text.retain(|letter| !letter.is_ascii_digit());
            wait.polled.iter_mut().for_each(|polled| polled.said_ns = 0);
        }
    }
    process
}

#[test]
fn memory_and_messages_do_not_grow_with_the_ranks() {
    let job = Job::new();
    let mut sizes = Vec::new();
    for count in [4, 100, 1000] {
        let ranks = job.ranks(count);
        sizes.push((
            ranks.iter().map(|rank| rank.table.bytes()).max(),
            ranks.iter().map(|rank| rank.message_bytes).max(),
        ));
        let processes: Vec<Process> = ranks.into_iter().map(|rank| rank.process).collect();
        let mut before = processes.clone();
        let waits = before.iter_mut().flat_map(|process| &mut process.devices[0].waiting);
        waits.for_each(|wait| wait.polled.as_mut().expect("a flag").said_ns = 0);
        let explained = explain(&before, &processes, 0);
        let [culprit] = &explained.culprits[..] else { panic!("{explained:?}") };
        assert_eq!((culprit.of.rank, culprit.waits.rank, culprit.sequence), (Some(0), Some(2), 5));
        assert_eq!(culprit.why, Why::Past { waits_for: 6, of: Some(2) });
        assert_eq!((explained.held_up, explained.circles.len()), (u64::from(count) - 1, 0));
    }
    // Of ranks and numbers of processes.
    let digits = 32;
    for (memory, message) in &sizes {
        assert_eq!(*memory, sizes[0].0);
        assert!(message.unwrap().abs_diff(sizes[0].1.unwrap()) <= digits, "{sizes:?}");
    }
    println!(
        "each of 1000 ranks: a table of {} bytes, a message of {}",
        sizes[2].0.unwrap(),
        sizes[2].1.unwrap()
    );
}

/// A rank whose lanes wait for more others than there is room for tells as many as there is, and how many it does not.
#[test]
fn who_waits_for_all_others_tells_some() {
    let job = Job::new();
    let of = |count: u32| job.rank(0, 1..count, 9);
    let [few, many, more] = [100, 1000, 4000].map(of);
    assert_eq!(few.process.devices[0].waiting.len(), 99);
    assert!(!few.process.devices[0].may_wait_untold);
    for (rank, count) in [(&many, 999), (&more, 3999)] {
        let device = &rank.process.devices[0];
        assert_eq!(device.may_wait_untold, device.waits_untold > 0);
        assert_eq!(device.metrics.waiting_calls + device.waits_untold, count);
        assert_eq!((device.waiting.len(), device.groups.len()), (256, 256));
        assert_eq!(rank.table.bytes(), few.table.bytes());
    }
    assert!(more.message_bytes.abs_diff(many.message_bytes) < 8);
}

/// A launch's wave gives its entry back and another launch's takes it, while the host frees what launches have left that are over.
#[test]
fn an_entry_that_is_taken_meanwhile_is_not_freed() {
    let job = Job::new();
    let table = WaitTable::new(&job.backend, job.layout).unwrap();
    // SAFETY: WAIT-ENTRY: the table is there as long as `waits` is used.
    let waits = unsafe { Waits::from_address(table.address().get()) };
    let (over, left, later) = (LaunchId::new(1, 1), LaunchId::new(2, 1), LaunchId::new(3, 1));
    let begin = |launch, hint| {
        let head = Head { peer: 1, lanes: 1, wave: 0, kind: Kind::Flag as u8, lap: 0 };
        waits.begin(launch, hint, head, &Entry::default(), ToldWait::NONE)
    };
    let (first, abandoned) = (begin(over, 5), begin(left, 6));
    let taken = std::cell::Cell::new(ToldWait::NONE);
    table.free(&job.backend, |launch| {
        if launch == over {
            waits.end(over, first);
            taken.set(begin(later, 5));
        }
        launch != later
    });
    assert!(waits.is_told(later, taken.get()), "the entry is the later launch's");
    assert!(!waits.is_told(left, abandoned), "what was left is free again");
    assert!(waits.is_told(later, begin(later, 6)));
}
