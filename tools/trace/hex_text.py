"""Words that people paste: hex of any tool, or a binary file, as 32-bit words, little endian.

In       the bytes of a file
Out      `Pasted`: the words, and what was passed over and why
Next     amd_words.py (what the words mean)
Source   what these print: hexdump, hexdump -C, od -x, xxd, gdb x/4wx, x/2gx, x/8xb, x/8xh, the kernel's
         print_hex_dump and its devcoredumps (offset and value), umr (ring[ 5] == 0x..., IB[ 5] = 0x...), arrays of C,
         lists of Python

    c0012800 80000000                     words, with or without 0x
    00000000  00 28 01 c0 00 00 00 80     bytes behind an offset, in the order of memory
    00000000: 0028 01c0 0000 0080         xxd: pairs of bytes, in the order of memory
    0000000 2800 c001 0000 8000           hexdump, od -x: numbers of 16 bits, without a colon

Nothing raises: a line without words is counted, a line that breaks off in the middle is named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

MAX_BYTES = 1 << 23  # of a file; what is behind it is left out
MAX_NOTES = 8
WORDS_OF_PROSE = 4  # so many words may stand beside one line that has none
_LINE_CHARACTERS = 4096  # a line of a dump is short; one that is longer is read in this many
_REPEATED_BYTES = 1 << 20  # at most so much does a * of hexdump stand for

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_TIME = re.compile(r"^\s*(?:<\d+>)?\[\s*\d+\.\d+\]\s*")
_COMMENT = re.compile(r"#|//|/\*|;(?=\s|$)|\s\|")
_UMR = re.compile(r"\b(?:ring|IB)\s*\[\s*\d+\s*\]\s*==?\s*(0x[0-9a-fA-F]{1,8})\b", re.IGNORECASE)
_UMR_STREAM = re.compile(r"^\s*\[0x[0-9a-fA-F]+@0x[0-9a-fA-F]+\s*\+\s*0x[0-9a-fA-F]+\]")
_OFFSET = re.compile(r"(?:^|\s)(?P<at>0x[0-9a-fA-F]{1,16}|[0-9a-fA-F]{3,16})(?:\s*<[^>]*>)?:(?=\s)")
# [ 5] 0xc0012800, dw5: 0xc0012800, 5,0xc0012800
_INDEX = re.compile(
    r"^\s*(?:\[\s*\d+\s*\]\s*[:=]*\s*(?=\w)"
    r"|(?:dw|dword|word)\s*\[?\d{1,6}\]?\s*[:=]?\s+(?=\w)"
    r"|\d{1,6},\s*(?=0x[0-9a-fA-F]{8}\b))",
    re.IGNORECASE,
)
# how languages and debuggers spell a number: 0xc001_2800, 0xc0012800_u32, C0012800h, 00000000`00001000, fromhex("...")
_SPELLED = (
    (re.compile(r":\s*\[[ui]\d{1,3};\s*\w{1,20}\](?=\s*=)"), ""),
    (re.compile(r"(0x[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*)_?[ui](?:8|16|32|64)\b"), r"\1"),
    (re.compile(r"\b(0x[0-9a-fA-F]{1,8})_(?=[0-9a-fA-F]{1,8}\b)"), r"\1"),
    (re.compile(r"\b([0-9A-F]{8})h\b"), r"0x\1"),
    (re.compile(r"\b([0-9a-fA-F]{8})`([0-9a-fA-F]{8})\b(?=\s)"), r"\1\2:"),
    (re.compile(r"^.{0,80}\bfromhex\(\s*b?[\"']([0-9a-fA-F\s]+)[\"']\).{0,20}$"), r"\1"),
)
_TYPE = re.compile(r"\s*,\s*dtype=[^)\]]{1,40}(?=[)\]])")
_ARRAY = re.compile(r"\b(?:np\.|numpy\.)?array\(\[([^\]]*)\]\)")
_CODE = re.compile(r"[{\[]|[^=]=[^=]")  # of a line that begins with a name, and has words all the same
# [3221388800, 523, ...], with a name before it or without
_DECIMALS = re.compile(
    r"[>\s]*(?:[A-Za-z_]\w{0,60}\s*=\s*)?[\[({]?[>\s]*\d{1,10}(?:[>\s]*,[>\s]*\d{1,10}){1,2000000}"
    r"[>\s]*,?[>\s]*[\])}]?[;\s]*"
)
NUMPY_CHARACTERS = 4096  # in which it says what it is
_SPLIT = re.compile(r"[\s,{}\[\]()'\"]+")
_NUMBER = re.compile(r"0x[0-9a-fA-F]{1,16}[uUlL]{0,3}")
_SMALL = re.compile(r"((?:0x[0-9a-fA-F]{2} ?)+)|(?:0x[0-9a-fA-F]{4} ?)+")
_DIGITS = re.compile(r"[0-9a-fA-F]+")


class Pasted(NamedTuple):
    """words   of 32 bits
    notes      what was passed over, in sentences
    is_clean   it is words for the most part, and none is broken, so that it may be taken for words without asking
    """

    words: list[int]
    notes: list[str]
    is_clean: bool


def is_binary(content: bytes) -> bool:
    """Whether these are the bytes themselves and no text about them."""
    head = content[:4096]
    if b"\0" in head:
        return True
    controls = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in head)
    return controls * 20 > len(head)


def read(content: bytes, is_in_order: bool = False) -> Pasted:
    """The words of a file, text or not. is_in_order: digits without 0x are bytes in the order of memory."""
    notes = []
    if len(content) > MAX_BYTES:
        notes.append(f"{len(content) - MAX_BYTES} bytes behind the first {MAX_BYTES} are left out")
        content = content[:MAX_BYTES]
    if is_binary(content):
        return _pasted(content, notes, True)
    text = content.decode("utf-8", "replace")
    if "array(" in text[:NUMPY_CHARACTERS]:
        text = _ARRAY.sub(r"[\1]", _TYPE.sub("", text))
    if (numbers := _decimals(text)) is not None:
        notes.append("the numbers are decimal: hex has no words of ten digits")
        return Pasted(numbers, notes, True)
    return _Text(notes, is_in_order).read(text.splitlines())


def _decimals(text: str) -> list[int] | None:
    """The words of a list of decimal numbers, as Python prints one; None for another text."""
    if _DECIMALS.fullmatch(text) is None:
        return None
    cells = [cell for cell in re.split(r"[^0-9]+", text.partition("=")[2] or text) if cell]
    numbers = [int(cell) for cell in cells if len(cell) <= 10]
    is_sure = any(len(cell) == 10 for cell in cells) and len(numbers) == len(cells)
    return numbers if is_sure and max(numbers) < 1 << 32 else None


def _pasted(data: bytes, notes: list[str], is_clean: bool) -> Pasted:
    rest = len(data) % 4
    if rest:
        notes.append(f"{rest} bytes at the end are no whole word")
    whole = data[: len(data) - rest]
    words = [int.from_bytes(whole[at : at + 4], "little") for at in range(0, len(whole), 4)]
    return Pasted(words, notes, is_clean)


class _Text:
    def __init__(self, notes: list[str], is_in_order: bool) -> None:
        self.notes = notes
        self.is_in_order = is_in_order
        self.data = bytearray()
        self.dropped = self.taken = self.broken = self.decoded = 0  # lines
        self.last = b""  # bytes of the last line
        self.ends: int | None = None  # the offset that the next line should have
        self.is_repeating = self.is_cut = False

    def read(self, lines: Sequence[str]) -> Pasted:
        texts = [_bare(line) for line in lines]
        has_offsets = _first_cells_are_offsets(texts)
        for number, text in enumerate(texts, 1):
            self.line(number, text, has_offsets)
        if self.dropped:
            self.notes.append(f"{self.dropped} lines without words are passed over")
        if self.decoded:
            self.notes.append(
                f"{self.decoded} lines of umr's decoded stream are passed over: it leaves words out; umr -R has all"
            )
        if self.broken > MAX_NOTES:
            self.notes.append(f"{self.broken - MAX_NOTES} more lines break off")
        # a mail around one long line has more lines than that
        most = max(self.taken, len(self.data) // 4 // WORDS_OF_PROSE)
        broken = self.broken - (self.is_cut and self.taken > 0)
        return _pasted(bytes(self.data), self.notes, not (broken or self.decoded) and self.dropped <= most)

    def line(self, number: int, text: str, has_offsets: bool) -> None:
        if umr := _UMR.search(text):
            self.data += int(umr[1], 16).to_bytes(4, "little")
            self.taken += 1
            return
        if _UMR_STREAM.search(text):
            self.decoded += 1
            return
        if text.strip() == "*":
            self.is_repeating = True
            return
        text = _INDEX.sub("", _COMMENT.split(text, maxsplit=1)[0])
        if not any(character.isalnum() for character in text):
            return
        at: int | None = None
        has_colon = is_of_7 = False  # 7 digits are octal when od prints them and hex when hexdump does
        if found := _OFFSET.search(text):
            at, text, has_colon = int(found["at"], 16), text[found.end() :], True
        cells = [cell for cell in _SPLIT.split(text) if cell]
        if not has_colon and len(cells) > 1 and _is_cell(cells[0]) and (has_offsets or _is_offset(cells)):
            first = cells.pop(0)
            at, is_of_7 = _offset_of(first), len(first) == 7
        elif not has_colon and len(cells) == 1 and self.is_end(cells[0]):
            return
        if has_colon and _width(cells) in (2, 4):  # the characters stand behind two spaces
            cells = re.split(r"\s{2,}", text.strip(), maxsplit=1)[0].split()
        if cells and not _is_cell(cells[0]) and not _CODE.search(text):
            self.dropped += 1
            return
        data, is_whole = _bytes_of(cells, has_colon or self.is_in_order, self.is_in_order)
        if len(cells) > 3 and len(cells[-1]) < 8 and all(len(cell) == 8 for cell in cells[:-1]):
            data, _ = _bytes_of(cells[:-1], has_colon or self.is_in_order, self.is_in_order)
            is_whole = False  # the last word is not all there
        if not data:
            self.dropped += 1
            return
        self.taken += 1
        self.is_cut = False
        if not is_whole:
            self.broken += 1
            # the text ends in the middle of a word, if no other line with words follows
            rest, is_whole = _bytes_of(cells[:-1], has_colon or self.is_in_order, self.is_in_order)
            self.is_cut = is_whole and rest == data and bool(_DIGITS.fullmatch(cells[-1].removeprefix("0x")))
            if self.broken <= MAX_NOTES:
                self.notes.append(f"line {number} has something that is no word, and is read up to there")
        if at is not None:
            self.repeat(None if is_of_7 else at)
        self.data += data
        self.last, self.ends = data, None if at is None else at + len(data)
        self.is_repeating = False

    def is_end(self, cell: str) -> bool:
        """Whether a line is the last one of hexdump, which has the offset of the end alone."""
        if self.ends is None or not _DIGITS.fullmatch(cell) or len(cell) < 7:
            return False
        if len(cell) == 7:
            self.repeat(None)
            return True
        if not self.is_repeating and int(cell, 16) != self.ends:
            return False
        self.repeat(int(cell, 16))
        return True

    def repeat(self, until: int | None) -> None:
        """A * stands for lines like the last one, up to the next offset."""
        if not self.is_repeating or not self.last:
            return
        missing = until - self.ends if until is not None and self.ends is not None else 0
        if 0 < missing <= _REPEATED_BYTES and missing % len(self.last) == 0:
            self.data += self.last * (missing // len(self.last))
        else:
            self.notes.append("a * stands for repeated lines, and how many cannot be told: they are left out")
        self.is_repeating = False


def _bare(line: str) -> str:
    """A line without colours, time and marks of quotation."""
    text = _COLOURS.sub("", line[:_LINE_CHARACTERS]).replace("\u00a0", " ")
    for spelled, plain in _SPELLED:
        text = spelled.sub(plain, text)
    return _TIME.sub("", text).lstrip("> \t").rstrip()


def _first_cells_are_offsets(texts: Sequence[str]) -> bool:
    """Whether each line begins with where its words stand, in bytes, without a colon behind it."""
    return _counts_on(texts, 16) or _counts_on(texts, 8)


def _counts_on(texts: Sequence[str], base: int) -> bool:
    before: tuple[int, int] | None = None
    fits = pairs = 0
    for text in texts:
        cells = [cell for cell in _SPLIT.split(_COMMENT.split(text, maxsplit=1)[0]) if cell]
        digits = cells[0].removeprefix("0x") if cells else ""
        is_of_od = base == 16 or (len(digits) == 7 and not set(digits) & set("89abcdefABCDEF"))
        if len(cells) < 2 or len(digits) > 16 or not _DIGITS.fullmatch(digits) or not is_of_od:
            before = None
            continue
        first = int(digits, base)
        if before is not None:
            pairs += 1
            fits += first == before[0] + 4 * before[1]
        before = first, len(cells) - 1
    return fits > 0 and fits * 5 >= pairs * 4


def _is_offset(cells: Sequence[str]) -> bool:
    """Whether the first cell has another form than the others, as in hexdump: 00000010  c0 01 28 00."""
    others = {len(cell) for cell in cells[1:3]}
    return bool(_DIGITS.fullmatch(cells[0])) and len(cells[0]) >= 6 and others in ({2}, {4})


def _offset_of(cell: str) -> int | None:
    digits = cell.removeprefix("0x")
    return int(digits, 16) if _DIGITS.fullmatch(digits) else None


def _width(cells: Sequence[str]) -> int:
    return len(cells[0]) if cells else 0


def _is_cell(cell: str) -> bool:
    return bool(_NUMBER.fullmatch(cell) or _DIGITS.fullmatch(cell))


def _bytes_of(cells: Sequence[str], has_colon: bool, is_in_order: bool) -> tuple[bytes, bool]:
    """The bytes of a line's cells up to the first that is none, and whether that was all of them."""
    data = bytearray()
    is_code = bool(cells) and not _is_cell(cells[0])
    if has_colon and len(cells) >= 4 and (small := _SMALL.fullmatch(" ".join(cells))):  # gdb x/8xb, x/8xh
        size = 1 if small[1] else 2
        return b"".join(int(cell, 16).to_bytes(size, "little") for cell in cells), True
    has_words = any(len(cell) == 8 for cell in cells)  # then a short one is a word without its zeros
    for cell in cells:
        digits = cell.removeprefix("0x").rstrip("uUlL")
        if _NUMBER.fullmatch(cell):
            data += int(digits, 16).to_bytes(4 if len(digits) <= 8 else 8, "little")
        elif is_code:
            continue  # a name or a type before numbers with 0x: uint32_t ib[] = {0xc0012800,
        elif not _DIGITS.fullmatch(cell):
            return bytes(data), False
        elif has_words and len(cell) <= 8 and not is_in_order:
            data += int(cell, 16).to_bytes(4, "little")
        elif len(cell) not in (2, 4, 8) and (len(cell) < 16 or len(cell) % 2):
            return bytes(data), False
        elif len(cell) == 16 and not is_in_order:
            data += int(cell, 16).to_bytes(8, "little")
        elif len(cell) == 4 and not has_colon:
            data += int(cell, 16).to_bytes(2, "little")
        else:  # bytes in the order of memory
            data += bytes.fromhex(cell)
    return bytes(data), True
