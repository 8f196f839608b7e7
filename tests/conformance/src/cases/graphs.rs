//! Graphs: what is captured once is done at every replay, with its calls.

use crate::context::read;
use crate::{Context, Outcome, Session, echo, ensure, same};
use conformance::graphs::{
    Turns, TurnsHandler, graph_add, graph_ask, graph_move, graph_panic, graph_print, graph_turn,
};
use hostcall::graph::{CaptureMode, Condition, Graph, GraphError, Instance, NodeFailure, origin};
use hostcall::{CallError, Error, Grid, LaunchFailure, Stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const GRID: Grid = Grid::new(2, 40);
const ONE: Grid = Grid::new(1, 1);

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn open(context: &Context) -> Result<Session, String> {
    context.open(|device| device.inline_service(echo()))
}

/// Captures what `work` gives the stream.
fn capture(stream: &Stream, work: impl FnOnce(&Stream) -> Outcome) -> Result<Graph, String> {
    stream.begin_capture(CaptureMode::ThreadLocal).map_err(text)?;
    let done = work(stream);
    let graph = stream.end_capture().map_err(text)?;
    done.map(|()| graph)
}

fn instance(graph: Graph) -> Result<Instance, String> {
    graph.instantiate().map_err(text)
}

/// Calls, copies, fills and functions of every replay are done once each.
pub fn replays(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let (out, copy) = (session.out(GRID, 1)?, session.out(GRID, 1)?);
    let graph = capture(&stream, |stream| {
        session.launch(stream, graph_add, GRID, (&out,))?;
        session.launch(stream, graph_add, GRID, (&out,))?;
        stream.copy(&copy, &out).map_err(text)?;
        stream.fill(&out.part(..1).map_err(text)?, 7).map_err(text)
    })?;
    let instance = instance(graph)?;
    for _ in 0..20 {
        instance.launch(&stream).map_err(text)?;
    }
    stream.synchronize().map_err(text)?;
    let mut expected = vec![40; 80];
    expected[0] = 9;
    same!(read(&copy)?, expected);
    same!(read(&out)?[0], 7);
    Ok(())
}

/// A hundred kernels that the device may take at once: each call of each replay, a panic in the middle, changing streams, and
/// a cancellation.
pub fn lists(context: &Context) -> Outcome {
    let session = open(context)?;
    let streams = [session.stream()?, session.stream()?];
    let (out, word) = (session.out(ONE, 1)?, session.out(ONE, 1)?);
    let graph = capture(&streams[0], |stream| {
        for node in 0..100 {
            match node {
                57 => session.launch(stream, graph_panic, ONE, (&word,))?,
                _ => session.launch(stream, graph_add, ONE, (&out,))?,
            };
        }
        Ok(())
    })?;
    let instance = instance(graph)?;
    for stream in &streams {
        instance.upload(stream).map_err(text)?;
    }
    let rounds = if context.device == "gfx942" { 2 } else { 50 };
    for round in 0..rounds {
        instance.launch(&streams[round % 2]).map_err(text)?;
        instance.launch(&streams[0]).map_err(text)?;
    }
    let mut expected = 2 * 99 * rounds as u64;
    same!(read(&out)?, vec![expected]);
    word.write(&[1]).map_err(text)?;
    instance.launch(&streams[1]).map_err(text)?;
    let Err(Error::Replay(failure)) = streams[1].synchronize() else {
        return Err("no panic was told".into());
    };
    same!((failure.node.numbers(), failure.what.as_str()), (&[57][..], "graph_panic"));
    expected += 57;
    same!(read(&out)?, vec![expected]);
    word.write(&[0]).map_err(text)?;
    // However far it got, the replay ends, and what follows does all that it has to.
    let cancelled = instance.launch(&streams[0]).map_err(text)?;
    instance.launch(&streams[0]).map_err(text)?;
    cancelled.cancel();
    let _ = (cancelled.wait(), streams[0].synchronize());
    let before = read(&out)?[0];
    instance.launch(&streams[0]).map_err(text)?;
    same!(read(&out)?, vec![before + 99]);
    streams[0].synchronize().map_err(text)?;
    same!(session.device.server().launches().count(), 0);
    Ok(())
}

/// Kernels that neither call nor panic see what those before them wrote, however early they begin, and none begins behind one
/// that panicked.
pub fn moves(context: &Context) -> Outcome {
    const LANES: u64 = 2048;
    const MOVES: u64 = 120;
    let session = open(context)?;
    let stream = session.stream()?;
    let numbers: Vec<u64> = (0..LANES).collect();
    let (here, there) = (session.device.upload(&numbers).map_err(text)?, session.out(Grid::new(32, 64), 1)?);
    let word = session.out(ONE, 1)?;
    let graph = capture(&stream, |stream| {
        session.launch(stream, graph_move, Grid::new(32, 64), (&here, &there))?;
        session.launch(stream, graph_panic, ONE, (&word,))?;
        for node in 1..MOVES {
            let (from, to) = if node % 2 == 0 { (&here, &there) } else { (&there, &here) };
            session.launch(stream, graph_move, Grid::new(32, 64), (from, to))?;
        }
        Ok(())
    })?;
    let instance = instance(graph)?;
    instance.upload(&stream).map_err(text)?;
    let rounds = if context.device == "gfx942" { 1 } else { 100 };
    for _ in 0..rounds {
        instance.launch(&stream).map_err(text)?;
    }
    stream.synchronize().map_err(text)?;
    let moved =
        |moves: u64| (0..LANES).map(move |place| (place + 257 * (LANES - moves % LANES)) % LANES + moves);
    same!(read(&here)?, moved(rounds * MOVES).collect::<Vec<_>>());
    let before = read(&here)?;
    for _ in 0..rounds {
        word.write(&[1]).map_err(text)?;
        instance.launch(&stream).map_err(text)?;
        let Err(Error::Replay(_)) = stream.synchronize() else { return Err("no panic was told".into()) };
    }
    same!(read(&here)?, before);
    Ok(())
}

/// Each call of ten thousand replays is answered once.
pub fn many_replays(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let out = session.out(ONE, 1)?;
    let graph = capture(&stream, |stream| session.launch(stream, graph_add, ONE, (&out,)).map(drop))?;
    let instance = instance(graph)?;
    // Software executes machine code a thousand times slower.
    let count = if context.device == "gfx942" { 500 } else { 10_000 };
    for _ in 0..count {
        instance.launch(&stream).map_err(text)?;
    }
    stream.synchronize().map_err(text)?;
    same!(read(&out)?, vec![count]);
    same!(session.device.server().launches().count(), 0);
    Ok(())
}

/// A graph of many kernels becomes one with other arguments between its replays: each kernel has those of its replay.
pub fn changed(context: &Context) -> Outcome {
    const NODES: usize = 260;
    let session = open(context)?;
    let stream = session.stream()?;
    let out = session.out(Grid::new(NODES as u32, 1), 1)?;
    let place = |node: usize, step: usize| node * step % NODES;
    let graph = |step: usize| {
        capture(&stream, |stream| {
            for node in 0..NODES {
                let at = place(node, step);
                let part = out.part(at..=at).map_err(text)?;
                session.launch(stream, graph_add, ONE, (&part,))?;
            }
            Ok(())
        })
    };
    let instance = instance(graph(1)?)?;
    let mut expected = vec![0; NODES];
    let steps: &[usize] = if context.device == "gfx942" { &[2, 13] } else { &[1, 2, 13, 5, 130, 7, 26] };
    for (round, step) in steps.iter().enumerate() {
        ensure!(instance.update(&graph(*step)?).map_err(text)?);
        if round % 2 == 0 {
            instance.upload(&stream).map_err(text)?;
        }
        for _ in 0..2 {
            instance.launch(&stream).map_err(text)?;
            (0..NODES).for_each(|node| expected[place(node, *step)] += 1);
        }
    }
    stream.synchronize().map_err(text)?;
    same!(read(&out)?, expected);
    Ok(())
}

pub fn prints(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let graph = capture(&stream, |stream| {
        session.launch(stream, graph_print, ONE, (1u64,))?;
        session.launch(stream, graph_print, ONE, (2u64,)).map(drop)
    })?;
    let instance = instance(graph)?;
    for _ in 0..5 {
        instance.launch(&stream).map_err(text)?;
    }
    stream.synchronize().map_err(text)?;
    let lines = session.stdout.lines();
    same!(lines.iter().filter(|line| *line == "node 1").count(), 5);
    same!(lines.iter().filter(|line| *line == "node 2").count(), 5);
    Ok(())
}

/// A panic ends its replay, which says where; the next one runs.
pub fn panics(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let (out, word) = (session.out(GRID, 1)?, session.out(ONE, 1)?);
    let graph = capture(&stream, |stream| {
        session.launch(stream, graph_add, GRID, (&out,))?;
        session.launch(stream, graph_panic, GRID, (&word,))?;
        session.launch(stream, graph_add, GRID, (&out,)).map(drop)
    })?;
    let instance = instance(graph.named("panics"))?;
    for round in 1..=10u64 {
        word.write(&[round % 2]).map_err(text)?;
        let before = read(&out)?[0];
        instance.launch(&stream).map_err(text)?;
        let told = stream.synchronize();
        if round % 2 == 0 {
            told.map_err(text)?;
            same!(read(&out)?, vec![before + 2; 80]);
            continue;
        }
        let Err(Error::Replay(failure)) = told else { return Err(format!("{told:?}")) };
        same!(
            (failure.replay, failure.node.numbers(), failure.what.as_str()),
            (round, &[1][..], "graph_panic")
        );
        let NodeFailure::Launch(LaunchFailure::Panicked { first: Some(panic), .. }) = failure.cause else {
            return Err(format!("{failure:?}"));
        };
        same!(panic.message, "the word is set");
        same!(read(&out)?, vec![before + 1; 80]);
    }
    Ok(())
}

/// A loop whose body asks the host whether to go on.
pub fn asks(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let (turn, go_on) = (session.out(ONE, 1)?, session.device.alloc_zeroed::<u32>(1).map_err(text)?);
    let body = capture(&stream, |stream| session.launch(stream, graph_ask, ONE, (&turn, &go_on)).map(drop))?;
    let mut looping = Graph::new(&session.device);
    looping.add_while(&Condition::word(&go_on).map_err(text)?, &body).map_err(text)?;
    let graph = capture(&stream, |stream| {
        stream.fill(&turn, 0).map_err(text)?;
        stream.fill(&go_on, 1).map_err(text)?;
        stream.add_graph(&looping).map_err(text)?;
        session.launch(stream, graph_add, ONE, (&turn,)).map(drop)
    })?;
    let instance = instance(graph)?;
    for _ in 0..5 {
        instance.launch(&stream).map_err(text)?;
        same!(read(&turn)?, vec![11]);
    }
    stream.synchronize().map_err(text)
}

/// Says what comes after a turn, and counts the calls whose origin is another turn than they say.
#[derive(Clone, Default)]
struct TurnHandler {
    calls: Arc<AtomicU64>,
    wrong: Arc<AtomicU64>,
}

impl TurnsHandler for TurnHandler {
    fn next(&self, turn: u64) -> Result<u64, CallError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let is_right = origin().is_some_and(|origin| {
            origin.turn == Some(turn) && &*origin.kernel == "graph_turn" && origin.node.numbers() == [0, 0, 1]
        });
        self.wrong.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        Ok(turn + 1)
    }
}

