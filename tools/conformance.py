"""Conformance: PyTorch's own samples of its operators, computed by us, values and gradients (`make conformance`).

In       PyTorch's OpInfo database: for every operator, inputs of each dtype, and how exact a result must be
Out      a table on the terminal; docs/conformance.md with a line for each operator that fails, which says why
Changes  docs/conformance.md, when all operators were run; the kernels it compiles stay in the disk cache
Next     frontend/functions.py (how hcq.NAME is found), docs/semantics.md (where we differ on purpose)

    python tools/conformance.py                        all operators, a few processes, and the page
    python tools/conformance.py --only cumsum --only nn.functional.pad
    python tools/conformance.py --json out.jsonl --resume   go on where a run was cut short
    HCQ_EMULATE=amd:gfx1100 python tools/conformance.py --device AMD
    python tools/conformance.py --devices CPU,amd:gfx1100,nv:sm_90   the same samples on several devices, compared

An operator is called by its name: `linalg.det` is hcq.linalg.det, `nn.functional.relu` is hcq.nn.functional.relu,
`add` is hcq.add or the method of that name. Arguments are converted and nothing else: no operator is made up here.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):  # run as a file from a checkout that is not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

PAGE = Path(__file__).resolve().parent.parent / "docs" / "conformance.md"
DTYPES = ("float32", "int64", "bool")
SAMPLES = 6  # of each dtype
SECONDS = 60.0  # for all samples of an operator
GRADIENT_RTOL, GRADIENT_ATOL = 1e-4, 1e-5  # OpInfo differentiates in float64, and has no word on float32

PASSES, WRONG, REFUSED, MISSING, LATE = "passes", "wrong", "refused", "missing", "late"

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

# OpInfo calls these by a lambda that moves its arguments
ADAPTED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "where": lambda f: lambda x, condition, other: f(condition, x, other),
    "einsum": lambda f: lambda tensors, equation: f(equation, tensors),
    "polygamma": lambda f: lambda x, n: f(n, x),
    "special.polygamma": lambda f: lambda x, n: f(n, x),
    "nn.functional.embedding": lambda f: lambda weight, index, **kwargs: f(index, weight, **kwargs),
    "nn.functional.embedding_bag": lambda f: lambda weight, index, **kwargs: f(index, weight, **kwargs),
    "zero_": lambda f: lambda x: f(x.clone()),
    "resize_": lambda f: lambda x, shape: f(x.clone(), shape),
    "resize_as_": lambda f: lambda x, other: f(x.clone(), other),
    "slice": lambda f: (
        lambda x, dim=0, start=None, end=None, step=1: f(x, (*[slice(None)] * dim, slice(start, end, step)))
    ),
    "unfold": lambda f: lambda x, *args: x.unfold(*args),
    **dict.fromkeys(
        ("svd_lowrank", "pca_lowrank", "linalg.pinv!singular"),
        lambda f: lambda a, b, **kwargs: f(a @ b.mT, **kwargs),
    ),
    "linalg.lstsq!grad_oriented": lambda f: lambda a, b, driver: f(a, b, driver=driver)[:2],
}
CALLED = {  # an operator under another name than its function
    **{name: f"{name}_" for name in ("cauchy", "exponential", "geometric", "log_normal", "uniform")},
    "slice": "__getitem__",
    "__rdiv__": "__rtruediv__",
    "_segment_reduce": "segment_reduce",
    "normal!in_place": "normal_",
}
UNDEFINED_VALUES = (
    "empty",
    "empty_like",
    "new_empty",
    "empty_permuted",
    "empty_strided",
    "new_empty_strided",
)
RANDOM = set(
    "bernoulli cauchy exponential geometric log_normal multinomial normal uniform rand_like randn randn_like randint "
    "randint_like nn.functional.multi_head_attention_forward "
    "svd_lowrank pca_lowrank nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d "
    "nn.functional.alpha_dropout nn.functional.feature_alpha_dropout nn.functional.rrelu "
    "nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d".split()
)  # OpInfo seeds them: they look alike every time
UP_TO_SIGN = {"svd", "linalg.svd", "linalg.eigh"}  # of vectors OpInfo compares what has no sign
CHOOSING = {"sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode"}  # any of equal elements
DROPPED = {
    "device",
    "layout",
    "pin_memory",
    "memory_format",
    "non_blocking",
    "generator",
}  # words for storage


class Unfit(Exception):
    """A sample has something that we have not, such as sparse tensors."""


class Outcome(NamedTuple):
    """One sample: what happened, and why when it did not pass."""

    status: str
    why: str = ""


# -- in a worker: one operator ------------------------------------------------------------------------------------


def full_name(op: Any) -> str:
    """An operator's name and variant, as `div!floor_rounding`."""
    return f"{op.name}!{op.variant_test_name}" if op.variant_test_name else str(op.name)


