"""Envelopes: what tools and people put around a text and around each of its lines, taken off.

In       the bytes of a file that somebody pasted
Out      `plain`: the text in UTF-8 with line ends of its own; `bare`: its lines without stamps, prefixes and colours
Next     readers.py (who asks, and takes what more is understood of), kernel_log/log_lines.py (kernel logs keep their
         stamps)
Source   how these look: logcat, GitHub Actions, kubectl logs --prefix, torchrun, srun --label, cat -n, grep -n, RFC
         5424, journalctl -o json, netconsole, Markdown, Jira, Discourse, terminals

A prefix is one when four lines of five have it. What is a line of the material itself may look like one: so readers
try the text as it is first.
"""

from __future__ import annotations

import html
import json
import re

MOST_BYTES = 16 << 20  # larger files are read as they are
MOST_LAYERS = 6
HEAD_BYTES = 1 << 16
SHARE, SAMPLE = 0.8, 400  # of the lines that say something, and so many of them decide
NARROW, WIDE, USUAL = 60, 320, (72, 76, 80, 100, 120, 132, 160)  # of terminals
_STAMPED = re.compile(
    rb"(?:> ?)*(?:\[ *\d+\.\d+\]|\w{3} +\d+ \d\d:\d\d:\d\d |\d{4}-\d\d-\d\d[T ]\d\d:|[IDWE]\d{4} \d\d:\d\d"
    rb"|(?:\[pid +\d+\] |\d+ +)?(?:\d\d:\d\d:\d\d(?:\.\d+)? )?ioctl\()"
)
_MARKS = re.compile(
    r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|(?:\^\[|\\x1[bB]|\\033|\\e|\\u001[bB])\[[0-9;]{0,20}m"
)
_BARE_MARKS = re.compile(r"(?<!\x1b)\[(?:\d{1,2}(?:;\d{1,3}){0,4})?m")
_TAGS = re.compile(r"</?(?:code|pre|p|div|span|br|td|tr|details|summary|blockquote)\b[^<>]{0,200}>", re.I)
_FRAMES = re.compile(
    r"\s*(?:```\w*|~~~\w*|\{(?:code|noformat|quote)(?::[^{}\n]{0,80})?\}|\[/?(?:quote|code|pre)(?:=[^\]\n]{0,120})?\]"
    r"|Script (?:started|done) on .{0,200})\s*"
)
_STAMP = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
_CLOCK = r"\w{3,5} +\d+ (?:\d{4} )?\d\d:\d\d:\d\d|\d\d:\d\d:\d\d(?:\.\d+)?"
_BARS = re.compile(r"[│┃|] ?|[+] ?|[-*•] ")
PREFIXES = tuple(
    re.compile(text)
    for text in (
        r"(?:> ?)+|(?:&gt; ?)+",
        rf"{_STAMP} (?:##\[\w+\])?(?! *\S{{1,64}} kernel: )",
        r"\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} +\d+ +\d+ [VDIWEF] .{0,40}?: ",  # logcat
        r"\[pod/[^\]\s]{1,200}\] |\[(?:default|rank)\d+\]: ?|\[\d+,\d+\]<std\w+>: ?",
        r"[\w.-]{1,64} +\| ",  # docker compose
        r"<\d{1,3}>(?:1 \S+ \S+ \S+ \S+ \S+ (?:-|\[[^\]]{0,200}\]) )?",  # syslog's priority
        rf"(?:{_STAMP}|{_CLOCK}) (?:[\w.-]{{1,64}} )?(?:\w+\.\w+ )?kernel:? ",
        r"\[\w{3} +\d+ \d\d:\d\d\] |\[ +\+\d+\.\d+\] ",  # dmesg -H
        r"\d{1,2},\d{1,12},\d{1,16},[-c](?:,\w+=[^;]{0,80})*;",  # netconsole, /dev/kmsg
        r"\d{16,19} ",  # nanoseconds
        r"\[\d\d?[./]\d\d?[./]\d\d(?:\d\d)?,? \d\d:\d\d(?::\d\d)?\] [^:\n]{1,40}: ",  # messengers
        r" *\d+\t|\d{1,7}:(?=\D|0x|\d{4}|$)|[\w./-]{0,200}[A-Za-z][\w./-]{0,200}:\d{1,7}:",  # cat -n, grep -n
        _BARS,
        r"\d{1,4}: ",  # srun --label
    )
)
_ENDS = re.compile(r" ?[│┃|]\s*$")
_VALUE = re.compile(r'^\S.{0,300}?\b(?:msg|message)="((?:[^"\\]|\\.)*)"')


def plain(content: bytes) -> bytes:
    """A text as UTF-8: of UTF-16, with a mark of its order, with line ends of old, or as one text of JSON."""
    if len(content) > MOST_BYTES:
        return content
    for codec, marks in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        if content.startswith(marks) or _is_wide(content, codec):
            return plain(content.removeprefix(marks).decode(codec, "replace").encode())
    content = content.removeprefix(b"\xef\xbb\xbf")
    if b"\0" in content[:HEAD_BYTES]:
        return content
    if b"\r" in content and b"\n" not in content:
        content = content.replace(b"\r", b"\n")
    if content[:1] in b'{["' and content.count(b"\\n") > content.count(b"\n"):
        content = _of_json(content)
    return _joined(content)


def _joined(content: bytes) -> bytes:
    """A kernel log that a terminal broke at its width: a line of that width, and one without a stamp behind it."""
    lines = content.split(b"\n")
    stamped = [_STAMPED.match(line) is not None for line in lines]
    width = max((len(line.rstrip(b"\r")) for line in lines), default=0)
    if not NARROW <= width <= WIDE or sum(stamped) < max(1, len(lines) // 8):
        return content
    if width not in USUAL and sum(len(line.rstrip(b"\r")) == width for line in lines) < 2:
        return content
    found: list[bytes] = []
    is_cut = 0  # how wide the line before was, when it was as wide as the terminal
    for line, is_first in zip(lines, stamped):
        size = len(line.rstrip(b"\r"))
        if found and is_cut and not is_first and line.strip():
            found[-1] = found[-1].rstrip(b"\r") + (b"" if is_cut == width else b" ") + line
        else:
            found.append(line)
        is_cut = size if size >= width - 1 else 0
    return b"\n".join(found)


def _is_wide(content: bytes, codec: str) -> bool:
    """Whether it is UTF-16 without a mark: every other byte is 0."""
    head = content[:512]
    zeros = head[1::2] if codec == "utf-16-le" else head[::2]
    others = head[::2] if codec == "utf-16-le" else head[1::2]
    return (
        len(head) >= 64 and not any(zeros) and all(31 < one < 127 or one in b"\t\r\n\x1b" for one in others)
    )


def _of_json(content: bytes) -> bytes:
    """The texts of a document; as it is, where it is none, or where they have one line."""
    try:
        texts = list(_texts(json.loads(content), 0))
    except (ValueError, RecursionError):
        return content
    found = [text.replace("\r\n", "\n") for text in texts if "\n" in text]
    return "\n".join(found).encode("utf-8", "replace") if found else content


def _texts(value: object, deep: int) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in _texts(one, deep + 1)] if deep < 16 else []


def bare(content: bytes) -> bytes:
    """Lines without what is around them; the same bytes where nothing is."""
    if len(content) > MOST_BYTES or b"\0" in content[:HEAD_BYTES]:
        return content
    text = content.decode("utf-8", "replace").replace("\r\n", "\n").replace("\xa0", " ").replace("\u200b", "")
    if "<" in text:
        text = _TAGS.sub("", re.sub(r"<br ?/?>\n?|</(?:p|div|tr)>\n?", "\n", text))
    if "&" in text:
        text = html.unescape(text)
    text = _MARKS.sub("", text)
    if re.search(r"^\[\d{1,2}(?:;\d{1,3}){0,4}m", text, re.M):
        text = _BARE_MARKS.sub("", text)
    # lines keep their numbers
    lines = ["" if _FRAMES.fullmatch(line) else line for line in text.split("\n")]
    for _ in range(MOST_LAYERS):
        found = _without_one(lines)
        if found is None:
            break
        lines = found
    return "\n".join(_dedented(lines)).encode()


def _without_one(lines: list[str]) -> list[str] | None:
    """Without one layer that most lines have; None where there is none."""
    saying = [line for line in lines if line.strip()]
    if not saying:
        return None
    some = saying[:: max(1, len(saying) // SAMPLE)]
    if all(_of_row(line) is not None for line in some):
        return [line if (inner := _of_row(line)) is None else inner for line in lines]
    if sum(_VALUE.match(line) is not None for line in some) >= SHARE * len(some):
        return [_value(line) for line in lines]
    is_table = any(line.startswith("+--") for line in saying)  # the frame of nvidia-smi is its own
    for prefix in PREFIXES:
        if is_table and prefix is _BARS:
            continue
        if sum(bool((found := prefix.match(line)) and found.end()) for line in some) < SHARE * len(some):
            continue
        rows = [line[found.end() :] if (found := prefix.match(line)) else line for line in lines]
        ends = sum(bool(_ENDS.search(line)) for line in rows)
        return [_ENDS.sub("", line) for line in rows] if ends >= SHARE * len(saying) else rows
    return None


def _value(line: str) -> str:
    """What msg="..." says; the line itself, where it has none."""
    found = _VALUE.match(line)
    return line if found is None else found[1].replace('\\"', '"').replace("\\\\", "\\")


def _of_row(line: str) -> str | None:
    """What a line of a log in JSON says."""
    if not line.startswith("{"):
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    for name in ("MESSAGE", "log", "message", "msg", "text"):
        if isinstance(row, dict) and isinstance(row.get(name), str):
            return str(row[name]).rstrip("\n")
    return None


def _dedented(lines: list[str]) -> list[str]:
    """Without the spaces that all lines begin with."""
    saying = [line for line in lines if line.strip()]
    common = min((len(line) - len(line.lstrip(" ")) for line in saying), default=0)
    return [line[common:] if line.strip() else "" for line in lines]
