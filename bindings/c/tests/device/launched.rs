//! Launches and replays of kernels in HIP by hostcall's own streams: whose their calls are, and what ends them.

use crate::{HIP, hip_kernels};
use hostcall::device::{Launch, LaunchId};
use hostcall::graph::{CaptureMode, Graph};
use hostcall::rocm::{CodeObject, KernelArgument, Version};
use hostcall::server::HandlerPanic;
use hostcall::trace::{Event, Names, Reader, Tracer};
use hostcall::{
    CallError, Context, Device, DeviceBuffer, Error, Grid, LaunchFailure, Output, Stream, service,
};
use hostcall_abi::word::check_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::{Duration, Instant};

static CODE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    std::fs::read(hip_kernels(&HIP, "tests/c/launched.hip", "launched.co")).expect("it was compiled")
});

/// As hostcall_call_status has them.
const OK: u64 = 0;
const CANCELLED: u64 = 4;

#[service(number = 700)]
trait Asks {
    /// Waits while the tag is shut.
    fn ask(tag: u64) -> u64;
    fn note(tag: u64);
    fn echo(tag: u64, text: &[u8], back: &mut [u8]) -> u64;
    fn raise(tag: u64) -> u64;
}

/// A call or a post that came: its tag, its launch, and the replay of a graph that this is.
type Came = (u64, LaunchId, Option<u64>);

#[derive(Default)]
struct State {
    came: Vec<Came>,
    shut: BTreeSet<u64>,
    panics: Vec<(LaunchId, String)>,
    stream: Option<Arc<Stream>>,
    refused: Vec<String>,
}

#[derive(Clone, Default)]
struct Handler(Arc<(Mutex<State>, Condvar)>);

impl Handler {
    fn state<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let changed = change(&mut self.0.0.lock().unwrap());
        self.0.1.notify_all();
        changed
    }

    fn came(&self, tag: u64) {
        let launch = hostcall::caller().unwrap().launch;
        let replay = hostcall::graph::origin().map(|origin| origin.replay);
        self.state(|state| state.came.push((tag, launch, replay)));
    }

    fn take(&self) -> Vec<Came> {
        self.state(|state| std::mem::take(&mut state.came))
    }

    /// Waits until as many calls have come.
    fn wait_for(&self, count: usize) {
        let (state, changed) = &*self.0;
        let limit = Duration::from_secs(60);
        let (state, over) = changed
            .wait_timeout_while(state.lock().unwrap(), limit, |state| state.came.len() < count)
            .unwrap();
        assert!(!over.timed_out(), "{:?}", state.came);
    }
}

impl AsksHandler for Handler {
    fn ask(&self, tag: u64) -> Result<u64, CallError> {
        self.came(tag);
        if let Some(stream) = self.state(|state| state.stream.clone()) {
            let error = stream.synchronize().unwrap_err().to_string();
            self.state(|state| state.refused.push(error));
        }
        let (state, changed) = &*self.0;
        let _open = changed.wait_while(state.lock().unwrap(), |state| state.shut.contains(&tag)).unwrap();
        Ok(3 * tag)
    }

    fn note(&self, tag: u64) -> Result<(), CallError> {
        self.came(tag);
        Ok(())
    }

    fn echo(&self, tag: u64, text: &[u8], back: &mut Output<'_>) -> Result<u64, CallError> {
        back.push(text).map(|()| tag)
    }

    fn raise(&self, tag: u64) -> Result<u64, CallError> {
        panic!("as a test, of {tag}");
    }
}

fn word(method: usize) -> u64 {
    let method = Asks::METHODS[method];
    u64::from(method.number()) | u64::from(check_of(method.schema())) << 16
}

struct Host {
    device: Device,
    stream: Arc<Stream>,
    context: Context,
    code: CodeObject,
    handler: Handler,
}

impl Host {
    fn open() -> Self {
        let handler = Handler::default();
        let panics = handler.clone();
        let device = Device::builder("gfx942").service(Asks::serve(handler.clone())).server(move |server| {
            server.handler_panic_report(move |panic: &HandlerPanic| {
                panics.state(|state| state.panics.push((panic.launch, panic.kernel.to_string())));
            })
        });
        let device = device.open().unwrap();
        let (stream, context) = (Arc::new(device.stream().unwrap()), device.context("step").unwrap());
        let code = device.load_code_object_bytes(&CODE, Version::Stacks).unwrap();
        Self { device, stream, context, code, handler }
    }

