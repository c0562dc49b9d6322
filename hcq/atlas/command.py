"""python -m hcq abi: kernel drivers' interfaces, release by release.

In       the command line: a driver, releases, a structure, a trace
Out      text, or JSON; the exit status is 1 when a call of a trace breaks
Next     difference.py, breaks.py, text.py; hcq/backend.py (`atlas`, which each kind of device may name)
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from hcq import backends, checks
from hcq.atlas import breaks, text
from hcq.atlas.difference import difference
from hcq.backend import load
from hcq.errors import UsageError
from hcq.system.abi_atlas import Atlas, Structure

EPILOG = """drivers: {names}

examples:
  python -m hcq abi releases                         every release of every driver that is known
  python -m hcq abi diff nv 570.86 580.142           which structures changed, field by field
  python -m hcq abi diff kfd 1.14 1.17 --json        the same for another program
  python -m hcq abi show nv 580.142                  the structures of a release, one line each
  python -m hcq abi show nv 580.142 RmAllocArgs      one of them as C, with the offset of each field
  python -m hcq abi show kfd 1.11 kfd_ioctl_create_queue_args

Does my program run on another driver? Record it on yours, then ask which of its calls break:
  HCQ_TRACE=run.hcqtrace python my_program.py
  python -m hcq abi diff nv 570.86 595.45.04 --trace run.hcqtrace
Of another program a log of strace will do, or of gVisor:
  strace -f -e trace=openat,close,ioctl -o run.log program; python -m hcq abi diff kfd 1.17 1.14 --trace run.log

In a difference + is new, - is gone, ~ is in both and changed. A version's beginning, as 570.86, is the newest of those;
one that is not known is the nearest older one, and a note says so. docs/abi.md has the history of every structure.
The exit status is 1 when a call of the trace breaks, 2 when the question makes no sense, else 0.
"""


def add_verb(verb: argparse.ArgumentParser) -> None:
    """Declare what the verb takes."""
    verb.epilog = EPILOG.format(names="; ".join(f"{one.name}: {one.title}" for one in atlases().values()))
    verb.set_defaults(act=lambda options: _help(verb))
    actions = verb.add_subparsers(dest="action", metavar="diff | show | releases")
    diff = actions.add_parser("diff", help="what changed between two releases, field by field")
    diff.add_argument("driver", metavar="DRIVER", help=" or ".join(atlases()))
    diff.add_argument("before", metavar="FROM", help="a release, as 570.86 or 1.14; of a trace, its own")
    diff.add_argument("after", metavar="TO", help="another one, older or newer")
    diff.add_argument(
        "--trace",
        metavar="FILE",
        type=Path,
        help="which calls of this trace or strace log, made on FROM, break on TO",
    )
    diff.set_defaults(act=_diff)
    show = actions.add_parser("show", help="a structure at a release as C with offsets, or the list of them")
    show.add_argument("driver", metavar="DRIVER", help=" or ".join(atlases()))
    show.add_argument("release", metavar="RELEASE", help="as 580.142 or 1.17")
    show.add_argument(
        "structure",
        metavar="STRUCTURE",
        nargs="?",
        help="its name here or in the headers; without it, a list",
    )
    show.set_defaults(act=_show)
    releases = actions.add_parser("releases", help="every release that is known")
    releases.add_argument("driver", metavar="DRIVER", nargs="?", help=" or ".join(atlases()))
    releases.set_defaults(act=_releases)
    for action in (diff, show, releases):
        action.add_argument("--json", action="store_true", help="JSON, for another program")


def atlases() -> dict[str, Atlas]:
    """Every atlas by its name."""
    found: list[Atlas] = [load(backend.atlas) for backend in backends.every() if backend.atlas]
    return {one.name: one for one in found}


def atlas_of(name: str) -> Atlas:
    """An atlas by its name, or by that of its kind of device. Raises UsageError listing those there are."""
    known = atlases()
    backend = backends.find(name)
    if name.lower() in known:
        return known[name.lower()]
    if backend is not None and backend.atlas:
        found: Atlas = load(backend.atlas)
        return found
    raise UsageError(f"{name!r}: no driver whose releases are known. Known: {', '.join(known)}.")


def _help(verb: argparse.ArgumentParser) -> int:
    verb.print_help()
    return 0


def _diff(options: argparse.Namespace) -> int:
    atlas = atlas_of(options.driver)
    ends = [atlas.resolve(text) for text in (options.before, options.after)]
    before, after = (atlas.at(end.name) for end in ends)
    found = difference(before, after)
    notes = [end.note for end in ends if end.note]
    calls = None
    if options.trace is not None:
        recorded = breaks.calls_of(options.trace, atlas)
        calls = breaks.judge(recorded.calls, atlas, before, after)
        notes += _trace_notes(options.trace, atlas, recorded, before.release)
    if options.json:
        data: dict[str, Any] = {"driver": atlas.name, "notes": notes, **text.as_data(found, before, after)}
        if calls is not None:
            data["trace"] = text.trace_data(calls)
        print(json.dumps(data, indent=2))
    else:
        _print_notes(notes)
        lines = list(text.diff_lines(atlas, found, before, after))
        if calls is not None:
            lines += ["", *text.trace_lines(calls, found)]
        print(checks.printable("\n".join(lines)))
    return 1 if calls is not None and calls.breaks else 0


def _trace_notes(path: Path, atlas: Atlas, recorded: breaks.Recorded, before: str) -> list[str]:
    """What there is to know before one believes what is said of a trace."""
    notes = []
    if recorded.damage:
        notes.append(f"{path}: {recorded.damage}. What is before it was read.")
    if recorded.bare:
        notes.append(
            f"{path}: {recorded.bare} calls are without their argument's bytes. What they used is not known, nor which "
            "control or class they asked for where nobody says it."
        )
    if recorded.release and _stands_for(atlas, recorded.release) != before:
        notes.append(
            f"{path} was recorded on {atlas.name} {recorded.release}, and is judged as one of {before}: give "
            f"{recorded.release} as the first release."
        )
    return notes


def _stands_for(atlas: Atlas, release: str) -> str:
    """The release of the atlas that a driver's own is; itself where it is older than all."""
    try:
        return atlas.resolve(release).name
    except UsageError:
        return release


