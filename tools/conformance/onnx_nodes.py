"""Conformance to ONNX: the tests that the package `onnx` carries, computed by us (part of `make conformance`).

In       onnx.backend.test: for each case a model, inputs, and what comes out
Out      a table on the terminal; docs/conformance-onnx.md with a line for each case that fails, which says why
Changes  docs/conformance-onnx.md, when all cases were run; the kernels it compiles stay in the disk cache
Next     frontend/more/onnx/ (what is tested), pytorch.py (PyTorch's operators), docs/onnx.md

    python tools/conformance/onnx_nodes.py                   all cases, a few processes, and the page
    python tools/conformance/onnx_nodes.py --only resize --only test_abs
    HCQ_EMULATE=amd:gfx1100 python tools/conformance/onnx_nodes.py --device AMD --opset 22

A case belongs to the version of operators that its model asks for. Results have the case's own tolerance, and no
less than two units in the last place of their dtype; of random operators shapes and dtypes are compared.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance-onnx.md"
PASSES, WRONG, REFUSED, OUTSIDE = "passes", "wrong", "refused", "outside"
GOAL = 22  # the version whose share is counted apart
CONVERTED = ("pytorch-operator", "pytorch-converted", "simple")  # whole models, as files in the package
RANDOM = ("test_bernoulli", "test_training_dropout")
# the front of a case's name -> what its line says besides
NOTES = {
    "test_dft_inverse": "the exact number is 0, and what is expected is an error of rounding beyond the tolerance",
    "test_image_decoder": "files of pictures are not decoded here",
}
LAST_PLACE = {"float16": 2**-10, "bfloat16": 2**-7, "float8_e4m3fn": 2**-3, "float8_e5m2": 2**-2}


@functools.cache
def cases() -> list[Any]:
    """Every case, those of one operator first, each kind by name."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    for kind in CONVERTED:
        found += sorted(map(filled, load_model_tests(kind=kind)), key=lambda case: case.name)
    return found


def filled(case: Any) -> Any:
    """A case of the package's folders with its model, and with what goes in and comes out."""
    import onnx

    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    given = model_inputs(model)

    def values(where: Path, word: str, infos: Sequence[Any]) -> list[Any]:
        found = []
        for number, info in enumerate(infos):
            kind = info.type.WhichOneof("value")
            record = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}.get(
                kind, onnx.TensorProto
            )()
            record.ParseFromString((where / f"{word}_{number}.pb").read_bytes())
            found.append(plain(record))
        return found

    data_sets = [
        (values(where, "input", given), values(where, "output", model.graph.output))
        for where in sorted(folder.glob("test_data_set_*"))
    ]
    return dataclasses.replace(case, model=model, data_sets=data_sets)


def plain(record: Any) -> Any:
    """A tensor as it is; a sequence as a list, an optional as what is in it, or None."""
    if hasattr(record, "tensor_values"):
        return list(record.tensor_values)
    if hasattr(record, "tensor_value"):
        return record.tensor_value if record.HasField("tensor_value") else None
    return record


def model_inputs(model: Any) -> list[Any]:
    """What a model is given: older files list its constants, too."""
    constants = {constant.name for constant in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in constants]


def opset(case: Any) -> int:
    """The version of ONNX's own operators that a case asks for; 0 for none of them."""
    return max((one.version for one in case.model.opset_import if one.domain in ("", "ai.onnx")), default=0)


def kinds(model: Any) -> set[int]:
    """The data types of what goes into a model, through it, and comes out."""
    found: set[int] = set()

    def collect(type_: Any) -> None:
        if type_.HasField("tensor_type"):
            found.add(type_.tensor_type.elem_type)
        for around in ("sequence_type", "optional_type"):
            if type_.HasField(around):
                collect(getattr(type_, around).elem_type)

    for info in (*model.graph.input, *model.graph.output):
        collect(info.type)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                found.add(attribute.t.data_type)
            if node.op_type in ("Cast", "CastLike", "BitCast") and attribute.name == "to":
                found.add(attribute.i)
    return found


