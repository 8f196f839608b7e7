//! Environment variables: those that the host gives, and what the program makes of them.

pub use super::common::Env;
use crate::collections::BTreeMap;
use crate::ffi::{OsStr, OsString};
use crate::io;
use crate::sync::Mutex;
use crate::sys::pal::{abi, runs, whole};

type Variables = BTreeMap<OsString, OsString>;

/// `None` until the host was asked.
static VARIABLES: Mutex<Option<Variables>> = Mutex::new(None);

/// Of `NAME=value` both parts; a name has a character at least.
fn divided(variable: Vec<u8>) -> Option<(OsString, OsString)> {
    let at = variable.iter().skip(1).position(|&byte| byte == b'=')? + 1;
    // SAFETY: the strings of this platform are any bytes.
    let text = |bytes: &[u8]| unsafe { OsString::from_encoded_bytes_unchecked(bytes.to_vec()) };
    Some((text(&variable[..at]), text(&variable[at + 1..])))
}

fn of_host() -> Variables {
    let variable = |index| {
        whole(|room| {
            // SAFETY: the room is this function's until the call returns.
            usize::try_from(unsafe { abi::var_at(index, room.as_mut_ptr(), room.len()) })
        })
        .ok()
    };
    (0..).map_while(variable).filter_map(divided).collect()
}

/// Does something with the variables. There are none before the program runs.
fn with<R>(work: impl FnOnce(&mut Variables) -> R) -> R {
    if !runs() {
        return work(&mut Variables::new());
    }
    let mut variables = VARIABLES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    work(variables.get_or_insert_with(of_host))
}

pub fn env() -> Env {
    Env::new(with(|all| all.iter().map(|(name, value)| (name.clone(), value.clone())).collect()))
}

pub fn getenv(name: &OsStr) -> Option<OsString> {
    with(|all| all.get(name).cloned())
}

pub unsafe fn setenv(name: &OsStr, value: &OsStr) -> io::Result<()> {
    let bytes = name.as_encoded_bytes();
    if bytes.is_empty()
        || bytes.contains(&b'=')
        || bytes.contains(&0)
        || value.as_encoded_bytes().contains(&0)
    {
        return Err(io::const_error!(
            io::ErrorKind::InvalidInput,
            "the variable's name or value cannot be one"
        ));
    }
    with(|all| all.insert(name.to_owned(), value.to_owned()));
    Ok(())
}

pub unsafe fn unsetenv(name: &OsStr) -> io::Result<()> {
    with(|all| all.remove(name));
    Ok(())
}
