"""Optimizer: what all optimizers share: groups, state by parameter, and one schedule for a whole step.

In       parameters (tensors in memory), or groups of them, and, at each step, their `.grad`
Out      `Optimizer`, whose subclasses say in `moved` where a parameter goes; `Part`, a parameter in a step
Changes  `step` writes the parameters and the optimizer's own state, and does every other pending write in place
Next     groups.py (options), counts.py (steps made), saved.py (state out and in), adam.py (a subclass)
Source   PyTorch's torch.optim, for the formulas and their order

What changes from step to step (the learning rate, step counts, moments) is in device memory, what never changes is part
of the kernels: a new learning rate compiles nothing, and a recorded step goes on correctly when replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core import names
from hcq.frontend.core.base import changed, live, watcher
from hcq.frontend.nn.constant import constant
from hcq.frontend.ops.arguments import listed
from hcq.frontend.optim.counts import Counts
from hcq.frontend.optim.groups import Group, Of, not_negative, scalar_dtype
from hcq.frontend.optim.saved import Saved
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType
from hcq.ir.op import Op


class Part(NamedTuple):
    """One parameter in one step: its place in the list, its value now, its gradient and its options.

    >>> hcq.optim.Part._fields
    ('place', 'parameter', 'value', 'gradient', 'group')
    """

    place: int
    parameter: Tensor
    value: Tensor
    gradient: Tensor
    group: Group

    def number(self, key: str, of: Of | None = None, label: str = "") -> Any:
        """An option, or what `of` makes of it under the name `label`, to be computed with: a number or a scalar."""
        found = self.group.number(key, self.parameter.device, scalar_dtype(self.parameter), of, label)
        return found.cast(self.gradient.dtype) if isinstance(found, Tensor) else found

    def beta(self, place: int) -> tuple[Any, Any]:
        """betas[place], and 1 less that."""
        return (
            self.number("betas", lambda betas: betas[place], f"{place}"),
            self.number("betas", lambda betas: 1.0 - betas[place], f"1 - {place}"),
        )


class Optimizer(Saved):
    """A subclass names its state (`kept`, `counted`, or `state_of`, `counts_of`); `moved` says where a parameter goes.

    params     tensors, pairs of names and tensors, or dicts: {"params": tensors, option: value, ...}
    defaults   the options, of groups that do not name them

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.SGD([{"params": [x], "lr": 0.5}], lr=0.1)
    >>> isinstance(optimizer, hcq.optim.Optimizer), optimizer.param_groups[0]["lr"]
    (True, 0.5)
    """

    kept: tuple[str, ...] = ()  # tensors of each parameter, which begin as zeros
    counted: ClassVar[dict[str, float]] = {"step": 0.0}  # numbers of each parameter, and where they begin
    ignored: tuple[str, ...] = ("foreach", "fused", "capturable")  # of PyTorch, without meaning here

    def __init__(
        self, params: Iterable[Any], defaults: dict[str, Any], further: dict[str, Any] | None = None
    ):
        self._refuse_further(further or {})
        self.defaults = defaults
        self.param_groups: list[Group] = []
        self.params: list[Tensor] = []
        self.size = 0
        # name of a state -> the tensor of each parameter that has it
        self.slots: dict[str, dict[int, Tensor]] = {}
        self.counts = {name: Counts(start) for name, start in self.counts_of(defaults).items()}
        self.skipped: Tensor | None = None  # where it is True, a step changes nothing
        self._before: list[Callable[..., Any]] = []
        self._after: list[Callable[..., Any]] = []
        call = type(self).__name__
        if isinstance(params, (Tensor, Mapping)):
            raise UsageError(
                f"[{call}] params is one {'tensor' if isinstance(params, Tensor) else 'dict'}: give a list."
            )
        given = listed(call, "params", params)
        groups = given if given and all(isinstance(each, Mapping) for each in given) else [{"params": given}]
        for group in groups:
            self._add(dict(group))
        self._refuse_frozen()

    def _begin(self, given: dict[str, Any]) -> None:
        """Begin with the arguments of a subclass: `locals()`, where all but the parameters are options of groups."""
        own = ("self", "params", "further", *self.ignored)
        options = {name: value for name, value in given.items() if name not in own}
        Optimizer.__init__(self, given["params"], options, given["further"])

    def _refuse_further(self, further: dict[str, Any]) -> None:
        call = type(self).__name__
        if further.pop("differentiable", False):
            raise UsageError(
                f"[{call}] differentiable=True: steps write in place. Take gradients of a function instead."
            )
        unknown = set(further) - set(self.ignored)
        if unknown:
            raise UsageError(f"[{call}] it takes no {', '.join(sorted(unknown))}.")

    # -- for subclasses --

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        """The tensors that a parameter's steps keep, by PyTorch's names, as they begin: zeros, of those in `kept`."""
        return {name: zeros(parameter) for name in self.kept}

    def counts_of(self, options: Mapping[str, Any]) -> dict[str, float]:
        """The numbers that are kept for each parameter, as they begin: those in `counted`. "step" counts its steps."""
        return self.counted

    def check(self, call: str, key: str, value: Any) -> Any:
        """An option in its plain form. Raises UsageError for one that cannot be."""
        if key in ("lr", "weight_decay", "eps", "momentum"):
            return not_negative(call, key, value)
        if key == "betas":
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise UsageError(f"[{call}] betas {shown(value)}: give two numbers.")
            for place, beta in enumerate(value):
                if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0.0 <= beta < 1.0:
                    raise UsageError(
                        f"[{call}] betas[{place}] {shown(beta)}: give a number from 0 up to, not including, 1."
                    )
            return tuple(value)
        return value

    def prepare(self, parts: list[Part]) -> None:
        """Update the counts of a step: a subclass may have others."""
        places = [part.place for part in parts]
        if "step" in self.counts:
            self.counts["step"].update(places, lambda step: step + 1.0, self.write)

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        """The parameter's new value, of its shape and dtype, for a subclass to say; assigns its state on the way."""
        raise UsageError(
            f"[{type(self).__name__}] has no moved(): define it as moved(self, part, rate) -> Tensor."
        )

    def write(self, tensor: Tensor, value: Tensor) -> Tensor:
        """Assign, unless the step is skipped where it runs. Every write of a step goes through here."""
        if self.skipped is not None:
            value = self.skipped.to(tensor.device).where(tensor.detach(), value)
        return tensor.assign(value)

    def count(self, name: str, part: Part) -> Tensor:
        """A parameter's number, in its gradient's dtype."""
        return self.counts[name].of(part.place).cast(part.gradient.dtype)

    # -- for users --

    @property
    def lr(self) -> float:
        """The learning rate of the first group; assigning one sets those of all groups and compiles nothing."""
        rate = self.param_groups[0]["lr"]
        return float(rate.item()) if isinstance(rate, Tensor) else rate

    @lr.setter
    def lr(self, lr: float) -> None:
        for group in self.param_groups:
            group["lr"] = lr

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Further parameters with options of their own: {"params": tensors, option: value, ...}.

        >>> a, b = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
        >>> optimizer = hcq.optim.SGD([a], lr=0.1)
        >>> optimizer.add_param_group({"params": [b], "lr": 0.5})
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.5]
        """
        call = type(self).__name__
        if not isinstance(param_group, Mapping) or "params" not in param_group:
            raise UsageError(f"[{call}.add_param_group] {shown(param_group)}: give a dict that has 'params'.")
        self._add(dict(param_group))

    def _add(self, options: dict[str, Any]) -> None:
        call = type(self).__name__
        given = options.pop("params", None)
        several = [given] if isinstance(given, Tensor) and self.param_groups else given
        if isinstance(several, Tensor):
            raise UsageError(f"[{call}] params is one tensor: give a list of tensors, as model.parameters().")
        found = [
            each[1] if isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) else each
            for each in listed(call, "params", several)
        ]
        # a complex tensor is moved as two real ones
        found = [
            part for each in found for part in (each._real_ones() if isinstance(each, Tensor) else (each,))
        ]
        params = _checked(call, found, self.params)
        unknown = set(options) - set(self.defaults) - {"initial_lr", "name"}
        if unknown:
            raise UsageError(f"[{call}] a group has no option {', '.join(map(repr, sorted(unknown)))}.")
        group = Group(call, {**self.defaults, **options}, self.check)
        self.check_group(call, group)
        group["params"] = params
        for parameter in params:
            group.prepare(parameter)
            place = len(self.params)
            self.params.append(parameter)
            self.size = len(self.params)
            changed()  # a recorded step is of the parameters that there were
            for name, tensor in self.state_of(group, parameter).items():
                self.slots.setdefault(name, {})[place] = tensor
        for counts in self.counts.values():
            counts.add(params)
        self.param_groups.append(group)

    def check_group(self, call: str, group: Group) -> None:
        """Refuse options that do not go together, for a subclass to say."""

    def _refuse_frozen(self) -> None:
        if not any(parameter.requires_grad for parameter in self.params):
            raise UsageError(
                f"[{type(self).__name__}] none of the {len(self.params)} parameters requires a gradient. "
                "Make them with requires_grad=True, or call requires_grad_() on them."
            )

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            f"[pickle] {type(self).__name__}: its parameters are a module's, and a copy has its own. Take "
            "state_dict(), and load_state_dict into an optimizer of the other module's parameters."
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or make them zero.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> optimizer = hcq.optim.SGD([x], lr=0.5)
        >>> x.sum().backward()
        >>> optimizer.zero_grad()
        >>> x.grad is None
        True
        """
        for parameter in self.params:
            if set_to_none or parameter.grad is None:
                parameter.grad = None
            else:
                parameter.grad = parameter.grad.zeros_like()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move every parameter that has a gradient; the others, and frozen ones, stay as they are.

        closure  computes the loss and its gradients first
        Returns  what the closure gave
        Changes  the parameters and the optimizer's state, and does every other pending write in place, in one schedule
        Raises   UsageError when no parameter has a gradient

        >>> x, frozen = Tensor([1.0], requires_grad=True), Tensor([1.0], requires_grad=True)
        >>> optimizer = hcq.optim.SGD([x, frozen], lr=0.5)
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> x.tolist(), frozen.tolist()
        ([0.5], [1.0])
        """
        if closure is not None and not callable(closure):
            raise UsageError(
                f"[{type(self).__name__}.step] closure {shown(closure)}: give a function, or nothing."
            )
        for hook in list(self._before):
            hook(self, (closure,), {})
        loss = None if closure is None else closure()
        if names.wanted():
            names.learn(self, (), self._named)
        watching = watcher()
        if watching is not None:
            watching.reads_state(self, "size", self.size)
        parts = self._parts()
        if not parts:
            raise UsageError(
                f"[{type(self).__name__}.step] no parameter has a gradient. Call loss.backward() before step()."
            )
        self.prepare(parts)
        # nothing of a part may outlive it here: a live tensor of the old value would be kept in memory
        while parts:
            part = parts.pop(0)
            rate: Any = part.number("lr")
            self.write(part.parameter, self.moved(part, rate))
            del part
        realize([tensor for tensor in live.own() if tensor.node.op is Op.ASSIGN])
        for hook in list(self._after):
            hook(self, (closure,), {})
        return loss

    def _parts(self) -> list[Part]:
        found, place = [], 0
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad and parameter.grad is not None:
                    gradient = parameter.grad.detach()
                    if group.get("maximize") and group.option("maximize"):
                        gradient = -gradient
                    found.append(Part(place, parameter, parameter.detach(), gradient, group))
                place += 1
        return found

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call hook(optimizer, args, kwargs) before each step. Returns what removes it.

        >>> x, seen = Tensor([1.0], requires_grad=True), []
        >>> optimizer = hcq.optim.SGD([x], lr=0.5)
        >>> remove = optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: seen.append(x.tolist()))
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> seen
        [[1.0]]
        """
        self._before.append(hook)
        return lambda: self._before.remove(hook)

    def register_step_post_hook(self, hook: Callable[..., Any]) -> Callable[[], None]:
        """Call hook(optimizer, args, kwargs) after each step. Returns what removes it.

        >>> x, seen = Tensor([1.0], requires_grad=True), []
        >>> optimizer = hcq.optim.SGD([x], lr=0.5)
        >>> remove = optimizer.register_step_post_hook(lambda optimizer, args, kwargs: seen.append(x.tolist()))
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> seen
        [[0.5]]
        """
        self._after.append(hook)
        return lambda: self._after.remove(hook)

    def rates(self) -> list[Tensor]:
        """The learning rates in device memory, one for each group, device and dtype."""
        return [rate for group in self.param_groups for rate in group.rates()]

    def _named(self) -> list[tuple[str, Tensor]]:
        """Its tensors, called after the parameters they belong to, as in "conv1.weight (Adam exp_avg)"."""
        kind = type(self).__name__
        found = [(f"{kind} learning rate", rate) for rate in self.rates()]
        for what, tensors in self.slots.items():
            for place, tensor in tensors.items():
                parameter = names.name_of(self.params[place])
                found.append(
                    (f"{parameter} ({kind} {what})" if parameter else f"{kind} {what}.{place}", tensor)
                )
        for what, counts in self.counts.items():
            found += [(f"{kind} {what}", tensor) for tensor in counts.tensors.values()]
        return found

    def __repr__(self) -> str:
        groups = [f"Parameter Group {n}\n{group!r}\n" for n, group in enumerate(self.param_groups)]
        return f"{type(self).__name__} (\n{''.join(groups)})"


