"""jit: run a function of tensors, learn what it submits, and from then on submit that.

In       a function of tensors (and of plain values, which are part of what is recorded)
Out      the same function; as soon as two calls did the same, one doorbell runs all its kernels
Changes  what the function changes: tensors that it assigns to, gradients, tensors that it keeps
Next     watched_call.py (what a call does), replay.py (how it is done again), closure.py (variables around a function)

A replay does what a call does, or the call is made, or it is refused. The first calls run as they are and are captured.
Two in a row that did the same on the same memory make a recording. It is replayed while what it was made of is as it
was; else the function is called again, and becomes another recording. What a recording cannot mean is refused: reading
a value on the host, arrays of the host, doing something else in every call.
"""

from __future__ import annotations

import copy
import functools
import inspect
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable
from numbers import Number
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import thread_modes, transforms, watcher
from hcq.frontend.core.data import MAX_DEPTH
from hcq.frontend.core.errors import NotReal
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.threads import lock
from hcq.frontend.jit.closure import Closure
from hcq.frontend.jit.contents import Contents
from hcq.frontend.jit.cut import has_cut, of_cuts, taken_apart
from hcq.frontend.jit.record import CallRecord
from hcq.frontend.jit.replay import Recording
from hcq.frontend.jit.watched_call import capture, settle
from hcq.frontend.run.realize import realize, storage_of
from hcq.frontend.symbolic.variable import Bound, Leaf
from hcq.frontend.tensor import Tensor
from hcq.ir.op import Op

if TYPE_CHECKING:
    from hcq.frontend.jit.donated import Donate, Donation

P = ParamSpec("P")
R = TypeVar("R")

MAX_RECORDINGS = 32  # of one function: each set of shapes, dtypes and plain values needs its own
MAX_VERSIONS = 8  # of one of these: for modules in training and not, with gradients there and not, ...
MAX_UNLIKE = 8  # calls in a row that are like none before: then it is no function to record


class Version:
    """A call that was captured, and, once the next call did the same, its recording."""

    def __init__(self, seen: CallRecord, around: list[Any], inside: Contents):
        self.seen = seen
        self.around = around
        self.inside = inside
        self.recording: Recording | None = None


class Versions:
    """What is known of a function for one set of shapes, dtypes and plain values."""

    def __init__(self) -> None:
        self.known: list[Version] = []  # the newest first
        self.calls = 0
        self.unlike = 0  # captured calls in a row that were like none before
        self.why = ""


