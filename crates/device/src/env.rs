//! The program's arguments and environment, as the host gives them.

use crate::services::Environment;
use hostcall_abi::CallError;

/// Number of arguments; the first is the program's name.
///
/// # Errors
/// The call's status.
pub fn args_count() -> Result<usize, CallError> {
    Ok(Environment::argument_count()? as usize)
}

/// Argument `index` in `buffer`, if there are so many.
///
/// # Errors
/// [`CallError::TooLarge`] when it does not fit; the call's status.
pub fn arg(index: usize, buffer: &mut [u8]) -> Result<Option<&str>, CallError> {
    let Ok(index) = u32::try_from(index) else { return Ok(None) };
    let (len, filled) = Environment::argument(index, buffer)?;
    text(len, filled, buffer)
}

/// The value of environment variable `name` in `buffer`, if it is set.
///
/// # Errors
/// As for [`arg`].
pub fn var<'b>(name: &str, buffer: &'b mut [u8]) -> Result<Option<&'b str>, CallError> {
    let (len, filled) = Environment::variable(name, buffer)?;
    text(len, filled, buffer)
}

fn text(len: Option<u64>, filled: usize, buffer: &[u8]) -> Result<Option<&str>, CallError> {
    let Some(len) = len else { return Ok(None) };
    if len != filled as u64 {
        return Err(CallError::TooLarge);
    }
    core::str::from_utf8(&buffer[..filled]).map(Some).map_err(|_| CallError::Malformed)
}

#[cfg(feature = "alloc")]
mod owned {
    use super::*;
    use alloc::string::String;
    use alloc::{vec, vec::Vec};

    /// The arguments; the first is the program's name.
    ///
    /// # Errors
    /// The call's status.
    pub fn args() -> Result<Vec<String>, CallError> {
        (0..Environment::argument_count()?)
            .filter_map(|index| owned(|buffer| Environment::argument(index, buffer)).transpose())
            .collect()
    }

    /// The value of environment variable `name`, if it is set.
    ///
    /// # Errors
    /// The call's status.
    pub fn var_string(name: &str) -> Result<Option<String>, CallError> {
        owned(|buffer| Environment::variable(name, buffer))
    }

    fn owned(
        get: impl Fn(&mut [u8]) -> Result<(Option<u64>, usize), CallError>,
    ) -> Result<Option<String>, CallError> {
        let Some(len) = get(&mut [])?.0 else { return Ok(None) };
        let mut buffer = vec![0; len as usize];
        let (len, filled) = get(&mut buffer)?;
        if text(len, filled, &buffer)?.is_none() {
            return Ok(None);
        }
        String::from_utf8(buffer).map(Some).map_err(|_| CallError::Malformed)
    }
}

#[cfg(feature = "alloc")]
pub use owned::{args, var_string};
