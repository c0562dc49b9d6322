"""The emulated Objective-C runtime: what libobjc and Metal answer, and what they would not survive.

In       calls of libobjc's and Metal's functions; messages with the types they were sent with
Out      answers of the objects; DriverError for what breaks a rule
Changes  objects, their counts, pools; the log, which says all that was refused
Next     device.py, commands.py, objects.py (who answers), hcq/metal/abi/messages.py (what is declared)
Source   "Objective-C Runtime Reference"; "Advanced Memory Management Programming Guide": who owns what a message
         returns

Checked of every message: the receiver is alive and knows the selector; the types are those it is declared with; each
number fits its type, and each object is alive and of the class that is asked for.
"""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from hcq.emu.kernel import DeviceNode, File, Kernel, Process
from hcq.emu.metal.spec import Spec
from hcq.errors import DriverError
from hcq.metal.abi import messages
from hcq.metal.abi.messages import Message
from hcq.system import native

T = TypeVar("T", bound=Callable[..., Any])
FIRST_OBJECT, FIRST_CLASS, FIRST_SELECTOR = 0x6000_0000_0000, 0x1_0000_0000, 0x2_0000_0000
_RANGES = {"B": (0, 1), "C": (0, 2**8 - 1), "q": (-(2**63), 2**63 - 1), "Q": (0, 2**64 - 1)}


What = tuple[str, str, str]  # a message in words: its sign, of whom, its selector


def _text(what: What) -> str:
    return "{}[{} {}]".format(*what)


@functools.cache
def _wanted(encoding: str, kinds: tuple[str, ...]) -> tuple[tuple[str, str, int, int], ...]:
    """Of each argument its type, its class where it is an object, and the range of a number, empty for others."""
    left = iter(kinds)
    return tuple(
        (kind, next(left) if kind == "@" else "", *_RANGES.get(kind, (1, 0)))
        for kind in native.split_encoding(encoding)[3:]
    )


def answers(message: Message, *kinds: str) -> Callable[[T], T]:
    """The method answers this message. kinds: what its objects have to be, in order; with a ? they may be nil."""

    def mark(method: T) -> T:
        method.answers = message, kinds  # type: ignore[attr-defined]
        return method

    return mark


class Object:
    """An object: it is there until its count is 0."""

    kind = "NSObject"
    methods: ClassVar[dict[str, tuple[Message, tuple[str, ...], Callable[..., Any]]]] = {}

    def __init_subclass__(cls) -> None:
        found = [getattr(value, "answers", None) for value in vars(cls).values()]
        own = {
            mark[0].selector: (*mark, value)
            for mark, value in zip(found, vars(cls).values())
            if mark is not None
        }
        cls.methods = {**cls.methods, **own}

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.count = 1
        self.handle = runtime.add(self)

    def retain(self) -> None:
        """One more who keeps it."""
        with self.runtime.lock:
            self.count += 1

    def release(self) -> None:
        """One less; without any it is gone."""
        with self.runtime.lock:
            self.count -= 1
            is_last = self.count == 0
        if is_last:
            self.runtime.remove(self)
            self.dealloc()

    def dealloc(self) -> None:
        """What goes with it."""

    def refuse(self, what: str) -> DriverError:
        """The error for a message that breaks a rule."""
        return self.runtime.refuse(what)

    def __str__(self) -> str:
        return f"{self.kind} {self.handle:#x}"


