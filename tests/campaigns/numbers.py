"""Numbers: random expressions of Tensor's functions over special and random numbers, values and slopes.

In       tests/frontend/number_table.py: how to call a function in our words and in PyTorch's
Out      CAMPAIGNS: on the CPU, on an emulated AMD GPU, on an emulated NVIDIA GPU
Next     tests/frontend/test_numbers.py (one function at a time, every pair of numbers)

An expression is a few functions of two vectors. Every part of it is compared, smallest first, so what a failure names
is the smallest that is wrong, and the numbers of one element. References are the interpreter of graphs
(tests/interpreter/evaluate.py) and PyTorch; without PyTorch, slopes are compared with finite differences. Rounding
grows on its way through an expression: a reference is asked at neighbouring numbers and in both formats, and what
differs there may differ here. Slopes are compared as parts of 1: PyTorch's of sigmoid and its kin cancel where they
are flat.
"""

from __future__ import annotations

import importlib.util
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong
from tests.frontend.number_cases import LIMITS, SPACING
from tests.frontend.number_cases import Case as Function
from tests.frontend.number_table import cases

COUNT = 24  # numbers in a vector
NEIGHBOURS = (0.0, 1.0, -1.0, 3.0)  # in units of the format's spacing times NUDGE
NUDGE = 4.0
MOST_UNITS = 4096.0  # of the spacing, that an expression may be off without a neighbour that is
HAS_TORCH = importlib.util.find_spec("torch") is not None
SMOOTH = frozenset(
    "exp exp2 expm1 log log2 log10 log1p sin cos tanh sigmoid erf sinh cosh sqrt rsqrt reciprocal square softplus "
    "logsigmoid silu mish add sub mul div".split()
)


STEPS = frozenset(
    "lt le gt ge eq ne ceil floor trunc frac round sign logical_and logical_or logical_xor isinf // %".split()
)


class Part:
    """A leaf or a function of parts."""

    def __init__(self, name: str, function: Function | None, parts: Sequence[Part] = ()):
        self.name = name
        self.function = function
        self.parts = tuple(parts)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.parts))})" if self.parts else self.name

    def all(self) -> list[Part]:
        """The parts of this one and itself, each once, smaller ones first."""
        found: dict[Part, None] = {}
        for part in self.parts:
            found.update(dict.fromkeys(part.all()))
        found[self] = None
        return list(found)

    def is_smooth(self) -> bool:
        return all(part.function is None or part.name in SMOOTH for part in self.all())

    def is_regular(self) -> bool:
        """No choice and no step in it: its slopes are no convention at any number."""
        return all(p.function is None or p.name in SMOOTH or set(p.name) & set("*/+-") for p in self.all())


def functions(over: str) -> list[Function]:
    """The functions of the table; of c / x PyTorch multiplies by 1 / x, which may be infinite."""
    kept = [case for case in cases(over) if not case.name.endswith(" / x")]
    return [
        case for case in kept if case.slope and case.name not in ("isclose", "logical_not", "hardsigmoid")
    ]


def is_rest(part: Part) -> bool:
    """A division with rest, or what is made of one."""
    return part.function is not None and any(word in part.name for word in ("%", "fmod", "remainder", "//"))


ONE, TWO = functions("one"), functions("two")
STEEP = [
    case for case in ONE + TWO if set(case.name) & set("*%") or case.name in ("pow", "fmod", "remainder")
]


def expression(rng: random.Random, leaves: Sequence[Part], depth: int) -> Part:
    """A random one."""
    if depth == 0 or rng.random() < 0.1:
        return rng.choice(leaves)
    function = rng.choice(STEEP if rng.random() < 0.3 else ONE if rng.random() < 0.6 else TWO)
    parts = [expression(rng, leaves, depth - 1) for _ in range(2 if function.over == "two" else 1)]
    return Part(function.name, function, parts)


def numbers(rng: random.Random, dtype: str) -> np.ndarray:
    """Special and ordinary numbers of a format, in float64."""
    least, normal, largest = LIMITS[dtype]
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        float("inf"),
        -float("inf"),
        float("nan"),
        least,
        normal,
        -normal,
        largest,
    ]
    found = []
    for _ in range(COUNT):
        ordinary = rng.choice([1.0, 1.0, 5.0, 0.01, 100.0]) * rng.gauss(0, 1)
        found.append(rng.choice(special) if rng.random() < 0.3 else ordinary)
    return np.array(found).astype("float32" if dtype != "float64" else dtype).astype(np.float64)


