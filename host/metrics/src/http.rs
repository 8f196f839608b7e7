//! A small HTTP server for pages that only tell: `GET` alone unless said otherwise, an answer and then the end of the connection. What a client may take
//! is bounded in bytes, time and connections. A `Host` that is a name of somebody's is refused, so that a page of the web cannot
//! read what is here by a name that leads here (DNS rebinding), and so is who does not know the token, where there is one.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest head of a request, and most headers.
const MOST_HEAD_BYTES: usize = 8 << 10;
const MOST_HEADERS: usize = 64;

/// How long a head may take to come, and an answer to be taken.
const LONGEST_HEAD: Duration = Duration::from_secs(5);
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

/// A large answer may take longer: as long as so many bytes are taken in a second.
const LEAST_BYTES_A_SECOND: u64 = 256 << 10;

/// Connections at a time; later ones are closed at once.
const MOST_CONNECTIONS: usize = 64;

/// Until the next connection is waited for after the system refused one.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// What somebody asks for.
pub struct Request<'a> {
    /// The path, without what stands behind a `?`.
    pub path: &'a str,
    /// What stands behind it.
    pub query: &'a str,
    /// It asks for something to be done ([`Server::takes_posts`]).
    pub is_post: bool,
}

/// What they get.
pub struct Reply {
    status: &'static str,
    content_type: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Reply {
    /// Makes an answer of this type.
    pub fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: "200 OK", content_type, headers: Vec::new(), body: body.into() }
    }

    /// Makes the answer to what is not done, with a status such as `409 Conflict`.
    pub fn refused(status: &'static str, sentence: &str) -> Self {
        Self { status, ..Self::new("text/plain; charset=utf-8", format!("{sentence}\n")) }
    }

    /// Makes the answer to a path that there is nothing at.
    pub fn not_found(there: &str) -> Self {
        Self::refused("404 Not Found", &format!("there is {there}"))
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    fn write(&self, connection: &TcpStream, until: Instant) -> io::Result<()> {
        let Self { status, content_type, headers, body } = self;
        let mut all = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n",
            body.len()
        );
        headers.iter().for_each(|(name, value)| all += &format!("{name}: {value}\r\n"));
        all += "\r\n";
        let mut all = all.into_bytes();
        all.extend_from_slice(body);
        let (mut rest, mut out) = (&all[..], connection);
        while !rest.is_empty() {
            out.set_write_timeout(Some(left(until)?))?;
            match out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => rest = &rest[count..],
                Err(error) if is_for_now(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn is_for_now(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

/// What is left until a time. Never zero, which a socket takes for no limit.
fn left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left.max(Duration::from_millis(1))),
    }
}

/// A server that listens.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
    /// A path that needs no token.
    open: Option<&'static str>,
    hosts: Vec<String>,
    takes_posts: bool,
}

