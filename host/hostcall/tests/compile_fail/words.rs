use hostcall::service;

#[service]
trait Arrays {
    fn sum(values: [u64; 100]) -> u64;
    fn fits(values: [u64; 63], text: &str) -> [u64; 64];
    fn all(of: u32) -> [u64; 65];
}

fn main() {}