def run_case(case: Any, device: str | None = None) -> tuple[str, str]:
    """(what happened, why)."""
    from hcq.errors import HcqError
    from hcq.frontend.more.onnx import OnnxModel
    from hcq.frontend.more.onnx.weights import DTYPES, kind_name

    foreign = kinds(case.model) - set(DTYPES) - {0}
    try:
        model = OnnxModel(case.model.SerializeToString(), device)
        names = [info.name for info in model_inputs(case.model)]
        for inputs, outputs in case.data_sets:
            got = model(**dict(zip(names, map(ours, inputs))))
            for info, want in zip(case.model.graph.output, outputs):
                why = differs(case, theirs(want), values(got[info.name]))
                if why:
                    return WRONG, why
    except HcqError as error:
        if foreign:
            return OUTSIDE, f"no dtype here: {', '.join(sorted(map(kind_name, foreign)))}"
        why = " ".join(str(error).split()).partition(" docs/onnx.md lists")[0]
        return REFUSED, why.replace("[OnnxModel] 1 nodes cannot be computed here: ", "")[:200]
    return PASSES, ""


def ours(value: Any) -> Any:
    """A case's input as we take it."""
    from hcq import Tensor
    from hcq.errors import UsageError
    from hcq.frontend.more.onnx import proto, weights
    from hcq.frontend.more.onnx.values import put
    from hcq.frontend.more.onnx.wire import Damaged

    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [ours(each) for each in value]
    if hasattr(value, "SerializeToString"):
        record = proto.Reader().tensor(memoryview(value.SerializeToString()))
        try:
            numbers = weights.read(record, None)
        except Damaged as why:
            raise UsageError(str(why)) from None
        return put(numbers.array, numbers.dtype, Tensor.zeros(1).device)
    kind = {"bfloat16": "bfloat16", "float8_e4m3fn": "fp8e4m3", "float8_e5m2": "fp8e5m2"}.get(
        value.dtype.name
    )
    if kind:
        from hcq import dtypes

        return Tensor(value.tobytes(), dtype=dtypes.named(kind)).reshape(tuple(value.shape))
    return value


def theirs(value: Any) -> Any:
    """What should come out, as arrays."""
    if isinstance(value, (list, tuple)):
        return [theirs(each) for each in value]
    if hasattr(value, "SerializeToString"):
        from onnx import numpy_helper

        return numpy_helper.to_array(value)
    return value


def values(found: Any) -> Any:
    """What came out, as arrays with the name of their dtype."""
    if isinstance(found, list):
        return [values(each) for each in found]
    if found is None:
        return None
    names = {"fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2"}
    name = names.get(found.dtype.name, found.dtype.name)
    narrow = name == "bfloat16" or found.dtype.is_storage_only
    return name, (found.float() if narrow else found).numpy()


def differs(case: Any, want: Any, have: Any) -> str:
    """What is different; "" for nothing."""
    import numpy as np

    if isinstance(want, list) or want is None:
        if want is None or have is None or not isinstance(have, list) or len(want) != len(have):
            return "" if want is None and have is None else "another number of tensors"
        return next((why for a, b in zip(want, have) if (why := differs(case, a, b))), "")
    want, (name, array) = np.asarray(want), have
    if array.shape != want.shape:
        return f"shape {array.shape} instead of {want.shape}"
    if name != want.dtype.name:
        return f"dtype {name} instead of {want.dtype.name}"
    if case.name.startswith(RANDOM):
        return ""
    if want.dtype.kind == "V" or name in LAST_PLACE:
        want = want.astype(np.float32)
    rtol = max(case.rtol, 2 * LAST_PLACE.get(name, 0.0))
    if np.allclose(array, want, rtol, case.atol, equal_nan=True):
        return ""
    far = ~np.isclose(array, want, rtol, case.atol, equal_nan=True)
    first = tuple(np.argwhere(far)[0])
    return f"{int(far.sum())} of {far.size} elements differ: {array[first]!r} instead of {want[first]!r}"


def run_number(number: int, device: str | None) -> dict[str, Any]:
    """One case, in a process of the pool."""
    case = cases()[number]
    try:
        status, why = run_case(case, device)
    except Exception as error:  # a bug of ours: counted, not hidden
        status, why = WRONG, f"{type(error).__name__}: {error}"[:200]
    return {"case": case.name, "kind": case.kind, "opset": opset(case), "status": status, "why": why}


def _begin(device: str | None) -> None:
    warnings.filterwarnings("ignore")
    if device:
        os.environ["HCQ_DEVICE"] = device


# -- the report -----------------------------------------------------------------------------------------------------


