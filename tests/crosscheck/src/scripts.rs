//! What clients do, as LLVM's libc does it, and what they note of the answers.

use crate::caller::{Caller, Talk};

/// A script.
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// It is run by one lane of the wave.
    pub one_lane: bool,
}

/// All scripts.
pub const SCRIPTS: [Script; 13] = [
    Script { name: "increment", one_lane: false },
    Script { name: "interface", one_lane: true },
    Script { name: "stream", one_lane: false },
    Script { name: "long_stream", one_lane: true },
    Script { name: "write", one_lane: false },
    Script { name: "files", one_lane: false },
    Script { name: "print", one_lane: false },
    Script { name: "print_packed", one_lane: false },
    Script { name: "stdin", one_lane: true },
    Script { name: "heap", one_lane: false },
    Script { name: "host_call", one_lane: false },
    Script { name: "exit", one_lane: true },
    Script { name: "abort", one_lane: true },
];

impl Script {
    /// Its place among [`SCRIPTS`].
    pub fn index(&self) -> usize {
        SCRIPTS.iter().position(|script| script.name == self.name).expect("there is no other script")
    }
}

/// Runs a script on one lane. `base` is libc's first opcode.
pub(crate) fn run(script: usize, caller: &mut impl Caller, base: u32) {
    let mut run = Run { caller, base };
    match SCRIPTS[script].name {
        "increment" => run.increment(),
        "interface" => run.interface(),
        "stream" => run.streams(&[0, 1, 7, 8, 55, 56, 57, 63, 64, 65, 119, 120, 121, 300, 1000]),
        "long_stream" => run.streams(&[0, 4096, 65_535, 65_536, 99_999, 100_000]),
        "write" => run.write(),
        "files" => run.files(),
        "print" => run.print(false),
        "print_packed" => run.print(true),
        "stdin" => run.stdin(),
        "heap" => run.heap(),
        "host_call" => run.host_call(),
        "exit" => run.exit(),
        "abort" => run.abort(),
        name => unreachable!("{name} has no lines here"),
    }
}

/// C's `EOF` as it comes over the link.
const EOF: u64 = u64::MAX;

struct Run<'c, C> {
    caller: &'c mut C,
    base: u32,
}

