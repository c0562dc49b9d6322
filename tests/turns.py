"""Turns: what is too much for every run of the whole check is done a part at a time, picked by the commit.

In       the hash of the commit, or TURN in the environment; the tests of a run, --turn=3/10 and --since=COMMIT
Out      the number of the turn (0 to 9), printed by this file as a program; the thorough tests whose turn it is; of
         tests marked `sampled`, the cases that are thorough ones
Next     .ci/run (which also picks the emulated GPU by it), conftest.py (the options)

    python tests/turns.py                                       the turn of the commit that is checked out
    make test-thorough PYTEST_FLAGS="--turn=3/10"               the thorough tests of turn 3
    TURN=3 .ci/run                                              the whole check, as it was in turn 3

A test has its turn by the hash of its name, so that neither a new test nor the machine moves another one. What changed
since a commit needs no turn: the thorough tests of a changed file, and the examples of a changed module's docstrings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pytest

TURNS = 10
ROOT = Path(__file__).resolve().parent.parent


class Turn(NamedTuple):
    """The turn that a run has: one of so many."""

    number: int
    of: int

    def has(self, name: str) -> bool:
        """Whether the test of this name has this turn."""
        return zlib.crc32(name.encode()) % self.of == self.number


def read(words: str) -> Turn:
    """A turn as a person writes it: 3/10 is the fourth of ten, as the first is 0/10.

    Raises  ValueError for other words, and for a number that is not below the number of turns
    """
    found = re.fullmatch(r"(\d+)/(\d+)", words)
    if found is None or int(found[1]) >= int(found[2]):
        raise ValueError(
            f"a turn is a number and how many there are, from 0/{TURNS} to 9/{TURNS}, not {words!r}"
        )
    return Turn(int(found[1]), int(found[2]))


def of_commit(commit: str) -> int:
    """The turn of a commit, by its hash."""
    return int(commit, 16) % TURNS


def changed_since(commit: str) -> list[str]:
    """The files that differ from those of a commit, new ones included."""
    differ = _git("diff", "--name-only", commit, "--")
    return [*differ, *_git("ls-files", "--others", "--exclude-standard")]


def seeds(often: int, of: int) -> list[Any]:
    """Parameters of a random law: its first seeds in every run, those after them as thorough ones."""
    import pytest  # which this file, as a program, can do without

    return [*range(often), *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(often, of))]


def beyond_the_sample(items: Sequence[pytest.Item]) -> list[pytest.Item]:
    """Of each test that is marked `sampled(count)` the cases after the first `count`, in the order of their hashes.

    So a sample is spread over all parameters, and each process of a run draws the same one. A case that is asked for by
    its name is in it.
    """
    of_tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled") and not item.get_closest_marker("thorough"):
            of_tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    beyond = []
    for cases in of_tests.values():
        marker = cases[0].get_closest_marker("sampled")
        assert marker is not None
        beyond += sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))[marker.args[0] :]
    return beyond


def left_out(items: Sequence[pytest.Item], turn: Turn, changed: Sequence[str] = ()) -> set[pytest.Item]:
    """The thorough tests that have another turn and are of no changed file or module.

    A case of a sampled test keeps its turn in a changed file, too: others of that test run every time.
    """
    files = {ROOT / path for path in changed}
    modules = tuple(f"[{module}." for module in map(_module, changed) if module)
    return {
        item
        for item in items
        if item.get_closest_marker("thorough")
        and not turn.has(item.nodeid)
        and (item.path not in files or item.get_closest_marker("sampled"))
        and not any(module in item.nodeid for module in modules)
    }


def _module(path: str) -> str:
    """The module that a file becomes where it is installed: hcq.frontend.nn.module. "" when it is none of ours."""
    floor, *inside = Path(path).with_suffix("").parts
    if floor not in ("hcq", "ir", "compiler", "frontend", "tools") or not path.endswith(".py"):
        return ""
    words = [floor, *inside] if floor == "hcq" else ["hcq", floor, *inside]
    return ".".join(words[:-1] if words[-1] == "__init__" else words)


def _git(*words: str) -> list[str]:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.splitlines()


def main() -> int:
    """The program. Returns its exit status."""
    asked = os.environ.get("TURN", "")
    try:
        number = read(f"{asked}/{TURNS}").number if asked else of_commit(_git("rev-parse", "HEAD")[0])
    except ValueError as error:
        print(f"{error}. TURN=0 says it by hand.", file=sys.stderr)
        return 2
    print(number)
    return 0


if __name__ == "__main__":
    sys.exit(main())
