//! LLVM 19's server, from Debian's libllvmlibc-19-dev. The C interface is that of `llvmlibc_rpc_server.h`.

use hostcall::device::RawArg;
use hostcall::hostcall_device::llvm::{Client, raw};
use hostcall::llvm::Version;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

/// LLVM's server, which runs until this and its clients are dropped.
pub struct LlvmRpcServer(Arc<Running>);

/// A server and the thread that runs it.
struct Running {
    object: Vec<u64>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LlvmRpcServer {
    /// A server of so many ports for waves of so many lanes, with the services of LLVM's loaders and tests.
    ///
    /// # Panics
    /// When this was built without the package, or the server does not start.
    pub fn start(ports: u32, lanes: u32) -> Self {
        #[cfg(not(llvm_rpc_server))]
        panic!(
            "LLVM's RPC server is missing ({ports} ports of {lanes} lanes wanted): install libllvmlibc-19-dev and g++, as ./test does"
        );
        #[cfg(llvm_rpc_server)]
        {
            let (device, object) = ffi::start(ports, lanes);
            let stop = Arc::new(AtomicBool::new(false));
            let stopped = stop.clone();
            let thread = std::thread::spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    ffi::handle(device);
                    std::hint::spin_loop();
                }
                ffi::shut_down(device);
            });
            Self(Arc::new(Running { object, stop, thread: Some(thread) }))
        }
    }

    /// Address of a function for host calls: it writes its argument, a length and so many bytes, to stdout.
    pub fn host_function() -> u64 {
        unsafe extern "C" fn write_argument(argument: *mut u8) {
            // SAFETY: the caller passes 8 bytes of length and so many more.
            let bytes = unsafe {
                let length = argument.cast::<u64>().read_unaligned() as usize;
                std::slice::from_raw_parts(argument.add(8), length)
            };
            crate::caller::write_argument(bytes);
        }
        write_argument as *const () as usize as u64
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl LlvmRpcServer {
    /// The server's client, as kernels take it for an argument.
    pub fn client(&self) -> RawArg<Client<'static>> {
        let address = self.0.object.as_ptr().expose_provenance() as u64;
        // SAFETY: LLVM's server made the object, and keeps it and its ports while it lives, which the
        // argument sees to.
        unsafe { RawArg::new(raw(address, Version::Llvm19), self.0.clone()) }
    }
}

#[cfg(llvm_rpc_server)]
mod ffi {
    use std::ffi::c_void;

    #[derive(Clone, Copy)]
    #[repr(C)]
    pub struct Device {
        handle: usize,
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Port {
        handle: u64,
        lane_size: u32,
    }

    #[repr(C)]
    struct Buffer {
        data: [u64; 8],
    }

    type Alloc = extern "C" fn(u64, *mut c_void) -> *mut c_void;
    type Free = extern "C" fn(*mut c_void, *mut c_void);
    type OpcodeCallback = unsafe extern "C" fn(Port, *mut c_void);
    type PortCallback = unsafe extern "C" fn(*mut Buffer, *mut c_void);

    unsafe extern "C" {
        fn rpc_server_init(
            device: *mut Device,
            ports: u64,
            lanes: u32,
            alloc: Alloc,
            data: *mut c_void,
        ) -> i32;
        fn rpc_server_shutdown(device: Device, free: Free, data: *mut c_void) -> i32;
        fn rpc_handle_server(device: Device) -> i32;
        fn rpc_register_callback(
            device: Device,
            opcode: u16,
            callback: OpcodeCallback,
            data: *mut c_void,
        ) -> i32;
        fn rpc_get_client_buffer(device: Device) -> *const c_void;
        fn rpc_get_client_size() -> u64;
        fn rpc_send(port: Port, callback: PortCallback, data: *mut c_void);
        fn rpc_recv(port: Port, callback: PortCallback, data: *mut c_void);
        fn rpc_recv_and_send(port: Port, callback: PortCallback, data: *mut c_void);
        fn rpc_send_n(port: Port, source: *const *const c_void, sizes: *mut u64);
        fn rpc_recv_n(
            port: Port,
            destination: *mut *mut c_void,
            sizes: *mut u64,
            alloc: Alloc,
            data: *mut c_void,
        );
        fn calloc(count: usize, bytes: usize) -> *mut c_void;
        fn free(memory: *mut c_void);
    }

    extern "C" fn allocate(bytes: u64, _: *mut c_void) -> *mut c_void {
        // SAFETY: C's function may be called with any sizes.
        unsafe { calloc(bytes.max(1) as usize, 1) }
    }

    extern "C" fn release(memory: *mut c_void, _: *mut c_void) {
        // SAFETY: the server passes what `allocate` gave, once.
        unsafe { free(memory) };
    }

