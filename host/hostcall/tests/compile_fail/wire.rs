use hostcall::service;

#[service]
trait Names {
    fn of(key: String) -> u64;
}

fn main() {}
