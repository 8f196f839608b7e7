use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_device::services::EnvironmentHandler;
use hostcall_service::Output;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A program's arguments and environment variables: those that it is given, not the host process's. They are bytes, as the
/// system has them, and need not be UTF-8.
#[derive(Default)]
pub(super) struct ProgramEnvironment {
    pub arguments: Vec<OsString>,
    pub variables: BTreeMap<OsString, OsString>,
    /// Where relative paths begin, if a directory is open to kernels.
    pub current_dir: Option<PathBuf>,
}

/// Returns where relative paths of kernels begin that see the files below `dir`.
///
/// # Errors
/// When the system does not say where that is.
pub(super) fn current_dir(dir: &Path) -> io::Result<PathBuf> {
    // Of those that see everything, the process's own.
    if dir.canonicalize()?.parent().is_none() { std::env::current_dir() } else { std::path::absolute(dir) }
}

fn answer(text: Option<&OsStr>, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
    let Some(text) = text else { return Ok(None) };
    if text.len() <= out.capacity() {
        out.push(text.as_bytes())?;
    }
    Ok(Some(text.len() as u64))
}

/// Bytes that are read from the system at a time.
const RANDOM_BYTES_AT_ONCE: usize = 256;

/// Fills `out` with bytes of the system's random numbers.
fn fill_random(out: &mut Output<'_>) -> io::Result<()> {
    static SOURCE: OnceLock<File> = OnceLock::new();
    let mut source = match SOURCE.get() {
        Some(source) => source,
        None => {
            let opened = File::open("/dev/urandom")?;
            SOURCE.get_or_init(|| opened)
        }
    };
    let mut left = out.capacity();
    let mut bytes = [0; RANDOM_BYTES_AT_ONCE];
    while left > 0 {
        let bytes = &mut bytes[..left.min(RANDOM_BYTES_AT_ONCE)];
        source.read_exact(bytes)?;
        out.push(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        left -= bytes.len();
    }
    Ok(())
}

impl EnvironmentHandler for super::SharedHandler<ProgramEnvironment> {
    fn argument_count(&self) -> Result<u32, CallError> {
        u32::try_from(self.0.arguments.len()).map_err(|_| CallError::TooLarge)
    }

    fn argument(&self, index: u32, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.arguments.get(index as usize).map(OsString::as_os_str), out)
    }

    fn variable(&self, name: &[u8], out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.variables.get(OsStr::from_bytes(name)).map(OsString::as_os_str), out)
    }

    fn variable_at(&self, index: u32, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        let Some((name, value)) = self.0.variables.iter().nth(index as usize) else { return Ok(None) };
        answer(Some(&[name.as_os_str(), value].join(OsStr::new("="))), out)
    }

    fn current_dir(&self, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.current_dir.as_ref().map(|dir| dir.as_os_str()), out)
    }

    fn random(&self, out: &mut Output<'_>) -> Result<(), CallError> {
        fill_random(out).map_err(|error| Error::Os(error.raw_os_error().unwrap_or(5)).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::SharedHandler;
    use crate::services::testing::collect;
    use std::sync::Arc;

    #[test]
    fn only_what_is_configured_is_seen() {
        let environment = SharedHandler(Arc::new(ProgramEnvironment {
            arguments: vec!["program".into(), "é".into(), OsStr::from_bytes(b"\xff").into()],
            variables: BTreeMap::from([("NAME".into(), "value".into()), ("A".into(), "=b".into())]),
            current_dir: None,
        }));
        assert_eq!(environment.argument_count(), Ok(3));
        assert_eq!(collect(2, |out| environment.argument(2, out)), (Ok(Some(1)), vec![0xff]));
        assert_eq!(collect(2, |out| environment.argument(1, out)), (Ok(Some(2)), "é".into()));
        assert_eq!(collect(1, |out| environment.argument(1, out)), (Ok(Some(2)), vec![]));
        assert_eq!(collect(9, |out| environment.argument(u32::MAX, out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable(b"NAME", out)), (Ok(Some(5)), b"value".into()));
        assert_eq!(collect(9, |out| environment.variable(b"PATH", out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable(b"NA\0ME", out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable_at(0, out)), (Ok(Some(4)), b"A==b".into()));
        assert_eq!(collect(9, |out| environment.variable_at(1, out)), (Ok(Some(10)), vec![]));
        assert_eq!(collect(10, |out| environment.variable_at(1, out)), (Ok(Some(10)), b"NAME=value".into()));
        assert_eq!(collect(9, |out| environment.variable_at(2, out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.current_dir(out)), (Ok(None), vec![]));
    }

    #[test]
    fn random_bytes_fill_all_and_differ() {
        let environment = SharedHandler(Arc::new(ProgramEnvironment::default()));
        let [one, other] = [(); 2].map(|()| {
            let (result, bytes) = collect(1000, |out| environment.random(out));
            assert_eq!((result, bytes.len()), (Ok(()), 1000));
            bytes
        });
        assert_ne!(one, other);
        assert_ne!(one[..16], one[256..272]);
        assert_eq!(collect(0, |out| environment.random(out)), (Ok(()), vec![]));
    }

    #[test]
    fn relative_paths_begin_at_the_directory() {
        let folder = std::env::temp_dir();
        assert_eq!(current_dir(&folder).unwrap(), std::path::absolute(&folder).unwrap());
        assert_eq!(current_dir(Path::new("/")).unwrap(), std::env::current_dir().unwrap());
        assert!(current_dir(Path::new("/nowhere")).is_err());
    }
}
