"""Pruning: elements or slices of a parameter that are held at zero by a mask.

In       a module, the name of its parameter, how much of it to prune
Out      l1_unstructured and the others: the module, with weight_orig, which is trained, and weight_mask; `remove`
Changes  the module; what is pruned is decided at once, from values
Next     computed.py (the hook)

Pruning twice prunes of what is left: how much is a share, or a count, of the elements that are not zero already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.utils.computed import PLACE, Computed, computed, hook_of, parameter_in, removed
from hcq.frontend.tensor import Tensor


class _Masked(Computed):
    """weight_orig * weight_mask."""

    def compute(self, module: Module) -> Tensor:
        mask: Tensor = getattr(module, f"{self.name}_mask")
        return mask * getattr(module, f"{self.name}_orig")  # type: ignore[no-any-return]


class BasePruningMethod:
    """A way to prune. A subclass says compute_mask(t, default_mask) -> mask, and which elements it is shown.

    PRUNING_TYPE   "unstructured": it is shown what is left, in a row; "structured": slices along self.dim that are not
                   all zero; "global": the whole parameter

    >>> class EveryOther(nn.utils.prune.BasePruningMethod):
    ...     PRUNING_TYPE = "unstructured"
    ...     def compute_mask(self, t, default_mask):
    ...         return default_mask * (hcq.arange(t.numel()) % 2).reshape(t.shape)
    >>> EveryOther.apply(nn.Linear(4, 1), "weight").weight_mask.tolist()
    [[0.0, 1.0, 0.0, 1.0]]
    """

    PRUNING_TYPE = "unstructured"
    dim = -1

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """1 for what stays, of the importances `t` and the mask that there is."""
        raise UsageError(
            f"[{type(self).__name__}] has no compute_mask(): define it as compute_mask(self, t, default_mask)."
        )

    def prune(
        self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None
    ) -> Tensor:
        """The tensor with what it prunes at zero.

        >>> nn.utils.prune.L1Unstructured(1).prune(Tensor([3.0, -1.0, 2.0])).tolist()
        [3.0, -0.0, 2.0]
        """
        mask = default_mask if default_mask is not None else t.ones_like()
        return t * self._mask(t if importance_scores is None else importance_scores, mask)

    def _mask(self, scores: Tensor, mask: Tensor) -> Tensor:
        """The mask that there is, and what it prunes of what is left."""
        scores, mask = scores.detach(), mask.detach()
        if self.PRUNING_TYPE == "global":
            return self.compute_mask(scores, mask)
        if self.PRUNING_TYPE == "structured":
            axis = self.dim % scores.ndim
            others = tuple(n for n in range(scores.ndim) if n != axis)
            left = mask.sum(others).nonzero().flatten()
            part = self.compute_mask(scores.index_select(axis, left), mask.index_select(axis, left))
            return mask.clone().index_copy(axis, left, part.cast(mask.dtype))
        left = (mask.flatten() == 1).nonzero().flatten()
        flat = mask.flatten()
        part = self.compute_mask(scores.flatten()[left], flat[left])
        return flat.scatter(0, left, part.cast(mask.dtype)).reshape(mask.shape)

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> Module:
        """Prune a parameter of a module, by cls(*args, **kwargs). Returns the module.

        >>> layer = nn.Linear(4, 1)
        >>> nn.utils.prune.L1Unstructured.apply(layer, "weight", 2).weight_mask.sum().item()
        2.0
        """
        return _apply(cls(*args, **kwargs), module, name, importance_scores)


def _apply(method: BasePruningMethod, module: Module, name: str, scores: Tensor | None = None) -> Module:
    call = f"{type(method).__name__}.apply"
    if isinstance(vars(module).get(PLACE, {}).get(name), _Masked):
        hook = hook_of(call, module, name, _Masked)
        value, mask = hook.compute(module), getattr(module, f"{name}_mask")
    else:
        value = parameter_in(call, module, name)
        mask = value.detach().ones_like()
    if scores is not None and scores.shape != value.shape:
        raise UsageError(
            f"[{call}] importances of shape {scores.shape} of a parameter {value.shape}: give as many."
        )
    made = method._mask(value if scores is None else scores, mask).cast(value.dtype).clone().realize()
    if f"{name}_mask" in vars(module):
        getattr(module, f"{name}_mask").assign(made).realize()
        hook(module, ())
        return module
    module.register_buffer(f"{name}_mask", made)
    computed(module, _Masked(name), {f"{name}_orig": value})
    return module


def _count(call: str, amount: Any, size: int) -> int:
    """How many of `size` an amount is: a share of them, or a count."""
    if is_whole(amount) and amount >= 0:
        count = int(amount)
    elif isinstance(amount, float) and 0.0 <= amount <= 1.0:
        count = round(amount * size)
    else:
        raise UsageError(f"[{call}] amount={shown(amount)}: give a share from 0.0 to 1.0, or a count.")
    if count > size:
        raise UsageError(f"[{call}] amount={count} of {size} that are left: give fewer.")
    return count


def _without_least(scores: Tensor, mask: Tensor, count: int) -> Tensor:
    """The mask without the `count` least important of a row of elements."""
    if not count:
        return mask
    places = scores.topk(count, largest=False).indices
    return mask.scatter(0, places, 0.0)


class Identity(BasePruningMethod):
    """Prunes nothing, and gives the parameter its mask.

    >>> nn.utils.prune.Identity.apply(nn.Linear(2, 1), "weight").weight_mask.tolist()
    [[1.0, 1.0]]
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class RandomUnstructured(BasePruningMethod):
    """Prunes elements, each as likely as the next.

    >>> nn.utils.prune.RandomUnstructured(0.25).prune(Tensor.ones(8)).sum().item()
    6.0
    """

    def __init__(self, amount: float):
        _count(type(self).__name__, amount, 2**63)
        self.amount = amount

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(type(self).__name__, self.amount, t.numel())
        keys = t.rand(t.numel(), device=t.device)
        return _without_least(keys, default_mask.flatten(), count).reshape(t.shape)