def row(name: str, results: list[dict[str, Any]]) -> str:
    """A row of the table: of our dtypes, and of all."""
    counts = Counter(result["status"] for result in results)
    mine = len(results) - counts[OUTSIDE]
    share = f"{100 * counts[PASSES] / mine:.1f} %" if mine else ""
    return f"| {name} | {counts[PASSES]} of {mine} | {share} | {counts[OUTSIDE]} |"


def page(results: list[dict[str, Any]], device: str, version: str) -> str:
    """docs/conformance-onnx.md."""
    groups = grouped(results)
    lines = [
        "# Conformance to ONNX",
        "",
        "Written by `make conformance`; change tools/conformance/onnx_nodes.py or frontend/more/onnx/, not this page.",
        "",
        f"The package onnx {version} generates a test for each form of each operator: a model of one node, or of the",
        "operator's definition by others (`..._expanded`), inputs, and what should come out. Each is loaded and run by",
        f"`hcq.frontend.more.onnx` on {device}. Results have the case's tolerance (usually 0.001 of the value), and no",
        "less than two units in the last place of 16-bit and 8-bit floats. Of random operators shapes and dtypes are",
        "compared. A case of dtypes that hcq lacks (strings, integers of 2 and 4 bits, further 8-bit floats, complex",
        "numbers) is refused when it is loaded, and counted apart. The package's folders also have models that were",
        "converted from PyTorch, most of operator set 6, and small ones of several operators.",
        "",
        "| cases | pass | | other dtypes |",
        "| --- | --- | --- | --- |",
        *[row(name, group) for name, group in groups.items()],
        "",
        "## Cases that do not pass",
        "",
    ]
    for result in results:
        if result["status"] in (WRONG, REFUSED):
            note = next(
                (f" ({note})" for front, note in NOTES.items() if result["case"].startswith(front)), ""
            )
            lines.append(f"- `{result['case']}` {result['status']}: {result['why']}{note}")
    lines += ["", "## Cases of other dtypes", ""]
    reasons: dict[str, list[str]] = {}
    for result in results:
        if result["status"] == OUTSIDE:
            reasons.setdefault(result["why"], []).append(result["case"])
    for why, names in sorted(reasons.items()):
        lines.append(f"- {why}: {', '.join(f'`{name}`' for name in names)}")
    return "\n".join([*lines, ""])


def grouped(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The results of each row of the table."""
    single = [result for result in results if result["kind"] == "node"]
    return {
        f"operator sets up to {GOAL}": [result for result in single if result["opset"] <= GOAL],
        "newer ones": [result for result in single if result["opset"] > GOAL],
        **{
            f"models: `{kind}`": [result for result in results if result["kind"] == kind]
            for kind in CONVERTED
        },
        "all": results,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns 0: it measures and does not judge."""
    parser = argparse.ArgumentParser(prog="onnx_nodes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], help="part of a case's name; may be repeated")
    parser.add_argument("--opset", type=int, default=99, help="cases up to this version of operators")
    parser.add_argument("--device", help="where our side runs (default: HCQ_DEVICE, or CPU)")
    parser.add_argument("--json", type=Path, help="write every result to this file")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--all", action="store_true", help="print the cases that pass, too")
    options = parser.parse_args(argv)
    try:
        import onnx

        known = cases()
    except ModuleNotFoundError as error:
        raise SystemExit(f"onnx_nodes: {error}. Install what it needs: make conformance") from error
    work = [
        number
        for number, case in enumerate(known)
        if opset(case) <= options.opset
        and (not options.only or any(part in case.name for part in options.only))
    ]
    if not work:
        raise SystemExit(f"onnx_nodes: no case is called like {', '.join(options.only)}")
    start = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(options.jobs, _begin, (options.device,)) as pool:
        results = []
        for result in pool.imap(functools.partial(run_number, device=options.device), work, 8):
            results.append(result)
            if options.all or options.only or result["status"] in (WRONG, REFUSED):
                print(f"{result['status']:8} {result['case']}  {result['why']}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    for name, group in grouped(results).items():
        print(row(name, group))
    print(f"{time.perf_counter() - start:.0f} s")
    if not options.only and options.opset == 99:
        PAGE.write_text(page(results, options.device or "the CPU", onnx.__version__), "utf-8")
        print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
