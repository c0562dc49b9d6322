"""decode: what somebody else recorded, in words: a log of ioctls, or words of a pushbuffer as hex text.

In       lines of text; the driver's release, or the architecture whose words they are
Out      lines, or plain data for JSON: calls with class, control, fields and status; packets with their methods
Changes  nothing
Next     ioctl_log.py (the forms of logs), ioctl_decode.py (calls), hcq/nv/decode.py (words)
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.nv.abi.ioctls import Abi, abi_for
from hcq.nv.abi.names import class_name, control_name
from hcq.nv.abi.status import BENIGN
from hcq.tools.trace import ioctl_log
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.ioctl_decode import DecodedCall, decode_call, is_nvidia
from hcq.tools.trace.ioctl_log import Call

DEFAULT_RELEASE = "580.142"
WORD_FORMS = ("pushbuffer", "qmd", "gpfifo")


class Decoded(NamedTuple):
    """One ioctl of a log and what it means."""

    call: Call
    decoded: DecodedCall


# ------------------------------------------------------------ logs


def decode_log(lines: Iterable[str], release: str = DEFAULT_RELEASE) -> tuple[list[Decoded], int, Abi]:
    """NVIDIA's ioctls of a log, how many went to other files, and the interface they were read with.

    Raises  UsageError for a log without a single ioctl
    """
    abi = abi_for(release)
    found: list[Decoded] = []
    others = 0
    for call in ioctl_log.read(lines):
        if not is_nvidia(call.path, call.request):
            others += 1
            continue
        decoded = decode_call(abi, call.path, call.request, call.before, call.after, call.params)
        for what, number in call.notes:
            decoded.what = decoded.what or (control_name(number) if "control" in what else class_name(number))
        found.append(Decoded(call, decoded))
    if not found and not others:
        raise UsageError(
            "no ioctl in this text. decode reads logs of strace, of runsc --strace and of ioctl sniffers"
            " (docs/trace.md has the forms), and kernel logs (docs/dumps.md); for words of a pushbuffer add --nv sm_90."
        )
    return found, others, abi


def log_lines(found: list[Decoded], others: int, abi: Abi, color: Color) -> Iterator[str]:
    """Every call on a line, and a summary."""
    for call, decoded in found:
        where = call.path.removeprefix("/dev/") or f"fd {call.fd}"
        said = decoded.line(abi.release)
        refused = decoded.status is not None and decoded.status not in BENIGN
        if call.error or (call.result is not None and call.result < 0):
            said, refused = f"{said} -> {call.error or call.result}", True
        if call.warnings:
            said = f"{said}  ({'; '.join(call.warnings)})"
        yield f"{call.line:6}  {clean(where):12} {color(said, 'wrong') if refused else clean(said)}"
    yield ""
    yield from summary(found, others, abi)


def summary(found: list[Decoded], others: int, abi: Abi) -> Iterator[str]:
    """How many of what, and what has no name."""
    yield f"{len(found)} calls to NVIDIA's drivers, {others} to others; structures of release {abi.release}"
    counts = Counter(decoded.name for _, decoded in found)
    yield (
        "  "
        + ", ".join(f"{count} {name}" for name, count in counts.most_common(8))
        + (" and others" if len(counts) > 8 else "")
    )
    without = sum(not call.before and not call.after for call, _ in found)
    if without:
        yield f"  {without} without their argument's bytes: named by their request alone"
    failed = [decoded for call, decoded in found if call.error or (decoded.status or 0) not in BENIGN]
    if failed:
        yield f"  {len(failed)} refused: {', '.join(sorted({decoded.name for decoded in failed}))}"
    unnamed = {decoded.name for _, decoded in found if not decoded.name.startswith(("NV_", "UVM_"))}
    if unnamed:
        yield f"  no name for {', '.join(sorted(unnamed))}"


def log_json(found: list[Decoded]) -> list[dict[str, Any]]:
    """The same as data: one object a call."""
    return [
        {
            "line": call.line,
            "file": call.path,
            "fd": call.fd,
            "request": call.request,
            "name": decoded.name,
            "what": decoded.what,
            "fields": dict(decoded.fields),
            "status": decoded.status,
            "result": call.result,
            "error": call.error,
            "warnings": call.warnings,
            "note": decoded.note,
        }
        for call, decoded in found
    ]


# ------------------------------------------------------------ words


def words_of(lines: Iterable[str]) -> list[int]:
    """32-bit words from text: hex with or without 0x, eight digits each; offsets end in a colon, comments begin with #.

    Raises  UsageError naming the first line that has something else
    """
    found: list[int] = []
    for number, line in enumerate(lines, 1):
        text = re.split(r"[#;]|//|\|", line, maxsplit=1)[0]
        text = re.sub(r"^\s*(?:0x)?[0-9a-fA-F]+:", "", text)
        for word in text.replace(",", " ").split():
            if not re.fullmatch(r"0x[0-9a-fA-F]{1,8}|[0-9a-fA-F]{8}", word):
                raise UsageError(
                    f"line {number}: {word!r} is no 32-bit word. Write words as hex, eight digits each (20018000) or"
                    " with 0x; an offset before them ends in a colon."
                )
            found.append(int(word, 16))
    if not found:
        raise UsageError(
            "no words in this text. Write them as hex, eight digits each, as many on a line as you like."
        )
    return found


def word_lines(words: list[int], arch: str, form: str = "pushbuffer") -> Iterator[str]:
    """Every packet with the word where it begins; what nobody claims is shown as such.

    form    pushbuffer: methods; qmd: one launch description; gpfifo: entries of a ring
    Raises  UsageError for an unknown architecture
    """
    from hcq.nv.abi.classes import ARCHITECTURES
    from hcq.nv.abi.gpfifo import GpEntry
    from hcq.nv.abi.qmd import qmd_for
    from hcq.nv.decode import decoder

    decode = decoder(arch)
    at = 0
    if form == "gpfifo":
        for at in range(0, len(words), 2):
            yield f"{at:6}  {GpEntry.decode(words[at : at + 2])!r}"
        return
    if form == "qmd":
        layout = qmd_for(ARCHITECTURES[arch].compute)
        yield f"{at:6}  {layout.decode(words[: layout.length_words])!r}"
        for at in range(layout.length_words, len(words)):
            yield f"{at:6}  {words[at]:08x}  behind the description, which has {layout.length_words} words"
        return
    for packet in decode(words):
        yield f"{at:6}  {packet!r}"
        at += len(packet.words)
