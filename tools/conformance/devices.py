"""Conformance between devices: PyTorch's samples of its operators, computed by us on one device and on others.

In       samples of the OpInfo database; names of devices, the first of which the others are compared with
Out      what differs, operator by operator; docs/conformance-devices.md
Changes  the process's default device, one device after the other
Next     pytorch.py (the command line), samples.py, judge.py (tolerances)

    python tools/conformance/pytorch.py --devices CPU,amd:gfx1100,nv:sm_90            all samples, and the page
    python tools/conformance/pytorch.py --devices CPU,nv:sm_90 --samples 1 --only cumsum

A name such as amd:gfx1100 is an emulated device. Values and gradients are compared: what is no float exactly, floats
with the tolerances of judge.py. Random numbers begin at one seed, so they are compared, too.
Emulated devices are slow: `--json out.jsonl --resume` goes on where a run was cut short.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hcq.tools.conformance import judge
from hcq.tools.conformance import page as report
from hcq.tools.conformance.judge import LATE, MISSING, PASSES, REFUSED, WRONG, Outcome
from hcq.tools.conformance.samples import SAMPLES, as_torch, converted, leaves

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance-devices.md"

PATIENCE_MS = "1800000"

Found = tuple[list[Any], list[Any] | str] | str  # results, and gradients or an error; or an error


class NoDevice(Exception):
    """A name that no device has here; the text says which, and why."""


def emulated(devices: Sequence[str]) -> list[str]:
    """The names that tensors use, after the emulated ones are asked for in the environment.

    Of two emulated devices of one kind the second is another GPU: amd:gfx1100,amd:gfx1201 are AMD and AMD:1.
    """
    asked = [name for name in devices if _is_emulated(name)]
    if asked:
        os.environ["HCQ_EMULATE"] = ",".join(asked)
        # one kernel of five million elements takes minutes
        os.environ.setdefault("HCQ_TIMEOUT_MS", PATIENCE_MS)
    counts: Counter[str] = Counter()
    names: list[str] = []
    for name in devices:
        if not _is_emulated(name):
            names.append(name)
            continue
        kind = name.partition(":")[0].upper()
        names.append(f"{kind}:{counts[kind]}" if counts[kind] else kind)
        counts[kind] += 1
    return names


def _is_emulated(name: str) -> bool:
    """Whether a name asks for an emulated device, as amd:gfx1100 does and AMD:1 does not."""
    return ":" in name and name == name.lower()


def check(devices: Sequence[str]) -> None:
    """Compute something on each device, so that a wrong name is one error and not one for every sample.

    Raises NoDevice, which names the device.
    """
    import hcq
    from hcq import config
    from hcq.errors import HcqError

    for asked, name in zip(devices, emulated(devices), strict=True):
        config.use(None)
        try:
            assert (hcq.Tensor([1.0], device=name) + 1).tolist() == [2.0]
        except HcqError as error:
            raise NoDevice(f"--devices {asked}: {' '.join(str(error).split())}") from error


def run_operator(op: Any, kinds: Sequence[str], devices: Sequence[str], samples: int) -> dict[str, Any]:
    """All samples of one operator, on every device."""
    names = emulated(devices)
    return judge.run_operator(
        op, kinds, samples, lambda op, function, sample: run_sample(op, function, sample, names)
    )


def run_sample(op: Any, function: Callable[..., Any], sample: Any, devices: Sequence[str]) -> Outcome:
    """One sample on every device, and the comparison with the first."""
    first: Any = None
    for name in devices:
        found = computed_on(name, op, function, sample)
        if first is None:
            first = found
            continue
        why = apart(op, first, found)
        if why:
            return Outcome(WRONG, f"{name}: {why}")
    if isinstance(first, str):
        return Outcome(REFUSED, f"alike: {first}")
    return Outcome(PASSES)


def computed_on(name: str, op: Any, function: Callable[..., Any], sample: Any) -> Found:
    """The results and the gradients as PyTorch's tensors; or the error, alike on every device, as text."""
    import hcq
    from hcq import config

    os.environ["HCQ_DEVICE"] = name
    config.use(None)
    hcq.Tensor.manual_seed(7)
    try:
        parts = tuple(converted(part) for part in (sample.input, sample.args, sample.kwargs))
        results = list(leaves([function(parts[0], *parts[1], **parts[2])]))
        tensors = [leaf for leaf in results if isinstance(leaf, hcq.Tensor)]
        found = [as_torch(leaf) if isinstance(leaf, hcq.Tensor) else leaf for leaf in results]
    except Exception as error:
        return _said(error, name)
    wanting = [leaf for leaf in leaves(parts) if getattr(leaf, "requires_grad", False)]
    parted = [
        part for leaf in tensors for part in ((leaf.real, leaf.imag) if leaf.dtype.is_complex else (leaf,))
    ]
    smooth = [part for part in parted if part.dtype.is_float]
    if not wanting or not smooth or not op.supports_autograd:
        return found, []
    try:
        loss = smooth[0].sum()
        for leaf in smooth[1:]:
            loss = loss + leaf.sum()
        loss.backward()
        return found, [None if leaf.grad is None else as_torch(leaf.grad) for leaf in wanting]
    except Exception as error:
        return found, _said(error, name)


