//! Lists: kernels in a row as a graph of the driver's, built by hand and never captured, which a queue starts
//! as one operation.
//!
//! Kernels of a list follow each other by edges of the driver's graph. An edge is *programmatic* where the
//! kernel behind it waits by itself ([`Listed::waits`]) and its grid takes at most a quarter of the GPU
//! ([`EARLY_PART`]): then the driver starts it while the one before it runs, which spares the time between
//! the end of one kernel and the beginning of the next. Larger kernels, and kernels that were built for GPUs
//! before sm_90, have plain edges. What a kernel may do before the one before it has ended, and why a
//! quarter, stands with the host's lists (`host/hostcall/src/device/graph/list.rs`).
//!
//! A list has words in memory that [`Gpu::list_words`] allocates: `cuStreamBatchMemOp` refuses memory of the
//! driver's pools. [`Queue::launch_list`] writes the first two in the queue's order and then starts the
//! graph.
//!
//! To build, instantiate or free such a graph may wait for kernels that run, so it is never done by a launch,
//! and lists are freed when no kernel runs (`quiet.rs`).

use crate::gpu::Handle;
use crate::module::{Function, Loaded};
use crate::quiet::when_quiet;
use crate::{Error, Gpu, Queue};
use cudarc::driver::sys;
use hostcall_seam::{BackendError, Dispatch, KernelList};
use std::ffi::c_void;
use std::sync::Arc;

/// One launch of a list.
pub(crate) struct Listed<'a> {
    /// The kernel, of the list's GPU.
    pub function: &'a Function,
    /// Blocks in x, y and z.
    pub blocks: [u32; 3],
    /// Lanes of a block in x, y and z.
    pub lanes: [u32; 3],
    /// Bytes of dynamic shared memory for each block.
    pub shared_bytes: u32,
    /// An address for each of the kernel's parameters.
    pub arguments: Vec<*mut c_void>,
    /// Whether the kernel first waits (`griddepcontrol.wait`) until the one before it in the list has ended.
    pub waits: bool,
}

/// The part of the GPU that a kernel may take which waits for the one before it. While that waits too, for the host, kernels of
/// other queues find the rest.
const EARLY_PART: u32 = 4;

/// From this compute capability on, times ten, hostcall's kernels wait in lists until the one before them has ended: older GPUs
/// have no instruction for it (`begin_launch` of `hostcall-channel`).
const WAITS_IN_LISTS: u32 = 90;

impl<'a> Listed<'a> {
    /// The launches that dispatches are, of kernels of this GPU.
    pub fn all(gpu: &Arc<Gpu>, dispatches: &'a [Dispatch<'a>]) -> Result<Vec<Self>, BackendError> {
        let listed = dispatches.iter().map(|dispatch| {
            let Dispatch { workgroups: blocks, lanes, workgroup_bytes: shared_bytes, parameters, .. } =
                *dispatch;
            let function = Function::of(dispatch.kernel, gpu)?;
            let arguments = parameters.iter().map(|parameter| parameter.as_ptr().cast_mut().cast()).collect();
            // So begins each kernel whose device crate was compiled for such a GPU.
            let waits = function.architecture() >= WAITS_IN_LISTS;
            Ok(Self { function, blocks, lanes, shared_bytes, arguments, waits })
        });
        listed.collect()
    }
}

impl Listed<'_> {
    /// How many blocks there are in each grid.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks.map(u64::from).iter().product()
    }

    /// How many of its blocks the GPU runs at once.
    pub(crate) fn resident_blocks(&self) -> Result<u32, Error> {
        self.function.resident_blocks(self.lanes.iter().product(), self.shared_bytes)
    }

    /// Whether the GPU may start the kernel while the one before it runs, which spares the time from the end of one kernel to
    /// the begin of the next.
    fn may_be_early(&self) -> Result<bool, Error> {
        if !self.waits || !has_nodes_of_any_kind() {
            return Ok(false);
        }
        Ok(self.block_count() <= u64::from(self.resident_blocks()? / EARLY_PART))
    }
}

/// Says whether the driver, which is loaded, has the call that adds nodes of any kind, behind edges of any kind (12.3 and later).
pub(crate) fn has_nodes_of_any_kind() -> bool {
    // SAFETY: LOADED, by the caller; the function is looked up only, not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(b"cuGraphAddNode_v2") }.is_ok()
}

/// Kernels that a queue launches one after the other as one operation. It keeps their modules. When it is dropped, the driver
/// frees it once no kernel runs.
pub(crate) struct List {
    gpu: Arc<Gpu>,
    graph: Handle<sys::CUgraphExec_st>,
    modules: Vec<Arc<Loaded>>,
}

