"""One emulated NVIDIA GPU at work: its doorbell, its channels, and the thread that does what they ask.

In       tokens stored to the usermode page; groups and channels that the resource manager makes
Out      work done by the channels, in turns; Xid lines in the kernel's log
Changes  memory, through the channels
Next     card.py (what the GPU is), ../worker.py (the thread), pbdma.py (what a turn is), rm_objects.py
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcq.emu.kernel import Process
from hcq.emu.nv.card import Card
from hcq.emu.nv.channel import Channel, Group, Setup
from hcq.emu.nv.copy_processor import CopyProcessor
from hcq.emu.nv.engine import Engine
from hcq.emu.nv.errors import ChannelError, CopyError, Removal
from hcq.emu.nv.pbdma import Pbdma, State
from hcq.emu.nv.spec import Spec
from hcq.emu.nv.watch import ChannelWatch
from hcq.emu.worker import Worker
from hcq.events.kernel_observer import KernelObserver
from hcq.nv.abi.gpfifo import USERMODE_DOORBELL, USERMODE_TIME_0

UNRUNG = 0  # what the doorbell holds until a token is stored
FIRST_CHANNEL = 8
STOP_SECONDS = 0.1  # how long a channel that is to be stopped may go on; how long RM waits is in its firmware
COPY_XIDS = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))


class EmulatedGpu(Card, Worker[Channel]):
    """One GPU and its thread. log: what takes a line of the kernel's log."""

    def __init__(self, spec: Spec, index: int, minor: int, log: Callable[[str], None]) -> None:
        Card.__init__(self, spec, index, minor)
        Worker.__init__(self, spec.chip.arch, self.random)
        self._write = log
        self._shader: Any = None  # the shader cores with their caches, made with the first compute engine
        self.observers: list[KernelObserver] = []
        self.groups: list[Group] = []
        self.fronts: dict[int, Pbdma] = {}  # of the channels, by token

    # ------------------------------------------------------------ groups and channels

    def add_group(self, engine_type: int, is_implicit: bool = False) -> Group:
        """is_implicit: made for one channel that was given none."""
        group = Group(engine_type, is_implicit)
        with self.visit():
            self.groups.append(group)
        return group

    def remove_group(self, group: Group) -> None:
        """End a channel group, in the middle of what its channels do."""
        for channel in group.channels:
            channel.is_ending = True
        with self.visit():
            self.groups.remove(group)

    def add_channel(self, group: Group, class_id: int, setup: Setup) -> Channel:
        """A new channel with a number of its own."""
        with self.visit():
            used = {front.channel.number for front in self.fronts.values()}
            number = next(n for n in range(FIRST_CHANNEL, 1 << 12) if n not in used)
            channel = Channel(self, group, number, class_id, setup)
            group.channels.append(channel)
            watch = ChannelWatch(self.observers, setup.process, channel)
            self.fronts[channel.token] = Pbdma(channel, self._engine, watch)
        return channel

    def remove_channel(self, channel: Channel) -> None:
        """End a channel, in the middle of what it does."""
        channel.is_ending = True
        with self.visit():
            self.fronts.pop(channel.token, None)
            channel.group.channels.remove(channel)
            if channel.group.is_implicit:
                self.groups.remove(channel.group)

    def stop_channel(self, channel: Channel) -> None:
        """Take a channel off the runlist for good, once it is idle or that took too long; its notifier says so.

        That is said of every channel, and over what the notifier said before. (uvm_user_channel_stop, kchannelNotifyRc)
        """
        deadline = time.monotonic() + STOP_SECONDS
        while self._has_work(channel) and time.monotonic() < deadline:
            time.sleep(0.0005)
        is_interrupted, channel.is_ending = channel.is_ending, True
        with self.visit():
            channel.is_ending = is_interrupted
            if channel.token in self.fronts:
                self.fronts[channel.token].save()
            channel.notify(Removal("UVM stopped it"))

    def _has_work(self, channel: Channel) -> bool:
        if channel.group.error is not None or not channel.group.is_scheduled or channel.is_stopped:
            return False
        is_rung = channel.is_rung or int(self.registers[USERMODE_DOORBELL // 4]) != UNRUNG
        return is_rung or bool(channel.pending)

    def _engine(self, channel: Channel, class_id: int) -> Engine:
        """A channel's own state of the engine with this class."""
        if class_id == self.chip.engines.copy:
            return CopyProcessor(channel, class_id)
        # the interpreter of kernels comes with these: only who launches one waits for it
        from hcq.emu.nv.compute_processor import ComputeProcessor
        from hcq.emu.nv.launch import Shader

        if self._shader is None:
            self._shader = Shader(self.spec)
        return ComputeProcessor(channel, class_id, self._shader)

    # ------------------------------------------------------------ the thread

    def is_used(self) -> bool:
        return bool(self.fronts)

    def ready(self) -> list[Channel]:
        now = self.time_ns()
        self.registers[USERMODE_TIME_0 // 4 : USERMODE_TIME_0 // 4 + 2] = (now & 0xFFFFFFFF, now >> 32)
        self._look_at_doorbell()
        return [
            channel
            for group in self.groups
            if group.is_scheduled and group.error is None
            for channel in group.channels
            if not channel.is_stopped and (channel.is_rung or channel.pending)
        ]

    def _look_at_doorbell(self) -> None:
        """One register takes the tokens of all channels, and one that is stored again before it was seen is lost: so a
        ring makes the GPU look at every GP_PUT. A token that no channel has is dropped, as hardware does."""
        token = int(self.registers[USERMODE_DOORBELL // 4])
        if token == UNRUNG:
            return
        self.registers[USERMODE_DOORBELL // 4] = UNRUNG
        if token not in self.fronts:
            self._write(
                f"NVRM: GPU at PCI:{self.pci_name[:-2]}: the doorbell was rung with {token:#x}, no channel's token"
            )
            return
        for front in self.fronts.values():
            front.channel.is_rung = True

    def step(self, channel: Channel) -> bool:
        """A step of its front end or of its engines; an error stops its whole group."""
        if channel.group.error is not None or channel.is_stopped:
            return False
        has_worked = self._step(channel)
        table = channel.table()
        if table is not None:
            table.settle()
        if self.observers:
            front = self.fronts.get(channel.token)
            if front is not None and channel.group.error is None:
                front.watch.after(front.finished)
        return has_worked

    def _step(self, channel: Channel) -> bool:
        try:
            if self.random is not None and channel.pending and self.random.random() < 0.3:
                return channel.finish_one()
            state = self.fronts[channel.token].step() if channel.is_rung else State.IDLE
            if state is not State.WORKED and channel.finish_one():
                return True
            return state is State.WORKED
        except ChannelError as error:
            if (
                channel.is_ending
            ):  # it is stopped or freed, and the kernel it ran was cut short: nobody's error
                channel.is_stopped = True
                return False
            if isinstance(error, CopyError) and channel.group.engine_type in self.copy_engine_types:
                error.xid = COPY_XIDS[self.copy_engine_types.index(channel.group.engine_type)]
            self._stop(channel, error)
        except Exception:
            self._stop(channel, ChannelError(f"the emulator failed: {traceback.format_exc()}"))
        return False

    def _stop(self, channel: Channel, error: ChannelError) -> None:
        """The whole group is dead until it is freed. The log comes first: who sees a notifier finds the line."""
        channel.group.error = error
        if self.observers:
            self.fronts[channel.token].watch.stopped(error)
        self._write(
            f"NVRM: Xid (PCI:{self.pci_name[:-2]}): {error.xid}, {who_is(channel.process)}, "
            f"Ch {channel.number:08x}, {error}"
        )
        for each in channel.group.channels:
            each.notify(error)


def who_is(process: Process) -> str:
    """A channel's process as the kernel's log names it, that made the channel and need not be this one."""
    try:
        name = Path(f"/proc/{process.pid}/comm").read_text(errors="replace").strip()
    except OSError:
        name = "<unknown>"
    return f"pid={process.pid}, name={name}"
