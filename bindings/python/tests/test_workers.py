"""Functions in a process of their own: whatever they do, there is a report, and no process is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import worked
from conftest import Kernels

import hostcall
from hostcall import _worker


@pytest.fixture
def worker() -> Iterator[hostcall.Worker]:
    with hostcall.Worker() as worker:
        yield worker


@pytest.fixture
def library(kernels: Kernels) -> str:
    return str(kernels.free._name)


def state(process: int) -> str:
    """What the system says of a process: its state and command; nothing where it has ended."""
    folder = Path(f"/proc/{process}")
    try:
        of = folder.joinpath("stat").read_text().rsplit(")", 1)[1].split()[0]
        return "" if of == "Z" else f"{process} {of} {folder.joinpath('cmdline').read_bytes()!r}"
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_there(process: int) -> bool:
    return state(process) != ""


def gone(*processes: int) -> bool:
    deadline = time.monotonic() + 60
    while there := [state(process) for process in processes if is_there(process)]:
        if time.monotonic() > deadline:
            print(there)
            return False
        time.sleep(0.01)
    return True


def test_a_function_is_run_and_its_process_kept() -> None:
    first, second = hostcall.run(worked.adds, [1, 2], timeout=30), hostcall.run(worked.adds, [3, 4])
    assert first.ok and first.ended == "exited" and first.value[0] == 3 and first.panic is first.error is None
    assert second.value == (7, first.value[1]) and first.value[1] != os.getpid()


def test_what_is_printed_comes_with_the_report(worker: hostcall.Worker, library: str) -> None:
    report = worker.run(worked.prints, [library], timeout=30)
    assert sorted(report.stdout.splitlines()) == ["from Python", "lane 3 is here", "of a child", "of libc"], report
    assert report.stderr.startswith("beside\n") and "LostCalls: 1 call" in report.stderr
    assert report.lost == {"calls": 1, "posts": 0, "stdout_bytes": 0, "stderr_bytes": 0} and not report.ok
    assert worker.run(worked.adds, [1, 1]).stdout == ""
    flood = worker.run(worked.floods)
    assert len(flood.stdout) == 16 << 20 and flood.stderr == "x" and flood.lost["stdout_bytes"] == 4 << 20 and not flood.ok


def test_what_is_raised_is_told(worker: hostcall.Worker, library: str) -> None:
    report = worker.run(worked.raises)
    assert (report.ended, report.exit_code, report.ok, report.value) == ("failed", 1, False, None)
    assert report.error is not None and report.error.splitlines()[-1] == "KeyError: 'no such key'" and "in raises" in report.error
    assert "_worker_process" not in report.error
    panicked = worker.run(worked.checks, [library])
    assert (panicked.ended, panicked.exit_code) == ("panicked", 101) and panicked.panic is not None and panicked.error is not None
    panic = panicked.panic
    assert panic.place is not None and panic.place.startswith(str(Path(__file__).with_name("kernels.cpp")) + ":") and panic.others == 1
    assert (panic.kernel, panic.message, panic.workgroup) == ("checked", "`lane < limit` does not hold", (0, 0, 0))
    # Told once, and the process goes on.
    assert worker.run(worked.adds, [1, 2]).ok
    for code, exit_code in ((None, 0), (0, 0), (5, 5), (True, 1), ("no good", 1)):
        ended = worker.run(worked.exits, [code])
        assert (ended.ended, ended.exit_code, ended.stderr) == ("exited", exit_code, "no good\n" if code == "no good" else "")
        assert type(ended.exit_code) is int


def test_a_kernel_that_never_ends_is_ended(worker: hostcall.Worker, library: str) -> None:
    for function in (worked.spins, worked.holds):
        began = time.monotonic()
        report = worker.run(function, [library], timeout=0.2)
        assert (report.ended, report.exit_code) == ("killed", -signal.SIGKILL) and time.monotonic() - began < 20
        assert f"in {function.__name__}" in report.stderr, "where it hung"
        assert report.said[0] == "the function did not end within 0.2 s" and "its process was ended" in report.said[1]
    assert worker.run(worked.adds, [1, 2]).ok


def test_a_kernel_that_waits_for_a_function_is_cancelled(worker: hostcall.Worker, library: str) -> None:
    report = worker.run(worked.waits_for_ever, [library], timeout=0.5)
    assert (report.ended, report.exit_code) == ("timed out", 124), report
    (wait,) = report.waiting
    assert (wait.kernel, wait.lanes) == ("asks", 1) and "never" in wait.service and wait.seconds > 0.2 and "never" in wait.text
    assert report.error is not None and "KeyboardInterrupt" in report.error and "in waits_for_ever" in report.error
    assert worker.run(worked.adds, [1, 2]).ok


def test_imports_have_a_limit_of_their_own(worker: hostcall.Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.run(worked.adds, [worked.Slow(0.5), 1], timeout=0.2).ended == "failed", "they are none of the function's time"
    monkeypatch.setattr(_worker, "_LONGEST_START", 0.5)
    report = worker.run(worked.adds, [worked.Slow(1000), 1], timeout=0.2)
    assert report.ended == "timed out" and "the function's imports took longer than 0.5 s" in report.said[0]


def test_a_function_that_does_not_end_takes_its_children_with_it(worker: hostcall.Worker, tmp_path: Path) -> None:
    report = worker.run(worked.refuses_to_end, [str(tmp_path / "pids")], timeout=0.5)
    assert report.ended == "killed" and "in refuses_to_end" in report.stderr
    assert gone(*map(int, (tmp_path / "pids").read_text().split()))


def test_a_process_that_ends_is_replaced(worker: hostcall.Worker) -> None:
    for code in (0, 7, -signal.SIGSEGV, -signal.SIGKILL):
        report = worker.run(worked.ends, [code], timeout=30)
        assert (report.ended, report.exit_code, report.ok) == ("died", code, False) and "process ended" in report.said[-1]
    assert "Segmentation fault" in worker.run(worked.ends, [-signal.SIGSEGV]).stderr
    began = time.monotonic()
    assert worker.run(worked.forks_and_dies).exit_code == -signal.SIGKILL and time.monotonic() - began < 10
    assert worker.run(worked.dies_later).ok
    time.sleep(0.5)
    assert worker.run(worked.adds, [1, 2]).ok


def test_outputs_may_be_closed(worker: hostcall.Worker) -> None:
    first = worker.run(worked.adds, [0, 0]).value
    assert worker.run(worked.closes_outputs, timeout=30).stdout == "before\n"
    assert worker.run(worked.replaces_outputs, timeout=30).ok
    report = worker.run(worked.adds, [0, 0], timeout=30)
    assert report.ok and report.value == first


def test_pipes_may_be_closed_and_garbage_written(worker: hostcall.Worker) -> None:
    for function in (worked.closes_everything, worked.writes_garbage):
        report = worker.run(function, timeout=30)
        assert report.ended == "died" and report.seconds < 10, report
    assert "ValueError: the process wrote into the socket of its worker" in report.said
    assert worker.run(worked.adds, [1, 2], timeout=30).ok


def test_threads_and_forks_may_be_left_behind(worker: hostcall.Worker) -> None:
    for is_daemon in (True, False):
        assert worker.run(worked.leaves_threads, [is_daemon]).ok
        time.sleep(0.1)
        report = worker.run(worked.adds, [1, 2], timeout=30)
        assert report.ok and report.stdout.count("still here") < 5
    assert worker.run(worked.forks).value == "parent"
    process = worker.run(worked.adds, [1, 2]).value[1]
    began = time.monotonic()
    worker.close()
    # A thread that is no daemon has it wait.
    assert time.monotonic() - began < 10 and gone(process)


def test_values_may_be_huge_or_none(worker: hostcall.Worker) -> None:
    size, value = worker.run(worked.gives, [40 << 20, bytes(30 << 20)], timeout=60).value
    assert size == 30 << 20 and len(value) == 40 << 20
    report = worker.run(worked.gives_no_pickle)
    assert report.ended == "failed" and report.error is not None and "return what can be pickled" in report.error
    report = worker.run(worked.gives_bad)
    assert report.ended == "failed" and report.error == "the function's value cannot be read here: KeyError: 'no such key'"
    assert worker.run(worked.adds, [1, 2]).ok


def test_functions_run_at_the_same_time(worker: hostcall.Worker) -> None:
    reports: list[hostcall.Report] = []
    began = time.monotonic()
    threads = [threading.Thread(target=lambda: reports.append(hostcall.run(worked.sleeps, [0.5]))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.value for report in reports] == [0.5] * 3 and time.monotonic() - began < 10
    busy = threading.Thread(target=lambda: reports.append(worker.run(worked.sleeps, [100])))
    busy.start()
    while not worker._running.locked():
        time.sleep(0.01)
    with pytest.raises(RuntimeError, match="runs another function"):
        worker.run(worked.adds, [1, 2])
    time.sleep(0.5)
    worker.close()
    busy.join(10)
    assert reports[-1].ended == "died"
    with pytest.raises(RuntimeError, match="was closed"):
        worker.run(worked.adds, [1, 2])
    assert hostcall.run(worked.nests, timeout=60).value == 3


def test_bad_input_is_told(worker: hostcall.Worker, tmp_path: Path) -> None:
    timeouts: list[Any] = [0, float("nan"), float("inf"), 10**400, "5", object()]
    for timeout in timeouts:
        with pytest.raises(ValueError, match="a timeout is"):
            worker.run(worked.adds, timeout=timeout)
    for function, args in ((lambda: 1, []), (worked.adds, [threading.Lock()]), (Kernels, [lambda: 1])):
        with pytest.raises(TypeError, match="take a function of a module, not a lambda"):
            hostcall.run(function, args)
    with pytest.raises(TypeError, match="a function opens its device itself"):
        hostcall.run(worked.adds, device="cpu")
    report = worker.run(worked.adds, [1])
    assert report.ended == "failed" and report.error is not None and "missing 1 required positional argument" in report.error
    script = """
