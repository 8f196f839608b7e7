//! Posts, and calls that come after them.

use super::*;

/// More posts than the ring has entries: the device waits for room, the order is kept.
#[test]
fn posts_round_the_ring() {
    model(3, || {
        let (device, mut host) = ends(1);
        let sent: [&[u64]; 6] = [&[1 << 63], &[2, !0], &[], &[4, 5, 6], &[7], &[8]];
        let posts = thread::spawn(move || sent.map(|words| device.post(words)));
        while host.posts.len() < sent.len() {
            host.take_posts();
            thread::yield_now();
        }
        posts.join().unwrap();
        assert_eq!(host.posts, sent);
    });
}

/// The host has seen the posts made before a call when it takes the call, whether it looks for them or not.
#[test]
fn a_call_comes_after_its_posts() {
    for looks_for_posts in [false, true] {
        model(3, move || {
            let (device, mut host) = ends(1);
            let calls = thread::spawn(move || {
                for i in 0..2 {
                    device.post(&[10 * i]);
                    device.post(&[10 * i + 1]);
                    let bell = Doorbell { after_posts: true, lines: true, ..doorbell(1, 0, 0) };
                    device.call(bell, 0);
                }
            });
            for i in 0..2 {
                let answer = loop {
                    if looks_for_posts {
                        host.take_posts();
                    }
                    if let Some(answer) = host.look() {
                        break answer;
                    }
                    thread::yield_now();
                };
                assert_eq!(host.posts, [[0], [1], [10], [11]][..2 * i + 2]);
                host.answer(answer);
            }
            calls.join().unwrap();
        });
    }
}
