"""Envelopes: a text says the same whatever tool, terminal, tracker or person has put around it."""

from __future__ import annotations

import html
import json
import random
import re
from collections.abc import Callable

import pytest

from hcq.errors import UsageError
from hcq.tools.trace import capsule, envelopes
from tests.tools.trace import test_cuda_text, test_nvidia_report, test_radv, test_rocm, test_umr
from tests.tools.trace.test_devcoredump import kernel_ring_dump
from tests.tools.trace.test_strangers import PAGE_FAULT, PM4, SDMA, TIMEOUT, XID, said

Wrap = Callable[[str], str | bytes]


def of_lines(make: Callable[[int, str], str]) -> Wrap:
    return lambda text: "".join(f"{make(number, line)}\n" for number, line in enumerate(text.splitlines()))


def stamped(text: str) -> str:
    """As dmesg prints it."""
    return "".join(f"[  812.{100000 + at}] {line}\n" for at, line in enumerate(text.splitlines()))


def terminal(width: int) -> Wrap:
    return lambda text: "".join(
        f"{line[at : at + width]}\n" for line in text.splitlines() for at in range(0, len(line), width)
    )


LINES: dict[str, Wrap] = {
    "logcat": of_lines(lambda at, line: f"03-02 11:22:33.{at:03} 1234 5678 W kernel  : {line}"),
    "GitHub Actions": of_lines(lambda at, line: f"2026-03-02T11:22:33.{at:07}Z ##[error]{line}"),
    "kubectl --prefix": of_lines(lambda at, line: f"[pod/train-0/worker] {line}"),
    "torchrun": of_lines(lambda at, line: f"[rank0]: {line}"),
    "srun --label": of_lines(lambda at, line: f"0: {line}"),
    "cat -n": of_lines(lambda at, line: f"{at + 1:6}\t{line}"),
    "grep -n": of_lines(lambda at, line: f"{at + 120}:{line}"),
    "grep of a file": of_lines(lambda at, line: f"/var/log/kern.log:{at + 120}:{line}"),
    "RFC 5424": of_lines(lambda at, line: f"<3>1 2026-03-02T11:22:33.{at:06}+01:00 h kernel - - - {line}"),
    "busybox": of_lines(lambda at, line: f"Mar  2 11:22:33 host kern.err kernel: {line}"),
    "journalctl, iso": of_lines(lambda at, line: f"2026-03-02T11:22:33.{at:06}+0100 host kernel: {line}"),
    "journalctl, json": of_lines(lambda at, line: json.dumps({"PRIORITY": "3", "MESSAGE": line})),
    "netconsole": of_lines(lambda at, line: f"3,{1000 + at},{812100000 + at},-;{line}"),
    "Loki": of_lines(lambda at, line: f"{1772446953000000000 + at} {line}"),
    "colours": of_lines(lambda at, line: f"\x1b[31m{line}\x1b[0m"),
    "colours as a pager shows them": of_lines(lambda at, line: f"^[[1;31m{line}^[[0m"),
    "colours without their escape": of_lines(lambda at, line: f"[31m{line}[0m"),
    "a quotation of a quotation": of_lines(lambda at, line: f"> > {line}"),
    "HTML, quoted": of_lines(lambda at, line: f"&gt; {html.escape(line)}"),
    "a list": of_lines(lambda at, line: f"- {line}"),
    "a frame": of_lines(lambda at, line: f"│{line}"),
    "indented": of_lines(lambda at, line: f"        {line}"),
}
TEXTS: dict[str, Wrap] = {
    "HTML": lambda text: f"<div><pre>{html.escape(text)}</pre></div>",
    "Jira": lambda text: "Log:\r\n{noformat}\r\n" + text.replace("\n", "\r\n") + "{noformat}\r\n",
    "Discourse": lambda text: f'[quote="bob, post:3, topic:9"]\n{text}[/quote]\n',
    "a string of JSON": lambda text: json.dumps({"body": text}),
    "a BOM": lambda text: f"\ufeff{text}",
    "UTF-16": lambda text: f"\ufeff{text}".encode("utf-16-le"),
    "UTF-16, no mark": lambda text: text.encode("utf-16-be"),
    "old line ends": lambda text: text.replace("\n", "\r"),
}
MATERIAL = {
    "umr's ring": (test_umr.ring(PM4, 0), "DispatchDirect(dim_x=4"),
    "umr's waves": (test_umr.TABLE, "alike|wave"),
    "the debug agent": (test_rocm.AGENT, "wave"),
    "RADV's registers": (test_radv.REGISTERS, "busy"),
    "cuda-gdb": (test_cuda_text.GDB, "illegal|Illegal"),
    "nvidia-smi -q": (test_nvidia_report.QUERY, "Remapped|remap|ECC"),
    "PM4": ("".join(f"{word:08x}\n" for word in PM4), "DispatchDirect(dim_x=4"),
    "SDMA": (" ".join(f"0x{word:08x}" for word in SDMA) + "\n", "CopyLinear(count=4095"),
    "a page fault": (stamped(PAGE_FAULT), "a write of the page at 0x7f2a40000000"),
    "a timeout": (stamped(TIMEOUT), "ring comp_1.0.1 did not end in its time"),
    "an Xid": (stamped(XID), "a read of 0x7f1234567000"),
    "a devcoredump": (kernel_ring_dump(), "IndirectBuffer"),
}


