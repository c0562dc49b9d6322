"""State: a module's parameters and saved buffers by name, out and in.

In       a module; a mapping of names to tensors, or to arrays of another library
Out      `State`: state_dict, load_state_dict and their hooks; `Loaded`, the names that did not match
Changes  `load_state_dict` writes into the tensors in place, or puts those that it is given in their places (assign)
Next     module.py, io/safetensors.py (the same in a file), hooks.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.holding import Holder, buffer_names, dotted, inside, is_buffer, is_parameter
from hcq.frontend.nn.hooks import Handle
from hcq.frontend.nn.parameter import Parameter
from hcq.frontend.run.realize import realize
from hcq.frontend.tensor import Tensor

EXTRA = "_extra_state"


class Loaded(NamedTuple):
    """The names that a module has and the state has not, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"Loaded(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


class _Place(NamedTuple):
    """Where a tensor of a module's state is held."""

    holder: Any
    name: str
    tensor: Tensor


class State(Holder):
    """The part of a module that has to do with its state."""

    def state_dict(
        self, *, destination: dict[str, Any] | None = None, prefix: str = "", keep_vars: bool = False
    ) -> dict[str, Any]:
        """Name -> tensor, parameters and saved buffers: the tensors themselves, not copies. nn.save_file keeps them.

        destination   a dict to write into
        prefix        what every name begins with
        keep_vars     may be given, and has no effect: the tensors are always the module's own

        A tensor that is held under two names is there under both, as PyTorch has it.

        >>> layer = nn.Linear(2, 1)
        >>> list(layer.state_dict(prefix="head.")), layer.state_dict()["bias"].shape
        (['head.weight', 'head.bias'], (1,))
        """
        found: dict[str, Any] = {} if destination is None else destination
        for name, module in self._places_of_modules(prefix):
            start = dotted(name)
            hooks = vars(module).get("_hooks")
            if hooks is not None:
                for hook in list(hooks.state_before.values()):
                    hook(module, start, keep_vars)
            for place, tensor in module._own_state():
                found[start + place] = tensor
            if type(module).get_extra_state is not State.get_extra_state:
                found[start + EXTRA] = module.get_extra_state()
        for name, module in self._places_of_modules(prefix):
            hooks = vars(module).get("_hooks")
            if hooks is not None:
                for hook in list(hooks.state_after.values()):
                    changed = hook(module, found, dotted(name), {})
                    found = found if changed is None else changed
        return found

    def _places_of_modules(self, prefix: str = "") -> Iterator[tuple[str, Any]]:
        module: Any = self
        yield from module.named_modules(prefix=prefix.removesuffix("."), remove_duplicate=False)

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        """This module's tensors alone: parameters, then saved buffers."""
        saved = buffer_names(self)
        tensors = list(inside(self, "", Tensor))
        yield from ((name, tensor) for name, tensor in tensors if is_parameter(self, name, tensor))
        yield from (
            (name, tensor)
            for name, tensor in tensors
            if is_buffer(self, name, tensor) and saved[name.split(".")[0]]
        )

    def get_extra_state(self) -> Any:
        """Further state of a subclass that has some; it is kept under "_extra_state".

        >>> class Counted(nn.Module):
        ...     def get_extra_state(self):
        ...         return {"calls": 7}
        >>> Counted().state_dict()["_extra_state"]
        {'calls': 7}
        """
        raise UsageError(f"[get_extra_state] {type(self).__name__} has none. Define it in the subclass.")

    def set_extra_state(self, state: Any) -> None:
        """Take what get_extra_state gave.

        >>> class Counted(nn.Module):
        ...     def get_extra_state(self):
        ...         return {"calls": 7}
        ...     def set_extra_state(self, state):
        ...         self.calls = state["calls"]
        >>> net = Counted()
        >>> _ = net.load_state_dict(net.state_dict())
        >>> net.calls
        7
        """
        raise UsageError(f"[set_extra_state] {type(self).__name__} takes none. Define it in the subclass.")

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Loaded:
        """Write tensors of the same names into this module's, in place, converted to their dtype and device.

        state    tensors, or arrays of another library
        strict   False loads the names that match, and no others
        assign   put the given tensors themselves in the places, with their dtype and device
        Returns  the names that are missing and unexpected
        Raises   UsageError that names every shape that differs and, when strict, every name that is missing or unknown;
                 nothing is written then

        >>> layer = nn.Linear(1, 1)
        >>> layer.load_state_dict({"weight": Tensor([[2.0]])}, strict=False).missing_keys
        ['bias']
        >>> layer.weight.tolist()
        [[2.0]]
        """
        if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
            raise UsageError(f"[load_state_dict] {shown(state)}: give a dict of names and tensors.")
        state = dict(state)
        loaded = Loaded([], [])
        problems: list[str] = []
        for name, module in self._places_of_modules():
            hooks = vars(module).get("_hooks")
            if hooks is not None:
                for hook in list(hooks.load_before.values()):
                    hook(module, state, dotted(name), {}, strict, *loaded, problems)
            module._take_shapes(state, dotted(name))
        own = self._own_places()
        extra = {
            dotted(name) + EXTRA: module
            for name, module in self._places_of_modules()
            if type(module).set_extra_state is not State.set_extra_state
        }
        loaded.missing_keys.extend(name for name in (*own, *extra) if name not in state)
        loaded.unexpected_keys.extend(name for name in state if name not in own and name not in extra)
        found = {name: _tensor(name, state[name]) for name in own if name in state}
        problems += [
            f"{name} has shape {own[name].tensor.shape}, the saved one {value.shape}"
            for name, value in found.items()
            if own[name].tensor.shape != value.shape
        ]
        self._refuse(loaded, problems, strict)
        if assign:
            for name, value in found.items():
                _put(own[name], value)
        else:
            for name, value in found.items():
                tensor = own[name].tensor
                tensor.assign(value.detach().to(tensor.device).cast(tensor.dtype))
            realize([own[name].tensor for name in found])
        for name, module in extra.items():
            if name in state:
                module.set_extra_state(state[name])
        for _, module in self._places_of_modules():
            hooks = vars(module).get("_hooks")
            if hooks is not None:
                for hook in list(hooks.load_after.values()):
                    hook(module, loaded)
        return loaded

    def _take_shapes(self, state: Mapping[str, Any], prefix: str) -> None:
        """Before a state is loaded: what has no shapes yet may take those of the state."""

    def _own_places(self) -> dict[str, _Place]:
        return {
            dotted(prefix) + name: _Place(module, name, tensor)
            for prefix, module in self._places_of_modules()
            for name, tensor in module._own_state()
        }

    def _refuse(self, loaded: Loaded, problems: list[str], strict: bool) -> None:
        parts, advice = [], []
        if strict and (loaded.missing_keys or loaded.unexpected_keys):
            if loaded.missing_keys:
                parts.append(f"missing: {', '.join(loaded.missing_keys)}")
            if loaded.unexpected_keys:
                parts.append(f"unknown: {', '.join(loaded.unexpected_keys)}")
            advice.append("Pass strict=False to load those that match.")
        if problems:
            parts += problems
            advice.append("Build the module with the sizes it was saved with.")
        if parts:
            what = "the names do not match; " if strict and not problems else ""
            raise UsageError(
                f"[load_state_dict] {type(self).__name__}: {what}{'; '.join(parts)}. {' '.join(advice)}"
            )

    # -- hooks --

    def _state_hooks(self) -> Any:
        module: Any = self
        return module._own_hooks()

    def register_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, prefix, keep_vars) before its state is listed.

        >>> layer, seen = nn.Linear(1, 1), []
        >>> _ = layer.register_state_dict_pre_hook(lambda module, prefix, keep_vars: seen.append(prefix))
        >>> _ = nn.Sequential(layer).state_dict()
        >>> seen
        ['0.']
        """
        return Handle(self._state_hooks().state_before, hook)

    def register_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, state, prefix, metadata) once the state is listed; it may change the state in place.

        >>> layer = nn.Linear(1, 1)
        >>> def without_bias(module, state, prefix, metadata):
        ...     del state[prefix + "bias"]
        >>> _ = layer.register_state_dict_post_hook(without_bias)
        >>> list(layer.state_dict())
        ['weight']
        """
        return Handle(self._state_hooks().state_after, hook)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, state, prefix, metadata, strict, missing, unexpected, errors) before a state is loaded.

        It may change the copy of the state that it is given, as to rename what an older version saved.

        >>> layer = nn.Linear(1, 1)
        >>> def renamed(module, state, prefix, *rest):
        ...     state[prefix + "weight"] = state.pop(prefix + "kernel")
        >>> _ = layer.register_load_state_dict_pre_hook(renamed)
        >>> _ = layer.load_state_dict({"kernel": Tensor([[2.0]]), "bias": Tensor([0.0])})
        >>> layer.weight.tolist()
        [[2.0]]
        """
        return Handle(self._state_hooks().load_before, hook)

    def register_load_state_dict_post_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call hook(module, loaded) once a state is loaded.

        >>> layer, seen = nn.Linear(1, 1), []
        >>> _ = layer.register_load_state_dict_post_hook(lambda module, loaded: seen.append(loaded.missing_keys))
        >>> _ = layer.load_state_dict({"weight": Tensor([[2.0]])}, strict=False)
        >>> seen
        [['bias']]
        """
        return Handle(self._state_hooks().load_after, hook)


def _tensor(name: str, value: Any) -> Tensor:
    """A value of a state, which may be of another library."""
    if isinstance(value, Tensor):
        return value
    if hasattr(value, "detach"):
        value = value.detach()
    if not hasattr(value, "__array__"):
        raise UsageError(f"[load_state_dict] {name}: {shown(value)} is neither a tensor nor an array.")
    return Tensor._made_of(value)


def _put(place: _Place, value: Tensor) -> None:
    """The value itself instead of what is there; what was a parameter is one."""
    if isinstance(place.tensor, Parameter) or place.tensor._requires_grad:
        flag = place.tensor._requires_grad
        value = value if isinstance(value, Parameter) else Parameter(value.detach(), False)
        value.requires_grad_(flag)
    holder, *steps = place.name.split(".")
    owner: Any = place.holder
    if not steps:
        owner._put(holder, value)
        return
    inner = owner._held()[holder]
    for step in steps[:-1]:
        inner = inner[int(step) if isinstance(inner, (list, tuple)) else step]
    inner[int(steps[-1]) if isinstance(inner, (list, tuple)) else steps[-1]] = value
