//! What each rank of a job does, again and again: how many calls, errors and posts a second, what waits and
//! for how long, what is lost. Each look asks all agents, and these their ranks.
//!
//! An agent says first which ranks it follows, and who of them is silent, so that a rank that is stopped
//! keeps nobody waiting. Each of the others is an answer of its own, when it has come. All numbers of a rank
//! are few, whatever it has counted: its agent adds methods and devices up.

use crate::local::{Local, Seen};
use crate::wire::{Key, VERSION, Who, read_json};
use crate::{Outcome, table};
use hostcall::watch::{self, MethodMetrics, Metrics, Request};
use hostcall_locks::Mutex;
use hostcall_remote::{Asked, Session};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

/// What is asked for.
pub const WHAT: &str = "top";

/// How long agents may take: a rank that is stopped is not asked once that is seen.
const LONGEST: Duration = Duration::from_secs(1);

/// Longest answer, all answers of a look, and ranks that are shown. Those that are gone make room for others.
const MOST_BYTES: usize = 1 << 20;
const MOST_BYTES_IN_ALL: usize = 256 << 20;
const MOST_RANKS: usize = 1 << 16;

/// Longest name of a machine or an agent, in bytes, and longest time, in seconds: what is shown keeps its shape.
const MOST_NAME_BYTES: usize = 128;
const MOST_SECONDS: f64 = 1e9;

/// Between two looks, at least.
const LEAST_EVERY: Duration = Duration::from_millis(50);

/// What a rank has counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    /// When it was asked, in seconds of its agent's life.
    pub at_s: f64,
    /// Calls that have ended, and those of them that ended with errors.
    pub calls: u64,
    /// See `calls`.
    pub failed_calls: u64,
    /// Posts that were taken.
    pub posts: u64,
    /// Calls and waves that wait now, and for how many seconds the longest of them.
    pub waiting: u64,
    /// See `waiting`.
    pub longest_s: f64,
    /// Handlers that wait for a thread.
    pub queued: u64,
    /// Launches that have not ended, and those that have failed.
    pub launches: u64,
    /// See `launches`.
    pub failed_launches: u64,
    /// Posts that reached no handler, and lost reports and records of traces.
    pub lost: u64,
    /// Bytes that kernels printed and that are lost.
    pub lost_bytes: u64,
}

impl Counted {
    fn new(metrics: &Metrics, at_s: f64) -> Self {
        let mut counted = Self { at_s, ..Self::default() };
        for device in &metrics.devices {
            let methods =
                |of: fn(&MethodMetrics) -> u64| device.methods.iter().map(of).fold(0, u64::saturating_add);
            let failed =
                ["panicked", "failed", "timed_out"].map(|end| device.launches_ended.get(end).copied());
            let lost = [device.refused_posts, device.lost_reports, device.lost_trace_records];
            for (sum, more) in [
                (&mut counted.calls, methods(MethodMetrics::total)),
                (&mut counted.failed_calls, methods(MethodMetrics::errors)),
                (&mut counted.posts, device.posts),
                (&mut counted.waiting, device.waiting_calls),
                (&mut counted.queued, device.waiting_handlers),
                (&mut counted.launches, device.launches_running),
                (&mut counted.failed_launches, failed.into_iter().flatten().fold(0, u64::saturating_add)),
                (&mut counted.lost, lost.into_iter().fold(0, u64::saturating_add)),
                (&mut counted.lost_bytes, device.lost_output_bytes),
            ] {
                *sum = sum.saturating_add(more);
            }
            counted.longest_s = counted.longest_s.max(device.oldest_wait_s);
        }
        counted
    }
}

/// What is said of ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Said {
    /// Which ranks an agent follows.
    Ranks {
        /// [`VERSION`].
        version: u32,
        /// The agent, as it is announced.
        agent: String,
        /// The ranks.
        ranks: Vec<Seen>,
    },
    /// What one of them has counted.
    Counted {
        /// The agent.
        agent: String,
        /// The rank.
        who: Who,
        /// What it has counted.
        counted: Counted,
    },
}

