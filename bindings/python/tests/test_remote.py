"""Functions that kernels of other processes call: which kernels get what, whatever happens to the process that answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest

import hostcall
from hostcall import _remote_messages as messages

zenoh = pytest.importorskip("zenoh")

import hostcall.remote
from hostcall._remote_door import MOST_WAITING, Counts, Door, Served

LONG = 60.0
SHARED: dict[str, Any] = json.loads((Path(__file__).parents[3] / "host/remote/tests/messages.json").read_text())
# The tests of Rust have built it, in a folder beside the command `hostcall`.
ASKS = shutil.which("remote_asks", path=os.pathsep.join(f"{folder}/examples" for folder in os.environ["PATH"].split(os.pathsep)))
asks = pytest.mark.skipif(ASKS is None, reason="remote_asks is not built: cargo build -p hostcall-remote-tests --example remote_asks")


class Process:
    """A process of which lines are read and written. It is killed in the end."""

    def __init__(self, *command: str, error: Any = None) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=error, text=True)
        self.pid = self.process.pid

    def line(self) -> str:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the process has ended"
        return line.strip()

    def wait_for(self, what: str) -> None:
        while what not in self.line():
            pass

    def say(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ask(self, method: str, *, waves: int = 1, timeout_us: int = 0, rounds: int = 1) -> dict[str, int]:
        """Has all lanes call. Returns how many of their last calls ended how."""
        self.say(f"{method} {waves} {timeout_us} {rounds}")
        return self.ends()

    def ends(self) -> dict[str, int]:
        return {end: int(count) for count, end in (part.split(" ", 1) for part in self.line().split(", "))}

    def until_answered(self) -> dict[str, int]:
        begun = time.monotonic()
        while True:
            ends = self.ask("next")
            if all(end.startswith("right") for end in ends):
                return ends
            assert time.monotonic() < begun + LONG, f"nobody answers: {ends}"

    def end(self) -> str:
        """Has it end by itself, and returns what it wrote to its standard error."""
        return self.process.communicate(timeout=LONG)[1] or ""

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Starts processes that end with the test."""
    started: list[Process] = []

    def run(*command: str, error: Any = None) -> Process:
        started.append(Process(*command, error=error))
        return started[-1]

    yield run
    for process in started:
        process.kill()


