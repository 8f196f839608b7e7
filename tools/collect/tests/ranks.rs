//! Ranks that are processes of their own, and what the collector says of them: on one machine, and through
//! two agents that say they are two machines.

mod common;

use common::{Program, address, collect, job, start};
use hostcall::hostcall_device::waits::flag;
use hostcall::services::{Builtins, Sink};
use hostcall::{Device, Grid, Lane, LaunchKernel, kernel, println};
use std::io::Read;

#[kernel(crate = hostcall)]
fn says(lane: &Lane, rank: u32) {
    println!("lane {} of rank {rank} is here", lane.global_id());
}

#[kernel(crate = hostcall)]
fn fails(lane: &Lane, rank: u32) {
    assert!(lane.global_id() != 2 || rank == 99, "rank {rank} cannot go on");
}

#[kernel(crate = hostcall)]
fn waits(lane: &Lane, peer: u32, number: u32) {
    lane.wait_for(flag("signal").peer(peer).sequence(number.into()), || false);
}

#[kernel(crate = hostcall)]
fn says_much(_: &Lane, round: u32) {
    for line in 0..100 {
        println!("line {line} of round {round}: some words that fill a line so that there are many bytes");
    }
}

/// What a rank does: words of the variable `RANK_DOES`.
#[test]
#[ignore = "the other tests run it as a process of its own"]
fn rank() {
    let Ok(does) = std::env::var("RANK_DOES") else { return };
    let words: Vec<&str> = does.split(' ').collect();
    let number = |act: &[&str], at: usize| -> u32 { act[at].parse().unwrap() };
    let rank: u32 = std::env::var("HOSTCALL_RANK").unwrap().parse().unwrap();
    // What it prints is not the test's to read.
    let builtins = Builtins::builder().output(Sink::callback(|_, _| ())).build().unwrap();
    let device = Device::builder("cpu").builtins(builtins).open().unwrap();
    let stream = device.stream().unwrap();
    let mut launches = Vec::new();
    for act in words.split(|word| *word == "then") {
        match act[0] {
            "says" => _ = says.launch(&stream, Grid::new(1, 2), (rank,)).unwrap().wait(),
            // Until its standard input ends: whoever collects may come later.
            "repeats" => {
                let over = std::thread::spawn(|| std::io::stdin().read(&mut [0]).is_ok());
                while !over.is_finished() {
                    let _ = says.launch(&stream, Grid::new(1, 2), (rank,)).unwrap().wait();
                    std::thread::sleep(std::time::Duration::from_millis(50));
                }
            }
            "fails" => _ = fails.launch(&stream, Grid::new(1, 4), (rank,)).unwrap().wait(),
            "waits" => launches
                .push(waits.launch(&stream, Grid::new(1, 4), (number(act, 1), number(act, 2))).unwrap()),
            "exits" => {
                // What it printed is with the sink's writer then.
                let _ = stream.synchronize();
                std::process::exit(3)
            }
            "much" => {
                for round in 0.. {
                    says_much.launch(&stream, Grid::new(1, 1), (round,)).unwrap().wait().unwrap();
                    std::println!("ROUND {round}");
                }
            }
            other => panic!("{other}"),
        }
    }
    std::println!("READY");
    let _ = std::io::stdin().read(&mut [0]);
}

