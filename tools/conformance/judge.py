"""Conformance, the judgement: one operator's samples in PyTorch and in ours, and whether both are the same.

In       an operator of the database, its samples
Out      how many samples pass, and why the others do not
Next     samples.py (where samples come from), devices.py (the same between our devices)

Shapes, dtypes, values and gradients of a weighted sum are compared. Where results in float32 differ, PyTorch's in
float64 decide. Of random operators only shapes and dtypes count; of indices of equal elements, what they choose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hcq.tools.conformance.samples import (
    Unfit,
    arguments,
    as_torch,
    converted,
    copied,
    find,
    full_name,
    leaves,
    mapped,
    samples_of,
)

PASSES, WRONG, REFUSED, MISSING, LATE = "passes", "wrong", "refused", "missing", "late"
GRADIENT_RTOL, GRADIENT_ATOL = 1e-4, 1e-5  # OpInfo differentiates in float64, and has no word on float32

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
UP_TO_SIGN = {"svd", "linalg.svd", "linalg.eigh", "linalg.eig"}  # of vectors OpInfo compares what has no sign
UP_TO_ORDER = {"linalg.eig", "linalg.eigvals"}  # eigenvalues come in any order
CHOOSING = {"sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "mode"}  # any of equal elements


class Outcome(NamedTuple):
    """One sample: what happened, and why when it did not pass."""

    status: str
    why: str = ""


def run_operator(
    op: Any,
    kinds: Sequence[str],
    samples: int | None = None,
    judged: Callable[[Any, Callable[..., Any], Any], Outcome] | None = None,
) -> dict[str, Any]:
    """All samples of one operator.

    samples   at most so many of each kind
    judged    what becomes of one; `run_sample` unless given
    """
    import torch

    function, judged = find(op), judged or run_sample
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for name in kinds:
        dtype = getattr(torch, name)
        if dtype not in op.dtypes:
            continue
        for sample in samples_of(op, dtype)[:samples]:
            outcome = (
                Outcome(MISSING, "no such function") if function is None else judged(op, function, sample)
            )
            counts[outcome.status] += 1
            if outcome.why:
                reasons[f"{name}: {outcome.why}"] += 1
    status = next((kind for kind in (MISSING, WRONG, REFUSED) if counts[kind]), PASSES)
    why = [why for why, _ in reasons.most_common(3)]
    return {"operator": full_name(op), "status": status, "counts": dict(counts), "why": why}


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


def differs(op: Any, sample: Any, expected: Any, got: Any, is_random: bool, singles: Any = None) -> str:
    """What is different between two results; "" for nothing. What is no further off than `singles` is right."""
    import torch

    import hcq

    if op.name in UP_TO_SIGN:
        expected, got = (sample.output_process_fn_grad(result) for result in (expected, got))
    if op.name in UP_TO_ORDER:
        got = in_order_of(expected, got)
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
    if op.name in UP_TO_ORDER:
        got = in_order_of(expected, got)
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


def in_order_of(expected: Any, got: Any) -> Any:
    """Our eigenvalues, and columns of eigenvectors, each where the nearest of PyTorch's is."""
    import torch

    import hcq

    have, want = ([each] if hasattr(each, "shape") else list(each) for each in (got, expected))
    if have[0].shape != tuple(want[0].shape) or not have[0].numel():
        return got
    apart = (want[0].detach().unsqueeze(-1) - as_torch(have[0]).unsqueeze(-2)).abs().nan_to_num()
    n = apart.shape[-1]
    places = torch.zeros(want[0].shape, dtype=torch.int64)
    for table, line in zip(apart.reshape(-1, n, n), places.reshape(-1, n)):
        for _ in range(n):
            row, column = divmod(int(table.argmin()), n)
            line[row] = column
            table[row], table[:, column] = torch.inf, torch.inf
    index = hcq.Tensor(places.numpy())
    sorted_ = [have[0].gather(-1, index)]
    sorted_ += [columns.gather(-1, index.unsqueeze(-2).expand(columns.shape)) for columns in have[1:]]
    return sorted_[0] if hasattr(got, "shape") else tuple(sorted_)


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
