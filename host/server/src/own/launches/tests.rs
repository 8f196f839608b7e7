use super::*;
use hostcall_abi::layout::Layout;

impl Launches {
    fn end_and_free(&self, launches: impl Into<LaunchIds>) -> Vec<(LaunchId, CancelReason)> {
        let ended = self.end(LaunchSet::from(launches));
        let endings: Vec<_> = ended.endings().filter(|(_, ending)| *ending != Ending::OK).collect();
        let cancelled = self.free(ended);
        assert!(cancelled.iter().map(|(id, why)| (*id, why.ending())).eq(endings));
        cancelled
    }
}

fn launches() -> Launches {
    Launches::new(Arc::new(SharedMemory::allocate(Layout::small(1, 1, 4, 64).check().unwrap())))
}

#[test]
fn ids_are_not_used_again_soon() {
    let launches = launches();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..5000 {
        let (id, is_only) = launches.begin(LaunchRecord::default()).unwrap();
        assert!(is_only && launches.is_live(id) && launches.is_known(id) && seen.insert(id));
        assert_eq!(launches.end_and_free(id), []);
        assert!(!launches.is_live(id) && !launches.is_known(id));
    }
    assert!(!launches.is_live(LaunchId::NONE) && !launches.is_known(LaunchId::NONE));
    let indices: std::collections::HashSet<_> = seen.iter().map(|id| id.index()).collect();
    assert_eq!(indices.len(), RESTING);
}

/// After the last generation of an index comes the first.
#[test]
fn generations_begin_again() {
    let launches = launches();
    for word in &launches.words {
        word.store((LaunchId::LAST_GENERATION - 1) << GENERATION, Ordering::Relaxed);
    }
    for generation in [LaunchId::LAST_GENERATION, 1, 2] {
        for _ in 0..RESTING {
            let (id, _) = launches.begin(LaunchRecord::default()).unwrap();
            assert_eq!(id.generation(), generation);
            assert!(launches.is_live(id) && launches.is_known(id));
            launches.cancel(id.into(), CancelReason::Asked);
            assert_eq!(launches.end_and_free(id), [(id, CancelReason::Asked)]);
            assert!(!launches.is_live(id) && !launches.is_known(id));
        }
    }
}

#[test]
fn launches_go_with_their_context() {
    let launches = launches();
    let with = |context| launches.begin(LaunchRecord { context, ..LaunchRecord::default() }).unwrap().0;
    let begin_context = || launches.begin_context(LaunchRecord::default()).unwrap();
    let (context, other) = (begin_context(), begin_context());
    let (one, two, of_other, none) = (with(context), with(context), with(other), with(LaunchId::NONE));
    assert_eq!(launches.of_context(context), [one, two]);
    // It is a context's id that has launches, and none's.
    assert!(launches.of_context(none).is_empty() && launches.of_context(LaunchId::NONE).is_empty());
    assert_eq!(
        [one, of_other, none, context].map(|id| launches.context_of(id)),
        [context, other, none, context]
    );
    // What went wrong with a context is no fault of its launches. What begins with one that is cancelled is cancelled too, and so
    // is what begins with one that is over.
    assert_eq!(launches.cancel(context.into(), CancelReason::BrokenSlot), [one, two]);
    let late = with(context);
    assert_eq!([one, two, late].map(|id| launches.cancelled(id)), [Some(CancelReason::Asked); 3]);
    assert!(!launches.is_live(late) && launches.is_known(late));
    let next = begin_context();
    launches.hand_over(context, next);
    launches.end_and_free(context);
    assert_eq!(launches.of_context(next), [one, two, late]);
    assert_eq!([one, late].map(|id| launches.context_of(id)), [next; 2]);
    assert!(!launches.is_live(with(context)) && launches.is_live(with(next)));
    launches.end_and_free(two);
    assert_eq!((launches.of_context(next).len(), launches.context_of(two)), (3, two));
    launches.end_and_free(other);
    assert_eq!(launches.context_of(of_other), of_other);
    assert!(launches.is_live(of_other));
}

