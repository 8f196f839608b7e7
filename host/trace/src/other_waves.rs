//! Waves of kernels that others launch. They have no home slots, and nobody says when they end.

use foldhash::HashMap;
use hostcall_abi::launch::LaunchId;
use hostcall_abi::trace::PointKind;

/// Waves that are remembered, besides those in a span.
const KNOWN_WAVES: usize = 1024;

/// Most waves in a span that are remembered. Ends may be lost.
const MOST_WAVES: usize = 1 << 16;

/// Whose records are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Wave {
    pub launch: LaunchId,
    /// Of a wave of others first the slot of its pages, and then one that no other such wave has at the same time.
    pub slot: u32,
    pub workgroup: u32,
    pub wave: u32,
}

/// The records of a page, by the waves that wrote them.
pub(crate) struct Parts {
    /// The page's slot.
    pub slot: u32,
    pub waves: Vec<(Wave, Vec<u8>)>,
}

impl Parts {
    /// No records yet.
    pub fn new(slot: u32) -> Self {
        Self { slot, waves: Vec::new() }
    }

    /// The records of this wave, of which the last ones most likely are, too.
    pub fn of(&mut self, wave: Wave) -> &mut Vec<u8> {
        let known = self.waves.iter().rposition(|(of, _)| *of == wave);
        let at = known.unwrap_or(self.waves.len());
        if at == self.waves.len() {
            self.waves.push((wave, Vec::new()));
        }
        &mut self.waves[at].1
    }
}

/// Gives waves slots, which traces tell them apart by: a wave keeps its slot while it is in a span, and mostly longer.
#[derive(Default)]
pub(crate) struct OtherWaves {
    /// The slots, behind that of the pages, and how many spans are open.
    waves: HashMap<Wave, (u32, u32)>,
    /// Slots of waves that are forgotten, the first ones last.
    free: Vec<u32>,
    /// How many waves are known when some are forgotten.
    forget_at: usize,
}

impl OtherWaves {
    /// The wave with its slot, as it says something of this kind.
    pub fn slot_of(&mut self, wave: Wave, kind: PointKind) -> Wave {
        if !self.waves.contains_key(&wave) && self.waves.len() >= self.forget_at.max(KNOWN_WAVES) {
            self.forget();
        }
        let next = (self.waves.len() + self.free.len()) as u32;
        let free = &mut self.free;
        let (slot, open) = self.waves.entry(wave).or_insert_with(|| (free.pop().unwrap_or(next), 0));
        match kind {
            PointKind::Begin => *open += 1,
            PointKind::End => *open = open.saturating_sub(1),
            PointKind::Counter | PointKind::Event => {}
        }
        Wave { slot: wave.slot.saturating_add(1).saturating_add(*slot), ..wave }
    }

    fn forget(&mut self) {
        let free = &mut self.free;
        let keeps_some = self.waves.values().filter(|(_, open)| *open > 0).count() < MOST_WAVES;
        self.waves.retain(|_, (slot, open)| {
            let is_kept = keeps_some && *open > 0;
            if !is_kept {
                free.push(*slot);
            }
            is_kept
        });
        free.sort_unstable_by(|a, b| b.cmp(a));
        self.forget_at = 2 * self.waves.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_in_a_span_keep_their_slots() {
        let mut others = OtherWaves::default();
        let mut slot =
            |workgroup, kind| others.slot_of(Wave { slot: 100, workgroup, ..Wave::default() }, kind).slot;
        assert_eq!(slot(7, PointKind::Begin), 101);
        for workgroup in 10..10_000 {
            assert!((102..102 + KNOWN_WAVES as u32).contains(&slot(workgroup, PointKind::Counter)));
            assert_eq!(slot(7, PointKind::Event), 101);
        }
        assert_eq!(slot(7, PointKind::End), 101);
        // Spans whose ends are lost are not remembered for ever.
        let most = 3 * MOST_WAVES as u32;
        assert!((0..most).all(|workgroup| slot(workgroup, PointKind::Begin) < 102 + most));
        assert!(others.waves.len() <= MOST_WAVES + KNOWN_WAVES);
    }
}
