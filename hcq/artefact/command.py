"""python -m hcq run: what is in a program's file, and what it does.

In       the command line: a file, a device, inputs
Out      text, or JSON: what the file holds, the time that loading and calls take, the first numbers of each result
Changes  runs the program; writes results where --output says
Next     program.py (what loads and runs), inputs.py (inputs from files), hcq/__main__.py (the other verbs)
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from hcq import checks
from hcq.artefact import inputs
from hcq.artefact.file import Beside, Contents, Parameter, ProgramFile, Spec, Variant
from hcq.artefact.program import LoadedProgram, load_program
from hcq.errors import UsageError

SHOWN = 8  # numbers of a result
TIMES = 10

EPILOG = """examples:
  python -m hcq run step.hcqprog                          what it holds; a run on zeros, and its time
  python -m hcq run step.hcqprog --list                   what it holds, and no more: no device opens
  python -m hcq run step.hcqprog --input x=x.npy          an input from a file; also .safetensors, or raw bytes
  python -m hcq run step.hcqprog --input x=all.safetensors:images
  python -m hcq run step.hcqprog --input n=300            a parameter, which is the least number unless given
  python -m hcq run step.hcqprog --random 7               inputs that are not given are random numbers from seed 7
  python -m hcq run step.hcqprog --device AMD --times 100
  python -m hcq run step.hcqprog --output results         each result as raw bytes in a file of that folder