/// A launch beside a context wakes the consumers as one that is alone does.
#[test]
fn a_context_is_no_launch_that_runs() {
    let launches = launches();
    let context = launches.begin_context(LaunchRecord::default()).unwrap();
    assert!(launches.is_live(context) && launches.is_known(context));
    assert_eq!((launches.count(), launches.contexts()), (0, 1));
    let (launch, is_only) = launches.begin(LaunchRecord::default()).unwrap();
    assert!(is_only);
    launches.cancel(context.into(), CancelReason::Asked);
    assert!(!launches.is_live(context) && launches.is_live(launch));
    assert_eq!(launches.end_and_free(context), [(context, CancelReason::Asked)]);
    assert_eq!((launches.count(), launches.contexts()), (1, 0));
    launches.end_and_free(launch);
    assert_eq!((launches.count(), launches.contexts()), (0, 0));
}

#[test]
fn a_cancellation_is_one_launchs() {
    let launches = launches();
    let [first, second] = [0, 1].map(|_| launches.begin(LaunchRecord::default()).unwrap().0);
    launches.cancel(first.into(), CancelReason::Asked);
    launches.cancel(first.into(), CancelReason::Closed);
    assert!(!launches.is_live(first) && launches.is_known(first) && launches.is_live(second));
    let words = launches.memory.region().words();
    assert!(words.cancelled(first) && !words.cancelled(second));
    assert_eq!(launches.end_and_free(first), [(first, CancelReason::Asked)]);
    launches.cancel(first.into(), CancelReason::Asked);
    assert!(!launches.memory.region().cancelled(first) && launches.cancelled(first).is_none());
    assert_eq!(launches.count(), 1);
}

#[test]
fn there_are_as_many_as_a_device_can_tell_apart() {
    let launches = launches();
    let ids: Vec<_> = (0..LAUNCHES).map(|_| launches.begin(LaunchRecord::default()).unwrap().0).collect();
    assert_eq!(launches.begin(LaunchRecord::default()), Err(TooManyLaunches));
    launches.end_and_free(ids[77]);
    let (again, _) = launches.begin(LaunchRecord::default()).unwrap();
    assert_eq!((again.index(), again.generation()), (ids[77].index(), ids[77].generation() + 1));
}

#[test]
fn launches_of_a_list_are_ones_own_until_they_end_together() {
    let launches = launches();
    let records: Arc<[LaunchRecord]> = (0..100)
        .map(|place| LaunchRecord { kernel: format!("kernel {place}").into(), ..LaunchRecord::default() })
        .collect();
    let (single, _) = launches.begin(LaunchRecord::default()).unwrap();
    let mut seen = std::collections::HashSet::new();
    for _ in 0..1000 {
        let (list, is_only) = launches.begin_list(&records).unwrap();
        assert!(!is_only && list.count() == 100 && launches.count() == 101);
        assert!(list.ids().all(|id| launches.is_live(id) && seen.insert(id)));
        assert_eq!(&*launches.record(list.get(57)).unwrap().kernel, "kernel 57");
        launches.cancel(list.get(57).into(), CancelReason::Panicked);
        launches.cancel(list.get(57).into(), CancelReason::Asked);
        assert_eq!(launches.cancelled(list.get(57)), Some(CancelReason::Panicked));
        assert!(!launches.is_live(list.get(57)) && launches.is_known(list.get(57)));
        assert!(launches.is_live(list.get(58)) && launches.ids().len() == 101);
        assert_eq!(launches.end_and_free(list.get(3)), []);
        assert_eq!(launches.end_and_free(list), [(list.get(57), CancelReason::Panicked)]);
        assert!(list.ids().all(|id| !launches.is_live(id) && !launches.is_known(id)));
        assert!(!launches.memory.region().cancelled(list.get(57)) && launches.end_and_free(list).is_empty());
    }
    // All at once, but for the one that was cancelled before.
    let (list, _) = launches.begin_list(&records).unwrap();
    launches.cancel(list.get(3).into(), CancelReason::Panicked);
    launches.cancel(list, CancelReason::Asked);
    let ended = launches.end_and_free(list);
    assert_eq!(launches.ended(), 1001 * 100);
    assert!(ended.iter().map(|(id, _)| *id).eq(list.ids()) && ended[3].1 == CancelReason::Panicked);
    assert!(ended.iter().filter(|(_, why)| *why == CancelReason::Asked).count() == 99);
    assert!(launches.is_live(single) && launches.count() == 1);
}

