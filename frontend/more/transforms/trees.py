"""Trees: the tensors in nested lists, tuples and dicts, out of them and back.

In       a tree
Out      its tensors in order; the same tree of others
Next     ../jit/pytree.py (what a tree is)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.jit.pytree import PLAIN, mapped
from hcq.frontend.tensor import Tensor


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors of a tree, in order."""
    found: list[Tensor] = []
    mapped(tree, lambda leaf: found.append(leaf) if isinstance(leaf, Tensor) else None)
    return found


def rebuilt(tree: Any, leaves: Iterable[Any]) -> Any:
    """The tree with these in the places of its tensors."""
    following = iter(leaves)
    return mapped(tree, lambda leaf: next(following) if isinstance(leaf, Tensor) else leaf)


def results_of(call: str, tree: Any) -> list[Tensor]:
    """The tensors that a function returned. Raises UsageError for anything else in the tree."""
    _check_plain(call, tree)
    found = tensors_of(tree)
    if not found:
        raise UsageError(f"[{call}] the function returned {shown(tree)}: it has to return tensors.")
    return found


def _check_plain(call: str, tree: Any) -> None:
    if isinstance(tree, Tensor):
        return
    if isinstance(tree, (list, tuple, dict)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            _check_plain(call, item)
    elif not isinstance(tree, PLAIN) or tree is not None:
        raise UsageError(
            f"[{call}] the function returned {shown(tree)}: it has to return tensors, alone or in lists, tuples "
            "and dicts."
        )


def same_tree(a: Any, b: Any) -> bool:
    """Whether two trees have tensors in the same places."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return isinstance(a, Tensor) and isinstance(b, Tensor)
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same_tree(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(same_tree, a, b))
    return True


def floats_of(call: str, tree: Any, what: str) -> list[Tensor]:
    """The tensors of a tree, which a derivative is taken of or by. Raises UsageError for those that are no floats."""
    found = tensors_of(tree)
    for number, tensor in enumerate(found):
        if not tensor.dtype.is_float:
            raise UsageError(
                f"[{call}] {what} {number}, {tensor.dtype.name} of shape {tensor.shape}: only floating-point values "
                "have derivatives. Cast it first: x.float()."
            )
    if not found:
        raise UsageError(f"[{call}] {shown(tree)}: there is no tensor to differentiate by.")
    return found


def with_arguments(args: tuple[Any, ...], numbers: tuple[int, ...], values: Iterable[Any]) -> tuple[Any, ...]:
    """The arguments, some of them replaced."""
    changed = list(args)
    for number, value in zip(numbers, values):
        changed[number] = value
    return tuple(changed)


def chosen(call: str, argnums: Any, args: tuple[Any, ...]) -> tuple[int, ...]:
    """The arguments that `argnums` names: an int, or a tuple of ints. Raises UsageError for one that is not there."""
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)
    found = []
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not -len(args) <= number < len(args):
            raise UsageError(
                f"[{call}] argnums={shown(argnums)}: the function was given {len(args)} positional arguments; name "
                f"one by an int from 0 to {len(args) - 1}, or several in a tuple."
            )
        found.append(number % len(args))
    if not found or len(set(found)) < len(found):
        raise UsageError(f"[{call}] argnums={shown(argnums)}: name each argument once, and at least one.")
    return tuple(found)
