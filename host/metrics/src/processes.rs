//! What several processes have counted, as numbers that never fall: processes that have ended go on counting here, as long as
//! this process runs.

use hostcall::watch::{self, Metrics, Request, WatchError};
use std::collections::{BTreeMap, HashMap};

/// Processes that are told apart of those that are there no more.
const MOST_GONE: usize = 4096;

/// Ranks that are told apart of processes that have ended; a rank may be any number.
const MOST_RANKS: usize = 4096;

/// The processes that were seen.
#[derive(Default)]
pub struct Processes {
    /// By number.
    now: HashMap<u32, Metrics>,
    /// What those had counted that were there no more, by number and by when they had begun: one that has no device open is not
    /// there, and may have one again.
    gone: HashMap<(u32, u64), Metrics>,
    /// The same of more than are told apart, by rank.
    ended: BTreeMap<Option<u64>, Metrics>,
}

impl Processes {
    /// Looks at processes, or at all of this user's where none is named. Returns what those of one rank, and those without one,
    /// have counted together. A process that does not answer counts what it had counted before.
    pub fn look(&mut self, named: &[u32]) -> Vec<Metrics> {
        let mut seen = HashMap::new();
        let answers = watch::ask_all(named, &Request::Metrics).map(|all| all.answers);
        for (pid, answer) in answers.unwrap_or_default() {
            match answer {
                Ok(metrics) => _ = seen.insert(pid, metrics),
                Err(WatchError::NotThere(_) | WatchError::OtherUser(_)) => {}
                Err(_) => seen.extend(self.now.remove(&pid).map(|before| (pid, before))),
            }
        }
        self.take(seen)
    }

    /// Returns what each of the processes has counted that were seen last.
    pub fn each(&self) -> Vec<Metrics> {
        self.now.values().cloned().collect()
    }

    fn take(&mut self, now: HashMap<u32, Metrics>) -> Vec<Metrics> {
        for (pid, before) in std::mem::replace(&mut self.now, now) {
            // Another process may have the number.
            if self.now.get(&pid).is_none_or(|now| now.who.since != before.who.since) {
                if self.gone.len() < MOST_GONE {
                    let key = (pid, before.who.since.to_bits());
                    self.gone.insert(key, before);
                    continue;
                }
                let rank = before.who.rank.filter(|_| self.ended.len() < MOST_RANKS);
                let devices = before.devices.into_iter().map(|device| device.ended()).collect();
                self.ended.entry(rank).or_default().add(Metrics::new(before.who, devices));
            }
        }
        let now = &self.now;
        self.gone.retain(|(pid, since), _| now.get(pid).is_none_or(|now| now.who.since.to_bits() != *since));
        let mut all = self.ended.clone();
        for before in self.gone.values() {
            let devices = before.devices.iter().map(|device| device.clone().ended()).collect();
            all.entry(before.who.rank).or_default().add(Metrics::new(before.who.clone(), devices));
        }
        for metrics in self.now.values() {
            all.entry(metrics.who.rank).or_default().add(metrics.clone());
        }
        all.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hostcall::watch::{DeviceMetrics, Identity};

    fn metrics(rank: Option<u64>, since: f64, packets: u64) -> Metrics {
        let mut who = Identity::default();
        (who.rank, who.since) = (rank, since);
        let mut device = DeviceMetrics::default();
        (device.name, device.open, device.packets) = ("cpu".into(), 1, packets);
        Metrics::new(who, vec![device])
    }

    #[test]
    fn numbers_do_not_fall_when_a_process_ends() {
        let mut processes = Processes::default();
        let mut look = |now: &[(u32, Metrics)]| {
            let all = processes.take(now.iter().cloned().collect());
            let of = |metrics: &Metrics| {
                let [device] = &metrics.devices[..] else { panic!("one device") };
                (metrics.who.rank, device.open, device.packets)
            };
            all.iter().map(of).collect::<Vec<_>>()
        };
        let (first, second) = (metrics(None, 1.0, 5), metrics(None, 2.0, 7));
        assert_eq!(look(&[(1, first.clone()), (2, second)]), [(None, 2, 12)]);
        assert_eq!(look(&[(1, first.clone())]), [(None, 1, 12)]);
        // Another process with the same number, and one with a rank.
        assert_eq!(
            look(&[(1, metrics(None, 3.0, 1)), (4, metrics(Some(0), 3.0, 2))]),
            [(None, 1, 13), (Some(0), 1, 2)]
        );
        assert_eq!(look(&[]), [(None, 0, 13), (Some(0), 0, 2)]);
        // One of them has a device again.
        assert_eq!(look(&[(1, metrics(None, 3.0, 4))]), [(None, 1, 16), (Some(0), 0, 2)]);
    }
}
