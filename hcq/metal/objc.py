"""The Objective-C runtime's door: classes, selectors, messages with the types they are declared with, pools.

In       a port, messages of abi/messages.py and their arguments
Out      what the receiver answers, as plain numbers
Changes  what the message changes
Next     hcq/system/port.py (`invoke`, through which all of it goes), hcq/system/native.py (how a call is typed)

Objects are addresses. Those of `new...` messages are ours to release; others belong to the innermost `pool`, and are
gone when it ends unless they are kept with a `retain`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hcq.errors import DriverError
from hcq.metal.abi import messages
from hcq.metal.abi.messages import Function, Message
from hcq.system import native
from hcq.system.port import Port


class Objc:
    """The runtime behind a port."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self._selectors: dict[str, int] = {}
        self._classes: dict[str, int] = {}

    def call(self, function: Function, *arguments: Any) -> Any:
        """Call a C function."""
        return self.port.invoke(function.library, function.name, function.encoding, *arguments)

    def send(self, receiver: int, message: Message, *arguments: Any) -> Any:
        """Send a message. Raises DriverError for no receiver: Objective-C would answer 0 to that and say nothing."""
        if not receiver:
            raise DriverError(f"{message}: there is no object to send it to.")
        try:
            selector = self._selectors[message.selector]
        except KeyError:
            selector = self.call(messages.REGISTER_NAME, message.selector.encode() + b"\0")
            self._selectors[message.selector] = selector
        return self.port.invoke(
            messages.LIBOBJC, messages.SEND, message.encoding, receiver, selector, *arguments
        )

    def make(self, receiver: int, message: Message, *arguments: Any) -> int:
        """Send a message whose answer is an object. Raises DriverError when there is none."""
        found = int(self.send(receiver, message, *arguments))
        if not found:
            raise DriverError(f"{message}{arguments}: Metal made none.")
        return found

    def make_or_explain(self, receiver: int, message: Message, *arguments: Any) -> tuple[int, str]:
        """The same of a message whose last argument takes an NSError: the object, or 0 and what is wrong."""
        error = bytearray(8)
        found = int(self.send(receiver, message, *arguments, error))
        return found, "" if found else self.explain(int.from_bytes(error, "little"))

    def explain(self, error: int) -> str:
        """What an NSError says."""
        return self.text(self.send(error, messages.DESCRIPTION)) if error else "no reason was given"

    def class_named(self, name: str) -> int:
        """A class. Raises DriverError when the runtime has none of that name."""
        if name not in self._classes:
            found = int(self.call(messages.GET_CLASS, name.encode() + b"\0"))
            if not found:
                raise DriverError(f"objc_getClass({name!r}): there is no such class.")
            self._classes[name] = found
        return self._classes[name]

    def string(self, text: str) -> int:
        """An NSString, of the innermost pool."""
        return self.make(self.class_named("NSString"), messages.STRING, text.encode() + b"\0")

    def text(self, string: int) -> str:
        """What an NSString holds."""
        return native.text_bytes(self.send(string, messages.UTF8)).decode("utf-8", "replace")

    def retain(self, thing: int) -> int:
        """Keep an object beyond its pool."""
        return int(self.send(thing, messages.RETAIN))

    def release(self, thing: int) -> None:
        """Give an object of ours back."""
        self.send(thing, messages.RELEASE)

    @contextmanager
    def pool(self) -> Iterator[None]:
        """Objects that nobody keeps are gone at the end."""
        token = self.call(messages.PUSH_POOL)
        try:
            yield
        finally:
            self.call(messages.POP_POOL, token)
