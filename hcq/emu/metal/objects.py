"""Objects of Foundation: strings, arrays, errors; and the options of Metal's compiler.

In       what they are made of
Out      their answers
Changes  what they keep
Next     runtime.py (who sends messages on), device.py (Metal's own)
"""

from __future__ import annotations

from collections.abc import Sequence

from hcq.emu.metal.runtime import CLASS_METHODS, Object, Runtime, answers
from hcq.metal.abi import messages
from hcq.system import native


class String(Object):
    """NSString."""

    kind = "NSString"

    def __init__(self, runtime: Runtime, text: str) -> None:
        super().__init__(runtime)
        self.text = text
        self._bytes = native.new("char[]", text.encode() + b"\0")

    @answers(messages.UTF8)
    def _utf8(self) -> int:
        """Valid as long as the string."""
        return native.address(self._bytes)


class Array(Object):
    """NSArray, which keeps what is in it."""

    kind = "NSArray"

    def __init__(self, runtime: Runtime, things: Sequence[Object]) -> None:
        super().__init__(runtime)
        self.things = list(things)
        for thing in things:
            thing.retain()

    def dealloc(self) -> None:
        for thing in self.things:
            thing.release()

    @answers(messages.COUNT)
    def _number(self) -> int:
        return len(self.things)

    @answers(messages.OBJECT_AT)
    def _at(self, index: int) -> int:
        """It stays the array's."""
        if index >= len(self.things):
            raise self.refuse(f"-[NSArray objectAtIndex:]: {index} is beyond its {len(self.things)} objects.")
        return self.things[index].handle


class Error(Object):
    """NSError."""

    kind = "NSError"

    def __init__(self, runtime: Runtime, text: str) -> None:
        super().__init__(runtime)
        self.text = text

    @answers(messages.DESCRIPTION)
    def _description(self) -> String:
        return String(self.runtime, self.text)


class CompileOptions(Object):
    """MTLCompileOptions."""

    kind = "MTLCompileOptions"
    is_fast = True  # what a new one says

    @answers(messages.SET_FAST_MATH)
    def _set_fast_math(self, value: int) -> None:
        self.is_fast = bool(value)


CLASS_METHODS["NSString", messages.STRING.selector] = (
    messages.STRING,
    (),
    lambda runtime, data: String(runtime, bytes(data).rstrip(b"\0").decode()),
)
CLASS_METHODS["MTLCompileOptions", messages.NEW.selector] = (messages.NEW, (), CompileOptions)
