//! The screen of `hostcall trace top` and `hostcall top`.

use super::{
    METHOD_HEAD, POINT_HEAD, STREAM_HEAD, Shown, Source, head, method_cells, point_cells, stream_cells,
};
use crate::Outcome;
use crate::spawn;
use crate::wait::BY_SIGNAL;
use ratatui::Frame;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{LeaveAlternateScreen, disable_raw_mode};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table};
use rustix::termios::{Action, OptionalActions, QueueSelector, tcflow, tcflush, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::time::{Duration, Instant};

/// Between two looks at the keyboard.
const KEYS_EVERY: Duration = Duration::from_millis(100);

/// How long the first screen is waited for at most, where the others come less often.
const FIRST_AFTER: Duration = Duration::from_secs(1);

/// Between two looks at whether a signal came, or the terminal went.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Between two tries to make room for the orders to leave the screen.
const ROOM_EVERY: Duration = Duration::from_millis(10);

/// How long the loop of the screen has to end by itself after a signal, and the terminal to be given back
/// after that. Both take milliseconds, but for a machine so busy that threads do not get to run for a second
/// or two; a terminal that is left too soon stays as it is. Who does not want to wait sends a second signal.
const GRACE: Duration = Duration::from_secs(3);

/// The signals that end a program, for which the terminal is given back first.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Which of two threads writes to the terminal: the loop of the screen, and the one that watches for
/// signals.
#[derive(Default)]
struct Writers {
    /// A thread gives the terminal back, and is the only one that does. The command ends then.
    is_ending: AtomicBool,
    /// The loop of the screen draws.
    draws: Mutex<()>,
}

impl Writers {
    /// Returns when the loop of the screen may draw.
    fn draw(&self) -> MutexGuard<'_, ()> {
        self.draws.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says whether the caller is to give the terminal back: the first one is.
    fn may_end(&self) -> bool {
        !self.is_ending.swap(true, Ordering::AcqRel)
    }
}

/// What somebody wants of the screen.
enum Wanted {
    Nothing,
    /// The terminal has another size.
    Redrawn,
    /// To leave, with this exit code.
    Quit(i32),
}

/// Shows the screen until `q` is pressed, or a signal ends the command.
pub(super) fn run(source: &mut impl Source, every: Duration) -> Outcome {
    let (signal, writers) = (Arc::new(AtomicI32::new(0)), Arc::<Writers>::default());
    watch(signal.clone(), writers.clone()).map_err(|error| format!("cannot watch for signals: {error}"))?;
    let initialized = {
        let _draws = writers.draw();
        ratatui::try_init()
    };
    let mut terminal = match initialized {
        Ok(terminal) => terminal,
        Err(error) => {
            // It may have done a part of it.
            let _ = ratatui::try_restore();
            return cannot_use(&error);
        }
    };
    let result = (|| {
        let (mut last, mut is_over) = (None::<Shown>, false);
        let (mut began, mut wait) = (Instant::now(), every.min(FIRST_AFTER));
        loop {
            let is_next = if is_over {
                // Nothing changes any more.
                std::thread::sleep(KEYS_EVERY);
                false
            } else {
                let until = (began + wait).min(Instant::now() + KEYS_EVERY);
                is_over = source.read_until(until)?;
                is_over || began.elapsed() >= wait
            };
            if is_next {
                last = Some(source.take(began.elapsed()));
                (began, wait) = (Instant::now(), every);
            }
            let is_resized = match wanted(&signal) {
                Ok(Wanted::Quit(code)) => return Ok(code),
                Ok(Wanted::Redrawn) => true,
                Ok(Wanted::Nothing) => false,
                Err(error) => return cannot_use(&error),
            };
            if (is_next || is_resized)
                && let Some(shown) = &last
            {
                let _draws = writers.draw();
                if let Err(error) = terminal.draw(|frame| draw(frame, shown)) {
                    return cannot_use(&error);
                }
            }
        }
    })();
    while !writers.may_end() {
        // The other thread gives the terminal back, and ends the command.
        std::thread::sleep(GRACE);
    }
    discard_output();
    // A terminal that is gone needs nothing. To drop it, and `restore`, would say so, and panic where
    // nothing takes that either.
    if terminal.show_cursor().is_err() {
        std::mem::forget(terminal);
    }
    let _ = ratatui::try_restore();
    result
}

/// What an error of the terminal ends the command with.
fn cannot_use(error: &io::Error) -> Outcome {
    // It is gone.
    if !io::stdin().is_terminal() {
        return Ok(BY_SIGNAL + SIGHUP);
    }
    Err(format!("cannot use the terminal: {error}").into())
}

/// Starts a thread that leaves the number of a signal that ends a program in `signal`, and ends the command
/// itself at the second one, or where the loop of the screen does not end soon: that one may wait for a
/// file system, for the rest of a key's escape sequence, or for a terminal that takes nothing.
fn watch(signal: Arc<AtomicI32>, writers: Arc<Writers>) -> io::Result<()> {
    let mut signals = Signals::new(ENDING)?;
    let watch = move || {
        let mut first = None::<(i32, Instant)>;
        loop {
            // Of a terminal that is gone the loop may read the end for ever, and not all processes are told
            // by a signal.
            let is_gone = first.is_none() && !io::stdin().is_terminal();
            for number in signals.pending().chain(is_gone.then_some(SIGHUP)) {
                match first {
                    None => {
                        signal.store(number, Ordering::Relaxed);
                        first = Some((number, Instant::now()));
                    }
                    Some(_) => end(number, &writers),
                }
            }
            if let Some((number, since)) = first
                && since.elapsed() >= GRACE
            {
                end(number, &writers);
            }
            std::thread::sleep(SIGNALS_EVERY);
        }
    };
    spawn("hostcall-signals", watch)
}

/// Gives the terminal back and ends the command as this signal would.
fn end(signal: i32, writers: &Arc<Writers>) -> ! {
    // Its modes are set without a write, which a terminal that takes nothing would let wait.
    let _ = disable_raw_mode();
    let (done, given_back) = mpsc::channel();
    let writers = writers.clone();
    let give_back = move || {
        if writers.may_end() {
            give_back(&writers);
            let _ = done.send(());
        } else {
            // The loop of the screen does.
            std::thread::sleep(GRACE);
        }
    };
    if spawn("hostcall-terminal", give_back).is_ok() {
        let _ = given_back.recv_timeout(GRACE);
    }
    std::process::exit(BY_SIGNAL + signal)
}

/// Leaves the terminal's other screen, while the loop of the screen may draw it: that may wait for a
/// terminal that takes nothing, and is not to write between or behind these orders.
fn give_back(writers: &Writers) {
    let draws = loop {
        match writers.draws.try_lock() {
            Ok(draws) => break draws,
            Err(TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                discard_output();
                // Linux does not wake who waits for room when output is dropped, but when modes are set.
                if let Ok(modes) = tcgetattr(io::stdout()) {
                    let _ = tcsetattr(io::stdout(), OptionalActions::Now, &modes);
                }
            }
        }
        std::thread::sleep(ROOM_EVERY);
    };
    discard_output();
    // Not by the standard library's buffer, which may have a part of a screen that could not be written.
    let terminal = io::stdout().as_fd().try_clone_to_owned().map(File::from);
    let mut orders = Vec::new();
    let _ = queue!(orders, LeaveAlternateScreen, Show);
    let _ = terminal.and_then(|mut terminal| terminal.write_all(&orders));
    // The command ends, and nothing is drawn any more.
    std::mem::forget(draws);
}

/// Drops what the terminal has not taken, and has it take more if it was stopped: nobody misses a part of a
/// screen that is left, and the orders to leave it need the room.
fn discard_output() {
    let _ = tcflush(io::stdout(), QueueSelector::OFlush);
    let _ = tcflow(io::stdout(), Action::OOn);
}

/// Looks at what came since it was called last: a signal, `q`, escape or what interrupts a program, or
/// another size.
fn wanted(signal: &AtomicI32) -> io::Result<Wanted> {
    match signal.load(Ordering::Relaxed) {
        0 => {}
        number => return Ok(Wanted::Quit(BY_SIGNAL + number)),
    }
    let mut wanted = Wanted::Nothing;
    loop {
        // Of a terminal that is gone `poll` reads the end for ever.
        if !io::stdin().is_terminal() {
            return Ok(Wanted::Quit(BY_SIGNAL + SIGHUP));
        }
        if !event::poll(Duration::ZERO)? {
            return Ok(wanted);
        }
        match event::read()? {
            Event::Key(key) => {
                let is_interrupt =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(Wanted::Quit(0));
                }
            }
            Event::Resize(..) => wanted = Wanted::Redrawn,
            _ => {}
        }
    }
}

