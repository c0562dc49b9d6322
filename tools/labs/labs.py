"""What each lab is, and what is looked at in a file that somebody works on.

In       a lab, the file
Out      LABS; `remarks`: what is still wrong, in sentences; none where all is right
Changes  runs the file, on emulated GPUs
Next     command.py (who asks), exercises/ (the files to begin with), docs/labs.md
"""

from __future__ import annotations

import runpy
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hcq
from hcq.errors import DeviceFault, HcqError, UsageError, WaitTimeout
from hcq.observe.sanitizer import Sanitizer
from hcq.performance import counters
from hcq.performance.counters import Counters

Given = dict[str, Any]  # the names that the file defines
SEEDS = 3


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


def _hang(given: Given) -> Iterator[str]:
    dev = hcq.open("NV")
    wanted = tuple(range(256))
    a, b, c = (dev.alloc(1024, name) for name in "abc")
    a.write(struct.pack("<256i", *wanted))
    for one in (b, c):
        one.write(bytes(1024))
    _name(given, "run")(dev, a, b, c)
    dev.synchronize()
    yield from _differs("b", _numbers(b, 256), wanted)
    yield from _differs("c", _numbers(c, 256), wanted)


def _wait(given: Given) -> Iterator[str]:
    yield from _assembly(given, tuple(3 * i + 1 for i in range(256)))


def _descriptor(given: Given) -> Iterator[str]:
    yield from _assembly(given, tuple(255 - i for i in range(256)))


def _assembly(given: Given, wanted: tuple[int, ...]) -> Iterator[str]:
    from hcq.compiler.assemble import comgr

    dev = hcq.open("AMD")
    kernel = dev.load(comgr.compile_assembly(_name(given, "KERNEL"), dev.arch), "kernel")
    out, numbers = dev.alloc(1024, "out"), dev.alloc(1024, "in")
    numbers.write(struct.pack("<256i", *range(256)))
    out.write(bytes(1024))
    dev.run(kernel, [out, numbers], block=(256, 1, 1))
    yield from _findings(0)
    yield from _differs("out", _numbers(out, 256), wanted)


def _race(given: Given) -> Iterator[str]:
    image = _cuda(_name(given, "KERNEL"), "sum")
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
