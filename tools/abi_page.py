"""ABI page: the history in docs/abi.md, of every kernel driver whose releases are known (`make docs`).

In       the atlases that backends name
Out      `histories`: what stands between the marks of the page
Next     pages.py (writes and checks it), hcq/atlas/ (compares releases), hcq/system/abi_atlas.py (what an atlas is)
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hcq.atlas import command, text
from hcq.atlas.difference import difference
from hcq.system.abi_atlas import Atlas


def histories() -> str:
    """What is known of every driver."""
    return "\n".join(line for atlas in command.atlases().values() for line in history(atlas)).rstrip("\n")


def history(atlas: Atlas) -> Iterator[str]:
    """All that is known of a driver: releases, what changed from one to the next, and every structure."""
    known = atlas.releases()
    yield from (f"## {atlas.name}: {atlas.title}", "")
    yield from (f"{len(known)} releases, from {known[0]} to {known[-1]}. Source: {atlas.source}.", "")
    for release in known:
        if note := atlas.release_note(release):
            yield from (note, "")
    yield from (f"### {atlas.name}: what changed", "")
    for older, newer in pairwise(known):
        before, after = atlas.at(older), atlas.at(newer)
        found = difference(before, after)
        if found:
            yield from ("```text", *text.diff_lines(atlas, found, before, after), "```", "")
    yield from (f"### {atlas.name}: every structure", "")
    yield from ("| structure | in the headers | bytes, and the first release with that layout | taken by |",)
    yield "| --- | --- | --- | --- |"
    yield from structure_rows(atlas)
    yield ""


def structure_rows(atlas: Atlas) -> Iterator[str]:
    """A row for each structure with every layout that it has had."""
    layouts: dict[str, dict[str, int]] = {}
    headers: dict[str, str] = {}
    interfaces = [atlas.at(release) for release in atlas.releases()]
    for one in interfaces:
        for structure in one.structures.values():
            layouts.setdefault(structure.name, {})[structure.since] = structure.size_bytes
            headers[structure.name] = structure.header_name
    for name in sorted(layouts):
        sizes = ", ".join(f"{size} ({since})" for since, size in layouts[name].items())
        takers = ", ".join(f"`{taker}`" for taker in text.taken_by(name, *interfaces))
        yield f"| {name} | `{headers[name]}` | {sizes} | {takers} |"
