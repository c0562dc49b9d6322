"""PTX text: what a loader needs of it where there is no machine code that says it.

In       PTX as LLVM or nvrtc writes it
Out      Module: its entries with parameters, shared and local memory, bounds on the block; its variables' names
Next     link.py (who asks), cubin.py (the same facts of machine code), hcq/emu/nv/shader/ (who runs PTX)
Source   PTX ISA 8.x: "Kernel and Function Directives", "State Spaces"; alignment and sizes as the C ABI has them;
         which versions have a target: what nvJitLink 13.5 takes
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from hcq.errors import UsageError

SIZES = {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}
SHARED_ALIGNMENT = 16  # what a launch asks for comes behind, aligned for any type
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TARGET = re.compile(r"(?<![\w.])\.target\s[^;.]*?\b(sm_(\d+)([a-z]?)\b)")
_VERSION = re.compile(r"(?<![\w.])\.version\s+(\d{1,4})\.(\d{1,4})\b")
# the first version of PTX that has a target; ptxas demands it, and no target is newer than what it knows
FIRST_VERSIONS = {
    "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_88": (9, 0), "sm_89": (7, 8),
    "sm_90": (7, 8), "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8), "sm_103": (8, 8),
    "sm_103a": (8, 8), "sm_103f": (8, 8), "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0), "sm_120": (8, 7),
    "sm_120a": (8, 7), "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8), "sm_121f": (8, 8),
}  # fmt: skip
NEWEST_VERSION = (9, 5)
_ENTRY = re.compile(r"\.entry\s+([\w$%]+)\s*(?:\(([^)]*)\))?([^{;]*)\{")
_VARIABLE = re.compile(
    r"(?<![\w.])\.(shared|local|global|const|param)\b((?:\s*\.\w+(?:\s+\d+)?)*?)\s*\.([usbf])(\d+)((?:\s*\.\w+(?:\s+\d+)?)*)"
    r"\s+([\w$%]+)((?:\s*\[\s*\d*\s*\])*)"
)
# what may follow the first of several variables of one declaration: its first contents, a comma, the next one's name
_CONTENTS = re.compile(r"\s*=\s*")
_NEXT = re.compile(r"\s*,\s*([\w$%]+)((?:\s*\[\s*\d*\s*\])*)")
_ALIGN = re.compile(r"\.align\s+(\d+)")
_LONG = re.compile(r"\d{64,}")  # no number of PTX is as long
_BOUND = re.compile(r"\.(reqntid|maxntid|reqnctapercluster)\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


class Parameter(NamedTuple):
    """A kernel parameter. kind: "float", "" for what may be a number or an address, "bytes" for a structure."""

    offset: int
    size_bytes: int
    kind: str


class Entry(NamedTuple):
    """One kernel. Blocks and clusters are () where it does not say. alignments: of its parameters, in bytes."""

    name: str
    parameters: tuple[Parameter, ...]
    alignments: tuple[int, ...]
    shared_bytes: int
    local_bytes: int
    required_block: tuple[int, ...]
    largest_block: tuple[int, ...]
    cluster: tuple[int, ...]

    @property
    def param_bytes(self) -> int:
        """How long the packed parameters are."""
        last = self.parameters[-1] if self.parameters else Parameter(0, 0, "")
        return last.offset + last.size_bytes

    def based(self, param_base: int) -> Entry:
        """The same with parameters that are aligned in the constant bank, where the first may begin at param_base.

        Offsets count from there: a tensor map, aligned to 64 bytes, is then not at 0 unless param_base is a multiple.
        """
        found: list[Parameter] = []
        at = param_base
        for parameter, alignment in zip(self.parameters, self.alignments):
            at = -(-at // alignment) * alignment
            found.append(parameter._replace(offset=at - param_base))
            at += parameter.size_bytes
        return self._replace(parameters=tuple(found))


class Module(NamedTuple):
    """What a text declares. `variables` are those that need memory before the first launch."""

    version: tuple[int, int]
    target: str
    entries: dict[str, Entry]
    variables: tuple[str, ...]


def read_module(text: str, label: str = "ptx") -> Module:
    """The facts of a text. Raises UsageError when it is no PTX with a kernel."""
    plain = _COMMENT.sub(" ", text)
    if long := _LONG.search(plain):
        raise UsageError(f"load({label!r}): the PTX has a number of {len(long[0])} digits. It is damaged.")
    for found in _ALIGN.finditer(plain):
        if int(found[1]).bit_count() != 1:
            raise UsageError(
                f"load({label!r}): the PTX has .align {found[1]}, no power of two. It is damaged."
            )
    target = _TARGET.search(plain)
    if target is None:
        raise UsageError(
            f"load({label!r}): the text has no .target line; it is no PTX. Give all of what was compiled."
        )
    version = _VERSION.search(plain)
    if version is None:
        raise UsageError(
            f"load({label!r}): the text has no .version line with a number such as 8.0; it is no PTX. "
            "Give all of what was compiled."
        )
    entries: dict[str, Entry] = {}
    outside = []
    at = 0
    for found in _ENTRY.finditer(plain):
        end = _closing(plain, found.end(), label)
        outside.append(plain[at : found.start()])
        entries[found[1]] = _entry(found[1], found[2] or "", found[3], plain[found.end() : end])
        at = end
    outside.append(plain[at:])
    if not entries:
        raise UsageError(f"load({label!r}): the PTX has no .entry. Mark a function __global__.")
    rest = "".join(outside)
    shared = _total(rest, "shared")
    for name, entry in entries.items():
        own = entry.shared_bytes + shared
        entries[name] = entry._replace(shared_bytes=-(-own // SHARED_ALIGNMENT) * SHARED_ALIGNMENT)
    variables = tuple(
        name
        for one in _VARIABLE.finditer(rest)
        if one[1] in ("global", "const")
        for name, _ in _declared(rest, one)
    )
    return Module((int(version[1]), int(version[2])), target[1], entries, variables)


def check_target(module: Module, arch: str, label: str) -> None:
    """Whether a text is for a device of this architecture. Raises UsageError that names both."""
    target, version = module.target, module.version
    known = re.fullmatch(r"sm_(\d+)([a-z]?)", target)
    assert known is not None
    wanted, only = int(known[1]), known[2]
    mine = int(arch.removeprefix("sm_"))
    # sm_90a: what only this architecture has, such as wgmma; sm_100f: what its family has, sm_100 to sm_109
    is_for_it = {"": wanted <= mine, "a": wanted == mine, "f": wanted <= mine and wanted // 10 == mine // 10}
    if not is_for_it.get(only, False):
        raise UsageError(
            f"load({label!r}): the PTX is for {target}, and this device is {arch}. Compile it for that."
        )
    shown = f"{version[0]}.{version[1]}"
    if version[0] > NEWEST_VERSION[0]:
        raise UsageError(
            f"load({label!r}): the PTX is of version {shown}, for {target}; the newest that is known is "
            f"{NEWEST_VERSION[0]}.{NEWEST_VERSION[1]}. Compile it with an older toolkit."
        )
    first = FIRST_VERSIONS.get(target, (0, 0))
    if version < first:
        raise UsageError(
            f"load({label!r}): the PTX is of version {shown}, which has no {target}: that came with "
            f"{first[0]}.{first[1]}, and this device is {arch}. Write .version {first[0]}.{first[1]}."
        )


def _entry(name: str, parameters: str, bounds: str, body: str) -> Entry:
    found: list[Parameter] = []
    alignments: list[int] = []
    for one in _VARIABLE.finditer(parameters):
        size, alignment = _size(one, one[7])
        kind = "bytes" if one[7] else "float" if one[3] == "f" else ""
        found.append(Parameter(0, size, kind))
        alignments.append(alignment)
    blocks = {
        one[1]: tuple(int(number) if number else 1 for number in one.groups()[1:])
        for one in _BOUND.finditer(bounds)
    }
    made = Entry(
        name,
        tuple(found),
        tuple(alignments),
        _total(body, "shared"),
        _total(body, "local"),
        blocks.get("reqntid", ()),
        blocks.get("maxntid", ()),
        blocks.get("reqnctapercluster", ()),
    )
    return made.based(0)


def _total(text: str, space: str) -> int:
    """Bytes of all variables of a state space, one after the other."""
    at = 0
    for one in _VARIABLE.finditer(text):
        if one[1] == space:
            for _, lengths in _declared(text, one):
                size, alignment = _size(one, lengths)
                at = -(-at // alignment) * alignment + size if size else at
    return at


def _declared(text: str, found: re.Match[str]) -> Iterator[tuple[str, str]]:
    """The variables of one declaration, with commas between them: (name, its lengths in brackets)."""
    one: re.Match[str] | None = found
    name, lengths = found[6], found[7]
    while one is not None:
        yield name, lengths
        at = one.end()
        if contents := _CONTENTS.match(text, at):
            at = contents.end()
            depth = 0
            while at < len(text) and (depth or text[at] not in ",;"):
                depth += (text[at] in "{(") - (text[at] in "})")
                at += 1
        one = _NEXT.match(text, at)
        if one is not None:
            name, lengths = one[1], one[2]


def _size(found: re.Match[str], lengths: str) -> tuple[int, int]:
    """(size, alignment) of a variable; one without a length, as extern shared memory has, counts as empty."""
    element = SIZES.get(found[4], 4)
    count = 1
    for length in re.findall(r"\[\s*(\d*)\s*\]", lengths):
        count *= int(length or 0)
    is_pointer = ".ptr" in found[5]  # .align then speaks of what it points to
    aligned = None if is_pointer else _ALIGN.search(found[2] + found[5])
    return element * count, int(aligned[1]) if aligned else element


def _closing(text: str, at: int, label: str) -> int:
    """Where the brace that was opened before `at` is closed."""
    depth = 1
    for brace in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if brace[0] == "{" else -1
        if not depth:
            return brace.end()
    raise UsageError(f"load({label!r}): the PTX ends inside a function. Give all of what was compiled.")
