//! The host's safe code frees no memory that kernels use.
use hostcall::hostcall_device::services::HeapHandler;
use hostcall::services::Heap;

fn free(heap: &Heap) {
    let _ = heap.free(0x1000);
    let _ = HeapHandler::free(heap, 0x1000);
}

fn main() {}