def address() -> str:
    """Returns an address of this machine that nobody listens at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{free.getsockname()[1]}"


def answerer(start: Callable[..., Process], role: str, at: str, error: Any = None) -> Process:
    command = [str(ASKS), "--answer", at] if role == "Rust" else [sys.executable, str(Path(__file__).parent / "answerer.py"), role, at]
    process = start(*command, error=error)
    process.wait_for("READY")
    return process


def test_the_shared_messages_are_those() -> None:
    head = messages.Head(**SHARED["head"])
    of = SHARED["question"]
    question = messages.read_question(bytes.fromhex(of["message"]))
    assert question.head == head and question.schema == of["schema"]
    assert question.remaining == tuple(of["remaining_us"])
    assert list(question.words.cast("Q")) == of["words"]
    of = SHARED["answer"]
    words = struct.pack(f"<{len(of['words'])}Q", *of["words"])
    assert messages.write_answer(head, of["statuses"], of["width"], words).hex() == of["message"]
    assert of["statuses"] == [messages.OK, messages.failed(-5), messages.TIMED_OUT]
    assert messages.read_unwanted(bytes.fromhex(SHARED["unwanted"])) == head
    assert messages.read_unwanted(bytes.fromhex(SHARED["question"]["message"])) is None


def test_messages_that_are_none_are_refused() -> None:
    for refused in SHARED["refused_questions"]:
        with pytest.raises(messages.Malformed):
            messages.read_question(bytes.fromhex(refused))
    of = SHARED["other_version"]
    with pytest.raises(messages.OtherVersion) as other:
        messages.read_question(bytes.fromhex(of["message"]))
    head = other.value.head
    assert head == messages.Head(**{**SHARED["head"], "version": of["version"]})
    assert messages.write_answer(head, [messages.TYPE_MISMATCH] * head.calls, 0, b"").hex() == of["refusal"]


def test_a_question_is_new_once() -> None:
    once = messages.Once()
    for process, batch, is_new in SHARED["once"]:
        assert once.is_new(process, batch) is is_new, (process, batch)
    for process in range(3 * messages.Once.MOST_CALLERS):
        assert messages.Once.is_new(once, 1000 + process, 0)
    assert len(once._callers) == messages.Once.MOST_CALLERS


@asks
@pytest.mark.parametrize("role", ["one by one", "columns"])
def test_all_lanes_get_their_own_answers(start: Callable[..., Process], role: str) -> None:
    if role == "columns":
        pytest.importorskip("numpy")
    at = address()
    by, kernels = answerer(start, role, at, subprocess.PIPE), start(str(ASKS), at)
    assert kernels.ask("next", waves=8, rounds=5) == {f"right by {by.pid}": 256}
    assert kernels.ask("scaled", waves=2, rounds=2) == {"right by 0": 64}
    # A function that raises fails its own calls, and nothing else.
    raised = kernels.ask("fails")
    assert raised == ({"Panicked": 32} if role == "columns" else {"Panicked": 16, "right by 0": 16})
    assert kernels.ask("next") == {f"right by {by.pid}": 32}
    error = by.end()
    assert "Traceback" in error and "fails\n" in error
    assert ("KeyError: 'there is no key 1'" in error) == (role == "one by one")
    assert f"Store::fails raised: {raised['Panicked']} of 32 calls of process" in error


@asks
def test_the_books_feature_store_answers(start: Callable[..., Process]) -> None:
    pytest.importorskip("numpy")
    at = address()
    store = start(sys.executable, str(Path(__file__).parents[1] / "examples/feature_store.py"), at)
    store.wait_for("READY")
    assert start(str(ASKS), at).ask("profiles", waves=32) == {"right by 0": 1024}
    store.end()
    assert store.process.returncode == 0


@asks
def test_a_function_refuses_with_a_code(start: Callable[..., Process]) -> None:
    at = address()
    by, kernels = answerer(start, "refuses", at, subprocess.PIPE), start(str(ASKS), at)
    kernels.until_answered()
    assert kernels.ask("fails") == {"Failed(7)": 16, "right by 0": 16}
    assert by.end() == ""


@asks
def test_other_types_and_methods_are_refused(start: Callable[..., Process]) -> None:
    at = address()
    other, kernels = answerer(start, "other types", at), start(str(ASKS), at)
    assert kernels.ask("next") == {"TypeMismatch": 32}
    assert kernels.ask("missing") == {"NoSuchService": 32}
    other.say("counts")
    assert other.line() == "Counts(answered=0, refused=2, unwanted=0, raised=0)"


@asks
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_calls_of_a_process_that_is_killed_or_stopped_may_have_run(start: Callable[..., Process], how: signal.Signals) -> None:
    at = address()
    by, kernels = answerer(start, "one by one", at), start(str(ASKS), at)
    kernels.until_answered()
    kernels.say("waits 1 0 1")
    by.wait_for("HAS")
    os.kill(by.pid, how)
    assert kernels.ends() == {"MayHaveRun": 32}
    by.kill()
    assert sum(kernels.ask("next").get(end, 0) for end in ("MayHaveRun", "Unreachable")) == 32
    by = answerer(start, "one by one", at)
    assert kernels.until_answered() == {f"right by {by.pid}": 32}


@asks
@pytest.mark.parametrize("order", [("one by one", "Rust"), ("Rust", "one by one")])
def test_an_answerer_in_another_language_takes_over(start: Callable[..., Process], order: tuple[str, str]) -> None:
    at, other = address(), address()
    first, kernels = answerer(start, order[0], at), start(str(ASKS), at, other)
    kernels.until_answered()
    second = answerer(start, order[1], other)
    first.kill()
    assert kernels.until_answered() == {f"right by {second.pid}": 32}
    assert kernels.ask("next", waves=4, rounds=10) == {f"right by {second.pid}": 128}


@asks
def test_a_function_that_never_returns_keeps_no_lane_beyond_its_deadline(start: Callable[..., Process]) -> None:
    at = address()
    by, kernels = answerer(start, "one by one", at), start(str(ASKS), at)
    kernels.until_answered()
    assert kernels.ask("waits", timeout_us=50_000) == {"TimedOut": 32}
    # It has the one thread.
    assert kernels.ask("next", timeout_us=50_000) == {"TimedOut": 32}
    # Without a deadline, what the process that asks waits for at most: 3 s here.
    assert kernels.ask("next") == {"MayHaveRun": 32}
    by.say("counts")
    by.wait_for("HAS")
    assert "answered=" in by.line()


@asks
def test_a_function_learns_that_no_lane_waits(start: Callable[..., Process]) -> None:
    at = address()
    by, kernels = answerer(start, "watches", at), start(str(ASKS), at)
    kernels.until_answered()
    assert kernels.ask("waits", timeout_us=50_000) == {"TimedOut": 32}
    by.wait_for("HAS")
    by.wait_for("GONE")
    kernels.say("waits 1 0 1")
    by.wait_for("HAS")
    kernels.kill()
    by.wait_for("GONE")
    by.say("counts")
    assert "unwanted=2" in by.line()


def test_what_cannot_be_answered_is_refused() -> None:
    @hostcall.service
    class Texts:
        def of(self, name: str) -> hostcall.u64:
            return len(name)

    @hostcall.service
    class Waits:
        async def of(self, item: hostcall.u64) -> hostcall.u64:
            return item

    @hostcall.service
    class Good:
        def of(self, item: hostcall.u64) -> hostcall.u64:
            return item

    with pytest.raises(ValueError, match="no address of this machine alone"):
        hostcall.remote.Session(listen="tcp/0.0.0.0:0")
    with pytest.raises(ValueError, match="no address of this machine alone"):
        hostcall.remote.Session(listen=["tcp/127.0.0.1:0", "127.0.0.1:1"])
    with pytest.raises(ValueError, match="cannot name a job"):
        hostcall.remote.Session(job="a/b")
    with hostcall.remote.Session() as session:
        with pytest.raises(TypeError, match="words alone"):
            session.export("texts", Texts())
        with pytest.raises(TypeError, match="is async"):
            session.export("waits", Waits())
        with pytest.raises(ValueError, match="cannot name a service"):
            session.export("*", Good())
        with pytest.raises(TypeError, match="pass an object"):
            session.export("good", Good)
        with pytest.raises(ValueError, match="0 threads"):
            session.export("good", Good(), threads=0)
        session.export("good", Good()).close()
        assert session.counts() == Counts()
    session.close()
    begun, before = time.monotonic(), threading.active_count()
    with pytest.raises(zenoh.ZError):
        session.export("good", Good())
    while threading.active_count() > before:
        assert time.monotonic() < begun + LONG
        time.sleep(0.001)


def test_a_process_that_does_not_close_its_session_ends() -> None:
    program = """