def run_operator(op: Any, kinds: Sequence[str]) -> dict[str, Any]:
    """All samples of one operator."""
    import torch

    function = find(op)
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for name in kinds:
        dtype = getattr(torch, name)
        if dtype not in op.dtypes:
            continue
        for sample in samples_of(op, dtype):
            outcome = (
                Outcome(MISSING, "no such function") if function is None else run_sample(op, function, sample)
            )
            counts[outcome.status] += 1
            if outcome.why:
                reasons[f"{name}: {outcome.why}"] += 1
    status = next((kind for kind in (MISSING, WRONG, REFUSED) if counts[kind]), PASSES)
    return {
        "operator": full_name(op),
        "status": status,
        "counts": dict(counts),
        "why": [why for why, _ in reasons.most_common(3)],
    }


def samples_of(op: Any, dtype: Any) -> list[Any]:
    """A few samples: the first ones, evenly through the rest, and the edge cases of elementwise operators."""
    import torch

    torch.manual_seed(7)
    wants = (dtype.is_floating_point or dtype.is_complex) and op.supports_autograd
    with contextlib.suppress(Exception):
        found = list(op.sample_inputs("cpu", dtype, requires_grad=wants))
        edges: list[Any] = []
        if type(op).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo"):
            with contextlib.suppress(Exception):
                every = list(op.reference_inputs("cpu", dtype, requires_grad=False))
                edges = [sample for sample in every if tensors_in_size(sample) < 100_000]
                edges = evenly(edges[len(found) :], SAMPLES // 2)
        return [*evenly(found, SAMPLES - len(edges)), *edges]
    return []


def tensors_in_size(sample: Any) -> int:
    """How many elements a sample has."""
    import torch

    return sum(leaf.numel() for leaf in leaves(arguments(sample)) if isinstance(leaf, torch.Tensor))


def arguments(sample: Any) -> tuple[Any, ...]:
    """Everything that a sample gives."""
    return (sample.input, *sample.args, sample.kwargs)


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """The first, the last, and some between."""
    if len(items) <= count or count < 2:
        return list(items[:count])
    return [items[round(place * (len(items) - 1) / (count - 1))] for place in range(count)]


def leaves(value: Any) -> Iterator[Any]:
    """What is in nested tuples, lists and dicts."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    else:
        yield value


def find(op: Any) -> Callable[..., Any] | None:
    """Our function of that name, or None."""
    import hcq

    name = CALLED.get(full_name(op), CALLED.get(op.name, op.name))
    found: Any = hcq
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            found = None
            break
    if not callable(found) or isinstance(found, type(os)):
        member = getattr(hcq.Tensor, name, None)
        if isinstance(member, property):
            found = member.fget
        elif not callable(member):
            return None
        else:
            found = functools.partial(called, name)
    adapt = ADAPTED.get(full_name(op), ADAPTED.get(op.name))
    return adapt(found) if adapt else found  # type: ignore[no-any-return]


def called(name: str, x: Any, *args: Any, **kwargs: Any) -> Any:
    """A method by its name."""
    return getattr(x, name)(*args, **kwargs)


def run_sample(op: Any, function: Callable[..., Any], sample: Any) -> Outcome:
    """One sample in PyTorch, in ours, and the comparison of both."""
    import torch

    theirs: list[Any] = []
    try:
        for seed in (1, 2):
            torch.manual_seed(seed)
            theirs.append(op.op(copied(sample.input), *copied(sample.args), **copied(sample.kwargs)))
    except Exception as error:
        return (
            Outcome(PASSES)
            if raises(op, function, sample)
            else Outcome(WRONG, f"PyTorch refuses: {error}"[:90])
        )
    if any(getattr(leaf, "layout", torch.strided) is not torch.strided for leaf in leaves(theirs)):
        return Outcome(REFUSED, "sparse tensors")
    is_random = (
        sample.kwargs.get("dropout_p", 0.0) > 0.0
        or op.name in RANDOM
        or op.name in UNDEFINED_VALUES
        or not same_values(theirs[0], theirs[1])
    )
    torch.manual_seed(1)
    inputs = (copied(sample.input), copied(sample.args), copied(sample.kwargs))
    expected = op.op(inputs[0], *inputs[1], **inputs[2])
    try:
        ours = tuple(converted(each) for each in (sample.input, sample.args, sample.kwargs))
        got = function(ours[0], *ours[1], **ours[2])
        why = differs(op, sample, expected, got, is_random)
        if not why and not is_random:
            why = gradient_differs(op, sample, inputs, expected, ours, got)
        if why and (is_random or not is_right_in_float64(op, function, sample, expected, inputs)):
            return Outcome(WRONG, why)
    except Unfit as why_not:
        return Outcome(REFUSED, str(why_not))
    except Exception as error:
        text = " ".join(str(error).split())
        kind = type(error).__name__
        return Outcome(REFUSED, text[:150] if text.startswith("[") else f"{kind}: {text}"[:150])
    return Outcome(PASSES)


def is_right_in_float64(
    op: Any, function: Callable[..., Any], sample: Any, singles: Any, inputs: Any
) -> bool:
    """Whether we have what PyTorch has in float64 on the same numbers, or are no further from it than its float32 is.

    singles, inputs   PyTorch's results in float32, and the tensors that have their gradients
    """
    import torch

    tensors = [leaf for leaf in leaves(arguments(sample)) if isinstance(leaf, torch.Tensor)]
    if not any(leaf.dtype in (torch.float32, torch.complex64) for leaf in tensors):
        return False

    def double(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or leaf.dtype not in (torch.float32, torch.complex64):
            return leaf
        wide = torch.complex128 if leaf.is_complex() else torch.float64
        return leaf.detach().to(wide).requires_grad_(leaf.requires_grad)

    parts = (sample.input, sample.args, sample.kwargs)
    wide = tuple(mapped(double, copied(part)) for part in parts)
    ours = tuple(converted(part) for part in parts)
    expected, got = op.op(wide[0], *wide[1], **wide[2]), function(ours[0], *ours[1], **ours[2])
    narrower = {torch.float64: torch.float32, torch.complex128: torch.complex64}

    def narrowed(leaf: Any) -> Any:
        dtype = narrower.get(leaf.dtype) if isinstance(leaf, torch.Tensor) else None
        return leaf if dtype is None else leaf.to(dtype)

    narrow = mapped(narrowed, expected)
    return not differs(op, sample, narrow, got, False, singles) and not gradient_differs(
        op, sample, wide, expected, ours, got, inputs
    )


def raises(op: Any, function: Callable[..., Any], sample: Any) -> bool:
    """Whether we refuse what PyTorch refuses."""
    try:
        ours = [converted(each) for each in (sample.input, sample.args, sample.kwargs)]
        for leaf in leaves([function(ours[0], *ours[1], **ours[2])]):
            if hasattr(leaf, "realize"):
                leaf.realize()
    except Exception:
        return True
    return False


def copied(value: Any) -> Any:
    """The same arguments with tensors of their own, leaves of the graph of gradients."""
    import torch

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return mapped(copy, value)


def converted(value: Any) -> Any:
    """PyTorch's arguments as ours."""
    import torch

    import hcq

    def convert(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            if leaf.layout is not torch.strided or leaf.dtype is torch.complex32:
                raise Unfit("complex32" if leaf.is_complex() else "sparse tensors")
            if leaf.dtype is torch.bfloat16:
                return hcq.Tensor(leaf.detach().float().numpy()).cast(hcq.dtypes.bfloat16)
            array = leaf.detach().resolve_conj().resolve_neg().numpy()
            return hcq.Tensor(array, requires_grad=leaf.requires_grad)
        if isinstance(leaf, torch.dtype):
            name = str(leaf).removeprefix("torch.")
            if not hasattr(hcq.dtypes, name):
                raise Unfit(f"dtype {name}")
            return getattr(hcq.dtypes, name)
        if isinstance(leaf, torch.nn.PairwiseDistance):  # a function that samples give
            return hcq.nn.functional.pairwise_distance
        return leaf

    if isinstance(value, dict):
        value = {key: item for key, item in value.items() if key not in DROPPED}
    return mapped(convert, value)


def mapped(act: Callable[[Any], Any], value: Any) -> Any:
    """`act` on every leaf; torch.Size becomes a tuple."""
    if isinstance(value, (list, tuple)):
        items = [mapped(act, item) for item in value]
        if hasattr(value, "_fields"):
            return type(value)(*items)
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: mapped(act, item) for key, item in value.items()}
    return act(value)


def same_values(a: Any, b: Any) -> bool:
    """Whether two results are the same, NaN included."""
    import torch

    for x, y in zip(leaves([a]), leaves([b])):
        if isinstance(x, torch.Tensor):
            if x.is_complex() and y.is_complex():
                x, y = (torch.view_as_real(z.resolve_conj().contiguous()) for z in (x, y))
            if x.shape != y.shape or not torch.equal(x.detach().nan_to_num(1.5), y.detach().nan_to_num(1.5)):
                return False
    return True


def tolerance(op: Any, dtype: Any) -> tuple[float, float]:
    """(rtol, atol) of a result: the widest that OpInfo gives, at least assert_close's own."""
    import torch

    rtol, atol = torch.testing._comparison.default_tolerances(dtype)
    for decorator in op.decorators:
        for inner in getattr(decorator, "decorators", [decorator]):
            overrides = getattr(inner, "overrides", {})
            if dtype in overrides:
                atol, rtol = max(atol, overrides[dtype].atol), max(rtol, overrides[dtype].rtol)
    return rtol, atol


def differs(op: Any, sample: Any, expected: Any, got: Any, is_random: bool, singles: Any = None) -> str:
    """What is different between two results; "" for nothing. What is no further off than `singles` is right."""
    import torch

    import hcq

    if op.name in UP_TO_SIGN:
        expected, got = (sample.output_process_fn_grad(result) for result in (expected, got))
    theirs, ours = list(leaves([expected])), list(leaves([got]))
    if len(theirs) != len(ours):
        return f"{len(ours)} results instead of {len(theirs)}"
    rounded = [None] * len(theirs) if singles is None else list(leaves([singles]))
    for want, have, single in zip(theirs, ours, rounded):
        if not isinstance(want, torch.Tensor):
            if isinstance(want, torch.Size):
                want = tuple(want)
            if not is_random and want != have and not (want != want and have != have):
                return f"{have!r} instead of {want!r}"[:80]
            continue
        if not isinstance(have, hcq.Tensor):
            return f"a {type(have).__name__} instead of a tensor"
        if tuple(want.shape) != have.shape:
            return f"shape {have.shape} instead of {tuple(want.shape)}"
        if str(want.dtype).removeprefix("torch.") != have.dtype.name:
            return f"dtype {have.dtype.name} instead of {str(want.dtype).removeprefix('torch.')}"
        if (
            op.name in CHOOSING
            and want.dtype == torch.int64
            and (op.name == "argsort" or want is not theirs[0])
        ):
            want, have = (chosen(op, sample, index) for index in (want, as_torch(have)))
            why = apart(want, have, 0.0, 0.0)
            if why:
                return f"chosen: {why}"
        elif not is_random:
            rtol, atol = tolerance(op, want.dtype)
            why = apart(want.detach(), as_torch(have), rtol, atol + off(want, single))
            if why:
                return why
        else:
            have.realize()
    return ""


def chosen(op: Any, sample: Any, index: Any) -> Any:
    """What indices of equal elements pick: any of them is right."""
    import torch

    whole = [arg for arg in sample.args if isinstance(arg, int) and not isinstance(arg, bool)]
    takes_count = op.name in ("topk", "kthvalue")
    whole = whole[takes_count and "k" not in sample.kwargs :]
    dim = sample.kwargs.get("dim", whole[0] if whole else -1)
    values = sample.input.detach()
    if not values.ndim:
        return values.expand(index.shape) + 0 * index
    if index.ndim < values.ndim:
        return torch.take_along_dim(values, index.unsqueeze(dim), dim)
    return torch.take_along_dim(values, index, dim)


def as_torch(tensor: Any) -> Any:
    """Our tensor's values as a tensor of PyTorch's."""
    import torch

    if tensor.dtype.name == "bfloat16":
        return torch.from_numpy(tensor.float().numpy()).bfloat16()
    return torch.from_numpy(tensor.numpy())


def off(want: Any, single: Any) -> float:
    """How far PyTorch's result in float32 is from its own in float64, at most; 0 where that is not asked."""
    if (
        single is None
        or not (single.is_floating_point() or single.is_complex())
        or single.shape != want.shape
    ):
        return 0.0
    distance = (single.detach() - want.detach()).abs().double()
    finite = distance[distance.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def apart(want: Any, have: Any, rtol: float, atol: float) -> str:
    """The first place where two tensors are further apart than they may be."""
    import torch

    wide = torch.complex128 if want.is_complex() or have.is_complex() else torch.float64
    if torch.allclose(have.to(wide), want.to(wide), rtol, atol, equal_nan=True):
        return ""
    bad = ~torch.isclose(have.to(wide), want.to(wide), rtol, atol, equal_nan=True)
    first = torch.nonzero(bad)[0].tolist()
    return (
        f"{int(bad.sum())} of {bad.numel()} elements differ: {have[tuple(first)].item()!r} instead of "
        f"{want[tuple(first)].item()!r}"
    )


def gradient_differs(
    op: Any, sample: Any, inputs: Any, expected: Any, ours: Any, got: Any, singles: Any = None
) -> str:
    """What is different between the gradients of a weighted sum of the results; "" for nothing.

    singles   tensors with PyTorch's gradients in float32: what is no further off than they are is right
    """
    import torch

    import hcq

    wanting = [leaf for leaf in leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not wanting or not op.supports_autograd:
        return ""
    mine = [leaf for leaf in leaves(ours) if isinstance(leaf, hcq.Tensor) and leaf.requires_grad]
    process = sample.output_process_fn_grad
    theirs = [leaf for leaf in leaves([process(expected)]) if isinstance(leaf, torch.Tensor)]
    results = [leaf for leaf in leaves([process(got)]) if isinstance(leaf, hcq.Tensor)]
    total: Any = 0.0
    loss: Any = None
    for want, have in zip(theirs, results):
        if not want.requires_grad:
            continue
        weights = (
            torch.cos(torch.arange(want.numel(), dtype=torch.float32)).reshape(want.shape).to(want.dtype)
        )
        if want.is_complex():  # another weight for each part
            weights = weights * (0.8 - 0.6j)
            total = total + (want * weights).real.sum() + (want * weights).imag.sum()
            product = have * hcq.Tensor(weights.to(torch.complex64).numpy()).cast(have.dtype)
            part = product.real.sum() + product.imag.sum()
        else:
            total = total + (want * weights).sum()
            part = (have * hcq.Tensor(weights.float().numpy()).cast(have.dtype)).sum()
        loss = part if loss is None else loss + part
    if loss is None:
        return ""
    total.backward()
    loss.backward()
    rounded = [None] * len(wanting)
    if singles is not None:
        rounded = [leaf for leaf in leaves(singles) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    for place, (want, have, single) in enumerate(zip(wanting, mine, rounded)):
        if want.grad is None and have.grad is None:
            continue
        slope = torch.zeros_like(want) if want.grad is None else want.grad
        if slope.layout is not torch.strided:
            slope = slope.to_dense()
        found = torch.zeros_like(slope) if have.grad is None else as_torch(have.grad)
        if found.shape != slope.shape:
            return f"gradient {place}: shape {tuple(found.shape)} instead of {tuple(slope.shape)}"
        finite = slope[slope.isfinite()].abs()
        size = max(1.0, float(finite.max()) if finite.numel() else 1.0)
        rtol, atol = tolerance(op, torch.complex64 if slope.is_complex() else torch.float32)
        slack = max(atol, GRADIENT_ATOL) * size
        if single is not None and single.grad is not None:
            slack += off(slope, single.grad)
        why = apart(slope, found, max(rtol, GRADIENT_RTOL), slack)
        if why:
            return f"gradient {place}: {why}"
    return ""


def worker(device: str | None, kinds: Sequence[str], devices: Sequence[str] = (), samples: int = 1) -> int:
    """Operators by number, one a line on stdin; a line of JSON each on stdout."""
    from hcq.tools import conformance_devices

    if devices:
        conformance_devices.emulated(devices)
    if device:
        os.environ["HCQ_DEVICE"] = device
    warnings.filterwarnings("ignore")
    import torch

    torch.set_num_threads(1)
    operators = database(kinds)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what operators print is not ours
    print(json.dumps({"ready": len(operators)}), file=out, flush=True)
    for line in sys.stdin:
        op = operators[int(line)]
        if devices:
            result = conformance_devices.run_operator(op, kinds, devices, samples)
        else:
            result = run_operator(op, kinds)
        print(json.dumps(result), file=out, flush=True)
    return 0


def database(kinds: Sequence[str]) -> list[Any]:
    """Every operator that has one of these dtypes."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = {getattr(torch, name) for name in kinds}
    return [op for op in op_db if wanted & set(op.dtypes)]


# -- the leader: processes, and a time limit for each operator -----------------------------------------------------


class Helper:
    """A process that runs operators, and is replaced when one takes too long or ends it."""

    def __init__(self, device: str | None, words: Sequence[str]):
        self.device = device
        self.words = words
        self.process: Any = None
        self.lines: queue.Queue[str] = queue.Queue()

    def run(self, number: int, name: str, seconds: float) -> dict[str, Any]:
        """The result of one operator."""
        if self.process is None:
            self.start()
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        line = self.next_line(seconds)
        if line:
            return json.loads(line)  # type: ignore[no-any-return]
        if line is None:
            why = f"not done in {seconds:.0f} s"
        else:
            why = f"the process ended with {self.process.wait()}"
        self.stop()
        return {"operator": name, "status": LATE, "counts": {LATE: SAMPLES}, "why": [why]}

    def start(self) -> None:
        """A new process, ready for work."""
        command = [sys.executable, os.path.abspath(__file__), "--worker"]
        command += ["--device", self.device] if self.device else []
        command += self.words
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.lines = queue.Queue()
        threading.Thread(target=self._read, args=(self.process, self.lines), daemon=True).start()
        if not self.next_line(300.0):
            raise SystemExit(
                "conformance: a worker did not start; run it by hand: tools/conformance.py --worker"
            )

    @staticmethod
    def _read(process: Any, lines: queue.Queue[str]) -> None:
        for line in process.stdout:
            lines.put(line)
        lines.put("")

    def next_line(self, seconds: float) -> str | None:
        """What it says next; "" when it has ended, None when it says nothing."""
        try:
            return self.lines.get(timeout=seconds)
        except queue.Empty:
            return None

    def stop(self) -> None:
        """End it, and what it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


def run_all(
    work: list[tuple[int, str]],
    device: str | None,
    jobs: int,
    seconds: float,
    quiet: bool,
    words: Sequence[str] = (),
    diary: Diary | None = None,
) -> list[dict[str, Any]]:
    """Every operator, in `jobs` processes, whose command line has these words, too; those in the diary are done."""
    diary = diary or Diary(None)
    todo: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for number, name in work:
        if name not in diary.results:
            todo.put((number, name))

    def serve() -> None:
        helper = Helper(device, words)
        try:
            while True:
                try:
                    number, name = todo.get_nowait()
                except queue.Empty:
                    return
                result = helper.run(number, name, seconds)
                diary.add(result)
                if not quiet or result["status"] != PASSES:
                    print(f"{result['status']:8} {name}  {'; '.join(result['why'])}", flush=True)
        finally:
            helper.stop()

    threads = [threading.Thread(target=serve) for _ in range(jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [diary.results[name] for _, name in work if name in diary.results]


class Diary:
    """Results by operator, and a file that has each of them as soon as it is there, a line of JSON.

    A run that goes on with it computes what was late again.
    """

    def __init__(self, path: Path | None, resumed: bool = False):
        self.path = path
        self.results: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        if path is None:
            return
        if resumed and path.exists():
            for line in path.read_text("utf-8").splitlines():
                result = json.loads(line)
                if result["status"] != LATE:
                    self.results[result["operator"]] = result
        else:
            path.write_text("", "utf-8")

    def add(self, result: dict[str, Any]) -> None:
        """One more."""
        with self._lock:
            self.results[result["operator"]] = result
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(result) + "\n")


# -- the report -----------------------------------------------------------------------------------------------------


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


def page(results: list[dict[str, Any]], device: str, version: str, seconds: float) -> str:
    """docs/conformance.md."""
    groups = [CORE, *dict.fromkeys(OUTSIDE.values())]
    rows = [
        score([result for result in results if group_of(result["operator"]) == group]).row(group)
        for group in groups
    ]
    failing = [result for result in results if result["status"] != PASSES]
    lines = [
        "# Conformance",
        "",
        "Written by `make conformance`; change tools/conformance.py or the operators, not this page.",
        "",
        f"PyTorch {version} describes each of its operators for its own tests: inputs of every dtype, edge cases, and",
        f"how exact results must be (OpInfo). Up to {SAMPLES} samples each of {', '.join(DTYPES)} are computed by",
        f"PyTorch and by us on {device}; shapes, dtypes, values and, of float32, gradients of a weighted sum of the",
        f"results are compared. Values have OpInfo's tolerances, gradients {GRADIENT_RTOL:g} of the value and",
        f"{GRADIENT_ATOL:g} of the largest one. Of random operators shapes and dtypes are compared. An operator passes",
        "when all of its samples do; variants of one operator count as operators.",
        "Where results in float32 differ, PyTorch's in float64 decide: ours are right if they are as near as the",
        "tolerance says, or no further from them than PyTorch's own in float32.",
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


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns 0: it measures and does not judge."""
    parser = argparse.ArgumentParser(prog="conformance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="an operator's name, or the front of names, as fft.; may be repeated",
    )
    parser.add_argument("--device", help="where our side runs (default: HCQ_DEVICE, or CPU)")
    parser.add_argument(
        "--dtype",
        action="append",
        help=f"of samples; may be repeated (default {', '.join(DTYPES)}), as complex64",
    )
    parser.add_argument(
        "--devices",
        default="",
        help="compare devices instead: CPU,amd:gfx1100,nv:sm_90 (emulated), or CPU,AMD",
    )
    parser.add_argument("--samples", type=int, default=1, help="of each dtype, with --devices (default 1)")
    parser.add_argument(
        "--json", type=Path, help="write each result to this file, a line as soon as it is there"
    )
    parser.add_argument(
        "--resume", action="store_true", help="do not compute again what the file of --json has"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="limit of an operator (default 60)")
    parser.add_argument("--all", action="store_true", help="print the operators that pass, too")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    devices = [name for name in options.devices.split(",") if name]
    if len(devices) == 1:
        raise SystemExit(f"conformance: --devices {devices[0]}: name two at least, as CPU,amd:gfx1100.")
    if options.resume and options.json is None:
        raise SystemExit("conformance: --resume goes on with a file of results: name it with --json.")
    if options.worker:
        return worker(options.device, options.dtype or DTYPES, devices, options.samples)
    try:
        import torch

        operators = database(options.dtype or DTYPES)
    except ModuleNotFoundError as error:
        raise SystemExit(f"conformance: {error}. Install what it needs: make conformance") from error
    names = [full_name(op) for op in operators]
    known = {name.partition("!")[0] for name in names} | set(names)
    for name in options.only:
        if name not in known and not any(each.startswith(name) for each in known):
            raise SystemExit(
                f"conformance: no operator is called {name!r}. PyTorch has cumsum, nn.functional.pad, ..."
            )
    work = [
        (number, name)
        for number, name in enumerate(names)
        if not options.only
        or name.partition("!")[0] in options.only
        or any(name.startswith(each) for each in options.only if each not in known)
        or name in options.only
    ]
    start = time.perf_counter()
    quiet = not (options.all or options.only)
    kinds = options.dtype or DTYPES
    words = [word for kind in kinds for word in ("--dtype", kind)]
    if devices:
        words += ["--devices", options.devices, "--samples", str(options.samples)]
    diary = Diary(options.json, options.resume)
    results = run_all(work, options.device, options.jobs, options.seconds, quiet, words, diary)
    for group in (CORE, *dict.fromkeys(OUTSIDE.values())):
        print(
            score([result for result in results if group_of(result["operator"]) == group]).row(f"{group:20}")
        )
    print(score(results).row("all"))
    print(f"{math.ceil(time.perf_counter() - start)} s")
    if devices and not options.only and not options.dtype:
        from hcq.tools import conformance_devices

        conformance_devices.PAGE.write_text(
            conformance_devices.page(results, devices, options.samples), "utf-8"
        )
        print(f"wrote {conformance_devices.PAGE}")
    elif not options.only and not options.dtype:
        PAGE.write_text(
            page(results, options.device or "the CPU", torch.__version__.partition("+")[0], options.seconds),
            "utf-8",
        )
        print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
