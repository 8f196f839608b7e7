//! Which names and addresses of the network are open to kernels.

use hostcall_abi::status::CallError;
use hostcall_device::io::Error;
use hostcall_locks::Mutex;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Longest name that the network's protocol has.
const MAX_NAME_BYTES: usize = 253;

/// Addresses of one name that are kept, the latest ones: some names have others each time that they are looked up.
const MOST_ADDRESSES: usize = 256;

/// A part of the network that is open to kernels: a name, an address, or `*` for all of them, and a port or all ports.
///
/// It is read of text as `example.com:443`, `example.com`, `127.0.0.1:8080`, `::1`, `[::1]:8080` or `*:53`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetRule {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    Address(IpAddr),
    /// In small letters, without a dot at its end.
    Name(String),
}

/// Why a text is no [`NetRule`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no host with a port or without: name one as example.com:443, 127.0.0.1, [::1]:8080 or *")]
pub struct NetRuleError(String);

impl FromStr for NetRule {
    type Err = NetRuleError;

    fn from_str(text: &str) -> Result<Self, NetRuleError> {
        let of = |address: IpAddr, port| Self { host: Host::Address(address.to_canonical()), port };
        if let Ok(address) = text.parse::<SocketAddr>() {
            // Of an address of one link alone, which an address of this kind names, the link is not looked at.
            if matches!(address, SocketAddr::V6(address) if address.scope_id() != 0) {
                return Err(NetRuleError(text.into()));
            }
            return Ok(of(address.ip(), Some(address.port())));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(of(address, None));
        }
        let wrong = || NetRuleError(text.into());
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, Some(port.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let host = match host {
            "*" => Host::Any,
            name => Host::Name(normal(name.as_bytes()).ok_or_else(wrong)?),
        };
        Ok(Self { host, port })
    }
}

/// A name as names are compared; `None` for what is none.
fn normal(name: &[u8]) -> Option<String> {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let name = name.strip_suffix(b".").unwrap_or(name);
    let is_name = !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.iter().all(is_part);
    is_name.then(|| name.to_ascii_lowercase()).and_then(|name| String::from_utf8(name).ok())
}

/// Rules, with the addresses of their names that kernels have looked up.
#[derive(Default)]
pub(super) struct Rules(Vec<(NetRule, Mutex<VecDeque<IpAddr>>)>);

impl Rules {
    pub fn new(rules: Vec<NetRule>) -> Self {
        Self(rules.into_iter().map(|rule| (rule, Mutex::default())).collect())
    }

    /// Whether nothing is open.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an address is open: by itself, or as one that was found for a name.
    pub fn allow(&self, address: SocketAddr) -> bool {
        let number = address.ip().to_canonical();
        self.0.iter().any(|(rule, found)| {
            rule.port.is_none_or(|port| port == address.port())
                && match &rule.host {
                    Host::Any => true,
                    Host::Address(open) => *open == number,
                    Host::Name(_) => found.lock().contains(&number),
                }
        })
    }

    /// The rules by which a name is open, with a port.
    fn of<'a>(
        &'a self,
        name: &str,
        port: u16,
    ) -> impl Iterator<Item = &'a (NetRule, Mutex<VecDeque<IpAddr>>)> {
        self.0.iter().filter(move |(rule, _)| {
            // Port 0 is any port at which one may listen.
            let fits = rule.port.is_none_or(|open| open == port);
            fits && (rule.host == Host::Any || matches!(&rule.host, Host::Name(open) if open == name))
        })
    }

    /// Notes what addresses a name has.
    fn note(&self, name: &str, port: u16, addresses: &[SocketAddr]) {
        for (rule, found) in self.of(name, port) {
            if rule.host == Host::Any {
                continue;
            }
            let mut found = found.lock();
            for address in addresses {
                let number = address.ip().to_canonical();
                if !found.contains(&number) {
                    found.push_back(number);
                }
            }
            let surplus = found.len().saturating_sub(MOST_ADDRESSES);
            found.drain(..surplus);
        }
    }
}

/// What is open to kernels.
#[derive(Default)]
pub(super) struct Bounds {
    /// Where they may connect and send to.
    pub connect: Rules,
    /// Where they may listen.
    pub listen: Rules,
}