/// Memory of a GPU for a list's words, of which [`Queue::launch_list`] writes two: that takes memory of the driver's oldest kind,
/// in no pool. When it is dropped, the driver frees it once no kernel runs.
pub(crate) struct ListWords {
    gpu: Arc<Gpu>,
    address: u64,
}

impl ListWords {
    /// Address on the GPU, a multiple of 256.
    pub fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for ListWords {
    fn drop(&mut self) {
        let (gpu, address) = (self.gpu.clone(), self.address);
        when_quiet(move || {
            // SAFETY: LOADED; `Gpu::list_words` allocated it, and it is freed once, without a kernel that could use it.
            gpu.release(|| unsafe { sys::cuMemFree_v2(address) });
            gpu
        });
    }
}

/// A graph while it is built.
pub(crate) struct Building<'a> {
    gpu: &'a Arc<Gpu>,
    pub graph: sys::CUgraph,
    modules: Vec<Arc<Loaded>>,
}

/// The last node of a chain of nodes, if there is one.
pub(crate) type Last = Option<sys::CUgraphNode>;

impl Drop for Building<'_> {
    fn drop(&mut self) {
        // SAFETY: LOADED; made by `Building::new`. What was made of it does not need it any more.
        self.gpu.release(|| unsafe { sys::cuGraphDestroy(self.graph) });
    }
}

pub(crate) fn doing() -> String {
    "making a list of kernels".into()
}

impl<'a> Building<'a> {
    /// Makes a graph without nodes.
    pub fn new(gpu: &'a Arc<Gpu>) -> Result<Self, Error> {
        let mut graph = std::ptr::null_mut();
        // SAFETY: LOADED; the result lives through the call.
        gpu.run(doing, || unsafe { sys::cuGraphCreate(&mut graph, 0) })?;
        Ok(Self { gpu, graph, modules: Vec::new() })
    }

    /// Adds a launch behind `last`, to the graph or to the graph of a body in it. The driver copies the arguments. `early`: the
    /// GPU may start it when all blocks of the kernel behind which it is have begun and let it
    /// (`griddepcontrol.launch_dependents`), or have ended.
    ///
    /// # Errors
    /// When the GPU has no room for such a block, or the driver refuses the node.
    ///
    /// # Safety
    /// As for [`Queue::launch`], each time that the list is launched; the function is of the list's GPU.
    pub unsafe fn add(
        &mut self,
        graph: sys::CUgraph,
        last: &mut Last,
        launch: &mut Listed<'_>,
        early: bool,
    ) -> Result<(), Error> {
        let ([x, y, z], [across, down, deep]) = (launch.lanes, launch.blocks);
        let kernel = sys::CUDA_KERNEL_NODE_PARAMS_v3 {
            func: launch.function.handle(),
            gridDimX: across,
            gridDimY: down,
            gridDimZ: deep,
            blockDimX: x,
            blockDimY: y,
            blockDimZ: z,
            sharedMemBytes: launch.shared_bytes,
            kernelParams: launch.arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            // The current one.
            ctx: std::ptr::null_mut(),
        };
        let (mut node, earlier) = (std::ptr::null_mut(), last.as_slice());
        if early && !earlier.is_empty() {
            // SAFETY: a struct of numbers, addresses and a union of such, for which the driver wants zeros where nothing is said.
            let mut params: sys::CUgraphNodeParams = unsafe { std::mem::zeroed() };
            params.type_ = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL;
            params.__bindgen_anon_1.kernel = kernel;
            let edge = sys::CUgraphEdgeData {
                from_port: sys::CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC as u8,
                to_port: 0,
                type_: sys::CUgraphDependencyType::CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC as u8,
                reserved: [0; 5],
            };
            // SAFETY: LOADED; results, parameters, the edge and the node before live through the call, and the caller vouches
            // for the arguments.
            self.gpu.run(doing, || unsafe {
                sys::cuGraphAddNode_v2(&mut node, graph, earlier.as_ptr(), &edge, 1, &mut params)
            })?;
        } else {
            let sys::CUDA_KERNEL_NODE_PARAMS_v3 { func, kern, ctx, kernelParams, extra, .. } = kernel;
            let params = sys::CUDA_KERNEL_NODE_PARAMS {
                func,
                gridDimX: across,
                gridDimY: down,
                gridDimZ: deep,
                blockDimX: x,
                blockDimY: y,
                blockDimZ: z,
                sharedMemBytes: launch.shared_bytes,
                kernelParams,
                extra,
                kern,
                ctx,
            };
            // SAFETY: as above.
            self.gpu.run(doing, || unsafe {
                sys::cuGraphAddKernelNode_v2(&mut node, graph, earlier.as_ptr(), earlier.len(), &params)
            })?;
        }
        *last = Some(node);
        self.modules.push(launch.function.module().clone());
        Ok(())
    }

