"""Results: what searches found, as text: one line for each kernel, sorted.

In       lines; the results of one search
Out      `Result`s by what they are for; lines again; the union of two files
Changes  nothing: files are read and written by frontend/search/store.py
Next     beam.py (who finds), frontend/search/ (who asks for a kernel's schedule)

    kernel=dot_64x64_from_64 key=... target=cpu/x86_64/... toolchain=llvmlite-0.45.0 by=timeline width=4 tried=96 \
        ns=812 heuristic_ns=1023 schedule=split r0 9; unroll r0.1

A line is for one kernel (the digest of its graph, shapes and dtypes included), one target and one toolchain: others do
not take it. What a model found serves a real device until it has been searched there. The union of two files is their
lines; of two for one kernel that of the wider search stays, then the faster one, so the order in which files are merged
makes no difference. `sort -u` of both is a file, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

HEADER = "# schedules that searches found (HCQ_SEARCH); one line a kernel; `python -m hcq search --help`"
# the device's clock; the model of an emulated GPU's time; its roofline, which was the model before
METHODS = ("timeline", "model", "counters")
MAX_LINE = 1 << 16


class DamagedResults(ValueError):
    """A line that is no result; says which and why."""


Place = tuple[str, str, str, str]  # what a result is for: key, target, toolchain, and how it was measured


@dataclass(frozen=True, order=True)
class Result:
    """What one search found.

    kernel        its name, for people
    key           the digest of its graph
    target        what it was compiled for: name/architecture/key
    toolchain     with which LLVM
    by            how candidates were measured: one of METHODS
    width         of the beam; 0 where the search was cut short
    tried         candidates
    ns            the time of the schedule
    heuristic_ns  the time of the heuristic's, measured beside it
    schedule      text; "-" stands for the heuristic's choice, where nothing was better
    """

    kernel: str
    key: str
    target: str
    toolchain: str
    by: str
    width: int
    tried: int
    ns: int
    heuristic_ns: int
    schedule: str

    @property
    def place(self) -> Place:
        """What it is for."""
        return self.key, self.target, self.toolchain, self.by

    @property
    def gain(self) -> float:
        """How many times faster than the heuristic's schedule."""
        return self.heuristic_ns / self.ns if self.ns else 1.0

    def line(self) -> str:
        """As it stands in a file."""
        return " ".join(f"{one.name}={getattr(self, one.name)}" for one in fields(self))

    @classmethod
    def from_line(cls, line: str) -> Result:
        """The inverse of `line`. Raises DamagedResults for anything else."""
        if len(line) > MAX_LINE:
            raise DamagedResults(f"a line of {len(line)} characters is no result")
        head, found, schedule = line.partition(" schedule=")
        pairs = [word.partition("=") for word in head.split()]
        given = {name: value for name, _, value in pairs}
        names = [one.name for one in fields(cls)][:-1]
        if not found or list(given) != names or len(pairs) != len(names):
            raise DamagedResults(
                f"{_shown(line)} is no result: expected {' '.join(f'{name}=...' for name in names)} schedule=..."
            )
        numbers = {}
        for name in ("width", "tried", "ns", "heuristic_ns"):
            if not given[name].isascii() or not given[name].isdecimal() or len(given[name]) > 18:
                raise DamagedResults(f"{_shown(line)} is no result: {name} is no whole number")
            numbers[name] = int(given[name])
        if given["by"] not in METHODS:
            raise DamagedResults(f"{_shown(line)} is no result: by is one of {', '.join(METHODS)}")
        if not schedule.strip() or not schedule.isprintable():
            raise DamagedResults(f"{_shown(line)} is no result: its schedule is empty, or no text")
        return cls(
            kernel=given["kernel"],
            key=given["key"],
            target=given["target"],
            toolchain=given["toolchain"],
            by=given["by"],
            schedule=schedule.strip(),
            **numbers,
        )


Results = Mapping[Place, Result]


def parse(text: str) -> tuple[dict[Place, Result], list[str]]:
    """The results in the text of a file, and a sentence for each line that is none."""
    found: list[Result] = []
    problems = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            found.append(Result.from_line(line))
        except DamagedResults as problem:
            problems.append(f"line {number}: {problem}")
    return union(found), problems


def best_for(found: Results, place: Place) -> Result | None:
    """The result for a place; where there is none that was measured so, one that was measured otherwise."""
    others = [(*place[:3], by) for by in METHODS if by != place[3]]
    return next((found[one] for one in (place, *others) if one in found), None)


def union(results: Iterable[Result]) -> dict[Place, Result]:
    """The best result for each place, in the order of their lines."""
    best: dict[Place, Result] = {}
    for one in results:
        other = best.get(one.place)
        best[one.place] = one if other is None else max(one, other, key=_merit)
    return {one.place: one for one in sorted(best.values())}


def merge(*files: Results) -> dict[Place, Result]:
    """The union of several files: commutative, associative, and a file with itself is that file."""
    return union(one for file in files for one in file.values())


def text_of(found: Results) -> str:
    """The text of a file."""
    return "".join(f"{line}\n" for line in [HEADER, *[one.line() for one in sorted(found.values())]])


def _merit(one: Result) -> tuple[int, float, Result]:
    """A wider search, then a faster schedule; the rest decides what is left, so that no order does."""
    return one.width, -one.ns, one


def _shown(line: str) -> str:
    return repr(line if len(line) <= 60 else f"{line[:57]}...")
