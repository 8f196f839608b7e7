//! Numbers of launches. Those that run side by side have different places in the channel's cancel table, so that
//! none takes the place of another one's cancellation.

use hostcall_abi::layout::CANCEL_WORDS;
use std::sync::{Condvar, Mutex, PoisonError};

/// Counts launches.
pub(crate) struct LaunchNumbers {
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    next: u64,
    /// Places of the cancel table that launches have which have not ended.
    taken: [bool; CANCEL_WORDS],
}

fn place(number: u64) -> usize {
    (number % CANCEL_WORDS as u64) as usize
}

impl LaunchNumbers {
    /// Counts from 1.
    pub fn new() -> Self {
        let state = State { next: 1, taken: [false; CANCEL_WORDS] };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// The next number whose place is free. Waits while as many launches run as there are places.
    pub fn take(&self) -> LaunchNumber<'_> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let numbers = state.next..state.next + CANCEL_WORDS as u64;
            if let Some(number) = numbers.into_iter().find(|number| !state.taken[place(*number)]) {
                state.taken[place(number)] = true;
                state.next = number + 1;
                return LaunchNumber { number, numbers: self };
            }
            state = self.freed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The number of a launch. Its place is free again when this is dropped.
pub(crate) struct LaunchNumber<'n> {
    number: u64,
    numbers: &'n LaunchNumbers,
}

impl LaunchNumber<'_> {
    pub fn get(&self) -> u64 {
        self.number
    }
}

impl Drop for LaunchNumber<'_> {
    fn drop(&mut self) {
        let mut state = self.numbers.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.taken[place(self.number)] = false;
        drop(state);
        self.numbers.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn launches_side_by_side_have_places_of_their_own() {
        let numbers = LaunchNumbers::new();
        let first = numbers.take();
        assert_eq!(first.get(), 1);
        for number in 2..=CANCEL_WORDS as u64 {
            assert_eq!(numbers.take().get(), number);
        }
        // The place after the last one is the first launch's, which still runs.
        let mut running = vec![first];
        running.extend((1..CANCEL_WORDS).map(|_| numbers.take()));
        let mut places: Vec<usize> = running.iter().map(|number| place(number.get())).collect();
        places.sort_unstable();
        assert_eq!(places, (0..CANCEL_WORDS).collect::<Vec<_>>());
        assert_eq!(running[1].get(), CANCEL_WORDS as u64 + 2);

        let (sender, taken) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let number = numbers.take();
                sender.send(number.get()).expect("it is waited for");
            });
            assert!(taken.try_recv().is_err());
            let ended = running.remove(7).get();
            assert_eq!(taken.recv().map(place), Ok(place(ended)));
        });
    }
}
