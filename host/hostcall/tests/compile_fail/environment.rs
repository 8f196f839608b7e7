//! Only a program that knows that it has one thread changes the environment (S7).
fn main() {
    hostcall::device::prepare_environment();
    let _ = hostcall::Device::open("cpu");
}
