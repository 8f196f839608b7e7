//! `hostcall top` and `hostcall serve`, as far as they need no program that runs: `scripts/metrics-check` has one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

fn hostcall() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hostcall"));
    command.env_remove("HOSTCALL_TOKEN");
    command
}

/// Runs it to its end, and returns its exit code with what it says on the standard error.
fn said(command: &mut Command) -> (Option<i32>, String) {
    let output = command.output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn who_cannot_be_looked_into_is_told_so() {
    // The first process is another's, or has no device.
    let (code, error) = said(hostcall().args(["top", "1"]));
    assert_eq!(code, Some(1));
    assert!(error.starts_with("hostcall: process 1 ") && error.lines().count() == 1, "{error}");
}

#[test]
fn what_cannot_be_served_is_told_in_one_sentence() {
    for (options, token, sentence) in [
        (&["--otlp", "localhost:4318"][..], "", "has to begin with http://"),
        (&["--otlp", "https://localhost:4318"], "", "built without TLS"),
        (&["--address", "192.0.2.1"], "", "cannot listen at 192.0.2.1 port 9464"),
        (&[], "with a space", "HOSTCALL_TOKEN has to be letters and digits"),
    ] {
        let mut command = hostcall();
        command.arg("serve").args(options);
        if !token.is_empty() {
            command.env("HOSTCALL_TOKEN", token);
        }
        let (code, error) = said(&mut command);
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains(sentence) && error.lines().count() == 1, "{error}");
    }
    let (code, error) = said(hostcall().args(["serve", "--allow-traces", "--perfetto", "https://a b:x["]));
    assert_eq!(code, Some(2), "{error}");
    assert!(error.contains("it has to be https:// or http://, a host,"), "{error}");
}

#[test]
fn the_page_is_whole_and_what_it_shows_comes_with_the_token_alone() {
    let mut serving =
        hostcall().args(["serve", "--port", "0"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut address = String::new();
    BufReader::new(serving.stdout.as_mut().unwrap()).read_line(&mut address).unwrap();
    let (host, token) = address.trim().strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    assert_eq!(token.len(), 32, "128 bits");
    let fetched = |path: &str| {
        let mut connection = TcpStream::connect(host).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        answer
    };
    // It tells nothing by itself, and is there without the token, which it takes out of the address.
    let page = fetched("/");
    assert!(!page.contains(token));
    for path in ["/metrics", "/api/state", "/other"] {
        assert!(fetched(path).starts_with("HTTP/1.1 401 "), "{path}");
    }
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n"), "{page}");
    assert!(page.contains("Content-Security-Policy: default-src 'none'; script-src 'nonce-"), "{page}");
    let body = page.split_once("\r\n\r\n").unwrap().1;
    // Nothing of it comes from elsewhere, and no text becomes HTML.
    for forbidden in ["src=", "href=", "@import", "url(", "innerHTML", "outerHTML", "insertAdjacent", "NONCE"]
    {
        assert!(!body.contains(forbidden), "{forbidden}");
    }
    assert!(fetched(&format!("/metrics?token={token}")).contains("# TYPE hostcall_calls_total counter\n"));
    assert!(fetched(&format!("/api/state?token={token}")).contains("\r\n\r\n{\"circles\":[]"));
    serving.kill().unwrap();
    serving.wait().unwrap();
}
