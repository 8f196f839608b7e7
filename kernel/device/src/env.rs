//! The program's arguments and environment, as the host gives them.

use crate::services::Environment;
use hostcall_abi::CallError;
use hostcall_abi::io::Error;

/// Number of arguments; the first is the program's name.
///
/// # Errors
/// The call's status.
pub fn args_count() -> Result<usize, CallError> {
    Ok(Environment::argument_count()? as usize)
}

/// Argument `index`, if there are so many: `None` behind the last one. Argument 0 is the program's name.
///
/// The text is put into `buffer`, which is the caller's because not every kernel has a heap, and what is returned is the part
/// of it that the text takes. With the heap, `env::args` gives all of them.
///
/// ```
/// use hostcall_device::{env, println};
///
/// fn greet() {
///     let mut buffer = [0; 64];
///     match env::arg(1, &mut buffer) {
///         Ok(Some(name)) => println!("Hello, {name}"),
///         Ok(None) => println!("Hello"),
///         Err(error) => println!("the first argument: {error}"), // more than 64 bytes, for example
///     }
/// }
/// ```
///
/// # Errors
/// [`Error::NotUtf8`] when it is no UTF-8, for which [`arg_bytes`] does not ask; the call's status, which is
/// [`CallError::TooLarge`] when it does not fit.
pub fn arg(index: usize, buffer: &mut [u8]) -> Result<Option<&str>, Error> {
    text(arg_bytes(index, buffer)?)
}

/// Argument `index` in `buffer`, if there are so many, as the host's system has it.
///
/// # Errors
/// [`CallError::TooLarge`] when it does not fit; the call's status.
pub fn arg_bytes(index: usize, buffer: &mut [u8]) -> Result<Option<&[u8]>, CallError> {
    let Ok(index) = u32::try_from(index) else { return Ok(None) };
    let (len, filled) = Environment::argument(index, buffer)?;
    whole(len, filled, buffer)
}

/// The value of environment variable `name` in `buffer`, if it is set.
///
/// # Errors
/// As for [`arg`].
pub fn var(name: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<&str>, Error> {
    text(var_bytes(name, buffer)?)
}

/// The value of environment variable `name` in `buffer`, if it is set, as the host's system has it.
///
/// # Errors
/// As for [`arg_bytes`].
pub fn var_bytes(name: impl AsRef<[u8]>, buffer: &mut [u8]) -> Result<Option<&[u8]>, CallError> {
    let (len, filled) = Environment::variable(name.as_ref(), buffer)?;
    whole(len, filled, buffer)
}

/// The path that relative paths begin at, in `buffer`, if the host opened a directory to kernels.
///
/// # Errors
/// As for [`arg_bytes`].
pub fn current_dir(buffer: &mut [u8]) -> Result<Option<&[u8]>, CallError> {
    let (len, filled) = Environment::current_dir(buffer)?;
    whole(len, filled, buffer)
}

/// Fills `buffer` with random bytes of the host's system, fit for keys.
///
/// # Errors
/// What the host reports.
pub fn random(buffer: &mut [u8]) -> Result<(), Error> {
    let ((), filled) = Environment::random(buffer)?;
    if filled == buffer.len() { Ok(()) } else { Err(Error::UnexpectedEnd) }
}

/// The value, if it is there and `buffer` has all of it.
fn whole(len: Option<u64>, filled: usize, buffer: &[u8]) -> Result<Option<&[u8]>, CallError> {
    match len {
        None => Ok(None),
        Some(len) if len == filled as u64 => Ok(Some(&buffer[..filled])),
        Some(_) => Err(CallError::TooLarge),
    }
}

fn text(bytes: Option<&[u8]>) -> Result<Option<&str>, Error> {
    bytes.map(core::str::from_utf8).transpose().map_err(|_| Error::NotUtf8)
}

#[cfg(feature = "alloc")]
mod owned {
    use super::*;
    use alloc::string::String;
    use alloc::{vec, vec::Vec};

    /// The arguments; the first is the program's name.
    ///
    /// # Errors
    /// [`Error::NotUtf8`] when one is no UTF-8, for which [`args_bytes`] does not ask; the call's status.
    pub fn args() -> Result<Vec<String>, Error> {
        args_bytes()?.into_iter().map(string).collect()
    }

    /// The arguments, as the host's system has them; the first is the program's name.
    ///
    /// # Errors
    /// The call's status.
    pub fn args_bytes() -> Result<Vec<Vec<u8>>, CallError> {
        (0..Environment::argument_count()?)
            .filter_map(|index| owned(|buffer| Environment::argument(index, buffer)).transpose())
            .collect()
    }

    /// The value of environment variable `name`, if it is set.
    ///
    /// # Errors
    /// As for [`args`].
    pub fn var_string(name: impl AsRef<[u8]>) -> Result<Option<String>, Error> {
        owned(|buffer| Environment::variable(name.as_ref(), buffer))?.map(string).transpose()
    }

    fn string(bytes: Vec<u8>) -> Result<String, Error> {
        String::from_utf8(bytes).map_err(|_| Error::NotUtf8)
    }

    fn owned(
        get: impl Fn(&mut [u8]) -> Result<(Option<u64>, usize), CallError>,
    ) -> Result<Option<Vec<u8>>, CallError> {
        let Some(len) = get(&mut [])?.0 else { return Ok(None) };
        let mut buffer = vec![0; len as usize];
        let (len, filled) = get(&mut buffer)?;
        Ok(whole(len, filled, &buffer)?.is_some().then_some(buffer))
    }
}

#[cfg(feature = "alloc")]
pub use owned::{args, args_bytes, var_string};
