"""What each lab is, and what is looked at in a file that somebody works on.

In       a lab, the file
Out      LABS; `remarks`: what is still wrong, in sentences; none where all is right
Changes  runs the file, on emulated GPUs
Next     command.py (who asks), exercises/ (the files to begin with), docs/labs.md
"""

from __future__ import annotations

import runpy
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import hcq
from hcq.command import Copy, Signal, Wait
from hcq.errors import DeviceFault, HcqError, UsageError, WaitTimeout
from hcq.events.observer import Observer
from hcq.observe.sanitizer import Sanitizer
from hcq.performance import counters
from hcq.performance.counters import Counters

Given = dict[str, Any]  # the names that the file defines
SEEDS = 3
FEWEST_BARRIERS = 9  # of lab 3: as many as its sum has rounds, and one more


class Lab(NamedTuple):
    """One exercise.

    file      how its file is called
    switches  variables of the process that checks it
    needs     what has to be installed; "" for nothing more than hcq
    learned   a sentence for who has done it
    """

    file: str
    title: str
    check: Callable[[Given], Iterator[str]]
    switches: dict[str, str]
    learned: str
    needs: str = ""


def remarks(lab: Lab, file: Path) -> list[str]:
    """What is still wrong with a file. The first error ends the check."""
    found: list[str] = []
    try:
        for one in lab.check(runpy.run_path(str(file))):
            found.append(one)
    except WaitTimeout as error:
        found.append(f"the queue hangs. {error}")
    except DeviceFault as error:
        found += [f"the GPU stopped. {error}", *_findings(0)]
    except HcqError as error:
        found.append(str(error))
    except SystemExit:
        found.append("the file ends the program that checks it: it calls exit")
    except Exception as error:
        found.append(f"{type(error).__name__}: {error}")
    return list(dict.fromkeys(found))


def _findings(before: int) -> Iterator[str]:
    """What the sanitizer has said since."""
    for one in Sanitizer.findings[before:]:
        yield f"[{one.rule}] {one.what}. {one.fix} See docs/rules/{one.rule}.md."


def _name(given: Given, name: str) -> Any:
    if name not in given:
        raise UsageError(f"the file defines no {name}; the one that the lab began with does.")
    return given[name]


def _numbers(buffer: Any, count: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}i", buffer.read(0, 4 * count))


def _differs(what: str, found: tuple[int, ...], wanted: tuple[int, ...]) -> Iterator[str]:
    wrong = [place for place, (one, other) in enumerate(zip(found, wanted)) if one != other]
    if wrong:
        at = wrong[0]
        yield f"{what}: {len(wrong)} of {len(wanted)} numbers are wrong; number {at} is {found[at]}, not {wanted[at]}"


def _cuda(text: str, name: str) -> bytes:
    from hcq.nv.toolchain import nvrtc

    return nvrtc.compile_cuda(text, options=["--generate-line-info"], name=f"{name}.cu").ptx.encode()


# ------------------------------------------------------------ the labs


class _Order(Observer):
    """What a device is given, and what the host waits for, in order: (submission, what); the host's have 0."""

    def __init__(self, device: hcq.Device) -> None:
        self.events: list[tuple[int, Copy | Wait | Signal]] = []
        self.timeline = device.timeline.va

    def submitting(self, value: int, words: Any, commands: Sequence[Any], held: Any, at: Any) -> Any:
        done = Signal(self.timeline, value)
        self.events += [(value, one) for one in [*commands, done] if isinstance(one, (Copy, Wait, Signal))]
        return words

    def waited(self, va: int, name: str, value: int, timestamp_ns: int, waited_ns: int) -> None:
        self.events.append((0, Wait(va, value)))

    def remarks(self, a: int, b: int, c: int) -> Iterator[str]:
        """Whether the copy of b to c, in a queue of its own, comes after that of a to b whatever the device does."""
        places: list[list[int]] = []
        for source, goal in ((a, b), (b, c)):
            copies = (
                n for n, (_, one) in enumerate(self.events)
                if isinstance(one, Copy) and (one.src, one.dst) == (source, goal)
            )  # fmt: skip
            places.append(list(copies))
        if not all(places):
            yield "two queues are to copy: a to b, and b to c"
            return
        last, first = places[0][-1], places[1][0]
        begun, then = self.events[last][0], self.events[first][0]
        if begun == then:
            yield "both copies are in one queue. Keep both queues: the second one has to wait for the first"
            return
        for number, (queue, one) in enumerate(self.events[:first]):
            if isinstance(one, Wait) and queue in (0, then):
                ends = [
                    place for place, (_, other) in enumerate(self.events)
                    if isinstance(other, Signal) and other.signal == one.signal and other.value >= one.value
                ]  # fmt: skip
                if one.value > 0 and ends and min(ends) > last and (queue or number > last):
                    return
        yield (
            "nothing makes the second copy wait for the first one, and the numbers are right by luck: wait for a "
            "value that the signal has only when the first copy is done"
        )


def _hang(given: Given) -> Iterator[str]:
    dev = hcq.open("NV")
    order = _Order(dev)
    dev.observers = (*dev.observers, order)
    wanted = tuple(range(256))
    a, b, c = (dev.alloc(1024, name) for name in "abc")
    a.write(struct.pack("<256i", *wanted))
    for one in (b, c):
        one.write(bytes(1024))
    order.events.clear()
    _name(given, "run")(dev, a, b, c)
    events = [*order.events]
    dev.synchronize()
    yield from _differs("b", _numbers(b, 256), wanted)
    yield from _differs("c", _numbers(c, 256), wanted)
    order.events = events
    yield from order.remarks(a.va, b.va, c.va)


def _wait(given: Given) -> Iterator[str]:
    yield from _assembly(given, lambda numbers: [3 * one + 1 for one in numbers])


