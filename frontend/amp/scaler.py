"""GradScaler: losses are made large before backward(), and gradients small again, so that float16 holds them.

In       a loss; an optimizer
Out      `GradScaler`
Changes  gradients; the scale, in device memory; a step with infinite or missing numbers changes nothing
Next     frontend/optim/optimizer.py (`skipped`), casting.py
Source   Micikevicius et al. 2018; PyTorch's torch.amp.GradScaler, for names and defaults

Nothing is read back: whether a step is taken is decided where it runs. So a training step may be recorded whole.
"""

from __future__ import annotations

import weakref
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import changed, watcher
from hcq.frontend.nn.constant import constant
from hcq.frontend.optim.optimizer import Optimizer
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class GradScaler:
    """scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update().

    init_scale        what losses are multiplied by at first
    growth_factor     what the scale is multiplied by after growth_interval steps that were all taken
    backoff_factor    what it is multiplied by after one that was not
    enabled           False does nothing but call optimizer.step()

    >>> w = Tensor([1.0], requires_grad=True)
    >>> optimizer, scaler = nn.optim.SGD([w], lr=0.5), hcq.torch.amp.GradScaler(init_scale=8.0)
    >>> scaler.scale((w * 2).sum()).backward()
    >>> scaler.step(optimizer)
    >>> scaler.update()
    >>> w.tolist(), scaler.get_scale()
    ([0.0], 8.0)
    """

    def __init__(
        self,
        device: str | None = None,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if not init_scale > 0 or not growth_factor > 1 or not 0 < backoff_factor < 1 or growth_interval < 1:
            raise UsageError(
                f"[GradScaler] init_scale {init_scale}, growth_factor {growth_factor}, backoff_factor "
                f"{backoff_factor}, growth_interval {growth_interval}: give numbers above 0, above 1, between 0 and 1, "
                "and 1 or more."
            )
        self.growth_factor, self.backoff_factor, self.growth_interval = (
            growth_factor,
            backoff_factor,
            growth_interval,
        )
        self.enabled = bool(enabled)
        self._start, self._start_growth = float(init_scale), 0
        self._scale: Tensor | None = None
        self._growth: Tensor | None = None
        if device is not None and device.lower() != "cuda":
            self._make(device)
        self._found: weakref.WeakKeyDictionary[Optimizer, Tensor] = weakref.WeakKeyDictionary()
        self._stepped: list[Tensor] = []

    def _make(self, device: str) -> Tensor:
        if self._scale is None:
            self._scale = constant((), self._start, dtypes.float32, device)
            self._growth = constant((), self._start_growth, dtypes.int32, device)
        return self._scale

    def is_enabled(self) -> bool:
        """Whether it does anything."""
        return self.enabled

    def get_scale(self) -> float:
        """The scale, read back."""
        if not self.enabled:
            return 1.0
        return self._start if self._scale is None else float(self._scale.item())

    def get_growth_factor(self) -> float:
        """What the scale is multiplied by after growth_interval steps that were all taken."""
        return self.growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Another one."""
        self.growth_factor = new_factor
        changed()

    def get_backoff_factor(self) -> float:
        """What the scale is multiplied by after a step that was not taken."""
        return self.backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Another one."""
        self.backoff_factor = new_factor
        changed()

    def get_growth_interval(self) -> int:
        """How many steps are taken before the scale grows."""
        return self.growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Another one."""
        self.growth_interval = new_interval
        changed()

    def scale(self, outputs: Any) -> Any:
        """A loss, or a list or tuple of them, times the scale."""
        if not self.enabled:
            return outputs
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(each) for each in outputs)
        if not isinstance(outputs, Tensor):
            raise UsageError(f"[GradScaler.scale] {shown(outputs)}: give a loss.")
        return outputs * self._make(outputs.device).detach().to(outputs.device).cast(outputs.dtype)

    def unscale_(self, optimizer: Optimizer) -> None:
        """Divide the gradients of an optimizer by the scale, as before clipping them. step() does it otherwise."""
        if not self.enabled:
            return
        if optimizer in self._found:
            raise UsageError(
                "[GradScaler.unscale_] its gradients are unscaled already. Call update() after each step."
            )
        scale = self._make(optimizer.params[0].device)
        found: Tensor | None = None
        for parameter in optimizer.params:
            gradient = parameter.grad
            if gradient is None:
                continue
            plain = gradient.float() if gradient.dtype.itemsize < 4 else gradient
            plain = plain * (1.0 / scale.detach()).to(parameter.device).cast(plain.dtype)
            broken = plain.isfinite().all().logical_not().to(scale.device)
            found = broken if found is None else found | broken
            parameter.grad = plain.cast(gradient.dtype)
        if found is None:
            raise UsageError(
                "[GradScaler.unscale_] no parameter has a gradient. Call scale(loss).backward() before."
            )
        self._found[optimizer] = found

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """optimizer.step(), which changes nothing where a gradient is infinite or NaN."""
        if not self.enabled:
            return optimizer.step(*args, **kwargs)
        if args or kwargs:
            raise UsageError("[GradScaler.step] it takes no closure: gradients must be there, and scaled.")
        if optimizer not in self._found:
            self.unscale_(optimizer)
        found = self._found[optimizer].contiguous().realize()
        self._stepped.append(found)
        optimizer.skipped = found
        try:
            return optimizer.step()
        finally:
            optimizer.skipped = None

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """The next scale: smaller after a step that was not taken, larger after many that were; or a given one."""
        if not self.enabled:
            return
        if self._scale is None or self._growth is None:
            raise UsageError(
                "[GradScaler.update] nothing was scaled. Call scale(loss) and step(optimizer) before."
            )
        watching = watcher()
        if watching is not None:
            for option in ("growth_factor", "backoff_factor", "growth_interval"):
                watching.reads_state(self, option, getattr(self, option))
        if new_scale is not None:
            value = new_scale.detach() if isinstance(new_scale, Tensor) else float(new_scale)
            self._scale.assign(self._scale * 0.0 + value)
        else:
            if not self._stepped:
                raise UsageError("[GradScaler.update] no step was made since the last update.")
            found = self._stepped[0]
            for each in self._stepped[1:]:
                found = found | each.to(found.device)
            growth = found.where(0, self._growth + 1).cast(dtypes.int32)
            is_due = growth >= self.growth_interval
            scale = self._scale.detach()
            grown = is_due.where(scale * self.growth_factor, scale)
            self._scale.assign(found.where(scale * self.backoff_factor, grown))
            self._growth.assign(is_due.where(0, growth).cast(dtypes.int32))
        realize([self._scale, self._growth])
        self._stepped.clear()
        self._found.clear()

    def state_dict(self) -> dict[str, Any]:
        """Plain values, as PyTorch's."""
        if not self.enabled:
            return {}
        return {
            "scale": self.get_scale(), "growth_factor": self.growth_factor, "backoff_factor": self.backoff_factor,
            "growth_interval": self.growth_interval,
            "_growth_tracker": self._start_growth if self._growth is None else int(self._growth.item()),
        }  # fmt: skip

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what state_dict gave, here or in PyTorch."""
        if not self.enabled:
            return
        self._start = float(state_dict["scale"])
        self.growth_factor, self.backoff_factor = state_dict["growth_factor"], state_dict["backoff_factor"]
        self.growth_interval = state_dict["growth_interval"]
        self._start_growth = int(state_dict["_growth_tracker"])
        if self._scale is not None and self._growth is not None:  # a recorded step reads this very memory
            self._scale.assign(self._scale * 0.0 + self._start).realize()
            self._growth.assign(self._growth * 0 + self._start_growth).realize()
