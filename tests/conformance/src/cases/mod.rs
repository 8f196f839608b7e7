//! The cases, by what they are about.

mod atomics;
mod bytes;
mod callers;
mod calls;
mod closures;
mod foreign;
mod futures;
mod graphs;
mod grids;
mod lifecycle;
mod math;
mod panics;
mod parameters;
mod points;
mod posts;
mod print;
mod progress;
mod raw;
mod slots;
mod statuses;
mod streams;
mod system;
mod waits;
mod watchdog;
mod waves;
mod workgroups;

use crate::{Context, Outcome};
use hostcall::raw::Placement;

/// One test of the suite.
#[derive(Clone, Copy)]
pub struct Case {
    /// Module and function.
    pub name: &'static str,
    /// The test.
    pub run: fn(&Context) -> Outcome,
}

impl Case {
    /// Whether a GPU is of no use any more to the process after the case.
    pub fn is_fatal(&self) -> bool {
        self.name == "panics::null_write"
    }
}

macro_rules! cases {
    ($($module:ident: $($case:ident)*;)* @placed $placed:ident: $($of_placement:ident)*;) => {
        /// Every case. Those of raw channels run for direct pages and for staged ones.
        pub const CASES: &[Case] = &[
            $($(
                Case { name: concat!(stringify!($module), "::", stringify!($case)), run: $module::$case },
            )*)*
            $(
                Case {
                    name: concat!(stringify!($placed), "::", stringify!($of_placement)),
                    run: |context| $placed::$of_placement(context, Placement::Direct),
                },
                Case {
                    name: concat!(stringify!($placed), "::", stringify!($of_placement), "_staged"),
                    run: |context| $placed::$of_placement(context, Placement::Staged),
                },
            )*
        ];
    };
}

cases! {
    calls: words types partial_waves positions increments once divergence chosen few_slots many_workgroups services_run_in_any_way;
    posts: order rings_wrap rings_resized mixed sizes left_behind looked_for refused;
    posts: pending_calls pending_past_the_pool pending_beside_a_call forgotten_calls;
    futures: joined unordered chosen cancelled;
    bytes: lengths own_lengths megabyte small in_turn in_parts too_large;
    statuses: failures unsafe_methods timeouts default_service registered_while_running removed duplicates_are_refused;
    lifecycle: cancelled_while_waiting cancelled_between_calls broken_slots lost_call closed_with_calls_in_flight two_devices two_gpus several_consumers idle;
    streams: waiting_handlers_delay_nobody waiting_in_one_wave side_by_side in_order events handler_launches handlers_copy;
    streams: beside_a_full_device;
    progress: launches limits_and_cancellations cancelled_nodes events copies reads host_functions other_streams opened_from_another_stream replays synchronize;
    graphs: replays lists moves many_replays changed prints panics asks turns choices broken;
    print: types owned by_device generic order origins outputs while_running;
    foreign: records apart bytes dropped left_open captured;
    points: said;
    system: files folders maps environment stdin heap heap_leaks exit;
    panics: kinds values one_of_many null_write fault_beside_calls;
    waves: operations reduction numbers_of_waves spinning spinning_for_ever;
    workgroups: arrays together histogram in_turn missing;
    atomics: alone together of_other_crates shared_by_references;
    slots: beside_a_slow_call lanes_wait_for_each_other helper_beside_many_waves more_waves_than_slots panics_in_the_middle;
    slots: exits_in_the_middle at_the_bound;
    closures: continuous once panicking last_call stale;
    callers: told_in_any_way;
    parameters: of_every_kind many optional instances cells parts two_of_one_name;
    grids: shares own_shares of_all_sorts sorted;
    math: the_same_bits fast halves;
    watchdog: stuck_handler dead_wave;
    waits: flags cancelled;
    @placed raw: records described apart batches bytes dropped overwritten while_running killed readers_and_graphs;
}
