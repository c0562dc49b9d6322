"""Engines: what a channel's methods do. A subclass hangs handlers on the declared methods of its class.

In       writes: an address and a word, for a class that SET_OBJECT bound
Out      handlers called with the decoded method, the words of all others kept; ClassError for what the class has not
Changes  the engine's state
Next     compute_processor.py, copy_processor.py, host_processor.py (the handlers), hcq/nv/abi/methods.py (declared)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

from hcq.emu.nv.channel import Channel
from hcq.emu.nv.errors import ChannelError, ClassError
from hcq.errors import UsageError
from hcq.events import kernel_debug
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import methods_of

Handler = Callable[[Any, Any], None]
MAX_FINE = 1 << 12  # words that are remembered of each method


def on(method: type[Method]) -> Callable[[Handler], Handler]:
    """Make a method of an engine the handler of a method of its class, and of the same one of related classes."""

    def note(handler: Handler) -> Handler:
        handler.on_address = method.at  # type: ignore[attr-defined]
        return handler

    return note


class Accepted:
    """What one method takes: its declaration, the bits that have a meaning, the fields whose values are named."""

    def __init__(self, method: type[Method]) -> None:
        self.method = method
        self.mask = 0
        for field in method.fields.values():
            self.mask |= field.mask
        self.enums = [field for field in method.fields.values() if field.enum is not None]
        self.fine: set[int] = set()  # words that are values

    def refusal(self, word: int) -> str:
        """Why a word is no value of this method; empty when it is one."""
        if word & ~self.mask:
            return f"{word:#x} has bits that {self.method.vendor} has not"
        for field in self.enums:
            value = field.decode(word)
            if type(value) is int:
                return f"{self.method.vendor}.{field.name}={value} has no meaning"
        return ""


@functools.cache
def accepted(class_id: int) -> dict[int, Accepted]:
    """Address -> what it takes, for all methods of a class."""
    kinds: dict[type[Method], Accepted] = {}
    return {
        address: kinds.setdefault(method, Accepted(method))
        for address, method in methods_of(class_id).items()
    }


class Engine:
    """One engine of one channel. `words` is what was last written to each address."""

    handlers: ClassVar[dict[int, Handler]] = {}
    error: ClassVar[type[ChannelError]] = ClassError  # for a method or a value that there is not

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.handlers = dict(cls.handlers)
        for thing in vars(cls).values():
            if (address := getattr(thing, "on_address", None)) is not None:
                cls.handlers[address] = thing

    def __init__(self, channel: Channel, class_id: int) -> None:
        self.channel, self.class_id = channel, class_id
        self.accepted = accepted(class_id)
        self.words: dict[int, int] = {}

    @classmethod
    def learn(cls, class_id: int, method: type[Method], does: Handler | None = None) -> None:
        """From now on these engines know a method of somebody's own: its words are kept, and `does` is called for it.

        Raises  UsageError for an address that no method has, or whose method the class has already
        """
        class_id = int(class_id)  # which the processors ask by
        known = methods_of(class_id)
        if method.at <= 0 or method.at % 4 or known.get(method.at, method) is not method:
            raise UsageError(
                f"learn: class {class_id:#x} has {known.get(method.at)!r} at {method.at:#06x}: give an address of its "
                "own, a multiple of 4."
            )
        known[method.at] = method
        accepted(class_id)[method.at] = Accepted(method)
        if does is not None:
            cls.handlers[method.at] = does

    def write(self, address: int, word: int) -> None:
        """One method."""
        takes = self.accepted.get(address)
        if takes is None:
            raise self.error(f"class {self.class_id:#x} has no method {address:#06x} (data {word:#010x})")
        if word not in takes.fine:
            if why := takes.refusal(word):
                raise self.error(f"class {self.class_id:#x}, method {address:#06x}: {why}")
            if len(takes.fine) < MAX_FINE:
                takes.fine.add(word)
        self.words[address] = word
        handler = self.handlers.get(takes.method.at)
        if handler is not None:
            method = takes.method.decode([word])
            if kernel_debug.debugger is not None:
                kernel_debug.debugger.packet("nv", method)
            handler(self, method)

    def word(self, method: type[Method]) -> int:
        """What was last written to a method, 0 before the first time."""
        return self.words.get(method.at, 0)

    def last(self, method: type[Method]) -> Any:
        """The method as it was last written."""
        return method.decode([self.word(method)])

    def address(self, upper: type[Method], lower: type[Method]) -> int:
        """An address that two methods carry."""
        return self.word(upper) << 32 | self.word(lower)
