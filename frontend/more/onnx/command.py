"""The command `python -m hcq onnx FILE`: what is in a model, which kernels it becomes, and how long each takes.

In       a path; sizes for the names in its shapes, inputs from files
Out      its nodes with shapes and weights, its kernels; with --run their times and its results, as text or as JSON
Changes  nothing; --run runs the model
Next     model.py (the model), hcq/observe/profile.py (the times), hcq/__main__.py (the program)
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hcq.checks import printable
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.more.onnx.graph import Step
from hcq.frontend.more.onnx.model import OnnxModel, Port
from hcq.frontend.more.onnx.values import Value
from hcq.frontend.more.onnx.weights import bits_of
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.observe.profile import Profile

TIMES = 10
EPILOG = """examples:
  python -m hcq onnx model.onnx                       nodes, shapes, weights, and the kernels that they become
  python -m hcq onnx model.onnx --run                 runs it on random inputs: time of a call, and of each kernel
  python -m hcq onnx model.onnx --run --size batch=8 --input ids=ids.npy --device AMD --times 100
  python -m hcq onnx model.onnx --json

Sizes that have a name in the file are 1 unless --size says another. A model that asks for what is not computed here is
refused, with all of its nodes of that kind; the exit status is 2 then. docs/onnx.md has the operators.
"""


def add_verb(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.epilog = EPILOG
    parser.set_defaults(act=run)
    parser.add_argument("file", metavar="FILE", help="a model, as .onnx; external data lies beside it")
    parser.add_argument("--run", action="store_true", help="run it on random inputs, and time its kernels")
    parser.add_argument(
        "--size", metavar="NAME=N", action="append", default=[], help="a size that has a name"
    )
    parser.add_argument("--input", metavar="NAME=FILE", action="append", default=[], help="an input, as .npy")
    parser.add_argument("--times", metavar="N", type=int, default=TIMES, help=f"calls (default {TIMES})")
    parser.add_argument("--device", metavar="NAME", help="CPU, AMD, NV:1, ...; default HCQ_DEVICE")
    parser.add_argument("--json", action="store_true", help="for another program")


def run(options: argparse.Namespace) -> int:
    """Print what is there. Returns the exit status. Raises UsageError."""
    if options.times < 1:
        raise UsageError(f"[onnx] --times {options.times}: at least one call.")
    model = OnnxModel(options.file, options.device)
    inputs = inputs_of(model, _sizes(options.size), _files(options.input))
    lazy = model.trace(**inputs)
    tensors = [value for value in lazy.values() if isinstance(value, Tensor)]
    found: dict[str, Any] = {
        "file": options.file,
        "producer": model.proto.producer,
        "opsets": model.opsets,
        "weight_bytes": model.weight_bytes,
        "inputs": [_port(port) for port in model.inputs],
        "outputs": [_port(port) for port in model.outputs],
        "nodes": nodes_of(model),
        "kernels": kernels_of(tensors),
    }
    if options.run:
        found["run"] = _run(model, inputs, options.times)
    print(json.dumps(found, indent=2) if options.json else printable(_as_text(found)))
    return 0


def _sizes(words: list[str]) -> dict[str, int]:
    found = {}
    for word in words:
        name, _, number = word.partition("=")
        if not number.isdigit():
            raise UsageError(f"[onnx] --size {word}: give a name and a number, as batch=8.")
        found[name] = int(number)
    return found


def _files(words: list[str]) -> dict[str, Any]:
    found = {}
    for word in words:
        name, _, path = word.partition("=")
        try:
            found[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UsageError(f"[onnx] --input {word}: {error}.") from None
    return found


def inputs_of(model: OnnxModel, sizes: dict[str, int], given: dict[str, Any]) -> dict[str, Any]:
    """Random numbers for each input that is not given: integers are 0 and 1, which most indices may be."""
    names = {size for port in model.inputs for size in port.shape or () if isinstance(size, str)}
    for name in sizes:
        if name not in names:
            raise UsageError(
                f"[onnx] --size {name}: no size has that name. Names: {', '.join(sorted(names)) or 'none'}."
            )
    rng = np.random.default_rng(0)
    found = dict(given)
    for port in model.inputs:
        if port.name in found or port.kind == "optional":
            continue
        if port.kind != "tensor" or port.dtype is None:
            raise UsageError(
                f"[onnx] {port.name} is a {port.kind}: no random one is made of that. Call it from Python."
            )
        shape = tuple(sizes.get(size, 1) if isinstance(size, str) else size or 1 for size in port.shape or ())
        if port.dtype.is_float:
            numbers = Tensor(rng.standard_normal(shape).astype(np.float32), model.device)
            found[port.name] = numbers.cast(port.dtype).realize()
        else:
            found[port.name] = rng.integers(0, 2, shape).astype(bits_of(port.dtype))
    return found


def nodes_of(model: OnnxModel) -> list[dict[str, Any]]:
    """Each node with the shapes of what it makes, and the bytes of constants that it takes."""
    run = model.last_run
    shapes = {} if run is None else run.shapes
    constants = model.block.constants

    def shape(name: str) -> str:
        value = shapes.get(name)
        if isinstance(value, Value):
            return f"{value.dtype.name}{list(value.shape)}"
        return "" if value is None else f"a sequence of {len(value)}"

    def weights(step: Step) -> int:
        used = [constants[name] for name in step.inputs if name in constants]
        return sum(value.size * value.dtype.itemsize for value in used)

    return [
        {
            "op": step.op,
            "name": step.name,
            "outputs": [shape(name) for name in step.outputs if name],
            "weight_bytes": weights(step),
        }
        for step in model.block.steps
    ]


def kernels_of(tensors: list[Tensor]) -> list[dict[str, Any]]:
    """The kernels that compute what is still lazy, in their order."""
    plans = tensors[0].schedule(*tensors[1:]) if tensors else []
    return [
        {"name": launch.name, "flops": launch.flops, "traffic_bytes": launch.traffic_bytes}
        for plan in plans
        for launch in plan.launches
    ]


def _run(model: OnnxModel, inputs: dict[str, Any], times: int) -> dict[str, Any]:
    """Calls, the shortest of which counts; then one whose kernels are timed."""
    device = devices.get(model.device)
    spent = []
    for _ in range(2 + times):  # two are needed for a recording
        start = time.perf_counter_ns()
        results = model(**inputs)
        device.synchronize()
        spent.append(time.perf_counter_ns() - start)
    profile = Profile(device)
    before = device.observers, device.asks_device, device.wraps_dispatches
    device.observers, device.asks_device, device.wraps_dispatches = (*before[0], profile), True, True
    try:
        lazy = model.trace(**inputs)
        tensors = [value for value in lazy.values() if isinstance(value, Tensor)]
        if tensors:
            tensors[0].realize(*tensors[1:])
        profile.collect()
    finally:
        device.observers, device.asks_device, device.wraps_dispatches = before
    return {
        "first_call_ns": spent[0],
        "call_ns": min(spent[2:]),
        "why_not_recorded": model.why_not_recorded,
        "kernels": [
            {"name": name, "calls": calls, "ns": ns}
            for name, (calls, ns) in sorted(profile.totals.items(), key=lambda item: -item[1][1])
        ],
        "results": {name: _summary(value) for name, value in results.items()},
    }


def _summary(value: Any) -> str:
    """A result in a few words."""
    if not isinstance(value, Tensor):
        return "nothing" if value is None else f"a sequence of {len(value)}"
    shape = f"{value.dtype.name}{list(value.shape)}"
    if not value.numel() or not value.dtype.is_float:
        return shape
    wide = value.cast(dtypes.float32)
    return f"{shape}, from {wide.amin().item():.4g} to {wide.amax().item():.4g}"


def _port(port: Port) -> dict[str, Any]:
    return {
        "name": port.name,
        "shape": None if port.shape is None else list(port.shape),
        "dtype": port.dtype.name if port.dtype else "",
        "kind": port.kind,
    }


def _as_text(found: dict[str, Any]) -> str:
    """For people."""
    opsets = ", ".join(f"{name or 'onnx'} {version}" for name, version in found["opsets"].items())
    size = f"{len(found['nodes'])} nodes, {found['weight_bytes']:,} bytes of weights"
    lines = [f"{found['file']}: {size}; operators of {opsets}"]
    if found["producer"]:
        lines[0] += f"; from {found['producer']}"
    for word in ("inputs", "outputs"):
        lines += ["", word]
        for port in found[word]:
            shape = (
                "?"
                if port["shape"] is None
                else ", ".join("?" if n is None else str(n) for n in port["shape"])
            )
            around = "" if port["kind"] == "tensor" else f" ({port['kind']})"
            lines.append(f"  {port['name']}  {port['dtype']}[{shape}]{around}")
    rows = [
        (
            node["op"],
            node["name"],
            " ".join(node["outputs"]),
            f"{node['weight_bytes']:,}" if node["weight_bytes"] else "",
        )
        for node in found["nodes"]
    ]
    lines += ["", *_table(("node", "name", "makes", "weights, bytes"), rows)]
    times = found.get("run")
    if times is None:
        counts = Counter(kernel["name"] for kernel in found["kernels"])
        facts = {kernel["name"]: kernel for kernel in found["kernels"]}
        kernels = [
            (name, str(count), f"{facts[name]['flops']:,}", f"{facts[name]['traffic_bytes']:,}")
            for name, count in counts.items()
        ]
        return "\n".join([*lines, "", *_table(("kernel", "runs", "operations", "bytes"), kernels)])
    total = sum(kernel["ns"] for kernel in times["kernels"]) or 1
    kernels = [
        (
            kernel["name"],
            str(kernel["calls"]),
            f"{kernel['ns'] / 1000:.1f} us",
            f"{100 * kernel['ns'] / total:.0f} %",
        )
        for kernel in times["kernels"]
    ]
    lines += ["", *_table(("kernel", "runs", "time", "share"), kernels), ""]
    first, call = (f"{times[word] / 1e6:.3f} ms" for word in ("first_call_ns", "call_ns"))
    lines.append(
        f"the first call took {first}, the shortest of the others {call}; kernels {total / 1e6:.3f} ms"
    )
    if times["why_not_recorded"]:
        lines.append(f"calls are not recorded: {times['why_not_recorded']}")
    lines += [f"  {name}  {summary}" for name, summary in times["results"].items()]
    return "\n".join(lines)


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns as wide as they have to be."""
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        for row in (heads, *rows)
    ]