def _descriptor(given: Given) -> Iterator[str]:
    yield from _assembly(given, lambda numbers: numbers[::-1])


def _assembly(given: Given, wanted: Callable[[list[int]], list[int]]) -> Iterator[str]:
    from hcq.compiler.assemble import comgr

    dev = hcq.open("AMD")
    kernel = dev.load(comgr.compile_assembly(_name(given, "KERNEL"), dev.arch), "kernel")
    out, numbers = dev.alloc(1024, "out"), dev.alloc(1024, "in")
    values = [(97 * i + 41) % 509 for i in range(256)]
    numbers.write(struct.pack("<256i", *values))
    out.write(bytes(1024))
    dev.run(kernel, [out, numbers], block=(256, 1, 1))
    yield from _findings(0)
    yield from _differs("out", _numbers(out, 256), tuple(wanted(values)))


def _race(given: Given) -> Iterator[str]:
    image = _cuda(_name(given, "KERNEL"), "sum")
    seen: list[Counters] = []
    end = counters.listen(lambda pid, made: seen.append(made))
    for number in range(SEEDS + 1):
        dev = hcq.open(f"NV:{number}")
        kernel = dev.load(image, "sum")
        out, numbers = dev.alloc(1024, "out"), dev.alloc(1024, "in")
        values = [(7 * i + number) % 101 - 50 for i in range(256)]
        numbers.write(struct.pack("<256i", *values))
        dev.run(kernel, [out, numbers], block=(256, 1, 1))
        yield from _differs("out", _numbers(out, 256), (sum(values),) * 256)
        if found := list(_findings(0)):
            yield from found
            return
    end()
    most = max(one.barriers / one.warps for one in seen)
    if most > FEWEST_BARRIERS:
        yield (
            f"nothing races, and each warp comes to {most:g} barriers; {FEWEST_BARRIERS} do: one for each round, and "
            "one more before the first of them or behind the last"
        )


def _banks(given: Given) -> Iterator[str]:
    seen: list[Counters] = []
    end = counters.listen(lambda pid, made: seen.append(made))
    dev = hcq.open("NV")
    kernel = dev.load(_cuda(_name(given, "KERNEL"), "transpose"), "transpose")
    out, numbers = dev.alloc(4096, "out"), dev.alloc(4096, "in")
    numbers.write(struct.pack("<1024i", *range(1024)))
    dev.run(kernel, [out, numbers], block=(32, 32, 1))
    end()
    wanted = tuple(x * 32 + y for y in range(32) for x in range(32))
    yield from _differs("out", _numbers(out, 1024), wanted)
    yield from _findings(0)
    many, passes = seen[-1].bank_conflicts, seen[-1].shared_passes
    if not passes:
        yield "the kernel uses no shared memory: its stores to `out`, or its loads of `in`, are a column apart"
    elif many:
        yield f"{many} of the {passes} visits to shared memory are there because two words lie in one bank"
    elif seen[-1].sector_ratio > 1.01:
        yield f"global memory is asked for {seen[-1].sector_ratio:.1f} times as many sectors as it has to be"


def _launch(given: Given) -> Iterator[str]:
    dev = hcq.open("NV")
    kernel = dev.load(_cuda(_name(given, "KERNEL"), "doubled"), "doubled")
    for n in (256, 1000, 1, 255, 257, 5000):
        out = dev.alloc(4 * n, "out")
        out.write(bytes(4 * n))
        before = len(Sanitizer.findings)
        _name(given, "launch")(dev, kernel, out, n)
        dev.synchronize()
        yield from _differs(f"n={n}", _numbers(out, n), tuple(2 * i for i in range(n)))
        yield from (f"n={n}: {one}" for one in _findings(before))


NVRTC, COMGR = "nvrtc: pip install 'hcq[nv]'", "comgr: apt install libamd-comgr2"
RACING = ",".join(["nv:sm_90", *(f"nv:sm_90:seed={seed}" for seed in range(1, SEEDS + 1))])
LABS = {
    1: Lab(
        "hang.py", "a queue that hangs", _hang, {"HCQ_EMULATE": "nv:sm_90", "HCQ_TIMEOUT_MS": "6000"},
        "A wait ends when the signal reaches the value; a value that nobody sets is waited for until the time is up.",
    ),
    2: Lab(
        "wait.py", "a missing wait", _wait, {"HCQ_EMULATE": "amd:gfx90a", "HCQ_SANITIZE": "wait"},
        "A load only begins where its instruction stands; s_waitcnt is what makes its register safe to use.", COMGR,
    ),
    3: Lab(
        "race.py", "a race", _race, {"HCQ_EMULATE": RACING, "HCQ_SANITIZE": "race"},
        "A barrier stands between every write to shared memory and the reads of it by other warps, and back.", NVRTC,
    ),
    4: Lab(
        "banks.py", "bank conflicts", _banks, {"HCQ_EMULATE": "nv:sm_90", "HCQ_SANITIZE": "race"},
        "Words that are 32 apart share a bank; a padded row moves the words of a column to different ones.", NVRTC,
    ),
    5: Lab(
        "launch.py", "an off-by-one launch", _launch, {"HCQ_EMULATE": "nv:sm_90", "HCQ_SANITIZE": "memory"},
        "A grid is rounded up, and the threads that are too many do nothing.", NVRTC,
    ),
    6: Lab(
        "descriptor.py", "a wrong descriptor", _descriptor, {"HCQ_EMULATE": "amd:gfx90a", "HCQ_SANITIZE": "memory"},
        "Nobody counts registers and LDS for a kernel in assembly: its descriptor is all that the GPU is told.", COMGR,
    ),
}  # fmt: skip