#[test]
fn lines_errors_and_deaths_have_their_ranks() {
    let job = job("lines");
    let collects = collect(&["--job", &job, "--until-end"]);
    let first = start(&job, 0, "repeats");
    collects.wait_for("[rank 0] lane 0 of rank 0 is here\n");
    collects.wait_for("[rank 0] lane 1 of rank 0 is here\n");
    let failed = start(&job, 1, "fails");
    let who = format!("first error: rank 1 (process {} on ", failed.pid());
    let error = collects.wait_for(&who);
    let error = error.lines().find(|line| line.contains(&who)).unwrap();
    let place = "fails: lane 2 of workgroup (0, 0, 0) panicked at ";
    assert!(error.contains(place) && error.contains("rank 1 cannot go on (device cpu, at "), "{error}");
    let second = start(&job, 2, "fails");
    collects.wait_for(&format!("\nhostcall: error: rank 2 (process {} on ", second.pid()));
    let killed = start(&job, 3, "repeats");
    collects.wait_for("[rank 3] lane 1 of rank 3 is here\n");
    killed.signal("-KILL");
    let died = collects.wait_for(&format!("rank 3 (process {} on ", killed.pid()));
    collects.wait_for("has died: it was killed, or ended without closing its devices\n");
    assert!(!died.contains("are missing"), "{died}");
    // The others end by themselves.
    let ends = [first, failed, second].map(|rank| (rank.pid(), rank.end()));
    for (pid, _) in &ends {
        collects.wait_for(&format!("(process {pid} on "));
    }
    collects
        .wait_for("hostcall: ranks: 4 (0-3); failed: 2 (1-2); died: 1 (3)\nhostcall: first error: rank 1 ");
    assert_eq!(collects.code(), Some(1));
}

/// A rank that ends at once, with its device open, is heard to its end.
#[test]
fn who_ends_at_once_is_heard_to_the_end() {
    let job = job("ends");
    let collects = collect(&["--job", &job, "--until-end"]);
    let ends = start(&job, 4, "repeats then says then fails then exits");
    collects.wait_for("[rank 4] lane 1 of rank 4 is here\n");
    assert_eq!(ends.end(), Some(3));
    collects.wait_for("died: 1 (4)\n");
    collects.wait_for("rank 4 cannot go on");
    let lines = || collects.said().matches("[rank 4] lane 1 of rank 4 is here\n").count() >= 2;
    common::until(|| lines().then_some(()));
    assert_eq!(collects.code(), Some(1));
    assert!(!collects.said().contains("missing"), "{}", collects.said());
}

#[test]
fn who_is_stopped_is_named() {
    let job = job("stopped");
    let collects = collect(&["--job", &job]);
    let rank = start(&job, 5, "repeats");
    collects.wait_for("[rank 5] lane 1 of rank 5 is here\n");
    rank.signal("-STOP");
    let who = format!("rank 5 (process {} on ", rank.pid());
    collects.wait_for("it is stopped, or its machine has too much to do\n");
    assert!(collects.said().contains(&who));
    rank.signal("-CONT");
    collects.wait_for(" speaks again\n");
}

/// A collector that is stopped holds up nobody, and says what it missed.
#[test]
fn a_stopped_collector_holds_up_no_rank() {
    for over_a_link in [false, true] {
        let (job, address) = (job(&format!("held-{over_a_link}")), address());
        let collects = match over_a_link {
            false => collect(&["--job", &job]),
            true => collect(&["--job", &job, "--listen", &address]),
        };
        let _agent = over_a_link.then(|| collect(&["--job", &job, "--connect", &address]));
        let rank = start(&job, 7, "much");
        collects.wait_for("[rank 7] line ");
        collects.signal("-STOP");
        let round = || rank.said().matches("ROUND").count();
        let begun = round();
        // Far more than all queues have room for, where none is emptied.
        while round() < begun + 2000 {
            rank.wait_for(&format!("ROUND {}\n", round()));
        }
        collects.signal("-CONT");
        collects.wait_for(" of what it printed are missing here\n");
    }
}

