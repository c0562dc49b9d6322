"""Conformance, the samples: PyTorch's operators, their inputs, and our functions of the same names.

In       PyTorch's OpInfo database
Out      a few samples of each operator and dtype; what they call here; tensors, theirs as ours and ours as theirs
Changes  PyTorch's random state
Next     judge.py (what is done with them), frontend/functions/__init__.py (how hcq.NAME is found)

An operator is called by its name: `linalg.det` is hcq.torch.linalg.det,
`add` is hcq.torch.add or the method of that name. Arguments are converted and nothing else: no operator is made up.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

DTYPES = ("float32", "int64", "bool")
SAMPLES = 6  # of each dtype

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


def database(kinds: Sequence[str]) -> list[Any]:
    """Every operator that has one of these dtypes."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    wanted = {getattr(torch, name) for name in kinds}
    return [op for op in op_db if wanted & set(op.dtypes)]


def full_name(op: Any) -> str:
    """An operator's name and variant, as `div!floor_rounding`."""
    return f"{op.name}!{op.variant_test_name}" if op.variant_test_name else str(op.name)


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


def evenly(items: Sequence[Any], count: int) -> list[Any]:
    """The first, the last, and some between."""
    if len(items) <= count or count < 2:
        return list(items[:count])
    return [items[round(place * (len(items) - 1) / (count - 1))] for place in range(count)]


def find(op: Any) -> Callable[..., Any] | None:
    """Our function of that name, or None."""
    import hcq.torch

    name = CALLED.get(full_name(op), CALLED.get(op.name, op.name))
    found: Any = hcq.torch
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


def arguments(sample: Any) -> tuple[Any, ...]:
    """Everything that a sample gives."""
    return (sample.input, *sample.args, sample.kwargs)


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

    import hcq.torch

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


def as_torch(tensor: Any) -> Any:
    """Our tensor's values as a tensor of PyTorch's."""
    import torch

    if tensor.dtype.name == "bfloat16":
        return torch.from_numpy(tensor.float().numpy()).bfloat16()
    return torch.from_numpy(tensor.numpy())