def _said(error: Exception, name: str) -> str:
    """An error in words that are alike on every device."""
    text = " ".join(str(error).split()).replace(f"device={name}", "device=...").replace(f" {name} ", " ... ")
    return f"{type(error).__name__}: {text}"[:150]


def apart(op: Any, first: Found, found: Found) -> str:
    """What is different; "" for nothing."""
    if isinstance(first, str) or isinstance(found, str):
        return errors_apart(first, found, "a result")
    why = values_apart(op, first[0], found[0], 0.0, 0.0)
    if why:
        return why
    if isinstance(first[1], str) or isinstance(found[1], str):
        why = errors_apart(first[1], found[1], "a gradient")
    else:
        slopes = judge.GRADIENT_RTOL, judge.GRADIENT_ATOL
        why = values_apart(op, first[1], found[1], *slopes)
    return f"gradient: {why}" if why else ""


def errors_apart(first: Any, found: Any, other: str) -> str:
    """What is different, where one at least is an error, and else there is `other`; "" for nothing."""
    if isinstance(first, str) and isinstance(found, str) and first[:40] == found[:40]:
        return ""
    return " instead of ".join(each if isinstance(each, str) else other for each in (found, first))


def values_apart(op: Any, first: list[Any], found: list[Any], rtol: float, atol: float) -> str:
    """What is different between results, or between gradients.

    rtol, atol   of floats, of each and of the greatest; where OpInfo gives the operator more, that counts
    """
    import torch

    if len(first) != len(found):
        return f"{len(found)} results instead of {len(first)}"
    for want, have in zip(first, found):
        if not isinstance(want, torch.Tensor) or not isinstance(have, torch.Tensor):
            if type(want) is not type(have) or (want != have and want == want):
                return f"{have!r} instead of {want!r}"[:80]
            continue
        if want.shape != have.shape or want.dtype != have.dtype:
            return f"{have.dtype} {tuple(have.shape)} instead of {want.dtype} {tuple(want.shape)}"
        if op.name in judge.UNDEFINED_VALUES:
            continue
        bounds = 0.0, 0.0
        if want.dtype.is_floating_point or want.is_complex():
            size = want[want.isfinite()].abs()
            scale = max(1.0, float(size.max())) if size.numel() else 1.0
            given = judge.tolerance(op, want.dtype)
            bounds = max(given[0], rtol, 1e-5), max(given[1], max(atol, 1e-6) * scale)
        why = judge.apart(want, have, *bounds)
        if why:
            return why
    return ""


def page(
    results: list[dict[str, Any]], devices: Sequence[str], samples: int, revisions: Sequence[str] = ()
) -> str:
    """docs/conformance-devices.md, of results that were measured at these revisions."""
    groups = [report.CORE, *dict.fromkeys(report.OUTSIDE.values())]
    rows = [
        report.score([r for r in results if report.group_of(r["operator"]) == group]).row(group)
        for group in groups
    ]
    first, *others = devices
    each = f"The first {samples} samples" if samples > 1 else "The first sample"
    if samples == SAMPLES:
        each = "The samples"
    lines = [
        "# Conformance between devices",
        "",
        f"Written by `make conformance CONFORMANCE_FLAGS='--devices {','.join(devices)}'`; change",
        "tools/conformance/devices.py or the operators, not this page.",
        "",
        f"{each} of each dtype of the operators in [conformance](conformance.md), computed by us on {first} and on",
        f"{' and on '.join(others)}: results, and gradients of their sum. What is no float is equal; floats have",
        "OpInfo's tolerances, at least 1e-5 of themselves and 1e-6 of the greatest, gradients those of that page. A",
        "sample passes where all devices agree, be it that there is no gradient; where all refuse the call alike it",
        "is counted as refused, and where we have no such function as missing.",
        *report.measured_at(revisions),
        "",
        "| group | operators that agree | | samples that agree | |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        report.score(results).row("all"),
        "",
        "## Operators that differ between devices",
        "",
    ]
    wrong = [result for result in results if result["status"] in (WRONG, LATE)]
    lines += [f"- `{r['operator']}` {r['status']}: {r['why'][0] if r['why'] else ''}" for r in wrong]
    if not wrong:
        lines.append("None.")
    refused = ", ".join(f"`{result['operator']}`" for result in results if result["status"] == REFUSED)
    missing = sum(result["status"] == MISSING for result in results)
    lines += [
        "",
        f"Refused alike on every device: samples of {refused or 'no operator'}. Missing: {missing} operators.",
    ]
    return "\n".join([*lines, ""])
