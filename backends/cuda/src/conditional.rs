//! Lists with bodies: kernels that the driver skips or repeats, as a kernel of this file decides when they
//! would begin.
//!
//! The driver's graph has a conditional node for each body. *Decide* is a kernel of one lane. It tells the
//! driver whether the body runs: once before the first body, for each of them, and in a repeated body again
//! behind its kernels.
//!
//! One turn of the driver's takes about 4 us, longer than a kernel that does nothing. So one turn of the
//! driver's holds several of the loop's ([`TURNS`]): four of up to four kernels, two of up to sixteen, if the
//! GPU runs each kernel's whole grid at once. Between them *go on*, also a kernel of one lane, looks at the
//! same words as *decide*. If the loop is over it stores 1 in the upper half of the list's second word; waves
//! load that word when they begin, and end at once. So a loop that ends starts the kernels of up to three
//! turns for nothing.
//!
//! One lane looks at the condition between two turns, not each wave: waves of one launch may begin after
//! others have written the word.

use crate::list::{Building, Last, List, Listed, doing, has_nodes_of_any_kind};
use crate::module::Function;
use crate::{Error, Gpu};
use cudarc::driver::sys;
use hostcall_seam::{BackendError, ConditionalList};
use std::ffi::c_void;
use std::ops::RangeInclusive;
use std::sync::Arc;

/// What both kernels look at: whether there is a turn, whether the launch's list may go on at all, and the turn's number.
macro_rules! looks {
    () => {
        "
    .reg .pred %goes, %above, %below, %counts, %over;
    .reg .b32 %word, %low, %high, %skips;
    .reg .b64 %word_at, %stop_at, %list_at, %last, %lanes, %host, %stop, %first, %turn;
    ld.param.u64 %word_at, [word];
    ld.param.u64 %stop_at, [stop];
    ld.param.u64 %list_at, [list];
    ld.volatile.global.u32 %word, [%word_at];
    ld.volatile.global.u64 %lanes, [%stop_at];
    ld.volatile.global.u64 %host, [%stop_at+8];
    ld.volatile.global.u64 %first, [%list_at];
    ld.volatile.global.u64 %turn, [%list_at+16];
    ld.volatile.global.u32 %skips, [%list_at+12];
    ld.param.u64 %last, [last];
    ld.param.u32 %low, [low];
    ld.param.u32 %high, [high];
    min.u64 %stop, %lanes, %host;
    add.u64 %last, %last, %first;
    setp.gt.u64 %counts, %stop, %last;
    setp.ge.u32 %above, %word, %low;
    setp.le.u32 %below, %word, %high;
    and.pred %goes, %above, %below;
    and.pred %goes, %goes, %counts;
    setp.le.u32 %over, %skips, 0;
    and.pred %goes, %goes, %over;
    add.u64 %turn, %turn, 1;
"
    };
}

/// *Decide* and *go on*. The driver has the function that *decide* calls, and finds it when it loads the text.
///
/// Their loads are volatile, since the host writes the second stop word at any time. Nothing else writes what counts turns:
/// the number of the turn at 16 bytes, and at 24 what the list's first word was then. When that changes it is stored first,
/// so that whoever finds a number and then the first word of a replay has a number of that replay or of one before. At 12
/// bytes is what lets kernels do nothing, which each launch of the list sets to 0.
const PTX: &str = concat!(
    "\
.version 7.0
.target sm_52
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry hostcall_decide(
    .param .u64 handle, .param .u64 word, .param .u32 low, .param .u32 high,
    .param .u64 stop, .param .u64 list, .param .u64 last, .param .u32 begins)
{
    .reg .pred %begins, %new;
    .reg .b32 %first_time, %value;
    .reg .b64 %handle;",
    looks!(),
    "\
    ld.param.u64 %handle, [handle];
    ld.param.u32 %first_time, [begins];
    setp.ne.u32 %begins, %first_time, 0;
    and.pred %new, %begins, %counts;
    selp.u64 %turn, 0, %turn, %begins;
    or.pred %begins, %begins, %goes;
    and.pred %counts, %counts, %begins;
    @%counts st.volatile.global.u64 [%list_at+24], %first;
    @%new membar.sys;
    @%counts st.volatile.global.u64 [%list_at+16], %turn;
    selp.u32 %value, 1, 0, %goes;
    {
    .param .b64 param0;
    .param .b32 param1;
    st.param.b64 [param0], %handle;
    st.param.b32 [param1], %value;
    call.uni cudaGraphSetConditional, (param0, param1);
    }
    ret;
}
.visible .entry hostcall_go_on(
    .param .u64 word, .param .u32 low, .param .u32 high, .param .u64 stop, .param .u64 list, .param .u64 last)
{",
    looks!(),
    "\
    selp.u32 %skips, 0, 1, %goes;
    @%goes st.volatile.global.u64 [%list_at+16], %turn;
    st.volatile.global.u32 [%list_at+12], %skips;
    ret;
}
"
);

