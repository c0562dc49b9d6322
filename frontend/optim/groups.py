"""Groups: parameters of an optimizer that share options, and how an option reaches a kernel.

In       an optimizer's `param_groups`, whose entries the user reads and writes
Out      `Group`, a dict; `number`, an option as a kernel is to read it
Changes  writing an option that varies writes device memory, once
Next     optimizer.py (who asks), lr_scheduler.py (who writes)

An option that stays is a number in the kernels. One that was ever written to, as the learning rate is by schedules,
is in device memory from then on: another value compiles nothing, and a recorded step goes on correctly with it. The
learning rate is there from the start. A recording that used an option as a number is not replayed once it is another.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import isfinite
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core.base import changed, thread_modes, watcher
from hcq.frontend.nn.constant import constant
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

Of = Callable[[Any], float]
Check = Callable[[str, str, Any], Any]


class Group(dict[str, Any]):
    """One entry of `param_groups`: "params", and the options of these."""

    def __init__(self, call: str, options: dict[str, Any], check: Check):
        super().__init__()
        self._call, self._check = call, check
        self._asked: dict[tuple[str, str, str, DType], Of] = {}  # what kernels read, by key, label and where
        self._numbers: dict[tuple[str, str, str, DType], Tensor] = {}
        self._varies = {"lr"}
        for key, value in options.items():
            self._set(key, value)

    def _checked(self, key: str, value: Any) -> Any:
        """An option that is set later. A learning rate may be below 0 then: a schedule in a straight line passes 0 with
        its last step, after which there is none that would use it."""
        if (
            key == "lr"
            and not isinstance(value, bool)
            and isinstance(value, (int, float))
            and isfinite(value)
        ):
            return float(value)
        return self._check(self._call, key, value)

    def _set(self, key: str, value: Any, is_checked: bool = False) -> None:
        if key != "params" and not isinstance(value, Tensor) and not is_checked:
            value = self._check(self._call, key, value)
        super().__setitem__(key, value)
        if key not in ("params", "lr"):
            vars(self)[f"option {key}"] = value  # where a recording looks whether it is as it was

    def __setitem__(self, key: str, value: Any) -> None:
        before = self.get(key)
        if key == "params" or (
            type(before) is type(value) and not isinstance(value, Tensor) and before == value
        ):
            super().__setitem__(key, value)
            return
        watching = watcher() if thread_modes else None
        if watching is not None:
            watching.forbids(
                f"param_groups[...][{key!r}] = ...",
                "a replay would not write it again. Set it, or call scheduler.step(), outside of the recorded function",
            )
        if isinstance(before, Tensor) and not isinstance(value, Tensor):
            self._checked(key, value)
            before.assign(constant(before.shape, value, before.dtype, before.device)).realize()
            return
        self._set(key, value if isinstance(value, Tensor) else self._checked(key, value), is_checked=True)
        changed()
        if isinstance(value, (bool, str)) or value is None or isinstance(value, Tensor):
            return
        self._varies.add(key)
        for place, make in self._asked.items():
            if place[0] == key:
                number = constant((), make(value), place[3], place[2])
                if place in self._numbers:
                    self._numbers[place].assign(number).realize()
                else:
                    self._numbers[place] = number

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Set several options."""
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The option, set to `default` where there is none."""
        if key not in self:
            self._set(key, default)
        return self[key]

    def option(self, key: str) -> Any:
        """An option that decides what is computed, as nesterov does."""
        value = self[key]
        watching = watcher() if thread_modes else None
        if watching is not None:
            watching.reads_state(self, f"option {key}", value)
        return value

    def number(
        self, key: str, device: str, dtype: DType, of: Of | None = None, label: str = ""
    ) -> float | Tensor:
        """An option, or what `of` makes of it, called `label`: a number, or where it varies a lazy scalar."""
        value = self[key]
        if isinstance(value, Tensor):
            if of is not None:
                raise UsageError(f"[{self._call}] {key} is a tensor: only lr may be one. Give a number.")
            return value.detach().to(device).cast(dtype).reshape(())
        make = of or float
        if key not in self._varies:
            self._asked[key, label, device, dtype] = make
            return make(self.option(key))
        place = (key, label, device, dtype)
        if place not in self._numbers:
            self._asked[place] = make
            self._numbers[place] = constant((), make(value), dtype, device)
        return self._numbers[place]

    def prepare(self, parameter: Tensor) -> None:
        """Make the learning rate's scalar for a parameter now: a recording must find it."""
        if not isinstance(self["lr"], Tensor):
            self.number("lr", parameter.device, scalar_dtype(parameter))

    def rates(self) -> list[Tensor]:
        """The learning rate in device memory, one for each device and dtype."""
        return [tensor for (key, _, _, _), tensor in self._numbers.items() if key == "lr"]

    def __repr__(self) -> str:
        lines = [f"    {key}: {value}" for key, value in sorted(self.items()) if key != "params"]
        return "\n".join(lines)

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise UsageError(
            f"[{self._call}] param_groups are not copied. Make another optimizer, and load_state_dict into it."
        )


def scalar_dtype(parameter: Tensor) -> DType:
    """Precise enough for a parameter's options."""
    return dtypes.float64 if parameter.dtype is dtypes.float64 else dtypes.float32


def not_negative(call: str, key: str, value: Any) -> float:
    """Raise UsageError for what is no finite number from 0 on."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
        raise UsageError(f"[{call}] {key} {shown(value)}: give a number, 0 or more.")
    return float(value)