    fn launch_on(&self, stream: &Stream, kernel: &str, lanes: u32, arguments: &[KernelArgument]) -> Launch {
        // SAFETY: tests give the arguments that their kernels take.
        unsafe { self.code.kernel(kernel).unwrap().launch(stream, Grid::new(1, lanes), arguments) }.unwrap()
    }

    fn ask_on(&self, stream: &Stream, out: &DeviceBuffer<u64>, tag: u64) -> Launch {
        self.ask_by(stream, &self.context, out, tag)
    }

    fn ask_by(&self, stream: &Stream, context: &Context, out: &DeviceBuffer<u64>, tag: u64) -> Launch {
        let arguments = [
            KernelArgument::context(context),
            KernelArgument::value(word(0)),
            KernelArgument::buffer(out),
            KernelArgument::value(tag),
        ];
        self.launch_on(stream, "ask", 1, &arguments)
    }

    fn out(&self) -> DeviceBuffer<u64> {
        self.device.upload(&[u64::MAX; 3]).unwrap()
    }

    fn capture(&self, work: impl FnOnce(&Stream)) -> Graph {
        let record = |stream: &Stream| {
            work(stream);
            Ok::<_, Error>(())
        };
        self.stream.capture(CaptureMode::ThreadLocal, record).unwrap()
    }

    /// Nothing is left of any launch.
    fn is_idle(&self) {
        assert_eq!(self.device.server().launches().count(), 0);
        assert_eq!(self.context.launch_ids().unwrap(), [self.context.launch_id()]);
        assert!(self.device.waiting().is_empty());
    }
}

fn ran_to_end(error: Error) -> bool {
    matches!(error, Error::Launch { failure: LaunchFailure::RanToEnd, .. })
}

#[test]
fn a_call_says_which_launch_or_replay_it_is_of() {
    let host = Host::open();
    let out = host.out();
    let launch = host.ask_on(&host.stream, &out, 7);
    launch.wait().unwrap();
    assert_eq!(out.read().unwrap(), [OK, 21, OK]);
    assert_ne!(launch.id(), host.context.launch_id());
    assert_eq!(host.handler.take(), [(7, launch.id(), None); 2]);
    let graph = host.capture(|stream| {
        host.ask_on(stream, &out, 8);
        host.ask_on(stream, &out, 9);
    });
    let instance = graph.instantiate().unwrap();
    for _ in 0..3 {
        instance.launch(&host.stream).unwrap();
    }
    host.stream.synchronize().unwrap();
    let came = host.handler.take();
    let replays: Vec<_> = came.iter().map(|(tag, _, replay)| (*tag, replay.unwrap())).collect();
    let expected = (1..=3).flat_map(|replay| [(8, replay), (8, replay), (9, replay), (9, replay)]);
    assert_eq!(replays, expected.collect::<Vec<_>>());
    assert_eq!(came.iter().map(|(_, launch, _)| *launch).collect::<BTreeSet<_>>().len(), 6);
    // Who passes the address as a number calls in the context's name, as whoever is launched by others.
    let arguments = [
        KernelArgument::value(host.context.address().get()),
        KernelArgument::value(word(0)),
        KernelArgument::buffer(&out),
        KernelArgument::value(1u64),
    ];
    host.launch_on(&host.stream, "ask", 1, &arguments);
    host.stream.synchronize().unwrap();
    assert_eq!(host.handler.take(), [(1, host.context.launch_id(), None); 2]);
    host.is_idle();
}

