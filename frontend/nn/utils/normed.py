"""Normed weights, the older way: a weight as length and direction, or divided by its greatest singular value.

In       a module and the name of its weight
Out      `weight_norm`, `spectral_norm`: the module, with weight_g and weight_v, or weight_orig, weight_u and weight_v
Changes  the module; spectral_norm's vectors move on when it is called in training
Next     parametrizations.py (the newer way, whose names of state differ), computed.py (the hook)
Source   Salimans and Kingma 2016; Miyato et al. 2018
"""

from __future__ import annotations

from hcq.errors import UsageError
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.utils.computed import Computed, computed, hook_of, parameter_in, removed
from hcq.frontend.nn.utils.parametrizations import _SpectralNorm, _WeightNorm
from hcq.frontend.tensor import Tensor


class _Lengths(Computed):
    """weight_g * weight_v / norm(weight_v)."""

    def __init__(self, name: str, dim: int | None):
        super().__init__(name)
        self.norm = _WeightNorm(dim)

    def compute(self, module: Module) -> Tensor:
        length, direction = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return self.norm(length, direction)  # type: ignore[no-any-return]


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight's length, weight_g, and its direction, weight_v, apart. Returns the module.

    dim   lengths of slices along this axis; None or -1 for one length

    >>> layer = nn.utils.weight_norm(nn.Linear(3, 2))
    >>> list(layer.state_dict()), layer.weight_g.shape
    (['bias', 'weight_g', 'weight_v'], (2, 1))
    """
    weight = parameter_in("weight_norm", module, name)
    hook = _Lengths(name, None if dim == -1 else dim)
    length, direction = hook.norm.right_inverse(weight)
    computed(module, hook, {f"{name}_g": length, f"{name}_v": direction})
    return module


def remove_weight_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight again, with the value that it has now. Returns the module.

    >>> list(nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(3, 2))).state_dict())
    ['bias', 'weight']
    """
    hook = hook_of("remove_weight_norm", module, name, _Lengths)
    removed(module, hook, [f"{name}_g", f"{name}_v"], hook.compute(module))
    return module


class _Spectral(Computed):
    """weight_orig / the greatest singular value, which steps of power iteration with weight_u and weight_v follow."""

    def __init__(self, name: str, weight: Tensor, steps: int, dim: int, eps: float):
        super().__init__(name)
        self.norm = _SpectralNorm(weight, steps, dim, eps)

    def compute(self, module: Module) -> Tensor:
        norm, original = self.norm, getattr(module, f"{self.name}_orig")
        kept_u, kept_v = getattr(module, f"{self.name}_u"), getattr(module, f"{self.name}_v")
        u, v = kept_u.clone(), kept_v.clone()  # the values of now
        if module.training:
            matrix = norm._matrix(original.detach())
            for _ in range(norm.n_power_iterations):
                v = norm._unit(matrix.T @ u)
                u = norm._unit(matrix @ v)
            kept_u.assign(u)
            kept_v.assign(v)
            kept_u.realize(kept_v)
            u, v = kept_u.clone(), kept_v.clone()
        found: Tensor = original / (u * (norm._matrix(original) @ v)).sum()
        return found


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its greatest singular value, estimated by power iteration. Returns the module.

    n_power_iterations   steps before each call in training
    dim                  the axis of the weight's rows: 1 of transposed convolutions, 0 of others, unless given

    >>> layer = nn.utils.spectral_norm(nn.Linear(3, 2))
    >>> list(layer.state_dict()), layer.weight_u.shape
    (['bias', 'weight_orig', 'weight_u', 'weight_v'], (2,))
    """
    weight = parameter_in("spectral_norm", module, name)
    if weight.ndim < 2 or n_power_iterations < 1:
        raise UsageError(
            f"[spectral_norm] a weight of shape {weight.shape}, {n_power_iterations} iterations: give two axes, and 1 "
            "or more."
        )
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    hook = _Spectral(name, weight, n_power_iterations, dim, eps)
    module.register_buffer(f"{name}_u", hook.norm._u)
    module.register_buffer(f"{name}_v", hook.norm._v)
    computed(module, hook, {f"{name}_orig": weight})
    return module


def remove_spectral_norm(module: Module, name: str = "weight") -> Module:
    """A plain weight again, with the value that it has now. Returns the module.

    >>> list(nn.utils.remove_spectral_norm(nn.utils.spectral_norm(nn.Linear(3, 2))).state_dict())
    ['bias', 'weight']
    """
    hook = hook_of("remove_spectral_norm", module, name, _Spectral)
    mode = module.training
    module.training = False  # no further step
    value = hook.compute(module)
    module.training = mode
    removed(module, hook, [f"{name}_orig", f"{name}_u", f"{name}_v"], value)
    return module