# -- what is computed --------------------------------------------------------------------------------------------------


def values_of(
    parts: Sequence[Part],
    leaves: dict[Part, Any],
    words: Callable[[Function], Callable[..., Any]],
    factor: float = 1.0,
) -> list[Any]:
    """Each part's value, in our tensors or in PyTorch's; `factor` stands for how it may have been rounded."""
    known = dict(leaves)
    like = next(iter(leaves.values()))
    for part in parts:
        if part not in known:
            assert part.function is not None
            known[part] = as_float(words(part.function)(*[known[p] for p in part.parts]), like)
            if factor != 1.0:
                known[part] = known[part] * factor
    return [known[part] for part in parts]


def as_float(x: Any, like: Any) -> Any:
    """Comparisons go on as numbers of the expression's format."""
    if hasattr(x, "node"):
        return x if x.dtype.is_float else x.cast(like.dtype)
    return x if x.is_floating_point() else x.to(like.dtype)


def slopes(root: Any, leaves: Sequence[Any], again: bool, differentiate: Callable[..., Any]) -> list[Any]:
    """The gradients of the sum of the root, and of the sum of those if they are to be taken twice."""
    first = differentiate(root.sum(), leaves)
    if not again:
        return first
    total = sum((g.sum() for g in first[1:]), first[0].sum())
    return [*first, *differentiate(total, leaves)]


def our_gradients(root: Any, leaves: Sequence[Any]) -> list[Any]:
    from hcq.frontend.grad.gradient import grad

    found = grad(root, list(leaves), create_graph=True, allow_unused=True)
    return [leaf.zeros_like() if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def torch_gradients(root: Any, leaves: Sequence[Any]) -> list[Any]:
    import torch

    if not root.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    found = torch.autograd.grad(root, list(leaves), create_graph=True, allow_unused=True)
    return [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)]


def neighbours(arrays: Sequence[np.ndarray], dtype: str) -> list[list[np.ndarray]]:
    """The numbers themselves, and all of them moved by a few units of the last place."""
    with np.errstate(all="ignore"):
        moved = [[a * (1.0 + n * NUDGE * SPACING[dtype]) for a in arrays] for n in NEIGHBOURS]
    return [moved[0], *[[np.where(np.isfinite(m), m, a) for m, a in zip(ms, arrays)] for ms in moved[1:]]]


def factors(dtype: str) -> tuple[float, float, float]:
    """What every part is multiplied by: nothing, and a few units of its last place up and down."""
    return 1.0, 1.0 + NUDGE * SPACING[dtype], 1.0 - NUDGE * SPACING[dtype]


def check(
    name: str, got: np.ndarray, references: list[np.ndarray], dtype: str, asked: np.ndarray, where: str
) -> None:
    """What is ours is the reference's, as far as that agrees with itself."""
    with np.errstate(all="ignore"):
        want = references[0]
        spread = np.max([np.abs(other - want) for other in references[1:]], axis=0)
        allowed = 8 * spread + MOST_UNITS * (np.abs(want) * SPACING[dtype] + LIMITS[dtype][0])
        allowed += 64 * SPACING[dtype] if name.startswith("slope") else 0.0
        near = (np.abs(got - want) <= allowed) | (got == want) | (np.isnan(got) & np.isnan(want))
        largest = LIMITS[dtype][2] / 16
        is_steady = np.all(
            [
                (other == want) | np.isfinite(other - want) | (np.isnan(other) & np.isnan(want))
                for other in references
            ],
            axis=0,
        )
        is_steady &= ~np.isfinite(want) | (np.abs(want) < largest) & (spread <= 1e-2 * np.abs(want) + 1e-30)
    wrong = asked & is_steady & ~near
    if wrong.any():
        at = int(np.argwhere(wrong)[0][0])
        raise Wrong(f"{name}: {got[at]!r}, not {want[at]!r}, {where(at)}")


# -- a case ------------------------------------------------------------------------------------------------------------


