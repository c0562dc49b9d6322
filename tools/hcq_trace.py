"""hcq-trace: what was submitted, packet by packet.

In       a file recorded with HCQ_TRACE=FILE (or `hcq-trace record -o FILE -- CMD`)
Out      text, or one JSON object a line
Changes  nothing; `record` runs a command, which writes the file
Next     hcq/trace.py (the file's format), hcq/cpu/packets.py (the fields shown)
"""

from __future__ import annotations

import argparse
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from hcq.cpu import encode, packets
from hcq.cpu.processor import MACHINES
from hcq.errors import HcqError
from hcq.layout import Packet
from hcq.trace import Record, read_trace

DESCRIPTION = """Show what was submitted to a device's command queue, packet by packet.

A trace holds the raw words that went into the ring, the code objects, the mappings, and the signals that were awaited.
`show` decodes the words with the same declarations that encoded them, and names each address: the buffer it lies in,
the kernel whose entry it is, or "unknown".
"""

EXAMPLES = """examples:
  HCQ_TRACE=run.hcqtrace python examples/digits.py      record (appends to the file)
  hcq-trace record -o run.hcqtrace -- python train.py   the same, starting with an empty file
  hcq-trace show run.hcqtrace                           everything
  hcq-trace show run.hcqtrace --last 3                  the last three submissions
  hcq-trace show run.hcqtrace --kernel softmax          submissions that run a kernel with this in its name
  hcq-trace show run.hcqtrace --submission 17 --json    one submission, for another program to read

how to read a line:
  #17 +0.001250 s  CPU: 36 words                        timeline value, time since the first record, queue, size
      0 Dispatch  add(out+0x0, a+0x100, 1024) grid=(4,1,1)   word offset, packet, kernel, buffers by name and offset
     24 Signal    timeline = 17                         what the packet after it does
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status: 0, or 1 after an error, or that of a recorded command."""
    parser = argparse.ArgumentParser(
        prog="hcq-trace",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="show | record")
    show_verb = verbs.add_parser(
        "show", help="print a trace", formatter_class=argparse.RawDescriptionHelpFormatter, epilog=EXAMPLES
    )
    show_verb.add_argument("file", help="a file recorded with HCQ_TRACE")
    show_verb.add_argument(
        "--queue", metavar="NAME", help="only the submissions to this device's queue, such as CPU"
    )
    show_verb.add_argument(
        "--kernel", metavar="TEXT", help="only submissions that run a kernel with this in its name"
    )
    show_verb.add_argument(
        "--submission", metavar="N", type=int, help="only the submission with this timeline value"
    )
    show_verb.add_argument("--last", metavar="N", type=int, help="only the last N submissions that are left")
    show_verb.add_argument("--words", action="store_true", help="print the raw words below each packet, too")
    show_verb.add_argument("--json", action="store_true", help="one JSON object for each record")
    record_verb = verbs.add_parser("record", help="run a command and record what it submits")
    record_verb.add_argument(
        "-o", "--output", metavar="FILE", default="run.hcqtrace", help="default run.hcqtrace"
    )
    record_verb.add_argument(
        "command", nargs=argparse.REMAINDER, help="-- and the command with its arguments"
    )
    options = parser.parse_args(argv)
    try:
        return _show(options) if options.verb == "show" else _record(options)
    except HcqError as error:
        print(f"hcq-trace: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader, `head` perhaps, has seen enough
        return 0


def _record(options: argparse.Namespace) -> int:
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        print(
            "hcq-trace record: give a command after --, as in: hcq-trace record -- python x.py",
            file=sys.stderr,
        )
        return 1
    output = Path(options.output)
    output.unlink(missing_ok=True)
    environment = {**os.environ, "HCQ_TRACE": str(output.absolute())}
    try:
        status = subprocess.run(command, env=environment).returncode
    except OSError as error:
        print(f"hcq-trace record: {command[0]} cannot be started ({error.strerror})", file=sys.stderr)
        return 1
    if not output.exists():
        print(f"hcq-trace record: {command[0]} opened no hcq device; nothing was recorded", file=sys.stderr)
    return status


def _show(options: argparse.Namespace) -> int:
    reader = Reader()
    shown = [view for view in reader.read_all(options.file) if _wanted(view, options)]
    if options.last is not None:
        keep = {id(view) for view in [view for view in shown if view["kind"] == "submit"][-options.last :]}
        shown = [view for view in shown if view["kind"] == "submit" and id(view) in keep]
    for view in shown:
        if options.json:
            print(json.dumps(view))
        else:
            print("\n".join(_lines(view, options.words)))
    if reader.bytes_left and not options.json:
        print(f"The file is cut off here: {reader.bytes_left} bytes of an unfinished record follow.")
    return 0


def _wanted(view: dict[str, Any], options: argparse.Namespace) -> bool:
    if options.queue and view.get("queue") != options.queue.upper():
        return False
    if options.kernel and not any(options.kernel in kernel for kernel in view.get("kernels", ())):
        return False
    return not (options.submission is not None and view.get("submission") != options.submission)


class Reader:
    """Follows a trace: knows what lives at which address when a record is read."""

    def __init__(self) -> None:
        self.arch: dict[str, str] = {}
        self.kernels: dict[int, str] = {}
        self.mappings: dict[int, int] = {}
        self.gone: dict[int, int] = {}
        self.named: dict[int, tuple[int, str]] = {}
        self.start_ns: int | None = None
        self.bytes_left = 0

    def read_all(self, path: str) -> Iterator[dict[str, Any]]:
        """Every record of a file, in order; then `bytes_left` says whether it was cut off."""
        records = read_trace(path)
        while True:
            try:
                record = next(records)
            except StopIteration as end:
                self.bytes_left = end.value
                return
            yield self.read(record)

    def read(self, record: Record) -> dict[str, Any]:
        """One record as plain data, with its packets decoded and its addresses named."""
        fields = record.fields
        if self.start_ns is None:
            self.start_ns = fields["time_ns"]
        kind = fields["kind"]
        view = {
            "kind": kind,
            "queue": fields.get("device"),
            "seconds": (fields["time_ns"] - self.start_ns) / 1e9,
        }
        if kind == "device":
            self.arch[fields["device"]] = fields["arch"]
            self.named[fields["facts"]["timeline"]] = (16, "timeline")
            return {**view, "arch": fields["arch"], "pid": fields["pid"], "facts": fields["facts"]}
        if kind == "map":
            self.mappings[fields["va"]] = fields["size_bytes"]
            return {**view, "va": fields["va"], "size_bytes": fields["size_bytes"], "name": fields["name"]}
        if kind == "unmap":
            self.gone[fields["va"]] = self.mappings.pop(fields["va"], fields["size_bytes"])
            return {**view, "va": fields["va"], "size_bytes": fields["size_bytes"]}
        if kind == "code":
            self.kernels[fields["va"]] = fields["name"]
            return {**view, "kernels": [fields["name"]], "va": fields["va"], "size_bytes": len(record.data)}
        if kind == "signal":
            return {**view, "signal": self.name(fields["va"]), "value": fields["value"]}
        return self.submission(view, fields, record.data)

    def submission(self, view: dict[str, Any], fields: dict[str, Any], data: bytes) -> dict[str, Any]:
        for va, size, name in fields["buffers"]:
            self.named[va] = (size, name or f"buffer@{va:x}")
        words = struct.unpack(f"<{len(data) // 4}I", data[: len(data) // 4 * 4])
        kinds = iter(fields["argument_kinds"])
        arch = self.arch.get(fields["device"], "")
        blocks: dict[int, tuple[str, Sequence[int]]] = {}
        at = fields["size_words"]
        for va, size, label in fields["blocks"]:
            blocks[va] = (label, words[at : at + size])
            at += size
        shown = list(self.decode(words[: fields["size_words"]], arch, kinds, blocks))
        kernels = sorted({packet["kernel"] for packet in _flat(shown) if "kernel" in packet})
        return {
            **view,
            "submission": fields["value"],
            "size_words": fields["size_words"],
            "kernels": kernels,
            "packets": shown,
            "commands": fields["commands"],
        }

    def decode(
        self,
        words: Sequence[int],
        arch: str,
        kinds: Iterator[str],
        blocks: dict[int, tuple[str, Sequence[int]]],
    ) -> Iterator[dict[str, Any]]:
        at = 0
        for packet in encode.decode(words):
            size = len(packet.words)
            shown: dict[str, Any] = {
                "at": at,
                "packet": type(packet).__name__,
                "fields": {name: _plain(packet, name) for name in packet.fields},
                "words": list(words[at : at + size]),
            }
            if packet.unclaimed:
                shown["unclaimed"] = packet.unclaimed
            if isinstance(packet, packets.Dispatch):
                shown["kernel"] = self.kernels.get(packet.entry, f"code@{packet.entry:#x}")
                shown["arguments"] = self.arguments(packet, arch, next(kinds, ""))
            for name in ("dst", "src", "signal", "address"):
                if name in packet.fields:
                    shown[name] = self.name(packet.values[name])
            if isinstance(packet, packets.Indirect) and packet.address in blocks:
                shown["address"], inside = blocks[packet.address]
                shown["packets"] = list(self.decode(inside, arch, kinds, {}))
            yield shown
            at += size

    def arguments(self, packet: packets.Dispatch, arch: str, kinds: str) -> list[str]:
        """The arguments as the kernel sees them, read from the packet's slots."""
        slots = struct.pack(f"<{len(packet.tail_words)}I", *packet.tail_words)
        if arch not in MACHINES:
            return []
        shape = encode.argument_shape(MACHINES[arch], "".join("f" if kind == "f" else "i" for kind in kinds))
        found: list[str] = []
        for kind, slot in zip(kinds, shape.slots):
            if 8 * slot + 8 > len(slots):
                return found
            if kind == "f":
                found.append(repr(struct.unpack_from("<d", slots, 8 * slot)[0]))
                continue
            (value,) = struct.unpack_from("<q", slots, 8 * slot)
            known = self.find(value)
            found.append(known or (f"unknown@{value:#x}" if kind == "b" else str(value)))
        return found

    def name(self, va: int) -> str:
        return self.find(va) or f"unknown@{va:#x}"

    def find(self, va: int) -> str:
        """What lies at an address, as name+offset; "" when nothing known does."""
        best = ""
        closest = -1
        for start, (size, name) in self.named.items():
            if start <= va < start + max(size, 1) and start > closest:
                best, closest = f"{name}+{va - start:#x}" if size != 16 or va != start else name, start
        if best:
            return best
        for start, size in self.mappings.items():
            if start <= va < start + size:
                return f"mapping@{start:x}+{va - start:#x}"
        for start, size in self.gone.items():
            if start <= va < start + size:
                return f"unmapped@{start:x}+{va - start:#x}"
        return ""


def _flat(shown: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for packet in shown:
        yield packet
        yield from _flat(packet.get("packets", []))


def _plain(packet: Packet, name: str) -> Any:
    value = packet.values[name]
    return getattr(value, "name", value)


def _lines(view: dict[str, Any], with_words: bool) -> Iterator[str]:
    when = f"+{view['seconds']:.6f} s"
    queue = view["queue"]
    if view["kind"] == "device":
        facts = view["facts"]
        yield f"device {queue}: {view['arch']}, {facts['threads']} threads, {facts['model']}, process {view['pid']}"
    elif view["kind"] == "map":
        yield f"{when}  {queue}: map {view['size_bytes']} bytes at {view['va']:#x}" + _called(view["name"])
    elif view["kind"] == "unmap":
        yield f"{when}  {queue}: unmap {view['size_bytes']} bytes at {view['va']:#x}"
    elif view["kind"] == "code":
        yield f"{when}  {queue}: code {view['kernels'][0]} at {view['va']:#x}, an object of {view['size_bytes']} bytes"
    elif view["kind"] == "signal":
        yield f"{when}  {queue}: the host saw {view['signal']} = {view['value']}"
    elif view["kind"] == "submit":
        yield f"#{view['submission']} {when}  {queue}: {view['size_words']} words"
        for packet in view["packets"]:
            yield from _packet_lines(packet, 1, with_words)


def _called(name: str | None) -> str:
    return f", first for {name}" if name else ""


def _packet_lines(packet: dict[str, Any], depth: int, with_words: bool) -> Iterator[str]:
    fields = packet["fields"]
    kind = packet["packet"]
    indent = "    " * depth
    if kind == "Dispatch":
        grid = f"({fields['grid_x']},{fields['grid_y']},{fields['grid_z']})"
        text = f"{packet['kernel']}({', '.join(packet['arguments'])}) grid={grid}"
        if fields["scratch_bytes"]:
            text += f" scratch={fields['scratch_bytes']}"
    elif kind == "Copy":
        text = f"{fields['size_bytes']} bytes {packet['src']} -> {packet['dst']}"
    elif kind == "Fill":
        text = f"{fields['size_bytes']} bytes at {packet['dst']} with {fields['pattern']:#018x}"
    elif kind == "Signal":
        text = f"{packet['signal']} = {fields['value']}"
    elif kind == "Wait":
        text = f"{packet['signal']} >= {fields['value']}"
    elif kind == "Timestamp":
        text = f"to {packet['address']}"
    elif kind == "Indirect":
        text = f"{packet['address']}: {fields['size_words']} words"
    else:
        text = ", ".join(f"{name}={value}" for name, value in fields.items() if name != "opcode")
    if "unclaimed" in packet:
        text += "".join(
            f" unclaimed_word_{index}={value:#010x}" for index, value in packet["unclaimed"].items()
        )
    yield f"{indent}{packet['at']:5d} {kind:<9} {text}"
    if with_words:
        shown = packet["words"]
        for start in range(0, len(shown), 8):
            yield f"{indent}      " + " ".join(f"{word:08x}" for word in shown[start : start + 8])
    for inner in packet.get("packets", []):
        yield from _packet_lines(inner, depth + 1, with_words)


if __name__ == "__main__":
    sys.exit(main())
