//! Bytes of calls.

use super::*;

/// Bytes in the bulk area arrive with the doorbell and come back with the reply, also by way of another
/// thread.
#[test]
fn bulk_bytes() {
    model(3, || {
        let (device, mut host) = ends(1);
        let bell = Doorbell { kind: Kind::Bytes, ..doorbell(1, 0, 0) };
        let calls = thread::spawn(move || {
            for round in [1, 2] {
                device.slot().write_bulk(0, &[round; 12]);
                device.slot().publish_bulk();
                device.call(bell, 0);
                let mut reply = [0; 12];
                device.slot().read_bulk(0, &mut reply);
                assert_eq!(reply, [round + 100; 12]);
            }
        });
        for round in [1, 2] {
            let answer = host.next_call();
            let respond = move |region: Region<'_>, answer: &Answer| {
                let mut bytes = alloc::vec::Vec::new();
                answer.append_bytes(region, None, 0, 0, 12, &mut bytes);
                assert_eq!(bytes, [round; 12]);
                answer.write_bytes(region, None, 0, 0, &[round + 100; 12]);
            };
            if round == 1 {
                let mut detached = host.scanner.detach(&host.memory, answer);
                let answers = thread::spawn(move || {
                    respond(detached.region(), detached.answer());
                    detached.rest(Status::Ok);
                });
                answers.join().unwrap();
            } else {
                respond(host.memory.region(), &answer);
                answer.all(host.memory.region(), Status::Ok);
            }
        }
        calls.join().unwrap();
    });
}
