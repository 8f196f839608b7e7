//! Reads and writes the messages of `messages.json`, with which answerers in other languages are tested too.

use hostcall_abi::CallError;
use hostcall_abi::status::Status;
use hostcall_remote::message::{Answer, Asked, Bad, Head, Question};
use serde_json::Value;
use std::time::Duration;

fn shared() -> Value {
    serde_json::from_str(include_str!("messages.json")).unwrap()
}

fn bytes(text: &Value) -> Vec<u8> {
    let digits = text.as_str().unwrap().as_bytes();
    digits.chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
}

fn head(of: &Value) -> Head {
    let number = |name| of[name].as_u64().unwrap();
    Head {
        version: number("version") as u16,
        width: number("width") as u16,
        count: number("calls") as u32,
        batch: number("batch"),
        process: number("process"),
    }
}

#[test]
fn the_shared_messages_are_those() {
    let shared = shared();
    let head = head(&shared["head"]);
    let of = &shared["question"];
    let remaining = |us| (us > 0).then(|| Duration::from_micros(us));
    let calls = numbers(&of["remaining_us"]).into_iter().zip(numbers(&of["lanes"]));
    let question = Question {
        head,
        schema: of["schema"].as_u64().unwrap(),
        calls: calls.map(|(us, lane)| Asked { remaining: remaining(us), lane: lane as u8 }).collect(),
        words: numbers(&of["words"]),
    };
    assert_eq!(Question::decode(&bytes(&of["message"])).as_ref(), Ok(&question));
    assert_eq!(question.encode(), bytes(&of["message"]));

    let of = &shared["answer"];
    let answer = Answer {
        head: Head { width: of["width"].as_u64().unwrap() as u16, ..head },
        statuses: numbers(&of["statuses"]).into_iter().map(Status::from_bits).collect(),
        words: numbers(&of["words"]),
    };
    assert_eq!(Answer::decode(&bytes(&of["message"])).as_ref(), Ok(&answer));
    assert_eq!(answer.encode(), bytes(&of["message"]));
    assert!(answer.is_to(&head));

    assert_eq!(Head::of_unwanted(&bytes(&shared["unwanted"])), Some(head));
    assert_eq!(head.unwanted(), bytes(&shared["unwanted"]));
}

#[test]
fn the_shared_messages_that_are_none_are_refused() {
    let shared = shared();
    for refused in shared["refused_questions"].as_array().unwrap() {
        assert_eq!(Question::decode(&bytes(refused)), Err(Bad::Malformed), "{refused}");
    }
    let of = &shared["other_version"];
    let Err(Bad::OtherVersion(other)) = Question::decode(&bytes(&of["message"])) else {
        panic!("it is of another version")
    };
    assert_eq!(other, Head { version: of["version"].as_u64().unwrap() as u16, ..head(&shared["head"]) });
    assert_eq!(Answer::all(other, Status::Error(CallError::TypeMismatch)).encode(), bytes(&of["refusal"]));
}
