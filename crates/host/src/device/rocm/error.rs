//! What can be wrong with code objects.

/// Why a code object, or a kernel of it, cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodeObjectError {
    /// It was built for another device, or is no code object.
    #[error(
        "{name} was built for {built_for}, and {device} is {target}: code objects are for AMD's GPUs; compile it with \
         `--offload-arch={target}`"
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
    /// The kernel prints to a buffer that the host reads when it has ended.
    #[error(
        "kernel {kernel} prints to a buffer, which hostcall does not read: compile HIP with `-mprintf-kind=hostcall`; OpenCL \
         C has no other `printf`"
    )]
    Buffered {
        /// The kernel.
        kernel: String,
    },
}
