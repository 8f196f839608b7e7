//! A collector with many machines of one rank each: what each takes, and that none is refused.
//!
//! The machines are links of their own to a collector that is a process of its own. With `--nocapture` it
//! prints what it measured; `HOSTCALL_COLLECT_RANKS` is how many there are. A thousand and one want an
//! optimised build: `HOSTCALL_COLLECT_RANKS=1001 cargo test --release -p hostcall-collect --test thousand --
//! --nocapture`.

mod common;

use common::{Program, address, job};
use hostcall::watch::{DeviceState, Polled, Process, Wait, Why, explain};
use hostcall_collect::local::Seen;
use hostcall_collect::top::{self, Counted, Said};
use hostcall_collect::wire::{Item, Message, VERSION, What, Who, rank_name};
use hostcall_collect::{connecting, raise_limits, waits};
use hostcall_remote::{Member, Session};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A machine with a rank.
struct Machine {
    name: String,
    who: Who,
    session: Session,
    _kept: [Member; 3],
}

/// What a rank of an all-to-all says, of which rank 0 has left out its signal 5 to rank 2.
fn said(rank: u32, looks: u64) -> Process {
    let mut wait = Wait::default();
    (wait.launch, wait.kernel, wait.service) = ("3.1".into(), "exchange".into(), "signal".into());
    (wait.lanes, wait.waited_s) = (32, 1.5);
    wait.text = "wave 0 has waited for the flag `signal` for 1.5 s".into();
    let (peer, sequence) = if rank == 2 { (0, 5) } else { (2, 6) };
    let mut polled = Polled::default();
    (polled.peer, polled.sequence, polled.said_ns) = (Some(peer), sequence, 1000 + looks);
    wait.polled = Some(polled);
    let mut device = DeviceState::default();
    device.metrics.launches_running = 1;
    device.metrics.waiting_calls = 1;
    device.waiting = vec![wait];
    let mut process = Process::default();
    (process.who.pid, process.who.rank, process.who.host) =
        (100 + rank, Some(rank.into()), format!("node-{rank}"));
    process.devices = vec![device];
    process
}

/// What an agent says of its rank to who shows all.
fn top_answers(agent: &str, who: &Who) -> [Vec<u8>; 2] {
    let ranks = vec![Seen { who: who.clone(), silent_s: None }];
    let counted = Counted { at_s: 1.5, calls: u64::from(who.pid), waiting: 32, ..Counted::default() };
    [
        Said::Ranks { version: VERSION, agent: agent.to_owned(), ranks },
        Said::Counted { agent: agent.to_owned(), who: who.clone(), counted },
    ]
    .map(|said| serde_json::to_vec(&said).unwrap())
}

impl Machine {
    fn new(rank: u32, job: &str, address: &str) -> Self {
        let session = connecting(job).connect(address).open().unwrap();
        let name = format!("node-{rank}.1");
        let who = Who {
            host: format!("node-{rank}"),
            pid: 100 + rank,
            rank: Some(rank.into()),
            size: None,
            since_ms: 7,
        };
        let looks = Arc::new(AtomicU64::new(0));
        let (agent, of_rank) = (name.clone(), who.clone());
        let answers = session.answer(&name, move |asked| match asked.what() {
            waits::WHAT => {
                let process = said(rank, looks.fetch_add(1, Ordering::Relaxed));
                asked.answer(serde_json::to_vec(&process).unwrap());
            }
            top::WHAT => top_answers(&agent, &of_rank).into_iter().for_each(|answer| asked.answer(answer)),
            _ => asked.answer(hostcall_collect::clocks::answer()),
        });
        let named = [session.announce(&name).unwrap(), session.announce(&rank_name(&name, &who)).unwrap()];
        let [agent, of_rank] = named;
        Self { name, who, session, _kept: [agent, of_rank, answers.unwrap()] }
    }

    /// Tells a line, which is as many bytes for each.
    fn says(&self, position: u64, text: &str) -> usize {
        let what = What::Text { sink: 0, position, text: text.to_owned() };
        let items = vec![Item { who: self.who.clone(), what }];
        let message = Message { version: VERSION, agent: self.name.clone(), items };
        let bytes = serde_json::to_vec(&message).unwrap();
        let count = bytes.len();
        self.session.tell(&self.name, bytes).unwrap();
        count
    }
}

