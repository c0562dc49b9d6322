"""Conformance, the page: results counted by group, and a line for each operator that fails, which says why.

In       results by operator
Out      rows of a table; the text of docs/conformance.md
Next     judge.py (where results come from), docs/semantics.md (where we differ on purpose)
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hcq.tools.conformance.judge import GRADIENT_ATOL, GRADIENT_RTOL, MISSING, PASSES
from hcq.tools.conformance.samples import DTYPES, SAMPLES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "conformance.md"
OF_TINYGRAD = "conformance-tinygrad.md"  # beside it, written by hand

# groups of operators by the front of their names; the core is what everyday programs call
OUTSIDE = {
    "linalg.": "linear algebra",
    "fft.": "Fourier transforms",
    "special.": "special functions",
    "masked.": "masked reductions",
    "signal.": "windows of signals",
    "sparse.": "inside PyTorch",
    "jiterator": "inside PyTorch",
    "torch.": "inside PyTorch",
    "_": "inside PyTorch",
}
CORE = "core"
INSIDE = (
    "Inside PyTorch is what no program calls by itself: operators behind a public function (their names begin with "
    "`_`), kernels written as CUDA C++ in a string (`jiterator_...`), and products of sparse layouts, of which there "
    "are none here. Where a public function is the same thing it is compared; the others stay missing on purpose."
)
# why an operator stays as it is
EXPLAINED = {
    "byte": "a negative or too large float has no right uint8: PyTorch keeps its low bits, we give the nearest end "
    "of the dtype, as every cast here does (docs/semantics.md).",
    "zero_": "the value is right; `backward()` of what depends on no tensor that requires a gradient is refused, "
    "where PyTorch gives zeros.",
    "as_strided_scatter": "the values are right; PyTorch gives elements that are overwritten, which the result does "
    "not depend on, a gradient of 1, and we give 0.",
    "chalf": "there is no complex number of two float16.",
    "randint": "`randint(high, size)` with the size in the second place: here it is the third, or `size=`; floats are "
    "not drawn.",
    "max_pool2d_with_indices_backward": "the way back of `max_pool2d`, which programs reach by `backward()`.",
    "to_sparse": "there is no sparse layout here: all tensors are dense.",
}


def group_of(name: str) -> str:
    """Which part of PyTorch an operator belongs to."""
    return next(
        (group for front, group in OUTSIDE.items() if name.startswith(front) and name[:2] != "__"), CORE
    )


class Score(NamedTuple):
    """How many passed of how many."""

    operators: int
    all_operators: int
    samples: int
    all_samples: int

    def row(self, name: str) -> str:
        """A row of the table."""
        share, part = (
            f"{100 * a / b:.1f} %" if b else ""
            for a, b in ((self.operators, self.all_operators), (self.samples, self.all_samples))
        )
        return (
            f"| {name} | {self.operators} of {self.all_operators} | {share} | "
            f"{self.samples} of {self.all_samples} | {part} |"
        )


def score(results: list[dict[str, Any]]) -> Score:
    """The counts of some results."""
    counts: Counter[str] = Counter()
    for result in results:
        counts.update(result["counts"])
    passed = sum(result["status"] == PASSES for result in results)
    return Score(passed, len(results), counts[PASSES], sum(counts.values()))


def measured_at(revisions: Sequence[str]) -> list[str]:
    """The lines of a page that say what was measured; none where that is not known."""
    if not revisions:
        return []
    *others, last = revisions
    if others:
        return [f"Measured in parts, at revisions {', '.join(others)} and {last}."]
    return [f"Measured at revision {last}."]


def of_tinygrad() -> str:
    """The line on tinygrad's tests, with the figure that their page begins with."""
    path = PAGE.parent / OF_TINYGRAD
    words = " ".join(path.read_text("utf-8").split()) if path.is_file() else ""
    figure = re.search(r"[\d,]+ of [\d,]+ pass, [\d.]+ %", words)
    return f"[tinygrad's public tests]({OF_TINYGRAD}) of tensors: {figure[0] if figure else 'see there'}."


def page(
    results: list[dict[str, Any]], device: str, version: str, seconds: float, revisions: Sequence[str] = ()
) -> str:
    """docs/conformance.md, of results that were measured at these revisions."""
    groups = [CORE, *dict.fromkeys(OUTSIDE.values())]
    rows = [
        score([result for result in results if group_of(result["operator"]) == group]).row(group)
        for group in groups
    ]
    failing = [result for result in results if result["status"] != PASSES]
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance`; change tools/conformance/page.py or the operators, not this page.",
        "",
        f"PyTorch {version} describes each of its operators for its own tests: inputs of every dtype, edge cases, and",
        f"how exact results must be (OpInfo). Up to {SAMPLES} samples each of {', '.join(DTYPES)} are computed by",
        f"PyTorch and by us on {device}; shapes, dtypes, values and, of float32, gradients of a weighted sum of the",
        f"results are compared. Values have OpInfo's tolerances, gradients {GRADIENT_RTOL:g} of the value and",
        f"{GRADIENT_ATOL:g} of the largest one. Of random operators shapes and dtypes are compared. An operator passes",
        "when all of its samples do; variants of one operator count as operators.",
        "Where results in float32 differ, PyTorch's in float64 decide: ours are right if they are as near as the",
        "tolerance says, or no further from them than PyTorch's own in float32.",
        *measured_at(revisions),
        "",
        "| group | operators that pass | | samples that pass | |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        score(results).row("all"),
        "",
        "What is outside of the core: "
        + "; ".join(f"`{front}...` {group}" for front, group in OUTSIDE.items())
        + ".",
        "",
        *textwrap.wrap(INSIDE, 118, break_on_hyphens=False),
        "",
        "[Conformance between devices](conformance-devices.md) compares our results on emulated GPUs with these.",
        of_tinygrad(),
        "",
        "## Operators that do not pass",
        "",
        "*wrong*: a result differs; *refused*: an error says what we do not do; *missing*: there is no such function;",
        f"*late*: not done in {seconds:.0f} s.",
    ]
    for group in groups:
        of_group = [result for result in failing if group_of(result["operator"]) == group]
        if not of_group:
            continue
        lines += ["", f"### {group[0].upper()}{group[1:]}", ""]
        gone = [result["operator"] for result in of_group if result["status"] == MISSING]
        for result in of_group:
            if result["status"] != MISSING:
                passed, total = result["counts"].get(PASSES, 0), sum(result["counts"].values())
                why = EXPLAINED.get(result["operator"]) or (result["why"][0] if result["why"] else "")
                lines.append(
                    f"- `{result['operator']}` {result['status']}, {passed} of {total} samples pass: {why}"
                )
        if gone:
            explained = [name for name in gone if name in EXPLAINED]
            lines += [f"- `{name}` missing: {EXPLAINED[name]}" for name in explained]
            rest = sorted(set(gone) - set(explained))
            if rest:
                lines.append(f"- missing: {', '.join(f'`{name}`' for name in rest)}")
    return "\n".join([*lines, ""])