/// Two machines, as far as anybody can tell: the ranks of each wait for the other's.
#[test]
fn two_machines_are_one_job() {
    let (job, address) = (job("machines"), address());
    let collects = collect(&["--job", &job, "--listen", &address]);
    let ranks: Vec<Program> = ["says then waits 1 5", "says then waits 0 6", "says then waits 0 6"]
        .iter()
        .zip(0..)
        .map(|(does, rank)| start(&job, rank, does))
        .collect();
    let pids: Vec<String> = ranks.iter().map(|rank| rank.pid().to_string()).collect();
    let agent = |host: &str, pids: &[&str]| {
        collect(&[&["--job", &job, "--connect", &address, "--host", host], pids].concat())
    };
    let (first, second) = (agent("node-a", &[&pids[0]]), agent("node-b", &[&pids[1], &pids[2]]));
    // Rank 1 left out its signal 5 to rank 0, and all others follow from that.
    let culprit = format!(
        "culprit: rank 1 (process {} on node-b): rank 0 (process {} on node-a) has waited for its `signal` number 5 for ",
        pids[1], pids[0]
    );
    let said = common::until(|| {
        let asks = collect(&["--job", &job, "--connect", &address, "--waits"]);
        asks.code();
        let said = asks.said();
        let is_whole =
            said.contains(&culprit) && said.contains("it is past that: it waits for number 6 of rank 0\n");
        (is_whole && said.contains("rank 2, process")).then_some(said)
    });
    assert!(said.contains(&format!("job {job}: 3 processes\n")), "{said}");
    assert!(said.contains(&format!("  rank 0, process {} on node-a (", pids[0])), "{said}");
    // A rank is known here before anything of it is told.
    collects.wait_for("[rank 0] lane 1 of rank 0 is here\n");
    collects.wait_for("[rank 2] lane 1 of rank 2 is here\n");
    // One dies.
    ranks[2].signal("-KILL");
    collects.wait_for(&format!("rank 2 (process {} on node-b) has died", pids[2]));
    // What collects on a machine is killed, and its ranks are named.
    first.signal("-KILL");
    collects.wait_for("node-a is not heard any more");
    collects.wait_for("its ranks: 1 (0)\n");
    let _first = agent("node-a", &[&pids[0]]);
    collects.wait_for("node-a is heard again\n");
    drop(second);
}

/// Whoever does not speak the protocol is refused, and the others are heard.
#[test]
fn garbage_is_refused() {
    use hostcall_remote::Session;
    let (job, address) = (job("garbage"), address());
    let collects = collect(&["--job", &job, "--listen", &address]);
    let first = start(&job, 0, "repeats");
    let _agent = collect(&["--job", &job, "--connect", &address]);
    collects.wait_for("[rank 0] lane 1 of rank 0 is here\n");
    let stranger = Session::builder().job(&job).connect(&*address).open().unwrap();
    let names = ["stranger.1", "stranger.1/not-a-number", "stranger.1/1.2", "x/99999999999999999999.1"];
    let _named = names.map(|name| stranger.announce(name).unwrap());
    let _answers = stranger.answer("stranger.1", |asked| {
        for at in 0..4 {
            asked.answer(vec![b'{'; at * 1000]);
        }
    });
    common::until(|| {
        for at in 0..200usize {
            let mut bytes = vec![at as u8; at * 37 % 4000];
            if at % 3 == 0 {
                bytes = format!(r#"{{"version":{at},"agent":"stranger.1","items":[{{}}]}}"#).into_bytes();
            }
            stranger.tell("stranger.1", bytes).unwrap();
        }
        collects.said().contains("a message is refused: ").then_some(())
    });
    stranger.tell("stranger.1", vec![b'['; 3 << 20]).unwrap();
    let second = start(&job, 1, "repeats");
    collects.wait_for("[rank 1] lane 1 of rank 1 is here\n");
    // Where the machine has too much to do, a link takes longer than whoever asks waits for it.
    let asks = common::until(|| {
        let asks = collect(&["--job", &job, "--connect", &address, "--waits"]);
        (asks.code() == Some(0)).then_some(asks)
    });
    assert!(asks.said().contains("  rank 0, process "), "{}", asks.said());
    drop((first, second));
}

/// Nobody listens there: who asks once is told so, and who waits for that ends when it is told to.
#[test]
fn nobody_listens() {
    let address = address();
    let asks = collect(&["--connect", &address, "--waits"]);
    assert_eq!(asks.code(), Some(1));
    assert!(asks.said().contains("hostcall: "), "{}", asks.said());
    let agent = collect(&["--connect", &address]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    agent.signal("-TERM");
    // By itself, or by the signal, if that comes before it looks for one.
    assert!(matches!(agent.code(), Some(0) | None));
}
