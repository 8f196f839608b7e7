//! Which process of which job this is.

use super::state::Identity;
use std::time::{SystemTime, UNIX_EPOCH};

/// Longest command line that is told.
const MOST_CHARACTERS: usize = 256;

/// Where launchers say a process's rank and how many there are. A launcher's names come before those that it may have from a
/// launcher around it: an `sbatch` shell has a rank of Slurm's, which its children inherit. PMIx alone says no size.
const RANKS: [(&str, &str); 6] = [
    ("HOSTCALL_RANK", "HOSTCALL_SIZE"),
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMIX_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// Where launchers say a job's name.
const JOBS: [&str; 3] = ["HOSTCALL_JOB", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"];

/// Returns the rank and the number of processes, as an environment says them. `RANK` alone is anybody's.
fn rank(variable: impl Fn(&str) -> Option<String>) -> (Option<u64>, Option<u64>) {
    let number = |name: &str| variable(name)?.trim().parse::<u64>().ok();
    let found = RANKS.iter().find_map(|(rank, size)| {
        let (of, size) = (number(rank)?, number(size));
        (*rank != "RANK" || size.is_some()).then_some((Some(of), size))
    });
    found.unwrap_or_default()
}

/// Returns the job, as an environment says it, and `true`; else the process that started this one, as it did others of the job.
fn job(variable: impl Fn(&str) -> Option<String>) -> (String, bool) {
    let named = JOBS.iter().find_map(|name| variable(name).filter(|job| !job.is_empty()));
    match named {
        Some(job) => (job, true),
        None => (std::os::unix::process::parent_id().to_string(), false),
    }
}

fn command_line() -> String {
    let bytes = std::fs::read("/proc/self/cmdline").unwrap_or_default();
    let arguments = bytes.split(|byte| *byte == 0).filter(|argument| !argument.is_empty());
    let arguments: Vec<_> = arguments.map(String::from_utf8_lossy).collect();
    arguments.join(" ").chars().take(MOST_CHARACTERS).collect()
}

/// Returns which process this is. It reads the environment, which a program may change while another thread of it reads.
pub(super) fn identity() -> Identity {
    let variable = |name: &str| std::env::var(name).ok();
    let ((rank, size), (job, is_job_named)) = (rank(variable), job(variable));
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Identity {
        pid: std::process::id(),
        program: command_line(),
        host: host.trim().to_owned(),
        job,
        is_job_named,
        rank,
        size,
        since: since.map_or(0.0, |since| since.as_secs_f64()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_launcher_says_the_rank() {
        let of = |variables: &[(&str, &str)]| {
            rank(|name| variables.iter().find(|(of, _)| *of == name).map(|(_, value)| value.to_string()))
        };
        assert_eq!(of(&[]), (None, None));
        assert_eq!(of(&[("RANK", "3")]), (None, None), "it may be anybody's");
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "1")];
        assert_eq!(of(&slurm), (Some(0), Some(1)));
        let torchrun = [("RANK", "3"), ("WORLD_SIZE", "8")];
        assert_eq!(of(&[&slurm[..], &torchrun[..]].concat()), (Some(3), Some(8)));
        assert_eq!(of(&[("PMIX_RANK", "2")]), (Some(2), None));
        assert_eq!(of(&[("HOSTCALL_RANK", "7"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]), (Some(7), None));
        assert_eq!(
            of(&[("HOSTCALL_RANK", "seven"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]),
            (Some(1), Some(2))
        );
    }

    #[test]
    fn a_job_without_a_name_is_its_parents() {
        assert_eq!(job(|name| (name == "SLURM_JOB_ID").then(|| "41".to_owned())), ("41".into(), true));
        let parent = std::os::unix::process::parent_id().to_string();
        assert_eq!(job(|_| Some(String::new())), (parent, false));
    }
}
