"""Pages of docs/ as pages of the site: their links lead to each other, and their headings are found by the search.

In       docs/*.md and in folders below, CONTRIBUTING.md, CHANGELOG.md
Out      `Page`s: text and contents as HTML; pictures by name
Next     reference.py (writes them beside the modules), reference_pages/page.html.jinja2 (what is around them)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import markdown2

EXTRAS = ["fenced-code-blocks", "header-ids", "tables", "toc", "cuddled-lists"]
BESIDE = ("CONTRIBUTING.md", "CHANGELOG.md")  # at the root of the repository
LINK = re.compile(r'<a href="(?P<to>[^"#:]*)(?P<at>#[^"]*)?">(?P<text>.*?)</a>', re.DOTALL)
HEADING = re.compile(r'<h[1-3] id="(?P<anchor>[^"]*)">(?P<text>.*?)</h[1-3]>', re.DOTALL)
TAG = re.compile(r"<[^>]*>")


class Page(NamedTuple):
    """One page. file: where it lies in the site. headings: (anchor, text), the page's own title first."""

    file: str
    title: str
    text: str
    contents: str
    headings: list[tuple[str, str]]


def sources(root: Path) -> dict[str, Path]:
    """Where a page lies in the site -> its text in the repository."""
    found = {f"docs/{name[:-3].lower()}.html": root / name for name in BESIDE}
    for path in sorted((root / "docs").rglob("*.md")):
        found[address(path.relative_to(root))] = path
    return found


def address(path: PurePosixPath | Path) -> str:
    """The address of a page in the site; that of a README is the index of its folder."""
    return path.with_name("index.html" if path.name == "README.md" else f"{path.stem}.html").as_posix()


def pages(root: Path) -> Iterator[Page]:
    """Every page. Links to files that are no pages become plain text."""
    there = sources(root)
    of = {path: file for file, path in there.items()}
    for file, path in there.items():
        made = markdown2.markdown(path.read_text(encoding="utf-8"), extras=EXTRAS)
        text = relink(str(made), path, file, of)
        headings = [
            (found["anchor"], plain(found["text"])) for found in HEADING.finditer(text) if found["anchor"]
        ]
        title = headings[0][1] if headings else path.stem
        yield Page(file, title, text, made.toc_html or "", headings)


def pictures(root: Path) -> dict[str, bytes]:
    """Name in the site -> contents."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in (root / "docs").rglob("*.png")}


def relink(text: str, path: Path, file: str, of: dict[Path, str]) -> str:
    """Links between pages as the site has them.

    of  the page of the repository -> where it lies in the site
    """
    depth = "../" * file.count("/")

    def replaced(match: re.Match[str]) -> str:
        to, at = match["to"], match["at"] or ""
        if not to:
            return match[0]
        target = of.get((path.parent / to).resolve())
        return f'<a href="{depth}{target}{at}">{match["text"]}</a>' if target else match["text"]

    return LINK.sub(replaced, text)


def plain(text: str) -> str:
    """HTML without its tags."""
    return TAG.sub("", text).replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">")
