//! The longest line of a text, from parts of it that were looked at apart from each other.

use crate::count::character;
use crate::unprintable::is_unprintable;
use crate::width::columns;

/// Columns from one tab stop to the next.
const TAB: u64 = 8;

/// How far lines reach in a part of a text, for whatever column it begins in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// Columns up to the first tab or line end.
    pub before_tab: u64,
    /// Columns from the stop of the first tab to the end of the part's first line, if that has a tab.
    pub after_tab: Option<u64>,
    /// Once the first line has ended: how far those after it reach, up to the last, and that one itself.
    pub ended: Option<(u64, u64)>,
}

impl Columns {
    /// Where the first line ends that begins in column `from`.
    fn first_line(&self, from: u64) -> u64 {
        let tab = from + self.before_tab;
        self.after_tab.map_or(tab, |after| next_stop(tab) + after)
    }

    /// Columns of the longest line.
    pub fn longest(&self) -> u64 {
        let (longest, last) = self.ended.unwrap_or_default();
        self.first_line(0).max(longest).max(last)
    }

    /// The column of the line that goes on, counted from a tab stop or from where the part begins.
    fn column(&mut self) -> &mut u64 {
        match (&mut self.ended, &mut self.after_tab) {
            (Some((_, last)), _) => last,
            (None, Some(after)) => after,
            (None, None) => &mut self.before_tab,
        }
    }

    fn tab(&mut self) {
        match self {
            Self { ended: None, after_tab: after_tab @ None, .. } => *after_tab = Some(0),
            _ => {
                let column = self.column();
                *column = next_stop(*column);
            }
        }
    }

    fn end_line(&mut self) {
        let (longest, last) = self.ended.unwrap_or_default();
        self.ended = Some((longest.max(last), 0));
    }

    /// Goes on with the first `len` bytes of `text`, of which more may follow that end a character.
    pub fn add(&mut self, text: &[u8], len: usize) {
        for at in 0..len {
            match text[at] {
                b'\n' | b'\r' | b'\x0c' => self.end_line(),
                b'\t' => self.tab(),
                b' '..=b'~' => *self.column() += 1,
                0..=0x7f => {}
                _ => match character(&text[at..]) {
                    Some(c) if !is_unprintable(c) => *self.column() += columns(c),
                    _ => {}
                },
            }
        }
    }

    /// How far the lines of `self` and then `next` reach.
    pub fn join(self, next: Self) -> Self {
        match (self.ended, self.after_tab) {
            (Some((longest, last)), _) => {
                let line = next.first_line(last);
                let ended =
                    next.ended.map_or((longest, line), |(more, last)| (longest.max(line).max(more), last));
                Self { ended: Some(ended), ..self }
            }
            (None, Some(after)) => {
                Self { after_tab: Some(next.first_line(after)), ended: next.ended, ..self }
            }
            (None, None) => Self { before_tab: self.before_tab + next.before_tab, ..next },
        }
    }
}

fn next_stop(column: u64) -> u64 {
    (column / TAB + 1) * TAB
}
