"""The law of door plates: every file, folder and name that the docstring at the top of a module names is there.

In       the docstrings of modules: their fields In, Out, Changes, Next
Out      a line for each name that leads nowhere, and each idle line; the exit status 1 when there is one
Changes  with --mend, door plates: a file that has moved is named where it is, if there is one; idle lines go
Next     Makefile (`make lint` runs it), CONTRIBUTING.md (what a door plate says)

    python .ci/plates.py [--mend]

A file (`rings.py`) is looked for beside the module, in each folder above it, and in the floors of the package (`hcq/`,
`frontend/`, ...). In Next this holds for folders and files of data, too; elsewhere these may be a program's own. A name
in backquotes, `Missing` or `ast.walk`, has to occur in the code of the project, wherever that is.

A plate without the field Changes says that the file changes nothing, so a line that says only this is idle.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FLOORS = ("hcq", "frontend", "compiler", "ir", "tools")
WIDTH = 120
IDLE = re.compile(r"^Changes +nothing\n", re.MULTILINE)
FIELDS = ("In", "Out", "Changes", "Next")
_PATH = r"(?<![\w/.*<-])(?:\.{1,2}/)*[\w.-]*\w[\w./-]*"
SOURCE = re.compile(_PATH + r"\.(?:py|pyi|md|ll)\b(?!\()")
PLACE = re.compile(_PATH + r"(?:\.(?:py|pyi|md|ll|json|js|toml)\b(?!\()|/(?=[\s,;:.)(`]|$))")
QUOTED = re.compile(r"`([^`\n]+)`")
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")


class Missing(NamedTuple):
    """A name on a door plate that leads nowhere, and the one that was meant, where that can be told."""

    file: Path
    name: str
    meant: str


def main(argv: Sequence[str]) -> int:
    """The program. Returns its exit status."""
    root = Path(__file__).resolve().parent.parent
    found, idle = list(missing(root)), list(with_idle_line(root))
    if argv == ["--mend"]:
        for one in found:
            mend(one)
        for file in idle:
            file.write_text(IDLE.sub("", file.read_text(encoding="utf-8"), count=1), encoding="utf-8")
        found, idle = list(missing(root)), list(with_idle_line(root))
    for file, name, meant in found:
        hint = f": {meant} is, which --mend writes" if meant else ""
        print(f"{file.relative_to(root)}: its door plate names {name}, which is not there{hint}")
    for file in idle:
        print(
            f"{file.relative_to(root)}: its door plate has a line Changes that says nothing, which --mend takes away"
        )
    return 1 if found or idle else 0


def with_idle_line(root: Path) -> Iterator[Path]:
    """Every file, tests and laws included, whose door plate says in a line of its own that the file changes nothing."""
    for folder in (*FLOORS, "tests", "examples", ".ci"):
        for path in sorted((root / folder).rglob("*.py")):
            start, *plate = path.read_text(encoding="utf-8").split('"""', 2)[:2]
            if plate and not start.strip() and IDLE.search(plate[0]):
                yield path


def missing(root: Path, floors: Sequence[str] = FLOORS) -> Iterator[Missing]:
    """Every name that leads nowhere, in the order of the files."""
    files = [path for floor in floors for path in sorted((root / floor).rglob("*.py"))]
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in files}
    known = set(dir(builtins)).union(*map(words, trees.values()))
    for path, tree in trees.items():
        plate = ast.get_docstring(tree) or ""
        all_fields, following = fields(plate, FIELDS), fields(plate, ("Next",))
        places = [*path.parents[: len(path.relative_to(root).parts)], *(root / floor for floor in floors)]
        for name in dict.fromkeys([*SOURCE.findall(all_fields), *PLACE.findall(following)]):
            if not any(is_there(place, name) for place in places):
                yield Missing(path, name, meant_by(name, path, files, root))
        for quoted in QUOTED.findall(all_fields):
            if NAME.fullmatch(quoted) and not known.issuperset(quoted.split(".")):
                yield Missing(path, f"`{quoted}`", "")


def fields(text: str, heads: Sequence[str]) -> str:
    """What these fields of a door plate say."""
    found = re.findall(
        rf"^(?:{'|'.join(heads)})\s+(.*?)(?=\n\n|\n[A-Z]\w*\s\s|\Z)", text, re.DOTALL | re.MULTILINE
    )
    return "\n".join(found)


def is_there(place: Path, name: str) -> bool:
    """Whether the name leads to a file or a folder from this place; `hcq/ir/` is `ir/` in a checkout."""
    names = (name, name.removeprefix("hcq/"))
    return any(Path(os.path.normpath(place / one)).exists() for one in names)


def meant_by(name: str, path: Path, files: Sequence[Path], root: Path) -> str:
    """The one file of this name below the module's folder, as seen from there; else the one of all, from the root."""
    same = [
        file for file in files if file.name == Path(name).name and file != path and not name.endswith("/")
    ]
    below = [file for file in same if file.is_relative_to(path.parent)]
    if len(below) == 1:
        return below[0].relative_to(path.parent).as_posix()
    return same[0].relative_to(root).as_posix() if len(same) == 1 else ""


def mend(one: Missing) -> None:
    """Write the name that was meant into the door plate."""
    if not one.meant:
        return
    text = one.file.read_text(encoding="utf-8")
    end = text.index('"""', text.index('"""') + 3)
    plate = re.sub(rf"(?<![\w/.-]){re.escape(one.name)}(?![\w/])", one.meant, text[:end])
    one.file.write_text("\n".join(map(folded, plate.split("\n"))) + text[end:], encoding="utf-8")


def folded(line: str) -> str:
    """A line that fits; what is over it goes to a line of its own, below the field's text."""
    if len(line) <= WIDTH:
        return line
    at = line.rindex(" ", 0, WIDTH)
    return line[:at] + "\n" + " " * 9 + line[at + 1 :]


def words(tree: ast.Module) -> set[str]:
    """The identifiers of a module, and the words of its strings but docstrings: names may be made of these."""
    docs, found = set(), set()
    for node in ast.walk(tree):  # a docstring's statement comes before its text
        if isinstance(node, ast.Expr):
            docs.add(node.value)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in docs:
            found.update(re.findall(r"\w+", node.value))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
