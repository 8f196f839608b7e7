use crate::context::{done, read};
use crate::{Context, Gates, Outcome, Session, echo, ensure, same};
use conformance::calls::call_in_turn;
use conformance::panics::{
    CHECKS_OVERFLOW, KINDS, LONG, PANIC_LINE, VALUES, panic_fault_beside_calls, panic_kinds,
    panic_null_write, panic_values,
};
use conformance::services::Gate;
use hostcall::device::DeviceFaultKind;
use hostcall::services::Panic;
use hostcall::{Error, Grid, LaunchFailure};

const GRID: Grid = Grid::new_3d([2, 2, 1], [10, 5, 1]);
/// Lane 23 of workgroup (1, 1, 0).
const GUILTY: u64 = 3 * 50 + 23;

fn open(context: &Context) -> Result<Session, String> {
    context.open(|device| device.inline_service(echo()))
}

/// The device works as before.
fn still_works(session: &Session) -> Outcome {
    let out = session.out(GRID, 1)?;
    session.run(call_in_turn, GRID, (3u32, &out))?;
    done(&read(&out)?)
}

fn panic_of(session: &Session, kind: u32) -> Result<Panic, String> {
    let out = session.out(GRID, 1)?;
    match session.try_run(panic_kinds, GRID, (kind, GUILTY, &out))? {
        Err(Error::Launch {
            kernel, failure: LaunchFailure::Panicked { first: Some(panic), .. }, ..
        }) => {
            same!(kernel, "panic_kinds");
            same!(read(&out)?[GUILTY as usize], 0);
            Ok(panic)
        }
        other => Err(format!("{}: the launch ended with {other:?}", KINDS[kind as usize])),
    }
}

pub fn kinds(context: &Context) -> Outcome {
    let session = open(context)?;
    let texts = [
        "the kernel gives up",
        "lane 173 of 200 gives up: Some(1.5)",
        "index out of bounds: the len is 3 but the index is 3",
        "called `Option::unwrap()` on a `None` value",
        "no error: 7",
        "assertion failed: black_box(id) != guilty",
        "attempt to add with overflow",
    ];
    for (kind, text) in (0..).zip(texts) {
        if KINDS[kind as usize] == "overflow" && (!CHECKS_OVERFLOW || context.image.is_some()) {
            continue;
        }
        let panic = panic_of(&session, kind)?;
        same!(panic.message, text);
        ensure!(panic.file.ends_with("panics.rs"));
        same!((panic.workgroup, panic.lane), ([1, 1, 0], 23));
        if kind == 0 {
            same!(panic.line, PANIC_LINE);
        }
        still_works(&session)?;
    }
    Ok(())
}

/// What a panic says that no function of the program shows, as `format!` says it.
pub fn values(context: &Context) -> Outcome {
    let session = open(context)?;
    let texts = session.device.upload(b"of \xc3\xa9l").map_err(|error| error.to_string())?;
    let (small, negative, float, id) = (7u8, -3i16, 0.125f32, GUILTY);
    let (letter, truth, word) = ('é', true, "a \"word\"");
    let expected = [
        format!("{small} {negative} {float} {letter} {truth} {word} {}", u64::MAX),
        format!(
            "{small:>5}|{small:#06x}|{negative:+}|{negative:x}|{float:.2}|{float:e}|{word:>12}|{word:-<9.3}"
        ),
        format!("{letter:?} {word:?} {float:?} {small:08b} {small:o} {id:X} {small:#?}"),
        format!("{:1$}|{:.*}|{{}}", negative, 6, float),
        format!("assertion `left == right` failed\n  left: {id}\n right: {}", id + 1),
        format!("assertion `left == right` failed: of lane {id}: {word}\n  left: 7\n right: 8"),
        "assertion `left != right` failed\n  left: 'é'\n right: 'é'".into(),
        "called `Result::unwrap()` on an `Err` value: Failed(-5)".into(),
        format!("a word: {word:?}"),
        word.into(),
        "slice index starts at 3 but ends at 2".into(),
        "attempt to divide by zero".into(),
        "from elsewhere: of él".into(),
    ];
    for kind in 0..VALUES {
        let out = session.out(GRID, 1)?;
        let ended = session.try_run(panic_values, GRID, (kind, GUILTY, &texts, &out))?;
        let Err(Error::Launch {
            kernel, failure: LaunchFailure::Panicked { first: Some(panic), .. }, ..
        }) = ended
        else {
            return Err(format!("way {kind}: the launch ended with {ended:?}"));
        };
        same!(kernel, "panic_values");
        same!((panic.workgroup, panic.lane), ([1, 1, 0], 23));
        ensure!(panic.file.ends_with("panics.rs") || panic.file.contains("core/src"));
        match expected.get(kind as usize) {
            Some(expected) => same!(panic.message, *expected),
            // A device cuts it where it has room for no more.
            None => ensure!(
                panic.message.len() >= 256 && LONG.starts_with(panic.message.trim_end_matches(" [cut]"))
            ),
        }
        same!(read(&out)?[GUILTY as usize], 0);
    }
    still_works(&session)
}