A program's file holds machine code: run only one that you would run a program from. Neither the compiler nor NumPy is
needed. docs/artefact.md has the format. The exit status is 2 when the file, the device or an input is refused.
"""


def add_verb(verb: argparse.ArgumentParser) -> None:
    """Declare what the verb takes."""
    verb.epilog = EPILOG
    verb.add_argument("file", metavar="FILE", help="what hcq.save_program wrote")
    verb.add_argument(
        "--device", metavar="NAME", help="CPU, AMD, NV:1, ...; default HCQ_DEVICE, or what the file is for"
    )
    verb.add_argument(
        "--input", metavar="NAME=FILE", action="append", default=[], help="contents of an input"
    )
    verb.add_argument(
        "--random", metavar="SEED", type=int, help="inputs not given are random; without it, zeros"
    )
    verb.add_argument(
        "--times", metavar="N", type=int, default=TIMES, help=f"calls that are timed (default {TIMES})"
    )
    verb.add_argument("--output", metavar="FOLDER", help="write results there: NAME.bin, raw bytes")
    verb.add_argument("--list", action="store_true", help="only show what the file holds")
    verb.add_argument("--json", action="store_true", help="JSON, for another program")
    verb.set_defaults(act=run)


def run(options: argparse.Namespace) -> int:
    """Do what the command line says. Raises UsageError for a file, a device or an input that cannot be."""
    if options.times < 1:
        raise UsageError(f"[run] --times {options.times}: at least one call.")
    with ProgramFile(options.file, "run") as file:
        contents = file.contents
    found: dict[str, Any] = {"file": options.file, **as_data(contents, Path(options.file).stat().st_size)}
    if not options.json:
        print(checks.printable(as_text(found)))
    if not options.list:
        found["run"] = ran = _run(options, contents)
        if not options.json:
            print(checks.printable(_run_as_text(ran)))
    if options.json:
        print(json.dumps(found, indent=2))
    return 0


def _run(options: argparse.Namespace, contents: Contents) -> dict[str, Any]:
    given = _given(options.input, contents)
    started = time.perf_counter()
    program = load_program(options.file, options.device)
    loaded = time.perf_counter()
    numbers = {one.input: one for one in program.parameters}
    data: list[bytes | int] = [
        _number_of(numbers[number], given.get(spec.name))
        if number in numbers
        else inputs.from_file(spec, given[spec.name])
        if spec.name in given
        else inputs.zeros(spec)
        if options.random is None
        else inputs.drawn(spec, options.random)
        for number, spec in enumerate(program.inputs)
    ]
    results, times = _timed(program, data, options.times)
    if options.output is not None:
        _write(Path(options.output), program, results)
    return {
        "device": program.device.name,
        "arch": program.device.arch,
        "load_ms": 1e3 * (loaded - started),
        "first_call_ms": times[0],
        "least_ms": min(times),
        "calls": len(times),
        "results": [
            {**_spec(spec), "first": inputs.numbers(spec, data, SHOWN)}
            for spec, data in zip(program.outputs, results)
        ],
    }


def _given(words: list[str], contents: Contents) -> dict[str, str]:
    given = {}
    known = ", ".join(spec.name for spec in contents.inputs) or "none"
    for word in words:
        name, equals, path = word.partition("=")
        if not equals or name not in {spec.name for spec in contents.inputs}:
            raise UsageError(f"[run] --input {checks.shown(word)}: takes NAME=FILE. The inputs: {known}.")
        given[name] = path
    return given


def _number_of(parameter: Parameter, word: str | None) -> int:
    """The number on the command line, else the least."""
    if word is None:
        return parameter.low
    if not checks.is_decimal(word):
        raise UsageError(
            f"[run] --input {parameter.name}={checks.shown(word)}: an int from {parameter.low} to {parameter.high}."
        )
    return int(word)


def _timed(program: LoadedProgram, data: list[bytes | int], calls: int) -> tuple[list[bytes], list[float]]:
    """The results of the first call, and how long each took from bytes to its results in memory, in milliseconds."""
    first: list[bytes] = []
    times = []
    for number in range(calls):
        started = time.perf_counter()
        results = program(*data)
        for buffer in results:
            buffer.wait()
        program.device.drain(program.device.timeline.submitted)
        times.append(1e3 * (time.perf_counter() - started))
        if number == 0:
            first = [buffer.read() for buffer in results]
    return first, times


def _write(folder: Path, program: LoadedProgram, results: list[bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, (spec, data) in enumerate(zip(program.outputs, results)):
            word = spec.name if spec.name.replace(".", "_").isidentifier() else str(number)
            (folder / f"{word}.bin").write_bytes(data)
    except OSError as error:
        raise UsageError(f"[run] --output {folder}: cannot be written ({error.strerror}).") from None


# -- what a file holds -------------------------------------------------------------------------------------------------


def as_data(contents: Contents, size_bytes: int) -> dict[str, Any]:
    """What a file holds, as plain data."""
    return {
        "name": contents.name,
        "made_by": contents.made_by,
        "size_bytes": size_bytes,
        "inputs": [_spec(spec) for spec in contents.inputs],
        "outputs": [_spec(spec) for spec in contents.outputs],
        "parameters": [one._asdict() for one in contents.parameters],
        "variants": [_variant(variant) for variant in contents.variants],
    }


def _spec(spec: Spec) -> dict[str, Any]:
    return {"name": spec.name, "dtype": spec.dtype, "shape": list(spec.shape)}


def _variant(variant: Variant) -> dict[str, Any]:
    def of(kind: str) -> list[Any]:
        return [one for one in variant.memory if one.kind == kind]

    beside = {one.source.file for one in variant.memory if one.spec and isinstance(one.source, Beside)}
    return {
        "device": variant.device,
        "arch": variant.arch,
        "abi": variant.abi,
        "features": sorted(variant.features),
        "kernels": [
            {"name": one.name, "grid": list(one.grid), "block": list(one.block)} for one in variant.launches
        ],
        "weights": len(of("weight")),
        "weight_bytes": sum(one.size_bytes for one in of("weight")),
        "state": [_spec(one.spec) for one in of("state")],
        "state_bytes": sum(one.size_bytes for one in of("state")),
        "temporary_bytes": sum(one.size_bytes for one in of("temporary")),
        "files_beside": sorted(beside),
    }


def as_text(found: dict[str, Any]) -> str:
    """The same for a person."""
    lines = [f"{found['file']}: {found['name']}, {found['size_bytes']:,} bytes, saved by {found['made_by']}"]
    for what in ("inputs", "outputs"):
        lines += [f"  {what[:-1]:<7} {_line(spec)}" for spec in found[what]]
    lines += [f"  {one['name']} is an int from {one['low']} to {one['high']}" for one in found["parameters"]]
    for variant in found["variants"]:
        asks = f", for processors with {len(variant['features'])} features" if variant["features"] else ""
        lines.append(
            f"  {variant['device']} {variant['arch']}: {len(variant['kernels'])} kernels, {variant['weights']} weights "
            f"({variant['weight_bytes']:,} bytes), {variant['temporary_bytes']:,} bytes of temporary memory{asks}"
        )
        lines += [f"    weights in {name} beside it" for name in variant["files_beside"]]
        lines += [f"    state   {_line(spec)}" for spec in variant["state"]]
        lines += _kernels(variant["kernels"])
    return "\n".join(lines)


def _kernels(launches: list[dict[str, Any]]) -> list[str]:
    """The kernels in the order in which each first comes, and how often, if more than once."""
    rows = [f"{one['name']}  grid {one['grid']}  block {one['block']}" for one in launches]
    counts = dict.fromkeys(rows, 0)
    for row in rows:
        counts[row] += 1
    return [f"    kernel  {row}{f'  {count} times' if count > 1 else ''}" for row, count in counts.items()]


def _line(spec: dict[str, Any]) -> str:
    return f"{spec['name']}: {spec['dtype']}{spec['shape']}"


def _run_as_text(ran: dict[str, Any]) -> str:
    head = f"on {ran['device']} ({ran['arch']}): loaded in {ran['load_ms']:.1f} ms"
    lines = [
        f"{head}, first call {ran['first_call_ms']:.3f} ms, least of {ran['calls']} {ran['least_ms']:.3f} ms"
    ]
    for result in ran["results"]:
        numbers = " ".join(f"{one:.6g}" if isinstance(one, float) else str(one) for one in result["first"])
        lines.append(f"  {_line(result)} = {numbers}{' ...' if len(result['first']) == SHOWN else ''}")
    return "\n".join(lines)
