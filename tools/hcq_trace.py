"""hcq-trace: what was submitted, packet by packet, and what can be learnt from it without the hardware.

In       a file recorded with HCQ_TRACE=FILE (or `hcq-trace record -o FILE -- CMD`)
Out      text, or JSON with --json; exit status 0, 1 when something was found or differs, 2 when it could not be done
Changes  nothing, except that record, export -o, join, assemble, minimise and edit write the files named
Next     trace/ (one file a verb), hcq/trace/file.py (the reader), docs/trace.md (a tutorial)
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import hcq
from hcq.errors import HcqError, UsageError
from hcq.performance import datasheets
from hcq.tools.trace import capsule, declarations, explain, serve_program
from hcq.tools.trace.color import Color, clean

FOUND, FAILED = 1, 2

DESCRIPTION = """Show what was submitted to a device's command queue, and find out what was wrong with it.

A trace holds the words that went into the ring, the commands they stand for, the code objects, the memory map, the
signals, and the times on the host and on the device. Every verb decodes the words with the declarations that encoded
them, and names every address: the buffer it lies in, whether that is live or freed, the kernel whose entry it is.
"""

EXAMPLES = """first steps:
  hcq-trace record -o run.hcqtrace -- python train.py    run a program and record it (or set HCQ_TRACE=run.hcqtrace)
  hcq-trace show run.hcqtrace --last 3                   the last three submissions, packet by packet
  hcq-trace stats run.hcqtrace                           where the time went
  hcq-trace lint run.hcqtrace                            every rule that a submission broke, and the fix
  hcq-trace roofline run.hcqtrace --chip h100            what bounds each kernel (HCQ_PROFILE=counters)

then:
  hcq-trace show run.hcqtrace --kernel softmax --hex     submissions that run such a kernel, with their raw words
  hcq-trace disasm run.hcqtrace softmax                  its machine code
  hcq-trace diff good.hcqtrace bad.hcqtrace              the first thing that is really different
  hcq-trace graph run.hcqtrace                           who waits for whom, and deadlocks
  hcq-trace record --data -o capsule.hcqtrace -- CMD     also record memory, so that
  hcq-trace replay capsule.hcqtrace                      the work can be run again and compared bit for bit
  hcq-trace serve rank*.hcqtrace                         the ranks of a job on one timeline
  hcq-trace decode strace.txt                            a log of ioctls that somebody else recorded
  hcq-trace capsule dump.devcoredump -o hang.hcqtrace    a hang that an AMD GPU's driver dumped, to show and replay
  hcq-trace edit run.hcqtrace > run.txt                  change a packet with an editor, then
  hcq-trace assemble run.txt -o changed.hcqtrace         make it a trace again

how to read `show`:
  #17 +0.001250 s  CPU main: 36 words, 12.3 us on the device, train.py:88 in step
      0 Dispatch  add(out+0x0, a+0x100, 1024) grid=(4,1,1)    word, packet, kernel, buffers by name and offset
     24 Signal    timeline = 17                                what the packet after it does

