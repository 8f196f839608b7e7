//! The wait table.

use super::*;
use crate::waits::{ToldWait, WaitTable, Waits};
use hostcall_abi::waits::{Entry, Head, table_words};

/// Two waves take one entry in turn while the host reads: what it believes is one wave's.
#[test]
fn entries_are_read_whole() {
    model(2, || {
        let table: Arc<[AtomicU64]> = (0..table_words(1)).map(|_| AtomicU64::new(0)).collect();
        let (holders, untold) = (Arc::new([AtomicU64::new(0)]), Arc::new(AtomicU64::new(0)));
        let wave = |peer: u32| {
            let (table, holders, untold) = (table.clone(), holders.clone(), untold.clone());
            move || {
                let waits = Waits::of(&table, &holders[..], &untold);
                let head = Head { peer, lanes: 1, wave: 0, kind: 1, lap: 0 };
                let number = u64::from(peer);
                let entry = Entry { place: number, sequence: number, address: number, ..Entry::default() };
                let told = waits.begin(LAUNCH, 0, head, &entry, ToldWait::NONE);
                if told != ToldWait::COUNTED {
                    waits.end(LAUNCH, told);
                }
            }
        };
        let waves = [thread::spawn(wave(1)), thread::spawn(wave(2))];
        let host = WaitTable::of(&table, 1);
        if let Some((head, entry)) = host.read(0) {
            let number = u64::from(head.peer);
            assert!((1..=2).contains(&number));
            assert_eq!([entry.place, entry.sequence, entry.address], [number; 3]);
        }
        waves.into_iter().for_each(|wave| wave.join().unwrap());
        assert_eq!(host.read(0), None);
    });
}
