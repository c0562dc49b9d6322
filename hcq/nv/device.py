"""An NVIDIA GPU: a channel for everything, one more for copies of graphs, memory and signals, through RM and UVM alone.

In       a port; pieces from encode.py and launch.py
Out      work done in submission order by the GPU
Changes  objects and mappings of the kernel driver, made when it opens and ended when it closes
Next     gpu.py, channel.py, memory.py, pushbuffer.py (the parts), hcq/device.py (what all devices share)
"""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from hcq import command
from hcq.base import RingState, Sent
from hcq.command import Command
from hcq.device import Steps
from hcq.errors import DeviceFault, DriverError, WaitTimeout
from hcq.gpu.clock import Clock, Reading
from hcq.gpu.device import CELLS_BYTES
from hcq.gpu.host_access import HostAccess
from hcq.gpu.release import do_all
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.nv import fatbin
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.method import Method
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, COPY_SUBCHANNEL, HOST_END, incrementing
from hcq.nv.abi.qmd import ALIGNMENT_BYTES
from hcq.nv.channel import Channel
from hcq.nv.chip import Chip
from hcq.nv.copy_channel import CopyChannel, own_engine
from hcq.nv.decode import decoder
from hcq.nv.encode import Encoder, Piece
from hcq.nv.fault import describe_fault, describe_ring, ring_around
from hcq.nv.gpu import Gpu, gpus_of
from hcq.nv.graph import NvGraph
from hcq.nv.launch import Launcher, Together
from hcq.nv.link import Linked
from hcq.nv.memory import Allocation, NvMemory, Place
from hcq.nv.module import NvModule
from hcq.nv.process import process_of
from hcq.nv.program import MAX_GRID
from hcq.nv.pushbuffer import PUSHBUFFER_BYTES, place, plan
from hcq.nv.rings import GpFifo, segment
from hcq.nv.rm import Rm
from hcq.nv.toolchain.images import loadable
from hcq.signal import CELL_BYTES
from hcq.system import native

# in the memory of signals, a line for each writer; the channel's error notifier has to be at its start
COPY_FENCE_AT, STAMP_AT, TIMELINE_AT, LANE_FENCE_AT, SIGNALS_AT = 256, 320, 384, 448, 512
SETUP_AT = 2048  # of the words that set up the copy channel, behind its error notifier
CLOCK_ROUNDS = 5  # of which the shortest sets the clock
SLEEP_NS = 50_000, 1_000_000  # how long it sleeps first, and at most
# of local memory, of a warp, a TPC and all: inferred from sizes that CUDA's driver was seen to set
LOCAL_UNIT, LOCAL_TPC_UNIT, LOCAL_TOTAL_UNIT = 0x200, 0x8000, 0x20000
WORKSPACE_BYTES = 8  # of a cooperative grid, as cooperative_groups/details/driver_abi.h has it
BOOST_TO_MAX, FOREVER = 0x12, 0xFFFFFFFF  # of PERF_BOOST: as CUDA's driver was seen to ask


def of_gpu(act: Callable[[NvDevice], None]) -> Callable[[NvDevice], None]:
    """A step of what all devices on one GPU share, done by the first of them."""

    def step(device: NvDevice) -> None:
        if not device.gpu.is_ready:
            act(device)

    return step