    /// Makes a list of the nodes.
    pub fn list(mut self) -> Result<List, Error> {
        let mut made = std::ptr::null_mut();
        // SAFETY: LOADED, with the graph of `new`; the result lives through the call.
        self.gpu.run(doing, || unsafe { sys::cuGraphInstantiateWithFlags(&mut made, self.graph, 0) })?;
        let modules = std::mem::take(&mut self.modules);
        Ok(List { gpu: self.gpu.clone(), graph: Handle(made), modules })
    }
}

impl Gpu {
    /// Allocates `bytes` bytes for the words of a list. May wait for the kernels that run.
    pub(crate) fn list_words(self: &Arc<Self>, bytes: usize) -> Result<ListWords, Error> {
        let mut address = 0;
        let doing = || "allocating the words of a list of kernels".to_string();
        // SAFETY: LOADED; the result lives through the call.
        self.run(doing, || unsafe { sys::cuMemAlloc_v2(&mut address, bytes) })?;
        Ok(ListWords { gpu: self.clone(), address })
    }

    /// Makes a list of launches. The driver copies the arguments. May wait for the kernels that run.
    ///
    /// # Errors
    /// When the GPU has no room for such a block, or there is no memory for the list.
    ///
    /// # Safety
    /// As for [`Queue::launch`], each time that the list is launched; the functions are of this GPU, and those that are said to
    /// wait do so before they access memory.
    pub(crate) unsafe fn list(self: &Arc<Self>, launches: &mut [Listed<'_>]) -> Result<List, Error> {
        let (mut building, mut last) = (Building::new(self)?, None);
        for launch in launches {
            let graph = building.graph;
            let early = launch.may_be_early()?;
            // SAFETY: by the caller's promise.
            unsafe { building.add(graph, &mut last, launch, early) }?;
        }
        building.list()
    }
}

impl List {
    /// The GPU that the list is of.
    pub(crate) fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Launches the kernels with the parameters that they were added with.
    pub(crate) fn launch_on(&self, stream: sys::CUstream) -> Result<(), Error> {
        let doing = || "launching a list of kernels".to_string();
        // SAFETY: LOADED, with a list and a stream of this GPU.
        self.gpu.run(doing, || unsafe { sys::cuGraphLaunch(self.graph.0, stream) })
    }
}

impl KernelList for List {}

impl Drop for List {
    fn drop(&mut self) {
        let (gpu, graph, modules) = (self.gpu.clone(), self.graph, std::mem::take(&mut self.modules));
        when_quiet(move || {
            let graph = graph;
            // SAFETY: LOADED; made by `Building::list`, and in no stream any more.
            gpu.release(|| unsafe { sys::cuGraphExecDestroy(graph.0) });
            (modules, gpu)
        });
    }
}

/// An operation of a stream that writes a word.
fn write(address: u64, value64: u64) -> sys::CUstreamBatchMemOpParams {
    sys::CUstreamBatchMemOpParams_union {
        writeValue: sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st {
            operation: sys::CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_64,
            address,
            __bindgen_anon_1:
                sys::CUstreamBatchMemOpParams_union_CUstreamMemOpWriteValueParams_st__bindgen_ty_1 { value64 },
            // The default orders all earlier writes of the stream before this one.
            flags: 0,
            alias: 0,
        },
    }
}

impl Queue {
    /// Writes the first two words of a list, then launches its kernels, one after the other.
    ///
    /// # Safety
    /// As for [`Queue::launch`] of each of them. `words` is the address of [`ListWords`], of which nobody but kernels of the list
    /// writes the first two; the list is in no other queue.
    pub(crate) unsafe fn launch_list(&self, list: &List, words: u64, values: [u64; 2]) -> Result<(), Error> {
        let doing = || "writing the words of a list of kernels".to_string();
        let [first, second] = values;
        let mut writes = [write(words, first), write(words + 8, second)];
        // SAFETY: LOADED; the operations live through the call, and the caller vouches for the words.
        self.submit(doing, |stream| unsafe {
            sys::cuStreamBatchMemOp_v2(stream, writes.len() as u32, writes.as_mut_ptr(), 0)
        })?;
        let doing = || "launching a list of kernels".to_string();
        // SAFETY: LOADED, with a list of this GPU; the caller vouches for its arguments.
        self.submit(doing, |stream| unsafe { sys::cuGraphLaunch(list.graph.0, stream) })
    }
}