    /// Starts a server and copies its client object.
    pub fn start(ports: u32, lanes: u32) -> (Device, Vec<u64>) {
        let mut device = Device { handle: 0 };
        let none = std::ptr::null_mut();
        // SAFETY: the device is written, and the callbacks have the types of the header.
        let status = unsafe { rpc_server_init(&mut device, ports.into(), lanes, allocate, none) };
        assert_eq!(status, 0, "LLVM's server starts");
        let services: [(u16, OpcodeCallback); 6] = [
            (10, malloc),
            (11, free_memory),
            (0x8000, noop),
            (0x8001, increment),
            (0x8002, interface),
            (0x8003, stream),
        ];
        for (opcode, callback) in services {
            // SAFETY: the callback has the type of the header and needs no data.
            let status = unsafe { rpc_register_callback(device, opcode, callback, none) };
            assert_eq!(status, 0, "LLVM's server takes a service");
        }
        // SAFETY: the client object lives as long as the server and has this size, a multiple of 8.
        let object = unsafe {
            let words = rpc_get_client_size() as usize / 8;
            std::slice::from_raw_parts(rpc_get_client_buffer(device).cast::<u64>(), words).to_vec()
        };
        (device, object)
    }

    /// Serves what there is.
    pub fn handle(device: Device) {
        // SAFETY: the device is a server's that was started, and only this thread runs it.
        let status = unsafe { rpc_handle_server(device) };
        assert_eq!(status, 0, "LLVM's server serves");
    }

    pub fn shut_down(device: Device) {
        // SAFETY: the device is a server's that was started; clients have ended.
        unsafe { rpc_server_shutdown(device, release, std::ptr::null_mut()) };
    }

    unsafe extern "C" fn nothing(_: *mut Buffer, _: *mut c_void) {}

    /// What the first word of every lane becomes.
    unsafe extern "C" fn change_word(buffer: *mut Buffer, change: *mut c_void) {
        // SAFETY: the server passes a lane's buffer, and the callers below a function of this type.
        unsafe {
            let change = &*change.cast::<fn(u64) -> u64>();
            (*buffer).data[0] = change((*buffer).data[0]);
        }
    }

    fn receive_and_send(port: Port, change: fn(u64) -> u64) {
        // SAFETY: the port is one that the server just opened, and `change` lives longer than the call.
        unsafe { rpc_recv_and_send(port, change_word, (&raw const change).cast_mut().cast()) };
    }

    unsafe extern "C" fn malloc(port: Port, _: *mut c_void) {
        receive_and_send(port, |bytes| allocate(bytes, std::ptr::null_mut()) as u64);
    }

    unsafe extern "C" fn free_memory(port: Port, _: *mut c_void) {
        receive_and_send(port, |address| {
            release(address as usize as *mut c_void, std::ptr::null_mut());
            address
        });
    }

    unsafe extern "C" fn noop(port: Port, _: *mut c_void) {
        // SAFETY: the port is one that the server just opened.
        unsafe { rpc_recv(port, nothing, std::ptr::null_mut()) };
    }

    unsafe extern "C" fn increment(port: Port, _: *mut c_void) {
        receive_and_send(port, |number| number + 1);
    }

    unsafe extern "C" fn interface(port: Port, _: *mut c_void) {
        unsafe extern "C" fn keep(buffer: *mut Buffer, kept: *mut c_void) {
            // SAFETY: the server passes a lane's buffer, and the caller a `u64`.
            unsafe { *kept.cast::<u64>() = (*buffer).data[0] };
        }
        unsafe extern "C" fn count(buffer: *mut Buffer, kept: *mut c_void) {
            // SAFETY: as above.
            unsafe {
                *kept.cast::<u64>() += 1;
                (*buffer).data[0] = *kept.cast::<u64>();
            }
        }
        let (mut ends_with_receive, mut counter) = (0u64, 0u64);
        // SAFETY: the port is one that the server just opened, and both numbers live longer than the calls.
        unsafe {
            let kept = (&raw mut counter).cast();
            rpc_recv(port, keep, (&raw mut ends_with_receive).cast());
            rpc_recv(port, keep, kept);
            rpc_send(port, count, kept);
            rpc_recv(port, keep, kept);
            rpc_send(port, count, kept);
            rpc_recv(port, keep, kept);
            rpc_recv(port, keep, kept);
            rpc_send(port, count, kept);
            rpc_send(port, count, kept);
            if ends_with_receive != 0 {
                rpc_recv(port, keep, kept);
            } else {
                rpc_send(port, count, kept);
            }
        }
    }

    unsafe extern "C" fn stream(port: Port, _: *mut c_void) {
        let mut sizes = [0u64; 64];
        let mut bytes = [std::ptr::null_mut(); 64];
        let none = std::ptr::null_mut();
        // SAFETY: the port is one that the server just opened; both arrays have room for the most lanes.
        unsafe {
            rpc_recv_n(port, bytes.as_mut_ptr(), sizes.as_mut_ptr(), allocate, none);
            rpc_send_n(port, bytes.as_ptr().cast(), sizes.as_mut_ptr());
        }
        for bytes in bytes.into_iter().filter(|bytes| !bytes.is_null()) {
            release(bytes, none);
        }
    }
}