impl Said {
    fn is_bounded(&self) -> bool {
        match self {
            Said::Ranks { version, agent, ranks } => {
                let is_shown = |seen: &Seen| is_name(&seen.who.host) && seen.silent_s.is_none_or(is_time);
                *version == VERSION && is_name(agent) && ranks.iter().all(is_shown)
            }
            Said::Counted { agent, who, counted } => {
                is_name(agent) && is_name(&who.host) && is_time(counted.at_s) && is_time(counted.longest_s)
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= MOST_NAME_BYTES && !name.contains(char::is_control)
}

fn is_time(seconds: f64) -> bool {
    (0.0..=MOST_SECONDS).contains(&seconds)
}

/// Says which ranks there are, and what those have counted that answer: on several threads.
pub fn say(agent: &str, local: &Local, said: &(impl Fn(Said) + Sync)) {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let ranks = local.seen();
    said(Said::Ranks { version: VERSION, agent: agent.to_owned(), ranks: ranks.clone() });
    std::thread::scope(|scope| {
        for Seen { who, silent_s } in ranks {
            let ask = move || {
                let Ok(metrics) = watch::ask::<Metrics>(who.pid, &Request::Metrics) else { return };
                let counted = Counted::new(&metrics, BEGAN.elapsed().as_secs_f64());
                said(Said::Counted { agent: agent.to_owned(), who, counted });
            };
            if silent_s.is_none() {
                // Where the system starts no thread, nothing is said of the rank.
                let _ = std::thread::Builder::new().name("hostcall-ask".into()).spawn_scoped(scope, ask);
            }
        }
    });
}

/// Answers a collector's question.
pub fn answer(asked: Asked, agent: &str, local: &Local) {
    let asked = Mutex::new(asked);
    say(agent, local, &|said| {
        if let Ok(bytes) = serde_json::to_vec(&said) {
            asked.lock().answer(bytes);
        }
    });
}

/// What was said at a look, and answers that were refused.
#[derive(Debug, Default)]
struct Look {
    said: Vec<Said>,
    refused: u64,
    bytes: usize,
}

/// Who is asked.
pub enum Source<'a> {
    /// The agents of a job.
    Agents(&'a Session),
    /// This machine's ranks, which are followed.
    Here(&'a Local),
}

impl Source<'_> {
    /// Returns what is said where no rank answers.
    fn nobody(&self, refused: u64) -> String {
        let why = match self {
            Source::Agents(_) => {
                "no rank answers: does a collector listen there, and do agents run with its --job?"
            }
            Source::Here(_) => {
                "no process of yours has a device of hostcall's open here, or none of this job"
            }
        };
        match refused {
            0 => why.to_owned(),
            _ => format!("{why} {refused} {}", table::REFUSED),
        }
    }

    fn look(&self) -> Result<Look, Box<dyn std::error::Error>> {
        let look = Arc::new(Mutex::new(Look::default()));
        match self {
            Source::Here(local) => say("", local, &|said| look.lock().said.push(said)),
            Source::Agents(session) => {
                let take = look.clone();
                session.ask(None, WHAT, Vec::new(), LONGEST, move |bytes| {
                    let mut look = take.lock();
                    look.bytes = look.bytes.saturating_add(bytes.len());
                    let is_room = look.bytes <= MOST_BYTES_IN_ALL;
                    match read_json::<Said>(&bytes, MOST_BYTES) {
                        Ok(said) if is_room && said.is_bounded() => look.said.push(said),
                        _ => look.refused += 1,
                    }
                })?;
            }
        }
        Ok(std::mem::take(&mut *look.lock()))
    }
}

/// How a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has answered.
    Answers,
    /// It lives, and has not answered in time.
    Late,
    /// It has said nothing for so many seconds.
    Silent(f64),
    /// Its process has ended.
    Gone,
    /// Nothing is heard of its machine.
    NotHeard,
}

/// What a rank does.
#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    /// The rank.
    pub who: Who,
    /// How it is.
    pub state: State,
    /// What it has counted, as it said last.
    pub counted: Option<Counted>,
    /// Calls, errors and posts a second, between the last two looks at which it answered.
    pub a_second: Option<[f64; 3]>,
    #[serde(skip)]
    agent: String,
    /// The look at which it was met.
    #[serde(skip)]
    met: u64,
}

/// The ranks of a job.
#[derive(Debug, Default)]
pub struct Ranks {
    ranks: BTreeMap<(u64, Key), Rank>,
    looks: u64,
    /// At the last look.
    left_out: u64,
    /// Those that are gone may still make room at this look.
    makes_room: bool,
}

impl Ranks {
    /// Takes in what was said at a look.
    pub fn take(&mut self, said: Vec<Said>) {
        (self.left_out, self.makes_room) = (0, true);
        self.looks += 1;
        // By agents that answer now, of which the first counts for a rank that several follow.
        let mut heard = HashMap::<String, HashMap<Key, Option<f64>>>::new();
        let mut counted = Vec::new();
        for said in said {
            match said {
                Said::Ranks { agent, ranks, .. } => {
                    let silent = heard.entry(agent.clone()).or_default();
                    for Seen { who, silent_s } in ranks {
                        silent.insert(who.key(), silent_s);
                        self.meet(&agent, who);
                    }
                }
                Said::Counted { agent, who, counted: of } => counted.push((agent, who, of)),
            }
        }
        for (place, rank) in &mut self.ranks {
            let is_of = |agent: &String| heard[agent].contains_key(&place.1);
            if !heard.get(&rank.agent).is_some_and(|ranks| ranks.contains_key(&place.1))
                && let Some(agent) = heard.keys().find(|agent| is_of(agent))
            {
                rank.agent.clone_from(agent);
                // Its times are another agent's.
                (rank.counted, rank.a_second) = (None, None);
            }
            rank.state = match heard.get(&rank.agent).map(|ranks| ranks.get(&place.1)) {
                None if rank.state == State::Gone => State::Gone,
                None => State::NotHeard,
                Some(None) => State::Gone,
                Some(Some(None)) => State::Late,
                Some(Some(Some(silent_s))) => State::Silent(*silent_s),
            };
        }
        self.forget_replaced();
        for (agent, who, counted) in counted {
            if let Some(rank) = self.ranks.get_mut(&place(&who)).filter(|rank| rank.agent == agent) {
                rank.count(counted);
            }
        }
    }