import functools, hostcall
def f(x=1): return x
for function in (f, functools.partial(functools.partial(f), 2)):
    try: hostcall.run(function)
    except TypeError as error: print(error)
"""
    typed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert typed.stdout.count("which was typed in: write it to a file, and import it from there") == 2, typed
    # Also where it is the main file of a folder or of a package, which nobody imports a second time.
    (tmp_path / "package").mkdir()
    (tmp_path / "package/__init__.py").touch()
    (tmp_path / "package/__main__.py").write_text(script)
    for line in (["-m", "package"], ["package"]):
        typed = subprocess.run([sys.executable, *line], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert typed.stdout.count("of a `__main__.py`: write it to another file") == 2, typed


SCRIPT = """
import os, sys, hostcall
def parent(): return os.getppid(), os.getcwd()
class Value:
    def __init__(self, x): self.x = x
def value(given): return Value(given.x + 1)
"""


def script(folder: Path, text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    path = folder / "script.py"
    path.write_text(SCRIPT + text)
    return subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=60, cwd=folder, **options)


def test_a_scripts_own_functions_run(tmp_path: Path) -> None:
    guarded = script(
        tmp_path,
        """
if __name__ == "__main__":
    assert hostcall.run(parent).value == (os.getpid(), os.getcwd())
    assert isinstance(hostcall.run(value, [Value(1)]).value, Value)
    print("done")
