"""Optimizers: move parameters against their gradients, in place, all in one schedule.

In       parameters (tensors in memory) and, at each step, their `.grad`
Out      `SGD`, `Adam`, `AdamW`
Changes  `step` writes the parameters and the optimizer's own state, and does every other pending write in place
Next     gradient.py (who fills `.grad`), realize.py (who runs the step), module.py (who lists parameters)
Source   PyTorch's torch.optim, for the formulas and their order; Kingma and Ba 2015; Loshchilov and Hutter 2019

What changes from step to step (the learning rate, bias corrections, moments) is in device memory, what never changes
is part of the kernels: a new learning rate compiles nothing, and a recorded step goes on correctly when replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend import names
from hcq.frontend.arguments import listed
from hcq.frontend.core import live
from hcq.frontend.nn.init import constant
from hcq.frontend.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.op import Op


class Part(NamedTuple):
    """One parameter in one step: its place in the list, its value now and its gradient."""

    place: int
    parameter: Tensor
    value: Tensor
    gradient: Tensor


class Optimizer:
    """What all optimizers share: the checks, the learning rate in device memory, and one realize for a whole step."""

    def __init__(self, params: Iterable[Tensor], lr: float):
        self.params = _checked(type(self).__name__, params)
        self._rate = _not_negative(type(self).__name__, "lr", lr)
        self._rates: dict[tuple[str, DType], Tensor] = {}
        for parameter in self.params:  # made now: a recording must find them
            self._rate_for(parameter)

    @property
    def lr(self) -> float:
        """The learning rate; assigning a new one compiles nothing."""
        return self._rate

    @lr.setter
    def lr(self, lr: float) -> None:
        self._rate = _not_negative(type(self).__name__, "lr", lr)
        for (device, dtype), rate in self._rates.items():
            rate.assign(constant((), lr, dtype, device)).realize()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero."""
        for parameter in self.params:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.zeros_like()

    def step(self) -> None:
        """Move every parameter that has a gradient; the others, and frozen ones, stay as they are.

        Changes  the parameters and the optimizer's state, and does every other pending write in place, in one schedule
        Raises   UsageError when no parameter has a gradient
        """
        if names.wanted():
            names.learn(self, (), self._named)
        parts = [
            Part(place, parameter, parameter.detach(), parameter.grad.detach())
            for place, parameter in enumerate(self.params)
            if parameter.requires_grad and parameter.grad is not None
        ]
        if not parts:
            raise UsageError(
                f"[{type(self).__name__}.step] no parameter has a gradient. Call loss.backward() before step()."
            )
        self.prepare(parts)
        # nothing of a part may outlive it here: a live tensor of the old value would be kept in memory
        while parts:
            part = parts.pop(0)
            part.parameter.assign(self.moved(part, self._rate_for(part.parameter)))
            del part
        realize([tensor for tensor in live if tensor.node.op is Op.ASSIGN])

    def state_dict(self) -> dict[str, Tensor]:
        """Name -> tensor, all that the next step depends on besides the parameters: the tensors themselves."""
        return {"lr": constant((), self._rate, dtypes.float64, self.params[0].device), **self.state()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Write what `state_dict` of an optimizer of the same kind and parameters gave into this one's tensors.

        Raises  UsageError when a name is missing or unknown, or a shape differs; nothing is written then
        """
        own = self.state()
        if set(state) != {"lr", *own}:
            missing = sorted({"lr", *own} - set(state))
            unknown = sorted(set(state) - {"lr", *own})
            raise UsageError(
                f"[{type(self).__name__}.load_state_dict] the names do not match; missing: {missing}, "
                f"unknown: {unknown}. Make the optimizer with the same options and parameters."
            )
        for name, tensor in own.items():
            if tensor.shape != state[name].shape:
                raise UsageError(
                    f"[{type(self).__name__}.load_state_dict] {name} has shape {tensor.shape}, the saved one "
                    f"{state[name].shape}. Make the optimizer with the same parameters in the same order."
                )
        for name, tensor in own.items():
            tensor.assign(state[name].detach().to(tensor.device).cast(tensor.dtype))
        realize(list(own.values()))
        self.lr = float(state["lr"].item())

    def state(self) -> dict[str, Tensor]:
        """The optimizer's own tensors by name."""
        return {}

    def rates(self) -> list[Tensor]:
        """The learning rate in device memory, one for each device and dtype."""
        return list(self._rates.values())

    def _named(self) -> list[tuple[str, Tensor]]:
        """Its tensors, called after the parameters they belong to, as in "conv1.weight (Adam mean)"."""
        kind = type(self).__name__
        found = [(f"{kind} learning rate", rate) for rate in self.rates()]
        for key, tensor in self.state().items():
            what, _, place = key.rpartition(".")
            parameter = names.name_of(self.params[int(place)]) if what and place.isdigit() else ""
            found.append((f"{parameter} ({kind} {what})" if parameter else f"{kind} {key}", tensor))
        return found

    def prepare(self, parts: list[Part]) -> None:
        """Update what is shared by all parameters of a step: a subclass may have something there."""

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        """The parameter's new value, of its shape and dtype, for a subclass to say; assigns its state on the way."""
        raise UsageError(
            f"[{type(self).__name__}] has no moved(): define it as moved(self, part, rate) -> Tensor."
        )

    def _rate_for(self, parameter: Tensor) -> Tensor:
        """The learning rate as a scalar on the parameter's device, precise enough for its dtype."""
        key = (parameter.device, _scalar_dtype(parameter))
        rate = self._rates.get(key)
        if rate is None:
            rate = self._rates[key] = constant((), self._rate, key[1], key[0])
        return rate


class SGD(Optimizer):
    """p -= lr * g, with momentum: g becomes buf = momentum * buf + (1 - dampening) * g, buf = g at the first step.

    weight_decay   adds weight_decay * p to g
    nesterov       steps along g + momentum * buf
    Raises         UsageError for what is no list of float parameters, a negative rate, nesterov without momentum

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = nn.optim.SGD([x], lr=0.5)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> x.tolist()
    [0.0]
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ):
        super().__init__(params, lr)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise UsageError("[SGD] nesterov needs a momentum above 0 and dampening 0.")
        self.momentum = _not_negative("SGD", "momentum", momentum)
        self.weight_decay = _not_negative("SGD", "weight_decay", weight_decay)
        self.dampening, self.nesterov = dampening, nesterov
        self.buffers = [_zeros(p) for p in self.params] if momentum else []
        # 1 for parameters that have moved before: their first gradient is not dampened
        self.started = _Shared(self.params, 0.0) if momentum and dampening else None
        self._damping: dict[int, Tensor] = {}

    def state(self) -> dict[str, Tensor]:
        shared = {} if self.started is None else self.started.named("started")
        return {**{f"momentum.{place}": buffer for place, buffer in enumerate(self.buffers)}, **shared}

    def prepare(self, parts: list[Part]) -> None:
        if self.started is not None:
            for part in parts:
                self._damping[part.place] = 1.0 - self.started.of(part) * self.dampening
            self.started.update(parts, lambda started: started.ones_like())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g = part.gradient
        if self.weight_decay:
            g = g + part.value * self.weight_decay
        if self.momentum:
            buffer = self.buffers[part.place]
            damped = g * self._damping.pop(part.place).cast(g.dtype) if self.started is not None else g
            buffer.assign(buffer * self.momentum + damped)
            g = g + buffer * self.momentum if self.nesterov else buffer
        return part.value - g * rate.cast(g.dtype)


class Adam(Optimizer):
    """p -= lr * m / (sqrt(v) + eps), with running means m of g and v of g * g, corrected for their start at zero.

    betas          how much of m and of v stays from step to step
    weight_decay   adds weight_decay * p to g
    Source         Kingma and Ba 2015
    """

    decoupled = False  # whether weight decay shrinks the parameter itself

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ):
        super().__init__(params, lr)
        name = type(self).__name__
        for place, beta in enumerate(betas):
            if not 0.0 <= beta < 1.0:
                raise UsageError(
                    f"[{name}] betas[{place}] {beta}: give a number from 0 up to, not including, 1."
                )
        self.betas = betas
        self.eps = _not_negative(name, "eps", eps)
        self.weight_decay = _not_negative(name, "weight_decay", weight_decay)
        self.means = [_zeros(p) for p in self.params]
        self.squares = [_zeros(p) for p in self.params]
        # 1 - beta**t, kept by its own recurrence: it is precise from the first step, where 1 - (a rounded power) is not
        self.corrections = [_Shared(self.params, 0.0) for _ in betas]

    def state(self) -> dict[str, Tensor]:
        found = {f"mean.{place}": mean for place, mean in enumerate(self.means)}
        found.update({f"square.{place}": square for place, square in enumerate(self.squares)})
        for place, correction in enumerate(self.corrections):
            found.update(correction.named(f"correction.{place}"))
        return found

    def prepare(self, parts: list[Part]) -> None:
        for beta, correction in zip(self.betas, self.corrections):
            correction.update(parts, lambda c, beta=beta: c * beta + (1.0 - beta))

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        value, g = part.value, part.gradient
        rate = rate.cast(g.dtype)
        if self.weight_decay and self.decoupled:
            value = value * (1.0 - rate * self.weight_decay)
        elif self.weight_decay:
            g = g + value * self.weight_decay
        mean, square = self.means[part.place], self.squares[part.place]
        mean.assign(mean + (g - mean) * (1.0 - self.betas[0]))
        square.assign(square * self.betas[1] + g * g * (1.0 - self.betas[1]))
        first, second = (correction.of(part).cast(g.dtype) for correction in self.corrections)
        return value - (rate / first) * mean / (square.sqrt() / second.sqrt() + self.eps)


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter itself, p -= lr * weight_decay * p, apart from the gradient.

    Source  Loshchilov and Hutter 2019
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ):
        super().__init__(params, lr, betas, eps, weight_decay)


class _Shared:
    """One scalar per parameter, in one tensor per device, so that one kernel updates all of them."""

    def __init__(self, params: list[Tensor], start: float):
        self.where: list[tuple[str, int]] = []
        counts: dict[str, int] = {}
        for parameter in params:
            place = counts.get(parameter.device, 0)
            counts[parameter.device] = place + 1
            self.where.append((parameter.device, place))
        wide = any(parameter.dtype is dtypes.float64 for parameter in params)
        dtype = dtypes.float64 if wide else dtypes.float32
        self.tensors = {device: constant((n,), start, dtype, device) for device, n in counts.items()}
        self._masks: dict[tuple[str, frozenset[int]], Tensor] = {}

    def of(self, part: Part) -> Tensor:
        """The scalar of one parameter."""
        device, place = self.where[part.place]
        return self.tensors[device][place]

    def named(self, name: str) -> dict[str, Tensor]:
        """The tensors by name."""
        return {f"{name}.{device}": tensor for device, tensor in self.tensors.items()}

    def update(self, parts: list[Part], change: Any) -> None:
        """New scalars for the parameters that take part."""
        taking: dict[str, set[int]] = {}
        for part in parts:
            device, place = self.where[part.place]
            taking.setdefault(device, set()).add(place)
        for device, tensor in self.tensors.items():
            places = taking.get(device)
            if not places:
                continue
            new = change(tensor)
            if len(places) < tensor.shape[0]:
                new = self._mask(device, frozenset(places), tensor).where(new, tensor)
            tensor.assign(new)

    def _mask(self, device: str, places: frozenset[int], tensor: Tensor) -> Tensor:
        """True for the parameters that take part; made once for each choice of them."""
        mask = self._masks.get((device, places))
        if mask is None:
            flags = [place in places for place in range(tensor.shape[0])]
            mask = self._masks[device, places] = type(tensor)(flags, device=device)
        return mask


def _zeros(parameter: Tensor) -> Tensor:
    zeros = constant(parameter.shape, 0.0, parameter.dtype, parameter.device)
    split = getattr(parameter.node.arg, "split", None)
    return zeros if split is None else zeros.shard_(parameter.device, split.axis)


def _scalar_dtype(parameter: Tensor) -> DType:
    return dtypes.float64 if parameter.dtype is dtypes.float64 else dtypes.float32


def _checked(name: str, params: Iterable[Tensor]) -> list[Tensor]:
    """The parameters as a list; refused are what is no parameter, none at all, and one given twice."""
    if isinstance(params, Tensor):
        raise UsageError(f"[{name}] params is one tensor: give a list of tensors, as model.parameters().")
    found = listed(name, "params", params)
    if not found:
        raise UsageError(
            f"[{name}] the list of parameters is empty. Has the model any, and was a generator used up?"
        )
    found = [part for each in found for part in (each._real_ones() if isinstance(each, Tensor) else (each,))]
    seen: dict[int, int] = {}
    for place, parameter in enumerate(found):
        if not isinstance(parameter, Tensor):
            raise UsageError(
                f"[{name}] parameter {place} is a {type(parameter).__name__}: give tensors, as model.parameters()."
            )
        if id(parameter) in seen:
            raise UsageError(
                f"[{name}] parameters {seen[id(parameter)]} and {place} are the same tensor: name each once."
            )
        seen[id(parameter)] = place
        if not parameter.dtype.is_float:
            raise UsageError(
                f"[{name}] parameter {place} is {parameter.dtype.name}: only floats can be optimized."
            )
    if not any(parameter.requires_grad for parameter in found):
        raise UsageError(
            f"[{name}] none of the {len(found)} parameters requires a gradient. "
            "Make them with requires_grad=True, or call requires_grad_() on them."
        )
    for parameter in found:
        if parameter.node.op is not Op.BUFFER:
            parameter.realize()
        if parameter.node.op is not Op.BUFFER:
            raise UsageError(
                f"[{name}] a parameter of shape {parameter.shape} is a view of another tensor: "
                "optimize the tensor itself."
            )
    return found


def _not_negative(name: str, what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise UsageError(f"[{name}] {what} {shown(value)}: give a number, 0 or more.")
    return float(value)
