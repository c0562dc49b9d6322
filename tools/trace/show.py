"""Show: a trace as a person reads it, packet by packet, or as one JSON object a line.

In       a Trace and filters: device, queue, kernel, submissions, what else to print
Out      lines
Next     views.py (what is shown), disasm.py (what a kernel does)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.tools.trace.color import Color
from hcq.tools.trace.views import View, record_view, submission_view
from hcq.trace.file import Submission, Trace

WORDS_PER_LINE = 8
FOLDED_FROM = 3  # equal packets in a row
QUIET = ("alloc", "free", "data", "result", "block", "port", "clock")  # kinds that are shown on request only


@dataclass(frozen=True)
class Filter:
    """What to show; what is left out is not asked for.

    submissions   first and last timeline value; None is open
    """

    device: str = ""
    queue: str = ""
    kernel: str = ""
    submissions: tuple[int | None, int | None] | None = None
    last: int | None = None
    ioctls: bool = False
    memory: bool = False

    def wants_submission(self, submission: Submission) -> bool:
        """Whether a submission passes."""
        if self.device and not _is_device(submission.device.key, self.device):
            return False
        if self.queue and submission.queue.lower() != self.queue.lower():
            return False
        first, last = self.submissions or (None, None)
        if (first is not None and submission.value < first) or (last is not None and submission.value > last):
            return False
        return not self.kernel or any(self.kernel in kernel for kernel in submission.kernels)

    def may_want(self, kind: str) -> bool:
        """Whether records of a kind that is no submission can pass."""
        if kind in QUIET:
            return self.ioctls if kind == "port" else self.memory
        return not (self.queue or self.submissions is not None or self.last is not None)

    def wants_other(self, view: View) -> bool:
        """Whether a view of such a record passes. A filter that only submissions can pass leaves it out."""
        kind = view["kind"]
        if self.device and not _is_device(view.get("device"), self.device):
            return False
        if self.queue or self.submissions is not None or self.last is not None:
            return self.ioctls and kind == "port"
        return not self.kernel or (kind in ("code", "finding") and self.kernel in view["kernel"])


def nothing_passes(trace: Trace, wanted: Filter) -> str:
    """What to say when a filter lets nothing through: no kernel is called like that, or no record is as it wants."""
    known = {name for submission in trace.submissions for name in submission.kernels}
    known |= {code.name for code in trace.code}
    if not wanted.kernel or any(wanted.kernel in name for name in known):
        return f"No record of {trace.path} passes all of these filters."
    some = ", ".join(sorted(known)[:8]) + (f" and {len(known) - 8} more" if len(known) > 8 else "")
    has = f"there are {some}" if known else "there are none"
    return f"No kernel of {trace.path} has {shown(wanted.kernel)} in its name: {has}."


def _is_device(key: object, wanted: str) -> bool:
    return isinstance(key, str) and wanted.upper() in (key.upper(), key.upper().partition("@")[0])


def submission_range(text: str) -> tuple[int | None, int | None]:
    """ "40" is one submission, "40..50" a range, "40.." and "..50" are open. Raises UsageError."""
    first, dots, last = text.partition("..")
    try:
        low = int(first) if first else None
        high = (int(last) if last else None) if dots else low
    except ValueError:
        low = high = None
        dots = ""
    if (low is None and high is None) or (low is not None and high is not None and low > high):
        raise UsageError(
            f"--submission {text!r}: takes a timeline value or a range, such as 40, 40..50 or 40.. ."
        )
    return low, high


def select(trace: Trace, wanted: Filter) -> Iterator[View]:
    """The views that pass, in order. Only what passes is decoded."""
    chosen = [submission for submission in trace.submissions if wanted.wants_submission(submission)]
    if wanted.last is not None:
        chosen = chosen[max(len(chosen) - wanted.last, 0) :]
    passing = {submission.record: submission for submission in chosen}
    every = {submission.record for submission in trace.submissions}
    seen: dict[tuple[object, object], object] = {}
    for record in trace.records:
        if record.index in passing:
            yield submission_view(passing[record.index])
        elif record.index not in every and wanted.may_want(record.name.lower()):
            view = record_view(trace, record)
            if view and wanted.wants_other(view) and (wanted.memory or _is_news(view, seen)):
                yield view


def _is_news(view: View, seen: dict[tuple[object, object], object]) -> bool:
    """Not for a signal that the host saw again with the value that it had before."""
    if view["kind"] != "signal":
        return True
    key = view.get("device"), view["va"]
    before, seen[key] = seen.get(key, 0), view["value"]
    return view["by"] == "host" or before != view["value"]


def as_json(view: View) -> str:
    """One line of JSON."""
    return json.dumps(view, default=str)


def lines(view: View, color: Color, with_words: bool = False) -> Iterator[str]:
    """One view as text."""
    kind = view["kind"]
    if kind == "submission":
        yield from _submission(view, color, with_words)
        return
    when = color(_when(view["seconds"]), "note")
    on = f"{color(view['device'], 'heading')}: " if "device" in view else ""
    if kind == "process":
        words = view.get("argv")
        command = " ".join(map(str, words)) if isinstance(words, list) else ""
        yield color(
            f"process {view['process']}: {command}" if command else f"process {view['process']}", "heading"
        )
    elif kind == "device":
        facts = view["facts"]
        inside = ", ".join(f"{key} {facts[key]}" for key in ("model", "threads", "driver") if key in facts)
        yield f"{color('device ' + view['device'], 'heading')}: {color(view['arch'], 'packet')}" + color(
            f"{', ' if inside else ''}{inside}, process {view['process']}", "note"
        )
    elif kind == "code":
        what = (
            f"an object of {view['size_bytes']} bytes, {view['hash']}" if view["size_bytes"] else "no object"
        )
        yield f"{when}  {on}code {color(view['kernel'], 'kernel')} at {_hex(view['va'])}, {color(what, 'note')}"
    elif kind == "signal":
        what = "set" if view["by"] == "host" else "saw"
        yield f"{when}  {on}the host {what} {color(view['signal'], 'buffer')} = {view['value']}"
    elif kind in ("alloc", "free", "map", "unmap"):
        name = color(view.get("name") or "", "buffer")
        yield f"{when}  {on}{kind} {view.get('size_bytes', '?')} bytes at {_hex(view.get('va'))} {name}".rstrip()
    elif kind == "data":
        yield f"{when}  {on}contents of {color(view['buffer'], 'buffer')}, {view['size_bytes']} bytes: {view['why']}"
    elif kind == "result":
        left = f"#{view['submission']} left {view['size_bytes']} bytes in {color(view['buffer'], 'buffer')}"
        yield f"{when}  {on}{left}, {color('digest ' + view['digest'], 'note')}"
    elif kind == "block":
        yield f"{when}  {on}block {view['label']}: {view['size_words']} words at {_hex(view['va'])}"
    elif kind == "port":
        yield f"{when}  {on}{color(view['text'], 'packet')}"
        for block in view.get("nested", ()):
            yield f"    {color(block['text'], 'note')}"
    elif kind in ("fault", "dropped", "finding"):
        text = view.get("text") or view.get("why") or view.get("message") or _rest(view)
        yield f"{when}  {on}{color(f'{kind}: {text}', 'wrong')}"
    elif kind == "place":
        off = f", {view['offset_ns']} ns behind rank 0's clock, give or take {view['error_ns']}"
        yield color(
            f"process {view['process']} is rank {view['rank']} of {view['ranks']} on {view['host']}"
            + (off if view["offset_ns"] or view["error_ns"] else ""),
            "heading",
        )
    elif kind == "span":
        peers = f" with {', '.join(map(str, view['peers']))}" if view["peers"] else ""
        size = f", {view['size_bytes']} bytes" if view["size_bytes"] else ""
        if "first" in view:
            took = f"#{view['first']} to #{view['last']}"
        else:
            took = f"{(view['finished'] - view['started']) * 1e6:.1f} us"
            when = color(_when(view["started"]), "note")
        yield f"{when}  {on}{color(view['name'], 'kernel')} for {took}{size}{peers}"
    elif kind == "clock":
        ahead = view["device_ns"] - view["host_ns"]
        yield f"{when}  {on}its clock is {ahead} ns ahead of the host's, give or take {view['error_ns']}"
    elif kind == "joined":
        yield color(view["text"], "heading" if view.get("aligned") else "wrong")
    else:
        yield f"{when}  {on}{kind} {color(_rest(view), 'note')}".rstrip()


def _submission(view: View, color: Color, with_words: bool) -> Iterator[str]:
    head = f"{color('#' + str(view['submission']), 'heading')} {color(_when(view['seconds']), 'note')}  "
    head += f"{color(view['device'], 'heading')} {color(view['queue'], 'note')}: {view['size_words']} words"
    if view["started"] is not None and view["finished"] is not None:
        head += f", {(view['finished'] - view['started']) * 1e6:.1f} us on the device"
    if view["site"]:
        head += color(f", {view['site']}", "note")
    if view.get("dropped"):
        head += color(" (did not reach the device)", "wrong")
    yield head
    if "undecoded" in view:
        yield f"    {color(view['undecoded'], 'wrong')}"
    if sum("command" in packet for packet in view["packets"]) < len(view["commands"]):
        for command in view["commands"]:
            yield f"    {color(command['verb'].capitalize(), 'packet')} {_text(command, color)}"
    yield from _packets(view["packets"], 1, color, with_words)


def _packets(packets: list[View], depth: int, color: Color, with_words: bool) -> Iterator[str]:
    """Packet by packet; a run of equal ones that say nothing more is one line."""
    for _, run in itertools.groupby(packets, key=lambda packet: (packet["packet"], packet["text"])):
        same = list(run)
        is_plain = not any(
            key in packet
            for packet in same
            for key in ("differs", "unclaimed", "command", "packets", "stuck")
        )
        if with_words or len(same) < FOLDED_FROM or not is_plain:
            for packet in same:
                yield from _packet(packet, depth, color, with_words)
        else:
            (line,) = _packet(same[0], depth, color, with_words)
            more = f"({len(same)} of them, to word {same[-1]['at']})"
            yield f"{line}  {color(more, 'note')}"


def _packet(packet: View, depth: int, color: Color, with_words: bool) -> Iterator[str]:
    indent = "    " * depth
    name = color(format(packet["packet"], "<9"), "wrong" if "stuck" in packet else "packet")
    margin = f"{indent[:-3]}=> " if "stuck" in packet else indent
    yield f"{margin}{packet['at']:5d} {name} {_text(packet, color)}".rstrip()
    if "stuck" in packet:
        yield f"{indent}      {color('it hangs here: ' + packet['stuck'], 'wrong')}"
    if "differs" in packet:
        yield f"{indent}      {color('the command was: ' + packet['differs'], 'wrong')}"
    for index, value in packet.get("unclaimed", {}).items():
        yield f"{indent}      {color(f'unclaimed bits of word {index}: {value:#010x}', 'wrong')}"
    if with_words:
        words = packet["words"]
        for start in range(0, len(words), WORDS_PER_LINE):
            line = " ".join(f"{word:08x}" for word in words[start : start + WORDS_PER_LINE])
            yield f"{indent}      {color(line, 'note')}"
    yield from _packets(packet.get("packets", []), depth + 1, color, with_words)


def _text(view: View, color: Color) -> str:
    """A line, with what stands before its first parenthesis painted as a kernel's name."""
    name, parenthesis, rest = view["text"].partition("(")
    if parenthesis and " grid=(" in rest:
        return color(name, "kernel") + color(parenthesis + rest, "buffer")
    return color(view["text"], "buffer")


def _rest(view: View) -> str:
    known = ("kind", "record", "seconds", "device")
    return ", ".join(f"{key}={value}" for key, value in view.items() if key not in known)


def _when(seconds: float | None) -> str:
    return "" if seconds is None else f"+{seconds:.6f} s"


def _hex(value: object) -> str:
    return f"{value:#x}" if isinstance(value, int) else str(value)
