use hostcall_abi::service::number;
use hostcall_macros::service;

/// What a program was started with.
#[service(number = number::ENVIRONMENT, internal, rare)]
pub trait Environment {
    /// How many arguments there are, the program's name included.
    fn argument_count() -> u32;
    /// The length of argument `index` in bytes, and the argument itself if it fits `out`.
    fn argument(index: u32, out: &mut [u8]) -> Option<u64>;
    /// The length of the value of environment variable `name` in bytes, and the value itself if it fits `out`.
    fn variable(name: &[u8], out: &mut [u8]) -> Option<u64>;
    /// The same of environment variable `index` in the order of their names, as `NAME=value`.
    fn variable_at(index: u32, out: &mut [u8]) -> Option<u64>;
    /// The length in bytes of the path that relative paths begin at, and the path itself if it fits `out`. There is none where
    /// the host opened no directory.
    fn current_dir(out: &mut [u8]) -> Option<u64>;
    /// Fills `out` with random bytes, fit for keys.
    fn random(out: &mut [u8]);
}
