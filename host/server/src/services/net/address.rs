//! Addresses as they travel: `hostcall_device::services::Sockets` says how they are packed.

use hostcall_abi::status::CallError;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An address in words.
pub type Words = [u64; 3];

/// No address.
pub const NONE: Words = [0; 3];

const V4: u64 = 4;
const V6: u64 = 6;

pub fn packed(address: SocketAddr) -> Words {
    let (family, scope, number) = match address {
        SocketAddr::V4(address) => (V4, 0, u128::from(u32::from(*address.ip()))),
        SocketAddr::V6(address) => (V6, address.scope_id(), u128::from(*address.ip())),
    };
    [
        u64::from(address.port()) | family << 16 | u64::from(scope) << 32,
        (number >> 64) as u64,
        (number & u128::from(u64::MAX)) as u64,
    ]
}

/// The address of a device's words.
///
/// # Errors
/// [`CallError::Malformed`] when they are none.
pub fn unpacked([head, high, low]: Words) -> Result<SocketAddr, CallError> {
    let malformed = |_| CallError::Malformed;
    let port = (head & 0xffff) as u16;
    let scope = (head >> 32) as u32;
    match head >> 16 & 0xffff {
        V4 if high == 0 && scope == 0 => {
            let number = u32::try_from(low).map_err(malformed)?;
            Ok((IpAddr::from(Ipv4Addr::from(number)), port).into())
        }
        V6 => {
            let number = Ipv6Addr::from(u128::from(high) << 64 | u128::from(low));
            Ok(SocketAddrV6::new(number, port, 0, scope).into())
        }
        _ => Err(CallError::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_link_and_other_words_are_refused() {
        for address in ["127.0.0.1:80", "255.255.255.255:65535", "0.0.0.0:0", "[::1]:443", "[fe80::1%7]:9"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(unpacked(packed(address)), Ok(address));
        }
        for words in
            [NONE, [5 << 16, 0, 1], [4 << 16, 1, 1], [4 << 16, 0, 1 << 32], [4 << 16 | 1 << 32, 0, 1]]
        {
            assert_eq!(unpacked(words), Err(CallError::Malformed));
        }
    }
}