/// Lists take half of the ids at most; single launches get all that are free.
#[test]
fn lists_leave_ids_to_single_launches() {
    let launches = launches();
    let records: Arc<[LaunchRecord]> = vec![LaunchRecord::default(); 1000].into();
    let lists: Vec<_> = std::iter::from_fn(|| launches.begin_list(&records)).map(|(list, _)| list).collect();
    assert_eq!(lists.len() as u32, MOST_IN_SPANS / 1024);
    let single = || launches.begin(LaunchRecord::default());
    assert_eq!(std::iter::from_fn(|| single().ok()).count() as u32, LAUNCHES - MOST_IN_SPANS);
    lists.into_iter().for_each(|list| _ = launches.end_and_free(list));
    let ids: std::collections::HashSet<_> = std::iter::from_fn(|| single().ok()).map(|(id, _)| id).collect();
    assert_eq!(ids.len() as u32, MOST_IN_SPANS);
    assert!(launches.begin_list(&records).is_none() && launches.count() == LAUNCHES);
    // Once enough of them have ended, lists of any size get theirs, whose ids nobody has had.
    let mut left: Vec<_> = ids.iter().copied().collect();
    left.sort_unstable();
    left.into_iter().for_each(|id| _ = launches.end_and_free(id));
    for count in [1000, 3, 200] {
        let records: Arc<[LaunchRecord]> = vec![LaunchRecord::default(); count].into();
        let (list, _) = launches.begin_list(&records).unwrap();
        assert!(list.ids().all(|id| launches.is_live(id) && !ids.contains(&id)));
        assert!(launches.end_and_free(list).is_empty());
    }
}

/// Spans of one size make room for those of another, again and again.
#[test]
fn lists_of_changing_sizes_get_ids() {
    let launches = launches();
    let records = |count| -> Arc<[LaunchRecord]> { vec![LaunchRecord::default(); count].into() };
    for round in 0..3 {
        for count in [64, 1024] {
            let records = records(count);
            let begin = || launches.begin_list(&records).map(|(list, _)| list);
            let lists: Vec<_> = std::iter::from_fn(begin).collect();
            // A list may have a larger span than it needs.
            assert!(lists.len() as u32 >= MOST_IN_SPANS / 1024, "lists of {count} in round {round}");
            lists.into_iter().for_each(|list| _ = launches.end_and_free(list));
        }
    }
    assert!(launches.table.lock().spans.len() as u32 <= 2 * MOST_IN_SPANS / 64);
}

#[test]
fn the_oldest_come_first() {
    let launches = launches();
    let record = |kernel: &str| LaunchRecord { kernel: kernel.into(), ..LaunchRecord::default() };
    let (first, _) = launches.begin(record("first")).unwrap();
    let list: Arc<[LaunchRecord]> = [record("second"), record("third")].into();
    let (rest, _) = launches.begin_list(&list).unwrap();
    let context = launches.begin_context(record("context")).unwrap();
    launches.cancel(first.into(), CancelReason::TimedOut);
    let open = launches.oldest(10);
    assert_eq!(open.len(), 4);
    let of = |id| open.iter().find(|open| open.id == id).unwrap();
    assert_eq!((&*of(first).record.kernel, of(first).cancelled), ("first", Some(CancelReason::TimedOut)));
    assert_eq!(
        rest.ids().map(|id| of(id).record.kernel.to_string()).collect::<Vec<_>>(),
        ["second", "third"]
    );
    assert!(of(context).is_context && !of(first).is_context);
    assert!(open.is_sorted_by(|a, b| a.age >= b.age));
    assert_eq!(launches.oldest(1).len(), 1);
}