impl<C: Caller> Run<'_, C> {
    fn open(&self, opcode: u32) -> C::Port {
        self.caller.open(self.base | opcode)
    }

    fn note_bytes(&mut self, bytes: &[u8]) {
        self.caller.note(bytes.len() as u64);
        // Fowler, Noll and Vo's hash.
        let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.caller.note(hash);
    }

    /// Sends words, receives one, and notes it.
    fn ask(&mut self, opcode: u32, words: &[u64]) -> u64 {
        let answer = self.ask_quietly(opcode, words);
        self.caller.note(answer);
        answer
    }

    fn ask_quietly(&mut self, opcode: u32, words: &[u64]) -> u64 {
        let mut port = self.open(opcode);
        port.send(words);
        let mut answer = [0];
        port.receive(&mut answer);
        port.close();
        answer[0]
    }

    /// Bytes that differ from lane to lane.
    fn bytes(&self, length: usize) -> Vec<u8> {
        let lane = self.caller.lane() as usize;
        (0..length).map(|i| b'!' + ((i * 7 + lane * 3) % 90) as u8).collect()
    }

    fn increment(&mut self) {
        for i in 0..100 {
            let mut noop = self.open(if i % 2 == 0 { 0x8000 } else { 0 });
            noop.send(&[]);
            noop.close();
            let number = self.caller.lane() << 40 | i;
            self.ask(0x8001, &[number]);
        }
    }

    fn interface(&mut self) {
        for ends_with_send in [0, 1, 0] {
            let mut port = self.open(0x8002);
            let mut counter = [0];
            port.send(&[ends_with_send]);
            counter[0] += 1;
            port.send(&counter);
            port.receive(&mut counter);
            counter[0] += 1;
            port.send(&counter);
            port.receive(&mut counter);
            counter[0] += 1;
            port.send(&counter);
            counter[0] += 1;
            port.send(&counter);
            port.receive(&mut counter);
            port.receive(&mut counter);
            if ends_with_send != 0 {
                counter[0] += 1;
                port.send(&counter);
            } else {
                port.receive(&mut counter);
            }
            port.close();
            assert_eq!(counter[0], 9);
            self.caller.note(counter[0]);
        }
    }

    fn streams(&mut self, sizes: &[usize]) {
        for (i, size) in sizes.iter().enumerate() {
            for spread in 0..2 {
                let lane = self.caller.lane() as usize;
                let bytes = self.bytes(size + spread * lane * (i + 1));
                let mut port = self.open(0x8003);
                port.send_bytes(&bytes);
                let mut back = vec![0; bytes.len()];
                assert_eq!(port.receive_bytes(&mut back), bytes.len() as u64);
                port.close();
                assert!(back == bytes);
                self.note_bytes(&back);
            }
        }
    }

    fn write_to(&mut self, opcode: u32, stream: Option<u64>, bytes: &[u8]) -> u64 {
        let mut port = self.open(opcode);
        if let Some(stream) = stream {
            port.send(&[stream]);
        }
        port.send_bytes(bytes);
        let mut written = [0];
        port.receive(&mut written);
        port.close();
        self.caller.note(written[0]);
        written[0]
    }

    fn write(&mut self) {
        for length in [0, 1, 20, 56, 57, 200, 5000] {
            for opcode in [2, 3, 5] {
                let bytes = self.bytes(length + self.caller.lane() as usize);
                self.write_to(opcode, None, &bytes);
            }
        }
    }

    fn open_file(&mut self, path: &str, mode: &str) -> u64 {
        let mut port = self.open(8);
        port.send_bytes(format!("{path}\0").as_bytes());
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(mode.as_bytes().chunks(8)) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(bytes);
        }
        port.send(&words);
        let mut file = [0];
        port.receive(&mut file);
        port.close();
        self.caller.note(u64::from(file[0] != 0));
        file[0]
    }

    fn read(&mut self, stream: u64, size: u64) {
        let mut port = self.open(6);
        port.send(&[size, stream]);
        let mut bytes = vec![0; size as usize];
        let sent = port.receive_bytes(&mut bytes);
        let mut count = [0];
        port.receive(&mut count);
        port.close();
        assert_eq!(sent, count[0]);
        self.note_bytes(&bytes[..sent as usize]);
    }

    fn read_line(&mut self, stream: u64, size: u64) {
        let mut port = self.open(7);
        port.send(&[size, stream]);
        let mut bytes = vec![0; size as usize];
        let sent = port.receive_bytes(&mut bytes);
        port.close();
        self.note_bytes(&bytes[..sent as usize]);
    }

    /// Notes end, error and position of a file.
    fn look(&mut self, file: u64) {
        for opcode in [14, 15, 18] {
            self.ask(opcode, &[file]);
        }
    }

    fn path(&mut self, opcode: u32, paths: &[&str]) {
        let mut port = self.open(opcode);
        for path in paths {
            port.send_bytes(format!("{path}\0").as_bytes());
        }
        let mut result = [0];
        port.receive(&mut result);
        port.close();
        // C's functions return an `int`.
        self.caller.note(result[0] & 0xffff_ffff);
    }

    fn files(&mut self) {
        let name = format!("file{}", self.caller.lane());
        assert_eq!(self.open_file(&name, "r"), 0);
        assert_eq!(self.open_file(&name, "zz"), 0);
        let file = self.open_file(&name, "w+");
        self.look(file);
        self.write_to(4, Some(file), b"first line\nsecond\n\nlast");
        let long = self.bytes(3000);
        self.write_to(4, Some(file), &long);
        self.look(file);
        self.ask(19, &[file]);
        for (offset, whence) in [(0, 0), (5, 0), (-4i64 as u64, 1), (-10i64 as u64, 2), (-1i64 as u64, 0)] {
            self.ask(17, &[file, offset, whence]);
            self.look(file);
            self.read(file, 4);
        }
        self.ask(17, &[file, 0, 0]);
        for size in [100, 5, 2, 1, 100, 100, 100] {
            self.read_line(file, size);
            self.look(file);
        }
        self.ask(20, &[u64::from(b'Q'), file]);
        self.look(file);
        self.read(file, 5000);
        self.look(file);
        self.read_line(file, 10);
        self.ask(20, &[u64::from(b'R'), file]);
        self.look(file);
        self.read(file, 10);
        self.ask_quietly(16, &[file]);
        self.look(file);
        self.ask(20, &[EOF, file]);
        self.ask(9, &[file]);
        let file = self.open_file(&name, "a");
        self.write_to(4, Some(file), b" appended");
        self.look(file);
        self.read(file, 10);
        self.look(file);
        self.ask(9, &[file]);
        let file = self.open_file(&name, "r+b");
        self.read(file, 5);
        self.ask(17, &[file, 0, 1]);
        self.write_to(4, Some(file), b"WRITTEN");
        self.ask(17, &[file, 0, 1]);
        self.read(file, 10);
        self.ask(9, &[file]);
        let file = self.open_file(&name, "r");
        self.write_to(4, Some(file), b"to a file that is read");
        self.look(file);
        self.ask(9, &[file]);
        self.path(27, &["missing"]);
        let other = format!("gone{}", self.caller.lane());
        let file = self.open_file(&other, "w");
        self.ask(9, &[file]);
        self.path(27, &[&other]);
        assert_eq!(self.open_file(&other, "r"), 0);
    }

    fn print(&mut self, packed: bool) {
        let lane = self.caller.lane();
        let first = if packed { 24 } else { 21 };
        let number = lane as i64 * 1_000_003 - 7;
        let real = lane as f64 * 1.375 - 3.5;
        let text = format!("lane {lane}");
        let cases: [(&str, &[Argument<'_>]); 24] = [
            ("plain text\n", &[]),
            ("%% and %d\n", &[Int(number as i32)]),
            ("[%5d|%-5d|%05d|%+d|% d|%.3d|%8.3d]\n", &[Int(lane as i32); 7]),
            ("[%i|%u|%o|%x|%X|%#o|%#x|%#X]\n", &[Int(number as i32); 8]),
            ("[%ld|%lld|%lu|%llx|%jd|%zu|%td]\n", &[Long(number); 7]),
            // LLVM 19 prints 151 for `%hhd` of a number that is -105 as a `char`.
            ("[%hhd|%hd]\n", &[Int(lane as i32), Int(-(lane as i32))]),
            ("[%hhu|%hx]\n", &[Int(number as i32); 2]),
            ("%c%c%5c%-3c|\n", &[Int(65), Int(b'z'.into()), Int(66), Int(67)]),
            ("[%s|%10s|%-10s|%.3s|%10.2s]\n", &[Text(&text); 5]),
            ("%d %s %ld %s %c %s\n", &[Int(1), Text("one"), Long(2), Text("two"), Int(51), Text("three")]),
            ("[%*d|%-*d|%.*d]\n", &[Int(8), Int(42), Int(8), Int(42), Int(4), Int(42)]),
            ("[%*d]\n", &[Int(-8), Int(7)]),
            ("[%.*s|%*s]\n", &[Int(2), Text("abcdef"), Int(9), Text("abc")]),
            ("%f %e %g\n", &[Real(real); 3]),
            ("[%.0f|%.1f|%10.3f|%-10.2f|%+f|%#.0f]\n", &[Real(real); 6]),
            ("[%E|%.3e|%G|%.10g|%F]\n", &[Real(real * 1e10); 5]),
            ("[%a|%A]\n", &[Real(1.5), Real(-0.75)]),
            ("[%f|%F|%e]\n", &[Real(f64::INFINITY), Real(f64::NEG_INFINITY), Real(f64::INFINITY)]),
            ("[%d%d%d%d%d%d%d%d]\n", &[Int(1); 8]),
            ("%c%ld%c%f%c%s\n", &[Int(65), Long(-1), Int(66), Real(0.5), Int(67), Text("end")]),
            ("[%p]\n", &[Long(0x1234_5678)]),
            ("[%p|%s|%8s]\n", &[Long(0); 3]),
            ("%s", &[Text("")]),
            ("%s\n", &[Text(&"long ".repeat(100))]),
        ];
        let file = self.open_file(&format!("printed{lane}"), "w");
        for (i, (format, arguments)) in cases.into_iter().enumerate() {
            let (to, stream) = match i % 3 {
                0 => (0, None),
                1 => (1, None),
                _ => (2, Some(file)),
            };
            self.print_line(first + to, stream, packed, format, arguments);
        }
        self.ask(9, &[file]);
    }

    fn print_line(
        &mut self,
        opcode: u32,
        stream: Option<u64>,
        packed: bool,
        format: &str,
        arguments: &[Argument<'_>],
    ) {
        let strings: Vec<Vec<u8>> = arguments.iter().filter_map(Argument::text).collect();
        let mut texts = strings.iter();
        let mut block = Vec::new();
        for argument in arguments {
            let bytes = match argument {
                Int(number) => number.to_le_bytes().to_vec(),
                Long(number) => number.to_le_bytes().to_vec(),
                Real(number) => number.to_le_bytes().to_vec(),
                Text(_) => {
                    let text = texts.next().expect("each text has its string");
                    (text.as_ptr().expose_provenance() as u64).to_le_bytes().to_vec()
                }
            };
            if !packed {
                block.resize(block.len().next_multiple_of(bytes.len()), 0);
            }
            block.extend(bytes);
        }
        let mut port = self.open(opcode);
        if let Some(stream) = stream {
            port.send(&[stream]);
        }
        port.send_bytes(format!("{format}\0").as_bytes());
        let mut size = [0];
        port.receive(&mut size);
        self.caller.note(size[0]);
        assert_eq!(size[0], block.len() as u64, "{format}");
        port.send_bytes(&block);
        let mut answer = [0; 2];
        loop {
            port.receive(&mut answer);
            let wanted = answer[1];
            if !port.any(wanted != 0) {
                break;
            }
            let is_it = |text: &&Vec<u8>| text.as_ptr().addr() as u64 == wanted;
            port.send_bytes(strings.iter().find(is_it).map_or(&[], |text| text));
        }
        port.close();
        self.caller.note(answer[0]);
    }

    fn stdin(&mut self) {
        for size in [10, 4, 100] {
            self.read_line(1, size);
        }
        self.ask(14, &[1]);
        self.ask(20, &[u64::from(b'U'), 1]);
        self.read(1, 7);
        self.ask(15, &[1]);
        self.read(1, 100_000);
        self.ask(14, &[1]);
        self.read(1, 1);
        self.read_line(1, 10);
        self.ask(19, &[2]);
        self.ask(19, &[3]);
    }

    fn heap(&mut self) {
        for size in [1, 100, 4096] {
            let address = self.ask_quietly(10, &[size]);
            self.caller.note(u64::from(address != 0 && address.is_multiple_of(16)));
            let mut port = self.open(11);
            port.send(&[address]);
            port.close();
        }
    }

    fn host_call(&mut self) {
        for length in [0, 5, 100] {
            let bytes = self.bytes(length);
            let mut port = self.open(12);
            port.send_bytes(&[&(length as u64).to_le_bytes()[..], &bytes].concat());
            port.send(&[self.caller.host_function()]);
            port.receive(&mut []);
            port.close();
        }
    }

    fn exit(&mut self) {
        self.write_to(2, None, b"before the end");
        let file = self.open_file("left_open", "w");
        self.write_to(4, Some(file), b"not closed");
        let mut port = self.open(1);
        port.send(&[]);
        port.receive(&mut []);
        port.send(&[37]);
        port.close();
        self.wait_for_the_end();
    }

    fn abort(&mut self) {
        self.write_to(3, None, b"before the end");
        let mut port = self.open(13);
        port.send(&[]);
        port.receive(&mut []);
        port.send(&[]);
        port.close();
        self.wait_for_the_end();
    }

    fn wait_for_the_end(&mut self) {
        std::thread::sleep(std::time::Duration::from_secs(60));
        panic!("the server did not end the process");
    }
}

/// An argument of `printf`.
#[derive(Clone, Copy)]
enum Argument<'a> {
    Int(i32),
    Long(i64),
    Real(f64),
    Text(&'a str),
}

use Argument::{Int, Long, Real, Text};

impl Argument<'_> {
    /// A string's bytes as C has them.
    fn text(&self) -> Option<Vec<u8>> {
        let Text(text) = self else { return None };
        Some([text.as_bytes(), b"\0"].concat())
    }
}