def content_of(told: str) -> set[str]:
    """What is said, without the numbers of lines."""
    rows = (re.sub(r"line \d+(-\d+)?", "line", line) for line in told.splitlines())
    return {re.sub(r"^\s*\d+\s*", "", row).strip() for row in rows} - {""}


def kept(name: str, found: str, text: str) -> None:
    """Nine sentences of ten are those of the text as it is; the rest are stamps."""
    expected = content_of(said(text))
    lost = expected - content_of(found)
    assert any(one in found for one in MATERIAL[name][1].split("|")), found[:500]
    assert len(lost) * 10 <= max(len(expected), 20), lost


@pytest.mark.parametrize("name", MATERIAL)
@pytest.mark.parametrize("envelope", {**LINES, **TEXTS})
def test_a_text_says_the_same_in_its_envelope(name: str, envelope: str) -> None:
    text = MATERIAL[name][0]
    made = {**LINES, **TEXTS}[envelope](text)
    kept(name, said(made), text)


@pytest.mark.parametrize("name", ["a page fault", "an Xid", "a timeout"])
@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_a_log_that_a_terminal_broke_at_its_width_is_whole_again(name: str, width: int) -> None:
    kept(name, said(terminal(width)(MATERIAL[name][0])), MATERIAL[name][0])


def test_envelopes_in_envelopes_are_taken_off() -> None:
    text = MATERIAL["umr's ring"][0]
    for outer, inner in (("a quotation of a quotation", "GitHub Actions"), ("HTML, quoted", "torchrun")):
        kept("umr's ring", said(LINES[outer](str(LINES[inner](text)))), text)


def test_what_looks_like_an_envelope_and_is_the_text_itself_stays() -> None:
    for text in (test_nvidia_report.TABLE, test_nvidia_report.QUERY, test_umr.STREAM, test_rocm.GDB):
        assert envelopes.plain(text.encode()) == text.encode()
        bare = envelopes.bare(text.encode()).decode()
        assert content_of(said(bare)) == content_of(said(text))


def test_words_that_break_off_in_the_middle_of_a_packet_are_read_up_to_there() -> None:
    text = " ".join(f"{word:08x}" for word in PM4)
    found = said(text[: 9 * 12 + 3])
    assert "DispatchDirect(dim_x=4" in found and "cut off: 3 of 7 words" in found


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("node3: NCCL WARN Cuda failure 'an illegal memory access was encountered'", "illegal memory"),
        ("CUDA failure 700: an illegal memory access was encountered ; GPU=0", "is not mapped"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
            "too little device memory",
        ),
    ],
)
def test_errors_of_libraries_above_cuda_are_told(line: str, says: str) -> None:
    assert says in said(f"{line}\n")


@pytest.mark.parametrize("part", [0.25, 0.5, 0.75])
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (test_radv.REGISTERS, "CP_STALLED_STAT1"),
        (test_radv.trace(2), "DispatchDirect"),
        (test_rocm.AGENT, "wave"),
        (test_umr.STREAM, "packet"),
    ],
)
def test_the_end_of_a_text_is_recognised_without_its_head(text: str, says: str, part: float) -> None:
    rows = text.splitlines()
    assert says in said("\n".join(rows[int(len(rows) * part) :]) + "\n")


@pytest.mark.parametrize("seed", range(4))
def test_damaged_envelopes_are_safe(seed: int) -> None:
    rng = random.Random(seed)
    marks = [b"\n", b"{", b"[", b"\x1b[", b"&gt;", b"\xff\xfe", b"> ", b'"', b"\\n", b"<br>", b"\0"]
    for _ in range(40):
        text = MATERIAL[rng.choice(list(MATERIAL))][0][:4000]
        made = rng.choice(list({**LINES, **TEXTS}.values()))(text)
        data = bytearray(made if isinstance(made, bytes) else made.encode())
        for _ in range(rng.randrange(1, 20)):
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(8)] = rng.choice(marks)
        envelopes.bare(envelopes.plain(bytes(data)))


def test_a_capsule_is_made_of_a_dump_in_an_envelope() -> None:
    text = kernel_ring_dump()
    lines = capsule.capsule(text.encode()).lines
    for envelope in ("GitHub Actions", "cat -n", "HTML, quoted"):
        assert capsule.capsule(str(LINES[envelope](text)).encode()).lines == lines
    with pytest.raises(UsageError, match="no devcoredump"):
        capsule.capsule(b"- nothing\n- of that\n")