import hostcall, hostcall.remote

@hostcall.service
class Store:
    def of(self, item: hostcall.u64) -> hostcall.u64:
        return item

session = hostcall.remote.Session(listen="tcp/127.0.0.1:0")
export = session.export("store", Store(), threads=2)
"""
    forks = "import os, sys, warnings\nwarnings.simplefilter('ignore')\nchild = os.fork()\nif child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    for ends in ["", "raise SystemExit(3)", "del session", forks]:
        ended = subprocess.run([sys.executable, "-c", program + ends], capture_output=True, text=True, timeout=LONG)
        assert (ended.returncode, ended.stderr) == (3 if "3" in ends else 0, "")


@asks
def test_a_file_of_zenohs_says_where_it_listens_and_who_is_denied(start: Callable[..., Process], tmp_path: Path) -> None:
    @hostcall.service
    class Store:
        def fails(self, key: hostcall.u64) -> hostcall.u64:
            return key

    at, file = address(), tmp_path / "answerer.json5"
    listens = f'mode: "peer", listen: {{ endpoints: ["{at}"] }}'
    denies = 'access_control: { enabled: true, default_permission: "deny", rules: [], subjects: [], policies: [] }'
    for text, ends in [(f"{{ {listens} }}", ["right by 0"]), (f"{{ {listens}, {denies} }}", ["Unreachable", "MayHaveRun"])]:
        file.write_text(text)
        with hostcall.remote.Session(file=file) as session:
            session.export("store", Store(), threads=2)
            kernels = start(str(ASKS), at)
            assert set(kernels.ask("fails")) <= set(ends)
            kernels.kill()


class Refusal(hostcall.Refuse):
    """Has no code that a status can have."""

    def __init__(self, code: Any) -> None:
        self.code = code


def test_a_refusal_with_any_code_fails_its_own_call() -> None:
    for wrong in ("7", 7.0, None):
        with pytest.raises(TypeError):
            hostcall.Refuse(wrong)  # type: ignore[arg-type]

    @hostcall.service
    class Store:
        def of(self, key: hostcall.u64) -> hostcall.u64:
            raise Refusal(["7", 7.0, None, True, 2**40 + 7][key])

    (method,) = hostcall._service.description_of(Store()).methods(Store())
    served = Served(method)
    door = Door({"Store/of": served}, Counts(), threading.Lock(), 1)
    head = messages.Head(messages.VERSION, 1, 5, 0, 9)
    began = messages._HEAD.pack(b"hcrm", messages.VERSION, 1, 5, 0, 0, 9) + struct.pack("<Q", served.schema)
    given = Given(began + bytes(5 * 8) + struct.pack("<5Q", *range(5)), "Store/of")
    door.let_in(given)
    begun = time.monotonic()
    while not given.answers:
        assert time.monotonic() < begun + LONG
        time.sleep(0.001)
    codes = [-1, -1, -1, 1, 7]
    assert given.answers == [messages.write_answer(head, [messages.failed(code) for code in codes], 1, bytes(40))]
    door.close()


class Given:
    """A question that no process asked."""

    def __init__(self, message: bytes, method: str = "Store/waits") -> None:
        self._message, self.method, self.size = message, method, len(message)
        self.answers: list[bytes] = []
        self.is_dropped = False

    def message(self) -> bytes:
        return self._message

    def answer(self, message: bytes, /) -> None:
        self.answers.append(message)

    def drop(self) -> None:
        self.is_dropped = True


def test_what_fails_while_a_question_is_let_in_stops_no_thread(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Given):
        def message(self) -> bytes:
            raise ValueError("it cannot be read")

        def drop(self) -> None:
            raise ValueError("nor dropped")

    class Arrives:
        """Two questions, and then no more, as zenoh's handler has them."""

        def __init__(self) -> None:
            self.handler, self.left = self, [Broken(b""), Given(b"")]

        def recv(self) -> Given:
            if not self.left:
                raise zenoh.ZError
            return self.left.pop(0)

    door, arrives = Door({}, Counts(), threading.Lock(), 1), Arrives()
    last = arrives.left[1]
    hostcall.remote._each(arrives, door.let_in).join(LONG)
    assert last.is_dropped and caplog.text.count("this is a bug in hostcall") == 2
    door.close()