    /// Forgets ranks that are gone and have been started again: a later process has their number.
    fn forget_replaced(&mut self) {
        let mut latest = HashMap::<u64, u64>::new();
        let lives = |rank: &Rank| rank.state != State::Gone;
        for rank in self.ranks.values().filter(|rank| lives(rank)) {
            if let Some(number) = rank.who.rank {
                let met = latest.entry(number).or_default();
                *met = rank.met.max(*met);
            }
        }
        let met_after = |rank: &Rank| rank.who.rank.and_then(|number| latest.get(&number));
        self.ranks.retain(|_, rank| lives(rank) || met_after(rank).is_none_or(|met| *met <= rank.met));
    }

    fn meet(&mut self, agent: &str, who: Who) {
        let at = place(&who);
        if self.ranks.contains_key(&at) {
            return;
        }
        if self.ranks.len() >= MOST_RANKS && std::mem::take(&mut self.makes_room) {
            self.ranks.retain(|_, rank| rank.state != State::Gone);
        }
        if self.ranks.len() >= MOST_RANKS {
            self.left_out += 1;
            return;
        }
        let (agent, met) = (agent.to_owned(), self.looks);
        self.ranks.insert(at, Rank { who, state: State::Late, counted: None, a_second: None, agent, met });
    }

    /// Returns the ranks in their order, those without a rank behind the others.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &Rank> {
        self.ranks.values()
    }
}

/// Returns where a rank stands among others, and what no other has.
fn place(who: &Who) -> (u64, Key) {
    (who.rank.unwrap_or(u64::MAX), who.key())
}

impl Rank {
    fn count(&mut self, counted: Counted) {
        let rates = self.counted.as_ref().and_then(|before| {
            let over_s = counted.at_s - before.at_s;
            let of = |now: u64, before: u64| now.saturating_sub(before) as f64 / over_s;
            (over_s > 0.0).then(|| {
                [
                    of(counted.calls, before.calls),
                    of(counted.failed_calls, before.failed_calls),
                    of(counted.posts, before.posts),
                ]
            })
        });
        (self.a_second, self.counted, self.state) = (rates, Some(counted), State::Answers);
    }
}

