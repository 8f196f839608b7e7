//! Messages of both directions, of which any bytes may come: the fuzz target `remote_messages`, and the test that replays its
//! corpus. The first byte says what they are taken for: a question that comes to an answerer, or the answer to a question.

use futures_lite::future::block_on;
use hostcall_abi::service::Method;
use hostcall_abi::status::{CallError, Status};
use hostcall_remote::carrier::{Arrived, Asks, Carrier, End, OnArrived, OnGone, OnHeard, OnSeen, Told};
use hostcall_remote::message::{Answer, Question};
use hostcall_remote::{Export, Imported, RemoteError, Session, export_gathered, import};
use hostcall_service::gather::{BatchFuture, GatheredCall, GatheredLanes};
use hostcall_service::{Caller, GatheredCalls, GatheredService};
use std::borrow::Cow;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;
use std::time::Duration;

static METHODS: [Method; 1] = [Method::untyped("Store::next", 700)];

/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A link within a thread: what was exported gets what [`run`] says, and what is asked is answered with that.
#[derive(Clone, Default)]
struct Line {
    arrived: Arc<Mutex<Option<OnArrived>>>,
    answer: Arc<Mutex<Vec<u8>>>,
}

impl Asks for Line {
    fn is_answered(&self) -> bool {
        true
    }

    fn ask(&self, message: Vec<u8>, _: Duration, end: Told) {
        let question = Question::decode(&message).expect("an import asks rightly");
        let mut answer = self.answer.lock().unwrap().clone();
        // Mostly an answer to this question: its number of calls, batch and process.
        if answer.first().is_some_and(|byte| byte % 4 != 1) {
            answer[..4].copy_from_slice(b"hcrm");
            answer[8..12].copy_from_slice(&question.head.count.to_le_bytes());
            answer[16..24].copy_from_slice(&question.head.batch.to_le_bytes());
            answer[24..32].copy_from_slice(&question.head.process.to_le_bytes());
        }
        end(if answer.len() == 33 { End::Nothing } else { End::Answered(Cow::Owned(answer)) });
    }

    fn tell(&self, _: Vec<u8>) {}
}

impl Carrier for Line {
    fn asks(&self, _: &str, _: &str) -> Result<Box<dyn Asks>, RemoteError> {
        Ok(Box::new(self.clone()))
    }

    fn asker(&self, _: &str, _: u64) -> Result<Box<dyn Send>, RemoteError> {
        Ok(Box::new(()))
    }

    fn answers(&self, _: &str, arrived: OnArrived, _: OnGone) -> Result<Box<dyn Send>, RemoteError> {
        *self.arrived.lock().unwrap() = Some(arrived);
        Ok(Box::new(()))
    }

    fn announce(&self, _: &str) -> Result<Box<dyn Send>, RemoteError> {
        Ok(Box::new(()))
    }

    fn watch(&self, _: OnSeen) -> Result<Box<dyn Send>, RemoteError> {
        Ok(Box::new(()))
    }

    fn tell(&self, _: &str, _: Vec<u8>) {}

    fn hear(&self, _: OnHeard) -> Result<Box<dyn Send>, RemoteError> {
        Ok(Box::new(()))
    }

    fn answers_as(&self, _: &str, _: OnArrived) -> Result<Box<dyn Send>, RemoteError> {
        Ok(Box::new(()))
    }

    fn ask_members(&self, _: Option<&str>, _: &str, _: Vec<u8>, _: Duration, _: OnHeard) {}
}

/// A question, and where its answer goes: `None` when it was dropped.
struct Knock(Vec<u8>, Sender<Option<Vec<u8>>>);

impl Arrived for Knock {
    fn method(&self) -> &str {
        "Store/next"
    }

    fn message(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(&self.0)
    }

    fn answer(&self, message: Vec<u8>) {
        let _ = self.1.send(Some(message));
    }
}

impl Drop for Knock {
    fn drop(&mut self) {
        let _ = self.1.send(None);
    }
}

/// Answers each call with its first word, which may be an error, and forgets some.
struct Echo;

impl GatheredService for Echo {
    fn methods(&self) -> &[Method] {
        &METHODS
    }

    fn gathered(&self, _: usize, calls: GatheredCalls) -> BatchFuture {
        Box::pin(async move {
            for call in 0..calls.len() {
                match calls.words_of(call) {
                    [word, ..] if word % 5 == 1 => calls.answer(call, Err(CallError::Failed(1))),
                    [word, ..] if word % 5 == 2 => {}
                    words => calls.answer(call, Ok(words)),
                }
            }
        })
    }
}

/// Lanes, each of which gets one answer.
struct Lanes(Mutex<Vec<Option<Status>>>);

impl GatheredLanes for Lanes {
    fn answer(&self, places: &[u32], statuses: &[Status], words: &[u64]) {
        assert_eq!(words.len() % places.len(), 0);
        let mut lanes = self.0.lock().unwrap();
        for (place, status) in places.iter().zip(statuses) {
            assert_eq!(lanes[*place as usize].replace(*status), None, "a lane is answered twice");
        }
    }

    fn waits(&self, place: u32) -> bool {
        self.0.lock().unwrap()[place as usize].is_none()
    }

    fn is_wanted(&self) -> bool {
        self.0.lock().unwrap().iter().any(Option::is_none)
    }

    fn wake_when_unwanted(&self, _: u64, _: &Waker) {}

    fn forget_waker(&self, _: u64) {}

    fn end(&self, _: bool) {
        assert!(!self.is_wanted(), "a call has no answer");
    }
}

/// What there is once in a process.
struct Ends {
    line: Line,
    store: Imported,
    _export: Mutex<Export>,
}

fn ends() -> &'static Ends {
    static ENDS: OnceLock<Ends> = OnceLock::new();
    ENDS.get_or_init(|| {
        let line = Line::default();
        let session = Session::builder().over(Box::new(line.clone()));
        let export = export_gathered(&session, "store", Echo).unwrap();
        let store = import(&session, "store", &METHODS).unwrap();
        Ends { line, store, _export: Mutex::new(export) }
    })
}

/// Takes bytes for a message, the first of them for what kind.
pub fn run(data: &[u8]) {
    let Some((kind, message)) = data.split_first() else { return };
    let ends = ends();
    if kind % 2 == 0 {
        let (told, tells) = channel();
        let mut message = message.to_vec();
        // Mostly a question of the method.
        if kind % 8 > 0 && message.len() >= 40 {
            message[..6].copy_from_slice(b"hcrm\x01\0");
            message[32..40].copy_from_slice(&METHODS[0].schema().to_le_bytes());
        }
        let question = Question::decode(&message);
        ends.line.arrived.lock().unwrap().as_ref().unwrap()(Box::new(Knock(message, told)));
        if let Some(answer) = tells.recv_timeout(LONG).expect("a question ends") {
            let answer = Answer::decode(&answer).expect("answers are right");
            assert!(question.is_err() || question.is_ok_and(|question| answer.is_to(&question.head)));
        }
    } else {
        *ends.line.answer.lock().unwrap() = [message, &[*kind; 32][..]].concat();
        let calls = u32::from(kind / 2 % 3) + 1;
        let lanes = Arc::new(Lanes(Mutex::new(vec![None; calls as usize])));
        let gathered =
            (0..calls).map(|place| GatheredCall { caller: Caller::default(), deadline: None, place });
        let gathered = GatheredCalls::new(lanes.clone(), 1, vec![7; calls as usize], gathered.collect());
        block_on(ends.store.gathered(0, gathered));
        assert!(!lanes.is_wanted(), "each lane is answered");
    }
}
