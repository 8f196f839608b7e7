//! Which instructions waves came to, which are exact and which are missing.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use crate::isa::table::{Row, TABLE};

static EXECUTED: LazyLock<Vec<AtomicBool>> =
    LazyLock::new(|| TABLE.rows().iter().map(|_| AtomicBool::new(false)).collect());

/// The file that gets the mnemonics that processes' waves come to, from the environment.
const FILE_VARIABLE: &str = "SOFTHSA_COVERAGE";

static FILE: LazyLock<Option<Mutex<File>>> = LazyLock::new(|| {
    let path = std::env::var_os(FILE_VARIABLE)?;
    match File::options().append(true).create(true).open(&path) {
        Ok(file) => Some(Mutex::new(file)),
        Err(error) => {
            eprintln!("softhsa: {FILE_VARIABLE} names {}, which cannot be opened: {error}", path.display());
            None
        }
    }
});

/// Notes that a wave came to an instruction, also to one that the interpreter lacks. If the environment's
/// `SOFTHSA_COVERAGE` names a file, the mnemonic is appended to it, once for each process and encoding.
pub fn note(row: &'static Row) {
    // The row is one of the table's, so its distance from the first row is its number.
    let distance = std::ptr::from_ref(row).addr() - TABLE.rows().as_ptr().addr();
    let Some(executed) = EXECUTED.get(distance / size_of::<Row>()) else { return };
    if executed.swap(true, Ordering::Relaxed) {
        return;
    }
    if let Some(file) = FILE.as_ref() {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // Execution goes on without the report's line if the file's disk is full.
        let _ = file.write_all(format!("{}\n", mnemonic(row)).as_bytes());
    }
}

/// Returns the mnemonic without the suffix of the short encoding.
fn mnemonic(row: &'static Row) -> &'static str {
    let mnemonic = row.mnemonic();
    mnemonic.strip_suffix("_e32").unwrap_or(mnemonic)
}

/// What is known of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exactness {
    /// Every bit of the result is that of the processor's manual.
    Exact,
    /// The processor's result is an approximation; this one's is the correctly rounded number, and 0 where the processor
    /// has no denormals.
    Approximate,
    /// The interpreter stops the launch at it.
    Missing,
}

/// Operations whose result the processor only approximates.
const APPROXIMATE: [&str; 11] = [
    "v_rcp_",
    "v_rsq_",
    "v_sqrt_",
    "v_exp_",
    "v_log_",
    "v_sin_",
    "v_cos_",
    "v_dot2",
    "v_mfma_f32",
    "v_mfma_f64",
    "v_smfmac_f32",
];

/// Returns what is known of each mnemonic, and whether a wave of this process came to it.
pub fn report() -> BTreeMap<&'static str, (Exactness, bool)> {
    let mut report = BTreeMap::new();
    for (row, executed) in TABLE.rows().iter().zip(EXECUTED.iter()) {
        let mnemonic = mnemonic(row);
        let exactness = if super::handler(row).is_none() {
            Exactness::Missing
        } else if APPROXIMATE.iter().any(|prefix| mnemonic.starts_with(prefix)) {
            Exactness::Approximate
        } else {
            Exactness::Exact
        };
        let entry = report.entry(mnemonic).or_insert((exactness, false));
        entry.1 |= executed.load(Ordering::Relaxed);
    }
    report
}

/// How many mnemonics there are of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Mnemonics that waves of this process came to.
    pub executed: usize,
    /// Mnemonics whose results are exact.
    pub exact: usize,
    /// Mnemonics whose results are correctly rounded where the processor's are approximations.
    pub approximate: usize,
    /// Mnemonics at which a launch stops.
    pub missing: usize,
}

impl Summary {
    /// Counts the report of this process.
    pub fn of_process() -> Summary {
        let mut summary = Summary::default();
        for (exactness, executed) in report().into_values() {
            summary.executed += usize::from(executed);
            *match exactness {
                Exactness::Exact => &mut summary.exact,
                Exactness::Approximate => &mut summary.approximate,
                Exactness::Missing => &mut summary.missing,
            } += 1;
        }
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Summary { executed, exact, approximate, missing } = self;
        write!(
            f,
            "{executed} mnemonics executed; {exact} exact, {approximate} approximate, {missing} missing"
        )
    }
}
