"""Programs of the command, if it was built: `hostcall` of the PATH."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import hostcall

ROOT = Path(__file__).parents[3]
command = pytest.mark.skipif(shutil.which("hostcall") is None, reason="the command `hostcall` is not on the PATH")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs") / "endings"
    (folder / "src").mkdir(parents=True)
    (folder / "Cargo.toml").write_text(
        f"""[package]
name = "endings"
version = "0.1.0"
edition = "2024"
[lib]
crate-type = ["cdylib", "rlib"]
[dependencies]
hostcall-device = {{ path = "{ROOT}/kernel/device" }}
[workspace]
"""
    )
    (folder / "src/lib.rs").write_text((Path(__file__).with_name("endings.rs")).read_text())
    return folder


@command
def test_each_end_of_a_program_is_told(package: Path) -> None:
    printed = hostcall.run(package, ["says"])
    assert printed.ok and printed.ended == "exited" and printed.stdout == "hello from 1 argument\n" and printed.stderr == "aside\n", printed
    code = hostcall.run(package, ["exits"])
    assert (code.exit_code, code.ended, code.ok) == (7, "exited", False)
    panicked = hostcall.run(package, ["panics"], device="cpu")
    assert panicked.exit_code == 101 and panicked.ended == "panicked" and panicked.panic is not None
    assert panicked.panic.message == "lane 0 has had enough" and panicked.panic.lane == 0 and panicked.panic.workgroup == (0, 0, 0)
    assert panicked.panic.file is not None and panicked.panic.file.endswith("lib.rs") and panicked.panic.place is not None
    os.mkfifo(package / "pipe")
    waits = hostcall.run(package, ["waits"], timeout=5, options=["--dir", os.fspath(package)])
    assert waits.ended == "timed out" and waits.exit_code == 124, waits
    assert [wait.lanes for wait in waits.waiting] == [1] and "Files" in waits.waiting[0].service and waits.waiting[0].workgroup == (0, 0, 0)
    for_ever = hostcall.run(package, ["spins"], timeout=5)
    assert for_ever.ended == "timed out" and for_ever.waiting == [] and any("did not end within" in said for said in for_ever.said)


@command
def test_a_program_that_is_none_says_why(tmp_path: Path) -> None:
    report = hostcall.run(tmp_path / "missing")
    assert report.ended == "not started" and report.exit_code == 1 and "missing" in " ".join(report.said)


def test_a_command_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hostcall import _run

    monkeypatch.setattr(_run, "_GRACE", 0.2)
    hangs = tmp_path / "hangs"
    hangs.write_text("#!/bin/sh\nprintf 'a build says \\377\\n' >&2\nsleep 1000 &\nwait\n")
    hangs.chmod(0o755)
    report = hostcall.run("any", timeout=0.1, command=hangs)
    assert report.ended == "killed" and not report.ok and "the program, or its build, did not end" in report.said[0]
    assert report.said[1:] == ["a build says \ufffd"]


def test_what_cannot_be_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="a timeout is"):
        hostcall.run("any", timeout=0)
    fails = tmp_path / "fails"
    fails.write_text("#!/bin/sh\necho nothing of JSON\nexit 3\n")
    fails.chmod(0o755)
    with pytest.raises(RuntimeError, match="ended with code 3 and wrote no report: nothing of JSON"):
        hostcall.run("any", command=fails)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(FileNotFoundError, match="cargo install"):
        hostcall.run("any")