/// All of it has come when the launch has ended, without a flush.
#[test]
fn posts_prints_and_checks_are_the_launch_s() {
    let host = Host::open();
    let methods = host.device.upload(&[word(1), word(2)]).unwrap();
    let out = host.device.upload(&[u64::MAX; 100]).unwrap();
    let tell = |stream: &Stream, tag: u64| {
        let arguments = [
            KernelArgument::context(&host.context),
            KernelArgument::input(&methods),
            KernelArgument::buffer(&out),
            KernelArgument::value(tag),
        ];
        host.launch_on(stream, "tell", 100, &arguments)
    };
    let launches: Vec<_> = (0..20).map(|tag| tell(&host.stream, tag).id()).collect();
    host.stream.synchronize().unwrap();
    let expected: Vec<_> = launches.iter().zip(0..).flat_map(|(id, tag)| [(tag, *id, None); 100]).collect();
    let mut came = host.handler.take();
    came.sort_by_key(|(tag, ..)| *tag);
    assert_eq!(came, expected);
    assert_eq!(out.read().unwrap(), [0; 100]);
    let [check] = &host.context.failed_checks().unwrap()[..] else { panic!("of one place") };
    assert_eq!((check.count, check.launch, &*check.kernel), (20, launches[0], "tell"));
    let instance = host.capture(|stream| _ = tell(stream, 30)).instantiate().unwrap();
    instance.launch(&host.stream).unwrap();
    host.stream.synchronize().unwrap();
    let came = host.handler.take();
    assert!(came.len() == 100 && came.iter().all(|came| *came == (30, came.1, Some(1))));
    let [check] = &host.context.failed_checks().unwrap()[..] else { panic!("of one place") };
    assert_eq!((check.launch, &*check.kernel, check.thread), (came[0].1, "tell", [5, 0, 0]));
    host.is_idle();
}

#[test]
fn reports_name_the_kernel_and_its_launch() {
    let host = Host::open();
    let out = host.out();
    let instance = host.capture(|stream| _ = host.ask_on(stream, &out, 5)).instantiate().unwrap();
    for is_replay in [false, true] {
        host.handler.state(|state| _ = state.shut.insert(5));
        match is_replay {
            false => drop(host.ask_on(&host.stream, &out, 5)),
            true => drop(instance.launch(&host.stream).unwrap()),
        }
        host.handler.wait_for(1);
        let error = host.stream.synchronize_for(Duration::from_millis(50)).unwrap_err();
        let Error::TimedOut { longest: Some(call), .. } = &error else { panic!("{error}") };
        let [waiting] = &host.device.waiting()[..] else { panic!("one call waits") };
        let (_, launch, replay) = host.handler.take()[0];
        assert_eq!((waiting.launch, &*waiting.kernel, replay.is_some()), (launch, "ask", is_replay));
        assert_eq!((call.launch, &*call.kernel), (launch, "ask"));
        assert!(error.to_string().contains("ask"), "{error}");
        assert_eq!(waiting.place.map(|place| place.workgroup), Some([0, 0, 0]));
        host.handler.state(|state| state.shut.clear());
        host.stream.synchronize().unwrap();
        host.handler.take();
    }
    // A handler that panics, and calls that nobody serves.
    let arguments = |method| {
        let context = KernelArgument::context(&host.context);
        [
            context,
            KernelArgument::value(word(method)),
            KernelArgument::buffer(&out),
            KernelArgument::value(1u64),
        ]
    };
    let launch = host.launch_on(&host.stream, "ask", 1, &arguments(3));
    host.stream.synchronize().unwrap();
    let begin = Instant::now();
    while host.handler.state(|state| state.panics.is_empty()) {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(1));
    }
    let panics = host.handler.state(|state| std::mem::take(&mut state.panics));
    assert_eq!(panics[0], (launch.id(), "ask".to_owned()));
    let strays = host.device.upload(&[0u64; 8]).unwrap();
    host.launch_on(
        &host.stream,
        "stray",
        8,
        &[KernelArgument::context(&host.context), KernelArgument::buffer(&strays)],
    );
    host.stream.synchronize().unwrap();
    let unserved = host.device.server().take_unserved(host.context.launch_id());
    assert!(matches!(&unserved[..], [of] if (of.number, of.calls) == (799, 8)), "{unserved:?}");
    host.is_idle();
}