class Runtime(Kernel):
    """The runtime and Metal of one process, in place of their libraries. copy_devices: a new array of the GPUs."""

    folders: tuple[str, ...] = ()
    environment: ClassVar[Mapping[str, str]] = {}
    libraries: ClassVar[tuple[str, ...]] = (messages.LIBOBJC, messages.METAL, messages.CORE_GRAPHICS)

    def __init__(
        self,
        specs: Sequence[Spec],
        copy_devices: Callable[[Runtime], Object],
        default_device: Callable[[Runtime], Object],
    ) -> None:
        self.specs = list(specs)
        self.copy_devices, self.default_device = copy_devices, default_device
        self.lock = threading.RLock()
        self.lines: list[str] = []
        self.pid = os.getpid()
        self._objects: dict[int, Object] = {}
        self._handles = itertools.count(FIRST_OBJECT, 0x10)
        self._dead: dict[int, str] = {}
        self._selectors: dict[str, int] = {}
        self._selector_names: dict[int, str] = {}
        self._classes: dict[str, int] = {}
        self._class_names: dict[int, str] = {}
        self._pools = threading.local()
        self._has_core_graphics = False

    # ------------------------------------------------------------ objects

    def add(self, thing: Object) -> int:
        """A new object's address."""
        with self.lock:
            handle = next(self._handles)
            self._objects[handle] = thing
        return handle

    def remove(self, thing: Object) -> None:
        """It is gone; who still sends it messages is told what it was."""
        with self.lock:
            del self._objects[thing.handle]
            self._dead[thing.handle] = thing.kind

    def alive(self) -> list[str]:
        """What there is, other than what the process has from the start: kinds of objects, sorted."""
        with self.lock:
            return sorted(thing.kind for thing in self._objects.values())

    def find(self, handle: int, what: str) -> Object:
        """The object at an address. Raises DriverError when there is none."""
        thing = self._objects.get(handle)
        if thing is None:
            was = self._dead.get(handle)
            why = f"a {was} that was there was released" if was else "no object was ever there"
            raise self.refuse(f"{what}: {handle:#x} is no object: {why}.")
        return thing

    def refuse(self, what: str) -> DriverError:
        """The error, and a line of the log."""
        self.lines.append(what)
        return DriverError(what)

    # ------------------------------------------------------------ pools

    def _stack(self) -> list[list[Object]]:
        if not hasattr(self._pools, "stack"):
            self._pools.stack = []
        found: list[list[Object]] = self._pools.stack
        return found

    def autorelease(self, thing: Object, what: str) -> int:
        """The innermost pool of this thread releases it. Raises DriverError when there is none: it would leak."""
        stack = self._stack()
        if not stack:
            kind = thing.kind
            thing.release()
            raise self.refuse(f"{what}: there is no autorelease pool, so its {kind} would never be released.")
        stack[-1].append(thing)
        return thing.handle

    def _push(self) -> int:
        stack = self._stack()
        stack.append([])
        return len(stack)

    def _pop(self, token: int) -> None:
        stack = self._stack()
        if not 0 < token <= len(stack):
            raise self.refuse(f"objc_autoreleasePoolPop({token:#x}): this thread has pushed no such pool.")
        while len(stack) >= token:
            for thing in reversed(stack.pop()):
                thing.release()

    # ------------------------------------------------------------ calls

    def invoke(self, library: str, function: str, encoding: str, *arguments: Any) -> Any:
        """Call a function of libobjc, Metal or Core Graphics."""
        if self.pid != os.getpid():
            raise self.refuse(f"{function}: Metal's objects do not live on in a child of fork.")
        if function == messages.SEND:
            return self._send(encoding, *arguments)
        declared = _FUNCTIONS.get(function)
        if declared is None:
            raise self.refuse(f"dlsym({library!r}, {function!r}): the library has no such function.")
        if encoding != declared[0].encoding or library != declared[0].library:
            raise self.refuse(
                f"{function} of {library}, called as {encoding!r}: it is {declared[0].encoding!r} of "
                f"{declared[0].library}."
            )
        return declared[1](self, *arguments)

    def _class(self, name: bytes) -> int:
        text = name.rstrip(b"\0").decode()
        if text not in CLASSES:
            return 0
        handle = self._classes.setdefault(text, FIRST_CLASS + 0x40 * len(self._classes))
        self._class_names[handle] = text
        return handle

    def _register(self, name: bytes) -> int:
        text = name.rstrip(b"\0").decode()
        handle = self._selectors.setdefault(text, FIRST_SELECTOR + 0x10 * len(self._selectors))
        self._selector_names[handle] = text
        return handle

    def _copy_all_devices(self) -> int:
        return self.copy_devices(self).handle

    def _color_space_type(self) -> int:
        self._has_core_graphics = True
        return COLOR_SPACE_TYPE_ID

    def _create_system_default_device(self) -> int:
        """None in a program that has not loaded Core Graphics, as Apple's page of the function says."""
        if not self._has_core_graphics:
            return 0
        return self.default_device(self).handle

    def _send(self, encoding: str, receiver: int, selector: int, *arguments: Any) -> Any:
        name = self._selector_names.get(selector)
        if name is None:
            raise self.refuse(f"objc_msgSend: {selector:#x} is no selector. Register its name.")
        class_name = self._class_names.get(receiver)
        if class_name is not None:
            what = "+", class_name, name
            found = CLASS_METHODS.get((class_name, name))
            if found is None:
                raise self.refuse(f"{_text(what)}: unrecognized selector sent to the class.")
            message, kinds, method = found
            values = self._check(what, message, kinds, encoding, arguments)
            return self._answer(what, method(self, *values), name)
        thing = self._objects.get(receiver) or self.find(receiver, f"objc_msgSend({name})")
        what = "-", thing.kind, name
        if name == "retain":
            thing.retain()
            return receiver
        if name == "release":
            thing.release()
            return None
        known = type(thing).methods.get(name)
        if known is None:
            raise self.refuse(f"{_text(what)}: unrecognized selector sent to instance {receiver:#x}.")
        message, kinds, method = known
        values = self._check(what, message, kinds, encoding, arguments)
        return self._answer(what, method(thing, *values), name)

    def _answer(self, what: What, found: Any, selector: str) -> Any:
        """Objects as addresses: `new...` gives one to its caller to release, others are the pool's."""
        if not isinstance(found, Object):
            return 0 if found is None else found
        return found.handle if selector.startswith("new") else self.autorelease(found, _text(what))

    def _check(
        self, what: What, message: Message, kinds: tuple[str, ...], encoding: str, arguments: tuple[Any, ...]
    ) -> Sequence[Any]:
        """Arguments as the method takes them. Raises DriverError for what does not fit the declared types."""
        if encoding != message.encoding:
            raise self.refuse(f"{_text(what)}: sent as {encoding!r}, and it is {message.encoding!r}.")
        wanted = _wanted(encoding, kinds)
        if len(wanted) != len(arguments):
            raise self.refuse(f"{_text(what)}: {len(arguments)} arguments, and it takes {len(wanted)}.")
        found: list[Any] | None = None
        for number, (kind, class_name, low, high) in enumerate(wanted):
            value = arguments[number]
            if kind == "@":
                found = list(arguments) if found is None else found
                thing = self._objects.get(value) if type(value) is int else None
                if thing is None or thing.kind != class_name:
                    thing = self._object(f"{_text(what)}: argument {number}", value, class_name)
                found[number] = thing
            elif type(value) is not int or not low <= value <= high:
                self._look_at(f"{_text(what)}: argument {number}", kind, value)
        return arguments if found is None else found

    def _look_at(self, where: str, kind: str, value: Any) -> None:
        """Whether an argument that is no object is of its type."""
        if kind[0] == "{":
            if len(value) != len(kind[1:-1].partition("=")[2]):
                raise self.refuse(f"{where} is {value!r}, and it takes {kind}.")
            for each in value:
                self._number(where, "Q", each)
        elif kind in _RANGES:
            self._number(where, kind, value)
        elif kind[0] in "^*" and not isinstance(value, (bytes, bytearray, memoryview)):
            raise self.refuse(f"{where} is {value!r}, and it takes memory ({kind}).")

    def _number(self, where: str, kind: str, value: Any) -> None:
        low, high = _RANGES[kind]
        if not isinstance(value, int) or not low <= value <= high:
            raise self.refuse(
                f"{where} is {value!r}, and it takes a whole number from {low} to {high} ({kind})."
            )

    def _object(self, where: str, handle: Any, kind: str) -> Object | None:
        if handle == 0 and kind.endswith("?"):
            return None
        if not isinstance(handle, int) or not handle:
            raise self.refuse(f"{where} is {handle!r}, and it takes a {kind.rstrip('?')}.")
        thing = self.find(handle, where)
        if thing.kind != kind.rstrip("?"):
            raise self.refuse(f"{where} is a {thing.kind}, and it takes a {kind.rstrip('?')}.")
        return thing

    # ------------------------------------------------------------ as a kernel driver

    def open(self, path: str, process: Process) -> File | None:
        return None

    def nodes(self) -> list[DeviceNode]:
        return []

    def files(self) -> Mapping[str, bytes | str]:
        return {}

    def describe(self) -> list[str]:
        return [f"{spec.family.name.lower()}: {spec.name}" for spec in self.specs]

    def exit(self, process: Process) -> None:
        return

    def log(self) -> list[str]:
        return list(self.lines)


COLOR_SPACE_TYPE_ID = 0x10D  # nobody looks at it
_FUNCTIONS: dict[str, tuple[messages.Function, Callable[..., Any]]] = {
    messages.COLOR_SPACE_TYPE.name: (messages.COLOR_SPACE_TYPE, Runtime._color_space_type),
    messages.GET_CLASS.name: (messages.GET_CLASS, Runtime._class),
    messages.REGISTER_NAME.name: (messages.REGISTER_NAME, Runtime._register),
    messages.PUSH_POOL.name: (messages.PUSH_POOL, Runtime._push),
    messages.POP_POOL.name: (messages.POP_POOL, Runtime._pop),
    messages.COPY_ALL_DEVICES.name: (messages.COPY_ALL_DEVICES, Runtime._copy_all_devices),
    messages.CREATE_SYSTEM_DEFAULT_DEVICE.name: (
        messages.CREATE_SYSTEM_DEFAULT_DEVICE,
        Runtime._create_system_default_device,
    ),
}
CLASSES = ("NSString", "MTLCompileOptions")
CLASS_METHODS: dict[tuple[str, str], tuple[Message, tuple[str, ...], Callable[..., Any]]] = {}
