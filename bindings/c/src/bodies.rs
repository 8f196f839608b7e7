//! Graphs whose work a condition decides about when they are replayed.

use crate::buffer::hostcall_buffer;
use crate::device::hostcall_device;
use crate::error::Failure;
use crate::functions::functions;
use crate::graph::hostcall_graph;
use crate::handle::{get, values};
use hostcall::device::ValueType;
use hostcall::graph::{Condition, Graph, NodeId};
use std::ffi::c_void;

/// What decides about the bodies of a graph. It is looked at when everything before it in the replay is done, and again after
/// each turn of a body that is repeated. Any thread may use it; it is the caller's, who frees it. Graphs keep what it needs.
pub struct hostcall_condition(Condition);

/// Returns a condition's number. One of the library's threads calls it: several where several instances replay. It may use the
/// device, but not wait for the replay's stream, and must return.
pub type hostcall_condition_function = Option<unsafe extern "C" fn(state: *mut c_void) -> u32>;

/// Makes a graph of one node.
fn one(
    device: &hostcall_device,
    add: impl FnOnce(&mut Graph) -> Result<NodeId, hostcall::Error>,
) -> Result<hostcall_graph, hostcall::Error> {
    let mut graph = Graph::new(&device.device);
    add(&mut graph)?;
    Ok(hostcall_graph(graph))
}

functions! {
    /// Makes a condition of the number in a buffer of one HOSTCALL_KIND_U32, which kernels write through a `&Global<u32>` or an
    /// atomic.
    make hostcall_condition_word(word: &hostcall_buffer) -> hostcall_condition as condition {
        let hostcall_buffer { bytes, of } = word;
        if *of != ValueType::of::<u32>() {
            return Err(Failure::invalid("a condition's buffer is one of HOSTCALL_KIND_U32"));
        }
        hostcall_condition(Condition::word_bytes(bytes)?)
    }

    /// Makes a condition of what a function returns. `free_state` gets `state` when nobody can call it any more, on any thread, or
    /// when this function fails.
    make hostcall_condition_call(
        function: hostcall_condition_function;
        state
    ) -> hostcall_condition as condition {
        let function = get(function, "function")?;
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        hostcall_condition(Condition::function(move || unsafe { function(state.pointer()) }))
    }

    /// Frees a condition and sets the handle to NULL; graphs that have it keep it. NULL is let be.
    free hostcall_condition_free(condition: hostcall_condition) { drop(condition) }

    /// Makes a graph of one node: `then` is done if the condition is not 0, else `otherwise`, which may be NULL. It has both as
    /// they are now. hostcall_stream_add_graph puts it among other work.
    make hostcall_graph_if(
        device: &hostcall_device,
        condition: &hostcall_condition,
        then: &hostcall_graph,
        otherwise: Option<&hostcall_graph>,
    ) -> hostcall_graph as graph {
        one(device, |graph| match otherwise {
            Some(otherwise) => graph.add_if_else(&condition.0, &then.0, &otherwise.0),
            None => graph.add_if(&condition.0, &then.0),
        })?
    }

    /// Makes a graph of one node: `body` is done again and again, as long as the condition is not 0, which is looked at before
    /// each turn. It has the body as it is now. hostcall_stream_add_graph puts it among other work.
    make hostcall_graph_while(
        device: &hostcall_device,
        condition: &hostcall_condition,
        body: &hostcall_graph,
    ) -> hostcall_graph as graph {
        one(device, |graph| graph.add_while(&condition.0, &body.0))?
    }

    /// Makes a graph of one node: of `count` bodies the one is done whose place the condition's number is, from 0, and none if
    /// there is no such place. It has the bodies as they are now. hostcall_stream_add_graph puts it among other work.
    make hostcall_graph_switch(
        device: &hostcall_device,
        condition: &hostcall_condition,
        bodies: *const *const hostcall_graph,
        count: usize,
    ) -> hostcall_graph as graph {
        // SAFETY: CALLER.
        let bodies = unsafe { values(bodies, count, "bodies") }?;
        let mut graphs = Vec::with_capacity(bodies.len());
        for body in bodies {
            // SAFETY: CALLER: it is NULL or a graph.
            graphs.push(&get(unsafe { body.as_ref() }, "a body")?.0);
        }
        one(device, |graph| graph.add_switch(&condition.0, &graphs))?
    }
}
