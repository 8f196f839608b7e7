//! The server against clients of all kinds, and what Prometheus scrapes.

use hostcall::Device;
use hostcall_metrics::http::{Reply, Server};
use hostcall_metrics::prometheus;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// What takes longer hangs.
const LONG: Duration = Duration::from_secs(60);

fn connected(address: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect(address).unwrap();
    connection.set_read_timeout(Some(LONG)).unwrap();
    connection
}

/// Sends a head, and returns all that comes back.
fn said(address: SocketAddr, head: &str) -> String {
    let mut connection = connected(address);
    connection.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the number of an answer's status.
fn status(address: SocketAddr, head: &str) -> u16 {
    let answer = said(address, head);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer:?}"))
}

fn started(token: Option<&str>) -> SocketAddr {
    started_with(token, false)
}

fn started_with(token: Option<&str>, takes_posts: bool) -> SocketAddr {
    let mut server = Server::bind("127.0.0.1:0").unwrap().hosts(vec!["gpu-7.example".to_owned()]);
    server = server.takes_posts(takes_posts);
    if let Some(token) = token {
        server = server.token(token.to_owned()).open("/open");
    }
    let address = server.address();
    let answer = |request: &hostcall_metrics::http::Request<'_>| match request.path {
        "/done" if request.is_post => Reply::new("text/plain", "it is done"),
        "/open" => Reply::new("text/plain", "it is for all"),
        "/page" => Reply::new("text/plain", "it is here").header("X-Of-A-Test", "yes"),
        _ => Reply::not_found("/page"),
    };
    std::thread::spawn(move || server.run(answer));
    address
}

#[test]
fn what_is_there_is_told_and_nothing_else() {
    let address = started(None);
    let answer = said(address, "GET /page?all HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nit is here"), "{answer}");
    assert!(answer.contains("X-Of-A-Test: yes\r\n") && answer.contains("Content-Length: 10\r\n"), "{answer}");
    let of = |line: &str, host: &str| status(address, &format!("{line} HTTP/1.1\r\n{host}\r\n"));
    assert_eq!(of("GET /other", "Host: localhost\r\n"), 404);
    assert_eq!(of("POST /page", "Host: localhost\r\n"), 405);
    assert_eq!(of("GET /page", "Host: 127.0.0.1:80\r\n"), 200);
    assert_eq!(of("GET /page", "Host: [::1]:80\r\n"), 200);
    assert_eq!(of("GET /page", "Host: GPU-7.example:80\r\n"), 200);
    for host in [
        "Host: attacker.example\r\n",
        "Host: localhost.attacker.example:80\r\n",
        "",
        "Host: [::1\r\nHost: localhost\r\n",
    ] {
        assert_eq!(of("GET /page", host), 421, "{host:?}");
    }
    assert_eq!(status(address, "what now?\r\n\r\n"), 400);
}

#[test]
fn who_does_not_know_the_token_is_told_nothing() {
    let address = started(Some("secret"));
    let of = |query: &str, header: &str| {
        status(address, &format!("GET /page{query} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"))
    };
    assert_eq!(of("", ""), 401);
    assert_eq!(of("?token=secre", ""), 401);
    assert_eq!(of("?token=secret2", ""), 401);
    assert_eq!(of("?a=b&token=secret", ""), 200);
    assert_eq!(of("", "Authorization: Bearer secret\r\n"), 200);
    assert_eq!(of("", "Authorization: Bearer\r\n"), 401);
    let open =
        |path: &str, host: &str| status(address, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    assert_eq!(open("/open", "localhost"), 200);
    assert_eq!(open("/open/", "localhost"), 401);
    assert_eq!(open("/open", "attacker.example"), 421);
}

/// A page of the web can have a browser send a form, but no header.
#[test]
fn what_is_to_be_done_is_asked_for_with_the_header() {
    let address = started_with(Some("secret"), true);
    let of = |request: &str, header: &str| {
        status(address, &format!("{request} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n"))
    };
    let header = "Authorization: Bearer secret\r\n";
    assert_eq!(of("POST /done", header), 200);
    assert_eq!(of("GET /done", header), 404);
    assert_eq!(of("POST /done?token=secret", ""), 401);
    assert_eq!(of("POST /open", ""), 401);
    assert_eq!(of("PUT /done", header), 405);
}

#[test]
fn slow_clients_and_long_heads_hold_up_nobody() {
    let address = started(None);
    // As many as are served at a time, which say nothing.
    let silent: Vec<_> = (0..64).map(|_| connected(address)).collect();
    // One more is closed, not kept waiting.
    let _ = connected(address).read(&mut [0]);
    for mut connection in silent {
        assert_eq!(connection.read(&mut [0]).unwrap(), 0, "it is closed in the end");
    }
    let mut long = connected(address);
    let _ = long.write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(32 << 10)).as_bytes());
    let _ = long.read_to_end(&mut Vec::new());
    assert_eq!(status(address, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n"), 200);
}

#[test]
fn a_process_is_scraped() {
    let device = Device::open("cpu").unwrap();
    let address = prometheus::serve("127.0.0.1:0").unwrap();
    let answer = said(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("\nhostcall_devices_open{device=\"cpu\"} 1\n"), "{answer}");
    drop(device);
    let answer = said(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(answer.contains("\nhostcall_devices_open{device=\"cpu\"} 0\n"), "{answer}");
}
