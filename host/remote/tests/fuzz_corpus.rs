//! Replays the corpus of the fuzz target `remote_messages`, and messages that differ from it by a bit.

#[path = "fuzz/remote_messages.rs"]
mod remote_messages;

#[test]
fn no_message_does_harm() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/remote_messages");
    for file in std::fs::read_dir(folder).unwrap() {
        let message = std::fs::read(file.unwrap().path()).unwrap();
        remote_messages::run(&message);
        for at in 0..message.len() {
            remote_messages::run(&message[..at]);
            for bit in 0..8 {
                let mut other = message.clone();
                other[at] ^= 1 << bit;
                remote_messages::run(&other);
            }
        }
    }
}
