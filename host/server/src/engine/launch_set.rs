//! Several launches as one value.

use hostcall_abi::launch::{LaunchId, LaunchIds};
use smallvec::{SmallVec, smallvec};

/// Launches that are looked for together: in what is kept of many, each once.
#[derive(Clone, Debug, Default)]
pub struct LaunchSet {
    /// By their ids. No launch is in two of them.
    lists: SmallVec<[LaunchIds; 1]>,
}

impl LaunchSet {
    /// Whether the launch is one of them.
    pub fn contains(&self, id: LaunchId) -> bool {
        let later = self.lists.partition_point(|list| list.first() <= id);
        later > 0 && self.lists[later - 1].contains(id)
    }

    /// Each launch that began alone, and those that began together, in the order of their ids.
    pub(crate) fn lists(&self) -> impl Iterator<Item = LaunchIds> {
        self.lists.iter().copied()
    }

    pub(crate) fn retain(&mut self, mut keep: impl FnMut(LaunchIds) -> bool) {
        self.lists.retain(|list| keep(*list));
    }

    /// The launches, in the order of their ids.
    pub fn ids(&self) -> impl Iterator<Item = LaunchId> {
        self.lists().flat_map(LaunchIds::ids)
    }
}

impl FromIterator<LaunchIds> for LaunchSet {
    fn from_iter<I: IntoIterator<Item = LaunchIds>>(lists: I) -> Self {
        let mut lists: SmallVec<_> = lists.into_iter().collect();
        lists.sort_unstable_by_key(|list: &LaunchIds| list.first());
        Self { lists }
    }
}

impl<T: Into<LaunchIds>> From<T> for LaunchSet {
    fn from(launches: T) -> Self {
        Self { lists: smallvec![launches.into()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_its_launches_alone() {
        let single = LaunchId::new(7, 3);
        let list = LaunchIds::new(LaunchId::new(100, 2), 10);
        let set: LaunchSet = [single.into(), list].into_iter().collect();
        assert!(
            set.ids().eq(list.ids().chain([single])),
            "by their ids, of which generations are the upper bits"
        );
        assert!(set.ids().all(|id| set.contains(id)));
        for other in [LaunchId::new(99, 2), LaunchId::new(110, 2), LaunchId::new(7, 2), LaunchId::new(8, 3)] {
            assert!(!set.contains(other), "{other}");
        }
        assert!(!LaunchSet::default().contains(single) && LaunchSet::from(single).contains(single));
    }
}
