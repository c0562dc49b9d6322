"""What Objective-C or Metal would not survive is one clear error; the rest runs in order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hcq.errors import DriverError, UsageError
from hcq.metal.abi import messages
from hcq.metal.abi.messages import Message, Status
from tests.hcq.emu.metal.raw import Raw, numbers, packed

ADD = """kernel void k(device uint *p [[buffer(0)]], constant uint &by [[buffer(1)]],
                     uint i [[thread_position_in_grid]]) { p[i] = p[i] + by; }"""


@pytest.fixture
def raw() -> Raw:
    return Raw()


def ended(raw: Raw) -> int:
    """A command buffer whose encoder has ended."""
    command_buffer = raw.command_buffer()
    raw.send(raw.make(command_buffer, messages.BLIT_ENCODER), messages.END_ENCODING)
    return command_buffer


def committed(raw: Raw) -> int:
    command_buffer = ended(raw)
    raw.send(command_buffer, messages.COMMIT)
    return command_buffer


def with_encoder(raw: Raw, message: Message) -> None:
    command_buffer = raw.command_buffer()
    raw.make(command_buffer, messages.BLIT_ENCODER)
    raw.send(command_buffer, message)


def after_end(raw: Raw) -> None:
    encoder = raw.make(raw.command_buffer(), messages.BLIT_ENCODER)
    raw.send(encoder, messages.END_ENCODING)
    raw.send(encoder, messages.FILL, raw.buffer(bytes(16)), (0, 16), 0)


def released_too_often(raw: Raw) -> None:
    buffer = raw.buffer(bytes(4))
    raw.release(buffer)
    raw.release(buffer)


def without_pool(raw: Raw) -> None:
    raw.call(messages.POP_POOL, raw.pool_token)
    raw.command_buffer()


def abandoned_encoder(raw: Raw) -> None:
    with raw.pool():
        raw.make(raw.command_buffer(), messages.BLIT_ENCODER)


def blit(raw: Raw, message: Message, *arguments: object) -> None:
    raw.send(raw.make(raw.command_buffer(), messages.BLIT_ENCODER), message, *arguments)


def dispatch(raw: Raw, bound: tuple[object, ...], grid: int = 1, block: int = 1) -> None:
    _, encoder = raw.encoder(raw.pipeline(ADD), *bound)
    raw.send(encoder, messages.DISPATCH, (grid, 1, 1), (block, 1, 1))


VIOLATIONS: dict[str, tuple[Callable[[Raw], object], str]] = {
    "commit with an open encoder": (
        lambda raw: with_encoder(raw, messages.COMMIT),
        r"-\[MTLCommandBuffer commit\]: its MTLBlitCommandEncoder is still open\. Send it endEncoding first",
    ),
    "a second encoder beside an open one": (
        lambda raw: with_encoder(raw, messages.COMPUTE_ENCODER),
        "MTLBlitCommandEncoder is still open",
    ),
    "a command after endEncoding": (after_end, r"fillBuffer:range:value:\]: endEncoding was sent before"),
    "an encoder after commit": (
        lambda raw: raw.send(committed(raw), messages.COMPUTE_ENCODER),
        r"computeCommandEncoder\]: the command buffer was committed",
    ),
    "a second commit": (lambda raw: raw.send(committed(raw), messages.COMMIT), "was committed"),
    "an event after commit": (
        lambda raw: raw.send(
            committed(raw), messages.SIGNAL_EVENT, raw.make(raw.gpu, messages.NEW_SHARED_EVENT), 1
        ),
        "was committed",
    ),
    "a wait for what was not committed": (
        lambda raw: raw.send(ended(raw), messages.WAIT_UNTIL_COMPLETED),
        "was not committed, and would never be completed",
    ),
    "an encoder that is dropped open": (abandoned_encoder, "was deallocated without endEncoding"),
    "a release too many": (released_too_often, "is no object: a MTLBuffer that was there was released"),
    "an object without a pool": (
        without_pool,
        "there is no autorelease pool, so its MTLCommandBuffer would never",
    ),
    "a pool that is not there": (
        lambda raw: raw.call(messages.POP_POOL, 77),
        "this thread has pushed no such pool",
    ),
    "an unknown selector": (
        lambda raw: raw.send(raw.gpu, Message("MTLDevice", "newBuffer:", "@@:Q"), 1),
        r"-\[MTLDevice newBuffer:\]: unrecognized selector",
    ),
    "a message to another class": (
        lambda raw: raw.send(raw.queue, messages.NEW_SHARED_EVENT),
        r"-\[MTLCommandQueue newSharedEvent\]: unrecognized selector",
    ),
    "other types than declared": (
        lambda raw: raw.send(raw.gpu, Message("MTLDevice", "newBufferWithLength:options:", "@@:II"), 4, 0),
        "sent as '@@:II', and it is '@@:QQ'",
    ),
    "too few arguments": (
        lambda raw: raw.send(raw.gpu, messages.NEW_BUFFER, 4),
        "1 arguments, and it takes 2",
    ),
    "a number that does not fit": (
        lambda raw: raw.send(raw.gpu, messages.NEW_BUFFER, -1, 0),
        "argument 0 is -1, and it takes a whole number from 0",
    ),
    "an object of another class": (
        lambda raw: raw.send(raw.command_buffer(), messages.SIGNAL_EVENT, raw.queue, 1),
        "argument 0 is a MTLCommandQueue, and it takes a MTLSharedEvent",
    ),
    "nil where there is none": (
        lambda raw: raw.send(raw.command_buffer(), messages.SIGNAL_EVENT, 0, 1),
        "argument 0 is 0, and it takes a MTLSharedEvent",
    ),
    "a buffer of nothing": (
        lambda raw: raw.send(raw.gpu, messages.NEW_BUFFER, 0, 0),
        "a buffer has at least one byte",
    ),
    "a copy that is not aligned": (
        lambda raw: blit(raw, messages.COPY, raw.buffer(bytes(64)), 1, raw.buffer(bytes(64)), 0, 4),
        "4 bytes from 1; on macOS both are multiples of 4",
    ),
    "a copy beyond the end": (
        lambda raw: blit(raw, messages.COPY, raw.buffer(bytes(64)), 0, raw.buffer(bytes(32)), 0, 64),
        "64 bytes from 0 do not lie in a buffer of 32",
    ),
    "a fill that is not aligned": (
        lambda raw: blit(raw, messages.FILL, raw.buffer(bytes(64)), (0, 6), 0),
        "6 bytes from 0; on macOS",
    ),
    "a value that is no byte": (
        lambda raw: blit(raw, messages.FILL, raw.buffer(bytes(64)), (0, 8), 256),
        "argument 2 is 256, and it takes a whole number from 0 to 255",
    ),
    "a launch without a pipeline": (
        lambda raw: raw.send(
            raw.make(raw.command_buffer(), messages.COMPUTE_ENCODER), messages.DISPATCH, (1, 1, 1), (1, 1, 1)
        ),
        "there is no pipeline",
    ),
    "a launch with nothing bound": (lambda raw: dispatch(raw, ()), "missing buffer binding at index 0 for p"),
    "bytes where a buffer is written": (
        lambda raw: dispatch(raw, (b"abcd", b"abcd")),
        "p is memory that is written; bind a buffer",
    ),
    "too little bound": (
        lambda raw: dispatch(raw, (raw.buffer(bytes(64)), b"ab")),
        "by takes 4 bytes, and 2 are bound",
    ),
    "no threads": (
        lambda raw: dispatch(raw, (raw.buffer(bytes(64)), b"abcd"), block=0),
        "each size is at least 1",
    ),
    "too many threads": (
        lambda raw: dispatch(raw, (raw.buffer(bytes(64)), b"abcd"), block=1025),
        "1025 threads in a threadgroup; this pipeline's have 1024 at most",
    ),
    "an index beyond the table": (
        lambda raw: raw.send(
            raw.encoder(raw.pipeline(ADD))[1], messages.SET_BUFFER, raw.buffer(bytes(64)), 0, 31
        ),
        "index 31; the table has 31 entries",
    ),
    "more bytes than setBytes takes": (
        lambda raw: raw.encoder(raw.pipeline(ADD), bytes(4097)),
        "4097 bytes of 4097; it takes 1 to 4096",
    ),
}


@pytest.mark.parametrize("what", VIOLATIONS)
def test_each_violation_is_one_clear_error_and_a_line_of_the_log(raw: Raw, what: str) -> None:
    attempt, message = VIOLATIONS[what]
    with pytest.raises(DriverError, match=message) as caught:
        attempt(raw)
    assert str(caught.value) in raw.runtime.log()


def test_an_overlapping_copy_is_refused(raw: Raw) -> None:
    buffer = raw.buffer(bytes(64))
    with pytest.raises(DriverError, match="the ranges overlap"):
        blit(raw, messages.COPY, buffer, 0, buffer, 8, 16)


def test_fast_math_is_refused_for_nobody_knows_its_results(raw: Raw) -> None:
    options = raw.make(raw.class_named("MTLCompileOptions"), messages.NEW)
    library, why = raw.make_or_explain(raw.gpu, messages.NEW_LIBRARY, raw.string(ADD), options)
    assert not library and "fast math is not emulated" in why


def test_command_buffers_run_in_the_order_of_commit_and_each_step_after_the_other(raw: Raw) -> None:
    pipeline, buffer = raw.pipeline(ADD), raw.buffer(packed(1, 2, 3, 4))
    made = []
    for by in (1, 10, 100):
        command_buffer, encoder = raw.encoder(pipeline, buffer, packed(by))
        raw.send(encoder, messages.DISPATCH, (1, 1, 1), (4, 1, 1))
        raw.send(encoder, messages.DISPATCH, (2, 1, 1), (2, 1, 1))
        raw.send(encoder, messages.END_ENCODING)
        blit_encoder = raw.make(command_buffer, messages.BLIT_ENCODER)
        raw.send(blit_encoder, messages.COPY, buffer, 0, buffer, 12, 4)
        raw.send(blit_encoder, messages.END_ENCODING)
        made.append(command_buffer)
    assert [raw.send(one, messages.STATUS) for one in made] == [Status.NOT_ENQUEUED] * 3
    for one in made:
        raw.send(one, messages.COMMIT)
    raw.send(made[-1], messages.WAIT_UNTIL_COMPLETED)
    assert [raw.send(one, messages.STATUS) for one in made] == [Status.COMPLETED] * 3
    assert numbers(raw.contents(buffer), "<u4") == [223, 224, 225, 223]


def test_events_order_the_work_of_two_queues(raw: Raw) -> None:
    other = raw.make(raw.gpu, messages.NEW_QUEUE, 4)
    event, buffer = raw.make(raw.gpu, messages.NEW_SHARED_EVENT), raw.buffer(bytes(8))
    waiting, working = raw.make(other, messages.COMMAND_BUFFER), raw.command_buffer()
    raw.send(waiting, messages.WAIT_FOR_EVENT, event, 2)
    encoder = raw.make(waiting, messages.BLIT_ENCODER)
    raw.send(encoder, messages.COPY, buffer, 0, buffer, 4, 4)
    raw.send(encoder, messages.END_ENCODING)
    raw.send(waiting, messages.COMMIT)
    assert not raw.send(event, messages.WAIT_SIGNALED, 1, 10)
    raw.send(event, messages.SET_SIGNALED_VALUE, 1)
    encoder = raw.make(working, messages.BLIT_ENCODER)
    raw.send(encoder, messages.FILL, buffer, (0, 4), 9)
    raw.send(encoder, messages.END_ENCODING)
    raw.send(working, messages.SIGNAL_EVENT, event, 2)
    raw.send(working, messages.COMMIT)
    raw.send(waiting, messages.WAIT_UNTIL_COMPLETED)
    assert raw.contents(buffer) == bytes([9] * 8)
    assert raw.send(event, messages.WAIT_SIGNALED, 2, 0)


def test_the_value_of_a_shared_event_only_rises(raw: Raw) -> None:
    event, seen = raw.make(raw.gpu, messages.NEW_SHARED_EVENT), []
    for value in (5, 3):
        raw.send(event, messages.SET_SIGNALED_VALUE, value)
        seen.append(raw.send(event, messages.SIGNALED_VALUE))
    for value in (4, 6):
        command_buffer = raw.command_buffer()
        raw.send(command_buffer, messages.SIGNAL_EVENT, event, value)
        raw.send(command_buffer, messages.COMMIT)
        raw.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)
        seen.append(raw.send(event, messages.SIGNALED_VALUE))
    assert seen == [5, 5, 5, 6]


def test_a_command_buffer_keeps_what_it_names_until_it_has_ended(raw: Raw) -> None:
    event, buffer = raw.make(raw.gpu, messages.NEW_SHARED_EVENT), raw.buffer(bytes(8))
    command_buffer = raw.command_buffer()
    raw.send(command_buffer, messages.WAIT_FOR_EVENT, event, 1)
    encoder = raw.make(command_buffer, messages.BLIT_ENCODER)
    raw.send(encoder, messages.FILL, buffer, (0, 8), 1)
    raw.send(encoder, messages.END_ENCODING)
    raw.send(command_buffer, messages.COMMIT)
    raw.release(buffer)
    assert "MTLBuffer" in raw.runtime.alive()
    raw.send(event, messages.SET_SIGNALED_VALUE, 1)
    raw.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)
    while "MTLBuffer" in raw.runtime.alive():
        raw.send(command_buffer, messages.WAIT_UNTIL_COMPLETED)


def test_after_an_error_a_queue_ignores_what_was_committed_behind_it_and_what_comes(raw: Raw) -> None:
    event, buffer = raw.make(raw.gpu, messages.NEW_SHARED_EVENT), raw.buffer(bytes(16))
    first, encoder = raw.encoder(raw.pipeline(ADD), buffer, packed(1))
    raw.send(encoder, messages.DISPATCH, (99, 1, 1), (1, 1, 1))
    raw.send(encoder, messages.END_ENCODING)
    gate, behind = raw.command_buffer(), ended(raw)
    raw.send(gate, messages.WAIT_FOR_EVENT, event, 1)
    for one in (gate, first, behind):
        raw.send(one, messages.COMMIT)
    raw.send(event, messages.SET_SIGNALED_VALUE, 1)
    raw.send(behind, messages.WAIT_UNTIL_COMPLETED)
    states = [raw.send(one, messages.STATUS) for one in (gate, first, behind)]
    assert states == [Status.COMPLETED, Status.ERROR, Status.ERROR]
    assert "k: reads p[98] of 4 elements" in raw.explain(raw.send(first, messages.ERROR))
    raw.send(later := committed(raw), messages.WAIT_UNTIL_COMPLETED)
    assert raw.send(later, messages.STATUS) == Status.ERROR
    assert raw.explain(raw.send(later, messages.ERROR)).startswith("Ignored (for causing prior")
    raw.queue = raw.make(raw.gpu, messages.NEW_QUEUE, 16)
    raw.send(other := committed(raw), messages.WAIT_UNTIL_COMPLETED)
    assert raw.send(other, messages.STATUS) == Status.COMPLETED


def test_buffers_longer_than_the_gpu_has_are_nil(raw: Raw) -> None:
    longest = raw.send(raw.gpu, messages.MAX_BUFFER_LENGTH)
    assert raw.send(raw.gpu, messages.NEW_BUFFER, longest + 1, messages.STORAGE_SHARED) == 0


def test_a_word_that_names_no_chip_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown architecture 'm9'\. Known: m1, m2, m3"):
        Raw("metal:m9")


def test_there_is_no_default_gpu_for_a_program_that_has_not_loaded_core_graphics():
    """As Apple's page of MTLCreateSystemDefaultDevice says of programs of the command line."""
    raw = Raw()
    assert raw.call(messages.CREATE_SYSTEM_DEFAULT_DEVICE) == 0
    assert raw.call(messages.COLOR_SPACE_TYPE)
    assert raw.call(messages.CREATE_SYSTEM_DEFAULT_DEVICE)