def test_an_answer_that_waits_for_its_link_holds_up_no_other_one() -> None:
    sends, goes_on = threading.Event(), threading.Event()

    class Slow(Given):
        def answer(self, message: bytes, /) -> None:
            sends.set()
            goes_on.wait()
            super().answer(message)

    @hostcall.service
    class Store:
        def of(self) -> None:
            pass

    (method,) = hostcall._service.description_of(Store()).methods(Store())
    served = Served(method)
    door = Door({"Store/of": served}, Counts(), threading.Lock(), 2)

    def message(batch: int) -> bytes:
        return messages._HEAD.pack(b"hcrm", messages.VERSION, 0, 1, 0, batch, 9) + struct.pack("<QQ", served.schema, 0)

    slow, other = Slow(message(0), "Store/of"), Given(message(1), "Store/of")
    door.let_in(slow)
    assert sends.wait(LONG)
    door.let_in(other)
    begun = time.monotonic()
    while not other.answers:
        assert time.monotonic() < begun + LONG
        time.sleep(0.001)
    threading.Timer(0.05, goes_on.set).start()
    # It waits for the answer that has begun.
    door.close()
    assert slow.answers


def test_more_questions_than_may_wait_get_busy_and_one_twice_is_dropped() -> None:
    has, goes_on = threading.Event(), threading.Event()

    @hostcall.service
    class Store:
        def waits(self, key: hostcall.u64) -> hostcall.u64:
            has.set()
            goes_on.wait()
            return key + 1

    (method,) = hostcall._service.description_of(Store()).methods(Store())
    served = Served(method)
    counts = Counts()
    door = Door({"Store/waits": served}, counts, threading.Lock(), 1)
    head = messages.Head(messages.VERSION, 1, 1, 0, 9)

    def question(batch: int, us: int = 0, schema: int = served.schema) -> Given:
        began = messages._HEAD.pack(b"hcrm", messages.VERSION, 1, 1, 0, batch, 9)
        given = Given(began + struct.pack("<QIIQ", schema, us, 0, 41))
        door.let_in(given)
        return given

    def status(given: Given) -> int:
        answer = given.answers.pop()
        assert answer[:32] == messages.write_answer(head._replace(batch=struct.unpack_from("<Q", answer, 16)[0]), [0], answer[6], b"")[:32]
        return int(struct.unpack_from("<Q", answer, 32)[0])

    first = question(0)
    assert has.wait(LONG)
    assert question(0).is_dropped
    # Its process was forgotten.
    door._once = messages.Once()
    assert question(0).is_dropped
    assert status(question(1, schema=1)) == messages.TYPE_MISMATCH
    waiting = [question(2 + place, us=1000 if place == 0 else 0) for place in range(MOST_WAITING)]
    assert status(question(1000)) == messages.BUSY
    # Nobody waits for it any more, while no thread has it.
    begun = time.monotonic()
    while not waiting[0].is_dropped:
        assert time.monotonic() < begun + LONG
        time.sleep(0.001)
    goes_on.set()
    while not waiting[-1].answers:
        assert time.monotonic() < begun + LONG
        time.sleep(0.001)
    assert [status(given) for given in [first, *waiting[1:]]] == [messages.OK] * MOST_WAITING
    assert (counts.answered, counts.refused, counts.unwanted) == (MOST_WAITING, 4, 1)
    goes_on.clear()
    last = question(2000)
    door.close()
    assert last.is_dropped and question(2001).is_dropped
    goes_on.set()
