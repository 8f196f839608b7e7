//! The table of a job's ranks.

use crate::top::{Rank, Ranks, State};
use hostcall::trace::escaped;
use std::collections::BTreeSet;
use std::fmt::Write as _;

const HEAD: [&str; 13] = [
    "rank", "machine", "process", "calls/s", "errors/s", "posts/s", "waiting", "longest", "queued",
    "launches", "failed", "lost", "state",
];

/// Columns of texts. The others are numbers.
const TEXTS: [usize; 2] = [1, 12];

/// Clears a terminal's screen, of which the cursor is at the beginning then.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// What is said of answers that are not taken, behind their number.
pub const REFUSED: &str = "answers refused, since they are none, too long, or of another version";

/// Returns the table, with a line about all of it. As a screen it has as many rows as the terminal, with
/// those ranks first of which there is something to say.
pub fn text(ranks: &Ranks, left_out: u64, refused: u64, is_screen: bool) -> String {
    let mut rows: Vec<&Rank> = ranks.all().collect();
    let mut text = if is_screen { CLEAR.to_owned() } else { String::new() };
    let _ = writeln!(text, "{}", summary(&rows, left_out, refused));
    let most = if is_screen { height().saturating_sub(4).max(1) } else { usize::MAX };
    let hidden = rows.len().saturating_sub(most);
    if hidden > 0 {
        let longest = |rank: &Rank| rank.counted.as_ref().map_or(0.0, |counted| counted.longest_s);
        // Stable: as they were among equals.
        rows.sort_by(|a, b| {
            let place = |rank: &Rank| match rank.state {
                State::Answers => 2,
                State::Gone => 1,
                State::Late | State::Silent(_) | State::NotHeard => 0,
            };
            place(a).cmp(&place(b)).then_with(|| longest(b).total_cmp(&longest(a)))
        });
        rows.truncate(most);
    }
    let mut cells = vec![HEAD.map(str::to_owned)];
    cells.extend(rows.into_iter().map(cells_of));
    let widths: [usize; HEAD.len()] =
        std::array::from_fn(|column| cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0));
    for row in &cells {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let _ = match TEXTS.contains(&column) {
                true => write!(line, "{cell:<width$}  "),
                false => write!(line, "{cell:>width$}  "),
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if hidden > 0 {
        let _ = writeln!(text, "and {hidden} more, which --json has too");
    }
    text.push('\n');
    text
}

fn summary(rows: &[&Rank], left_out: u64, refused: u64) -> String {
    let hosts: BTreeSet<&str> = rows.iter().map(|rank| &*rank.who.host).collect();
    let count = |is: fn(State) -> bool| rows.iter().filter(|rank| is(rank.state)).count() as u64;
    let sum = |at: usize| rows.iter().filter_map(|rank| shown(rank)).fold(0.0, |sum, rates| sum + rates[at]);
    let plural = |of: usize, what: &str| format!("{of} {what}{}", if of == 1 { "" } else { "s" });
    let mut said = format!(
        "{} on {}; calls {}/s, errors {}/s, posts {}/s",
        plural(rows.len(), "rank"),
        plural(hosts.len(), "machine"),
        short(sum(0)),
        short(sum(1)),
        short(sum(2))
    );
    for (count, what) in [
        (count(|state| matches!(state, State::Silent(_))), "silent"),
        (count(|state| state == State::Gone), "gone"),
        (count(|state| state == State::NotHeard), "on machines that are not heard"),
        (count(|state| state == State::Late), "without an answer in time"),
        (left_out, "left out, since there are too many"),
        (refused, REFUSED),
    ] {
        if count > 0 {
            let _ = write!(said, "; {count} {what}");
        }
    }
    said
}

/// Returns what a rank does a second, if it does anything now.
fn shown(rank: &Rank) -> Option<[f64; 3]> {
    rank.a_second.filter(|_| rank.state == State::Answers)
}

fn cells_of(rank: &Rank) -> [String; HEAD.len()] {
    let none = || "-".to_owned();
    let [calls, errors, posts] =
        shown(rank).map_or_else(|| [none(), none(), none()], |rates| rates.map(short));
    let now = rank.counted.as_ref().filter(|_| rank.state == State::Answers);
    let level = |of: Option<u64>| of.map_or_else(none, |of| of.to_string());
    let counted = rank.counted.as_ref();
    let lost = counted.map_or_else(none, |counted| match counted.lost_bytes {
        0 => counted.lost.to_string(),
        bytes => format!("{} + {bytes} B", counted.lost),
    });
    [
        rank.who.rank.map_or_else(none, |rank| rank.to_string()),
        escaped(&rank.who.host).into_owned(),
        rank.who.pid.to_string(),
        calls,
        errors,
        posts,
        level(now.map(|now| now.waiting)),
        now.map_or_else(none, |now| if now.waiting > 0 { seconds(now.longest_s) } else { none() }),
        level(now.map(|now| now.queued)),
        level(now.map(|now| now.launches)),
        level(counted.map(|counted| counted.failed_launches)),
        lost,
        match rank.state {
            State::Answers => String::new(),
            State::Late => "no answer in time".to_owned(),
            State::Silent(silent_s) => format!("silent for {silent_s:.0} s"),
            State::Gone => "gone".to_owned(),
            State::NotHeard => "not heard".to_owned(),
        },
    ]
}

/// A number with a prefix of a thousand's powers.
fn short(value: f64) -> String {
    match value {
        ..1e4 => format!("{value:.0}"),
        ..1e7 => format!("{:.1} k", value / 1e3),
        ..1e10 => format!("{:.1} M", value / 1e6),
        _ => format!("{:.1} G", value / 1e9),
    }
}

fn seconds(value: f64) -> String {
    match value {
        ..1e-2 => format!("{:.0} µs", value * 1e6),
        ..1e1 => format!("{:.0} ms", value * 1e3),
        _ => format!("{value:.0} s"),
    }
}

/// Returns how many lines the terminal has.
fn height() -> usize {
    rustix::termios::tcgetwinsize(std::io::stdout()).map_or(24, |size| size.ws_row.into())
}