class NvDevice(HostAccess):
    """One GPU."""

    seen_place, hidden_place, stage_place = Place.VIDEO, Place.PRIVATE, Place.SYSTEM
    spin_ns = 50_000
    own_rings = ("compute", "copy")  # one channel reads both
    waves_missing = (
        "SMs tell of warps only when they stopped one. Of those that run nobody tells but cuda-gdb"
    )
    gpu: Gpu
    gpu_memory: NvMemory
    chip: Chip
    rm: Rm
    channel: Channel
    launcher: Callable[..., Launcher] = Launcher  # what a kernel becomes when it is launched
    copies: CopyChannel | None = None  # made when a graph first needs it
    why_no_copies = ""  # why it cannot be made
    _cells: Allocation
    _is_attaching = False

    @property
    def peer_id(self) -> bytes:
        return self.gpu.uuid

    # ------------------------------------------------------------ opening

    def read_version(self) -> None:
        """Step: ask which release of the kernel driver this is, and take the structures of its interface."""
        self.process = process_of(self.port)
        self.abi = self.process.read_version(self.port)
        if self.abi.note:
            print(f"hcq {self.name}: {self.abi.note}", file=sys.stderr)

    def make_client(self) -> None:
        """Step: make the process's RM client, or take the one there is."""
        self.rm = self.process.client(self.port)

    def find_gpu(self) -> None:
        """Step: take the GPU of this number, of those that can be opened; raises UsageError when there are not so many.

        Who comes first attaches it, step by step, and others wait until that is done.
        """
        limit_ms = self.config.timeout_ms
        self._gpus = gpus_of(self.port)
        if not self._gpus.attaching.acquire(timeout=limit_ms / 1000):
            raise WaitTimeout(
                f"{self.name}: waited {limit_ms} ms for another thread that is attaching a GPU. See the kernel log "
                "for NVRM, or give more time with HCQ_TIMEOUT_MS."
            )
        self._is_attaching = True
        card, fd = self.process.open_card(self.port, self.name, self._gpus.ready)
        self.gpu = self._gpus.ready.get(int(card.values["gpu_id"])) or Gpu(self.process, card, fd)
        if self.gpu.is_ready:
            self._end_attaching()

    def _end_attaching(self) -> None:
        if self._is_attaching:
            self._is_attaching = False
            self._gpus.attaching.release()

    def pick_classes(self) -> None:
        """Step: take the compute, copy and channel classes that the GPU lists.

        Raises DriverError when it lists none we know.
        """
        if not self.gpu.is_ready:
            self.gpu.pick_classes(self.rm)
        self.chip = self.gpu.chip
        self.arch = self.chip.arch

    def make_vaspace(self) -> None:
        """Step: make the GPU's address space and hand it to UVM, once for all devices on it."""
        if not self.gpu.is_ready:
            self.gpu.make_vaspace(self.rm, self.port)
            self._gpus.ready[self.gpu.gpu_id] = self.gpu
        self._end_attaching()

    def boost_clocks(self) -> None:
        """Without this, short work runs at idle clocks. Not every container lets us ask; then they stay as they are."""
        try:
            self.rm.control(
                self.gpu.subdevice, ControlId.NV2080_CTRL_CMD_PERF_BOOST, flags=BOOST_TO_MAX, duration=FOREVER
            )
            self.why_no_boost = ""
        except DriverError as error:
            self.why_no_boost = str(error)

    def make_signals(self) -> None:
        """Step: allocate the cells of signals and the memory that pushbuffers are written to."""
        gpu = self.gpu
        self.gpu_memory = NvMemory(
            self.port, self.process, self.rm, gpu.device, gpu.path, gpu.uuid, self.process.uvm_fd
        )
        self._begin_owning()
        sees_all = gpu.bar1_bytes >= gpu.ram_bytes > 0
        seen = f"the host sees {gpu.bar1_bytes >> 20} of {gpu.ram_bytes >> 20} MiB of the GPU's memory"
        self._begin_access("" if sees_all else seen)
        self._begin_cells(self.gpu_memory.alloc(CELLS_BYTES, Place.SYSTEM), TIMELINE_AT, SIGNALS_AT)
        self._begin_uploads(PUSHBUFFER_BYTES, self.place, ALIGNMENT_BYTES)
        self._ring = self._own(GpFifo.size_bytes(), self.place)
        self.encoder = Encoder(self.chip, self._cells.va + COPY_FENCE_AT, self._cells.va + STAMP_AT)
        self.copy_encoder = Encoder(self.chip, self._cells.va + LANE_FENCE_AT, self._cells.va + STAMP_AT)
        self.local: tuple[int, int, int] | None = None  # address, bytes for each TPC, bytes for each thread
        self._launches = self._commands = 0  # submitted so far
        self._first: list[Piece] = []  # what the next submission begins with: state of the channel
        self._before = 0, 0, 0  # a submission, and the entries of both rings before it

    def make_channel(self) -> None:
        """Step: make the channel with its engines, and submit what sets them up."""
        self._cells_view[COPY_FENCE_AT : STAMP_AT + CELL_BYTES] = bytes(STAMP_AT + CELL_BYTES - COPY_FENCE_AT)
        gpu = self.gpu
        self.channel = Channel(
            self.gpu_memory, gpu.subdevice, gpu.vaspace, self.chip, gpu.doorbell, self._ring, self._cells
        )
        self._know_ring(self.channel)
        self._first = [self.encoder.setup(), self.encoder.new_code]
        if self.local is not None:
            va, per_tpc, _ = self.local
            self._first.append(self.encoder.local_memory(va, per_tpc, self.gpu.tpc_count))

    def _know_ring(self, channel: Channel) -> None:
        """How a channel's ring learns what was read, and whether its doorbell may overtake a store."""
        timeline, cell = self.timeline, self.timeline._cell

        def passed() -> int:
            value: int = cell[0]
            return value if value <= timeline.submitted else 0  # a stray store into it is not progress

        channel.fifo.passed = passed
        channel.fifo.reads_put_back = self.gpu.reads_put_back

    def has_copy_channel(self) -> bool:
        """Whether copies can run beside kernels: makes their channel when first asked, or says in facts() why not."""
        if self.copies is None and not self.why_no_copies:
            with self.lock:
                self._begin_copies()
        return self.copies is not None

    def _begin_copies(self) -> None:
        try:
            engine = own_engine(self.rm, self.gpu.subdevice)
        except DriverError as error:
            self.why_no_copies = str(error)
            return
        if not engine:
            self.why_no_copies = "every copy engine shares the graphics runlist"
            return
        ring = self._own(GpFifo.size_bytes(), self.place)
        notifier = self._own(2 * SETUP_AT, Place.SYSTEM)
        self._make_copies = functools.partial(self._make_copy_channel, engine, ring, notifier)
        self._make_copies()

    def _make_copy_channel(self, engine: int, ring: Allocation, notifier: Allocation) -> None:
        """A channel, and its first words: what its subchannel is. They stay in memory for the next one."""
        gpu = self.gpu
        self._cells_view[LANE_FENCE_AT : LANE_FENCE_AT + CELL_BYTES] = bytes(CELL_BYTES)
        made = CopyChannel(
            engine, self.gpu_memory, gpu.subdevice, gpu.vaspace, self.chip, gpu.doorbell, ring, notifier
        )
        self._know_ring(made)
        words = self.copy_encoder.setup_copies()
        native.write(notifier.va + SETUP_AT, words, len(words))
        made.fifo.write([segment(notifier.va + SETUP_AT, len(words) // 4)], lambda count: None)
        made.fifo.commit()
        self.copies = made

    @property
    def _channels(self) -> list[Channel]:
        return [self.channel] if self.copies is None else [self.channel, self.copies]

    def probe_channel(self) -> None:
        """The first submissions: nothing but a signal. They show that the channel runs, before any engine is asked."""
        cell = self._cells.va + STAMP_AT
        view = self._cells_view[STAMP_AT : STAMP_AT + CELL_BYTES].cast("Q")
        found: list[tuple[int, Clock]] = []  # how long it took, and what both clocks showed meanwhile
        for value in range(1, CLOCK_ROUNDS + 1):
            before = time.monotonic_ns()
            self._put([self.encoder.encode(command.Signal(cell, value))], 0)
            seen = self.signal_wait(cell, value, self.config.timeout_ms * 1_000_000)
            after = time.monotonic_ns()
            if fault := self.fault():
                raise DeviceFault(f"the first submission: {fault}.")
            if seen < value:
                raise WaitTimeout(
                    f"the first submission: waited {self.config.timeout_ms} ms for its signal. "
                    f"{describe_ring(self.channel)}. See the kernel's log for lines with NVRM."
                )
            found.append((after - before, Clock(view[1], (before + after) // 2)))
        self.clock = min(found)[1]
        self._launches = self._commands = 0
        view[0] = view[1] = 0

    def read_clock(self) -> Reading:
        """PTIMER, which semaphores are stamped with, too."""
        before = time.monotonic_ns()
        said = self.rm.control(self.gpu.subdevice, ControlId.NV2080_CTRL_CMD_TIMER_GET_TIME)
        return Reading(said.values["time_nsec"], before, time.monotonic_ns())

    def end_rest(self) -> None:
        """The ring's memory is about to go."""
        if hasattr(self, "channel"):
            for channel in self._channels:
                channel.fifo.detach()

    def unwind(self) -> None:
        super().unwind()
        gpu = getattr(self, "gpu", None)
        if gpu is not None and not gpu.is_ready:
            gpu.give_up(self.port)
        self._end_attaching()

    # ------------------------------------------------------------ memory and signals

    def ring_states(self) -> list[RingState]:
        found = []
        for name, channel in zip(("main", "copy"), self._channels):
            fifo = channel.fifo
            shown = "nothing: all segments are read" if fifo.get == fifo.put else repr(fifo.entry_at_get())
            around = ring_around(fifo, self.uploads, self.decode)
            found.append(RingState(f"{name} ({fifo.kind})", fifo.put, fifo.get, fifo.entries, shown, around))
        return found

    def graph(self, name: str = "graph") -> Any:
        """A new graph to record into."""
        return NvGraph(self, name)

    def has_event(self) -> bool:
        copies = self.copies
        return self.channel.is_stopped or (copies is not None and copies.is_stopped)

    def pause(self, left_ns: int, pauses: int) -> None:
        first, longest = SLEEP_NS
        time.sleep(min(first << min(pauses, 10), longest, left_ns) / 1e9)

    # ------------------------------------------------------------ programs

    def load_module(self, image: bytes, name: str, entry: str | None = None) -> NvModule:
        runs_ptx = self.port.runs_ptx
        bundle = loadable(image, self.arch, name, runs_ptx)
        return NvModule(self, name, image, Linked(bundle, entry, self.chip, name, keeps_ptx=runs_ptx))

    def take_out(self, image: bytes, name: str, entry: str | None) -> bytes:
        return fatbin.opened(image, self.arch, name, entry)

    def note_code(self) -> None:
        """New code is in memory: launches that follow must not find what caches knew of the place."""
        with self.lock:
            if self.encoder.new_code not in self._first:
                self._first.append(self.encoder.new_code)

    def provide_local(self, thread_bytes: int) -> None:
        """Have local memory for threads of this need."""
        with self.lock:
            self._provide_local(thread_bytes)

    def workspace(self, name: str) -> tuple[Together, Buffer]:
        """Where the blocks of a cooperative grid meet: its size and a counter, which every launch sets back to 0."""
        # as large as a semaphore of the host
        buffer = self.alloc(2 * WORKSPACE_BYTES, name=f"{name} workspace")
        return Together(buffer.address, self.encoder.store(buffer.address, WORKSPACE_BYTES)), buffer

    def _provide_local(self, thread_bytes: int) -> None:
        """Local memory for threads of this need. It only grows; what it was stays, for work in flight.

        The caller holds the lock.
        """
        if not thread_bytes or (self.local is not None and self.local[2] >= thread_bytes):
            return
        warp = -(-thread_bytes * 32 // LOCAL_UNIT) * LOCAL_UNIT
        warps = self.gpu.max_warps * self.chip.sms_per_tpc
        per_tpc = -(-warp * warps // LOCAL_TPC_UNIT) * LOCAL_TPC_UNIT
        total = -(-per_tpc * self.gpu.tpc_count // LOCAL_TOTAL_UNIT) * LOCAL_TOTAL_UNIT
        area = self._own_region(total, Place.PRIVATE)
        self._first.append(self.encoder.local_memory(area.va, per_tpc, self.gpu.tpc_count))
        self.local = area.va, per_tpc, thread_bytes

    # ------------------------------------------------------------ encoding

    def encode(self, what: Command) -> bytes:
        return self.encoder.encode(what)

    def own_bytes(self, packet: Packet, ring: str) -> bytes:
        """A method gets a header of its own: the host's, or to the engine of the ring."""
        if not isinstance(packet, Method):
            return packet.to_bytes()
        engine = COPY_SUBCHANNEL if ring == "copy" else COMPUTE_SUBCHANNEL
        return incrementing(0 if packet.at < HOST_END else engine, packet).to_bytes()

    def decode(self, words: Sequence[int]) -> list[Packet]:
        return decoder(self.arch)(words)

    def finish(self, value: int) -> Piece:
        """What ends a submission."""
        return self.encoder.finish(self.timeline.va, value)

    # ------------------------------------------------------------ submitting

    def _pieces(self, words: Sequence[bytes], value: int) -> list[Piece]:
        """A submission with what comes before and after it."""
        plain = [what if isinstance(what, Piece) else Piece(what) for what in words]
        return [*self._first, *plain, self.finish(value)]

    def ring_words(self, words: list[bytes], value: int) -> bytes:
        return b"".join(self._pieces(words, value))

    def send(self, words: list[bytes], value: int) -> None:
        if self._abandoned:
            self._rebuild()
        self._before = value, self.channel.fifo.put, 0 if self.copies is None else self.copies.fifo.put
        self._put(self._pieces(words, value), value)
        self._first = []

    def settle(self, value: int) -> Sent:
        number, *before = self._before
        if number != value:
            return Sent.NOTHING
        fifos = [channel.fifo for channel in self._channels]
        # a ring that has nothing of it, or that the GPU may read all of
        shown = [fifo.put != put and fifo.is_visible(put) for fifo, put in zip(fifos, before)]
        if not any(shown):
            for fifo, put in zip(fifos, before):
                fifo.take_back(put)
            return Sent.NOTHING
        if not all(is_shown or fifo.put == put for is_shown, fifo, put in zip(shown, fifos, before)):
            self._abandoned = True  # what one ring has of it may wait for what the other has not
            return Sent.A_PART
        self.commit()  # a second time, perhaps: the doorbell only makes the GPU look
        self._first = []
        return Sent.ALL

    def _put(self, pieces: list[Piece], value: int) -> None:
        """Pieces into the pushbuffer, their segments into the GPFIFO, and the doorbell."""
        copying = [entry for what in pieces if what.is_free for entry in what.entries]
        if copying:
            pieces = [what for what in pieces if not what.is_free]
        how = plan(pieces)
        uploads = self.uploads
        at = uploads.take(how.size_bytes, value, self.timeline.value, self._wait_for_uploads)
        va = uploads.va + at
        placed = place(pieces, how, va)
        uploads.bytes[at : at + how.size_bytes] = placed.image
        blocks = iter([what.entries for what in pieces if what.entries])
        entries: list[int] = []
        for offset, size in placed.runs:
            if size:
                entries.append(segment(va + offset, size))
            entries += next(blocks, ())
        fifo, copies = self.channel.fifo, self.copies
        if copying and copies is not None:
            # room in both before the first entry: who is interrupted while one is full has sent nothing
            if not fifo.has_room(len(entries)):
                self._wait_for_room(len(entries))
            copies.fifo.write(copying, self._wait_for_copies)
            if value:
                copies.fifo.mark(value)
        fifo.write(entries, self._wait_for_room)
        if value:
            fifo.mark(value)
        if copying:
            self.commit()
        else:
            fifo.commit()
        self._commands += len(pieces)
        self._launches += sum([what.launches for what in pieces])

    def commit(self) -> None:
        for channel in self._channels:
            channel.fifo.commit()

    def _wait_for_copies(self, count: int) -> None:
        if self.copies is not None:
            self._wait_in(self.copies, count)

    def _wait_for_room(self, count: int) -> None:
        self._wait_in(self.channel, count)

    def _wait_in(self, channel: Channel, count: int) -> None:
        fifo = channel.fifo
        fifo.commit()  # let the GPU work on what is there
        self.wait_for_room(
            lambda: fifo.has_room(count),
            lambda: time.sleep(SLEEP_NS[0] / 1e9),
            lambda: f"room. {describe_ring(channel)}",
        )

    # ------------------------------------------------------------ faults

    def stopped_on(self) -> str:
        for channel in self._channels:
            error = channel.error()
            if error is not None:
                return describe_fault(channel, error, self.describe_address, self.port.kernel_log())
        return ""

    def end_queues(self) -> None:
        if hasattr(self, "channel"):
            do_all(channel.destroy for channel in self._channels)

    def make_queues(self) -> None:
        self.make_channel()
        if self.copies is not None:
            self._make_copies()

    def leave_queues(self) -> None:
        for channel in self._channels:
            channel.leave()

    def pending(self) -> str:
        rings = ". ".join(map(describe_ring, self._channels))
        return f"{super().pending()} {rings}."

    # ------------------------------------------------------------ what there is to know

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arch": self.arch,
            "threads": self.gpu.sm_count,
            "model": f"{self.gpu.name}, {self.gpu.sm_count} SMs",
            **self.memory_facts(),
            **({"why_no_boost": self.why_no_boost} if self.why_no_boost else {}),
            **({"why_no_copy_channel": self.why_no_copies} if self.why_no_copies else {}),
            "vram_bytes": self.gpu.ram_bytes,
            "timeline": self.timeline.va,
            "copy_fence": self._cells.va + COPY_FENCE_AT,
            "stamp": self._cells.va + STAMP_AT,
            "lane_fence": self._cells.va + LANE_FENCE_AT,
            "driver": self.abi.version,
            "max_grid": MAX_GRID[0],
            "max_block": self.chip.max_block,
            "sm_version": f"{self.gpu.sm_version:#x}",
            "sass_version": f"{self.chip.sass_version:#x}",
        }

    def stats(self) -> dict[str, int]:
        return {
            "submissions": self.timeline.submitted,
            "packets": self._commands,
            "dispatches": self._launches,
            "mapped_bytes": self.gpu_memory.mapped_bytes,
            "segments": self.channel.fifo.put,
        }

    steps = Steps["NvDevice"](
        "open nvidia device",
        ("read the driver's version", read_version),
        ("create a client", make_client),
        ("find the GPU", find_gpu),
        ("attach the GPU", of_gpu(lambda device: device.gpu.attach(device.port))),
        ("create the device", of_gpu(lambda device: device.gpu.make_device(device.rm))),
        ("ask for UUID and sizes", of_gpu(lambda device: device.gpu.ask(device.rm))),
        ("pick classes", pick_classes),
        ("map the doorbell", of_gpu(lambda device: device.gpu.map_doorbell(device.rm))),
        ("register with UVM", of_gpu(lambda device: device.gpu.register(device.port))),
        ("create the address space", make_vaspace),
        ("ask for full clocks", boost_clocks),
        ("make signals", make_signals),
        ("create the channel", make_channel),
        ("probe the channel", probe_channel),
    )
