//! What `hostcall collect --top` shows of ranks that are processes of their own.

mod common;

use common::{address, collect, job, start};
use hostcall::hostcall_device::{CallError, service};
use hostcall::{Device, Grid, Lane, LaunchKernel, kernel};
use std::io::Read;

#[service(crate = hostcall)]
trait Shop {
    fn price(item: u32) -> u32;
}

struct Prices;

impl ShopHandler for Prices {
    fn price(&self, item: u32) -> Result<u32, CallError> {
        match item {
            7 => Err(CallError::Failed(7)),
            // It never comes.
            9 => loop {
                std::thread::park();
            },
            _ => Ok(item),
        }
    }
}

#[kernel(crate = hostcall)]
fn asks(_: &Lane, item: u32) {
    let _ = Shop::price(item);
}

#[kernel(crate = hostcall)]
fn fails(_: &Lane) {
    panic!("it cannot go on");
}

/// What a rank does: calls until its standard input ends, and as the variable `RANK_DOES` says besides.
#[test]
#[ignore = "the other tests run it as a process of its own"]
fn rank() {
    let Ok(does) = std::env::var("RANK_DOES") else { return };
    let device = Device::builder("cpu").service(Shop::serve(Prices)).open().unwrap();
    let stream = device.stream().unwrap();
    if does == "fails" {
        // What is behind it in its stream is left out.
        let stream = device.stream().unwrap();
        let _ = fails.launch(&stream, Grid::new(1, 1), ()).unwrap().wait();
    }
    let _waits = (does == "waits").then(|| {
        let stream = device.stream().unwrap();
        (asks.launch(&stream, Grid::new(1, 3), (9,)).unwrap(), stream)
    });
    let over = std::thread::spawn(|| std::io::stdin().read(&mut [0]).is_ok());
    while !over.is_finished() {
        for item in [1, 1, 1, 7] {
            let _ = asks.launch(&stream, Grid::new(1, 8), (item,)).unwrap().wait();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // Not by returning: what waits does not end.
    std::process::exit(0)
}

/// The cells of a rank in the last table of a text that has it, by the names of its columns.
fn row(said: &str, rank: u32) -> Option<std::collections::HashMap<String, String>> {
    let table = said.rsplit("\n\n").find(|table| table.contains(" calls/s"))?;
    let head = table.lines().find(|line| line.trim_start().starts_with("rank "))?;
    let names: Vec<&str> = head.split_whitespace().collect();
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(&rank.to_string()))?;
    let cells: Vec<&str> = line.split_whitespace().collect();
    let state = cells.get(names.len() - 1..).unwrap_or_default().join(" ");
    let cells = names.iter().zip(cells).map(|(name, cell)| ((*name).to_owned(), cell.to_owned()));
    Some(cells.chain([("state".to_owned(), state)]).collect())
}

/// Two machines, as far as anybody can tell.
#[test]
fn each_rank_of_all_machines_has_a_row() {
    let (job, address) = (job("top"), address());
    let _collects = collect(&["--job", &job, "--listen", &address]);
    let ranks: Vec<_> =
        ["calls", "fails", "waits"].iter().zip(0..).map(|(does, rank)| start(&job, rank, does)).collect();
    let pids: Vec<String> = ranks.iter().map(|rank| rank.pid().to_string()).collect();
    let agent = |host: &str, pids: &[&str]| {
        collect(&[&["--job", &job, "--connect", &address, "--host", host], pids].concat())
    };
    let (first, _second) = (agent("node-a", &[&pids[0], &pids[1]]), agent("node-b", &[&pids[2]]));
    // Where the machine has too much to do, a link takes longer than whoever asks waits for it.
    let top = common::until(|| {
        let top = collect(&["--job", &job, "--connect", &address, "--top", "--every", "0.3"]);
        common::until(|| (top.has_ended() || top.said().contains(" on ")).then_some(()));
        (!top.has_ended()).then_some(top)
    });
    let until = |rank: u32, column: &str, is: &dyn Fn(&str) -> bool| {
        common::until(|| row(&top.said(), rank).and_then(|row| is(row.get(column)?).then_some(row)))
    };
    let is_some = |cell: &str| !["0", "-"].contains(&cell);
    for rank in 0..3 {
        until(rank, "calls/s", &is_some);
        until(rank, "errors/s", &is_some);
        let row = until(rank, "process", &|pid| pid == pids[rank as usize]);
        assert_eq!(row["machine"], if rank == 2 { "node-b" } else { "node-a" });
    }
    until(1, "failed", &|failed| failed == "1");
    until(2, "waiting", &is_some);
    until(2, "longest", &is_some);
    ranks[0].signal("-STOP");
    until(0, "state", &|state| state.starts_with("silent for "));
    ranks[0].signal("-CONT");
    until(0, "calls/s", &is_some);
    ranks[1].signal("-KILL");
    until(1, "state", &|state| state == "gone");
    top.wait_for("; 1 gone");
    first.signal("-KILL");
    until(0, "state", &|state| state == "not heard");
    assert_eq!(row(&top.said(), 1).unwrap()["state"], "gone");
    until(2, "calls/s", &is_some);
    let json = collect(&["--job", &job, "--connect", &address, "--top", "--json", "--for", "0"]);
    assert_eq!(json.code(), Some(0), "{}", json.said());
    let said = json.said();
    let look: serde_json::Value = serde_json::from_str(said.lines().next().unwrap()).unwrap();
    assert_eq!((&look["ranks"][0]["who"]["rank"], look["ranks"].as_array().unwrap().len()), (&2.into(), 1));
}

#[test]
fn this_machines_ranks_need_no_link() {
    let job = job("top-here");
    let rank = start(&job, 5, "calls");
    let top = collect(&["--job", &job, "--top", "--every", "0.2"]);
    common::until(|| row(&top.said(), 5).filter(|row| !["0", "-"].contains(&&*row["calls/s"])));
    top.signal("-TERM");
    assert_eq!(top.code(), Some(0));
    drop(rank);
    let nobody = collect(&["--job", "a-job-of-nobody", "--top"]);
    assert_eq!(nobody.code(), Some(1));
    assert!(nobody.said().contains("no process of yours"), "{}", nobody.said());
    for wrong in [&["--for", "3"][..], &["--json"], &["--top", "--every", "-1"], &["--top", "--waits"]] {
        let refused = collect(wrong);
        assert!(!matches!(refused.code(), Some(0) | None), "{wrong:?}");
    }
}
