"""Recovery: the states of a device when it stops on a fault, is reset, is closed, or cannot be rebuilt.

In       the fault that a device stopped on; reset(), close(), the end of the process
Out      a device that works again, one that is lost, or one that is closed
Changes  failures, the buffers and graphs whose result was lost, the device's queues or threads
Next     dead_device.py (a dead device), hcq/device.py (the rest of a device). A table in docs/architecture.md lists the
         states and the transitions between them; tests/hcq/test_states.py checks its rows on every device

A kind of device implements these hooks. They are called in this order, and again if the caller was interrupted:

    fault      the fault that it stopped on, or ""
    abandon    stop waiting for signals            (only reset)       resume    wait for signals again
    replace    abandon work that does not end      (only reset)
    recover    drop submitted work, continue
    stop       end threads or queues               (close, exit)      unwind    the same, after a failed opening
    give_back  unmap the memory that completions still read
"""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

from hcq import checks
from hcq.command import Command
from hcq.errors import HcqError
from hcq.lifetime import open_devices
from hcq.lifetime.dead_device import CLOSED, Mortal
from hcq.memory import Pool
from hcq.signal import SLICE_NS, Timeline
from hcq.system.call_site import Site

GRACE_MS = 1000  # reset() waits so long for work to stop by itself
TOLD_MS = 1000  # a wait of that length, or of the default deadline, calls what it did not see finish a hang
STOP_MS, STOP_BUSY_MS = 5000, 100  # close() waits so long for threads to end, and so long when they have work

# what a value of the timeline stands for, and the line that made it; it holds addresses and programs, never buffers
Submitted = tuple[int, Sequence[Command], Site]


