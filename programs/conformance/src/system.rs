//! Files, streams, environment, clock, heap, and the program's end.

use crate::services::Echo;
use alloc::vec;
use core::alloc::Layout;
use core::time::Duration;
use hostcall_device::fs::{self, File, FileType, OpenOptions, SeekFrom};
use hostcall_device::io::{self, Error};
use hostcall_device::time::Instant;
use hostcall_device::{Global, Lane, env, heap, kernel, process, time};

/// Writes `id` in decimal at the end of `buffer` and returns it behind `prefix`.
fn name<'b>(buffer: &'b mut [u8; 24], prefix: &str, mut id: u64) -> &'b str {
    let mut digits = [0; 20];
    let mut count = 0;
    loop {
        digits[count] = b'0' + (id % 10) as u8;
        count += 1;
        id /= 10;
        if id == 0 {
            break;
        }
    }
    let len = prefix.len() + count;
    buffer[..prefix.len()].copy_from_slice(prefix.as_bytes());
    for (to, from) in buffer[prefix.len()..len].iter_mut().zip(digits[..count].iter().rev()) {
        *to = *from;
    }
    core::str::from_utf8(&buffer[..len]).unwrap()
}

/// Each lane works on files of its own.
#[kernel]
pub fn system_files(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let (mut a, mut b) = ([0; 24], [0; 24]);
    let (path, moved) = (name(&mut a, "file-", id), name(&mut b, "moved-", id));
    let data: [u8; 700] = core::array::from_fn(|i| crate::bytes::byte(id, i));
    let mut back = [0; 700];

    assert!(matches!(File::open(path), Err(Error::NotFound)));
    let file = File::create(path).unwrap();
    file.write_all(&data).unwrap();
    assert_eq!(file.len(), Ok(700));
    file.write_at(10, b"0123456789").unwrap();
    file.sync().unwrap();
    file.close().unwrap();
    let file = File::open(path).unwrap();
    file.read_exact(&mut back).unwrap();
    assert!(back[..10] == data[..10] && &back[10..20] == b"0123456789" && back[20..] == data[20..]);
    assert_eq!(file.read(&mut back), Ok(0));
    assert_eq!(file.seek(SeekFrom::Start(695)), Ok(695));
    assert_eq!(file.read(&mut back), Ok(5));
    assert_eq!(file.read_at(12, &mut back[..3]), Ok(3));
    assert!(&back[..3] == b"234");
    assert!(file.write(b"x").is_err());
    drop(file);

    let appended = OpenOptions::new().append().open(path).unwrap();
    appended.write_all(b"tail").unwrap();
    assert_eq!(appended.len(), Ok(704));
    drop(appended);
    assert!(matches!(OpenOptions::new().write().create_new().open(path), Err(Error::AlreadyExists)));
    fs::rename(path, moved).unwrap();
    assert!(matches!(File::open(path), Err(Error::NotFound)));
    if id.is_multiple_of(2) {
        fs::remove(moved).unwrap();
    }
    assert!(matches!(File::open("../secret"), Err(Error::OutsideDir)));
    assert!(matches!(File::open("/etc/passwd"), Err(Error::OutsideDir | Error::NotFound)));
    out[id as usize].set(id + 1);
}

/// Each lane works in a folder of its own, which every second one leaves.
#[kernel]
pub fn system_folders(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let mut name_of = [0; 24];
    let folder = name(&mut name_of, "folder-", id).as_bytes();
    let [inner, a, b, back] = ["/in", "/in/a", "/b", "/in/../b"].map(|end| [folder, end.as_bytes()].concat());

    assert_eq!(fs::exists(folder), Ok(false));
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir_all(&inner).unwrap();
    assert_eq!(fs::create_dir(&inner), Err(Error::AlreadyExists));
    fs::write(&a, &[7; 300]).unwrap();
    assert_eq!(fs::copy(&a, &b), Ok(300));
    assert_eq!(fs::copy(&b, &b), Err(Error::InvalidInput));
    fs::set_permissions(&b, 0o600).unwrap();
    let of_path = fs::metadata(&b).unwrap();
    assert!(
        of_path.is_file() && of_path.len() == 300 && of_path.mode() == 0o600 && of_path.modified_ns() > 0
    );
    assert_eq!(File::open(&b).unwrap().metadata(), Ok(of_path));
    assert!(fs::symlink_metadata(&inner).unwrap().is_dir());

    let mut buffer = [0; 64];
    let mut entries = fs::read_dir_into(folder, &mut buffer).unwrap();
    let mut next = || entries.next().map(|entry| (entry.name(), entry.file_type()));
    assert_eq!(next(), Some((&b"b"[..], FileType::File)));
    assert_eq!(next(), Some((&b"in"[..], FileType::Dir)));
    assert_eq!(next(), None);
    assert!(fs::read_dir_into(folder, &mut buffer[..5]).is_err());
    assert_eq!(fs::read_dir(&inner).unwrap().entries().count(), 1);
    assert_eq!(fs::canonicalize(&back, &mut buffer), Ok(&b[..]));
    assert_eq!(fs::metadata("..").err(), Some(Error::OutsideDir));
    if id.is_multiple_of(2) {
        fs::remove_dir_all(folder).unwrap();
    }
    out[id as usize].set(id + 1);
}

