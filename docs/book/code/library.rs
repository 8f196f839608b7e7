//! The chapter "A library with kernels".

/// What is the package `decay-kernels` there.
mod decay_kernels {
    // ANCHOR: kernels
    use hostcall_device::math::Float;
    use hostcall_device::{Global, Lane, kernel};

    /// Lets each number decay by one step.
    #[kernel(instances(decay_f32 = <f32>, decay_f64 = <f64>))]
    pub fn decay<T: Float>(lane: &Lane, rate: T, x: &[Global<T>]) {
        for i in lane.share(x.len()) {
            x[i].set(x[i].get() * (T::ONE - rate));
        }
    }
    // ANCHOR_END: kernels
}

/// What is the package `decay` there.
mod decay {
    use super::decay_kernels;

    pub fn images() -> &'static [hostcall::device::EmbeddedImage] {
        &[]
    }

    // ANCHOR: library
    use decay_kernels::{decay_f32, decay_f64};
    use hostcall::kernel::{Kernel, Slice};
    use hostcall::math::Float;
    use hostcall::{DeviceBuffer, Error, Global, Grid, LaunchKernel, Stream};

    /// The numbers that the library computes with, each with its instance of the kernel.
    pub trait Number: Float {
        /// The kernel, by its parameters after the lane: a value, and a slice of cells.
        const DECAY: Kernel<(Self, Slice<Global<Self>>)>;
    }

    impl Number for f32 {
        const DECAY: Kernel<(Self, Slice<Global<Self>>)> = decay_f32;
    }

    impl Number for f64 {
        const DECAY: Kernel<(Self, Slice<Global<Self>>)> = decay_f64;
    }

    /// Lets numbers decay by one step, in the stream's order.
    pub fn decay<T: Number>(stream: &Stream, rate: T, x: &DeviceBuffer<T>) -> Result<(), Error> {
        let grid = Grid::lanes(x.len().max(1)); // a grid has a lane at least
        T::DECAY.launch(stream, grid, (rate, x)).map(drop)
    }
    // ANCHOR_END: library
}

mod program {
    use super::decay;

    // ANCHOR: program
    use hostcall::Device;

    pub fn run() -> Result<Vec<f32>, hostcall::Error> {
        let device = Device::builder("cpu")
            .images(decay::images()) // and `.images(hostcall::embedded_images!())` of kernels of its own
            .open()?;
        let stream = device.stream()?;
        let x = device.upload(&[1.0f32, 2.0])?;
        decay::decay(&stream, 0.5, &x)?;
        decay::decay(&stream, 0.5, &x)?;
        x.read()
    }
    // ANCHOR_END: program
}

#[test]
fn a_library_launches_its_kernels() {
    assert_eq!(program::run().unwrap(), [0.25, 0.5]);
    let device = hostcall::Device::open("cpu").unwrap();
    let (stream, x) = (device.stream().unwrap(), device.upload(&[4.0f64]).unwrap());
    decay::decay(&stream, 0.25, &x).unwrap();
    assert_eq!(x.read().unwrap(), [3.0]);
    let none = device.alloc_zeroed::<f64>(0).unwrap();
    decay::decay(&stream, 0.25, &none).unwrap();
    stream.synchronize().unwrap();
}
