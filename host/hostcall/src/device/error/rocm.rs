//! What can be wrong with code objects.

use super::other_than;

/// Why a code object, or a kernel of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeObjectError {
    /// It has none of the formats of such code.
    #[error(
        "{name}: it is no code object, cubin or PTX: compile its kernels for the device's GPU (with `--offload-arch`, or \
         nvcc's `-arch`), and for the device alone"
    )]
    Unknown {
        /// The file, or "the code object".
        name: String,
    },
    /// It was built for another device.
    #[error(
        "{name} was built for {built_for}, {}: code objects, cubins and PTX run on the GPU that they were \
         compiled for (with `--offload-arch`, or nvcc's `-arch`), and code for gfx942 on the device of that name too",
        other_than(device, target)
    )]
    OtherTarget {
        /// The file, or "the code object".
        name: String,
        /// What it was built for.
        built_for: String,
        /// The device.
        device: String,
        /// What the device executes.
        target: String,
    },
    /// It was built for the device, and its kernels are launched in another way.
    #[error("{name} is {what}: load it with `{load}`")]
    NotForeign {
        /// The file, or "the code object".
        name: String,
        /// What it is.
        what: &'static str,
        /// The function that loads such an image.
        load: &'static str,
    },
    /// The kernel takes an argument that a launch cannot give.
    #[error(
        "kernel {kernel} takes {what} as argument {argument} (the first is 0), which launches of code objects cannot give: {hint}"
    )]
    Argument {
        /// The kernel.
        kernel: String,
        /// The argument's place, from 0.
        argument: usize,
        /// What it is.
        what: &'static str,
        /// What to write instead.
        hint: &'static str,
    },
    /// The kernel prints to a buffer that the host reads when it has ended.
    #[error(
        "kernel {kernel} was compiled together with code that prints to a buffer, which hostcall does not read: compile HIP \
         with `-mprintf-kind=hostcall`; OpenCL C has no other `printf`, so move kernels that do not print to another file"
    )]
    Buffered {
        /// The kernel.
        kernel: String,
    },
}