class Jit(Generic[P, R]):
    """A function that is recorded. `reset()` forgets the recordings; `kernels` says how many a replay runs.

    by_result  submit a recording in parts, each of which ends where another of the results is complete: waiting for the
               memory of one does not wait for what comes after it
    donate     positions and names of arguments whose memory it may use, and which nobody uses after the call
    """

    def __init__(
        self, function: Callable[P, R], by_result: bool = False, donate: Donate = (), is_bound: bool = False
    ):
        functools.update_wrapper(self, function)
        self.function = function
        self.by_result = by_result
        self.name = getattr(function, "__qualname__", repr(function))
        self.donate = donate
        self._donation: Donation | None = None
        if donate != ():
            from hcq.frontend.jit.donated import Donation  # what most programs have no use for

            self._donation = Donation(function, self.name, donate, is_bound)
        self._seen: dict[Any, Versions] = {}
        # one call at a time: another thread waits for a recording that is made
        self._lock = threading.RLock()
        self._around: Closure | None = None
        self._last: Recording | None = None
        self._given: list[int] = []  # the tensors of this call that are donated
        self._of_cuts: Jit[..., Any] | None = None  # this function, of tensors that variables cut
        _all.add(self)

    def reset(self) -> None:
        """Forget every recording; the next two calls run and are recorded again.

        >>> f = jit(lambda x: x * 2)
        >>> for _ in range(3):
        ...     _ = f(Tensor([1.0, 2.0])).tolist()
        >>> f.reset()
        >>> f.kernels
        0
        """
        with self._lock:
            self._seen.clear()
            self._around = self._last = self._of_cuts = None

    @property
    def kernels(self) -> int:
        """How many kernels the last recording submits; 0 before there is one.

        >>> f = jit(lambda x: (x * 2).exp())
        >>> counts = [(f(Tensor([1.0, 2.0])).tolist(), f.kernels)[1] for _ in range(3)]
        >>> counts
        [0, 1, 1]
        """
        return 0 if self._last is None else self._last.kernels

    @property
    def memory_bytes(self) -> int:
        """The bytes that the last recording needs besides arguments, with what a replay leaves; 0 before there is one.

        >>> f, g = jit(lambda x: x.sum() + 1), jit(lambda x: (x * 2).flip(0).contiguous() + 1)
        >>> [(f(Tensor([1.0] * 8)), f.memory_bytes)[1] for _ in range(3)][2]
        4
        """
        return 0 if self._last is None else self._last.memory_bytes

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method is recorded once per object, since the object's tensors are part of what is recorded."""
        if instance is None:
            return self
        try:
            place = vars(instance)
        except TypeError:
            raise UsageError(
                f"[jit] {self.name}: an object of {type(instance).__name__} has no __dict__ to keep a recording in. "
                "Take jit of a function instead."
            ) from None
        key = f"{self.name} (jit)"
        bound = place.get(key)
        if bound is None or bound.function.__self__ is not instance:  # a copy of an object is another object
            bound = place[key] = Jit(
                self.function.__get__(instance, owner), self.by_result, self.donate, True
            )
        return bound

    def __copy__(self) -> Jit[P, R]:
        return Jit(self.function, self.by_result, self.donate)

    def __deepcopy__(self, memo: dict[int, Any]) -> Jit[P, R]:
        return Jit(copy.deepcopy(self.function, memo), self.by_result, self.donate)

    def __reduce__(self) -> Any:
        """For pickle: where the function is found, as with functions. Another process records it anew."""
        function: Any = self.function
        if isinstance(function, types.MethodType):
            owner = function.__self__
            is_ours = isinstance(inspect.getattr_static(type(owner), function.__name__, None), Jit)
            return (
                (getattr, (owner, function.__name__))
                if is_ours
                else (Jit, (function, self.by_result, self.donate))
            )
        found: Any = sys.modules.get(getattr(function, "__module__", ""))
        for name in self.name.split("."):
            found = getattr(found, name, None)
        if found is self:
            return self.name
        if found is not function:
            raise UsageError(
                f"[pickle] {self.name}: a recording is of this process, and its function is in no module where another "
                "finds it. Write it there; or write the recording: hcq.save_program(f, path)."
            )
        return (Jit, (function, self.by_result, self.donate))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if thread_modes and (watcher() is not None or transforms()):
            return self.function(*args, **kwargs)  # part of the recording, or of the transform, around it
        tensors: list[Tensor] = []
        leaves: dict[Leaf, int] = {}  # of bound variables
        parts: list[Any] = [tuple]
        for arg in args:
            if isinstance(arg, Tensor):  # as _key has it, without the call
                try:
                    parts.append((Tensor, arg.node.shape, arg.node.dtype, arg.device))
                    tensors.append(arg)
                except NotReal:
                    parts.append(_key(arg, tensors, leaves, self.name))
            else:
                parts.append(_key(arg, tensors, leaves, self.name, 1))
        key = (tuple(parts), _key(kwargs, tensors, leaves, self.name) if kwargs else ())
        if leaves:  # their numbers in memory follow the tensors
            device = tensors[0].device if tensors else devices.default()
            tensors += [Tensor._of(leaf.number(device), device) for leaf in leaves]
        for i, tensor in enumerate(tensors):
            if tensor._requires_grad:
                raise UsageError(
                    f"[jit] {self.name}: tensor argument {i} {tensor.shape} requires a gradient. "
                    "Let the function reach parameters from outside, or pass x.detach()."
                )
        for tensor in tensors:
            if tensor.node.op is not Op.BUFFER:
                if has_cut(tensors):
                    return self._call_of_cuts(args, kwargs)
                realize(tensors)
                break
        storages = [t.node.arg if t.node.op is Op.BUFFER else storage_of(t) for t in tensors]
        if len(tensors) > 1 and len(set(storages)) < len(storages):  # one memory under two names
            ids = [id(tensor) for tensor in tensors]
            key = (*key, tuple(map(storages.index, storages)), tuple(map(ids.index, ids)))  # type: ignore[assignment]
        if thread_modes and (mode := thread_modes.get(get_ident())) is not None:
            if mode.no_grad_depth:
                key = (*key, "no_grad")  # type: ignore[assignment]
            if mode.autocast:
                key = (*key, tuple(sorted(mode.autocast.items(), key=str)))  # type: ignore[assignment]
        with self._lock:
            if self._donation is not None:
                return self._call_with_gifts(self._donation, key, args, kwargs, tensors, storages)
            return self._call(key, args, kwargs, tensors, storages)

    def _call_with_gifts(
        self,
        donation: Donation,
        key: Any,
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        storages: list[Storage],
    ) -> R:
        """The call, after which its donated arguments are nobody's."""
        from hcq.frontend.jit.donated import prepare, take

        numbers = donation.numbers(args, kwargs, tensors, self.name)
        if prepare(self.name, numbers, tensors, storages):
            return self(*args, **kwargs)  # another name of its memory has memory of its own now
        self._given = numbers
        try:
            result = self._call(key, args, kwargs, tensors, storages)
        finally:
            self._given = []
        take(self.name, numbers, tensors, storages)
        return result

    def _call_of_cuts(self, args: Any, kwargs: Any) -> R:
        """The call with whole tensors and variables in place of tensors that variables cut."""
        with self._lock:
            if self._of_cuts is None:
                if self._donation is not None:
                    raise UsageError(
                        f"[jit] {self.name}: a tensor that a variable cuts is not donated. Pass the whole."
                    )
                self._of_cuts = Jit(of_cuts(self.function), self.by_result)
                self._of_cuts.name = self.name
                self._of_cuts._around = Closure(self.function)
            result: R = self._of_cuts(*taken_apart(args), **taken_apart(kwargs))
            self._last = self._of_cuts._last
        return result

    def _call(self, key: Any, args: Any, kwargs: Any, tensors: list[Tensor], storages: list[Storage]) -> R:
        known = self._seen.get(key)
        if known is None:
            if settle():
                return self(*args, **kwargs)
            if len(self._seen) >= MAX_RECORDINGS:
                raise UsageError(
                    f"[jit] {self.name} was called with {MAX_RECORDINGS} different shapes or plain values, each of "
                    "which needs a recording of its own. Pass what varies as a Tensor, or call reset()."
                )
            known = self._seen[key] = Versions()
        if self._around is None:
            self._around = Closure(self.function)
        around = self._around.values()
        for version in known.known:
            recording = version.recording
            if recording is None or self._around.changed(version.around, around):
                continue
            if version.inside.changed():
                continue
            with lock:  # what holds must hold until it is submitted
                if recording.holds():
                    # an argument may have other memory now
                    if recording.has_moved or (
                        recording.seen.overwritten and recording.keep_others(tensors, storages)
                    ):
                        return self(*args, **kwargs)
                    known.unlike = 0
                    self._last = recording
                    for condition in version.seen.conditions.values():
                        condition.ask(storages)
                    if not recording.checks_left:
                        return recording.replay(tensors, storages)  # type: ignore[no-any-return]
                    break
        else:
            if settle():
                return self(*args, **kwargs)
            return self._captured(known, around, args, kwargs, tensors, storages)
        if settle():
            return self(*args, **kwargs)
        recording.checks_left -= 1
        result: R = recording.check(
            lambda: capture(self.function, self.name, (args, kwargs), tensors, storages, False, self._given),
            lambda: recording.replay(tensors, storages),
            storages,
            version.inside.lost,
        )
        return result

    def _captured(
        self,
        known: Versions,
        around: list[Any],
        args: Any,
        kwargs: Any,
        tensors: list[Tensor],
        storages: list[Storage],
    ) -> R:
        """Call the function, and see whether it did what a call before did."""
        if known.unlike >= MAX_UNLIKE:
            raise UsageError(
                f"[jit] {self.name}: its last {MAX_UNLIKE} calls did not do the same: {known.why}. Pass what varies as "
                "an argument, or keep it in a tensor that the function assigns to; or call it without jit."
            )
        known.calls += 1
        assert self._around is not None
        inside = Contents(self.function, _opaque(args, kwargs), self._around.functions)
        # the first call may read values and make tensors of host data: a function makes its state in it
        is_first = known.calls == 1
        result, seen = capture(
            self.function, self.name, (args, kwargs), tensors, storages, is_first, self._given
        )
        inside.settle()
        version = Version(seen, around, inside)
        known.unlike += 1
        whys = []
        # a recording of one gradient alone serves others, when another is read as that one was
        for before in [v for v in known.known if v.recording is None or v.recording.pinned]:
            name = self._around.changed(before.around, around)
            why = f"{name!r}, a variable that it uses, has another value" if name else ""
            before.inside.without(inside.own)
            if not why and (name := before.inside.changed()):
                why = f"what it reads of {name} has changed"
            why = why or before.seen.unsettled or seen.unsettled or before.seen.difference(seen)
            whys.append(why)
            if not why:
                known.known.remove(before)
                inside.without(before.inside.own)
                inside.own += before.inside.own
                make = _kind_of(seen)
                version.recording = self._last = make(self.name, seen, before.seen, self.by_result)
                known.unlike = 0
                break
        known.why = whys[0] if whys else ""
        known.known = [v for v in known.known if not v.seen.is_stale()]
        known.known.insert(0, version)
        del known.known[MAX_VERSIONS:]
        return result  # type: ignore[no-any-return]


