"""Looks into a program that hangs: by Prometheus, OpenTelemetry's messages, Chromium and the command."""

import base64
import contextlib
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from browser import browser
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

# What the page says, without its script.
TEXT = "document.getElementById('main')?.textContent ?? ''"
# What takes longer hangs.
LONG_S = 60
TOKEN = "a-test"
RANK = 3


@contextlib.contextmanager
def running(command, **options):
    """A program, which is ended in the end."""
    program = subprocess.Popen(command, text=True, **options)
    try:
        yield program
    finally:
        program.kill()
        program.wait()


def until(what, look):
    """What `look` finds, once it finds something."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {LONG_S} s for {what}")


def fetched(url, token=TOKEN, method="GET", **headers):
    """The status and the text at an address."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}", **headers}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=LONG_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Collector(http.server.BaseHTTPRequestHandler):
    """Takes what is pushed."""

    pushed = []

    def do_POST(self):
        assert (self.path, self.headers["Content-Type"]) == ("/v1/metrics", "application/x-protobuf")
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.pushed.append(ExportMetricsServiceRequest.FromString(body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(of):
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in of.attributes}


def check_pushed(request, pid):
    """Checks a push of the process."""
    [of] = [of for of in request.resource_metrics if attributes(of.resource)["process.pid"] == pid]
    assert attributes(of.resource)["hostcall.rank"] == RANK
    [scope] = of.scope_metrics
    metrics = {metric.name: metric for metric in scope.metrics}
    assert scope.scope.name == "hostcall"
    [times] = metrics["rpc.server.call.duration"].histogram.data_points
    assert attributes(times)["rpc.method"] == "Approval/of_order"
    assert times.count == sum(times.bucket_counts) == 64 and times.sum > 0
    assert len(times.bucket_counts) == len(times.explicit_bounds) + 1
    assert 0 < times.start_time_unix_nano < times.time_unix_nano
    calls = metrics["hostcall.calls"].sum
    assert calls.is_monotonic and calls.aggregation_temporality == 2
    ends = {attributes(point).get("error.type", "ok") for point in calls.data_points}
    assert ends == {"ok", "failed"}, ends
    [waiting] = metrics["hostcall.waiting"].gauge.data_points
    assert waiting.as_double > 0


def check_scraped(address, folder):
    """Has Prometheus scrape the command, and asks it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = f"{folder}/prometheus.json"
    target = urllib.parse.urlsplit(address).netloc
    job = {"job_name": "hostcall", "static_configs": [{"targets": [target]}], "authorization": {"credentials": TOKEN}}
    with open(config, "w", encoding="utf-8") as file:
        json.dump({"global": {"scrape_interval": "200ms", "scrape_timeout": "200ms"}, "scrape_configs": [job]}, file)
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/data"]
    command.append(f"--web.listen-address=127.0.0.1:{port}")
    queries = [
        'rate(hostcall_calls_total{service="Prices",status="ok"}[2s]) > 0',
        'hostcall_oldest_call_seconds{service="Approval"} > 0',
        "histogram_quantile(0.5, rate(hostcall_inline_batch_duration_seconds_bucket[2s])) > 0",
    ]
    with running(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        for query in queries:

            def found(query=query):
                url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
                with contextlib.suppress(OSError, ValueError):  # It starts.
                    return json.loads(fetched(url)[1])["data"]["result"]
                return None

            [result] = until(f"Prometheus to answer {query}", found)
            assert result["metric"]["rank"] == str(RANK), result


def check_text(text):
    """Has Prometheus's own tool check the text, which has all that the dashboard shows."""
    families = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    with open("docs/grafana.json", encoding="utf-8") as file:
        shown = {name.removesuffix("_bucket") for name in re.findall(r"hostcall_[a-z_]+", file.read())}
    assert len(shown) > 15 and shown <= families, shown - families
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


class Perfetto(http.server.BaseHTTPRequestHandler):
    """A page in the place of Perfetto's, with its protocol: it answers its opener's `PING` once it is ready, and takes a trace."""

    PAGE = b"""<!doctype html><title>waits</title><script>
    setTimeout(() => addEventListener("message", async ({ data, source, origin }) => {
      if (source !== window.opener) return;
      if (data === "PING") return source.postMessage("PONG", origin);
      const { buffer, title } = data.perfetto;
      if (!(buffer instanceof ArrayBuffer)) throw new Error("no buffer");
      const reader = new FileReader();
      reader.onload = () => { window.trace = { title, from: origin, content: reader.result.split(",")[1] }; };
      reader.readAsDataURL(new Blob([buffer]));
    }), 700);
    </script>"""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.PAGE)

    def log_message(self, *_):
        pass


def check_trace(chromium, page, perfetto):
    """Has the page open a trace in Perfetto by one click."""
    page.click(".trace button")
    other = until("a window of Perfetto", lambda: chromium.find(perfetto))
    trace = until("the trace there", lambda: other.value("window.trace"))
    assert trace["title"].startswith("process "), trace["title"]
    content = base64.b64decode(trace["content"])
    assert b"asks" in content and b"ask_prices" in content, content[:200]
    until("the page to say so", lambda: page.value("document.querySelector('.trace').textContent.includes('is in Perfetto')"))


