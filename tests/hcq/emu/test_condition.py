"""Waiting in an emulated kernel's call: what Ctrl-C leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from hcq.emu.condition import Condition


def interrupted_after(call: Callable[..., Any]) -> Callable[..., Any]:
    """A call during which Ctrl-C is pressed: Python raises as soon as it has returned."""

    def calls(*arguments: Any) -> Any:
        call(*arguments)
        raise KeyboardInterrupt

    return calls


def test_ctrl_c_just_after_a_wait_gave_its_lock_up_is_a_keyboard_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    condition = Condition()
    monkeypatch.setattr(condition, "_release_save", interrupted_after(condition._release_save))
    with pytest.raises(KeyboardInterrupt), condition:
        condition.wait(1)
    assert is_free(condition)


def test_ctrl_c_while_a_wait_takes_its_lock_back_is_a_keyboard_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    condition = Condition()
    monkeypatch.setattr(condition, "_acquire_restore", interrupted_after(condition._acquire_restore))
    with pytest.raises(KeyboardInterrupt), condition:
        condition.wait(0.001)
    assert is_free(condition)


def test_what_is_notified_wakes_and_what_is_not_runs_out_of_time() -> None:
    condition, said = Condition(), []

    def waiter() -> None:
        with condition:
            said.append(condition.wait_for(lambda: bool(said), 20))

    thread = threading.Thread(target=waiter)
    thread.start()
    with condition:
        said.append(True)
        condition.notify_all()
        assert not condition.wait(0.001)
    thread.join()
    assert said == [True, True]


def is_free(condition: Condition) -> bool:
    """Whether another thread can have it."""
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(condition.acquire(blocking=False)))
    thread.start()
    thread.join()
    return seen == [True]