def _kind_of(seen: CallRecord) -> type[Recording]:
    if not devices.is_group(seen.device or ""):
        return Recording
    if seen.is_of_group:
        from hcq.frontend.jit.group_replay import GroupRecording  # what most programs have no use for

        return GroupRecording
    from hcq.frontend.jit.mixed_replay import MixedRecording

    return MixedRecording


def _opaque(args: Any, kwargs: Any) -> list[Any]:
    """The arguments that are known by their identity alone: objects and functions."""
    found, stack = [], [*args, *kwargs.values()]
    while stack:
        value = stack.pop(0)
        if isinstance(value, (list, tuple)):
            stack += value
        elif isinstance(value, dict):
            stack += value.values()
        elif not isinstance(value, Tensor):
            found.append(value)
    return found


_all: weakref.WeakSet[Jit[Any, Any]] = weakref.WeakSet()


def _forget(device: str) -> None:
    """The device is gone, and with it what was recorded on it."""
    for each in list(_all):
        for versions in list(each._seen.values()):
            versions.known = [
                v for v in versions.known if device not in devices.members(v.seen.device or device)
            ]


def _after_fork() -> None:
    for each in list(_all):
        each._lock = threading.RLock()  # another thread of the parent may have had it


devices.on_close.append(_forget)
os.register_at_fork(after_in_child=_after_fork)


