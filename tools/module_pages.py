"""Module page: docs/modules.md, every file with the first line of its door plate (`make docs`).

In       the source: hcq, ir, compiler, frontend, tools
Out      one page, a section for each folder
Next     pages.py (writes and checks it), docs/architecture.md (the same for who wants to understand it)
"""

from __future__ import annotations

import ast
import inspect
import tokenize
from pathlib import Path

NOTE = "Written by `make docs` from the first lines of the files; change those, not this page."
FLOORS = ("tools", "frontend", "compiler", "ir", "hcq")


def pages(docs: Path) -> dict[str, str]:
    """File name -> text."""
    root = docs.parent
    lines = ["# Every file", "", NOTE, "", "What the parts are for: [architecture](architecture.md)."]
    for floor in FLOORS:
        files = sorted((root / floor).rglob("*.py"))
        for folder in sorted({file.parent for file in files}):
            lines += ["", *_section(folder, [file for file in files if file.parent == folder], root)]
    return {"modules.md": "\n".join([*lines, ""])}


def _section(folder: Path, files: list[Path], root: Path) -> list[str]:
    about = [f"{first_line(file)}" for file in files if file.name == "__init__.py"]
    rows = [f"- `{file.name}` {_described(file)}" for file in files if file.name != "__init__.py"]
    return [f"## {folder.relative_to(root)}/", "", *(f"{line}\n" for line in about if line), *rows]


def _described(file: Path) -> str:
    """The first line without the file's own name before the colon."""
    line = first_line(file)
    head, colon, rest = line.partition(": ")
    return rest if colon and len(head.split()) <= 4 else line


def first_line(file: Path) -> str:
    """The first line of a file's docstring, "" when it has none. Nothing is imported, and only its head is read."""
    with tokenize.open(file) as source:
        for token in tokenize.generate_tokens(source.readline):
            if token.type == tokenize.STRING:
                return inspect.cleandoc(ast.literal_eval(token.string)).partition("\n")[0]
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                return ""
    return ""