#[test]
fn a_launch_is_cancelled_by_itself() {
    let host = Host::open();
    let (other, outs) = (host.device.stream().unwrap(), [host.out(), host.out()]);
    host.handler.state(|state| state.shut.extend([1, 2]));
    let one = host.ask_on(&host.stream, &outs[0], 1);
    let two = host.ask_on(&other, &outs[1], 2);
    host.handler.wait_for(2);
    one.cancel();
    assert!(ran_to_end(one.wait().unwrap_err()));
    assert_eq!(outs[0].read().unwrap()[..1], [CANCELLED]);
    assert_eq!(outs[0].read().unwrap()[2], CANCELLED);
    assert!(!two.is_done());
    host.handler.state(|state| state.shut.clear());
    two.wait().unwrap();
    assert_eq!(outs[1].read().unwrap(), [OK, 6, OK]);
    assert!(ran_to_end(host.stream.synchronize().unwrap_err()));
    // The next one of the stream is none of those.
    host.ask_on(&host.stream, &outs[0], 4).wait().unwrap();
    assert_eq!(outs[0].read().unwrap(), [OK, 12, OK]);
    // A replay, by its time limit.
    host.handler.state(|state| _ = state.shut.insert(3));
    let instance = host.capture(|stream| _ = host.ask_on(stream, &outs[0], 3)).instantiate().unwrap();
    let replay = instance.launch(&host.stream).unwrap();
    replay.cancel_after(Duration::from_millis(30));
    assert!(replay.wait().is_err() && host.stream.synchronize().is_err());
    assert_eq!(outs[0].read().unwrap()[..1], [CANCELLED]);
    host.handler.state(|state| state.shut.clear());
    instance.launch(&host.stream).unwrap().wait().unwrap();
    assert_eq!(outs[0].read().unwrap(), [OK, 9, OK]);
    host.is_idle();
}

#[test]
fn a_context_ends_and_renews_its_launches_calls() {
    let host = Host::open();
    let (other, outs) = (host.device.stream().unwrap(), [host.out(), host.out()]);
    let instance = host.capture(|stream| _ = host.ask_on(stream, &outs[0], 6)).instantiate().unwrap();
    host.handler.state(|state| state.shut.extend([1, 2]));
    let before = [host.ask_on(&host.stream, &outs[0], 1), host.ask_on(&other, &outs[1], 2)];
    host.handler.wait_for(2);
    // They stay the context's when it is renewed.
    host.context.renew().unwrap();
    assert_eq!(host.context.launch_ids().unwrap().len(), 3);
    host.context.cancel().unwrap();
    for launch in &before {
        launch.wait().unwrap();
    }
    for out in &outs {
        let told = out.read().unwrap();
        assert_eq!([told[0], told[2]], [CANCELLED; 2]);
    }
    instance.launch(&host.stream).unwrap();
    host.ask_on(&other, &outs[1], 5);
    [&*host.stream, &other].iter().for_each(|stream| stream.synchronize().unwrap());
    for out in &outs {
        let told = out.read().unwrap();
        assert_eq!([told[0], told[2]], [CANCELLED; 2]);
    }
    host.context.renew().unwrap();
    host.handler.state(|state| state.shut.clear());
    host.handler.take();
    instance.launch(&host.stream).unwrap().wait().unwrap();
    assert_eq!(outs[0].read().unwrap(), [OK, 18, OK]);
    assert_eq!(host.handler.take().len(), 2);
    host.context.flush().unwrap();
    host.is_idle();
}

#[test]
fn a_graph_that_outlives_its_context_has_its_calls_cancelled() {
    let host = Host::open();
    let (out, context) = (host.out(), host.device.context("short").unwrap());
    host.handler.state(|state| _ = state.shut.insert(1));
    let instance = host.capture(|stream| _ = host.ask_by(stream, &context, &out, 1)).instantiate().unwrap();
    let replay = instance.launch(&host.stream).unwrap();
    host.handler.wait_for(1);
    drop(context);
    replay.wait().unwrap();
    host.handler.state(|state| state.shut.clear());
    for _ in 0..3 {
        let told = out.read().unwrap();
        assert_eq!([told[0], told[2]], [CANCELLED; 2]);
        host.stream.fill(&out, 77).unwrap();
        instance.launch(&host.stream).unwrap().wait().unwrap();
    }
    host.handler.take();
    // Others' go on.
    host.ask_on(&host.stream, &out, 2).wait().unwrap();
    assert_eq!(out.read().unwrap(), [OK, 6, OK]);
    host.is_idle();
}

/// A launch that has not begun on the device must not change whose the calls of the one before are.
#[test]
fn streams_with_one_context_do_not_mix_up_their_launches() {
    let host = Host::open();
    let streams: Vec<_> = (0..3).map(|_| host.device.stream().unwrap()).collect();
    let outs: Vec<_> = (0..3).map(|_| host.out()).collect();
    host.handler.state(|state| state.shut.extend([0, 1, 2]));
    let mut ids = BTreeMap::new();
    for tag in 0..120u64 {
        let at = tag as usize % 3;
        ids.insert(tag, host.ask_on(&streams[at], &outs[at], tag).id());
    }
    // All are pushed while the first of each stream waits in its first call.
    host.handler.wait_for(3);
    host.handler.state(|state| state.shut.clear());
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
    let came = host.handler.take();
    assert_eq!(came.len(), 240);
    assert!(came.iter().all(|(tag, launch, _)| ids[tag] == *launch), "{came:?}");
    assert_eq!(ids.values().collect::<BTreeSet<_>>().len(), 120);
    host.is_idle();
}

