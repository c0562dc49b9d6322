"""SGD: steps along the gradient, or along a running mean of it.

In       parameters and their gradients
Out      `SGD`, `LARS`, `ASGD`
Changes  the parameters, and their momentum or their mean
Next     adam.py
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from hcq.errors import UsageError
from hcq.frontend.nn.constant import constant
from hcq.frontend.optim.groups import Group, not_negative
from hcq.frontend.optim.optimizer import Optimizer, Part, zeros
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class SGD(Optimizer):
    """p -= lr * g, with momentum: g becomes buf = momentum * buf + (1 - dampening) * g, buf = g at the first step.

    weight_decay   adds weight_decay * p to g
    nesterov       steps along g + momentum * buf
    maximize       goes up
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
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def check_group(self, call: str, group: Group) -> None:
        if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise UsageError(f"[{call}] nesterov needs a momentum above 0 and dampening 0.")

    def counts_of(self, options: Mapping[str, Any]) -> dict[str, float]:
        # 1 for parameters that have moved before: their first gradient is not dampened
        return {"started": 0.0} if options["dampening"] else {}

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        return {"momentum_buffer": zeros(parameter)} if group["momentum"] else {}

    def prepare(self, parts: list[Part]) -> None:
        started = self.counts.get("started")
        if started is not None:
            self._before_step = {part.place: started.of(part.place) for part in parts}
            started.update([part.place for part in parts], lambda each: each.ones_like(), self.write)

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, group = part.gradient, part.group
        if group.option("weight_decay"):
            g = g + part.value * part.number("weight_decay")
        buffer = self.slots.get("momentum_buffer", {}).get(part.place)
        if buffer is None:
            if group["momentum"]:
                raise UsageError(
                    "[SGD.step] momentum was 0 when the optimizer was made. Make one with momentum."
                )
            return part.value - g * rate
        momentum, damped = part.number("momentum"), g
        if "started" in self.counts:
            started = self._before_step.pop(part.place).cast(g.dtype)
            damped = g * (1.0 - started * part.number("dampening"))
        self.write(buffer, buffer * momentum + damped)
        g = g + buffer * momentum if group.option("nesterov") else buffer
        return part.value - g * rate


class LARS(Optimizer):
    """SGD with momentum, whose rate for each parameter is scaled by trust_coefficient * |p| / |g + weight_decay * p|.

    So parameters of every size move by like shares of themselves. Where p or g is zero, it is not scaled.
    Source  You et al. 2017

    >>> x = Tensor([3.0, 4.0], requires_grad=True)
    >>> optimizer = hcq.optim.LARS([x], lr=1.0, trust_coefficient=0.1, weight_decay=0.0)
    >>> (x * 1000.0).sum().backward()
    >>> optimizer.step()
    >>> print((x.detach() - Tensor([3.0, 4.0])).norm())
    tensor(0.5000)
    """

    kept = ("momentum_buffer",)
    counted: ClassVar[dict[str, float]] = {}

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 1e-3,
        eps: float = 1e-8,
        *,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, decay = part.gradient, part.number("weight_decay")
        size, steep = part.value.norm(), g.norm()
        trust = size * part.number("trust_coefficient") / (steep + size * decay + part.number("eps"))
        trust = ((size > 0) & (steep > 0)).where(trust, 1.0)
        buffer = self.slots["momentum_buffer"][part.place]
        self.write(buffer, buffer * part.number("momentum") + (g + part.value * decay) * trust)
        return part.value - buffer * rate


class ASGD(Optimizer):
    """SGD with steps that grow shorter, and the mean of the parameters from step t0 on, which is state["ax"].

    lambd   how fast parameters decay, and steps grow shorter: eta = lr / (1 + lambd * lr * step) ** alpha
    Source  Polyak and Juditsky 1992

    >>> x = Tensor([1.0], requires_grad=True)
    >>> optimizer = hcq.optim.ASGD([x], lr=0.25)
    >>> (x * x).sum().backward()
    >>> optimizer.step()
    >>> print(x.detach(), optimizer.state[x]["ax"].shape)
    tensor([0.5000]) (1,)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: Any = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: bool | None = None,
        maximize: bool = False,
        **further: Any,
    ):
        self._begin(locals())

    def check(self, call: str, key: str, value: Any) -> Any:
        return not_negative(call, key, value) if key in ("lambd", "t0") else super().check(call, key, value)

    def state_of(self, group: Group, parameter: Tensor) -> dict[str, Tensor]:
        # single numbers are float32 for every parameter, as PyTorch keeps them
        eta = constant((), float(group["lr"]), dtypes.float32, parameter.device)
        mu = constant((), 1.0, dtypes.float32, parameter.device)
        return {"eta": eta, "mu": mu, "ax": zeros(parameter)}

    def moved(self, part: Part, rate: Tensor) -> Tensor:
        g, place, kind = part.gradient, part.place, part.gradient.dtype
        if part.group.option("weight_decay"):
            g = g + part.value * part.number("weight_decay")
        eta, mu, mean = (self.slots[name][place] for name in ("eta", "mu", "ax"))
        now, share = eta.detach().cast(kind), mu.detach().cast(kind)  # of the step before, kept for this one
        value = part.value * (1.0 - now * part.number("lambd")) - g * now
        self.write(mean, (share == 1.0).where(value, mean + (value - mean) * share))
        step = self.count("step", part)
        shorter = (rate * part.number("lambd") * step + 1.0) ** part.number("alpha")
        self.write(eta, (rate / shorter).cast(dtypes.float32))
        self.write(mu, (1.0 / (step - part.number("t0")).maximum(1.0)).cast(dtypes.float32))
        return value
