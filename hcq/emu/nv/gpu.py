"""One emulated NVIDIA GPU: its doorbell page, its channels, and the thread that does their work.

In       tokens stored to the usermode page; groups and channels that the resource manager makes
Out      work done by the channels, in turns; Xid lines in the kernel's log
Changes  memory, through the channels
Next     channel.py (what a turn is), rm.py (who makes channels), spec.py (what the GPU is)

The thread runs while there is a channel. It looks often while there is work, and rarely when there is none. With a
seed channels take turns in random order and pause at random.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from hcq.emu.backing import Backing
from hcq.emu.nv.channel import Channel, Group, State
from hcq.emu.nv.copy_processor import CopyProcessor
from hcq.emu.nv.errors import ChannelError, CopyError
from hcq.emu.nv.host_processor import HostProcessor
from hcq.emu.nv.memory import Bytes, PageTable
from hcq.emu.nv.spec import ENGINE_COPY0, ENGINE_COPY10, ENGINE_GR0, VIDEO_MEMORY_BYTES, Spec
from hcq.nv.abi.gpfifo import USERMODE_BYTES, USERMODE_DOORBELL, USERMODE_TIME_0
from hcq.nv.abi.rm_structs import CardInfoArgs

if TYPE_CHECKING:
    from hcq.emu.nv.engine import Engine
    from hcq.emu.nv.launch import Shader

UNRUNG = 0  # what the doorbell holds until a token is stored
BURST = 64  # steps of one channel before the next has its turn
FIRST_CHANNEL = 8
COPY_XIDS = (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
BUSY_SECONDS = 0.01  # for so long after the last work, the doorbell is watched closely
BUSY_POLL_SECONDS, IDLE_POLL_SECONDS = 0.0001, 0.002
MAX_PAUSE_SECONDS = 0.0005


class EmulatedGpu:
    """One GPU and its thread. `index` is its device instance, `minor` the number of its node."""

    def __init__(self, spec: Spec, index: int, minor: int, log: Callable[[str], None]) -> None:
        self.spec, self.chip, self.index, self.minor = spec, spec.chip, index, minor
        self._write = log
        self.bus = index + 1
        self.gpu_id = self.bus << 8
        self.pci_name = f"0000:{self.bus:02x}:00.0"
        self.uuid = hashlib.sha256(f"emulated {spec.chip.arch} {index}".encode()).digest()[:16]
        self.classes = frozenset(spec.chip.classes())
        copies = range(spec.chip.copy_engines)
        self.copy_engine_types = [ENGINE_COPY0 + n if n < 10 else ENGINE_COPY10 + n - 10 for n in copies]
        self.engine_types = {ENGINE_GR0, *self.copy_engine_types}
        # Hopper's page tables reach 57 bits, the others' 49
        self.highest_va = 1 << (57 if spec.chip.host_address_bits == 57 else 49)
        self.is_attached = False
        self.video_memory_used = 0
        self.random = None if spec.seed is None else random.Random(spec.seed)
        self.usermode = Backing(USERMODE_BYTES)
        self.registers = self.usermode.data.view("<u4")
        self.clock_offset = time.time_ns() - time.monotonic_ns()  # PTIMER is set to the time of day
        self.groups: list[Group] = []
        self.channels: dict[int, Channel] = {}  # by token
        self.lock = threading.Lock()
        self.door = threading.Lock()
        self.visitors = 0  # threads that wait for the lock: the GPU's own lets them in
        self.wake = threading.Event()
        self.thread: threading.Thread | None = None
        self._shader: Shader | None = None  # made by the first compute object

    # ------------------------------------------------------------ what it is

    @property
    def uuid_text(self) -> str:
        text = self.uuid.hex()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def card_info(self) -> CardInfoArgs:
        return CardInfoArgs(
            valid=1,
            pci_info_bus=self.bus,
            pci_info_vendor_id=0x10DE,
            pci_info_device_id=0x2330,
            gpu_id=self.gpu_id,
            reg_size=1 << 24,
            fb_size=VIDEO_MEMORY_BYTES if self.spec.is_video_memory_mappable else 0,
            minor_number=self.minor,
        )

    def time_ns(self) -> int:
        """PTIMER."""
        return time.monotonic_ns() + self.clock_offset

    def token_of(self, number: int, engine_type: int) -> int:
        """The work submit token of a channel; nothing follows from its bits."""
        return (0x40 + engine_type) << 16 | number

    # ------------------------------------------------------------ groups and channels

    def add_group(self, engine_type: int, is_implicit: bool = False) -> Group:
        """is_implicit: made for one channel that was given none."""
        group = Group(engine_type, is_implicit)
        with self.visit():
            self.groups.append(group)
        return group

    def remove_group(self, group: Group) -> None:
        for channel in group.channels:
            channel.is_ending = True
        with self.visit():
            self.groups.remove(group)

    def add_channel(
        self,
        group: Group,
        class_id: int,
        table: Callable[[], PageTable | None],
        ring: int,
        entries: int,
        userd: Bytes,
        notifier: Backing | None,
    ) -> Channel:
        with self.visit():
            used = {channel.number for channel in self.channels.values()}
            number = next(n for n in range(FIRST_CHANNEL, 1 << 12) if n not in used)
            channel = Channel(self, group, number, class_id, table, ring, entries, userd, notifier)
            group.channels.append(channel)
            self.channels[channel.token] = channel
            if self.thread is None:
                self.thread = threading.Thread(
                    target=self._main, name=f"emulated {self.chip.arch}", daemon=True
                )
                self.thread.start()
        return channel

    def remove_channel(self, channel: Channel) -> None:
        channel.is_ending = True
        with self.visit():
            self.channels.pop(channel.token, None)
            channel.group.channels.remove(channel)
            if channel.group.is_implicit:
                self.groups.remove(channel.group)

    def host_processor(self, channel: Channel) -> HostProcessor:

        return HostProcessor(channel)

    def engine(self, channel: Channel, class_id: int) -> Engine:
        """A channel's own state of the engine with this class."""
        if class_id == self.chip.engines.copy:
            return CopyProcessor(channel, class_id)
        from hcq.emu.nv.compute_processor import ComputeProcessor  # the interpreter of kernels comes with it

        return ComputeProcessor(channel, class_id)

    @property
    def shader(self) -> Shader:
        """The shader cores, with their caches."""
        if self._shader is None:
            from hcq.emu.nv.launch import Shader

            self._shader = Shader(self)
        return self._shader

    # ------------------------------------------------------------ the thread

    def kick(self) -> None:
        """Look at the doorbell now."""
        self.wake.set()

    def visit(self) -> Visit:
        return Visit(self)

    def _main(self) -> None:
        last = time.monotonic()
        while True:
            if self.visitors:
                time.sleep(0.00005)
            with self.lock:
                if not self.channels:
                    self.thread = None
                    return
                self.wake.clear()
                worked = self._turn()
            now = time.monotonic()
            if worked:
                last = now
            if self.random is not None and self.random.random() < 0.1:
                time.sleep(self.random.random() * MAX_PAUSE_SECONDS)
            if not worked:
                self.wake.wait(BUSY_POLL_SECONDS if now - last < BUSY_SECONDS else IDLE_POLL_SECONDS)

    def _turn(self) -> bool:
        now = self.time_ns()
        self.registers[USERMODE_TIME_0 // 4 : USERMODE_TIME_0 // 4 + 2] = (now & 0xFFFFFFFF, now >> 32)
        self._look_at_doorbell()
        channels = [
            channel
            for group in self.groups
            if group.is_scheduled and group.error is None
            for channel in group.channels
            if channel.is_rung or channel.pending
        ]
        burst = BURST
        if self.random is not None:
            self.random.shuffle(channels)
            burst = self.random.randrange(1, 4)
        worked = False
        for channel in channels:
            for _ in range(burst):
                if self.visitors or channel.group.error is not None or not self._step(channel):
                    break
                worked = True
        return worked

    def _look_at_doorbell(self) -> None:
        """One register takes the tokens of all channels, and one that is stored again before it was seen is lost: so a
        ring makes the GPU look at every GP_PUT. A token that no channel has is dropped, as hardware does."""
        token = int(self.registers[USERMODE_DOORBELL // 4])
        if token == UNRUNG:
            return
        self.registers[USERMODE_DOORBELL // 4] = UNRUNG
        if token not in self.channels:
            self._write(
                f"NVRM: GPU at PCI:{self.pci_name[:-2]}: the doorbell was rung with {token:#x}, no channel's token"
            )
            return
        for channel in self.channels.values():
            channel.is_rung = True

    def _step(self, channel: Channel) -> bool:
        try:
            if self.random is not None and channel.pending and self.random.random() < 0.3:
                return channel.finish_one()
            state = channel.step() if channel.is_rung else State.IDLE
            if state is not State.WORKED and channel.finish_one():
                return True
            return state is State.WORKED
        except ChannelError as error:
            if channel.is_ending:  # it is being freed, and the kernel it ran was cut short: nobody's error
                channel.group.error = error
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
        self._write(
            f"NVRM: Xid (PCI:{self.pci_name[:-2]}): {error.xid}, pid={os.getpid()}, name=python, "
            f"Ch {channel.number:08x}, {error}"
        )
        for each in channel.group.channels:
            each.notify(error)


class Visit:
    """The GPU's lock for another thread: the GPU's own ends its burst to let it in."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self.gpu = gpu

    def __enter__(self) -> None:
        with self.gpu.door:
            self.gpu.visitors += 1
        self.gpu.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.gpu.lock.release()
        with self.gpu.door:
            self.gpu.visitors -= 1
