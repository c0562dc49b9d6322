"""Helper: what hangs, crashes or takes all memory costs its own request, and the next one is answered."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from hcq.compiler.search import helper as helper_module
from hcq.compiler.search.helper import Failed, Helper, Work, ask_all, readable

AMPLE_S = 30.0  # of what ends by itself
SHORT_S = 0.05  # of what never does


def make() -> Work:
    def work(request: bytes) -> bytes:
        verb, _, rest = request.partition(b" ")
        if verb == b"hang":
            while True:
                time.sleep(1)
        if verb == b"spin":
            while True:
                pass
        if verb == b"crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if verb == b"leave":
            os._exit(3)
        if verb == b"refuse":
            raise ValueError("no such thing")
        if verb == b"memory":
            return str(len(bytearray(2 << 30))).encode()
        if verb == b"long":
            return b"x" * int(rest)
        if verb == b"interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        return rest

    return work


@pytest.fixture
def helper() -> Iterator[Helper]:
    made = Helper(make, memory_bytes=1 << 30)
    yield made
    made.end()


def test_it_answers_request_after_request_in_one_process(helper: Helper) -> None:
    assert [helper.ask(b"echo %d" % i, AMPLE_S) for i in range(3)] == [b"0", b"1", b"2"]
    assert helper.starts == 1


def test_answers_may_be_long(helper: Helper) -> None:
    assert helper.ask(b"long 3000000", AMPLE_S) == b"x" * 3_000_000


@pytest.mark.parametrize("verb", ["hang", "spin"])
def test_a_request_that_hangs_is_given_up_and_the_next_one_is_answered(helper: Helper, verb: str) -> None:
    with pytest.raises(Failed, match=re.escape("no answer in 0.05 s")):
        helper.ask(verb.encode(), SHORT_S)
    assert helper.ask(b"echo on", AMPLE_S) == b"on"
    assert helper.starts == 2


@pytest.mark.parametrize(("verb", "how"), [("crash", "SIGSEGV"), ("leave", "status 3")])
def test_a_request_that_ends_the_process_says_how(helper: Helper, verb: str, how: str) -> None:
    with pytest.raises(Failed, match=f"the process ended with {how}"):
        helper.ask(verb.encode(), AMPLE_S)
    assert helper.ask(b"echo on", AMPLE_S) == b"on"


def test_a_request_that_takes_all_memory_is_refused_by_the_system(helper: Helper) -> None:
    with pytest.raises(Failed, match="MemoryError"):
        helper.ask(b"memory", AMPLE_S)
    assert helper.ask(b"echo on", AMPLE_S) == b"on"


def test_what_is_raised_comes_back_and_the_process_stays(helper: Helper) -> None:
    with pytest.raises(Failed, match="ValueError: no such thing"):
        helper.ask(b"refuse", AMPLE_S)
    assert helper.ask(b"echo on", AMPLE_S) == b"on"
    assert helper.starts == 1


def test_what_cannot_be_made_is_said_each_time() -> None:
    def broken() -> Work:
        raise RuntimeError("no device")

    helper = Helper(broken)
    for _ in range(2):
        with pytest.raises(Failed, match="RuntimeError: no device"):
            helper.ask(b"echo", AMPLE_S)
    helper.end()


def test_ctrl_c_is_for_the_parent(helper: Helper) -> None:
    assert helper.ask(b"interrupt on", AMPLE_S) == b"on"


def test_many_requests_are_answered_in_their_order_whatever_becomes_of_some() -> None:
    helpers = [Helper(make), Helper(make)]
    requests = [b"echo 0", b"crash", b"echo 2", b"refuse", b"echo 4", b"leave", b"echo 6"]
    answers = ask_all(helpers, requests, AMPLE_S)
    for helper in helpers:
        helper.end()
    assert [one for one in answers if isinstance(one, bytes)] == [b"0", b"2", b"4", b"6"]
    assert [i for i, one in enumerate(answers) if isinstance(one, Failed)] == [1, 3, 5]


def test_ending_it_twice_is_fine_and_leaves_no_process() -> None:
    helper = Helper(make)
    pid = int(Helper.ask(helper, b"echo 1", AMPLE_S)) and helper._pid
    helper.end()
    helper.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_descriptors_may_have_any_number(helper: Helper) -> None:
    """select() stops at 1,023."""
    import fcntl
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip(f"this process may have {hard} descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (3000, hard))
    try:
        reads, writes = os.pipe()
        high = fcntl.fcntl(reads, fcntl.F_DUPFD_CLOEXEC, 2000)
        assert readable([high], 0) == []
        os.write(writes, b"x")
        assert readable([high], 10) == [high]
        for descriptor in (reads, writes, high):
            os.close(descriptor)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_one_that_takes_its_time_to_end_is_told_by_its_own_status(monkeypatch: pytest.MonkeyPatch) -> None:
    status = helper_module._status
    asked = []

    def late(pid: int) -> str | None:
        asked.append(pid)
        return status(pid) if len(asked) > 300 else None

    def ending() -> Work:
        def work(request: bytes) -> bytes:
            os._exit(7)

        return work

    monkeypatch.setattr(helper_module, "_status", late)
    with pytest.raises(Failed, match="the process ended with status 7"):
        Helper(ending).ask(b"", AMPLE_S)