/// A loop that the device may repeat by itself: every call knows its turn, a panic names it, and a loop that never ends is
/// cancelled or runs out of time.
pub fn turns(context: &Context) -> Outcome {
    let handler = TurnHandler::default();
    let served = handler.clone();
    let session = context.open(|device| device.inline_service(echo()).service(Turns::serve(served)))?;
    let stream = session.stream()?;
    let (turn, sum) = (session.out(ONE, 1)?, session.out(ONE, 1)?);
    let go_on = session.device.alloc_zeroed::<u32>(1).map_err(text)?;
    let on = Condition::word(&go_on).map_err(text)?;
    let looping = |panics_in: u64| {
        let body = capture(&stream, |stream| {
            session.launch(stream, graph_add, ONE, (&sum,))?;
            session.launch(stream, graph_turn, GRID, (&turn, &go_on, panics_in)).map(drop)
        })?;
        let mut graph = Graph::new(&session.device).named("turns");
        graph.add_while(&on, &body).map_err(text)?;
        instance(graph)
    };
    let begin = |first: u64| {
        turn.write(&[first]).map_err(text)?;
        go_on.write(&[1]).map_err(text)
    };
    let (mut calls, mut added) = (0, 0);
    for upload in [false, true] {
        for panics_in in [u64::MAX, 3, 0, 9] {
            let instance = looping(panics_in)?;
            if upload {
                instance.upload(&stream).map_err(text)?;
            }
            for _ in 0..3 {
                begin(0)?;
                instance.launch(&stream).map_err(text)?;
                let told = stream.synchronize();
                let taken = panics_in.min(9) + 1;
                (calls, added) = (calls + taken, added + taken);
                same!(read(&sum)?, vec![added]);
                if panics_in == u64::MAX {
                    told.map_err(text)?;
                    same!(read(&turn)?, vec![10]);
                    continue;
                }
                let Err(Error::Replay(failure)) = told else { return Err(format!("{told:?}")) };
                same!((failure.node.numbers(), failure.turn), (&[0, 0, 1][..], Some(panics_in)));
                ensure!(failure.to_string().contains(&format!("turn {panics_in} panics")));
                same!(read(&turn)?, vec![panics_in]);
            }
        }
        // Its word is never 0.
        let body = capture(&stream, |stream| session.launch(stream, graph_add, ONE, (&sum,)).map(drop))?;
        let mut graph = Graph::new(&session.device);
        graph.add_while(&on, &body).map_err(text)?;
        let endless = instance(graph)?;
        if upload {
            endless.upload(&stream).map_err(text)?;
        }
        for by_limit in [false, true] {
            begin(0)?;
            let before = read(&sum)?[0];
            let replay = endless.launch(&stream).map_err(text)?;
            let behind = session.launch(&stream, graph_add, ONE, (&turn,))?;
            while sum.read_now().map_err(text)?.is_none_or(|sum| sum[0] < before + 3) {
                std::thread::sleep(Duration::from_millis(1));
            }
            match by_limit {
                true => replay.cancel_after(Duration::from_millis(1)),
                false => replay.cancel(),
            }
            let Err(Error::Replay(failure)) = replay.wait() else { return Err("it was ended".into()) };
            let why = if by_limit { LaunchFailure::TimedOut } else { LaunchFailure::Cancelled };
            same!(failure.cause, NodeFailure::Launch(why));
            // Between two turns it is the loop that ends.
            ensure!(failure.turn.is_some() || failure.what == "while");
            ensure!(stream.synchronize().is_err() && behind.wait().is_err());
            added = read(&sum)?[0];
            same!(read(&turn)?, vec![0]);
        }
    }
    same!(handler.calls.load(Ordering::Relaxed), calls);
    same!(handler.wrong.load(Ordering::Relaxed), 0);
    same!(session.device.server().launches().count(), 0);
    Ok(())
}

