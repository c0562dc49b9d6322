"""L-BFGS: steps along the gradient as curvature bends it, which differences of the last gradients tell.

In       parameters of one device, and a closure that computes the loss and its gradients
Out      `LBFGS`
Changes  the parameters, several times a step; what it remembers of steps and gradients
Next     optimizer.py
Source   Liu and Nocedal 1989; Nocedal and Wright, "Numerical Optimization", 7.2; PyTorch's torch.optim, for the order

The loss decides what is done next, so it is read after every call of the closure: a step is no part of a recording.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import thread_modes, watcher
from hcq.frontend.optim.groups import Group
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.tensor import Tensor

LEAST_CURVATURE = 1e-10  # of a step that is remembered


class LBFGS(Optimizer):
    """Quasi-Newton steps: `step(closure)` goes on until it stands still, or has made `max_iter` iterations.

    max_eval           calls of the closure in a step: max_iter * 5 / 4 unless given
    tolerance_grad     it ends where no element of the gradient is larger
    tolerance_change   and where neither the loss nor a parameter changes by more
    history_size       how many steps are remembered
    line_search_fn     "strong_wolfe", or None: steps of length lr
    Raises             UsageError for several groups, without a closure, and inside of jit: it reads the loss

    >>> x = Tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = hcq.optim.LBFGS([x], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((x - Tensor([1.0, 2.0])) ** 4).sum()
    ...     loss.backward()
    ...     return loss
    >>> _ = optimizer.step(closure)
    >>> abs(x.detach() - Tensor([1.0, 2.0])).max().item() < 0.05
    True
    """

    counted: ClassVar[dict[str, float]] = {}
    ignored: tuple[str, ...] = ()

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ):
        options = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        self._kept: dict[str, Any] = {}
        super().__init__(params, options)

    def check_group(self, call: str, group: Group) -> None:
        if self.param_groups:
            raise UsageError(
                "[LBFGS] it has one group of parameters: their curvature is one. Give a list of tensors."
            )
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise UsageError(
                f"[LBFGS] line_search_fn {shown(group['line_search_fn'])}: use 'strong_wolfe' or None."
            )
        if group["max_iter"] < 1 or group["history_size"] < 1:
            raise UsageError(
                f"[LBFGS] max_iter={group['max_iter']}, history_size={group['history_size']}: give 1 or more."
            )

    def state_dict(self) -> dict[str, Any]:
        """{"state": {0: what it remembers}, "param_groups": ...}, as PyTorch's."""
        found = super().state_dict()
        return {**found, "state": {0: dict(self._kept)} if self._kept else {}}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take what `state_dict`, here or PyTorch's, gave."""
        if not isinstance(state_dict, Mapping) or "param_groups" not in state_dict:
            raise self._error("give what state_dict() gave")
        super().load_state_dict({**state_dict, "state": {}})
        kept = dict(state_dict.get("state", {}).get(0, {}))
        self._kept = {key: self._own(value) for key, value in kept.items() if key != "al"}

    def flat_state(self) -> dict[str, Tensor]:
        """Refused: what it remembers is no list of tensors by name."""
        raise UsageError("[LBFGS.flat_state] its memory has no flat names. Keep state_dict() instead.")

    def _own(self, value: Any) -> Any:
        """A value of a state, its tensors copied to where the parameters are."""
        if isinstance(value, list):
            return [self._own(each) for each in value]
        if not hasattr(value, "detach"):
            return copy.copy(value)
        like, given = self.params[0], value.detach()
        tensor = given if isinstance(given, Tensor) else Tensor(given)
        return tensor.to(like.device).cast(like.dtype).clone().realize()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Iterate as far as the options say. Returns what the closure gave at first.

        closure   forgets the gradients, computes the loss, calls backward() and returns the loss
        """
        if not callable(closure):
            raise UsageError(
                "[LBFGS.step] give a closure, which computes the loss and its gradients: step(closure)."
            )
        watching = watcher() if thread_modes else None
        if watching is not None:
            watching.forbids(
                "LBFGS.step", "it reads the loss to see where to go. Call it outside of the recorded function"
            )
        for hook in list(self._before):
            hook(self, (closure,), {})
        result = closure()
        start = self._here(0.0, result)
        self._kept.setdefault("func_evals", 0)
        self._kept.setdefault("n_iter", 0)
        self._kept["func_evals"] += 1
        if _largest(start.gradient) > self.param_groups[0]["tolerance_grad"]:
            self._iterate(closure, start)
        for hook in list(self._after):
            hook(self, (closure,), {})
        return result

    def _iterate(self, closure: Callable[[], Any], point: Point) -> None:
        options, kept = self.param_groups[0], self._kept
        rate, least = float(options["lr"]), options["tolerance_change"]
        calls = 1
        for turn in range(1, options["max_iter"] + 1):
            kept["n_iter"] += 1
            direction = self._direction(point.gradient)
            kept.update(d=direction, prev_flat_grad=point.gradient, prev_loss=point.loss)
            kept["t"] = rate
            if kept["n_iter"] == 1:
                kept["t"] *= min(1.0, 1.0 / point.gradient.abs().sum().item())
            slope = (point.gradient * direction).sum().item()
            if slope > -least:
                return
            before, made = point, 0
            origin = self._values()
            if options["line_search_fn"] is not None:
                here = before._replace(length=0.0, slope=slope)
                point, made = self._search(closure, here, origin, direction)
                kept["t"] = point.length
                self._go(origin, direction, point.length)
            else:
                self._go(origin, direction, kept["t"])
                if turn < options["max_iter"]:
                    point, made = self._here(kept["t"], closure()), 1
            calls += made
            kept["func_evals"] += made
            stands = _largest(direction) * abs(kept["t"]) <= least or abs(point.loss - before.loss) < least
            is_flat = made > 0 and _largest(point.gradient) <= options["tolerance_grad"]
            if calls >= options["max_eval"] or is_flat or stands:
                return

    def _search(
        self, closure: Callable[[], Any], start: Point, origin: Tensor, direction: Tensor
    ) -> tuple[Point, int]:
        def at(length: float) -> Point:
            self._go(origin, direction, length)
            return self._here(length, closure(), direction)

        least = self.param_groups[0]["tolerance_change"]
        return strong_wolfe(at, start, self._kept["t"], _largest(direction), least)

    def _direction(self, gradient: Tensor) -> Tensor:
        """Where to go: against the gradient, bent by the curvature that the last steps met."""
        kept = self._kept
        if kept["n_iter"] == 1:
            kept.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return (-gradient).realize()
        change, step = (gradient - kept["prev_flat_grad"]).realize(), (kept["d"] * kept["t"]).realize()
        curvature = (change * step).sum().item()
        if curvature > LEAST_CURVATURE:
            if len(kept["old_dirs"]) == self.param_groups[0]["history_size"]:
                for name in ("old_dirs", "old_stps", "ro"):
                    kept[name].pop(0)
            kept["old_dirs"].append(change)
            kept["old_stps"].append(step)
            kept["ro"].append(Tensor(1.0 / curvature, change.device, change.dtype).clone().realize())
            kept["H_diag"] = curvature / change.square().sum().item()
        # each turn is computed by itself, so that one kernel serves all of them, however many are remembered
        found, shares = (-gradient).realize(), []
        pairs = list(zip(kept["old_dirs"], kept["old_stps"], kept["ro"]))
        for y, s, weight in reversed(pairs):
            shares.append(((s * found).sum() * weight).realize())
            found = (found - y * shares[-1]).realize()
        found = (found * kept["H_diag"]).realize()
        for (y, s, weight), share in zip(pairs, reversed(shares)):
            found = (found + s * (share - (y * found).sum() * weight)).realize()
        return found

    def _here(self, length: float, loss: Any, direction: Tensor | None = None) -> Point:
        """What is known of where the parameters stand."""
        parts = [
            (parameter.detach() * 0.0 if parameter.grad is None else parameter.grad.detach()).reshape(-1)
            for parameter in self.params
        ]
        gradient = Tensor.cat(parts).clone().realize()
        value = float(loss.item() if hasattr(loss, "item") else loss)
        slope = 0.0 if direction is None else (gradient * direction).sum().item()
        return Point(length, value, gradient, slope)

    def _values(self) -> Tensor:
        return Tensor.cat([parameter.detach().reshape(-1) for parameter in self.params]).clone().realize()

    def _go(self, origin: Tensor, direction: Tensor, length: float) -> None:
        """Put the parameters there."""
        there, at = (origin + direction * length).realize(), 0
        for parameter in self.params:
            parameter.assign(there[at : at + parameter.numel()].reshape(parameter.shape))
            at += parameter.numel()
        self.params[0].realize(*self.params[1:])


def _largest(x: Tensor) -> float:
    return float(x.abs().max().item())


# -- how far to go along a direction, so that the loss falls enough and the slope has flattened ------------------------


# Wolfe's two constants: how much of the slope's promise, how much of the slope may be left
ENOUGH, FLAT = (1e-4, 0.9)
TURNS = 25


class Point(NamedTuple):
    """A length along the direction, and the loss, its gradient and its slope along the direction there."""

    length: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(
    at: Callable[[float], Point], start: Point, length: float, size: float, least: float
) -> tuple[Point, int]:
    """A point with Wolfe's strong conditions, or the best that there was.

    size    the direction's largest element: two points nearer than `least` in every parameter are one
    Returns the point, and how often `at` was called
    """
    search = _Search(at, start, size, least)
    return search.run(length), search.calls


class _Search:
    def __init__(self, at: Callable[[float], Point], start: Point, size: float, least: float):
        self.at, self.start, self.size, self.least = at, start, size, least
        self.calls = self.turns = 0

    def _look(self, length: float) -> Point:
        self.calls += 1
        return self.at(length)

    def _is_high(self, point: Point) -> bool:
        """Whether the loss fell less than the slope at the start promises."""
        return point.loss > self.start.loss + ENOUGH * point.length * self.start.slope

    def _is_flat(self, point: Point) -> bool:
        return abs(point.slope) <= -FLAT * self.start.slope

    def run(self, length: float) -> Point:
        """Go on until two points have one with both conditions between them, then look between these."""
        before, now = self.start, self._look(length)
        while self.turns < TURNS:
            if self._is_high(now) or (self.turns > 1 and now.loss >= before.loss):
                return self._between(before, now)
            if self._is_flat(now):
                return now
            if now.slope >= 0:
                return self._between(before, now)
            nearest = now.length + 0.01 * (now.length - before.length)
            further = _lowest(before, now, nearest, now.length * 10)
            before, now = now, self._look(further)
            self.turns += 1
        return now if now.loss < self.start.loss else self.start

    def _between(self, first: Point, second: Point) -> Point:
        """Halve, or better, what lies between two points, until a point between them has both conditions."""
        ends = [first, second]
        low = 0 if first.loss <= second.loss else 1
        is_slow = False
        while self.turns < TURNS:
            left, right = sorted(end.length for end in ends)
            if (right - left) * self.size < self.least:
                break
            length = _lowest(ends[0], ends[1], left, right)
            edge = 0.1 * (right - left)
            is_near = min(right - length, length - left) < edge
            if is_near and (is_slow or length >= right or length <= left):
                length = right - edge if abs(length - right) < abs(length - left) else left + edge
                is_near = False
            is_slow = is_near
            point = self._look(length)
            self.turns += 1
            if self._is_high(point) or point.loss >= ends[low].loss:
                ends[1 - low] = point
                low = 0 if ends[0].loss <= ends[1].loss else 1
                continue
            if self._is_flat(point):
                return point
            if point.slope * (ends[1 - low].length - ends[low].length) >= 0:
                ends[1 - low] = ends[low]
            ends[low] = point
        return ends[low]


def _lowest(one: Point, other: Point, least: float, most: float) -> float:
    """Where the cubic through two points, with their slopes, is lowest; where it is nowhere, the bounds' middle."""
    a, b = (one, other) if one.length <= other.length else (other, one)
    width = b.length - a.length
    if width <= 0.0 or not math.isfinite(a.loss + b.loss + a.slope + b.slope):
        return (least + most) / 2.0
    middle = a.slope + b.slope - 3.0 * (b.loss - a.loss) / width
    squared = middle * middle - a.slope * b.slope
    if squared < 0.0:
        return (least + most) / 2.0
    root = math.sqrt(squared)
    below = b.slope - a.slope + 2.0 * root
    if below == 0.0:
        return (least + most) / 2.0
    return min(max(b.length - width * (b.slope + root - middle) / below, least), most)