fn table<const N: usize>(head: [&'static str; N], rows: Vec<[String; N]>) -> Table<'static> {
    let widths = (0..N).map(|column| if column == 0 { Constraint::Fill(1) } else { Constraint::Length(11) });
    let head = Row::new(head).style(Style::new().add_modifier(Modifier::BOLD));
    Table::new(rows.into_iter().map(Row::new), widths).header(head)
}

fn list(title: &'static str, lines: &[String]) -> Paragraph<'static> {
    let lines: Vec<_> = lines.iter().map(|line| Line::from(line.clone())).collect();
    Paragraph::new(lines).block(Block::new().borders(Borders::TOP).title(title))
}

/// Lines of a table of so many rows, which is left out where there are none.
fn lines_of_table(rows: usize) -> u16 {
    match rows {
        0 => 0,
        rows => rows.min(10) as u16 + 2,
    }
}

/// Draws the screen: the whole, methods, streams, trace points, who waits, the slowest callers.
fn draw(frame: &mut Frame<'_>, shown: &Shown) {
    let head = head(shown);
    let [streams, points] = [shown.streams.len(), shown.points.len()].map(lines_of_table);
    let [of_head, of_methods, of_streams, of_points, of_waits, of_slowest, of_keys] = Layout::vertical([
        Constraint::Length(head.len() as u16),
        Constraint::Fill(2),
        Constraint::Length(streams),
        Constraint::Length(points),
        Constraint::Fill(1),
        // Processes do not say which.
        Constraint::Length(if shown.slowest.is_empty() { 0 } else { shown.slowest.len() as u16 + 1 }),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let lines: Vec<_> = head.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines), of_head);
    let title = format!("methods, over {:.1} s", shown.over_s);
    let methods = table(METHOD_HEAD, shown.methods.iter().map(method_cells).collect());
    frame.render_widget(methods.block(Block::new().borders(Borders::TOP).title(title)), of_methods);
    if streams > 0 {
        let rows = table(STREAM_HEAD, shown.streams.iter().map(stream_cells).collect());
        frame.render_widget(rows.block(Block::new().borders(Borders::TOP).title("streams")), of_streams);
    }
    if points > 0 {
        let rows = table(POINT_HEAD, shown.points.iter().map(point_cells).collect());
        frame.render_widget(rows.block(Block::new().borders(Borders::TOP).title("trace points")), of_points);
    }
    frame.render_widget(list("who waits", &shown.waits), of_waits);
    frame.render_widget(list("slowest callers", &shown.slowest), of_slowest);
    frame.render_widget(Line::from("q quits").style(Style::new().add_modifier(Modifier::DIM)), of_keys);
}

#[cfg(test)]
mod tests {
    use super::super::counts::{MethodShown, PointShown, StreamShown};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    #[test]
    fn the_screen_has_all_parts_at_any_size() {
        let shown = Shown {
            at_s: 12.34,
            over_s: 1.0,
            devices: vec!["cpu (hostcall)".into()],
            calls: 1000,
            calls_a_second: 52_000.0,
            lost: vec!["3 calls were dropped".into()],
            methods: vec![MethodShown {
                name: "Shop::price".into(),
                calls_a_second: 52_000.0,
                posts_a_second: 0.0,
                waiting: 0.25,
                p50_ns: 4000,
                p99_ns: 40_000,
                most_ns: 500_000_000,
                failed: 1,
            }],
            streams: vec![StreamShown {
                name: "accesses".into(),
                bytes_a_second: 1.6e9,
                records_a_second: 1e8,
                bytes: 320,
                dropped: 5,
                overwritten: 0,
            }],
            points: vec![PointShown {
                name: "step".into(),
                kind: "span",
                a_second: 70_000.0,
                all: 123_456,
                times_ns: Some([1500, 20_000]),
                value: None,
            }],
            waits: vec!["Shop::price for 1.5 s".into()],
            slowest: vec!["Shop::price: 500 ms".into()],
            ..Shown::default()
        };
        let mut terminal = Terminal::new(TestBackend::new(100, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &shown)).unwrap();
        let screen = terminal.backend().to_string();
        for part in [
            "12.3 s; cpu (hostcall)",
            "calls 1000, 52.0 k/s, 0 failed",
            "lost: 3 calls were dropped",
            "methods, over 1.0 s",
            "500.0 ms",
            "accesses",
            "1600.0 M",
            "trace points",
            "step",
            "70.0 k",
            "20.0 µs",
            "who waits",
            "Shop::price for 1.5 s",
            "slowest callers",
            "q quits",
        ] {
            assert!(screen.contains(part), "{part}:\n{screen}");
        }
        for (width, height) in [(1, 1), (20, 5), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &shown)).unwrap();
        }
    }
}
