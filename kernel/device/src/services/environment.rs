use hostcall_abi::service::number;
use hostcall_macros::service;

/// What a program was started with.
#[service(number = number::ENVIRONMENT, internal)]
pub trait Environment {
    /// How many arguments there are, the program's name included.
    fn argument_count() -> u32;
    /// The length of argument `index` in bytes, and the argument itself if it fits `out`.
    fn argument(index: u32, out: &mut [u8]) -> Option<u64>;
    /// The length of the value of environment variable `name` in bytes, and the value itself if it fits `out`.
    fn variable(name: &[u8], out: &mut [u8]) -> Option<u64>;
}