/// Turns that the driver repeats as one, if each has so few kernels: a loop that ends at the first of them runs the kernels of
/// the others for nothing, 0.6 us each on an H200, where a turn of the driver's takes about 4.
const TURNS: [(usize, u32); 2] = [(4, 4), (16, 2)];

/// How many turns of these kernels the driver repeats as one. Of grids that the GPU does not run at once, blocks that do nothing
/// may take longer than a turn of the driver's.
fn turns(kernels: &[Listed<'_>]) -> Result<u32, Error> {
    for kernel in kernels {
        if kernel.block_count() > kernel.resident_blocks()?.into() {
            return Ok(1);
        }
    }
    Ok(TURNS.into_iter().find(|(most, _)| kernels.len() <= *most).map_or(1, |(_, turns)| turns))
}

/// *Decide* and *go on*, on a GPU whose driver has conditional nodes.
pub(crate) struct Decide {
    decide: Function,
    go_on: Function,
}

impl Decide {
    /// Says whether the driver, which is loaded, has conditional nodes (12.3 and later).
    pub fn is_possible() -> bool {
        // SAFETY: LOADED, by the caller; the function is looked up only, not called.
        let handles =
            unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuGraphConditionalHandleCreate") };
        handles.is_ok() && has_nodes_of_any_kind()
    }

    /// Loads the kernel. `None` when the driver has no conditional nodes. May wait for the kernels that run.
    pub fn load(gpu: &Arc<Gpu>) -> Result<Option<Self>, Error> {
        if !Self::is_possible() {
            return Ok(None);
        }
        let module = gpu.load(PTX.as_bytes().to_vec())?;
        let function = |name| Ok(module.function(name)?.expect("the text above has it"));
        Ok(Some(Self { decide: function("hostcall_decide")?, go_on: function("hostcall_go_on")? }))
    }

    /// Makes a list of bodies. The driver copies the arguments. May wait for the kernels that run.
    ///
    /// # Safety
    /// As for [`Gpu::list`]. The list's words lie where it says whenever it is launched, and nobody else writes those behind the
    /// first two, or reads the upper half of the second for anything else.
    pub unsafe fn list(&self, list: &ConditionalList<'_>) -> Result<List, BackendError> {
        let gpu = self.decide.gpu();
        let (mut building, mut last) = (Building::new(gpu)?, None);
        let graph = building.graph;
        let mut handles = Vec::new();
        for body in &list.bodies {
            let mut handle = 0;
            let (context, flags) = (gpu.context(), sys::CU_GRAPH_COND_ASSIGN_DEFAULT);
            // SAFETY: LOADED, with the graph and the context that its nodes run in; the result lives through the call.
            gpu.run(doing, || unsafe {
                sys::cuGraphConditionalHandleCreate(&mut handle, graph, context, 0, flags)
            })?;
            handles.push(handle);
            let asks = Asks::Driver { handle, begins: true };
            // SAFETY: by the caller's promise; the handle is the graph's.
            unsafe { self.add(&mut building, graph, &mut last, asks, &body.when, list) }?;
        }
        for (body, handle) in list.bodies.iter().zip(handles) {
            let inside = conditional_node(gpu, graph, &mut last, handle, list.repeats)?;
            let mut last = None;
            let mut kernels = Listed::all(gpu, body.kernels)?;
            let turns = if list.repeats { turns(&kernels)? } else { 1 };
            for turn in 1..=turns {
                for kernel in &mut kernels {
                    // SAFETY: by the caller's promise.
                    unsafe { building.add(inside, &mut last, kernel, false) }?;
                }
                let asks = match turn == turns {
                    true => Asks::Driver { handle, begins: false },
                    false => Asks::Kernels,
                };
                if list.repeats {
                    // SAFETY: by the caller's promise; the handle is the graph's.
                    unsafe { self.add(&mut building, inside, &mut last, asks, &body.when, list) }?;
                }
            }
        }
        Ok(building.list()?)
    }

    /// Adds *decide* or *go on* behind `last`.
    ///
    /// # Safety
    /// As for [`Decide::list`], and the handle is one of the graph that is built.
    unsafe fn add(
        &self,
        building: &mut Building<'_>,
        graph: sys::CUgraph,
        last: &mut Last,
        mut asks: Asks,
        when: &RangeInclusive<u32>,
        list: &ConditionalList<'_>,
    ) -> Result<(), Error> {
        let (mut low, mut high) = (*when.start(), *when.end());
        let (mut word, mut stop, mut words) = (list.word.get(), list.stop_at.get(), list.words.get());
        let mut last_sequence = list.last;
        fn address<T>(value: &mut T) -> *mut c_void {
            std::ptr::from_mut(value).cast()
        }
        let mut arguments = vec![
            address(&mut word),
            address(&mut low),
            address(&mut high),
            address(&mut stop),
            address(&mut words),
            address(&mut last_sequence),
        ];
        let mut is_first: u32;
        let function = match &mut asks {
            Asks::Kernels => &self.go_on,
            Asks::Driver { handle, begins } => {
                is_first = u32::from(*begins);
                arguments.insert(0, address(handle));
                arguments.push(address(&mut is_first));
                &self.decide
            }
        };
        let (blocks, lanes, shared_bytes) = ([1; 3], [1; 3], 0);
        let mut launch = Listed { function, blocks, lanes, shared_bytes, arguments, waits: false };
        // SAFETY: the kernel has these parameters, and reads and writes what the caller vouches for.
        unsafe { building.add(graph, last, &mut launch, false) }
    }
}

/// Whom it is told whether a turn begins.
enum Asks {
    /// The driver, by a handle; before the first turn or after one.
    Driver { handle: sys::CUgraphConditionalHandle, begins: bool },
    /// The kernels of the next turn, behind another.
    Kernels,
}

/// Adds a conditional node behind `last`. Returns the graph of its body.
pub(crate) fn conditional_node(
    gpu: &Gpu,
    graph: sys::CUgraph,
    last: &mut Last,
    handle: sys::CUgraphConditionalHandle,
    repeats: bool,
) -> Result<sys::CUgraph, Error> {
    use sys::CUgraphConditionalNodeType::{CU_GRAPH_COND_TYPE_IF, CU_GRAPH_COND_TYPE_WHILE};
    let conditional = sys::CUDA_CONDITIONAL_NODE_PARAMS {
        handle,
        type_: if repeats { CU_GRAPH_COND_TYPE_WHILE } else { CU_GRAPH_COND_TYPE_IF },
        size: 1,
        phGraph_out: std::ptr::null_mut(),
        ctx: gpu.context(),
    };
    // SAFETY: a struct of numbers, addresses and a union of such, for which the driver wants zeros where nothing is said.
    let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
    params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.__bindgen_anon_1.conditional = conditional;
    let (mut node, earlier) = (std::ptr::null_mut(), last.as_slice());
    // SAFETY: LOADED; results, parameters and the node before live through the call. No edge has data.
    gpu.run(doing, || unsafe {
        let (before, edges) = (earlier.as_ptr(), std::ptr::null());
        sys::cuGraphAddNode_v2(&mut node, graph, before, edges, earlier.len(), &mut params)
    })?;
    *last = Some(node);
    // SAFETY: the driver wrote it: where the graphs of the bodies are, of which there is one, as long as the node is there.
    Ok(unsafe { *params.__bindgen_anon_1.conditional.phGraph_out })
}
