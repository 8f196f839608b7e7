//! Graphs whose work a condition decides about when they are replayed.

use crate::buffer::hostcall_buffer;
use crate::device::hostcall_device;
use crate::error::{Failure, hostcall_error, hostcall_status, run};
use crate::graph::hostcall_graph;
use crate::handle::{self, Out, State, get, hostcall_free_function, place, put, values};
use hostcall::device::ValueType;
use hostcall::graph::{Condition, Graph, NodeId};
use std::ffi::c_void;

/// What decides about the bodies of a graph. It is looked at when everything before it in the replay is done, and again after
/// each turn of a body that is repeated. Any thread may use it; it is the caller's, who frees it. Graphs keep what it needs.
pub struct hostcall_condition(Condition);

/// Returns a condition's number. One of the library's threads calls it: several where several instances replay. It may use the
/// device, but not wait for the replay's stream, and must return.
pub type hostcall_condition_function = Option<unsafe extern "C" fn(state: *mut c_void) -> u32>;

/// Makes a condition of the number in a buffer of one HOSTCALL_KIND_U32, which kernels write through a `&Global<u32>` or an
/// atomic.
pub extern "C" fn hostcall_condition_word(
    word: Option<&hostcall_buffer>,
    condition: Out<'_, hostcall_condition>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(condition, "condition")?;
        let hostcall_buffer { bytes, of } = get(word, "word")?;
        if *of != ValueType::of::<u32>() {
            return Err(Failure::invalid("a condition's buffer is one of HOSTCALL_KIND_U32"));
        }
        put(place, hostcall_condition(Condition::word_bytes(bytes)?));
        Ok(())
    })
}

/// Makes a condition of what a function returns. `free_state` gets `state` when nobody can call it any more, on any thread, or
/// when this function fails.
pub extern "C" fn hostcall_condition_call(
    function: hostcall_condition_function,
    state: *mut c_void,
    free_state: hostcall_free_function,
    condition: Out<'_, hostcall_condition>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    let state = State::new(state, free_state);
    run(error, || {
        let (place, function) = (place(condition, "condition")?, get(function, "function")?);
        // SAFETY: CALLER: it is a function of its type, which gets its state.
        let condition = Condition::function(move || unsafe { function(state.pointer()) });
        put(place, hostcall_condition(condition));
        Ok(())
    })
}

/// Frees a condition and sets the handle to NULL; graphs that have it keep it. NULL is let be.
pub extern "C" fn hostcall_condition_free(condition: Option<&mut *mut hostcall_condition>) {
    handle::free(condition);
}

/// Makes a graph of one node.
fn put_graph(
    place: &mut *mut hostcall_graph,
    device: Option<&hostcall_device>,
    add: impl FnOnce(&mut Graph) -> Result<NodeId, hostcall::Error>,
) -> Result<(), Failure> {
    let mut graph = Graph::new(&get(device, "device")?.device);
    add(&mut graph)?;
    put(place, hostcall_graph(graph));
    Ok(())
}

/// Makes a graph of one node: `then` is done if the condition is not 0, else `otherwise`, which may be NULL. It has both as
/// they are now. hostcall_stream_add_graph puts it among other work.
pub extern "C" fn hostcall_graph_if(
    device: Option<&hostcall_device>,
    condition: Option<&hostcall_condition>,
    then: Option<&hostcall_graph>,
    otherwise: Option<&hostcall_graph>,
    graph: Out<'_, hostcall_graph>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(graph, "graph")?;
        let (condition, then) = (&get(condition, "condition")?.0, &get(then, "then")?.0);
        put_graph(place, device, |graph| match otherwise {
            Some(otherwise) => graph.add_if_else(condition, then, &otherwise.0),
            None => graph.add_if(condition, then),
        })
    })
}

/// Makes a graph of one node: `body` is done again and again, as long as the condition is not 0, which is looked at before
/// each turn. It has the body as it is now. hostcall_stream_add_graph puts it among other work.
pub extern "C" fn hostcall_graph_while(
    device: Option<&hostcall_device>,
    condition: Option<&hostcall_condition>,
    body: Option<&hostcall_graph>,
    graph: Out<'_, hostcall_graph>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(graph, "graph")?;
        let (condition, body) = (&get(condition, "condition")?.0, &get(body, "body")?.0);
        put_graph(place, device, |graph| graph.add_while(condition, body))
    })
}

/// Makes a graph of one node: of `count` bodies the one is done whose place the condition's number is, from 0, and none if
/// there is no such place. It has the bodies as they are now. hostcall_stream_add_graph puts it among other work.
pub unsafe extern "C" fn hostcall_graph_switch(
    device: Option<&hostcall_device>,
    condition: Option<&hostcall_condition>,
    bodies: *const *const hostcall_graph,
    count: usize,
    graph: Out<'_, hostcall_graph>,
    error: Out<'_, hostcall_error>,
) -> hostcall_status {
    run(error, || {
        let place = place(graph, "graph")?;
        let condition = &get(condition, "condition")?.0;
        // SAFETY: CALLER.
        let bodies = unsafe { values(bodies, count, "bodies") }?;
        let mut graphs = Vec::with_capacity(bodies.len());
        for body in bodies {
            // SAFETY: CALLER: it is NULL or a graph.
            graphs.push(&get(unsafe { body.as_ref() }, "a body")?.0);
        }
        put_graph(place, device, |graph| graph.add_switch(condition, &graphs))
    })
}