@overload
def jit(function: Callable[P, R], *, donate: Donate = ()) -> Jit[P, R]: ...
@overload
def jit(function: None = None, *, donate: Donate = ()) -> Callable[[Callable[P, R]], Jit[P, R]]: ...


def jit(function: Any = None, *, donate: Donate = ()) -> Any:
    """Record a function of tensors and replay it.

    The function's tensors, in arguments and results (alone, or in lists, tuples and dicts), may differ from call to
    call in values, not in shape or dtype; a new shape or plain value is a new recording, and all numbers of a Variable,
    as in step(x, n.bind(5)), are served by one. The first two calls run the function; when they did the same, the
    third submits the recording, and no Python of the function runs any more. Tensors that it assigns to (weights,
    optimizer state, running statistics, random counters), gradients, and a tensor that it keeps and replaces in each
    call, go on changing as they would, and so do arguments that it writes to. A `.grad` that it reads is the one that
    is there at the call.

    Writes to its tensors from outside, a module's train() and eval(), gradients that are there or not, other values of
    the variables that its code names, and of what is in the lists, dicts and objects that it reaches by them, are seen,
    and it is called and recorded again. What the function itself does to Python's values, and what it prints, a replay
    does not. docs/jit.md has the whole list.

    Raises  UsageError for what a recording cannot mean: .numpy(), .item() or a branch on a tensor inside the function,
            a tensor made of an array or bytes inside it (lists of numbers may stand there), writing to an argument of
            which the function knows a view from elsewhere

    >>> total = Tensor([0.0]).realize()
    >>> @jit
    ... def add(x):
    ...     return total.assign(total + x).realize()
    >>> [add(Tensor([value])).item() for value in (1.0, 2.0, 3.0)]
    [1.0, 3.0, 6.0]

    donate   positions and names of arguments that nobody uses after the call: results and temporaries may be in their
             memory. A use of one is refused then, and says to whom it was donated

    >>> @jit(donate="state")
    ... def step(state, x):
    ...     return (state @ x).tanh() @ x
    >>> state = Tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> for _ in range(4):
    ...     state = step(state, Tensor([[0.0, 1.0], [1.0, 0.0]]))
    >>> state.shape
    (2, 2)

    With HCQ_JIT_CHECK=1 the first replays are compared with what the function itself computes from the same state.
    """
    if function is None:
        return lambda inner: Jit(inner, donate=donate)
    return Jit(function, donate=donate)