impl Server {
    /// Listens at an address, whose port the system chooses where it is 0.
    ///
    /// # Errors
    /// When the system refuses that.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address, token: None, open: None, hosts: Vec::new(), takes_posts: false })
    }

    /// Answers nobody who does not say this token, as `?token=` or in a header `Authorization: Bearer`.
    #[must_use]
    pub fn token(self, token: String) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Answers requests to read this path without the token, too: what is there says nothing that others must not know.
    #[must_use]
    pub fn open(self, path: &'static str) -> Self {
        Self { open: Some(path), ..self }
    }

    /// Answers requests to these names, beside `localhost` and addresses in numbers.
    #[must_use]
    pub fn hosts(self, hosts: Vec<String>) -> Self {
        Self { hosts, ..self }
    }

    /// Answers `POST`, too, without a body, to who says the token in the header: a page of the web can have a browser send neither
    /// the header nor an address that it does not know.
    #[must_use]
    pub fn takes_posts(self, takes_posts: bool) -> Self {
        Self { takes_posts, ..self }
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests until the process ends, each on a thread of its own.
    pub fn run(self, answer: impl Fn(&Request<'_>) -> Reply + Send + Sync + 'static) {
        let (connections, this) = (Arc::new(AtomicUsize::new(0)), Arc::new((self, answer)));
        loop {
            let Ok((connection, _)) = this.0.listener.accept() else {
                std::thread::sleep(RETRY_AFTER);
                continue;
            };
            connections.fetch_add(1, Ordering::SeqCst);
            let serves = Serves(connection, connections.clone());
            if connections.load(Ordering::SeqCst) > MOST_CONNECTIONS {
                continue;
            }
            let this = this.clone();
            // Where the system starts no thread, the connection is closed.
            let _ = std::thread::Builder::new().name("hostcall-http".into()).spawn(move || {
                // Nobody has to hear the answer.
                let _ = this.0.serve(&serves.0, &this.1);
            });
        }
    }

    fn serve(&self, connection: &TcpStream, answer: &impl Fn(&Request<'_>) -> Reply) -> io::Result<()> {
        let head = read_head(connection, Instant::now() + LONGEST_HEAD)?;
        let reply = self.reply(&head, answer);
        let longest = LONGEST_ANSWER + Duration::from_secs(reply.body.len() as u64 / LEAST_BYTES_A_SECOND);
        reply.write(connection, Instant::now() + longest)
    }

    fn reply(&self, head: &[u8], answer: &impl Fn(&Request<'_>) -> Reply) -> Reply {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
            return Reply::refused(
                "400 Bad Request",
                "this is no request of HTTP/1, or its head is too long",
            );
        }
        let is_post = request.method == Some("POST") && self.takes_posts;
        if request.method != Some("GET") && !is_post {
            let refused = Reply::refused("405 Method Not Allowed", "this server only tells: use GET");
            return refused.header("Allow", "GET");
        }
        let header = |name: &str| {
            let mut found = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
            let value = found.next().and_then(|header| std::str::from_utf8(header.value).ok());
            // Two of them may be understood in two ways.
            value.filter(|_| found.next().is_none())
        };
        if !header("host").is_some_and(|host| self.is_own(host)) {
            return Reply::refused(
                "421 Misdirected Request",
                "this server answers to localhost and to addresses in numbers; allow a name with --host-name",
            );
        }
        let (path, query) = request
            .path
            .unwrap_or_default()
            .split_once('?')
            .unwrap_or((request.path.unwrap_or_default(), ""));
        let bearer = header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let of_query = query.split('&').find_map(|pair| pair.strip_prefix("token=")).filter(|_| !is_post);
        let said = of_query.or(bearer);
        let is_open = self.open == Some(path) && !is_post;
        let token = self.token.as_ref().filter(|_| !is_open);
        if token.is_some_and(|token| !said.is_some_and(|said| is_same(said, token))) {
            let sentence = "say the token: open the address that `hostcall serve` has printed, or send the header \
                            `Authorization: Bearer TOKEN`";
            return Reply::refused("401 Unauthorized", sentence).header("WWW-Authenticate", "Bearer");
        }
        answer(&Request { path, query, is_post })
    }

    /// Says whether a `Host` is no name that somebody else may have made lead here.
    fn is_own(&self, host: &str) -> bool {
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.rsplit_once(':').map_or(host, |(name, _)| name),
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok()
            || self.hosts.iter().any(|own| own.eq_ignore_ascii_case(name))
    }
}

/// Compares texts in a time that does not say where they differ.
fn is_same(said: &str, token: &str) -> bool {
    let differ = said.bytes().zip(token.bytes()).fold(0, |differ, (a, b)| differ | (a ^ b));
    said.len() == token.len() && differ == 0
}

/// A connection that counts.
struct Serves(TcpStream, Arc<AtomicUsize>);

impl Drop for Serves {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Reads up to the empty line, or as much as a head may have.
fn read_head(mut connection: &TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while head.len() < MOST_HEAD_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        connection.set_read_timeout(Some(left(until)?))?;
        match connection.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => head.extend_from_slice(&piece[..count]),
            Err(error) if is_for_now(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head)
}
