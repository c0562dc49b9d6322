"""Logs of ioctls that other programs recorded: strace, gVisor, and sniffers that print the arguments' bytes.

In       lines of text
Out      `Call`s in order: file, request, result, and the argument's bytes where the log has them
Next     tools/trace/decode.py (who prints them), tools/trace/ioctl_decode.py (what they mean),
         hcq/atlas/breaks.py (which of them break)
Source   what these programs print: strace (with -f, -t, -T, -y, -X raw or verbose, -e raw=ioctl), runsc --strace,
         perf trace, valgrind's mmt, libcudest's preload library, and hexdump -C, xxd or words below a call

    ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x46, 0x2a, 0x20), 0x7ffd23822ba0) = 0
    ioctl(3</dev/nvidiactl>, 0xc020462a, 0x7ffd23822ba0) = 0 <0.000021>
    ... strace.go:605] [   2:   2] python X ioctl(0x3 /dev/nvidiactl, 0xc020462a, 0x7ebe51113480) = 0 (0x0)
    --77-- pre_ioctl: fd:3, id:0x2a (full:0xc020462a), data: 0xc1d04214 0x5c000002 ...
    ioctl 2a, 32-byte param, fd 3 0xc1d04214 0x5c000002 0x2080012f 0x00000000
    0x0010 0x950713f0 0x00007fff 0x000000a8 0x00000000

Bytes below a call are what the argument was afterwards; with a word before them that says so (before, in) they are what
it was. Two dumps without a word are before and after. A dump headed "params" is what its pointer led to.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

UVM_STARTS = (0x30000001, 0x30000002)
DIRECTIONS = {"_IOC_NONE": 0, "_IOC_WRITE": 1, "_IOC_READ": 2}

_NAME = r"[A-Z][A-Z0-9_]+"  # strace joins those of several drivers with "or"
_NUMBER = r"(?:0x[0-9a-fA-F]+|\d+)"
_FILE = r"(?:fd:\s*)?(?P<fd>0x[0-9a-fA-F]+|\d+)(?:<(?P<angled>[^<>,]*)(?:<[^>]*>)?>|\s+(?P<plain>/[^,\s]+))?"
_IOCTL = re.compile(
    rf"\bioctl\(\s*{_FILE}\s*,\s*(?:cmd:\s*)?"
    rf"(?P<request>_IO[A-Z]*\([^)]*\)|{_NUMBER}|{_NAME}(?:\s+or\s+{_NAME})*)\s*(?P<rest>.*)$"
)
_COMMENT = re.compile(r"/\*\s*(.*?)\s*\*/")
_RESULT = re.compile(r"\)\s*=\s*(?P<result>-?\d+|-?0x[0-9a-fA-F]+|\?)(?:\s+(?P<error>E[A-Z0-9]+))?")
_RESUMED = re.compile(r"<\.\.\. ioctl resumed>")
_THREAD = re.compile(  # [pid 7], or a plain number before or after the time
    r"^\s*(?:\[pid\s+(\d+)\]|(?:\d[\d:]*[.:][\d:.]*\s+)?(\d+)(?=\s+(?:[\d:.]+\s+)?(?:(?:ioctl|open|openat|close)\b|<\.\.\.)))"
)
_OPEN = re.compile(
    r'\bopen(?:at)?\((?:[^,"]*,\s*)?(?:0x[0-9a-fA-F]+\s+)?"?(?P<path>/[^",\s]*)"?.*\)\s*=\s*(?P<fd>0x[0-9a-fA-F]+|\d+)'
)
_CLOSE = re.compile(r"\bclose\((0x[0-9a-fA-F]+|\d+)(?:<[^)]*>|\s+/[^)]*)?\)\s*=\s*0")
_IOC = re.compile(r"_IOC\(\s*([\w|]+)\s*,\s*('.'|\w+)\s*,\s*(\w+)\s*,\s*(\w+)\s*\)")
_IOWR = re.compile(r"_IO(W?)(R?)\(\s*('.'|\w+)\s*,\s*(\w+)\s*(?:,\s*(\w+)\s*)?\)")
_MMT = re.compile(
    r"\b(?P<when>pre|post)_ioctl: fd:(?P<fd>\d+), id:\w+ \(full:(?P<request>0x[0-9a-f]+)\), data:(?P<data>.*)"
)
_BARE = re.compile(r"\bioctl (?P<number>[0-9a-f]{2}), (?P<size>\d+)-byte param, fd (?P<fd>\d+)(?P<data>.*)")
_BARE_PARAMS = re.compile(r"\bGPU method (?:0x)?[0-9a-f]+:(?:0x)?[0-9a-f]+(?P<data>.*)")
_ERRNO = re.compile(r"\)\s*=\s*-?\w+(?:\s+\(-?\w+\))?\s+errno=(?P<number>\d+)")
_GVISOR = re.compile(r"nvproxy: (?P<said>.*?)\s*$")
_GVISOR_NUMBER = re.compile(
    r"(?P<what>control command|allocation class(?: ID)?|class) (?P<number>0x[0-9a-f]+)", re.IGNORECASE
)
_LABEL = re.compile(
    r"^\W*(?P<label>before|after|in|out|input|output|argument|params|parameters)\b\W*(?P<data>.*)$",
    re.IGNORECASE,
)
_OFFSET = re.compile(r"(?:0x)?[0-9a-fA-F]{4,16}:?")
_CELL = re.compile(r"0x[0-9a-fA-F]{1,8}|[0-9a-fA-F]{2}|[0-9a-fA-F]{4}")
LINE_BYTES = 16  # what hexdump and xxd print on a line
MAX_DIGITS = 24  # of a number: 64 bits and more


@dataclass
class Call:
    """One ioctl as a log has it; what was not recorded is empty."""

    line: int
    fd: int
    path: str
    request: int
    address: str = ""
    name: str = ""  # of the request, where the log has a name in place of the number
    result: int | None = None
    error: str = ""
    thread: str = ""
    before: bytes = b""
    after: bytes = b""
    params: bytes = b""
    notes: list[tuple[str, int]] = field(default_factory=list)  # what a proxy said about it: kind, number
    warnings: list[str] = field(default_factory=list)  # what else it said


def read(lines: Iterable[str]) -> Iterator[Call]:
    """The ioctls of a log, in the order in which they began. Lines of other kinds are passed over; nothing raises."""
    return iter(_Log().read(lines))


class _Log:
    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.files: dict[int, str] = {}
        self.waiting: dict[str, Call] = {}  # by thread: not returned yet
        self.last: Call | None = None  # the one that a dump belongs to
        self.label = ""
        self.dumps: list[tuple[str, bytearray]] = []  # of the last call: what was said of it, its bytes

    def read(self, lines: Iterable[str]) -> list[Call]:
        for number, line in enumerate(lines, 1):
            try:
                self.line(number, line.rstrip("\n"))
            except ValueError:  # digits that are no number: the log is damaged there
                continue
        self.settle()
        return self.calls

    def line(self, number: int, line: str) -> None:
        if opened := _OPEN.search(line):
            self.files[_int(opened["fd"])] = opened["path"]
        elif closed := _CLOSE.search(line):
            self.files.pop(_int(closed[1]), None)
        elif found := _IOCTL.search(line):
            self.ioctl(number, line, found)
        elif _RESUMED.search(line):
            self.returned(self.waiting.pop(_thread(line), None), line)
        elif found := _MMT.search(line):
            self.mmt(number, found)
        elif found := _BARE.search(line):
            request = 3 << 30 | _int(found["size"]) << 16 | ord("F") << 8 | int(found["number"], 16)
            self.begin(number, _int(found["fd"]), request)
            self.dump(found["data"], "")
        elif found := _BARE_PARAMS.search(line):
            self.dump(found["data"], "params")
        elif found := _GVISOR.search(line):
            self.proxy(line, found["said"])
        elif found := _LABEL.match(line):
            self.dump(found["data"], found["label"].lower())
        elif cells := _cells(line):
            self.more(*cells)

    # -- calls

    def ioctl(self, number: int, line: str, found: re.Match[str]) -> None:
        request = request_of(found["request"], found["rest"])
        fd, path = _int(found["fd"]), found["angled"] or found["plain"] or ""
        thread = _thread(line)
        entered = self.waiting.get(thread) if path or thread else None
        # gVisor prints a call when it begins and again when it ends
        if entered is not None and (entered.fd, entered.request) == (fd, request) and _RESULT.search(line):
            self.returned(self.waiting.pop(thread), line)
            return
        call = self.begin(number, fd, request, path, thread)
        call.name = "" if request or not found["request"][0].isalpha() else found["request"]
        rest = _COMMENT.sub("", found["rest"]).lstrip(" ,").removeprefix("arg:").lstrip()
        call.address = re.split(r"[\s),]", rest, maxsplit=1)[0]
        if _RESULT.search(rest):
            self.returned(call, line)
        else:
            self.waiting[thread] = call

    def begin(self, number: int, fd: int, request: int, path: str = "", thread: str = "") -> Call:
        self.settle()
        if not path and fd not in self.files and request in UVM_STARTS:
            path = "/dev/nvidia-uvm"  # opened before the log began
        if path:
            self.files[fd] = path
        call = Call(number, fd, self.files.get(fd, ""), request, thread=thread)
        self.calls.append(call)
        self.last = call
        return call

    def returned(self, call: Call | None, line: str) -> None:
        found = _RESULT.search(line)
        if call is not None and found is not None:
            call.result = None if found["result"] == "?" else _int(found["result"])
            call.error = found["error"] or ""
            if refused := _ERRNO.search(line):  # gVisor: = 0 (0x0) errno=22 (invalid argument)
                number = int(refused["number"][:MAX_DIGITS])
                call.error = errno.errorcode.get(number, f"errno {number}") if number else ""

    def proxy(self, line: str, said: str) -> None:
        """A line of nvproxy, of the call that its thread is in: what the call is for, or why it is refused."""
        call = self.waiting.get(_thread(line), self.last)
        if call is None:
            return
        number = _GVISOR_NUMBER.search(said)
        if number is not None:
            call.notes.append((number["what"].lower(), int(number["number"], 16)))
        is_told = re.match(r"\s*[DI]\d{4} ", line) is not None  # of level debug or info: no complaint
        if not is_told and (number is None or number[0] != said):
            call.warnings.append(said)

    def mmt(self, number: int, found: re.Match[str]) -> None:
        data = _hex_words(found["data"])
        fd, request = _int(found["fd"]), _int(found["request"])
        if (
            found["when"] == "post"
            and self.last is not None
            and (self.last.fd, self.last.request) == (fd, request)
        ):
            self.last.after = data
            return
        call = self.begin(number, fd, request)
        if found["when"] == "pre":
            call.before = data
        else:
            call.after = data

    # -- bytes below a call

    def dump(self, data: str, label: str) -> None:
        """A new dump begins, with what is on its first line."""
        if self.last is None:
            return
        self.label = label
        if label.startswith("param"):
            self.last.params += _bytes_of(data)
            return
        self.dumps.append((label, bytearray(_bytes_of(data))))

    def more(self, at: str | None, data: str) -> None:
        """A line of a dump; offset 0 begins another one. What is no offset that could follow is a word of the dump."""
        if self.last is None:
            return
        if self.label.startswith("param"):
            known = len(self.last.params)
        else:
            known = len(self.dumps[-1][1]) if self.dumps else 0
        if at is not None and int(at, 16) not in (0, known):
            at, data = None, f"{at} {data}"
        if self.label.startswith("param"):
            self.last.params += _bytes_of(data)
            return
        if not self.dumps or (at is not None and int(at, 16) == 0 and known):
            self.dumps.append(("", bytearray()))
        self.dumps[-1][1].extend(_bytes_of(data))

    def settle(self) -> None:
        """Give the last call its dumps."""
        if self.last is not None:
            for number, (label, data) in enumerate(self.dumps):
                is_first = not label and number == 0 and len(self.dumps) > 1
                if is_first or label in ("before", "in", "input"):
                    self.last.before = bytes(data)
                else:
                    self.last.after = bytes(data)
        self.dumps, self.label, self.last = [], "", None


def request_of(text: str, rest: str = "") -> int:
    """The number of a request, however it is written; 0 for a name, as strace has for the calls of other drivers."""
    commented = _COMMENT.search(rest)
    try:
        return _request(text) or _request(commented[1] if commented else "")
    except ValueError:  # digits that are none: the log is damaged there
        return 0


def _request(text: str) -> int:
    text = text.strip()
    if found := _IOC.fullmatch(text):
        way = 0
        for word in found[1].split("|"):
            way |= DIRECTIONS.get(word, _int(word) if word.isdecimal() else 0)
        return way << 30 | _int(found[4]) << 16 | _letter(found[2]) << 8 | _int(found[3])
    if found := _IOWR.fullmatch(text):
        way = (1 if found[1] else 0) | (2 if found[2] else 0)
        return way << 30 | _int(found[5] or "0") << 16 | _letter(found[3]) << 8 | _int(found[4])
    return _int(text) if re.fullmatch(_NUMBER, text) else 0


def _int(text: str) -> int:
    """A number of a log, decimal or with 0x; zeros may lead it. Raises ValueError for any other word."""
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{len(text)} digits")
    return int(text, 16 if text.lstrip("-").startswith(("0x", "0X")) else 10)


def _letter(text: str) -> int:
    return ord(text[1]) if text.startswith("'") else _int(text)


def _thread(line: str) -> str:
    found = _THREAD.match(line)
    if found is not None:
        return found[1] or found[2]
    sandboxed = re.search(r"\] \[\s*(\d+):\s*(\d+)\]", line)
    return f"{sandboxed[1]}:{sandboxed[2]}" if sandboxed else ""


def _cells(line: str) -> tuple[str | None, str] | None:
    """A line of a dump: its offset, where it has one, and its bytes or words; None for any other line."""
    words = line.lstrip(" |>\t").partition("|")[0].split()
    if not words:
        return None
    at = words[0].rstrip(":") if _OFFSET.fullmatch(words[0]) else None
    if at is None and not words[0].startswith("0x"):
        return None
    data: list[str] = []
    digits = 0
    for word in words[at is not None :]:
        if not _CELL.fullmatch(word) or (digits >= 2 * LINE_BYTES and not word.startswith("0x")):
            break  # the characters begin
        data.append(word)
        digits += len(word)
    return (at, " ".join(data)) if data else None


def _bytes_of(text: str) -> bytes:
    """A line of a dump: words with 0x are 32 bits, the rest is bytes in their order (xxd's pairs, too)."""
    if "0x" in text:
        return _hex_words(text)
    digits = "".join(re.findall(r"[0-9a-fA-F]+", text))
    return bytes.fromhex(digits[: len(digits) & ~1])


def _hex_words(text: str) -> bytes:
    return b"".join(
        int(word, 16).to_bytes(4, "little") for word in re.findall(r"0x([0-9a-fA-F]{1,8})\b", text)
    )
