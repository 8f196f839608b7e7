use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::hint::black_box;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Counts the words of the standard input.
pub fn words() -> io::Result<()> {
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut lines = 0;
    for line in io::stdin().lines() {
        for word in line?.split_whitespace() {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
        lines += 1;
    }
    let mut sorted: Vec<_> = counts.into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    println!("{lines} lines");
    for (word, count) in sorted.iter().take(3) {
        println!("{count:>4} {word}");
    }
    Ok(())
}

/// Writes, reads and lists files.
pub fn files() -> io::Result<()> {
    fs::create_dir_all("made/deep")?;
    let mut out = BufWriter::new(File::create("made/numbers")?);
    for i in 0..2000 {
        writeln!(out, "{i}")?;
    }
    out.into_inner()?.sync_all()?;
    let numbers: Vec<u32> = BufReader::new(File::open("made/numbers")?)
        .lines()
        .map(|line| line?.parse().map_err(io::Error::other))
        .collect::<io::Result<_>>()?;
    println!("{} numbers, sum {}", numbers.len(), numbers.iter().sum::<u32>());

    let mut file = OpenOptions::new().read(true).write(true).open("made/numbers")?;
    file.seek(SeekFrom::End(-5))?;
    let mut end = String::new();
    file.read_to_string(&mut end)?;
    file.set_len(4)?;
    file.rewind()?;
    println!("end {end:?}, at {}, then {} bytes", file.stream_position()?, file.metadata()?.len());
    drop(file);
    OpenOptions::new().append(true).open("made/numbers")?.write_all(b"more")?;
    println!("{:?}", fs::read_to_string("made/numbers")?);

    println!("copied {}", fs::copy("made/numbers", "made/deep/copy")?);
    fs::rename("made/deep/copy", "made/renamed")?;
    let mut names: Vec<_> = fs::read_dir("made")?
        .map(|entry| entry.map(|entry| (entry.file_name(), entry.file_type().unwrap().is_dir())))
        .collect::<io::Result<_>>()?;
    names.sort();
    println!("{names:?}");
    println!(
        "{:?}",
        fs::canonicalize("made/deep/../renamed")?.strip_prefix(std::env::current_dir()?.canonicalize()?)
    );
    let modified = fs::metadata("made")?.modified()?;
    println!(
        "new {}",
        SystemTime::now().duration_since(modified).is_ok_and(|age| age < Duration::from_secs(600))
    );
    println!("there {} {}", Path::new("made/renamed").exists(), Path::new("made/deep/copy").exists());
    let error = File::open("made/none").unwrap_err();
    println!("{:?}: {error}", error.kind());
    let error = fs::remove_dir("made").unwrap_err();
    println!("{:?}: {error}", error.kind());
    fs::remove_file("made/renamed")?;
    fs::remove_dir_all("made")?;
    println!("left {}", Path::new("made").exists());
    Ok(())
}

/// Tries to reach what lies beside the folder.
pub fn outside() {
    for path in ["../beside", "/etc/passwd", "link"] {
        match fs::read_to_string(path) {
            Ok(text) => println!("{path}: {} bytes", text.len()),
            Err(error) => println!("{path}: {:?}", error.kind()),
        }
    }
    println!("{:?}", fs::write("../beside", "new").map_err(|error| error.kind()));
    println!("{:?}", fs::read_dir("..").map(|_| ()).map_err(|error| error.kind()));
}

pub fn environment(args: impl Iterator<Item = String>) {
    println!("{:?}", args.collect::<Vec<_>>());
    println!("{:?}", std::env::vars().collect::<BTreeMap<_, _>>());
    println!("{:?} {:?}", std::env::var("NAME"), std::env::var("HOME"));
    // SAFETY: there is one thread.
    unsafe { std::env::set_var("NAME", "other") };
    println!("{:?}", std::env::var("NAME"));
}

pub fn time() -> Result<(), Box<dyn std::error::Error>> {
    let begun = Instant::now();
    thread::sleep(Duration::from_millis(20));
    let slept = begun.elapsed();
    println!("slept {}", slept >= Duration::from_millis(20) && slept < Duration::from_secs(60));
    println!("this century {}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() > 1_700_000_000);
    Ok(())
}

static TABLE: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(|| Mutex::new((0..10).collect()));

thread_local!(static LOCAL: std::cell::RefCell<Vec<u32>> = const { std::cell::RefCell::new(Vec::new()) });

pub fn shared() {
    let (sender, receiver) = mpsc::channel();
    let total = Arc::new(RwLock::new(0));
    for i in 0..5 {
        sender.send(i).unwrap();
        *total.write().unwrap() += i;
        LOCAL.with_borrow_mut(|local| local.push(i));
    }
    drop(sender);
    TABLE.lock().unwrap().remove(&3);
    let received: Vec<u32> = receiver.iter().collect();
    println!("{received:?} {} {} {:?}", total.read().unwrap(), TABLE.lock().unwrap().len(), LOCAL.take());
}

/// Functions that a GPU has no instruction for, of numbers that the compiler does not know.
pub fn mathematics() {
    for x in [0.25f64, 0.75, 1.5, 20.0].map(black_box) {
        println!("{:.9e} {:.9e} {:.9e} {:.9e}", x.ln(), x.log2(), x.log10(), x.ln_1p());
        println!("{:.9e} {:.9e} {:.9e} {:.9e}", x.exp(), x.exp2(), x.exp_m1(), x.powf(black_box(1.7)));
        println!("{:.9e} {:.9e} {:.9e} {:.9e}", x.sin(), x.cos(), x.tan(), x.powi(black_box(3)));
        println!("{:.9e} {:.9e} {:.9e} {:.9e}", x.atan(), x.sinh(), x.tanh(), x.hypot(black_box(3.0)));
        println!("{:.9e} {:.9e} {:.9e}", x.cbrt(), x % black_box(0.7), x.mul_add(2.0, 1.0));
        let y = x as f32;
        println!("{:.4e} {:.4e} {:.4e} {:.4e}", y.ln(), y.exp(), y.sin(), y.powf(black_box(1.7)));
        println!("{:.4e} {:.4e} {:.4e} {:.4e}", y.log2(), y.log10(), y.cos(), y.powi(black_box(3)));
    }
}

/// Takes and gives back memory of many sizes, in an order of its own, and looks whether each piece keeps what it has.
pub fn heap() {
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let mut random = 1u32;
    for i in 0..3000u32 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let len = (random >> 20) as usize * if i % 100 == 0 { 40 } else { 1 };
        if pieces.len() > 100 {
            let piece = pieces.swap_remove(random as usize % 100);
            assert!(piece.iter().all(|&byte| byte == piece.len() as u8), "a piece of {}", piece.len());
        }
        let mut piece = vec![len as u8; len / 2];
        piece.resize(len, len as u8);
        pieces.push(piece);
    }
    let all: usize = pieces.iter().map(Vec::len).sum();
    println!("{} pieces of {all} bytes", pieces.len());
}

struct Noisy;

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("dropped");
    }
}

pub fn panics(how: Option<&str>) {
    let _noisy = Noisy;
    println!("before");
    match how {
        Some("hook") => std::panic::set_hook(Box::new(|info| eprintln!("the hook: {info}"))),
        Some("index") => println!("{}", [1, 2, 3][std::env::args().len()]),
        _ => {}
    }
    panic!("{} is too many", std::env::args().len());
}