impl Bounds {
    /// Looks a name up by `resolve`, if it is open. Its addresses are open from then on, where the name is.
    ///
    /// # Errors
    /// [`Error::NetDenied`] before anybody is asked, [`Error::NoSuchName`].
    pub fn look_up(
        &self,
        name: &[u8],
        port: u16,
        resolve: impl FnOnce(&str, u16) -> Option<Vec<SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, CallError> {
        // A number names itself: whether it is open is asked when it is used.
        if let Some(number) = std::str::from_utf8(name).ok().and_then(|name| name.parse::<IpAddr>().ok()) {
            return Ok(vec![(number, port).into()]);
        }
        let name = normal(name).ok_or(Error::InvalidInput)?;
        // Who may listen anywhere may not ask a resolver for any name, which tells others what it asks.
        let listens_there = |rule: &NetRule| rule.host != Host::Any || name == "localhost";
        let is_open = self.connect.of(&name, port).next().is_some()
            || self.listen.of(&name, port).any(|(rule, _)| listens_there(rule));
        if !is_open {
            return Err(Error::NetDenied.into());
        }
        let addresses = resolve(&name, port).ok_or(Error::NoSuchName)?;
        [&self.connect, &self.listen].iter().for_each(|rules| rules.note(&name, port, &addresses));
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn addresses_are_open_with_their_port_or_with_all() {
        let open = rules(&["127.0.0.1:80", "::1", "[::2]:9", "[fe80::1]"]);
        for address in
            addresses(&["127.0.0.1:80", "[::ffff:127.0.0.1]:80", "[::1]:5", "[::2]:9", "[fe80::1%3]:1"])
        {
            assert!(open.allow(address), "{address}");
        }
        for address in
            addresses(&["127.0.0.1:81", "0.0.0.0:80", "127.0.0.2:80", "[::2]:8", "[::]:5", "1.1.1.1:1"])
        {
            assert!(!open.allow(address), "{address}");
        }
        assert!(rules(&["*"]).allow(addresses(&["1.2.3.4:5"])[0]));
        assert!(rules(&["*:5"]).allow(addresses(&["1.2.3.4:5"])[0]));
        assert!(!rules(&["*:6"]).allow(addresses(&["1.2.3.4:5"])[0]));
        assert!(!rules(&[]).allow(addresses(&["1.2.3.4:5"])[0]));
    }

    #[test]
    fn addresses_of_a_name_are_open_when_it_was_looked_up() {
        let bounds = Bounds { connect: rules(&["Example.com:80", "10.0.0.1"]), listen: rules(&["here"]) };
        let found = addresses(&["10.1.1.1:80", "[::9]:80"]);
        assert!(!bounds.connect.allow(found[0]));
        let nobody = |_: &str, _| unreachable!("nobody is asked");
        for (name, port) in
            [("example.com", 81), ("other.com", 80), ("notexample.com", 80), ("10.0.0.1.nip", 80)]
        {
            assert_eq!(bounds.look_up(name.as_bytes(), port, nobody), Err(Error::NetDenied.into()), "{name}");
        }
        for name in ["", ".", "a b", "a/b", "a\0", &"a".repeat(254)] {
            assert_eq!(
                bounds.look_up(name.as_bytes(), 80, nobody),
                Err(Error::InvalidInput.into()),
                "{name}"
            );
        }
        let asked = bounds.look_up(b"EXAMPLE.com.", 80, |name, port| {
            assert_eq!((name, port), ("example.com", 80));
            Some(found.clone())
        });
        assert_eq!(asked, Ok(found.clone()));
        assert!(bounds.connect.allow(found[0]) && bounds.connect.allow(found[1]));
        assert!(!bounds.connect.allow(addresses(&["10.1.1.1:81"])[0]));
        assert!(!bounds.listen.allow(found[0]));
        assert_eq!(bounds.look_up(b"here", 0, |_, _| None), Err(Error::NoSuchName.into()));
        assert_eq!(bounds.look_up(b"10.0.0.9", 1, nobody), Ok(addresses(&["10.0.0.9:1"])));
    }

    #[test]
    fn a_name_keeps_its_latest_addresses() {
        let bounds = Bounds { connect: rules(&["many"]), listen: Rules::default() };
        for i in 0..=255u8 {
            for j in 0..2 {
                let found = vec![SocketAddr::from(([10, 0, j, i], 1))];
                bounds.look_up(b"many", 1, |_, _| Some(found)).unwrap();
            }
        }
        assert_eq!(bounds.connect.0[0].1.lock().len(), MOST_ADDRESSES);
        assert!(!bounds.connect.allow(addresses(&["10.0.0.0:1"])[0]));
        assert!(bounds.connect.allow(addresses(&["10.0.1.255:1"])[0]));
    }

    #[test]
    fn what_is_no_rule_is_refused_in_a_sentence() {
        for text in
            ["", ":80", "http://example.com", "example.com:http", "example.com:99999", "*.com", "a b", "[::1"]
        {
            let refused = text.parse::<NetRule>().unwrap_err().to_string();
            assert!(refused.contains("is no host") && refused.lines().count() == 1, "{refused}");
        }
    }
}
