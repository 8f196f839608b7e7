use hostcall::{CallError, Device, service};

#[service]
trait Names {
    fn of(key: u32) -> u64;
}

struct Handlers;

impl NamesAsyncHandler for Handlers {
    async fn of(&self, _: u32) -> Result<u64, CallError> {
        Ok(1)
    }
}

fn main() {
    let _ = Device::builder("cpu").service(Names::serve_async(Handlers));
}
