"""Damaged rings, pushbuffers, launches and calls are refused with a reason; the emulator itself never fails."""

from __future__ import annotations

import random
import struct

import pytest

from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError
from hcq.nv.abi import ioctls as abi
from hcq.system import native
from tests.hcq.emu.nv.raw import AXPY, Launch, Loaded, Raw, methods, release, setup
from tests.turns import seeds

XIDS = {13, 31, 32, 39, 69, 109}
WORDS = ["nv:sm_80:steps=2000", "nv:sm_90:steps=2000", "nv:sm_120:seed=1:steps=2000"]


def outcome(raw: Raw) -> str:
    """Wait until the work is done, the channel has stopped, or it waits for a semaphore; what the log says."""
    front = raw.emulated.fronts[raw.token]
    raw.until(
        lambda: (
            not front.channel.is_rung
            or front.host.acquire is not None
            or raw.notifier.array("u2")[7] == 0xFFFF
        )
    )
    log = raw.port.kernel_log()
    if log:
        raw.until(lambda: raw.notifier.array("u2")[7] == 0xFFFF)
        assert "the emulator failed" not in log[-1], log[-1]
        assert int(raw.notifier.array()[2]) in XIDS
    return log[-1] if log else ""


def prepared(word: str) -> tuple[Raw, Launch, list[int]]:
    """A channel, a launch, and the words of a pushbuffer in which there is some of everything."""
    raw = Raw(word).open_channel()
    memory = raw.memory(1 << 14)
    kernel = Loaded(raw, AXPY, "axpy", 24)
    va = memory.va
    launch = Launch(raw, kernel.program, struct.pack("<QQfI", va, va + 4096, 2.0, 100), (2, 1, 1), (64, 1, 1))
    words = [
        *setup(raw),
        *methods(4, 0, raw.engines.copy),
        *methods(4, 0x400, va >> 32, va & 0xFFFFFFFF, va >> 32, (va + 8192) & 0xFFFFFFFF),
        *methods(4, 0x418, 256),
        *methods(4, 0x300, 0x182),
        *methods(4, 0x240, va >> 32, (va + 12288) & 0xFFFFFFFF, 5),
        *methods(4, 0x300, 0x14),
        *launch.words,
        *methods(1, 0x1B00, va >> 32, (va + 12304) & 0xFFFFFFFF, 5, 0),
        *release(va + 12320, 1),
    ]
    return raw, launch, words


@pytest.mark.parametrize("word", WORDS)
def test_the_undamaged_work_runs(word: str):
    raw, _, words = prepared(word)
    raw.push(words)
    assert outcome(raw) == ""


@pytest.mark.parametrize("seed", seeds(10, of=40))
def test_a_damaged_pushbuffer_runs_or_stops_the_channel(seed: int):
    chance = random.Random(seed)
    raw, _, words = prepared(WORDS[seed % len(WORDS)])
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(words))
        words[at] = chance.choice((words[at] ^ 1 << chance.randrange(32), chance.getrandbits(32), 0))
    raw.push(words[: chance.randrange(len(words) // 2, len(words) + 1)])
    outcome(raw)


@pytest.mark.parametrize("seed", seeds(12, of=60))
def test_a_damaged_launch_description_runs_or_is_refused(seed: int):
    chance = random.Random(seed)
    raw, launch, words = prepared(WORDS[seed % len(WORDS)])
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(launch.layout.length_words)
        launch.memory.array()[at] ^= 1 << chance.randrange(32)
    raw.push(words)
    outcome(raw)


@pytest.mark.parametrize("seed", seeds(6, of=20))
def test_a_damaged_constant_bank_runs_or_faults(seed: int):
    chance = random.Random(seed)
    raw, launch, words = prepared(WORDS[seed % len(WORDS)])
    for _ in range(chance.randrange(1, 4)):
        launch.bank[chance.randrange(len(launch.bank))] ^= 1 << chance.randrange(8)
    raw.push(words)
    outcome(raw)


@pytest.mark.parametrize("seed", seeds(6, of=20))
def test_a_damaged_ring_entry_runs_or_stops_the_channel(seed: int):
    chance = random.Random(seed)
    raw, _, _ = prepared(WORDS[seed % len(WORDS)])
    raw.enter_raw(
        (chance.getrandbits(32), chance.getrandbits(32) & 0x7FFF | chance.choice((0, 1 << 9, 1 << 31)))
    )
    outcome(raw)


# ------------------------------------------------------------ calls

CALLS = [
    abi.RM_ALLOC,
    abi.RM_FREE,
    abi.RM_CONTROL,
    abi.RM_MAP_MEMORY,
    abi.RM_UNMAP_MEMORY,
    abi.RM_ALLOC_MEMORY,
    abi.REGISTER_FD,
    abi.CHECK_VERSION_STR,
]
UVM_CALLS = [call for name, call in vars(abi).items() if name.startswith("UVM_")]


def try_call(port: EmulatedPort, fd: int, request: int, argument: bytearray) -> None:
    """A call is answered, with whatever status, or refused with an errno."""
    try:
        port.ioctl(fd, request, argument)
    except DriverError as error:
        assert error.errno


@pytest.mark.parametrize("seed", seeds(5, of=15))
def test_calls_with_damaged_arguments_are_answered(seed: int):
    chance = random.Random(seed)
    raw = Raw("nv:sm_90").open_channel()
    memory = bytearray(1 << 16)  # what pointers point to
    handles = [
        raw.client,
        raw.device,
        raw.subdevice,
        raw.group,
        raw.channel,
        raw.space,
        raw.ring.handle,
        raw.usermode,
    ]
    numbers = [
        0,
        1,
        4096,
        0x1000000,
        raw.ctl,
        raw.uvm,
        raw.fd,
        raw.uuid,
        *handles,
        *abi.CONTROLS,
        *abi.ALLOCATIONS,
    ]
    numbers = [number for number in numbers if number != raw.client or chance.random() < 0.5]
    where = native.address_of(memory)
    for _ in range(300):
        call = chance.choice(CALLS + UVM_CALLS)
        layout = raw.abi.of(call)
        fields = {}
        for name, field in layout.fields.items():
            if name in ("pallocparms", "params", "pmemory"):
                fields[name] = chance.choice((0, where))
            elif name in ("hroot", "hclient"):
                fields[name] = chance.choice((raw.client, raw.client, raw.client, 0, 5))
            elif name == "paramssize":
                fields[name] = chance.choice((0, 4, 8, 56, 128, 368, 804))
            elif name == "hobjectold":
                fields[name] = chance.choice((0, 5, 0xCAF00099))
            elif chance.random() < 0.7:
                fields[name] = chance.choice(numbers) & (1 << field.width) - 1
        files = (raw.uvm, raw.uvm2) if call in UVM_CALLS else (raw.ctl, raw.fd)
        try_call(raw.port, chance.choice(files), call.request, bytearray(layout(**fields).to_bytes()))