""",
    )
    assert (guarded.stdout, guarded.stderr) == ("done\n", "")
    report = script(tmp_path, "report = hostcall.run(parent)\nprint(report.ended, report.error)")
    assert report.stdout.startswith("not started Traceback") and "behind `if __name__ == \"__main__\":`" in report.stdout, report


def test_no_process_is_left_when_this_one_ends(tmp_path: Path) -> None:
    for how in ("sys.exit(3)", "os._exit(3)", "os.kill(os.getpid(), 9)"):
        text = f"""
sys.path.insert(0, {os.fspath(Path(__file__).parent)!r})
import threading, time, worked
if __name__ == "__main__":
    process = hostcall.run(worked.adds, [1, 2]).value[1]
    threading.Thread(target=hostcall.run, args=(worked.refuses_to_end, ["pids"]), daemon=True).start()
    while not os.path.exists("pids") or not open("pids").read().count(" "):
        time.sleep(0.01)
    print(process, flush=True)
    {how}
"""
        ended = script(tmp_path, text)
        pids = map(int, (ended.stdout + " " + (tmp_path / "pids").read_text()).split())
        assert gone(*pids), (how, ended)
        (tmp_path / "pids").unlink()


def test_the_process_ends_with_this_one_also_where_it_holds_the_gil(tmp_path: Path, library: str) -> None:
    text = f"""
sys.path.insert(0, {os.fspath(Path(__file__).parent)!r})
import threading, time, worked
if __name__ == "__main__":
    process = hostcall.run(worked.adds, [1, 2]).value[1]
    threading.Thread(target=hostcall.run, args=(worked.holds, [{library!r}]), daemon=True).start()
    time.sleep(0.5)
    print(process, flush=True)
    os.kill(os.getpid(), 9)
"""
    assert gone(int(script(tmp_path, text).stdout))


def test_an_interrupt_ends_the_process_and_is_raised(tmp_path: Path) -> None:
    text = f"""
sys.path.insert(0, {os.fspath(Path(__file__).parent)!r})
import signal, threading, worked
if __name__ == "__main__":
    process = hostcall.run(worked.adds, [1, 2]).value[1]
    threading.Timer(0.3, signal.raise_signal, [signal.SIGINT]).start()
    try:
        hostcall.run(worked.sleeps, [100])
    except KeyboardInterrupt:
        print(process, os.path.exists(f"/proc/{{process}}"), hostcall.run(worked.adds, [1, 2]).ok)
