//! `hostcall serve`: a page that shows what processes do, and their metrics for Prometheus and OpenTelemetry.

mod traces;

use crate::waits::{Looked, look};
use crate::{Outcome, complain, print, spawn};
use hostcall::watch::{Member, explain, graph};
use hostcall_locks::Mutex;
use hostcall_metrics::http::{Reply, Request, Server};
use hostcall_metrics::processes::Processes;
use hostcall_metrics::{otlp, prometheus};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};
use traces::Traces;

/// The page, which has all that it needs. `NONCE` stands for what a browser runs and styles it by.
const PAGE: &str = include_str!("page.html");

/// Between two looks, of which the second one says what stands still. A longer one may be of what has long gone on.
const BETWEEN_LOOKS: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3);

/// For how long what processes said is told again, however many ask.
const FRESH_FOR: Duration = Duration::from_millis(200);

/// Where the token comes from, if not from the system.
const TOKEN: &str = "HOSTCALL_TOKEN";

#[derive(clap::Args)]
pub struct Options {
    /// Processes to show; all of this user's without one
    pids: Vec<u32>,
    /// Port to listen at; 0 for any that is free
    #[arg(long, default_value_t = 9464)]
    port: u16,
    /// Address to listen at: from other machines, 0.0.0.0 or ::
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// Answers requests to this name, too, beside localhost and addresses in numbers
    #[arg(long, value_name = "NAME")]
    host_name: Vec<String>,
    /// Pushes the metrics to a collector of OpenTelemetry's, too, such as http://localhost:4318
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Seconds between two pushes; at least 0.05
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = crate::arguments::every, allow_negative_numbers = true)]
    every: Duration,
    /// Lets the page record trace points of the processes, for a while, and open them in Perfetto: kernels run slower meanwhile
    #[arg(long)]
    allow_traces: bool,
    /// Where Perfetto is: another copy of it, where browsers do not reach this one
    #[arg(long, value_name = "URL", default_value = "https://ui.perfetto.dev", value_parser = page_url)]
    perfetto: String,
}

/// Reads the address of a page: letters, digits and what else of ASCII stands in addresses, with a host and at most one port, so that
/// browsers read it, too.
fn page_url(text: &str) -> Result<String, String> {
    let rest = ["https://", "http://"].iter().find_map(|begin| text.strip_prefix(begin));
    let authority = rest.map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() && !br#""<>\^`{|}"#.contains(&byte));
    match authority.filter(|authority| is_plain && is_host(authority)) {
        Some(_) => Ok(text.to_owned()),
        None => Err("it has to be https:// or http://, a host, and after a colon a port, as in https://ui.perfetto.dev".into()),
    }
}

/// Says whether this is a name or an address, with a port behind it or without.
fn is_host(authority: &str) -> bool {
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => (address.parse::<Ipv6Addr>().is_ok(), port),
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (name, port) = authority.split_at(end);
            let is_label = |label: &str| {
                !label.is_empty()
                    && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
            };
            // Browsers take a last label of digits for an address in numbers.
            let last = name.rsplit('.').next().unwrap_or_default();
            let is_number = last.starts_with(|first: char| first.is_ascii_digit());
            let is_name = name.split('.').all(is_label);
            (if is_number { name.parse::<Ipv4Addr>().is_ok() } else { is_name }, port)
        }
    };
    host && (port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok()))
}

/// Returns 128 bits of the system's as text.
fn random() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A look at processes, and when it was.
type Look = (Instant, Looked);

fn look_now(pids: &[u32]) -> Look {
    let at = Instant::now();
    let nothing = || Looked { said: Vec::new(), failed: Vec::new(), left_out: 0 };
    (at, look(pids).unwrap_or_else(|_| nothing()))
}

/// Returns all that the page shows, of two looks: `before` is the one before this, which is replaced. Of processes that are named
/// the whole jobs are asked, so that who waits for whom is known, and they alone are shown one by one.
fn state(pids: &[u32], before: &mut Option<Look>, perfetto: Option<&str>) -> String {
    let fits = |(at, _): &Look| BETWEEN_LOOKS.contains(&at.elapsed());
    let (_, earlier) = before.take().filter(fits).unwrap_or_else(|| {
        let looked = look_now(pids);
        std::thread::sleep(*BETWEEN_LOOKS.start());
        looked
    });
    let (at, now) = look_now(pids);
    let Looked { said, failed, left_out } = &now;
    let explained = explain(&earlier.said, said, *left_out);
    let around = |circle: &Vec<Member>| {
        circle.iter().chain(circle.first()).map(ToString::to_string).collect::<Vec<_>>().join(" waits for ")
    };
    let shown = said.iter().filter(|process| pids.is_empty() || pids.contains(&process.who.pid));
    let shown = shown.map(|process| json!({ "pid": process.who.pid, "process": process }));
    let failed = failed.iter().map(|(pid, error)| json!({ "pid": pid, "error": error.to_string() }));
    let all = shown.chain(failed);
    let state = json!({
        "processes": all.collect::<Vec<_>>(),
        "graph": graph(said, &explained),
        "culprits": explained.culprits.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "circles": explained.circles.iter().map(around).collect::<Vec<_>>(),
        "untold": explained.untold,
        "left_out": explained.left_out,
        "perfetto": perfetto,
    });
    *before = Some((at, now));
    state.to_string()
}

