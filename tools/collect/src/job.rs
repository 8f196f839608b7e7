//! What the collector knows of a job, and what it says of it.
//!
//! Of each rank it keeps a name, a few numbers and the lines that have not ended, so that a rank takes as
//! much memory among thousands as alone.

use crate::clocks::Clock;
use crate::wire::{Item, Key, What, Who};
use hostcall::trace::escaped;
use hostcall::watch::Failure;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// Ranks that are kept. Those that have ended make room for others.
const MOST_RANKS: usize = 1 << 16;

/// Longest line, and sinks of a rank that have lines of their own.
const MOST_LINE_BYTES: usize = 4 << 10;
const MOST_SINKS: usize = 4;

/// After how long without more a line that has not ended is printed.
const UNFINISHED: Duration = Duration::from_secs(1);

/// How long after the end of a rank's name it is waited for how the rank ended, or for the end of its agent's
/// name. What comes later counts too.
const END_TOLD: Duration = Duration::from_millis(600);

/// The agent of ranks that are followed without one.
pub const HERE: &str = "";

#[derive(Debug)]
struct Rank {
    who: Who,
    agent: String,
    /// Up to where its text was heard. `None` before anything was.
    heard: Option<u64>,
    missed: u64,
    failures: u64,
    missed_failures: u64,
    lines: Vec<Line>,
    is_silent: bool,
    end: End,
    has_died: bool,
    /// Since when its name is gone.
    gone: Option<Instant>,
}

/// What is known of a rank's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Lives,
    /// It has ended, and nobody has said how.
    Unknown,
    Known,
}

impl Rank {
    fn new(who: &Who, agent: &str) -> Self {
        Self {
            who: who.clone(),
            agent: agent.to_owned(),
            heard: None,
            missed: 0,
            failures: 0,
            missed_failures: 0,
            lines: Vec::new(),
            is_silent: false,
            end: End::Lives,
            has_died: false,
            gone: None,
        }
    }

    fn lives(&self) -> bool {
        self.end == End::Lives
    }
}

/// A line that has not ended.
#[derive(Debug)]
struct Line {
    sink: u64,
    text: String,
    since: Instant,
}

/// A failure, and when it was by the collector's clock.
#[derive(Clone, Debug)]
struct Placed {
    who: Who,
    failure: Failure,
    at_s: f64,
    within_s: f64,
}

/// A job as it is known here.
#[derive(Debug, Default)]
pub struct Job {
    ranks: HashMap<Key, Rank>,
    clocks: HashMap<String, Clock>,
    /// Agents that are gone with ranks that had not ended: their machines, and
    /// whether other agents of these have told of ranks since.
    away: HashMap<String, (String, bool)>,
    first: Option<Placed>,
    /// Text that ranks have printed, line by line.
    printed: String,
    /// What there is to say of them.
    said: Vec<String>,
    refused: u64,
    ranks_left_out: u64,
}

impl Job {
    /// Takes what there is to print: the ranks' lines, and sentences.
    pub fn output(&mut self) -> (String, Vec<String>) {
        (std::mem::take(&mut self.printed), std::mem::take(&mut self.said))
    }

    /// Takes that an agent has announced a rank.
    pub fn named(&mut self, agent: &str, who: &Who) {
        if let Some(rank) = self.known(agent, who) {
            (rank.gone, rank.end) = (None, if rank.end == End::Known { End::Known } else { End::Lives });
        }
    }

    /// Returns a rank as this agent may speak of it, which is noted if it is new.
    fn known(&mut self, agent: &str, who: &Who) -> Option<&mut Rank> {
        let key = who.key();
        if let Some((host, is_back)) = self.away.remove(agent)
            && !is_back
        {
            self.said.push(format!("{host} is heard again"));
        }
        if !self.ranks.contains_key(&key) {
            if self.ranks.len() >= MOST_RANKS {
                self.ranks.retain(|_, rank| rank.lives());
            }
            if self.ranks.len() >= MOST_RANKS {
                self.ranks_left_out += 1;
                return None;
            }
            self.ranks.insert(key.clone(), Rank::new(who, agent));
        }
        let rank = self.ranks.get_mut(&key)?;
        // Two agents of one machine follow the same ranks: the first one counts, as long as it is there.
        if rank.agent != agent
            && let Some((host, is_back)) = self.away.get_mut(&rank.agent)
        {
            rank.agent = agent.to_owned();
            if !std::mem::replace(is_back, true) {
                self.said.push(format!("{host} is heard again"));
            }
        }
        Some(rank).filter(|rank| rank.agent == agent)
    }