def _show(options: argparse.Namespace) -> int:
    atlas = atlas_of(options.driver)
    release = atlas.resolve(options.release)
    found = atlas.at(release.name)
    notes = [release.note] if release.note else []
    if options.structure:
        one = found.structure(options.structure)
        takers = text.taken_by(one.name, found)
        if options.json:
            print(
                json.dumps(
                    {"driver": atlas.name, "release": release.name, "notes": notes, **_data(one, takers)}
                )
            )
            return 0
        _print_notes(notes)
        print(f"/* {atlas.name} {release.name}: {one.name}, in this layout since {one.since} */")
        if one.remark:
            print(f"/* {one.remark} */")
        if takers:
            print(f"/* taken by {', '.join(takers)} */")
        print(text.as_c(one))
        return 0
    if options.json:
        listed = [_data(one, text.taken_by(one.name, found)) for one in found.structures.values()]
        print(
            json.dumps({"driver": atlas.name, "release": release.name, "notes": notes, "structures": listed})
        )
        return 0
    _print_notes(notes)
    width = max(map(len, found.structures), default=0)
    for one in found.structures.values():
        print(
            f"{one.name:<{width}}  {one.size_bytes:6} bytes  since {one.since:<6}  struct {one.header_name}"
        )
    return 0


def _releases(options: argparse.Namespace) -> int:
    chosen = [atlas_of(options.driver)] if options.driver else list(atlases().values())
    if options.json:
        print(json.dumps({one.name: one.releases() for one in chosen}, indent=2))
        return 0
    for one in chosen:
        known = one.releases()
        print(f"{one.name}: {one.title}. {len(known)} releases; from {one.source}.")
        for release in known:
            remark = one.at(release).remarks.get(release) or one.release_note(release)
            print(f"  {release}{f'  {remark}' if remark else ''}")
    return 0


def _data(one: Structure, takers: list[str]) -> dict[str, Any]:
    fields = [field._asdict() for field in one.fields]
    return {**one._asdict(), "fields": fields, "taken_by": takers}


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
