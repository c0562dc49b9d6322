"""Errors: four kinds, split by who must act.

    HcqError
    ├── UsageError    the caller: wrong argument, freed buffer, unknown name, an object that cannot be loaded
    ├── DriverError   the machine's owner: the operating system or its driver refused a call
    ├── DeviceFault   the kernel's author: the device stopped on submitted work
    └── WaitTimeout   the caller of a wait: the deadline passed before the signal reached its value

In       one sentence that names the call, its arguments, and the fix
Out      an exception whose class says who must act
Next     observe/ledger.py (finds the work that a fault or a timeout belongs to)
"""


class HcqError(Exception):
    """Anything this package raises on purpose.

    >>> hcq.open("CPU").alloc(-1)
    Traceback (most recent call last):
    hcq.errors.UsageError: alloc: size_bytes=-1; takes a whole number from 0 to 70368744177664.
    """


class UsageError(HcqError, ValueError, RuntimeError):
    """The call cannot mean anything sensible; the message says what would.

    A ValueError and a RuntimeError, which PyTorch raises where this is raised: what catches either goes on working.

    >>> try:
    ...     Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0])
    ... except RuntimeError as error:
    ...     print(type(error).__name__)
    UsageError
    """


class DriverError(HcqError, OSError):
    """The operating system or a kernel driver refused; the message names the call, its arguments and the errno.

    >>> issubclass(hcq.DriverError, hcq.HcqError), issubclass(hcq.DriverError, OSError)
    (True, True)
    """


class DeviceFault(HcqError, RuntimeError):
    """The device stopped on submitted work; the message names the packet and the submission.

    >>> issubclass(hcq.DeviceFault, hcq.HcqError)
    True
    """


class WaitTimeout(HcqError, TimeoutError):
    """A deadline passed; the message names the signal, the value awaited, the value seen, and what comes next.

    >>> issubclass(hcq.WaitTimeout, TimeoutError)
    True
    """
