"""Kernel logs that are cut, mixed or damaged: whatever the text is, what decode says of it is bounded and well formed.

The same property holds for other texts in tests/campaigns/readers.py; here it is drawn for kernel logs, with seeds.
"""

from __future__ import annotations

import json
import random

import pytest

from hcq.tools.trace import kernel_log, readers
from hcq.tools.trace.color import Color
from hcq.tools.trace.kernel_log.log_lines import MAX_LINE, WRAPPED
from tests.tools.trace.test_kernel_log import GFX9, GFX11, MMHUB, TWICE
from tests.tools.trace.test_kernel_log_nvidia import MESSAGES

XIDS = "".join(
    f"[ {at}.5] NVRM: Xid (PCI:0000:0a:00): {number}, pid={at}, name=a b, {message}\n"
    for at, (number, message, _) in enumerate(MESSAGES)
)
FAULT = "NVRM: Xid (PCI:0000:0a:00): 31, Ch 1, intr 0. MMU Fault: ENGINE CE2 HUBCLIENT_CE0 faulted @ 0x7f29_5b8c9000."
WHOLE = GFX11 + GFX9 + MMHUB + XIDS + FAULT + "\n" + "\n".join(text for text, _, _ in TWICE) + "\n"
ODD = (
    "\0",
    "\x1b[",
    "\r",
    "\u2028",
    "9" * 500,
    "0x",
    "(",
    ")",
    "<",
    "[",
    "]",
    ":",
    ",",
    "\t",
    "%s",
    "{0}",
    "NVRM: ",
    "amdgpu: ",
)


def damaged(rng: random.Random) -> str:
    """The whole log with some harm: cuts, swaps, doubled and joined lines, strange characters, bits of other lines."""
    lines = WHOLE.splitlines()
    for _ in range(rng.randrange(1, 60)):
        at = rng.randrange(len(lines))
        line = lines[at]
        cut = rng.randrange(len(line) + 1)
        kind = rng.randrange(8)
        if kind == 0:
            lines[at] = line[:cut]
        elif kind == 1:
            lines[at] = line[cut:]
        elif kind == 2:
            lines[at] = line[:cut] + rng.choice(ODD) + line[cut:]
        elif kind == 3:
            lines[at] = line[:cut] + rng.choice(lines)
        elif kind == 4:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], line
        elif kind == 5:
            lines[at : at + 1] = [line[:cut], line[cut:]]
        elif kind == 6:
            lines[at] = "".join(
                chr(ord(char) ^ (1 << rng.randrange(7))) if rng.random() < 0.03 else char for char in line
            )
        elif len(lines) > 2:
            del lines[at]
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_log_is_told_within_bounds_and_never_raises(seed: int) -> None:
    text = damaged(random.Random(seed))
    lines = text.split("\n")
    found = kernel_log.events(lines)
    assert len(found) <= len(lines)
    assert all(
        1 <= number <= len(lines) for event in found for number in (event.line, *event.lines, *event.copies)
    )
    assert all(event.sentence and event.lines[0] == event.line for event in found)
    assert all(len(event.sentence) <= (WRAPPED + 3) * MAX_LINE for event in found)
    shown = list(kernel_log.lines(found, Color(False)))
    assert sum(map(len, shown)) <= 40 * len(text) + 10_000
    assert not any(ord(char) < 32 and char != "\t" for line in shown for char in line)
    assert len(json.loads(json.dumps(kernel_log.json(found)))) == len(found)


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_ends_anywhere_is_told_as_far_as_it_goes(seed: int) -> None:
    end = random.Random(seed).randrange(len(WHOLE))
    assert kernel_log.events(WHOLE[:end].split("\n"))[0].kind == "page fault"


def test_bytes_of_any_kind_are_read_or_left_to_others() -> None:
    rng = random.Random(7)
    for _ in range(50):
        content = rng.randbytes(2000) + b"NVRM: Xid (" + rng.randbytes(2000)
        reading = readers.find(content, readers.Wanted())
        assert reading is not None and list(reading.lines(Color(False)))
    assert readers.find(rng.randbytes(100) + b"\n", readers.Wanted()) is None


def test_a_line_without_end_is_cut() -> None:
    (event,) = kernel_log.events(["NVRM: Xid (PCI:0000:0a:00): 43, Ch 00000008 " + "x" * 1_000_000])
    assert len(event.fields["message"]) < 2 * MAX_LINE


def test_the_work_grows_with_the_log_and_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in lines that are looked at, not in time: most lines of a long log are only searched for plain words."""
    from hcq.tools.trace.kernel_log import log_lines as module

    cleaned = 0
    whole = module.clean

    def counting(line: str) -> str:
        nonlocal cleaned
        cleaned += 1
        return whole(line)

    monkeypatch.setattr(module, "clean", counting)
    others = ["systemd[1]: Started something of no interest to anybody here."] * 100_000
    assert len(kernel_log.events([*others, *GFX11.splitlines(), *others])) == 1
    assert cleaned < 50


def test_a_client_with_leading_zeros_is_a_number() -> None:
    (event,) = kernel_log.events(GFX11.replace("from client 10", "from client 08").splitlines())
    assert event.fields["ih_client"] == 8
