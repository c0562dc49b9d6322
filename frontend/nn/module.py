"""Modules: objects that hold parameters, buffers and other modules, and are called on tensors.

In       attributes: parameters, modules, lists, tuples and dicts of them; buffers by `register_buffer`
Out      `Module`: names of all that is inside, training mode, hooks, moves to devices and dtypes
Changes  `train`, `eval`, `requires_grad_` set flags; `to` and similar methods give the tensors inside other memory
Next     state.py (its state by name), containers.py, hooks.py, layers/ (the modules there are), optim/

Nothing is registered by hand: what a module holds is found by looking at its attributes, in the order they were set. A
tensor attribute is a parameter if it is a `Parameter` or requires a gradient, and a buffer, which is saved but not
trained, if `register_buffer` or the class (`buffers_of_class`) says so; any other tensor is the module's own matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core import names
from hcq.frontend.core.base import changed, thread_modes, watcher
from hcq.frontend.nn.holding import dotted, inside, is_buffer, is_parameter, trained_names
from hcq.frontend.nn.hooks import Handle, Hooks, call
from hcq.frontend.nn.parameter import Buffer, Parameter
from hcq.frontend.nn.state import State
from hcq.frontend.nn.uninitialized import Uninitialized
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes

if TYPE_CHECKING:
    from typing_extensions import Self


class _Training:
    """The attribute `training`. A recording is of one mode, so every change is reported, however it is made."""

    def __get__(self, module: Module | None, owner: type[Module]) -> bool:
        if module is None:
            return True
        mode: bool = vars(module).get("training", True)
        watching = watcher()
        if watching is not None:
            watching.reads_state(module, "training", mode)
        return mode

    def __set__(self, module: Module, mode: bool) -> None:
        vars(module)["training"] = mode
        changed()


class Module(State):
    """A part of a model. Subclasses set attributes in `__init__` and compute in `forward`.

    >>> class Scale(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = nn.Parameter(Tensor([2.0]))
    ...
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> model = nn.Sequential(Scale(), Scale())
    >>> model(Tensor([1.0])).tolist(), [name for name, _ in model.named_parameters()]
    ([4.0], ['0.factor', '1.factor'])
    """

    training = _Training()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes. Raises UsageError where a subclass defines none."""
        raise UsageError(
            f"[{type(self).__name__}] has no forward(): define what calling the module computes, as forward(self, x)."
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if names.wanted():
            names.learn(self, self.modules(), lambda: (*self.named_parameters(), *self.named_buffers()))
        hooks = vars(self).get("_hooks")
        if thread_modes and (watching := watcher()) is not None:
            watching.reads_state(self, "_hooked", vars(self).get("_hooked", True))
        return self.forward(*args, **kwargs) if hooks is None else call(self, hooks, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in vars(self):  # programs call it by its name, for names that are computed
            return vars(self)[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value._requires_grad and type(value) is Tensor:
            trained_names(self).add(name)  # and goes on being a parameter when it is frozen
        if isinstance(value, Buffer):
            vars(self).setdefault("_buffer_names", {})[name] = value.persistent
        object.__setattr__(self, name, value)
        changed()  # a recording is of what layers hold

    # -- what it is given --

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """`self.name = param`, for names that are computed. None keeps the place of one that is not there.

        >>> net = nn.Module()
        >>> net.register_parameter("scale", nn.Parameter(Tensor.ones(2)))
        >>> net.register_parameter("bias", None)
        >>> list(net.state_dict()), net.bias
        (['scale'], None)
        """
        self._refuse_name("register_parameter", name)
        if param is not None and not isinstance(param, Parameter):
            raise UsageError(
                f"[register_parameter] {name!r}: {shown(param)} is no Parameter. Make it one: nn.Parameter(tensor)."
            )
        setattr(self, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """A tensor that goes with the module from device to device and is not trained.

        persistent   False keeps it out of state_dict

        >>> m = nn.Module()
        >>> m.register_buffer("mask", Tensor([1.0, 0.0]))
        >>> list(m.state_dict())
        ['mask']
        """
        self._refuse_name("register_buffer", name)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise UsageError(f"[register_buffer] {name!r}: {shown(tensor)} is no tensor. Make it one first.")
        vars(self).setdefault("_buffer_names", {})[name] = bool(persistent)
        setattr(self, name, tensor)

    def register_module(self, name: str, module: Module | None) -> None:
        """`self.name = module`, for names that are computed.

        >>> net = nn.Module()
        >>> net.add_module("first", nn.Linear(2, 1))
        >>> list(net.state_dict())
        ['first.weight', 'first.bias']
        """
        self._refuse_name("register_module", name)
        if module is not None and not isinstance(module, Module):
            raise UsageError(f"[register_module] {name!r}: {shown(module)} is no module.")
        setattr(self, name, module)

    add_module = register_module

    def _refuse_name(self, method: str, name: str) -> None:
        if not isinstance(name, str) or not name or "." in name:
            raise UsageError(f"[{method}] {shown(name)}: give a name without a dot.")
        if hasattr(type(self), name) and name not in self.buffers_of_class:
            raise UsageError(f"[{method}] {type(self).__name__} has a method {name!r}. Use another name.")

    # -- what it holds --

    def named_modules(
        self, memo: set[int] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module under `prefix`, then every module inside, each once, with its dotted name.

        memo               ids of modules that are not listed; those that are get in
        remove_duplicate   False lists a module as often as it is held

        >>> [name for name, _ in nn.Sequential(nn.Sequential(nn.ReLU())).named_modules()]
        ['', '0', '0.0']
        """
        seen = set() if memo is None else memo
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            name, module = stack.pop()
            if remove_duplicate and id(module) in seen:
                continue
            seen.add(id(module))
            yield name, module
            stack.extend(reversed(list(inside(module, dotted(name), Module))))

    def modules(self) -> Iterator[Module]:
        """This module and every module inside, each once.

        >>> layer = nn.Linear(2, 2)
        >>> len(list(nn.Sequential(layer, layer).modules()))
        2
        """
        for _, module in self.named_modules():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, each once, with their names.

        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 2), nn.ReLU()).named_children()]
        ['0', '1']
        """
        seen: set[int] = set()
        for name, module in inside(self, "", Module):
            if id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self) -> Iterator[Module]:
        """The modules directly inside.

        >>> [type(child).__name__ for child in nn.Sequential(nn.Linear(2, 2), nn.ReLU()).children()]
        ['Linear', 'ReLU']
        """
        for _, module in self.named_children():
            yield module

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every parameter with its dotted name, each tensor once, also when it is frozen.

        recurse            False for those of this module alone
        remove_duplicate   False lists a tensor as often as it is held

        >>> [name for name, _ in nn.Sequential(nn.Linear(2, 2), nn.ReLU()).named_parameters()]
        ['0.weight', '0.bias']
        """
        yield from self._named_tensors(is_parameter, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every parameter, each once.

        >>> sum(parameter.numel() for parameter in nn.Linear(10, 3).parameters())
        33
        """
        for _, tensor in self.named_parameters(recurse=recurse):
            yield tensor

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Every buffer, saved or not, with its dotted name.

        >>> [name for name, _ in nn.Sequential(nn.BatchNorm1d(3)).named_buffers()]
        ['0.running_mean', '0.running_var', '0.num_batches_tracked']
        """
        yield from self._named_tensors(is_buffer, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """Every buffer, each once.

        >>> [buffer.shape for buffer in nn.BatchNorm1d(3).buffers()]
        [(3,), (3,), ()]
        """
        for _, tensor in self.named_buffers(recurse=recurse):
            yield tensor

    def _named_tensors(
        self, wanted: Callable[[Module, str, Tensor], bool], prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Tensor]]:
        seen: set[int] = set()
        holders = (
            self.named_modules(prefix=prefix, remove_duplicate=once) if recurse else iter([(prefix, self)])
        )
        for place, module in holders:
            start = dotted(place)
            for name, tensor in inside(module, start, Tensor):
                if (once and id(tensor) in seen) or not wanted(module, name[len(start) :], tensor):
                    continue
                seen.add(id(tensor))
                yield name, tensor

    @property
    def _modules(self) -> Mapping[str, Module]:
        return MappingProxyType(dict(inside(self, "", Module)))

    @property
    def _parameters(self) -> Mapping[str, Tensor]:
        return MappingProxyType(dict(self.named_parameters(recurse=False, remove_duplicate=False)))

    @property
    def _buffers(self) -> Mapping[str, Tensor]:
        return MappingProxyType(dict(self.named_buffers(recurse=False, remove_duplicate=False)))

    def get_submodule(self, target: str) -> Module:
        """The module of a dotted name; itself for "". Raises UsageError when there is none.

        >>> net = nn.Sequential(nn.Sequential(nn.Linear(2, 3)))
        >>> net.get_submodule("0.0").out_features
        3
        """
        found: Module = self
        for name in filter(None, target.split(".")):
            held = dict(inside(found, "", Module))
            if name not in held:
                raise UsageError(
                    f"[get_submodule] {target!r}: {type(found).__name__} has no module {name!r}; it has {list(held)}."
                )
            found = held[name]
        return found

    def set_submodule(self, target: str, module: Module) -> None:
        """Put a module where another one is. Raises UsageError when there is none of that dotted name.

        >>> net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> net.set_submodule("1", nn.Tanh())
        >>> type(net[1]).__name__
        'Tanh'
        """
        self.get_submodule(target)
        holder, _, name = target.rpartition(".")
        setattr(self.get_submodule(holder), name, module)

    def get_parameter(self, target: str) -> Tensor:
        """The parameter of a dotted name. Raises UsageError when there is none.

        >>> nn.Sequential(nn.Linear(2, 3)).get_parameter("0.weight").shape
        (3, 2)
        """
        return self._tensor_of("get_parameter", target, is_parameter)

    def get_buffer(self, target: str) -> Tensor:
        """The buffer of a dotted name. Raises UsageError when there is none.

        >>> nn.Sequential(nn.BatchNorm1d(3)).get_buffer("0.running_mean").tolist()
        [0.0, 0.0, 0.0]
        """
        return self._tensor_of("get_buffer", target, is_buffer)

    def _tensor_of(self, method: str, target: str, wanted: Callable[[Module, str, Tensor], bool]) -> Tensor:
        holder, _, name = target.rpartition(".")
        module = self.get_submodule(holder)
        tensor = dict(inside(module, "", Tensor)).get(name)
        if tensor is None or not wanted(module, name, tensor):
            raise UsageError(f"[{method}] {target!r}: {type(module).__name__} has none of that name.")
        return tensor

    # -- hooks --

    def _own_hooks(self) -> Hooks:
        hooks: Hooks = vars(self).setdefault("_hooks", Hooks())
        return hooks

    def register_forward_pre_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call hook(module, args) before forward; what it returns, if not None, takes the place of args.

        with_kwargs   hook(module, args, kwargs), which returns (args, kwargs) or None

        >>> layer = nn.Identity()
        >>> handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        >>> layer(Tensor([1.0])).tolist()
        [2.0]
        >>> handle.remove()
        >>> layer(Tensor([1.0])).tolist()
        [1.0]
        """
        return Handle(self._own_hooks().before, (hook, with_kwargs), prepend, self)

    def register_forward_hook(
        self, hook: Callable[..., Any], *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call hook(module, args, output) after forward; what it returns, if not None, is the output.

        >>> layer, seen = nn.ReLU(), []
        >>> with layer.register_forward_hook(lambda module, args, output: seen.append(output.shape)):
        ...     y = layer(Tensor([1.0, -1.0]))
        >>> seen
        [(2,)]
        """
        return Handle(self._own_hooks().after, (hook, with_kwargs), prepend, self)

    def register_full_backward_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call hook(module, grad_output) when backward() comes to the module; its result, if any, flows on instead.

        >>> layer = nn.Linear(2, 1)
        >>> _ = layer.register_full_backward_pre_hook(lambda module, out: (out[0] * 10,))
        >>> layer(Tensor([[1.0, 2.0]])).sum().backward()
        >>> layer.bias.grad.tolist()
        [10.0]
        """
        return Handle(self._own_hooks().backward_before, hook, prepend, self)

    def register_full_backward_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Handle:
        """Call hook(module, grad_input, grad_output) when backward() has passed the module.

        What it returns, if not None, is grad_input from then on. The gradients are lazy: they are computed when read.

        >>> layer, seen = nn.Linear(2, 1), []
        >>> _ = layer.register_full_backward_hook(lambda module, into, out: seen.append(out[0].tolist()))
        >>> layer(Tensor([[1.0, 2.0]], requires_grad=True)).sum().backward()
        >>> seen
        [[[1.0]]]
        """
        return Handle(self._own_hooks().backward, hook, prepend, self)

    # -- flags and places --

    def train(self, mode: bool = True) -> Self:
        """Training mode, for this module and all inside: dropout drops, batch norm uses the batch's statistics.

        >>> net = nn.Sequential(nn.Dropout())
        >>> net.eval()[0].training, net.train()[0].training
        (False, True)
        """
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Evaluation mode, the opposite of `train`. Returns itself.

        >>> nn.Dropout(1.0).eval()(Tensor([1.0, 2.0])).tolist()
        [1.0, 2.0]
        """
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Make every parameter require a gradient, or freeze it. Returns itself.

        >>> layer = nn.Linear(2, 1).requires_grad_(False)
        >>> [parameter.requires_grad for parameter in layer.parameters()]
        [False, False]
        """
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget every parameter's gradient, or make it zero.

        >>> layer = nn.Linear(2, 1)
        >>> layer(Tensor([[1.0, 2.0]])).sum().backward()
        >>> layer.zero_grad()
        >>> layer.weight.grad is None
        True
        """
        for parameter in self.parameters():
            gradient = None if set_to_none else parameter.grad
            parameter.grad = None if gradient is None else gradient.zeros_like()

    def apply(self, fn: Callable[[Module], object]) -> Self:
        """Call fn on every module inside, children first, and on this one. Returns itself.

        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> seen = []
        >>> _ = net.apply(lambda module: seen.append(type(module).__name__))
        >>> seen
        ['Linear', 'ReLU', 'Sequential']
        """
        for child in self.children():
            child.apply(fn)
        fn(self)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, or floats among them to a dtype, or both. Returns itself.

        to(device), to(dtype), to(device, dtype), to(tensor): as of a tensor, but in place. Make optimizers afterwards.

        >>> layer = nn.Linear(2, 1).to("CPU", dtypes.float64)
        >>> layer.weight.device, layer.weight.dtype
        ('CPU', dtypes.float64)
        """
        device, dtype = _target(args, kwargs)
        for tensor in (*self.parameters(), *self.buffers()):
            move(tensor, device, dtype if tensor.dtype.is_float else None)
        return self

    def cpu(self) -> Self:
        """to("CPU").

        >>> nn.Linear(2, 1).cpu().weight.device
        'CPU'
        """
        return self.to("CPU")

    def cuda(self, device: str | int | None = None) -> Self:
        """To a GPU: to("cuda"), or one of several by its number. Raises UsageError where there is none.

        >>> net = nn.Linear(2, 1)
        >>> _ = net.cuda() if hcq.torch.cuda.is_available() else net.cpu()
        """
        return self.to("cuda" if device is None else device)

    def type(self, dst_type: DType) -> Self:
        """to(dst_type).

        >>> nn.Linear(2, 1).type(dtypes.float16).weight.dtype
        dtypes.float16
        """
        return self.to(dst_type)

    def float(self) -> Self:
        """to(dtypes.float32).

        >>> nn.Linear(2, 1).half().float().weight.dtype
        dtypes.float32
        """
        return self.to(dtypes.float32)

    def double(self) -> Self:
        """to(dtypes.float64).

        >>> nn.Linear(2, 1).double().weight.dtype
        dtypes.float64
        """
        return self.to(dtypes.float64)

    def half(self) -> Self:
        """to(dtypes.float16).

        >>> layer = nn.BatchNorm1d(2).half()
        >>> layer.weight.dtype, layer.num_batches_tracked.dtype
        (dtypes.float16, dtypes.int64)
        """
        return self.to(dtypes.float16)

    def bfloat16(self) -> Self:
        """to(dtypes.bfloat16).

        >>> nn.Linear(2, 1).bfloat16().weight.dtype
        dtypes.bfloat16
        """
        return self.to(dtypes.bfloat16)

    def shard(self, devices: Any, axis: int | None = None) -> Self:
        """Put every parameter and buffer on several devices: a copy on each, or split along an axis. Returns itself.

        Batches that are split along axis 0 of the same devices are then trained on by all of them at once. Make the
        optimizer afterwards: its state is placed as the parameters are.

        >>> layer = nn.Linear(2, 4).shard(("CPU:0", "CPU:1"))
        >>> layer(Tensor.ones(1, 2).shard(("CPU:0", "CPU:1"))).shape
        (1, 4)
        """
        for tensor in (*self.parameters(), *self.buffers()):
            tensor.shard_(devices, axis)
        return self

    # -- how it prints --

    def extra_repr(self) -> str:
        """What a layer says about itself between its parentheses."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        lines = [f"({name}): {module!r}" for name, module in inside(self, "", Module)]
        return printed(self._get_name(), self.extra_repr(), lines)


def printed(name: str, extra: str, lines: list[str]) -> str:
    """A module as text: its name, what it says about itself, a line for each part."""
    parts = (extra.split("\n") if extra else []) if lines or "\n" in extra else []
    parts += lines
    if not parts:
        return f"{name}({extra})"
    if len(parts) == 1 and not lines:
        return f"{name}({parts[0]})"
    return "\n".join([f"{name}(", *("  " + part.replace("\n", "\n  ") for part in parts), ")"])


def move(tensor: Tensor, device: str | int | None, dtype: DType | None) -> None:
    """Give this very tensor, and its gradient, memory on another device or of another dtype."""
    where = tensor.device if device is None else devices.canonical(device)
    if isinstance(tensor, Uninitialized):
        return tensor.place(where, dtype)
    kind = dtype or tensor.dtype
    if where == tensor.device and kind is tensor.dtype:
        return
    moved = tensor.detach().to(where).cast(kind).clone().realize()
    if tensor._grad is not None:
        move(tensor._grad, where, kind)
    tensor._before_change()
    tensor.node, tensor.device = moved.node, moved.device
    tensor.node.arg.tracked = tensor._requires_grad
    changed()


def _target(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, DType | None]:
    """What the arguments of `to` name."""
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (str, int)) and not isinstance(arg, bool):
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise UsageError(f"[Module.to] {shown(arg)}: give a device, a dtype, or a tensor.")
    unknown = set(kwargs) - {"device", "dtype", "non_blocking", "memory_format", "tensor"}
    if unknown:
        raise UsageError(f"[Module.to] {sorted(unknown)}: it takes device and dtype.")
    if dtype is not None and not (isinstance(dtype, DType) and dtype.is_float):
        raise UsageError(f"[Module.to] dtype {shown(dtype)}: only floats are converted. Use a float dtype.")
    if device is None and dtype is None and not kwargs and not args:
        raise UsageError("[Module.to] nothing is named. Give a device, a dtype, or a tensor.")
    return device, dtype