class L1Unstructured(RandomUnstructured):
    """Prunes the elements of the least absolute value.

    >>> nn.utils.prune.L1Unstructured(0.5).prune(Tensor([1.0, -4.0, 3.0, -2.0])).tolist()
    [0.0, -4.0, 3.0, -0.0]
    """

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _count(type(self).__name__, self.amount, t.numel())
        return _without_least(t.abs().flatten(), default_mask.flatten(), count).reshape(t.shape)


class RandomStructured(BasePruningMethod):
    """Prunes slices along an axis, each as likely as the next.

    >>> nn.utils.prune.RandomStructured(1, dim=0).prune(Tensor.ones(3, 2)).sum().item()
    4.0
    """

    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1):
        _count(type(self).__name__, amount, 2**63)
        self.amount, self.dim = amount, dim

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        return t.rand(t.shape[axis], device=t.device)

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        axis = self.dim % t.ndim
        count = _count(type(self).__name__, self.amount, t.shape[axis])
        if not count:
            return default_mask
        scores = self._importance(t, axis)
        kept = _without_least(scores, scores.ones_like(), count)
        sides = [1] * t.ndim
        sides[axis] = t.shape[axis]
        return default_mask * kept.reshape(sides)


class LnStructured(RandomStructured):
    """Prunes the slices along an axis that have the least norm.

    n   which norm: 1, 2, float("inf"), ...

    >>> nn.utils.prune.LnStructured(1, n=2, dim=1).prune(Tensor([[1.0, 5.0], [2.0, 0.0]])).tolist()
    [[0.0, 5.0], [0.0, 0.0]]
    """

    def __init__(self, amount: float, n: Any, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def _importance(self, t: Tensor, axis: int) -> Tensor:
        return t.norm(self.n, tuple(place for place in range(t.ndim) if place != axis))


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0.

    >>> nn.utils.prune.CustomFromMask(Tensor([1.0, 0.0])).prune(Tensor([3.0, 4.0])).tolist()
    [3.0, 0.0]
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor):
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if self.mask.shape != default_mask.shape:
            raise UsageError(f"[CustomFromMask] a mask of shape {self.mask.shape} of a parameter {t.shape}.")
        return default_mask * self.mask.cast(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones.

    >>> list(nn.utils.prune.identity(nn.Linear(2, 1), "weight").state_dict())
    ['bias', 'weight_orig', 'weight_mask']
    """
    return Identity.apply(module, name)


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune elements at random. amount is a share, as 0.3, or a count, as 3.

    >>> layer = nn.utils.prune.random_unstructured(nn.Linear(4, 2), "weight", 3)
    >>> layer.weight_mask.sum().item()
    5.0
    """
    return RandomUnstructured.apply(module, name, amount)


def l1_unstructured(
    module: Module, name: str, amount: float, importance_scores: Tensor | None = None
) -> Module:
    """Prune the elements that are nearest to zero, or least important by scores of their own.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(4, 2), "weight", 0.5)
    >>> (layer.weight == 0).sum().item(), [name for name, _ in layer.named_parameters()]
    (4, ['bias', 'weight_orig'])
    """
    return L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune slices along `dim` at random.

    >>> nn.utils.prune.random_structured(nn.Linear(4, 2), "weight", 1, dim=1).weight_mask.sum(1).tolist()
    [3.0, 3.0]
    """
    return RandomStructured.apply(module, name, amount, dim)


def ln_structured(
    module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the slices along `dim` of the least norm, of kind n.

    >>> layer = nn.Linear(2, 2)
    >>> _ = layer.load_state_dict({"weight": Tensor([[1.0, 2.0], [3.0, 4.0]])}, strict=False)
    >>> nn.utils.prune.ln_structured(layer, "weight", 0.5, n=2, dim=0).weight.tolist()
    [[0.0, 0.0], [3.0, 4.0]]
    """
    return LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune where a mask is 0.

    >>> nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "bias", Tensor([0.0])).bias.count_nonzero().item()
    0
    """
    return CustomFromMask.apply(module, name, mask)


def global_unstructured(
    parameters: Iterable[tuple[Module, str]],
    pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None,
    **kwargs: Any,
) -> None:
    """Prune several parameters as if they were one: the least important elements of all.

    parameters       pairs of a module and a name
    pruning_method   an unstructured one, as L1Unstructured, which kwargs are for

    >>> first, second = nn.Linear(3, 1), nn.Linear(3, 2)
    >>> both = [(first, "weight"), (second, "weight")]
    >>> nn.utils.prune.global_unstructured(both, nn.utils.prune.L1Unstructured, amount=4)
    >>> (first.weight_mask.sum() + second.weight_mask.sum()).item()
    5.0
    """
    pairs = list(parameters)
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured" or not pairs:
        raise UsageError(
            f"[global_unstructured] {pruning_method.__name__} of {len(pairs)} parameters: give some, and a method that "
            "prunes elements."
        )
    scores, masks = [], []
    for module, name in pairs:
        value = getattr(module, name)
        given = (importance_scores or {}).get((module, name), value)
        mask = vars(module).get(f"{name}_mask")
        scores.append(given.detach().flatten())
        masks.append((value.detach().ones_like() if mask is None else mask).flatten())
    together = method._mask(Tensor.cat(scores), Tensor.cat(masks))
    at = 0
    for module, name in pairs:
        value = getattr(module, name)
        custom_from_mask(module, name, together[at : at + value.numel()].reshape(value.shape))
        at += value.numel()


def remove(module: Module, name: str) -> Module:
    """A plain parameter again, in which what was pruned is zero. Returns the module.

    >>> layer = nn.utils.prune.l1_unstructured(nn.Linear(2, 1), "weight", 1)
    >>> list(nn.utils.prune.remove(layer, "weight").state_dict()), (layer.weight == 0).sum().item()
    (['bias', 'weight'], 1)
    """
    hook = hook_of("remove", module, name, _Masked)
    removed(module, hook, [f"{name}_orig", f"{name}_mask"], hook.compute(module))
    return module


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one inside, has a mask.

    >>> net = nn.Sequential(nn.Linear(2, 1))
    >>> before = nn.utils.prune.is_pruned(net)
    >>> _ = nn.utils.prune.identity(net[0], "weight")
    >>> before, nn.utils.prune.is_pruned(net)
    (False, True)
    """
    return any(
        isinstance(hook, _Masked) for part in module.modules() for hook in vars(part).get(PLACE, {}).values()
    )