/// One lane of many; and many, of which the first is told.
pub fn one_of_many(context: &Context) -> Outcome {
    let session = open(context)?;
    for guilty in [0, 31, 32, 199] {
        let out = session.out(GRID, 1)?;
        let ended = session.try_run(panic_kinds, GRID, (1u32, guilty, &out))?;
        let sentence = ended.err().ok_or("a panic was not reported")?.to_string();
        ensure!(sentence.contains("panic_kinds") && sentence.contains(&format!("lane {guilty} of 200")));
    }
    still_works(&session)
}

fn is_fault<T>(ended: &Result<T, Error>, kind: DeviceFaultKind) -> bool {
    matches!(ended, Err(Error::Launch { failure: LaunchFailure::Fault(fault), .. }) if fault.kind == kind)
}

/// Faults of one lane. The software device can go on after them; a GPU says that it cannot.
pub fn null_write(context: &Context) -> Outcome {
    let session = open(context)?;
    let out = session.out(GRID, 1)?;
    if !context.is_software() {
        let ended = session.try_run(panic_null_write, GRID, (GUILTY, &out))?;
        ensure!(is_fault(&ended, DeviceFaultKind::Memory));
        // Finding the kernel fails, or launching it.
        let sentence = match session.try_run(panic_null_write, GRID, (GUILTY, &out)) {
            Ok(ended) => ended.err().ok_or("a GPU went on after a fault")?.to_string(),
            Err(sentence) => sentence,
        };
        ensure!(sentence.contains("cannot be used any more"));
        return Ok(());
    }
    for _ in 0..2 {
        let ended = session.try_run(panic_null_write, GRID, (GUILTY, &out))?;
        ensure!(is_fault(&ended, DeviceFaultKind::Memory));
        still_works(&session)?;
        let ended = session.try_run(panic_kinds, GRID, (7u32, GUILTY, &out))?;
        ensure!(is_fault(&ended, DeviceFaultKind::StackOverflow));
        still_works(&session)?;
    }
    Ok(())
}

/// A fault cancels the launch's calls, whose handlers may wait for ever.
pub fn fault_beside_calls(context: &Context) -> Outcome {
    if !context.is_software() {
        return Ok(());
    }
    let gates = Gates::default();
    let session = context.open(|device| device.service(Gate::serve(gates.clone())))?;
    let grid = Grid::new(2, 40);
    let (stream, out) = (session.stream()?, session.out(grid, 1)?);
    session.launch(&stream, panic_fault_beside_calls, grid, (&out,))?;
    let arrived = gates.wait_for_arrivals(41);
    gates.open(40);
    let ended = stream.synchronize();
    gates.open_all();
    arrived?;
    ensure!(is_fault(&ended, DeviceFaultKind::Memory));
    same!(read(&out)?[..40], [1; 40]);
    ensure!(session.device.waiting().is_empty());
    Ok(())
}
