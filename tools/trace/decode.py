"""decode: what somebody else recorded, in words: a log of ioctls, or words of a pushbuffer as hex text.

In       lines of text; the driver's release, or the architecture whose words they are
Out      lines, or plain data for JSON: calls with class, control, fields and status; packets with their methods
Next     hcq/trace/ioctl_log.py (the forms of logs), ioctl_decode.py (calls), hcq/nv/decode.py (words)
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.layout import Packet
from hcq.nv.abi.ioctls import Abi, abi_for
from hcq.nv.abi.names import class_name, control_name
from hcq.nv.abi.status import BENIGN
from hcq.tools.trace import amd_calls
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.ioctl_decode import DecodedCall, decode_call, is_nvidia
from hcq.trace import ioctl_log
from hcq.trace.ioctl_log import Call

DEFAULT_RELEASE = "580.142"
NAMED = ("NV_", "UVM_", "AMDKFD_", "DRM_")


class Decoded(NamedTuple):
    """One ioctl of a log and what it means."""

    call: Call
    decoded: DecodedCall


def run(options: argparse.Namespace, content: bytes) -> int:
    """Print what a file holds: by the first reader that knows it, else as a log of ioctls.

    Raises  UsageError for a file that nobody knows
    """
    from hcq.tools.trace import envelopes, readers, unpack

    content = envelopes.plain(unpack.unpacked(content))
    lines = content.decode("utf-8", "replace").splitlines()
    if b"ioctl" in content and not any(ioctl_log.read(lines)):
        lines = envelopes.bare(content).decode("utf-8", "replace").splitlines()
    if known := readers.find(content, readers.Wanted(options.form, options.chip, options.nv)):
        has_calls = known.has_calls and any(ioctl_log.read(lines))
        if options.json:
            calls = log_json(decode_log(lines, options.driver)[0]) if has_calls else None
            _print_json(known.as_json() if calls is None else [*known.as_json(), *calls])
            return 0
        _print(known.lines(Color.for_stdout()))
        if not has_calls:
            return 0
    found, others, abi = decode_log(lines, options.driver)
    if options.json:
        _print_json(log_json(found))
    else:
        _print(log_lines(found, others, abi, Color.for_stdout()))
    return 0


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _print_json(what: object) -> None:
    print(json.dumps(what, default=str, indent=1))


# ------------------------------------------------------------ logs


def decode_log(lines: Iterable[str], release: str = DEFAULT_RELEASE) -> tuple[list[Decoded], int, Abi]:
    """NVIDIA's and AMD's ioctls of a log, how many went to other files, and the interface NVIDIA's were read with.

    Raises  UsageError for a log without a single ioctl
    """
    abi = abi_for(release)
    found: list[Decoded] = []
    others = 0
    for call in ioctl_log.read(lines):
        if amd_calls.is_amd(call):
            found.append(Decoded(call, amd_calls.decode_call(call)))
            continue
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
            " (docs/trace.md has the forms), and kernel logs (docs/dumps.md); for words of a pushbuffer add --nv sm_90,"
            " for words of AMD's rings --form pm4, sdma or aql, for kernel descriptors --form descriptor."
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
    amd = sum(amd_calls.is_amd(call) for call, _ in found)
    if amd:
        yield f"{amd} calls to AMD's drivers, {others} to others; structures of the KFD's interface 1.17"
    if amd < len(found) or not amd:
        yield (
            f"{len(found) - amd} calls to NVIDIA's drivers, {others} to others; structures of release {abi.release}"
        )
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
    unnamed = {decoded.name for _, decoded in found if not decoded.name.startswith(NAMED)}
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


def word_packets(
    words: list[int], arch: str, form: str = "pushbuffer"
) -> Iterator[tuple[int, Packet | None]]:
    """Every packet with the word where it begins; None for words behind the last one.

    form    pushbuffer: methods; qmd: one launch description; gpfifo: entries of a ring
    Raises  UsageError for an unknown architecture
    """
    from hcq.nv.abi.classes import ARCHITECTURES
    from hcq.nv.abi.gpfifo import decode_entry
    from hcq.nv.abi.qmd import qmd_for
    from hcq.nv.decode import decoder

    decode = decoder(arch)
    if form == "gpfifo":
        for at in range(0, len(words), 2):
            yield at, decode_entry(*words[at : at + 2]) if at + 1 < len(words) else None
    elif form == "qmd":
        layout = qmd_for(ARCHITECTURES[arch].compute)
        whole = max(len(words) // layout.length_words, 1) * layout.length_words
        for at in range(0, whole, layout.length_words):
            yield at, layout.decode(words[at : at + layout.length_words])
        for at in range(whole, len(words)):
            yield at, None
    else:
        at = 0
        for packet in decode(words):
            yield at, packet
            at += len(packet.words)


def word_lines(words: list[int], arch: str, form: str = "pushbuffer") -> Iterator[str]:
    """Every packet on a line; what nobody claims is shown as such. Raises UsageError as word_packets does."""
    length = 0
    for at, packet in word_packets(words, arch, form):
        if packet is None:
            yield f"{at:6}  {words[at]:08x}  no whole packet: behind one of {length} words"
        else:
            length = packet.length_words
            yield f"{at:6}  {packet!r}"


def word_json(words: list[int], arch: str, form: str = "pushbuffer") -> list[dict[str, Any]]:
    """The same as data: one object a packet. Raises UsageError as word_packets does."""
    return [
        {
            "at": at,
            "packet": type(packet).__name__ if packet is not None else "unknown",
            "fields": packet.values if packet is not None else {},
            "text": repr(packet) if packet is not None else f"{words[at]:08x}",
        }
        for at, packet in word_packets(words, arch, form)
    ]