exit status: 0 fine; 1 something was found (lint, diff, replay, graph with a deadlock); 2 it could not be done.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status; `record` passes on that of the command."""
    options = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = options.run
    try:
        if options.declarations:
            declarations.run(options.declarations)
        status = run(options)
        sys.stdout.flush()
        return status
    except HcqError as error:
        print(f"hcq-trace: {clean(str(error))}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader, `head` perhaps, has seen enough
        return 0


def parser() -> argparse.ArgumentParser:
    """Every verb with its options."""
    whole = argparse.ArgumentParser(
        prog="hcq-trace",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    whole.add_argument("--version", action="version", version=f"hcq-trace of hcq {hcq.__version__}")
    verbs = whole.add_subparsers(dest="verb", required=True, metavar="VERB")

    verb = _verb(verbs, "record", _record, "run a command and record what it submits", has_file=False)
    verb.add_argument("-o", "--output", metavar="FILE", default="run.hcqtrace", help="default run.hcqtrace")
    verb.add_argument(
        "--data", action="store_true", help="contents of memory, too, for replay; slow and large"
    )
    verb.add_argument(
        "--foreign",
        action="store_true",
        help="a program that is none of ours, on AMD's or NVIDIA's kernel driver: by ptrace",
    )
    verb.add_argument("command", nargs=argparse.REMAINDER, help="-- and the command with its arguments")

    verb = _verb(verbs, "show", _show, "print submissions packet by packet", has_file=False)
    _files(verb)
    _filters(verb)
    verb.add_argument("--last", metavar="N", type=int, help="only the last N submissions that are left")
    verb.add_argument("--ioctls", action="store_true", help="calls to the kernel driver and the system, too")
    verb.add_argument("--memory", action="store_true", help="allocations and contents of memory, too")
    verb.add_argument("--hex", "--words", action="store_true", help="the raw words below each packet, too")
    _json(verb, "one JSON object a line")

    verb = _verb(verbs, "disasm", _disasm, "the machine code of a kernel")
    verb.add_argument("kernel", nargs="?", help="its name or a part of it; left out: list the kernels")
    verb.add_argument("--bytes", action="store_true", help="the bytes of each instruction, too")
    text = verb.add_mutually_exclusive_group()
    text.add_argument("--source", action="store_true", help="instead, the code that it was assembled from")
    text.add_argument("--ir", action="store_true", help="instead, the graph that it was compiled from")
    _json(verb, "a list of instructions")

    verb = _verb(verbs, "lint", _lint, "run the validation rules over the whole trace", has_file=False)
    verb.add_argument("file", metavar="FILE", nargs="?", help="a trace, recorded with HCQ_TRACE=FILE")
    verb.add_argument("--rule", metavar="ID", help="only this rule")
    verb.add_argument("--list", action="store_true", help="no trace: list the rules, and what must hold")
    _limit(verb)
    _json(verb, "a list of findings")

    verb = _verb(verbs, "diff", _diff, "whether two traces did the same work, addresses and times aside")
    verb.add_argument(
        "other", metavar="FILE2", help="the trace, or the record of kernel memory, to compare with"
    )
    verb.add_argument(
        "--ulps", metavar="N", type=int, default=0, help="of kernel memory: float32 so near are the same"
    )
    _limit(verb)
    _json(verb, "one object")

    verb = _verb(verbs, "stats", _stats, "kernels, times, how busy each queue was, gaps", has_file=False)
    _files(verb)
    _json(verb, "one object")

    verb = _verb(verbs, "roofline", _roofline, "how long kernels would take on a chip, what bounds them")
    verb.add_argument(
        "--chip", metavar="NAME", help=f"one of {', '.join(datasheets.CHIPS)}; default: as it was counted"
    )
    verb.add_argument("--kernel", metavar="TEXT", default="", help="only kernels with this in their names")
    verb.add_argument(
        "--grid", metavar="XxYxZ", help="as if so many blocks did what each of those counted did on average"
    )
    _json(verb, "a list of predictions")

    verb = _verb(verbs, "graph", _graph, "signals and waits between submissions; deadlocks", has_file=False)
    _files(verb)
    verb.add_argument("--dot", action="store_true", help="for Graphviz: | dot -Tsvg > graph.svg")
    _json(verb, "one object")

    verb = _verb(
        verbs, "join", _join, "the traces of several ranks as one file, on one clock", has_file=False
    )
    _files(verb)
    verb.add_argument("-o", "--output", metavar="FILE", required=True, help="where the whole trace goes")

    verb = _verb(verbs, "export", _export, "the trace for other programs", has_file=False)
    _files(verb)
    form = verb.add_mutually_exclusive_group(required=True)
    form.add_argument(
        "--perfetto", dest="form", action="store_const", const="perfetto", help="for ui.perfetto.dev"
    )
    form.add_argument(
        "--json", dest="form", action="store_const", const="json", help="everything, as one object"
    )
    form.add_argument("--csv", dest="form", action="store_const", const="csv", help="a row for each command")
    verb.add_argument("-o", "--output", metavar="FILE", help="where to; default standard output")

    verb = _verb(verbs, "replay", _replay, "run the recorded work again and compare its results bit for bit")
    verb.add_argument("--on", metavar="DEVICE", default="", help="run all of it on this device")
    verb.add_argument("--timeout-ms", metavar="MS", type=float, help="deadline of each wait")
    _limit(verb)
    _json(verb, "one object")

    verb = _verb(verbs, "minimise", _minimise, "drop submissions while a failure stays")
    why = verb.add_mutually_exclusive_group(required=True)
    why.add_argument("--rule", metavar="ID", help="the failure: lint finds a breach of this rule")
    why.add_argument(
        "--mismatch", action="store_true", help="the failure: replay goes wrong in the same place"
    )
    why.add_argument(
        "--check", metavar="CMD", help="the failure: CMD exits with another status than 0; {} is the file"
    )
    verb.add_argument("-o", "--output", metavar="FILE", required=True, help="where the smaller trace goes")
    verb.add_argument(
        "--tries", metavar="N", type=int, default=2000, help="ask at most N times; default 2000"
    )

    verb = _verb(
        verbs, "serve", _serve, "the trace as a page in the browser; it may still be growing", has_file=False
    )
    _files(verb)
    serve_program.options(verb)

    verb = _verb(
        verbs,
        "decode",
        _decode,
        "what others recorded: logs, dumps, waves, words of a ring or of a pushbuffer",
        has_file=False,
    )
    verb.add_argument("text", metavar="TEXT", help="a file or a folder of logs; - is standard input")
    verb.add_argument(
        "--nv", metavar="ARCH", default="", help="words for this NVIDIA architecture, such as sm_90"
    )
    verb.add_argument(
        "--form",
        choices=("pushbuffer", "qmd", "gpfifo", "pm4", "sdma", "aql", "descriptor"),
        default="",
        help="what the words are: the first three of NVIDIA, the others of AMD",
    )
    verb.add_argument(
        "--chip",
        metavar="GFX",
        default="",
        help="words for this AMD GPU or generation, such as gfx942 or gfx11",
    )
    verb.add_argument(
        "--driver", metavar="RELEASE", default="580.142", help="release that a log is of; default 580.142"
    )
    _json(verb, "a list of calls, or an object with the packets")

    capsule.options(
        _verb(verbs, "capsule", capsule.run, "a dump of a hang as a trace that runs again", has_file=False)
    )
    explain.options(
        _verb(verbs, "explain", explain.run, "what a number is, by the vendor's name", has_file=False)
    )

    verb = _verb(verbs, "edit", _edit, "the trace as text that can be changed")
    verb.add_argument("-o", "--output", metavar="FILE", help="where to; default standard output")

    verb = _verb(
        verbs, "assemble", _assemble, "the text of `edit`, changed or not, as a trace", has_file=False
    )
    verb.add_argument("text", metavar="TEXT", help="a file with the text; - is standard input")
    verb.add_argument("-o", "--output", metavar="FILE", help="where to; default standard output")
    return whole


@functools.cache
def _help() -> dict[str, str]:
    """What is said after the options of each verb."""
    text = (Path(__file__).parent / "trace" / "help.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^== (\w+)\n", text, flags=re.MULTILINE)
    return {verb: about.strip("\n") for verb, about in zip(parts[::2], parts[1::2])}


def _verb(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], int], about: str, has_file: bool = True
) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=about,
        description=about[0].upper() + about[1:] + ".",
        epilog=_help()[name],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.set_defaults(run=run)
    made.add_argument(
        "--declarations", metavar="FILE.py", help="run it: packets, registers, methods of your own"
    )
    if has_file:
        made.add_argument("file", metavar="FILE", help="a trace, recorded with HCQ_TRACE=FILE")
    return made


def _filters(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--device", metavar="NAME", default="", help="only this device, such as CPU or AMD:1")
    verb.add_argument(
        "--queue", metavar="NAME", default="", help="only submissions to this queue, such as main"
    )
    verb.add_argument(
        "--kernel", metavar="TEXT", default="", help="only those that run a kernel with this in its name"
    )
    verb.add_argument(
        "--submission", metavar="N..M", help="only these timeline values: 40, 40..50, 40.. or ..50"
    )


def _files(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a trace; several, of ranks or hosts, become one, on one clock",
    )
    verb.add_argument(
        "--offset", metavar="FILE=NS", action="append", default=[], help="add so much to the times of a file"
    )


def _limit(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--limit", metavar="N", type=int, default=20, help="print at most N of them; default 20"
    )


def _json(verb: argparse.ArgumentParser, what: str) -> None:
    verb.add_argument(
        "--json", action="store_true", help=f"{what}, for another program; docs/trace.md has the keys"
    )


# ------------------------------------------------------------ verbs


def _record(options: argparse.Namespace) -> int:
    from hcq.tools.trace.record import record, record_foreign

    if options.foreign:
        if options.data:
            raise UsageError("record: --data needs a program of this package; leave it or --foreign out.")
        return record_foreign(options.command, options.output)
    return record(options.command, options.output, options.data)


def _show(options: argparse.Namespace) -> int:
    from hcq.tools.trace import show

    wanted = show.Filter(
        options.device,
        options.queue,
        options.kernel,
        show.submission_range(options.submission) if options.submission else None,
        options.last,
        options.ioctls,
        options.memory,
    )
    trace = _read_all(options)
    color = Color.for_stdout()
    is_empty = True
    for view in show.select(trace, wanted):
        is_empty = False
        _print([show.as_json(view)] if options.json else show.lines(view, color, options.hex))
    if is_empty and trace.records:
        print(clean(show.nothing_passes(trace, wanted)), file=sys.stderr)
    if trace.cut_bytes:
        print(f"The file ends here: {trace.cut_bytes} bytes follow, {trace.cut_why}.", file=sys.stderr)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from hcq.tools.trace import serve

    return serve.run(options.files, {} if options.compile or options.debug else _offsets(options), options)


def _disasm(options: argparse.Namespace) -> int:
    from hcq.tools.trace import disasm

    trace = _read(options.file)
    if options.kernel is None:
        _print(disasm.kernels(trace))
        return 0
    code = disasm.find(trace, options.kernel)
    if options.source or options.ir:
        _print(disasm.text(code, "source" if options.source else "ir"))
        return 0
    found = disasm.disassemble(code)
    if options.json:
        _print_json(disasm.as_json(code, found))
    else:
        _print(disasm.lines(code, found, Color.for_stdout(), options.bytes))
    return 0


def _lint(options: argparse.Namespace) -> int:
    from hcq.tools.trace import lint

    if options.list:
        if options.json:
            _print_json(lint.rules_as_json())
        else:
            _print(lint.rules(Color.for_stdout()))
        return 0
    if options.file is None:
        raise UsageError("lint takes a trace, as in: hcq-trace lint run.hcqtrace; --list shows the rules.")
    trace = _read(options.file)
    if options.rule:
        lint.check_rule_name(options.rule)
    found = [one for one in lint.findings(trace) if options.rule in (None, one.rule)]
    if options.json:
        _print_json(lint.as_json(found))
    else:
        _print(lint.lines(found, trace, Color.for_stdout(), options.limit))
    return FOUND if any(one.level == "error" for one in found) else 0


def _diff(options: argparse.Namespace) -> int:
    from hcq.tools.trace import diff

    result, lines = diff.of_files(options.file, options.other, options.ulps)
    if options.json:
        _print_json(result.as_json())
    else:
        _print(lines(Color.for_stdout(), options.limit))
    return 0 if result.is_same else FOUND


def _stats(options: argparse.Namespace) -> int:
    from hcq.tools.trace import overlap, stats, where_time_went

    trace, color = _read_all(options), Color.for_stdout()
    found, talks, went = stats.collect(trace), overlap.talks(trace), where_time_went.where(trace)
    told: list[dict[str, Any]] = []
    if trace.spans:  # the cost model is of the tensor layer, which not every reader needs
        from hcq.tools.trace import collectives

        told = collectives.rows(trace)
    if options.json:
        found["time"] = where_time_went.as_json(went)
        _print_json({**found, "communication": overlap.as_json(talks), "collectives": told})
        return 0
    _print(stats.lines(found, color))
    _print(collectives.lines(told, color) if told else ())
    _print([*where_time_went.lines(went, color), *overlap.lines(talks, color)])
    return 0


def _roofline(options: argparse.Namespace) -> int:
    from hcq.tools.trace import roofline

    grid = roofline.grid_of(options.grid) if options.grid else None
    found = roofline.of_trace(_read(options.file), options.chip, options.kernel, grid)
    if not found:
        raise UsageError(f"roofline: no kernel has {options.kernel!r} in its name.")
    if options.json:
        _print_json([one.as_json() for one in found])
    else:
        _print(roofline.lines(found, Color.for_stdout()))
    return 0


def _graph(options: argparse.Namespace) -> int:
    from hcq.tools.trace import graph

    found = graph.Graph(_read_all(options))
    if options.json:
        _print_json(graph.as_json(found))
    else:
        _print(graph.dot(found) if options.dot else graph.lines(found, Color.for_stdout()))
    return FOUND if found.stuck else 0


def _join(options: argparse.Namespace) -> int:
    from hcq.trace import join

    sources = [join.source_of(path, _bytes(path)) for path in options.files]
    joined = join.join(sources, _offsets(options))
    _write(options.output, join.content_of(joined))
    _print(str(record.fields["text"]) for record in joined.records if record.name == "JOINED")
    if joined.cut_bytes:
        print(f"{joined.cut_bytes} bytes are left out: {joined.cut_why}.", file=sys.stderr)
    return 0


def _export(options: argparse.Namespace) -> int:
    from hcq.tools.trace import export

    _write(options.output, export.export(_read_all(options), options.form))
    return 0


def _replay(options: argparse.Namespace) -> int:
    from hcq.tools.trace import capsule_replay, replay

    trace = _read(options.file)
    if capsule_replay.is_capsule(trace):
        stand = capsule_replay.replay(trace, options.on)
        if options.json:
            _print_json(stand.as_json())
        else:
            _print(map(clean, stand.lines()))
        return 0 if stand.is_same else FOUND
    outcome = replay.replay(trace, options.on, options.timeout_ms)
    if options.json:
        _print_json(outcome.as_json())
    else:
        _print(replay.lines(outcome, Color.for_stdout(), options.limit))
    return 0 if outcome.is_same else FOUND


def _minimise(options: argparse.Namespace) -> int:
    from hcq.tools.trace import minimise

    trace = _read(options.file)
    if options.rule:
        check = minimise.check_rule(options.rule)
    elif options.mismatch:
        check = minimise.check_mismatch(trace)
    else:
        check = minimise.check_command(options.check)
    result = minimise.minimise(trace, check, options.tries)
    _write(options.output, result.content)
    _print([minimise.summary(result)])
    return 0


def _decode(options: argparse.Namespace) -> int:
    from hcq.tools.trace import decode, folder

    text = options.text
    return decode.run(
        options, sys.stdin.buffer.read() if text == "-" else folder.content(text) or _bytes(text)
    )


def _edit(options: argparse.Namespace) -> int:
    from hcq.tools.trace import edit

    lines = edit.edit(_bytes(options.file))
    _write(options.output, "".join(f"{line}\n" for line in lines).encode())
    return 0


def _assemble(options: argparse.Namespace) -> int:
    from hcq.tools.trace import edit

    content = sys.stdin.buffer.read() if options.text == "-" else _bytes(options.text)
    _write(options.output, edit.assemble(content.decode("utf-8", "replace")))
    return 0


# ------------------------------------------------------------ files


def _read(path: str) -> Any:
    from hcq.trace.file import Trace

    return Trace.read(path)


def _read_all(options: argparse.Namespace) -> Any:
    from hcq.trace.file import Trace

    trace = Trace.read_all(options.files, _offsets(options))
    for record in trace.joined:
        if not record.fields.get("aligned"):
            print(f"hcq-trace: {clean(str(record.fields['text']))}", file=sys.stderr)
    return trace


def _offsets(options: argparse.Namespace) -> dict[str, int]:
    """What --offset says: file -> nanoseconds."""
    found: dict[str, int] = {}
    for text in options.offset:
        name, _, number = text.rpartition("=")
        try:
            found[name] = int(number)
        except ValueError:
            name = ""
        if not name:
            raise UsageError(f"--offset {text}: takes a file and nanoseconds, as in rank1.hcqtrace=-52114.")
    return found


def _bytes(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}).") from None


def _write(path: str | None, content: bytes) -> None:
    if path is None:
        if sys.stdout.isatty() and b"\0" in content[:4096]:
            raise UsageError("that is no text for a terminal. Name a file with -o FILE.")
        sys.stdout.flush()
        if hasattr(sys.stdout, "buffer"):
            sys.stdout.buffer.write(content)
        else:  # a program that took our standard output for itself
            sys.stdout.write(content.decode("utf-8", "backslashreplace"))
        return
    try:
        Path(path).write_bytes(content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}). Name another file.") from None


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def _print_json(what: object) -> None:
    print(json.dumps(what, default=str, indent=1))


if __name__ == "__main__":
    sys.exit(main())