def _key(value: Any, tensors: list[Tensor], leaves: dict[Leaf, int], name: str, depth: int = 0) -> Any:
    """What an argument is compared by; its tensors and variables are collected, and stand there as what is alike."""
    kind = type(value)
    if depth > MAX_DEPTH:
        raise UsageError(
            f"[jit] {name}: an argument is deeper than {MAX_DEPTH}, or holds itself. Pass it flat."
        )
    if isinstance(value, Tensor):
        if value.is_complex():
            return ("complex", *[_key(part, tensors, leaves, name) for part in value._real_ones()])
        tensors.append(value)
        return (Tensor, value.node.shape, value.node.dtype, value.device)
    if kind is Bound:
        return (Bound, value.key(leaves))
    if isinstance(value, (list, tuple)):
        return (kind, *[_key(item, tensors, leaves, name, depth + 1) for item in value])
    if isinstance(value, dict):
        inside = depth + 1
        keyed = [_key(each, tensors, leaves, name, inside) for pair in value.items() for each in pair]
        return (kind, *zip(keyed[::2], keyed[1::2], strict=True))
    if isinstance(value, Number) and kind is not int and kind is not bool:
        return (kind, repr(value))  # 0.0 and -0.0 are equal and differ, NaN is not equal to itself
    if isinstance(value, frozenset):
        return (kind, frozenset(_key(item, tensors, leaves, name, depth + 1) for item in value))
    try:
        hash(value)
    except TypeError:
        raise UsageError(
            f"[jit] {name}: an argument of type {kind.__name__} can be neither recorded nor compared. "
            "Pass tensors, plain values, or lists, tuples and dicts of them."
        ) from None
    return (kind, value)
