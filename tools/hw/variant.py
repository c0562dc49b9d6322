"""Variant: one thing about the driver that is otherwise, to see which of two the hardware takes.

In       what is changed: ioctls on their way to the kernel, methods on their way to the ring, a module's constant
Out      Variant; EditingPort, which changes ioctls; with_step, which changes a step of opening
Changes  nothing by itself; a variant is tried in a process of its own
Next     variants.py (tries one), nv/variants.py and amd/variants.py (all of them)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hcq.system.port import AroundPort, Port

# (request, argument) -> None: changes the argument in place, before the kernel sees it
Edit = Callable[[int, bytearray], None]
# words of one submission's piece -> words as many
Rewrite = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Variant:
    """One try.

    about        what is otherwise, and why that is in doubt
    environment  switches
    constants    "module:NAME" -> value
    overriding   a function of nothing that gives attributes of the device's class
    edit         of ioctls
    further      "module:function" of what is asked besides the usual work; it takes the Bench and returns Found
    disturbs     a GPU that does not take it may hang
    """

    name: str
    about: str
    environment: Mapping[str, str] = field(default_factory=dict)
    constants: Mapping[str, Any] = field(default_factory=dict)
    overriding: Callable[[], Mapping[str, Any]] = dict
    edit: Edit | None = None
    further: str = ""
    disturbs: bool = False


class EditingPort(AroundPort):
    """Changes the arguments of ioctls before the port inside gets them. `edited`: how many were."""

    def __init__(self, inner: Port, edit: Edit) -> None:
        super().__init__(inner)
        self.edit = edit
        self.edited = 0

    def through(self, call: str, *arguments: Any) -> Any:
        if call == "ioctl":
            _, request, argument = arguments
            before = bytes(argument)
            self.edit(request, argument)
            self.edited += before != bytes(argument)
        return super().through(call, *arguments)


def with_step(base: Any, name: str, act: Callable[[Any], None]) -> dict[str, Any]:
    """Attributes of a device's class with another method of this name, also where it is a step of opening."""
    from hcq.device import Steps

    was = getattr(base, name)
    steps = [(label, act if step is was else step) for label, step in base.steps.steps]
    return {name: act, "steps": Steps(base.steps.title, *steps)}