#[test]
fn many_replays_leave_nothing_behind() {
    let host = Host::open();
    let out = host.out();
    let instance = host.capture(|stream| _ = host.ask_on(stream, &out, 1)).instantiate().unwrap();
    for _ in 0..1000 {
        instance.launch(&host.stream).unwrap();
    }
    host.stream.synchronize().unwrap();
    let came = host.handler.take();
    let replays: Vec<_> = came.iter().map(|(.., replay)| replay.unwrap()).collect();
    assert_eq!(replays, (1..=1000).flat_map(|replay| [replay; 2]).collect::<Vec<_>>());
    assert!(came.chunks(2).all(|calls| calls[0].1 == calls[1].1));
    host.is_idle();
}

#[test]
fn calls_by_another_context_are_that_one_s() {
    let host = Host::open();
    let (other, out) = (host.device.context("other").unwrap(), host.out());
    let arguments = [
        KernelArgument::context(&host.context),
        KernelArgument::context(&other),
        KernelArgument::value(word(0)),
        KernelArgument::buffer(&out),
    ];
    let launch = host.launch_on(&host.stream, "both", 1, &arguments);
    host.stream.synchronize().unwrap();
    assert_eq!(host.handler.take(), [(1, launch.id(), None), (2, other.launch_id(), None)]);
    host.is_idle();
}

/// A handler that would wait for its own kernel is refused.
#[test]
fn a_handler_does_not_wait_for_its_own_kernel() {
    let host = Host::open();
    let out = host.out();
    host.handler.state(|state| state.stream = Some(host.stream.clone()));
    host.ask_on(&host.stream, &out, 1);
    host.stream.synchronize().unwrap();
    assert_eq!(out.read().unwrap(), [OK, 3, OK]);
    let refused = host.handler.state(|state| {
        state.stream = None;
        std::mem::take(&mut state.refused)
    });
    assert!(refused.len() == 2 && refused.iter().all(|error| error.contains("ask")), "{refused:?}");
    host.is_idle();
}

/// Each record is of its launch, also where a page has those of several.
#[test]
fn trace_points_are_the_launch_s() {
    let file = crate::temporary("launched.trace");
    let tracer = Tracer::builder().file(&file).unwrap().start().unwrap();
    let device = Device::builder("gfx942").trace(&tracer).open().unwrap();
    let (stream, context) = (device.stream().unwrap(), device.context("traced").unwrap());
    let code = device.load_code_object_bytes(&CODE, Version::Stacks).unwrap();
    let launch = |stream: &Stream, tag: u64| {
        let arguments = [KernelArgument::context(&context), KernelArgument::value(tag)];
        // SAFETY: they are what the kernel takes.
        unsafe { code.kernel("traced").unwrap().launch(stream, Grid::new(1, 64), &arguments) }
    };
    let mut ids: Vec<_> = (0..10).map(|tag| launch(&stream, tag).unwrap().id()).collect();
    let capture = |stream: &Stream| launch(stream, 10).map(drop);
    let instance = stream.capture(CaptureMode::ThreadLocal, capture).unwrap().instantiate().unwrap();
    instance.launch(&stream).unwrap();
    stream.synchronize().unwrap();
    drop((instance, stream, context, code, device));
    assert_eq!(tracer.finish(Duration::from_secs(60)).lost(), None);
    let (mut names, mut found) = (Names::default(), Vec::new());
    for event in Reader::new(std::fs::File::open(file).unwrap()).unwrap() {
        let event = event.unwrap();
        names.note(&event);
        if let Event::Point(point) = event {
            let of = names.launch(point.launch).unwrap();
            found.push((of.kernel.to_string(), of.id, point.lanes));
        }
    }
    // The replay's is the one that is not among them.
    ids.extend(found.iter().map(|(_, id, _)| *id).find(|id| !ids.contains(id)));
    found.sort();
    ids.sort();
    assert_eq!(found, ids.into_iter().map(|id| ("traced".to_owned(), id, 64)).collect::<Vec<_>>());
}