/// Bodies that a word chooses between, which the device may do by itself.
pub fn choices(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let outs: Vec<_> = (0..4).map(|_| session.out(ONE, 1)).collect::<Result<_, _>>()?;
    let word = session.device.alloc_zeroed::<u32>(1).map_err(text)?;
    let on = Condition::word(&word).map_err(text)?;
    let bodies = outs
        .iter()
        .map(|out| capture(&stream, |stream| session.launch(stream, graph_add, ONE, (out,)).map(drop)));
    let bodies = bodies.collect::<Result<Vec<_>, _>>()?;
    let mut graph = Graph::new(&session.device);
    let nodes = [
        graph.add_if(&on, &bodies[0]).map_err(text)?,
        graph.add_if_else(&on, &bodies[1], &bodies[2]).map_err(text)?,
        graph.add_switch(&on, &[&bodies[2], &bodies[3]]).map_err(text)?,
    ];
    nodes.windows(2).try_for_each(|pair| graph.edge(pair[0], pair[1])).map_err(text)?;
    let instance = instance(graph)?;
    let mut expected = [0; 4];
    for round in 0..6u32 {
        if round == 3 {
            instance.upload(&stream).map_err(text)?;
        }
        word.write(&[round % 3]).map_err(text)?;
        instance.launch(&stream).map_err(text)?;
        for (place, times) in
            expected.iter_mut().zip([[0, 0, 2, 0], [1, 1, 0, 1], [1, 1, 0, 0]][round as usize % 3])
        {
            *place += times;
        }
        for (out, expected) in outs.iter().zip(expected) {
            same!(read(out)?, vec![expected]);
        }
    }
    stream.synchronize().map_err(text)
}

/// A capture that was broken says by what, and the stream works afterwards.
pub fn broken(context: &Context) -> Outcome {
    let session = open(context)?;
    let stream = session.stream()?;
    let out = session.out(ONE, 1)?;
    let result = stream.capture(CaptureMode::ThreadLocal, |stream| {
        let _ = session.launch(stream, graph_add, ONE, (&out,));
        stream.synchronize()
    });
    ensure!(matches!(result, Err(Error::Graph(GraphError::Synchronized { call: "synchronize" }))));
    same!(read(&out)?, vec![0]);
    session.launch(&stream, graph_add, ONE, (&out,))?;
    stream.synchronize().map_err(text)?;
    same!(read(&out)?, vec![1]);
    Ok(())
}
