//! Circles through handlers: a launch waits for its call, whose handler waits for another launch, and so on.
//!
//! A thread that runs a handler says what it waits for while it is inside a function of the library ([`ThreadState`]). Waits that
//! never end are refused there; what is found here is waits that do not end yet, such as those with a limit.

use super::culprits::{Member, circles, rank_of};
use super::state::{HandledCall, LaunchOf, Process, ThreadState, Wait};
use std::collections::HashMap;

/// Says whether a thread runs the handler of a call that waits for it: one whose call has ended holds up nobody.
pub(super) fn is_waited_for(process: &Process, call: &HandledCall) -> bool {
    let mut devices = process.devices.iter().filter(|device| device.number == call.of.device);
    devices.any(|device| {
        let mut groups = device.groups.iter();
        groups.any(|group| {
            let is_its = group.launch.as_ref().is_none_or(|launch| *launch == call.of.launch);
            is_its && group.service == call.service && group.waits_for.ends_with("Handler")
        })
    })
}

/// Says whether a thread has waited since an earlier look.
fn has_stood(before: Option<&Process>, thread: &ThreadState) -> bool {
    before.is_some_and(|before| {
        before.threads.iter().any(|then| {
            let is_same = (&then.handles, &then.waits_in, &then.waits_for)
                == (&thread.handles, &thread.waits_in, &thread.waits_for);
            is_same && then.waited_s < thread.waited_s
        })
    })
}

/// Returns what a wait says, with what its handler waits for.
pub(super) fn all_of(process: &Process, wait: &Wait) -> String {
    let is_its = |thread: &&ThreadState| {
        let call = thread.handles.as_ref();
        call.is_some_and(|call| call.of.launch == wait.launch && call.service == wait.service)
    };
    let mut text = wait.text.clone();
    if let Some(thread) = process.threads.iter().find(is_its) {
        text.push_str(&format!(", which has waited in {} for {:.1} s", thread.waits_in, thread.waited_s));
        if let Some(launch) = thread.waits_for.first() {
            text.push_str(&format!(" for launch {}", launch.launch));
        }
    }
    text
}

/// Returns the kernel of a launch, if the process tells it.
pub(super) fn kernel_of<'a>(process: &'a Process, of: &LaunchOf) -> &'a str {
    let Some(device) = process.devices.iter().find(|device| device.number == of.device) else { return "" };
    let launch = device.launches.iter().find(|launch| launch.id == of.launch).map(|launch| &launch.kernel);
    let group = || device.groups.iter().find(|group| group.launch.as_ref() == Some(&of.launch));
    launch.or_else(|| group().map(|group| &group.kernel)).map_or("", String::as_str)
}

/// Returns the circles within processes, each of launches and of the handlers between them.
pub(super) fn circles_of(before: &[Process], processes: &[Process]) -> Vec<Vec<Member>> {
    let mut found = Vec::new();
    for process in processes {
        let before = before.iter().find(|then| then.who.place() == process.who.place());
        let threads: Vec<(&ThreadState, &HandledCall)> = process
            .threads
            .iter()
            .filter(|thread| has_stood(before, thread))
            .filter_map(|thread| Some((thread, thread.handles.as_ref()?)))
            .filter(|(_, call)| is_waited_for(process, call))
            .collect();
        // Threads that answer calls of a launch, which waits for them.
        let mut of_launch = HashMap::<&LaunchOf, Vec<usize>>::new();
        for (at, (_, call)) in threads.iter().enumerate() {
            of_launch.entry(&call.of).or_default().push(at);
        }
        // A thread waits for the threads that a launch waits for which it waits for.
        let after = |thread: &ThreadState| {
            let launches = thread.waits_for.iter().filter_map(|launch| of_launch.get(launch));
            launches.flatten().copied().collect::<Vec<usize>>()
        };
        let next: Vec<Vec<usize>> = threads.iter().map(|(thread, _)| after(thread)).collect();
        let of = rank_of(&process.who);
        let members = |at: &usize| {
            let (thread, call) = threads[*at];
            let kernel = kernel_of(process, &call.of).to_owned();
            let LaunchOf { device, launch } = call.of.clone();
            let launch = Member::Launch { of: of.clone(), device, launch, kernel };
            let (service, waits_in) = (call.service.clone(), thread.waits_in.clone());
            [launch, Member::Handler { of: of.clone(), service, waits_in }]
        };
        found.extend(circles(&next).iter().map(|circle| circle.iter().flat_map(members).collect()));
    }
    found
}