/// Opens so many machines, some at a time.
fn open(machines: &mut Vec<Machine>, count: u32, job: &str, address: &str) {
    let next = AtomicU32::new(machines.len() as u32);
    let new = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                loop {
                    let rank = next.fetch_add(1, Ordering::Relaxed);
                    if rank >= count {
                        break;
                    }
                    let machine = Machine::new(rank, job, address);
                    new.lock().unwrap().push(machine);
                }
            });
        }
    });
    machines.append(&mut new.into_inner().unwrap());
    machines.sort_by_key(|machine| machine.who.pid);
}

/// Memory of a process, in KiB.
fn memory_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn ranks_take_no_more_however_many_there_are() {
    let count =
        std::env::var("HOSTCALL_COLLECT_RANKS").ok().and_then(|count| count.parse().ok()).unwrap_or(100);
    raise_limits();
    let (job, address) = (job("thousand"), address());
    let collects = Program::start(
        env!("CARGO_BIN_EXE_hostcall-collect").as_ref(),
        &["--job", &job, "--listen", &address],
        &[],
    );
    let viewer = connecting(&job).connect(&*address).open().unwrap();
    let begun = Instant::now();
    let (mut machines, mut sizes, mut kib) = (Vec::<Machine>::new(), Vec::new(), Vec::new());
    for part in [count / 10, count / 2, count] {
        let opened = Instant::now();
        open(&mut machines, part, &job, &address);
        println!("{part} links open after {:.1?}", opened.elapsed());
        // Each is heard once its link is there. No agent waits for that here before it tells something.
        let line = format!("line of part {part}\n");
        common::until(|| {
            let said = collects.said();
            let heard: HashSet<&str> = said.lines().collect();
            let is_heard = |rank: u32| heard.contains(format!("[rank {rank}] {}", line.trim_end()).as_str());
            let missing = machines.iter().filter(|machine| !is_heard(machine.who.pid - 100));
            sizes.extend(missing.map(|machine| machine.says(0, &line)));
            (0..part).all(is_heard).then_some(())
        });
        kib.push((part, memory_kib(collects.pid())));
    }
    println!("{count} links were there after {:.1?}; memory of the collector: {kib:?} KiB", begun.elapsed());
    // Digits of a rank's number, of which a message has four.
    let (first, last) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(last - first <= 4 * 4 + 4, "{first} bytes, then {last}");
    let (few, many) = (kib[1], kib[2]);
    let each = (many.1 - few.1) as f64 / (many.0 - few.0) as f64;
    println!("a rank takes {each:.1} KiB of it, and a line of it a message of {last} bytes");
    // Code that is not optimised has larger futures, of which a link has some.
    assert!(cfg!(debug_assertions) || each <= 64.0, "a rank takes {each:.1} KiB of the collector");
    let look = || {
        let begun = Instant::now();
        let said = waits::look(&viewer, &job).unwrap();
        (begun.elapsed(), said)
    };
    // Where the machine has too much to do, links are given up and made again.
    let mut looks = 0;
    let (before, now) = common::until(|| {
        looks += 1;
        let ((took, before), (_, now)) = (look(), look());
        println!("look {looks}: the waits of {} ranks came in {took:.1?}", before.processes.len());
        (before.processes.len() == count as usize && now.processes.len() == count as usize)
            .then_some((before, now))
    });
    let mut looks = 0;
    common::until(|| {
        looks += 1;
        let begun = Instant::now();
        let top = common::collect(&["--job", &job, "--connect", &address, "--top", "--json", "--for", "0"]);
        top.code();
        let look: serde_json::Value = serde_json::from_str(top.said().lines().next()?).ok()?;
        let ranks = look["ranks"].as_array()?;
        let answer = ranks.iter().filter(|rank| rank["state"] == "answers").count();
        println!(
            "look {looks} of `--top`: {answer} ranks have answered, the whole command {:.1?}",
            begun.elapsed()
        );
        (answer == count as usize).then_some(())
    });
    let bytes: usize =
        top_answers("node-1000.1", &machines[count as usize - 1].who).iter().map(Vec::len).sum();
    println!("answers of a rank to it: {bytes} bytes");
    let lost = collects.said().matches("is not heard any more").count();
    println!("links that were given up meanwhile: {lost}");
    assert_eq!((before.refused, now.refused), (0, 0));
    let explained = explain(&before.processes, &now.processes, 0);
    let [culprit] = &explained.culprits[..] else { panic!("{:?}", explained.culprits) };
    assert_eq!((culprit.of.rank, culprit.waits.rank, culprit.sequence), (Some(0), Some(2), 5));
    assert_eq!(culprit.why, Why::Past { waits_for: 6, of: Some(2) });
}