    /// Takes what happened to a rank, as an agent says it.
    pub fn take(&mut self, agent: &str, item: Item) {
        let Item { who, what } = item;
        let key = who.key();
        let Some(rank) = self.known(agent, &who) else { return };
        // Its end may be told after its name has ended.
        if !rank.lives() && (rank.end == End::Known || !matches!(what, What::Ended { .. })) {
            return;
        }
        if let What::Text { position, .. } | What::So { position, .. } = what
            && rank.heard.is_none()
        {
            // What it printed before anybody collected was not missed.
            rank.heard = Some(position);
            if position > 0 {
                self.said.push(format!("{who} has printed {} before", bytes(position)));
            }
        }
        match what {
            What::Text { sink, position, text } => self.text(&key, sink, position, &text),
            What::Failed { failure } => self.failed(&key, failure),
            What::So { position, failure, failures, silent_s } => {
                self.missed(&key, position);
                if let Some(failure) = failure {
                    self.failed(&key, failure);
                }
                let Some(rank) = self.ranks.get_mut(&key) else { return };
                let new = failures.saturating_sub(rank.failures);
                if new > 0 {
                    rank.failures = failures;
                    rank.missed_failures = rank.missed_failures.saturating_add(new);
                    self.said.push(format!("{who}: {new} of its errors are missing here"));
                }
                match (silent_s, rank.is_silent) {
                    (Some(silent_s), false) => self.said.push(format!(
                        "{who} has said nothing for {silent_s:.1} s: it is stopped, or its machine has too much to do"
                    )),
                    (None, true) => self.said.push(format!("{who} speaks again")),
                    _ => {}
                }
                rank.is_silent = silent_s.is_some();
            }
            What::Ended { was_open } => self.ended(&key, was_open, ""),
        }
    }

    fn missed(&mut self, key: &Key, position: u64) {
        let Some(rank) = self.ranks.get_mut(key) else { return };
        let missed = rank.heard.map_or(0, |heard| position.saturating_sub(heard));
        if missed > 0 {
            rank.heard = Some(position);
            rank.missed = rank.missed.saturating_add(missed);
            let who = rank.who.clone();
            self.flush(key, Duration::ZERO);
            self.said.push(format!("{who}: {} of what it printed are missing here", bytes(missed)));
        }
    }

    fn text(&mut self, key: &Key, sink: u64, position: u64, text: &str) {
        self.missed(key, position);
        let Some(rank) = self.ranks.get_mut(key) else { return };
        rank.heard = rank.heard.max(Some(position.saturating_add(text.len() as u64)));
        // Of more sinks than have lines, these are one's.
        let sink = if rank.lines.len() < MOST_SINKS { sink } else { sink % MOST_SINKS as u64 };
        let at = rank.lines.iter().position(|line| line.sink == sink);
        let mut line = match at {
            Some(at) => rank.lines.swap_remove(at),
            None => Line { sink, text: String::new(), since: Instant::now() },
        };
        let mark = mark(&rank.who);
        for piece in text.split_inclusive('\n') {
            line.text.push_str(piece.trim_end_matches('\n'));
            if piece.ends_with('\n') || line.text.len() >= MOST_LINE_BYTES {
                let _ = writeln!(self.printed, "{mark}{}", escaped(&line.text));
                line.text.clear();
            }
        }
        if !line.text.is_empty() {
            line.since = Instant::now();
            rank.lines.push(line);
        }
    }

    /// Prints lines that have not ended and have waited for so long.
    fn flush(&mut self, key: &Key, waited: Duration) {
        let Some(rank) = self.ranks.get_mut(key) else { return };
        let mark = mark(&rank.who);
        for line in rank.lines.extract_if(.., |line| line.since.elapsed() >= waited) {
            let _ = writeln!(self.printed, "{mark}{}", escaped(&line.text));
        }
    }