/// What was told last, and when.
struct Told<T> {
    told: Mutex<Option<(Instant, T)>>,
}

impl<T: Clone> Told<T> {
    const fn new() -> Self {
        Self { told: Mutex::new(None) }
    }

    /// Returns what was told a moment ago, or what `look` finds. Whoever asks meanwhile waits for that.
    fn fresh(&self, look: impl FnOnce() -> T) -> T {
        let mut told = self.told.lock();
        match &*told {
            Some((at, value)) if at.elapsed() < FRESH_FOR => value.clone(),
            _ => {
                let value = look();
                told.insert((Instant::now(), value)).1.clone()
            }
        }
    }
}

fn page() -> Reply {
    let Ok(nonce) = random() else {
        return Reply::not_found("no random number of the system's, which the page needs");
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'"
    );
    Reply::new("text/html; charset=utf-8", PAGE.replace("NONCE", &nonce))
        .header("Content-Security-Policy", policy)
}

/// Listens until it is ended.
pub fn run(options: Options) -> Outcome {
    let Options { pids, port, address, host_name, otlp, every, allow_traces, perfetto } = options;
    let collector = otlp.map(|endpoint| otlp::url(&endpoint)).transpose()?;
    let token = match std::env::var(TOKEN) {
        Ok(token)
            if token.is_empty()
                || !token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte)) =>
        {
            return Err(format!("{TOKEN} has to be letters and digits, at least one").into());
        }
        Ok(token) => token,
        Err(_) => random().map_err(|error| format!("the system gives no random token: {error}"))?,
    };
    let server = Server::bind((address, port)).map_err(|error| {
        format!("cannot listen at {address} port {port}: {error}; name another with --port, or 0 for any")
    })?;
    let address = server.address();
    let server = server.token(token.clone()).open("/").hosts(host_name).takes_posts(allow_traces);
    print(format_args!("http://{address}/?token={token}\n"))?;
    if let Some(url) = collector {
        let pids = pids.clone();
        spawn("hostcall-otlp", move || push(&url, &pids, every))?;
    }
    let (told, before, processes) = (Told::new(), Mutex::new(None), Mutex::new(Processes::default()));
    let (traces, perfetto) = (Traces::new(pids.clone()), allow_traces.then_some(perfetto));
    server.run(move |request: &Request<'_>| match request.path {
        "/api/trace" if request.is_post => traces.answer(request.query),
        _ if request.is_post => Reply::not_found("nothing but /api/trace to be asked for so"),
        "/" => page(),
        "/api/state" => {
            let look = || {
                let mut before = before.lock();
                state(&pids, &mut before, perfetto.as_deref())
            };
            Reply::new("application/json", told.fresh(look))
        }
        "/metrics" => {
            let all = processes.lock().look(&pids);
            Reply::new(prometheus::CONTENT_TYPE, prometheus::text(&all))
        }
        _ => Reply::not_found("/, /api/state and /metrics"),
    });
    Ok(0)
}

/// Pushes again and again. A collector that does not take it is told of once, until it does.
fn push(url: &str, pids: &[u32], every: Duration) {
    let (mut processes, mut has_failed) = (Processes::default(), false);
    loop {
        processes.look(pids);
        let pushed = otlp::push(url, &processes.each());
        match &pushed {
            Err(error) if !has_failed => complain(error),
            _ => {}
        }
        has_failed = pushed.is_err();
        std::thread::sleep(every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_pages_are_such_as_browsers_read() {
        for good in [
            "https://ui.perfetto.dev",
            "http://localhost:10000/",
            "http://127.0.0.1:8080/ui/?a=b#!/",
            "https://[::1]:9/x",
            "http://a_b.example",
        ] {
            assert_eq!(page_url(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "ui.perfetto.dev",
            "ftp://a",
            "https://",
            "https:///x",
            "https://a b:x[",
            "https://a:x",
            "https://a:70000",
            "https://[::1",
            "https://[::g]",
            "https://a..b",
            "https://user@a",
            "https://1.2.3.400",
            "https://a/\u{e9} b",
        ] {
            assert!(page_url(bad).is_err(), "{bad}");
        }
    }
}