/// Arguments, variables and clock.
#[kernel]
pub fn system_environment(lane: &Lane, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let mut buffer = [0; 16];
    assert_eq!(env::args_count(), Ok(3));
    assert_eq!(env::arg(0, &mut buffer), Ok(Some("program")));
    assert_eq!(env::arg(2, &mut buffer), Ok(Some("zwölf")));
    assert_eq!(env::arg(3, &mut buffer), Ok(None));
    assert_eq!(env::var("COLOUR", &mut buffer), Ok(Some("blau")));
    assert_eq!(env::var("PATH", &mut buffer), Ok(None));
    assert!(env::var("COLOUR", &mut buffer[..3]).is_err());

    let (start, wall) = (Instant::now(), time::now_ns().unwrap());
    assert!(wall > 1_700_000_000_000_000_000);
    time::sleep(Duration::from_millis(2));
    assert!(start.elapsed() >= Duration::from_millis(2));
    assert!(time::now_ns().unwrap() > wall);
    out[id as usize].set(id + 1);
}

/// Lines of the input, each to one lane: writes the number on it, or 0 at the end.
#[kernel]
pub fn system_stdin(lane: &Lane, out: &[Global<u64>]) {
    let mut buffer = [0; 32];
    let line = io::stdin().read_line(&mut buffer).unwrap();
    let number = line.bytes().filter(u8::is_ascii_digit).fold(0, |n, digit| 10 * n + u64::from(digit - b'0'));
    assert!(line.is_empty() || line.ends_with('\n'));
    out[lane.global_id()].set(number);
}

/// Most allocations of a lane in [`system_heap`].
const ALLOCATIONS: usize = 256;

/// Allocates 256 times, fills, checks and frees; leaves `leaks` allocations of 32 bytes behind.
#[kernel]
pub fn system_heap(lane: &Lane, leaks: u32, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let mut held = [core::ptr::null_mut::<u64>(); ALLOCATIONS];
    let words = |i: usize| (crate::mix(id << 10 | i as u64) % 16 + 1) as usize;
    for (i, held) in held.iter_mut().enumerate() {
        let align = 8 << (i % 5);
        let memory = heap::alloc(Layout::from_size_align(8 * words(i), align).unwrap()).cast::<u64>();
        assert!(!memory.is_null() && memory.addr() % align == 0);
        for at in 0..words(i) {
            // SAFETY: the allocation has so many words, and nobody else has it.
            unsafe { memory.add(at).write(id << 32 | (i * 16 + at) as u64) };
        }
        *held = memory;
    }
    for (i, memory) in held.iter().enumerate() {
        for at in 0..words(i) {
            // SAFETY: as above.
            assert_eq!(unsafe { memory.add(at).read() }, id << 32 | (i * 16 + at) as u64);
        }
        // SAFETY: it is used no more.
        assert_eq!(unsafe { heap::dealloc(memory.cast()) }, Ok(()));
    }
    for _ in 0..leaks {
        assert!(!heap::alloc(Layout::new::<[u64; 4]>()).is_null());
    }
    out[id as usize].set(id + 1);
}

/// Lane 5 ends the program, the others call until they are cancelled.
#[kernel]
pub fn system_exit(lane: &Lane, code: i32) {
    if lane.global_id() == 5 {
        process::exit(code);
    }
    while Echo::one(1).is_ok() {}
}

/// Byte `i` of the file that [`system_maps`] reads.
pub fn mapped_byte(i: u64) -> u8 {
    crate::bytes::byte(3, i as usize)
}

/// Bytes that each lane writes into the file `written`, from `MAPPED_STEP` times its number on.
pub const MAPPED_STEP: u64 = 301;

/// Reads the file `content`, of `len` bytes, and writes into the file `written`, both mapped.
#[kernel]
pub fn system_maps(lane: &Lane, len: u64, out: &[Global<u64>]) {
    let id = lane.global_id() as u64;
    let content = File::open("content").unwrap();
    let map = content.map(lane).unwrap();
    assert_eq!(map.len(), len);
    let mut buffer = vec![0; 1503];
    for round in 0..16 {
        let mut at = crate::mix(id * 16 + round) % len;
        if round % 2 == 0 {
            at = at / 16 * 16;
        }
        let want = (crate::mix(at) % 1501) as usize;
        // To any alignment, from any.
        let into = &mut buffer[round as usize % 4..][..want];
        let got = map.read_at(at, into).unwrap();
        assert_eq!(got as u64, (len - at).min(want as u64));
        for (i, found) in (at..).zip(&into[..got]) {
            assert_eq!(*found, mapped_byte(i));
        }
        let word = core::array::from_fn(|i| mapped_byte(at / 8 * 8 + i as u64));
        assert_eq!(map.word(at / 8).ok(), (at / 8 < len / 8).then_some(u64::from_le_bytes(word)));
    }
    assert_eq!(map.read_at(len, &mut buffer), Ok(0));
    assert_eq!(map.read_at(u64::MAX, &mut buffer), Ok(0));
    assert_eq!(map.write_at(0, &[1]), Err(Error::PermissionDenied));
    assert_eq!(File::open("empty").unwrap().map(lane).unwrap().read_at(0, &mut buffer), Ok(0));
    assert_eq!(content.map_mut(lane).map(|map| map.is_in_place()).unwrap_or(false), false);
    let written = OpenOptions::new().read().write().open("written").unwrap();
    let map = written.map_mut(lane).unwrap();
    let data: [u8; MAPPED_STEP as usize] = core::array::from_fn(|i| mapped_byte(id * MAPPED_STEP + i as u64));
    assert_eq!(map.write_at(id * MAPPED_STEP, &data), Ok(data.len()));
    assert_eq!(map.write_at(map.len() - 1, &[0, 1]), Ok(1));
    drop(map);
    out[id as usize].set(id + 1);
}