    fn failed(&mut self, key: &Key, failure: Failure) {
        let Some(rank) = self.ranks.get_mut(key) else { return };
        if failure.number <= rank.failures {
            return;
        }
        // The first of its errors may come again later, where it was missed.
        rank.missed_failures = rank.missed_failures.saturating_add(failure.number - rank.failures - 1);
        let is_its_first = rank.failures == 0;
        rank.failures = failure.number;
        if !is_its_first {
            return;
        }
        // The agent's clock may not have been compared yet.
        let clock = match self.clocks.get(&rank.agent) {
            Some(clock) => *clock,
            None if rank.agent == HERE => Clock::default(),
            None => Clock { within_s: f64::INFINITY, ..Clock::default() },
        };
        let placed = Placed {
            who: rank.who.clone(),
            at_s: clock.here(failure.at_s),
            within_s: clock.within_s,
            failure,
        };
        let sentence = sentence(&placed);
        match &self.first {
            None => {
                self.said.push(format!("first error: {sentence}"));
                self.first = Some(placed);
            }
            Some(first) if placed.at_s < first.at_s => {
                let (before_s, within_s) = (first.at_s - placed.at_s, first.within_s + placed.within_s);
                let within = match within_s.is_finite() {
                    true => format!("give or take {:.3} ms", within_s * 1e3),
                    false => "by clocks that are not compared".to_owned(),
                };
                self.said
                    .push(format!("an error {:.3} ms before that, {within}: {sentence}", before_s * 1e3));
                self.first = Some(placed);
            }
            Some(_) => self.said.push(format!("error: {sentence}")),
        }
    }

    fn ended(&mut self, key: &Key, was_open: bool, how: &str) {
        self.flush(key, Duration::ZERO);
        let Some(rank) = self.ranks.get_mut(key).filter(|rank| rank.end != End::Known) else { return };
        (rank.has_died, rank.gone) = (was_open, None);
        rank.end = if how.is_empty() { End::Known } else { End::Unknown };
        rank.lines = Vec::new();
        let who = &rank.who;
        self.said.push(match was_open {
            true if how.is_empty() => {
                format!("{who} has died: it was killed, or ended without closing its devices")
            }
            true => format!("{who} has ended: {how}"),
            false => format!("{who} has ended"),
        });
    }

    /// Takes how an agent's clock is.
    pub fn clock(&mut self, agent: &str, clock: Clock) {
        self.clocks.insert(agent.to_owned(), clock);
    }

    /// Takes that a rank's name, as an agent announces it, is gone.
    pub fn gone(&mut self, agent: &str, key: &Key) {
        if let Some(rank) = self.ranks.get_mut(key).filter(|rank| rank.agent == agent && rank.lives()) {
            rank.gone = Some(Instant::now());
        }
    }

    /// Takes that an agent is gone, and that nothing is known of the ranks that it follows until it comes
    /// back, or another one for its machine.
    pub fn lost(&mut self, agent: &str) {
        self.clocks.remove(agent);
        let mut lost = Vec::new();
        for rank in self.ranks.values_mut().filter(|rank| rank.agent == agent && rank.lives()) {
            rank.gone = None;
            lost.push(rank.who.clone());
        }
        let Some(first) = lost.first() else { return };
        let host = first.host.clone();
        self.said.push(format!(
            "{host} is not heard any more, since what collects there was ended or killed, or the link to it is lost; \
             its ranks: {}",
            names(&lost)
        ));
        self.away.insert(agent.to_owned(), (host, false));
    }

    /// Does what time alone has come for.
    pub fn tick(&mut self) {
        let keys: Vec<Key> = self
            .ranks
            .iter()
            .filter(|(_, rank)| !rank.lines.is_empty())
            .map(|(key, _)| key.clone())
            .collect();
        keys.iter().for_each(|key| self.flush(key, UNFINISHED));
        let is_gone = |rank: &Rank| {
            !self.away.contains_key(&rank.agent) && rank.gone.is_some_and(|since| since.elapsed() >= END_TOLD)
        };
        let gone: Vec<Key> =
            self.ranks.iter().filter(|(_, rank)| is_gone(rank)).map(|(key, _)| key.clone()).collect();
        gone.iter().for_each(|key| self.ended(key, true, "how is not known here"));
    }

