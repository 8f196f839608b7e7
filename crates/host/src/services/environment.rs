use hostcall_abi::service::Output;
use hostcall_abi::status::CallError;
use hostcall_device::services::EnvironmentHandler;
use std::collections::HashMap;

/// A program's arguments and environment variables: those that it is given, not the host process's.
pub(super) struct ProgramEnvironment {
    pub arguments: Vec<String>,
    pub variables: HashMap<String, String>,
}

fn answer(text: Option<&String>, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
    let Some(text) = text else { return Ok(None) };
    if text.len() <= out.capacity() {
        out.push(text.as_bytes())?;
    }
    Ok(Some(text.len() as u64))
}

impl EnvironmentHandler for super::Shared<ProgramEnvironment> {
    fn argument_count(&self) -> Result<u32, CallError> {
        u32::try_from(self.0.arguments.len()).map_err(|_| CallError::TooLarge)
    }

    fn argument(&self, index: u32, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.arguments.get(index as usize), out)
    }

    fn variable(&self, name: &str, out: &mut Output<'_>) -> Result<Option<u64>, CallError> {
        answer(self.0.variables.get(name), out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Shared;
    use crate::services::testing::collect;
    use std::sync::Arc;

    #[test]
    fn only_what_is_configured_is_seen() {
        let environment = Shared(Arc::new(ProgramEnvironment {
            arguments: vec!["program".into(), "é".into()],
            variables: HashMap::from([("NAME".into(), "value".into())]),
        }));
        assert_eq!(environment.argument_count(), Ok(2));
        assert_eq!(collect(2, |out| environment.argument(1, out)), (Ok(Some(2)), "é".into()));
        assert_eq!(collect(1, |out| environment.argument(1, out)), (Ok(Some(2)), vec![]));
        assert_eq!(collect(9, |out| environment.argument(u32::MAX, out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable("NAME", out)), (Ok(Some(5)), b"value".into()));
        assert_eq!(collect(9, |out| environment.variable("PATH", out)), (Ok(None), vec![]));
        assert_eq!(collect(9, |out| environment.variable("NA\0ME", out)), (Ok(None), vec![]));
    }
}
