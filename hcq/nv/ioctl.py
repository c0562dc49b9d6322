"""Calls of NVIDIA's kernel drivers: made in the running driver's layouts, errno and status checked.

In       the driver's interface, an open file, an ioctl, fields by name
Out      the structure as the driver left it; DriverError with the call, its arguments, the answer and its usual cause
Changes  whatever the call does
Next     abi/ioctls.py (what can be called), rm.py, process.py, memory.py (who calls), abi/status.py (answers in words)

RM and UVM answer twice: errno when the call is malformed (size, file, state), a status in the structure otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hcq.errors import DriverError
from hcq.layout import Ioctl
from hcq.nv.abi.args import Args
from hcq.nv.abi.ioctls import CARD_COUNT, CARD_INFO, HISTORY, Abi
from hcq.nv.abi.names import class_name
from hcq.nv.abi.status import BENIGN, NvStatus, describe_status
from hcq.system.port import Port, refused

T = TypeVar("T")


class CallRefused(DriverError):
    """The driver understood a call and refused it: `status` is its answer."""

    status: int = 0


def call(abi: Abi, port: Port, fd: int, ioctl: Ioctl, /, **fields: Any) -> Args:
    """Make a call and return the structure as the driver left it.

    Raises  UsageError for a field that this release has not
            DriverError with the call, its arguments, and the errno or the status with its usual cause
    """
    what = abi.of(ioctl)(**fields)
    argument = bytearray(what.to_bytes())
    if ioctl is CARD_INFO:
        argument = argument.ljust(CARD_COUNT * what.size_bytes, b"\0")
    try:
        port.ioctl(fd, ioctl.request, argument)
    except DriverError as error:
        raise refused(_text(ioctl, what), error.errno or 0) from None
    got = type(what).from_bytes(bytes(argument))
    status = got.values.get("rmstatus", got.values.get("status", 0))
    if status not in BENIGN:
        answer = describe_status(status, abi.release)
        text = f"{_text(ioctl, what)} -> {answer}. Driver {abi.version}. {abi.note}"
        refusal = CallRefused(text.rstrip())
        refusal.status = status
        raise refusal
    return got


def call_with(abi: Abi, name: str, fields: Mapping[str, Any], attempt: Callable[[Args], T]) -> T:
    """Make a call with a structure of parameters: attempt(structure) -> its result.

    Where the table only stands in for the driver's own, and the driver says that the structure is wrong, the other
    layouts that it has had are tried, newest first; the one that is taken stays. Only calls of the resource manager
    can be refused so: they are given the size. Raises what attempt raises, of the first try.
    """
    own = abi.layout(name)
    others = [form for _, form in reversed(HISTORY.get(name, ())) if form is not own] if abi.note else []
    try:
        return attempt(own(**fields))
    except CallRefused as refusal:
        if refusal.status != NvStatus.NV_ERR_INVALID_PARAM_STRUCT:
            raise
        for form in others:
            if not fields.keys() <= form.fields.keys():
                continue
            try:
                result = attempt(form(**fields))
            except CallRefused as again:
                if again.status == NvStatus.NV_ERR_INVALID_PARAM_STRUCT:
                    continue
                raise
            abi.layouts[name] = form
            return result
        raise


def _text(ioctl: Ioctl, what: Args) -> str:
    shown = (f"{name}={_value(name, what.values[name])}" for name in ioctl.show if name in what.fields)
    return f"{ioctl.name}({', '.join(shown)})"


def _value(name: str, value: int) -> str:
    known = class_name(value) if name == "hclass" else ""
    return f"{value:#x}" if not known or known.startswith("class ") else f"{value:#x} {known}"