"""
    interrupted = script(tmp_path, text)
    assert interrupted.stdout.split()[1:] == ["False", "True"], interrupted


def test_a_child_of_fork_has_workers_of_its_own(worker: hostcall.Worker) -> None:
    process = worker.run(worked.adds, [1, 2]).value[1]
    child = os.fork()
    if child == 0:
        try:
            other = worker.run(worked.adds, [3, 4], timeout=30).value
            worker.close()
            os._exit(0 if other[0] == 7 and other[1] != process and is_there(process) else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert worker.run(worked.adds, [1, 2]).value == (3, process)


def test_a_worker_that_is_dropped_leaves_no_process() -> None:
    worker = hostcall.Worker()
    process = worker.run(worked.adds, [1, 2]).value[1]
    del worker
    assert gone(process)


def test_errors_of_devices_that_nobody_has_any_more_are_told(worker: hostcall.Worker, library: str) -> None:
    report = worker.run(worked.checks_in_a_helper, [library], timeout=30)
    assert (report.ended, report.ok) == ("panicked", False) and report.panic is not None and report.panic.kernel == "checked"
    assert worker.run(worked.adds, [1, 2]).ok


def test_a_library_that_is_built_again_needs_a_fresh_worker(tmp_path: Path) -> None:
    def build(version: int) -> str:
        (tmp_path / "version.c").write_text(f"int version(void) {{ return {version}; }}")
        subprocess.run(["cc", "-shared", "-fPIC", "version.c", "-o", "version.so"], check=True, cwd=tmp_path)
        return str(tmp_path / "version.so")

    assert hostcall.run(worked.version, [build(1)]).value == 1
    assert hostcall.run(worked.version, [build(2)], fresh=True).value == 2
    # It has the other's place.
    assert hostcall.run(worked.version, [build(3)]).value == 2


def test_a_function_may_leave_a_child_and_a_handler_behind(worker: hostcall.Worker) -> None:
    report = worker.run(worked.forks_with_a_device, timeout=20)
    assert report.value == 0, report
    assert worker.run(worked.ignores_interrupts).ok
    assert worker.run(worked.sleeps, [100], timeout=0.2).ended == "timed out"


def test_a_worker_may_be_closed_at_any_time() -> None:
    for pause in (0, 0.005, 0.02, 0.05, 0.2):
        worker, ended = hostcall.Worker(), list[str]()

        def runs(worker: hostcall.Worker = worker, ended: list[str] = ended) -> None:
            try:
                ended.append(worker.run(worked.sleeps, [100]).ended)
            except RuntimeError as error:
                ended.append(str(error))

        thread = threading.Thread(target=runs)
        thread.start()
        time.sleep(pause)
        threads = [thread, *(threading.Thread(target=worker.close) for _ in range(2))]
        for closing in threads[1:]:
            closing.start()
        for each in threads:
            each.join(20)
            assert not each.is_alive()
        assert ended[0] == "died" or "was closed" in ended[0]
        assert worker._process is None


def test_what_a_handler_raises_comes_through(tmp_path: Path) -> None:
    text = f"""
sys.path.insert(0, {os.fspath(Path(__file__).parent)!r})
import signal, worked
def alarm(*_): raise TimeoutError("of the handler")
if __name__ == "__main__":
    hostcall.run(worked.adds, [1, 2])
    signal.signal(signal.SIGALRM, alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        print(hostcall.run(worked.sleeps, [100]))
    except TimeoutError as error:
        print(error, hostcall.run(worked.adds, [1, 2]).ok)
"""
    assert script(tmp_path, text).stdout == "of the handler True\n"


def test_the_parent_may_have_a_limit_for_sockets_and_no_outputs(tmp_path: Path) -> None:
    text = f"""
sys.path.insert(0, {os.fspath(Path(__file__).parent)!r})
import socket, time, worked
if __name__ == "__main__":
    socket.setdefaulttimeout(0.1)
    for descriptor in {{closed}}:
        os.close(descriptor)
    assert hostcall.run(worked.adds, [1, 2], timeout=20).ok
    time.sleep(0.5)
    large = hostcall.run(worked.gives, [20 << 20, bytes(20 << 20)], timeout=20)
    assert large.ok and hostcall.run(worked.sleeps, [100], timeout=0.2).ended == "timed out"
    open("done", "w")
"""
    for closed in ((), (0, 1), (1, 2), (0, 2)):
        ran = script(tmp_path, text.format(closed=closed))
        assert (tmp_path / "done").exists(), (closed, ran)
        (tmp_path / "done").unlink()


def test_modules_are_found_where_the_parent_finds_them(tmp_path: Path) -> None:
    text = """
from pathlib import Path
if __name__ == "__main__":
    sys.path.append(Path("no text"))
    assert hostcall.run(parent).ok
    os.mkdir("later")
    open("later/later.py", "w").write("def gives(): return 5")
    sys.path.insert(0, os.path.abspath("later"))
    import later
    print(hostcall.run(later.gives).value)
"""
    ran = script(tmp_path, text)
    assert ran.stdout == "5\n", ran