class Recovery(Mortal):
    """The part of a device that knows its states."""

    memory: Pool
    timeline: Timeline
    recent: deque[Submitted]
    _dropped = 0  # the last submission of those that a fault made void, until the timeline says so
    _stuck = 0  # the submission that was next to finish all through a wait of the default deadline
    _told = (
        0  # the submission that was next to finish all through a wait that was long enough to call it a hang
    )

    # ------------------------------------------------------------ what a device fills in

    @abstractmethod
    def fault(self) -> str:
        """What the device stopped on, or ""."""

    @abstractmethod
    def recover(self) -> None:
        """After a fault: drop what was submitted and go on, or `lose`. The caller holds the lock."""

    @abstractmethod
    def abandon(self) -> None:
        """Make the device give up what it waits for, so that work in flight ends or fails."""

    def resume(self) -> None:
        """Waits are waits again."""

    def replace(self) -> str:
        """Leave work that cannot be stopped to itself, and start anew; says what that costs. "" when it cannot."""
        return ""

    @abstractmethod
    def stop(self, timeout_ms: float) -> bool:
        """End the device's threads or queues; False when not all of them ended, and memory must stay mapped."""

    @abstractmethod
    def unwind(self) -> None:
        """End what was started when opening fails at a later step. Raises nothing."""

    @abstractmethod
    def signal_wait(self, va: int, value: int, timeout_ns: int) -> int:
        """Wait on a cell for a while; returns the value seen, which may still be too small."""

    @abstractmethod
    def restart_timeline(self) -> bool:
        """Whether the timeline said more than was submitted; then it starts again below everything."""

    @abstractmethod
    def pending(self) -> str:
        """What is in flight, and what to do about it: for errors."""

    # ------------------------------------------------------------ a fault

    def note_fault(self, is_asked_for: bool = False) -> None:
        """If the device has stopped: remember what failed, mark what holds no result, and make it work again."""
        with self.lock:
            what = self.fault()
            if not what:
                self._skip_dropped()
                return
            first, last = self.timeline.value + 1, self.timeline.submitted
            if first > last + 1:
                first = 1  # the timeline was overwritten: nobody knows what was done
            why = f"{self.name}: {what}, in submission {self.describe(first)}."
            if last > first:
                why += f" The {last - first} submissions after it were dropped."
            self.failures.append((first, last, why))
            for observer in self.observers:
                observer.fault(first, last, why)
            if not is_asked_for:
                self.report(why, ("fault", first, last))
            for buffer in self.memory.owners():
                if first <= buffer.last <= last and not buffer.is_constant:
                    buffer.poison = why
            for graph in list(self.graphs):
                graph.poison(first, last, why)
            self._dropped = last
            self.recover()
            self._skip_dropped()

    def _skip_dropped(self) -> None:
        """The timeline goes on behind the work that was dropped. Who was interrupted before it comes here again."""
        if self.timeline._cell[0] < self._dropped:
            self.signal_set(self.timeline.va, self._dropped)
        self._dropped = 0

    def lose(self, refusal: HcqError) -> None:
        """It could not be rebuilt: from now on it refuses, and what it holds is given back when it closes."""
        self.is_lost = True
        self.die(f"it could not be rebuilt after a fault ({str(refusal).rstrip('.')})")

    # ------------------------------------------------------------ reset

    def reset(self) -> None:
        """Drop all work in flight (it counts as failed) and make the device usable again.

        Work that does not stop within GRACE_MS, such as a kernel that never returns, is abandoned where the
        device can start anew beside it: see `replace`.

        Raises  WaitTimeout when it neither stops nor can be left; DriverError when the kernel driver refuses to end
                it, and the next use of the device tries again
        """
        self.check_alive()
        self.restart_timeline()
        if self.timeline.value >= self.timeline.submitted:
            return
        try:
            self.abandon()
            self._await_end(min(self.config.timeout_ms, GRACE_MS))
            self.note_fault(is_asked_for=True)
        finally:
            self.resume()

    def _await_end(self, limit_ms: float) -> None:
        """Return once no work runs any more that was in flight."""
        end = time.monotonic() + limit_ms / 1000
        while not self.fault() and self.timeline.value < self.timeline.submitted:
            if time.monotonic() > end:
                with self.lock:
                    cost = self.replace()
                if not cost:
                    raise self.timeline.timeout(self.timeline.submitted, limit_ms, self.pending())
                print(f"hcq: {cost}", file=sys.stderr)
                break
            time.sleep(0.001)

    # ------------------------------------------------------------ the end

    def rests_within(self, limit_ms: float) -> bool:
        """Wait for what is in flight now, or until the device stops on a fault; False when that took too long."""
        end, value = time.monotonic_ns() + int(limit_ms * 1e6), self.timeline.submitted
        while self.timeline.value < value and not self.fault():
            left = end - time.monotonic_ns()
            if left <= 0:
                return False
            self.signal_wait(self.timeline.va, value, min(left, SLICE_NS))
        return True

    def close(self, timeout_ms: float | None = None) -> None:
        """Wait for work in flight, end threads and queues, give memory back. Closing twice is fine.

        timeout_ms  how long to wait for the work; default HCQ_TIMEOUT_MS, and not at all for work that has had that
                    already: a wait of that length ended without any progress
        What the device's buffers held goes with it: read results before. Signals and completions keep theirs.
        """
        if timeout_ms is not None:
            timeout_ms = checks.milliseconds(f"{self.name}.close", timeout_ms)
        if not self.is_open or (self.dead and not self.is_lost):
            return
        limit_ms = self.config.timeout_ms if timeout_ms is None else timeout_ms
        known = len(self.failures)  # faults that were already reported
        is_done = self.is_lost
        try:
            if timeout_ms is None and not is_done and self._is_stuck():
                print(
                    f"hcq: closing {self.name}: a wait of {limit_ms:g} ms saw no progress, so it is not waited for "
                    f"again. {self.pending()}",
                    file=sys.stderr,
                )
            elif not is_done:
                self.wait_cell(self.timeline, self.timeline.submitted, limit_ms)
                is_done = True
        except HcqError as error:
            if self.dead == CLOSED:
                return  # another thread was faster
            print(f"hcq: closing {self.name}: {error}", file=sys.stderr)
        for _, _, why in self.failures[known:]:
            print(f"hcq: closing {self.name}: {why}", file=sys.stderr)
        self.end(CLOSED, min(limit_ms, STOP_MS if is_done else STOP_BUSY_MS))

    def _is_stuck(self) -> bool:
        """Whether nothing has become of the work in flight since a wait of the default deadline ended."""
        return self._stuck == self.timeline.value + 1 <= self.timeline.submitted and not self.fault()

    def note_late(self, next_to_finish: int, limit_ms: float) -> None:
        """A wait ended at its deadline, and when it began this submission was the next to finish."""
        if next_to_finish != self.timeline.value + 1:
            return
        if limit_ms >= self.config.timeout_ms:
            self._stuck = next_to_finish
        if limit_ms >= min(TOLD_MS, self.config.timeout_ms):
            self._told = next_to_finish

    def hangs_as_told(self) -> bool:
        """Whether a wait has said that the work in flight hangs, and nothing of it has finished since."""
        return self._told == self.timeline.value + 1 <= self.timeline.submitted and not self.fault()

    def end(self, why: str, timeout_ms: float) -> None:
        """Die, and stop what runs. Work that is still in flight stays unfinished."""
        with self.lock:
            if self.dead and not self.is_lost:
                return  # another thread was faster
            self.observers = tuple([observer for observer in self.observers if observer.closing()])
            self.is_open = self.is_lost = False
            self.die(why)
        try:
            self.is_stopped = self.stop(timeout_ms)
            if self.is_stopped:
                self.recent.clear()  # they hold programs, and those hold code
        finally:
            open_devices.unregister(self)
