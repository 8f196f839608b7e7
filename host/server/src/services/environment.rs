use hostcall_abi::status::CallError;
use hostcall_device::services::EnvironmentHandler;
use hostcall_service::Output;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A program's arguments and environment variables: those that it is given, not the host process's. They are bytes, as the
/// system has them, and need not be UTF-8.
pub(super) struct ProgramEnvironment {
    pub arguments: Vec<OsString>,
    pub variables: HashMap<OsString, OsString>,
}

fn answer(text: Option<&OsString>, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
    let Some(text) = text else { return Ok(None) };
    if text.len() <= out.capacity() {
        out.push(text.as_os_str().as_bytes())?;
    }
    Ok(Some(text.len() as u64))
}

impl EnvironmentHandler for super::SharedHandler<ProgramEnvironment> {
    fn argument_count(&self) -> Result<u32, CallError> {
        u32::try_from(self.0.arguments.len()).map_err(|_| CallError::TooLarge)
    }

    fn argument(&self, index: u32, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.arguments.get(index as usize), out)
    }

    fn variable(&self, name: &[u8], out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.variables.get(OsStr::from_bytes(name)), out)
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
            variables: HashMap::from([("NAME".into(), "value".into())]),
        }));
        assert_eq!(environment.argument_count(), Ok(3));
        assert_eq!(collect(2, |out| environment.argument(2, out)), (Ok(Some(1)), vec![0xff]));
        assert_eq!(collect(2, |out| environment.argument(1, out)), (Ok(Some(2)), "é".into()));
        assert_eq!(collect(1, |out| environment.argument(1, out)), (Ok(Some(2)), vec![]));
        assert_eq!(collect(9, |out| environment.argument(u32::MAX, out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable(b"NAME", out)), (Ok(Some(5)), b"value".into()));
        assert_eq!(collect(9, |out| environment.variable(b"PATH", out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable(b"NA\0ME", out)), (Ok(None), vec![]));
    }
}