    /// Notes that a message was refused.
    pub fn refuse(&mut self, why: &str) {
        if self.refused == 0 {
            self.said.push(format!("a message is refused: {why}"));
        }
        self.refused += 1;
    }

    /// Says whether ranks were there, and all of them have ended.
    pub fn is_over(&self) -> bool {
        !self.ranks.is_empty() && self.ranks.values().all(|rank| !rank.lives())
    }

    /// Says whether some rank failed or died.
    pub fn has_failed(&self) -> bool {
        self.first.is_some() || self.ranks.values().any(|rank| rank.has_died)
    }

    /// Returns what there is to say in the end.
    pub fn summary(&self) -> Vec<String> {
        let mut said = Vec::new();
        let of = |is: fn(&Rank) -> bool| -> Vec<Who> {
            self.ranks.values().filter(|rank| is(rank)).map(|rank| rank.who.clone()).collect()
        };
        let counts = [
            ("ranks", of(|_| true)),
            ("failed", of(|rank| rank.failures > 0)),
            ("died", of(|rank| rank.has_died)),
            ("silent", of(|rank| rank.is_silent && rank.lives())),
        ];
        let counts = counts.iter().filter(|(what, of)| *what == "ranks" || !of.is_empty());
        let counts = counts.map(|(what, of)| format!("{what}: {}", names(of)));
        said.push(counts.collect::<Vec<_>>().join("; "));
        if let Some(first) = &self.first {
            said.push(format!("first error: {}", sentence(first)));
        }
        let missed: u64 = self.ranks.values().fold(0, |sum, rank| sum.saturating_add(rank.missed));
        let failures: u64 = self.ranks.values().fold(0, |sum, rank| sum.saturating_add(rank.missed_failures));
        if missed > 0 || failures > 0 {
            said.push(format!(
                "missing here: {} of what ranks printed, {failures} of their errors",
                bytes(missed)
            ));
        }
        if self.refused > 0 || self.ranks_left_out > 0 {
            said.push(format!(
                "refused: {} messages, and {} of ranks for which there was no room",
                self.refused, self.ranks_left_out
            ));
        }
        said
    }
}

fn bytes(count: u64) -> String {
    format!("{count} byte{}", if count == 1 { "" } else { "s" })
}

/// What stands before each line of a rank.
fn mark(who: &Who) -> String {
    match who.rank {
        Some(rank) => format!("[rank {rank}] "),
        None => format!("[{} {}] ", escaped(&who.host), who.pid),
    }
}

/// As `rank 3 (process 17 on node-b): kernel relax on cpu panicked, at 12:30:01.250000 UTC`.
fn sentence(placed: &Placed) -> String {
    let Placed { who, failure, at_s, .. } = placed;
    let day_s = at_s.rem_euclid(86_400.0);
    let (hours, minutes, seconds) = ((day_s / 3600.0) as u32, (day_s / 60.0) as u32 % 60, day_s % 60.0);
    format!(
        "{who}: {} (device {}, at {hours:02}:{minutes:02}:{seconds:09.6} UTC)",
        failure.text.trim_end(),
        failure.device
    )
}

/// Names ranks, those in a row by the first and the last.
fn names(all: &[Who]) -> String {
    let mut ranks: Vec<u64> = all.iter().filter_map(|who| who.rank).collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == rank => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let of_run = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let mut said: Vec<String> = runs.iter().take(32).map(of_run).collect();
    if runs.len() > said.len() {
        said.push("others".to_owned());
    }
    let mut others = BTreeMap::<&str, u64>::new();
    for who in all.iter().filter(|who| who.rank.is_none()) {
        *others.entry(&who.host).or_default() += 1;
    }
    said.extend(others.iter().take(8).map(|(host, count)| format!("{count} without a rank on {host}")));
    format!("{} ({})", all.len(), said.join(", "))
}
