//! Several launches as one value.

use hostcall_abi::launch::{LaunchId, LaunchRun};
use smallvec::{SmallVec, smallvec};

/// Launches that are looked for together: in what is kept of many, each once.
#[derive(Clone, Debug, Default)]
pub struct LaunchSet {
    /// By their ids. No launch is in two of them.
    runs: SmallVec<[LaunchRun; 1]>,
}

impl LaunchSet {
    /// Whether the launch is one of them.
    pub fn contains(&self, id: LaunchId) -> bool {
        let later = self.runs.partition_point(|run| run.first() <= id);
        later > 0 && self.runs[later - 1].contains(id)
    }

    /// Each launch that began alone, and those that began together, in the order of their ids.
    pub(crate) fn runs(&self) -> impl Iterator<Item = LaunchRun> {
        self.runs.iter().copied()
    }

    pub(crate) fn retain_runs(&mut self, mut keep: impl FnMut(LaunchRun) -> bool) {
        self.runs.retain(|run| keep(*run));
    }

    /// The launches, in the order of their ids.
    pub fn ids(&self) -> impl Iterator<Item = LaunchId> {
        self.runs().flat_map(LaunchRun::ids)
    }
}

impl FromIterator<LaunchRun> for LaunchSet {
    fn from_iter<I: IntoIterator<Item = LaunchRun>>(runs: I) -> Self {
        let mut runs: SmallVec<_> = runs.into_iter().collect();
        runs.sort_unstable_by_key(|run: &LaunchRun| run.first());
        Self { runs }
    }
}

impl<T: Into<LaunchRun>> From<T> for LaunchSet {
    fn from(launches: T) -> Self {
        Self { runs: smallvec![launches.into()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_launches_alone() {
        let single = LaunchId::new(7, 3);
        let row = LaunchRun::new(LaunchId::new(100, 2), 10);
        let set: LaunchSet = [single.into(), row].into_iter().collect();
        assert!(
            set.ids().eq(row.ids().chain([single])),
            "by their ids, of which generations are the upper bits"
        );
        assert!(set.ids().all(|id| set.contains(id)));
        for other in [LaunchId::new(99, 2), LaunchId::new(110, 2), LaunchId::new(7, 2), LaunchId::new(8, 3)] {
            assert!(!set.contains(other), "{other}");
        }
        assert!(!LaunchSet::default().contains(single) && LaunchSet::from(single).contains(single));
    }
}
