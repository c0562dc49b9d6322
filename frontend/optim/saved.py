"""Saved: an optimizer's state out and in: in PyTorch's layout, or as flat names for a file of tensors.

In       an optimizer's slots, counts and groups
Out      `Saved`: state_dict, load_state_dict, flat_state
Changes  loading writes into the optimizer's tensors in place, and sets the options of its groups
Next     optimizer.py
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.nn.constant import constant
from hcq.frontend.optim.counts import Counts
from hcq.frontend.optim.groups import Group
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes


class Saved:
    """The part of an optimizer that has to do with its state."""

    param_groups: list[Group]
    params: list[Tensor]
    slots: dict[str, dict[int, Tensor]]
    counts: dict[str, Counts]

    def state_dict(self) -> dict[str, Any]:
        """{"state": number of a parameter -> name -> tensor, "param_groups": options with those numbers}, as PyTorch's.

        The tensors are the optimizer's own, not copies; counts are read when they are asked for.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> optimizer = hcq.optim.Adam([x], lr=0.5)
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> sorted(optimizer.state_dict()["state"][0]), optimizer.state_dict()["param_groups"][0]["params"]
        (['exp_avg', 'exp_avg_sq', 'step'], [0])
        """
        state: dict[int, dict[str, Any]] = {}
        for place in range(len(self.params)):
            found: dict[str, Any] = {name: counts.of(place) for name, counts in self.counts.items()}
            found.update({name: tensors[place] for name, tensors in self.slots.items() if place in tensors})
            if found:
                state[place] = found
        groups, first = [], 0
        for group in self.param_groups:
            count = len(group["params"])
            options = {key: value for key, value in group.items() if key != "params"}
            groups.append({**options, "params": list(range(first, first + count))})
            first += count
        return {"state": state, "param_groups": groups}

    def flat_state(self) -> dict[str, Tensor]:
        """The same as name -> tensor, for nn.save_file; load_state_dict takes it. Of options it has lr alone.

        >>> x = Tensor([1.0], requires_grad=True)
        >>> optimizer = hcq.optim.SGD([x], lr=0.5, momentum=0.9)
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> sorted(optimizer.flat_state())
        ['lr', 'momentum_buffer.0']
        """
        found = {}
        for number, group in enumerate(self.param_groups):
            rate = group["lr"]
            where = self.params[0].device
            found["lr" if number == 0 else f"lr_{number}"] = (
                rate if isinstance(rate, Tensor) else constant((), rate, dtypes.float64, where)
            )
        return {**found, **self._flat()}

    def _flat(self) -> dict[str, Tensor]:
        found = {
            f"{name}.{place}": tensor
            for name, tensors in self.slots.items()
            for place, tensor in tensors.items()
        }
        for name, counts in self.counts.items():
            found.update({f"{name}.{device}": tensor for device, tensor in counts.tensors.items()})
        return found

    @property
    def state(self) -> _States:
        """What is kept for each parameter: optimizer.state[parameter]["exp_avg"].

        >>> x = Tensor([1.0], requires_grad=True)
        >>> optimizer = hcq.optim.SGD([x], lr=0.5, momentum=0.9)
        >>> x.sum().backward()
        >>> optimizer.step()
        >>> optimizer.state[x]["momentum_buffer"].tolist()
        [1.0]
        """
        return _States(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Write what `state_dict`, here or PyTorch's, or `flat_state` gave into this optimizer's tensors and options.

        Raises  UsageError when names, shapes or the sizes of groups differ; nothing is written then

        >>> x = Tensor([1.0], requires_grad=True)
        >>> first, second = hcq.optim.Adam([x], lr=0.5), hcq.optim.Adam([x], lr=0.1)
        >>> x.sum().backward()
        >>> first.step()
        >>> second.load_state_dict(first.state_dict())
        >>> second.param_groups[0]["lr"]
        0.5
        """
        if not isinstance(state_dict, Mapping):
            raise self._error("give what state_dict() gave")
        if "param_groups" in state_dict:
            self._load(state_dict)
        else:
            self._load_flat(state_dict)

    def _error(self, what: str) -> UsageError:
        return UsageError(f"[{type(self).__name__}.load_state_dict] {what}.")

    def _load(self, state_dict: Mapping[str, Any]) -> None:
        groups, state = list(state_dict["param_groups"]), state_dict.get("state", {})
        sizes = [len(group["params"]) for group in self.param_groups]
        if [len(group["params"]) for group in groups] != sizes:
            raise self._error(
                f"the saved groups have {[len(group['params']) for group in groups]} parameters, these {sizes}. "
                "Make the optimizer with the same groups"
            )
        order = [number for group in groups for number in group["params"]]
        known = set(self.slots) | set(self.counts)
        values: dict[tuple[str, int], Tensor] = {}
        counts: dict[str, dict[int, float]] = {}
        for place, number in enumerate(order):
            own = state.get(number, {})
            unknown = sorted(name for name in own if name not in known and own[name] is not None)
            missing = sorted(
                name for name in self.slots if own and place in self.slots[name] and own.get(name) is None
            )
            if unknown or missing:
                raise self._error(
                    f"the names do not match; missing: {missing}, unknown: {unknown}. "
                    "Make the optimizer with the same options and parameters"
                )
            for name, value in own.items():
                if value is None:
                    continue
                if name in self.counts:
                    counts.setdefault(name, {})[place] = float(
                        value.item() if hasattr(value, "item") else value
                    )
                else:
                    values[name, place] = _tensor(value)
            if own and "started" in self.counts and "started" not in own:
                counts.setdefault("started", {})[place] = 1.0
        self._write({f"{name}.{place}": (self.slots[name][place], v) for (name, place), v in values.items()})
        for name, numbers in counts.items():
            self.counts[name].set(numbers)
        for own_group, group in zip(self.param_groups, groups):
            for key, value in group.items():
                if key != "params" and (key in own_group or key == "initial_lr"):
                    own_group[key] = tuple(value) if isinstance(value, list) else value

    def _load_flat(self, state: Mapping[str, Any]) -> None:
        own = self._flat()
        rates = {"lr" if n == 0 else f"lr_{n}": group for n, group in enumerate(self.param_groups)}
        missing = sorted({*own, *rates} - set(state))
        unknown = sorted(set(state) - {*own, *rates})
        if missing or unknown:
            raise self._error(
                f"the names do not match; missing: {missing}, unknown: {unknown}. "
                "Make the optimizer with the same options and parameters"
            )
        self._write({name: (tensor, _tensor(state[name])) for name, tensor in own.items()})
        for name, group in rates.items():
            group["lr"] = float(state[name].item())

    def _write(self, found: dict[str, tuple[Tensor, Tensor]]) -> None:
        for name, (tensor, value) in found.items():
            if tensor.shape != value.shape:
                raise self._error(
                    f"{name} has shape {tensor.shape}, the saved one {value.shape}. "
                    "Make the optimizer with the same parameters in the same order"
                )
        for tensor, value in found.values():
            tensor.assign(value.detach().to(tensor.device).cast(tensor.dtype))
        realize([tensor for tensor, _ in found.values()])


class _States:
    """The states of an optimizer by parameter."""

    def __init__(self, optimizer: Saved):
        self._optimizer = optimizer

    def __getitem__(self, parameter: Tensor) -> dict[str, Tensor]:
        for place, own in enumerate(self._optimizer.params):
            if own is parameter:
                state: dict[str, Tensor] = self._optimizer.state_dict()["state"].get(place, {})
                return state
        raise UsageError(f"[{type(self._optimizer).__name__}.state] it does not move this tensor.")

    def __len__(self) -> int:
        return len(self._optimizer.state_dict()["state"])


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor):
        return value
    return Tensor._made_of(value.detach() if hasattr(value, "detach") else value)
