//! What belongs to a lane of a launch is kept for no other launch.

use hostcall_device::call::Pending;
use hostcall_device::llvm::{Client, Port};
use hostcall_device::raw::{Block, RawStream};
use hostcall_device::{Disjoint, HostcallRef, Lane, kernel, service};
use std::cell::Cell;

#[service]
trait Shop {
    fn count(item: u64) -> u64;
}

thread_local! {
    static CLIENT: Cell<Option<Client<'static>>> = const { Cell::new(None) };
    static PORT: Cell<Option<Port<'static>>> = const { Cell::new(None) };
    static CALL: Cell<Option<Pending<'static, u64>>> = const { Cell::new(None) };
}

#[kernel]
fn keep_client(_: &Lane, client: Client) {
    CLIENT.set(Some(client));
}

#[kernel]
fn keep_port(_: &Lane, client: Client<'_>) {
    PORT.set(Some(client.open(0)));
}

#[kernel]
fn keep_call(lane: &Lane) {
    CALL.set(Some(Shop::start_count(lane, 1)));
}

#[kernel]
fn keep_closure(lane: &Lane, ask: HostcallRef<u64, u64>) {
    CALL.set(Some(ask.start(lane, 1)));
}

#[kernel]
fn ask_for_ever(_: &Lane, client: Client<'static>) {
    client.open(0).close();
}

type ClientForEver = Client<'static>;
type NumbersForEver = Disjoint<'static, u64>;
type StreamForEver = RawStream<'static, u64, Block>;

#[kernel]
fn ask_for_ever_by_another_name(_: &Lane, client: ClientForEver) {
    client.open(0).close();
}

#[kernel]
fn share_for_ever(lane: &Lane, mut numbers: NumbersForEver) {
    for (_, number) in numbers.share(lane) {
        *number = 0;
    }
}

#[kernel]
fn write_for_ever(_: &Lane, _stream: StreamForEver) {}

fn main() {}