def run(case: Case) -> Outcome:
    """One expression: values of every part, slopes of the whole, slopes of slopes where it is smooth."""
    from hcq import Tensor, dtypes
    from tests.interpreter.evaluate import evaluate

    rng = case.rng()
    dtype = rng.choice(["float32", "float32", "float64"])
    leaves = [Part("x", None), Part("y", None)]
    root = expression(rng, leaves, rng.choice([1, 2, 2, 3]))
    if any(is_rest(part) for part in root.all()):
        dtype = "float32"  # rests of float64 are within units of the dividend, not of themselves
    arrays = [numbers(rng, dtype) for _ in leaves]
    parts = root.all()
    tensors = [Tensor(array).cast(dtypes.named(dtype)).realize() for array in arrays]
    ours = values_of(parts, dict(zip(leaves, tensors)), lambda function: function.ours)
    again = root.is_smooth() and len(parts) < 8
    found = [*ours, *slopes(ours[-1].cast(tensors[0].dtype), tensors, again, our_gradients)]
    found[0].realize(*found[1:])
    got = [x.double().numpy() for x in found]
    # the interpreter has the graph with leaves of its own
    held = {tensor.node: place for place, tensor in enumerate(tensors)}
    named = dict(zip(leaves, tensors))
    lazy, *rounded = [values_of(parts, named, lambda function: function.ours, by) for by in factors(dtype)]

    def interpreted(moved: list[np.ndarray], graph: list[Any] = lazy) -> list[np.ndarray]:
        nodes = [x.node for x in graph]
        read = lambda leaf: moved[held[leaf]].astype(dtype)  # noqa: E731
        return [np.asarray(np.broadcast_to(value, (COUNT,)), np.float64) for value in evaluate(nodes, read)]

    def told(at: int) -> str:
        return f"at x = {arrays[0][at]!r}, y = {arrays[1][at]!r} of {dtype}"

    moved = neighbours(arrays, dtype)
    by_interpreter = [interpreted(numbers_) for numbers_ in moved]
    by_interpreter += [interpreted(arrays, graph) for graph in rounded]
    alike = _alike(parts, dict(zip(leaves, arrays)), by_interpreter[0])
    by_torch = (
        [_in_torch(numbers_, "float64", leaves, parts, again) for numbers_ in moved] if HAS_TORCH else []
    )
    # where a product overflows in the format alone, and a sum follows: those two may be one FMA, which has no product
    overflows = np.zeros(COUNT, bool)
    for place, part in enumerate(parts):
        if HAS_TORCH:
            overflows |= ~np.isfinite(by_interpreter[0][place]) & np.isfinite(by_torch[0][place])
        asked = alike[part] & ~overflows
        check(f"{part}", got[place], [by[place] for by in by_interpreter], dtype, asked, told)
    if not HAS_TORCH:
        _finite_differences(root, got[len(parts) :], arrays, parts, lazy, held, dtype, told)
        return Outcome.RIGHT
    by_torch += [_in_torch(arrays, "float64", leaves, parts, again, by) for by in factors(dtype)[1:]]
    by_torch.append(_in_torch(arrays, dtype, leaves, parts, again))
    alike = _alike(parts, dict(zip(leaves, arrays)), by_torch[0])
    finite = np.all([np.isfinite(value) for value in by_torch[0][: len(parts)]], axis=0)
    for place, part in enumerate(parts):
        check(f"{part}", got[place], [by[place] for by in by_torch], dtype, alike[part], told)
    names = [f"slope of {root} in {leaf}" for leaf in leaves] + [
        f"slope of its slopes in {leaf}" for leaf in leaves
    ]
    kinked = np.zeros(COUNT, bool) if root.is_regular() else _at_kinks(by_torch, len(parts))
    for place, name in enumerate(names[: len(got) - len(parts)], len(parts)):
        references = [by[place] for by in by_torch]
        asked = finite & np.isfinite(references[0]) & ~kinked & alike[root]
        check(name, got[place], references, dtype, asked, told)
    return Outcome.RIGHT


def _in_torch(
    arrays: list[np.ndarray],
    dtype: str,
    leaves: list[Part],
    parts: list[Part],
    again: bool,
    factor: float = 1.0,
) -> list[np.ndarray]:
    """Values and slopes in a format."""
    import torch

    tensors = [
        torch.from_numpy(array).to(getattr(torch, dtype), copy=True).requires_grad_() for array in arrays
    ]
    values = values_of(parts, dict(zip(leaves, tensors)), lambda function: function.theirs, factor)
    found = [*values, *slopes(values[-1], tensors, again, torch_gradients)]
    return [np.asarray(x.detach().double().numpy()) for x in found]


