"""Parametrisations that there are: a weight as length and direction, or divided by its greatest singular value.

In       a module and the name of its weight
Out      `weight_norm`, `spectral_norm`: the module, whose weight is computed from now on
Changes  the module; spectral_norm's vectors move on when its weight is read in training
Next     parametrize.py
Source   Salimans and Kingma 2016; Miyato et al. 2018
"""

from __future__ import annotations

from hcq.errors import UsageError
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.utils.parametrize import register_parametrization
from hcq.frontend.tensor import Tensor


class _WeightNorm(Module):
    """length * direction / norm(direction), by rows along `dim`; None for one length."""

    def __init__(self, dim: int | None = 0):
        self.dim = dim

    def _norm(self, direction: Tensor) -> Tensor:
        if self.dim is None:
            return direction.norm()
        place = self.dim % direction.ndim
        others = tuple(axis for axis in range(direction.ndim) if axis != place)
        return direction.square().sum(others, keepdim=True).sqrt()

    def forward(self, length: Tensor, direction: Tensor) -> Tensor:
        return direction * (length / self._norm(direction))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The length and the direction that give this weight."""
        return self._norm(weight), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """Train a weight's length (original0) and direction (original1) apart.

    dim   lengths of slices along this axis; None for one length

    >>> layer = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    >>> [name for name, _ in layer.named_parameters()][1:]
    ['parametrizations.weight.original0', 'parametrizations.weight.original1']
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """A weight divided by its greatest singular value, which a step of power iteration follows in training."""

    buffers_of_class = ("_u", "_v")

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float):
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim, eps
        if weight.ndim > 1:
            matrix = self._matrix(weight.detach())
            self._u = self._unit(Tensor.randn(matrix.shape[0], dtype=weight.dtype, device=weight.device))
            self._v = self._unit(Tensor.randn(matrix.shape[1], dtype=weight.dtype, device=weight.device))
            self._u, self._v = self._u.clone().realize(), self._v.clone().realize()
            self._follow(matrix, 15)

    def _unit(self, x: Tensor) -> Tensor:
        return x / x.norm().maximum(self.eps)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _follow(self, matrix: Tensor, steps: int) -> None:
        u, v = self._u, self._v
        for _ in range(steps):
            u = self._unit(matrix @ v)
            v = self._unit(matrix.T @ u)
        self._u.assign(u)
        self._v.assign(v)
        self._u.realize(self._v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return weight / weight.norm().maximum(self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._follow(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()  # the values of now
        return weight / (u * (matrix @ v)).sum()

    def right_inverse(self, value: Tensor) -> Tensor:
        """Any weight is an original."""
        return value


def spectral_norm(
    module: Module,
    name: str = "weight",
    n_power_iterations: int = 1,
    eps: float = 1e-12,
    dim: int | None = None,
) -> Module:
    """Divide a weight by its greatest singular value, estimated by power iteration; dim has its rows.

    n_power_iterations   steps whenever the weight is read in training

    >>> layer = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3), n_power_iterations=30)
    >>> abs(hcq.torch.linalg.svdvals(layer.weight.detach())[0].item() - 1) < 0.01
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor) or weight.ndim < 1:
        raise UsageError(f"[spectral_norm] {type(module).__name__} has no weight {name!r} with axes.")
    if n_power_iterations < 1:
        raise UsageError(f"[spectral_norm] n_power_iterations {n_power_iterations}: give 1 or more.")
    if dim is None:
        dim = 1 if type(module).__name__.startswith("ConvTranspose") else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))
