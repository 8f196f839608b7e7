"""Post queues: posts of running kernels, polled by threads of Python's."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from conftest import NO_SUCH_SERVICE, Kernels, u64

import hostcall

SEND = 1 << 30 | 5
DTYPE = [("lane", "u4"), ("round", "u4"), ("from", "u8"), ("to", "u8")]
LANES = 4


def test_posts_come_once_and_in_their_order(device: hostcall.Device, kernels: Kernels) -> None:
    with device.post_queue("sends", waves=8, ring_entries=512) as queue:
        failed: list[int] = []
        # More than there is room for: lanes wait for polls.
        kernel = threading.Thread(target=lambda: failed.append(kernels.free.sends(u64(queue), u64(SEND), LANES, 20_000)))
        kernel.start()
        found = []
        while kernel.is_alive() or queue.has_posts():
            found.append(queue.poll(timeout=0.05).of(SEND, DTYPE))
        kernel.join()
        sends = np.concatenate(found)
        for lane in range(LANES):
            own = sends[sends["lane"] == lane]
            assert (own["round"] == np.arange(20_000)).all() and (own["from"] == lane << 32 | np.arange(20_000)).all()
            assert (~own["to"] == own["round"]).all()
        assert failed == [0] and queue.statistics() == hostcall.PostQueueStatistics(LANES * 20_000, 0, 0, 0)


def test_a_post_has_up_to_16_words_and_says_who_posted(device: hostcall.Device, kernels: Kernels) -> None:
    queue = device.post_queue()
    for count in range(17):
        words = (ctypes.c_uint64 * 16)(*(1 << 63 | 100 * count + word for word in range(count)))
        assert kernels.free.message(u64(queue), u64(count), words, count)
    first, rest = queue.poll(most=3), queue.poll()
    assert (len(first), len(rest), len(queue.poll())) == (3, 14, 0)
    posts = [*first, *rest]
    for count, post in enumerate(sorted(posts)):
        assert post == hostcall.Post(count, 0, 0, post.slot, post.data)
        assert post.data == b"".join((1 << 63 | 100 * count + word).to_bytes(8, "little") for word in range(count))
    array = rest.array
    assert array["count"].tolist() == [len(post.data) // 8 for post in rest] and not array.flags.writeable
    assert (array["words"][-1, array["count"][-1] :] == 0).all()
    with pytest.raises(ValueError, match="a post with tag 16 has 128 bytes, and uint64 has 8"):
        rest.of(16, "u8")
    assert rest.of(16, ("u8", 16)).shape == (1, 16) and rest.of(99, "u8").tolist() == []


def test_a_proxy_answers_by_storing_a_word(device: hostcall.Device, kernels: Kernels) -> None:
    queue, stored = device.post_queue("proxy"), device.buffer(1, "u8")
    word, done = np.asarray(stored), []
    kernel = threading.Thread(target=lambda: done.append(kernels.free.rounds(u64(queue), u64(stored.address), 1000)))
    kernel.start()
    while kernel.is_alive():
        rounds = queue.poll(timeout=0.05).of(1, "u8")
        if len(rounds):
            word[0] = rounds[-1]
    assert done == [1000]


def test_a_queue_is_cancelled_renewed_and_closed(device: hostcall.Device, kernels: Kernels) -> None:
    queue, never = device.post_queue("cancelled"), device.buffer(1, "u8")
    done: list[int] = []
    kernel = threading.Thread(target=lambda: done.append(kernels.free.rounds(u64(queue), u64(never.address), 1000)))
    kernel.start()
    assert len(queue.poll(timeout=10)) == 1
    queue.cancel()
    kernel.join(10)
    assert done == [0]
    word = (ctypes.c_uint64 * 1)(7)
    assert kernels.free.message(u64(queue), u64(1), word, 1) and len(queue.poll()) == 0 and queue.statistics().dropped == 1
    queue.renew()
    assert kernels.free.message(u64(queue), u64(2), word, 1) and queue.poll().of(2, "u8").tolist() == [7]
    kernels.free.message(u64(queue), u64(3), word, 1)
    counted = queue.close()
    assert counted is not None and (counted.posts, counted.dropped) == (2, 2)
    assert queue.close() is None
    for use in (queue.poll, queue.has_posts, queue.cancel, queue.renew, queue.statistics):
        with pytest.raises(RuntimeError, match="the post queue was closed"):
            use()
    # Kernels that have its address find it cancelled.
    assert kernels.free.rounds(u64(int(queue)), u64(never.address), 5) == 0


def test_calls_to_a_queue_end(device: hostcall.Device, kernels: Kernels) -> None:
    queue, called = device.post_queue("calls"), []
    kernel = threading.Thread(target=lambda: called.append(kernels.call(queue, 700, 1)[0]))
    kernel.start()
    assert len(queue.poll(timeout=0.5)) == 0
    kernel.join(10)
    assert called == [NO_SUCH_SERVICE] and queue.statistics().refused_calls == 1


def test_a_wait_for_posts_gives_the_gil_up_and_ends(device: hostcall.Device) -> None:
    queue = device.post_queue("waits")
    began, counted = time.monotonic(), 0
    waits = threading.Thread(target=queue.poll, kwargs={"timeout": 0.5})
    waits.start()
    while waits.is_alive():
        counted += 1
        assert not queue.has_posts(), "others use it meanwhile"
        time.sleep(0.001)
    assert counted > 50 and 0.4 < time.monotonic() - began < 10
    ended: list[str] = []

    def polls() -> None:
        with pytest.raises(RuntimeError) as error:
            queue.poll(timeout=None)
        ended.append(str(error.value))

    for close, sentence in ((queue.close, "the post queue was closed"), (device.close, "the device was closed")):
        waits = threading.Thread(target=polls)
        waits.start()
        time.sleep(0.1)
        close()
        waits.join(10)
        assert not waits.is_alive() and sentence in ended.pop()
        if close == queue.close:
            queue = device.post_queue("waits too")


def test_what_is_no_queue_is_refused(device: hostcall.Device) -> None:
    for options in ({"waves": 0}, {"waves": 1 << 20}, {"ring_entries": 100}, {"ring_entries": 16}):
        with pytest.raises(ValueError):
            device.post_queue(**options)
    queue = device.post_queue()
    for timeout in (-1.0, float("nan")):
        with pytest.raises(ValueError, match="from 0 on, or None"):
            queue.poll(timeout=timeout)
    device.close()
    with pytest.raises(RuntimeError, match="closed"):
        device.post_queue()


def test_posts_are_no_objects(device: hostcall.Device, kernels: Kernels) -> None:
    queue = device.post_queue()
    assert kernels.free.message(u64(queue), u64(1), (ctypes.c_uint64 * 1)(5), 1)
    posts = queue.poll()
    for dtype in ("O", [("value", "O")]):
        with pytest.raises(TypeError, match="cannot post Python's objects"):
            posts.of(1, dtype)
    with pytest.raises(TypeError, match="cannot write Python's objects"):
        device.channel([("value", "O")])


def test_an_idle_queue_takes_little_of_a_core(device: hostcall.Device) -> None:
    queue = device.post_queue()
    time.sleep(0.2)
    began = time.thread_time()
    queue.poll(timeout=1)
    assert time.thread_time() - began < 0.12


def test_posts_need_no_numpy_and_a_child_is_refused() -> None:
    program = """
import os, sys
sys.modules["numpy"] = None
import hostcall
device = hostcall.Device("cpu")
queue, context = device.post_queue(), device.context()
assert list(queue.poll()) == []
child = os.fork()
if child == 0:
    # None of them waits for threads, which are the parent's.
    for use in (queue.poll, queue.has_posts, context.flush, context.check, device.synchronize, device.waiting):
        try:
            use()
        except RuntimeError as error:
            os.write(1, str(error).encode())
    for close in (queue.close, context.close, device.close):
        assert close() is None
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    ran = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", program], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "") and ran.stdout.count("forked") == 6, ran