def _alike(
    parts: list[Part], leaves: dict[Part, np.ndarray], values: list[np.ndarray]
) -> dict[Part, np.ndarray]:
    """Where no function on the way is at a point at which it differs on purpose, or steps by a rounding before it."""
    found = {leaf: np.ones(COUNT, bool) for leaf in leaves}
    known = leaves | dict(zip(parts, values))
    for part in parts:
        function = part.function
        if function is None:
            continue
        points = list(zip(*[known[argument].tolist() for argument in part.parts]))
        plain = [function.where is None or bool(function.where(*point)) for point in points]
        usual = [function.instead is None or function.instead(*point) is None for point in points]
        found[part] = np.array(plain) & np.array(usual)
        # exp and pow end in a product, which may be one FMA with a sum after it: then no infinity meets the other one
        infinite = [np.isinf(known[argument]) for argument in part.parts if argument.parts]
        if infinite:
            found[part] &= ~(np.any(infinite, axis=0) & np.isnan(known[part]))
        if STEPS & set(function.name.split()) and any(argument.parts for argument in part.parts):
            found[part] &= ~np.array([_is_at_a_step(*point) for point in points])
        for argument in part.parts:
            found[part] &= found[argument]
    return found


def _is_at_a_step(*point: float) -> bool:
    """Whether comparing these, or rounding this one, may go either way."""
    if not all(map(math.isfinite, point)):
        return False
    apart = abs(point[0] - point[1]) if len(point) == 2 else abs(point[0] - round(point[0]))
    return apart <= 1e-3 * (1.0 + max(map(abs, point)))


def _at_kinks(by_torch: list[list[np.ndarray]], count: int) -> np.ndarray:
    """Where a part is a whole number or a neighbour of one jumps: there slopes of steps and choices are conventions."""
    found = np.zeros(COUNT, bool)
    for place in range(count):
        value = by_torch[0][place]
        with np.errstate(all="ignore"):
            found |= np.abs(value - np.round(value)) < 1e-6
    return found


def _finite_differences(
    root: Part,
    got: list[np.ndarray],
    arrays: list[np.ndarray],
    parts: list[Part],
    lazy: list[Any],
    held: dict[Any, int],
    dtype: str,
    told: Callable[[int], str],
) -> None:
    """Slopes of smooth expressions of float64 at ordinary numbers, by the interpreter."""
    from tests.interpreter.evaluate import evaluate

    if not root.is_smooth() or dtype != "float64":
        return
    nodes = [lazy[-1].node]
    for leaf in range(len(arrays)):
        sides = []
        for step in (1e-5, -1e-5, 5e-6, -5e-6):
            moved = [a * (1.0 + step) if place == leaf else a for place, a in enumerate(arrays)]
            sides.append(evaluate(nodes, lambda node, moved=moved: moved[held[node]])[0])
        with np.errstate(all="ignore"):
            wide = (sides[0] - sides[1]) / (2e-5 * arrays[leaf])
            narrow = (sides[2] - sides[3]) / (1e-5 * arrays[leaf])
            ordinary = np.all([(np.abs(a) > 0.05) & (np.abs(a) < 20) for a in arrays], axis=0)
            asked = ordinary & (np.abs(wide - narrow) < 1e-6 * (1.0 + np.abs(wide)))
            wrong = asked & ~(np.abs(got[leaf] - narrow) <= 1e-4 * (1.0 + np.abs(narrow)))
        if wrong.any():
            at = int(np.argwhere(wrong)[0][0])
            raise Wrong(
                f"slope of {root} in argument {leaf}: {got[leaf][at]!r}, not {narrow[at]!r}, {told(at)}"
            )


def _on(emulate: str) -> dict[str, str]:
    return {"HCQ_EMULATE": emulate, "HCQ_DEVICE": emulate.partition(":")[0].upper()}


INJECTS = "random expressions over special and random numbers, values and slopes"
CAMPAIGNS = (
    Campaign("numbers", INJECTS, run, short=40),
    Campaign("numbers-amd", f"{INJECTS}, on gfx1100", run, short=8, environment=_on("amd:gfx1100")),
    Campaign("numbers-nv", f"{INJECTS}, on sm_90", run, short=8, environment=_on("nv:sm_90")),
)