def zeros(parameter: Tensor, dtype: DType | None = None) -> Tensor:
    """Zeros of a parameter's shape, where and as it is split over devices."""
    return filled(parameter, 0.0, dtype)


def filled(parameter: Tensor, value: float, dtype: DType | None = None) -> Tensor:
    """One number in a parameter's shape, where and as it is split over devices."""
    made = constant(parameter.shape, value, dtype or parameter.dtype, parameter.device)
    split = getattr(parameter.node.arg, "split", None)
    return made if split is None else made.shard_(parameter.device, split.axis)


def _checked(name: str, found: list[Any], before: list[Tensor]) -> list[Tensor]:
    """The parameters of a group; refused are what is no parameter, none at all, and one given twice."""
    if not found:
        raise UsageError(
            f"[{name}] the list of parameters is empty. Has the model any, and was a generator used up?"
        )
    seen = {id(parameter): place for place, parameter in enumerate(before)}
    for place, parameter in enumerate(found, len(before)):
        if not isinstance(parameter, Tensor):
            raise UsageError(
                f"[{name}] parameter {place} is a {type(parameter).__name__}: give tensors, as model.parameters()."
            )
        if id(parameter) in seen:
            raise UsageError(
                f"[{name}] parameters {seen[id(parameter)]} and {place} are the same tensor: name each once."
            )
        seen[id(parameter)] = place
        _ = parameter.shape  # one of a lazy layer has none yet, and says so
        if not parameter.dtype.is_float:
            raise UsageError(
                f"[{name}] parameter {place} is {parameter.dtype.name}: only floats can be optimized."
            )
    for parameter in found:
        # it stays as it is, and gets memory of its own when it is to be trained
        if not parameter._requires_grad:
            continue
        if parameter.node.op is not Op.BUFFER:
            parameter.realize()
        if parameter.node.op is not Op.BUFFER:
            raise UsageError(
                f"[{name}] a parameter of shape {parameter.shape} is a view of another tensor: "
                "optimize the tensor itself."
            )
    return found
