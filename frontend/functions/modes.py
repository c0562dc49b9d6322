"""Modes: whether what is computed keeps a history for gradients, under PyTorch's names.

In       nothing, or a flag
Out      enable_grad, inference_mode, set_grad_enabled: with-statements and decorators; is_grad_enabled
Changes  the mode of this thread
Next     grad/gradient.py (no_grad)
"""

from __future__ import annotations

from contextlib import ContextDecorator

from hcq.frontend.core.base import drop_default_mode, mode_of_thread, thread_modes
from hcq.frontend.grad.gradient import no_grad


class _Depth(ContextDecorator):
    """Sets how many no_grad() deep this thread is, and puts it back."""

    depth = 0

    def __enter__(self) -> None:
        mode = mode_of_thread()
        self._before = [*getattr(self, "_before", []), mode.no_grad_depth]
        mode.no_grad_depth = self.depth

    def __exit__(self, *error: object) -> None:
        mode_of_thread().no_grad_depth = self._before.pop()
        drop_default_mode()


class enable_grad(_Depth):
    """Inside, results keep their history, in a no_grad(), too.

    >>> x = Tensor([1.0], requires_grad=True)
    >>> with no_grad(), hcq.enable_grad():
    ...     y = x * 2.0
    >>> y.is_leaf
    False
    """


class set_grad_enabled(_Depth):
    """From here on, or inside of a with-statement, results keep their history, or do not.

    >>> with hcq.set_grad_enabled(False):
    ...     hcq.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool) -> None:
        self.depth = 0 if mode else 1
        self._before = [0 if is_grad_enabled() else 1]
        mode_of_thread().no_grad_depth = self.depth
        drop_default_mode()

    def __enter__(self) -> None:
        mode_of_thread().no_grad_depth = self.depth


def inference_mode(mode: bool = True) -> ContextDecorator:
    """no_grad(): what is computed inside keeps no history. With False nothing changes.

    >>> with hcq.inference_mode():
    ...     hcq.is_grad_enabled()
    False
    """
    return no_grad() if mode else _Unchanged()


class _Unchanged(ContextDecorator):
    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        pass


def is_grad_enabled() -> bool:
    """Whether results of this thread keep their history now.

    >>> hcq.is_grad_enabled()
    True
    """
    from threading import get_ident

    mode = thread_modes.get(get_ident())
    return mode is None or not mode.no_grad_depth
