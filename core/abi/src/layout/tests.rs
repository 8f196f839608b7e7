//! Layouts: places that do not overlap, sizes that are refused.

use super::*;

const LAYOUT: Layout = Layout {
    home_slots: 200,
    extra_slots: 30,
    lanes: 32,
    area_bytes: 4096,
    large_areas: 5,
    large_area_bytes: 65_536,
    ring_entries: RingEntries { first: 2048, early: 512, other: 256 },
};

#[test]
fn areas_do_not_overlap_and_are_aligned() {
    let small =
        [(1, 1), (7, 32), (64, 32), (4096, 64)].map(|(slots, lanes)| Layout::small(slots, lanes, 512, 4096));
    for layout in small.into_iter().chain([LAYOUT]) {
        let sizes = Sizes::from(layout.check().unwrap());
        let places = sizes.places;
        let (last, last_home) = (layout.slots() - 1, layout.home_slots - 1);
        assert!(header::CANCEL + CANCEL_WORDS <= places.doorbell(0) as usize);
        assert!(places.doorbell(last) < places.post_bell(0));
        assert!(places.post_bell(last_home) < places.ring_tail(0));
        assert!(places.ring_tail(last_home) < places.owner(0));
        assert!(places.owner(last) + 2 <= places.reply(0));
        assert!(places.line_stride >= 2 * layout.lanes);
        assert_eq!(places.reply(last) + places.line_stride, places.replies + places.plane);
        assert_eq!(places.replies + 4 * places.plane, places.requests);
        assert_eq!(places.requests + 4 * places.plane, places.area(0));
        assert!(places.area(last) + layout.area_bytes / 8 < places.large_area(0));
        assert!(places.large_area(layout.large_areas) <= places.rings);
        let mut end = places.rings;
        for slot in 0..layout.home_slots {
            let SlotPlaces { ring, ring_entries, .. } = sizes.slot(slot);
            assert!(ring >= end && ring % LINE_WORDS as u32 == 0, "slot {slot}");
            assert_eq!(ring_entries, layout.ring_entries.of(slot));
            end = ring + 2 * ring_entries;
        }
        assert!(end <= places.words);
        assert_eq!(u64::from(places.words), layout.words_needed());
        for stride in [places.line_stride, places.area_stride, places.large_area_stride] {
            assert_eq!(stride / LINE_WORDS as u32 % 2, 1);
        }
        for word in [
            places.doorbell(0),
            places.post_bells,
            places.ring_tails,
            places.owners,
            places.reply(1),
            places.request(1),
            places.area(1),
            places.large_area(1),
        ] {
            assert_eq!(word % LINE_WORDS as u32, 0);
        }
    }
}

#[test]
fn few_waves_of_a_multiprocessor_have_long_rings() {
    let rings = LAYOUT.ring_entries;
    assert_eq!([0, 64, 128].map(|slot| rings.of(slot)), [2048; 3]);
    assert_eq!([1, 7, 65, 71].map(|slot| rings.of(slot)), [512; 4]);
    assert_eq!([8, 63, 72, 191].map(|slot| rings.of(slot)), [256; 4]);
    assert_eq!(Sizes::from(LAYOUT).slot(200).ring_entries, 0);
}

#[test]
fn the_pairs_of_a_packet_have_places_and_laps_of_their_own() {
    // Whole waves take Miri too long.
    let waves: &[u32] = if cfg!(miri) { &[1, 7] } else { &[1, 7, 32, 64] };
    for &wave_lanes in waves {
        for (lanes, pairs) in (1..=wave_lanes).flat_map(|lanes| (1..=4).map(move |pairs| (lanes, pairs))) {
            let spreads = [Spread::request, Spread::reply].map(|of| of(lanes, pairs as usize, wave_lanes));
            for spread in spreads {
                let (mut places, mut laps) = (std::collections::HashSet::new(), [0u32; LAP_WORDS]);
                for (pair, rank) in (0..pairs).flat_map(|pair| (0..lanes).map(move |rank| (pair, rank))) {
                    let place = 2 * rank + pair * spread.step(1000);
                    assert!(places.insert(place) && place % 1000 + 2 <= 2 * wave_lanes);
                    let lap = spread.lap(pair, rank);
                    laps[lap as usize / 32] |= 1 << (lap % 32);
                }
                assert_eq!(places.len() as u32, laps.iter().map(|word| word.count_ones()).sum());
                for (i, laps) in (0..).zip(laps) {
                    assert_eq!(if i < spread.lap_words() { spread.flips(i) } else { 0 }, laps);
                    assert_eq!((spread.plane_flips(i as usize / 2) >> (i % 2 * 32)) as u32, laps);
                }
            }
        }
    }
}

/// A GPU fetches pairs of the same 32 bytes one after the other.
#[test]
fn the_pairs_of_a_lone_lane_s_reply_are_32_bytes_apart() {
    for pairs in 2..=4 {
        assert_eq!(8 * Spread::reply(1, pairs, 32).step(1000), 32);
        assert_eq!(8 * Spread::request(1, pairs, 32).step(1000), 16);
    }
}

#[test]
fn bad_sizes_are_refused() {
    let good = LAYOUT;
    assert_eq!(Layout { home_slots: 0, ..good }.check(), Err(LayoutError::Slots));
    assert_eq!(Layout { home_slots: 65_537, ..good }.check(), Err(LayoutError::Slots));
    assert_eq!(
        Layout { home_slots: u32::MAX, extra_slots: u32::MAX, ..good }.check(),
        Err(LayoutError::Slots)
    );
    assert_eq!(Layout { extra_slots: 65_337, ..good }.check(), Err(LayoutError::Slots));
    assert_eq!(Layout { lanes: 65, ..good }.check(), Err(LayoutError::Lanes));
    for entries in [100, 64, 1 << 17, u32::MAX] {
        let early = RingEntries { early: entries, ..good.ring_entries };
        assert_eq!(Layout { ring_entries: early, ..good }.check(), Err(LayoutError::Ring));
    }
    assert_eq!(Layout { area_bytes: 3, ..good }.check(), Err(LayoutError::Area));
    assert_eq!(Layout { large_area_bytes: 2048, ..good }.check(), Err(LayoutError::Area));
    assert_eq!(Layout { large_areas: 4097, ..good }.check(), Err(LayoutError::Area));
    let huge = Layout::small(65_536, 64, 65_536, 1 << 20);
    assert_eq!(huge.check(), Err(LayoutError::Words));
}