/// What is shown, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Between two looks.
    pub every: Duration,
    /// Ends after so long.
    pub for_s: Option<Duration>,
    /// How long is waited for the first rank.
    pub wait_first: Duration,
    /// One JSON object for each look, in a line.
    pub json: bool,
}

/// Shows the ranks until the time is over: on a terminal as a screen, else as lines.
///
/// # Errors
/// When nobody answers, or nobody can be asked.
pub fn run(source: &Source<'_>, options: Options) -> Outcome {
    let (begun, mut ranks) = (Instant::now(), Ranks::default());
    let is_screen = io::stdout().is_terminal() && !options.json;
    loop {
        let looked = Instant::now();
        let look = source.look()?;
        ranks.take(look.said);
        if ranks.ranks.is_empty() {
            if begun.elapsed() > options.wait_first {
                return Err(source.nobody(look.refused).into());
            }
            std::thread::sleep(LEAST_EVERY);
            continue;
        }
        let text = match options.json {
            true => format!("{}\n", json!({ "ranks": ranks.ranks.values().collect::<Vec<_>>() })),
            false => table::text(&ranks, ranks.left_out, look.refused, is_screen),
        };
        match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
            // Whoever read it has seen enough.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(0),
            Err(error) => return Err(error.into()),
            Ok(()) => {}
        }
        if options.for_s.is_some_and(|longest| begun.elapsed() >= longest) {
            return Ok(0);
        }
        std::thread::sleep(options.every.max(LEAST_EVERY).saturating_sub(looked.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(pid: u32, rank: Option<u64>) -> Who {
        Who { host: "node".into(), pid, rank, ..Who::default() }
    }

    fn ranks(agent: &str, ranks: &[(u32, Option<f64>)]) -> Said {
        let seen = |(pid, silent_s): &(u32, Option<f64>)| Seen {
            who: who(*pid, Some(pid.saturating_sub(10).into())),
            silent_s: *silent_s,
        };
        Said::Ranks { version: VERSION, agent: agent.into(), ranks: ranks.iter().map(seen).collect() }
    }

    fn counted(agent: &str, pid: u32, at_s: f64, calls: u64) -> Said {
        let counted = Counted { at_s, calls, posts: calls / 2, ..Counted::default() };
        Said::Counted { agent: agent.into(), who: who(pid, Some((pid - 10).into())), counted }
    }

    fn states(of: &Ranks) -> Vec<(u32, State, Option<f64>)> {
        of.all().map(|rank| (rank.who.pid, rank.state, rank.a_second.map(|rates| rates[0]))).collect()
    }

    #[test]
    fn ranks_are_as_their_agents_say() {
        let mut of = Ranks::default();
        of.take(vec![counted("a", 12, 0.5, 1), ranks("a", &[(12, None), (11, Some(3.0)), (10, None)])]);
        let late = (10, State::Late, None);
        assert_eq!(states(&of), [late, (11, State::Silent(3.0), None), (12, State::Answers, None)]);
        // By the agent's clock, from answer to answer; and one has gone.
        of.take(vec![
            ranks("a", &[(12, None), (11, None)]),
            counted("a", 12, 2.5, 21),
            counted("a", 11, 3.0, 5),
        ]);
        let gone = (10, State::Gone, None);
        assert_eq!(states(&of), [gone, (11, State::Answers, None), (12, State::Answers, Some(10.0))]);
        // Nobody is heard: who was gone is gone.
        of.take(Vec::new());
        assert_eq!(states(&of)[..2], [gone, (11, State::NotHeard, None)]);
        // Another agent's clock is another one; a number may fall where a device's counts are another's.
        of.take(vec![ranks("b", &[(12, None), (11, None)]), counted("b", 12, 0.1, 40)]);
        assert_eq!(states(&of)[1..], [(11, State::Late, None), (12, State::Answers, None)]);
        of.take(vec![ranks("b", &[(12, None), (11, None)]), counted("b", 12, 1.1, 4)]);
        assert_eq!(states(&of)[2], (12, State::Answers, Some(0.0)));
    }

    #[test]
    fn a_rank_that_is_started_again_is_there_once() {
        let mut of = Ranks::default();
        let seen = |pid, rank| Seen { who: who(pid, rank), silent_s: None };
        let say = |of: &mut Ranks, ranks: &[Seen]| {
            of.take(vec![Said::Ranks { version: VERSION, agent: "a".into(), ranks: ranks.to_vec() }]);
            of.all().map(|rank| (rank.who.pid, rank.state)).collect::<Vec<_>>()
        };
        let [gone, late] = [State::Gone, State::Late];
        say(&mut of, &[seen(1, Some(0)), seen(2, None), seen(3, Some(0))]);
        // Of another job, say: it was there before that one was gone.
        assert_eq!(say(&mut of, &[seen(3, Some(0))]), [(1, gone), (3, late), (2, gone)]);
        assert_eq!(
            say(&mut of, &[seen(3, Some(0)), seen(4, None)]),
            [(1, gone), (3, late), (2, gone), (4, late)]
        );
        assert_eq!(say(&mut of, &[seen(3, Some(0)), seen(5, Some(0))])[..2], [(3, late), (5, late)]);
        assert_eq!(say(&mut of, &[seen(5, Some(0))])[0], (5, late));
    }

    #[test]
    fn ranks_are_bounded_and_those_that_are_gone_make_room() {
        let mut of = Ranks::default();
        let many = |from: u32| (from..from + MOST_RANKS as u32).map(|pid| (pid, None)).collect::<Vec<_>>();
        of.take(vec![ranks("a", &many(10)), ranks("b", &[(1, None)])]);
        assert_eq!((of.all().len(), of.left_out), (MOST_RANKS, 1));
        of.take(vec![ranks("a", &[(10, None)])]);
        assert_eq!((of.all().len(), of.left_out), (MOST_RANKS, 0));
        of.take(vec![ranks("a", &[(10, None)]), ranks("b", &[(1, None)])]);
        assert_eq!(of.all().len(), 2);
    }

    /// What comes is read or refused, and shown whatever it is.
    #[test]
    fn any_answer_may_come() {
        let strange = |at_s, calls| {
            let counted = Counted { at_s, calls, waiting: u64::MAX, longest_s: 1e300, ..Counted::default() };
            Said::Counted { agent: "a".into(), who: who(1, None), counted }
        };
        let mut of = Ranks::default();
        let of_version = |version, host: &str, silent_s| {
            let seen = Seen { who: Who { host: host.into(), ..who(1, None) }, silent_s };
            Said::Ranks { version, agent: "a".into(), ranks: vec![seen] }
        };
        of.take(vec![of_version(VERSION, "\x1b[2J", Some(f64::MAX))]);
        for (at_s, calls) in [(0.0, u64::MAX), (0.0, 0), (-1e300, 7), (1e300, u64::MAX)] {
            of.take(vec![strange(at_s, calls)]);
            assert!(!table::text(&of, u64::MAX, 3, false).contains('\x1b'));
        }
        for said in [
            strange(f64::NAN, 0),
            strange(-1.0, 0),
            strange(1.0, 0),
            of_version(VERSION + 1, "node", None),
            of_version(VERSION, "\x1b[2J", None),
            of_version(VERSION, &"n".repeat(MOST_NAME_BYTES + 1), None),
            of_version(VERSION, "node", Some(1e300)),
        ] {
            assert!(!said.is_bounded(), "{said:?}");
        }
        assert!(of_version(VERSION, &"n".repeat(MOST_NAME_BYTES), Some(1e9)).is_bounded());
        let whole = serde_json::to_vec(&ranks("a", &[(12, None), (11, Some(1.0))])).unwrap();
        assert_eq!(read_json::<Said>(&whole, MOST_BYTES), Ok(ranks("a", &[(12, None), (11, Some(1.0))])));
        for at in 0..whole.len() {
            let _ = read_json::<Said>(&whole[..at], MOST_BYTES);
        }
    }
}