def check_page(address, base, perfetto, picture):
    """Has Chromium show the page."""
    with browser(LONG_S) as chromium:
        page = chromium.open(address)
        # The token leaves the address, and the tab has it still when it is loaded again.
        until("the token to leave the address", lambda: page.value("location.href") == base)
        page.value("location.reload()")
        until("the wait on the page", lambda: "has waited for the handler of Approval::of_order for" in page.value(TEXT))
        shown = page.value(TEXT)
        assert f"rank {RANK}" in shown and "Prices::of" in shown, shown
        assert 'order <b>7</b> is placed & waits for "approval"' in shown, "text of a program is text"
        # The graph: who waits stands to the left of what is waited for, which is marked, and all waits are in it.
        places = "[...document.querySelectorAll('.graph .node')].map(of => [of.textContent, of.getBoundingClientRect().x])"
        nodes = until("the culprit in the graph", lambda: [of for of in page.value(places) if "culprit" in of[0]] and page.value(places))
        of = {name: x for name, x in nodes}
        [waits], [culprit] = [[x for name, x in of.items() if part in name] for part in ["place_order", "Approval::of_order"]]
        assert waits < culprit, of
        assert page.value("document.querySelector('.graph svg').dataset.waits") == "3"
        assert not page.console, page.console
        if picture:
            page.picture(picture, 1100, 830)
        # Traces are for who allows them alone.
        assert page.value("document.querySelectorAll('.trace').length") == 1
        assert posted(f"{base}api/trace?pid=1&seconds=1")[0] == 400
        assert posted(f"{base}api/trace?pid=1&seconds=1&token={TOKEN}", token="another")[0] == 401
        check_trace(chromium, page, perfetto)


def posted(url, token=TOKEN):
    """The status and the text of the answer to a request that asks for something to be done."""
    return fetched(url, token, method="POST")


def check_many(hostcall, built, environment):
    """Has Chromium show a thousand waits, and a page that may only tell."""
    with contextlib.ExitStack() as stack:
        piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        watched = stack.enter_context(running([f"{built}/examples/watched", "1000"], env=environment, **piped))
        assert watched.stdout.readline() and watched.stdout.readline() == "ready\n"
        serve = [hostcall, "serve", str(watched.pid), "--port", "0"]
        serving = stack.enter_context(running(serve, env=environment, **piped))
        address = serving.stdout.readline().strip()
        base = address.split("?")[0]
        assert posted(f"{base}api/trace?pid={watched.pid}&seconds=1")[0] == 405
        chromium = stack.enter_context(browser(LONG_S))
        page = chromium.open(address)
        until("all waits in the graph", lambda: page.value("document.querySelector('.graph svg')?.dataset.waits") == "1003")
        nodes = page.value("[...document.querySelectorAll('.graph .node')].map(of => of.getBoundingClientRect().toJSON())")
        assert 4 <= len(nodes) <= 28, nodes
        for one in nodes:
            others = [of for of in nodes if of is not one and of["left"] < one["right"] and one["left"] < of["right"]]
            assert all(of["bottom"] <= one["top"] + 8 or one["bottom"] <= of["top"] + 8 for of in others), (one, others)
        until("what is not told", lambda: "waits, or kinds of them, are not told" in page.value(TEXT))
        assert page.value("document.querySelectorAll('.trace').length") == 0 and not page.console, page.console


def main():
    built, picture = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    collector = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=collector.serve_forever, daemon=True).start()
    endpoint = f"http://127.0.0.1:{collector.server_port}"
    environment = {**os.environ, "HOSTCALL_RANK": str(RANK), "HOSTCALL_TOKEN": TOKEN, "HOSTCALL_JOB": f"check-{os.getpid()}"}
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    hostcall = f"{built}/hostcall"
    pushing = {**environment, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        watched = stack.enter_context(running([f"{built}/examples/watched"], env=pushing, **piped))
        own = watched.stdout.readline().strip()
        assert watched.stdout.readline() == "ready\n"
        until("a push of the program", lambda: len(Collector.pushed) > 2)
        check_pushed(Collector.pushed[-1], watched.pid)

        other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Perfetto)
        threading.Thread(target=other.serve_forever, daemon=True).start()
        perfetto = f"http://127.0.0.1:{other.server_port}/"
        serve = [hostcall, "serve", str(watched.pid), "--port", "0", "--otlp", endpoint, "--every", "0.2"]
        serve += ["--allow-traces", "--perfetto", perfetto]
        serving = stack.enter_context(running(serve, env=environment, **piped))
        address = serving.stdout.readline().strip()
        base = address.split("?")[0]
        check_page(address, base, perfetto, picture)
        for url in [own, f"{base}metrics"]:
            status, text = fetched(url)
            assert status == 200 and 'hostcall_calls_total{device="cpu",rank="3",service="Prices"' in text, text
            check_text(text)
        assert fetched(f"{base}metrics", token="another")[0] == 401
        assert fetched(f"{base}api/state", Host="attacker.example")[0] == 421
        check_scraped(address, folder)
        # The command pushes for a program that is stopped, too: what it knew before.
        Collector.pushed.clear()
        until("a push of the command", lambda: Collector.pushed)
        check_pushed(Collector.pushed[-1], watched.pid)
        top = stack.enter_context(running([hostcall, "top", str(watched.pid), "--every", "0.2"], stdout=subprocess.PIPE))
        lines = [top.stdout.readline() for _ in range(12)]
        assert any("Prices::of: " in line for line in lines) and any("waits: " in line for line in lines), lines
        # A process that is stopped answers nobody, and is told as such.
        watched.send_signal(signal.SIGSTOP)
        [state] = until("the page to say so", lambda: [of for of in json.loads(fetched(f"{base}api/state")[1])["processes"] if "error" in of])
        assert "it is stopped" in state["error"], state
        watched.send_signal(signal.SIGCONT)
        # It ends by itself, although a kernel of it hangs.
        watched.stdin.close()
        assert watched.wait(LONG_S) == 0
        assert "Prices::of" in top.stdout.read() and top.wait(LONG_S) == 0
    check_many(hostcall, built, environment)
    print("metrics are scraped, decoded and shown")


main()
