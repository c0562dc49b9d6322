"""An AMD GPU: a compute ring, a copy ring, memory and signals, through /dev/kfd alone.

In       a port; pieces from encode.py and launch.py
Out      work done in submission order by the GPU
Changes  queues, mappings and events of the kernel driver, made when it opens and ended when it closes
Next     rings.py, memory.py, process.py (the parts), hcq/device.py (what all devices share), docs/bringup-amd.md
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from hcq.amd.abi import aql, kfd
from hcq.amd.chip import Chip, arch_of, chip_of
from hcq.amd.doorbells import Doorbells
from hcq.amd.encode import COMPUTE, COPY, RINGS, Encoder, Piece
from hcq.amd.fault import describe_fault, describe_inactive, describe_ring, ring_state
from hcq.amd.graph import AmdGraph
from hcq.amd.hostcall import Hostcall
from hcq.amd.hostcall import size_bytes as hostcall_bytes
from hcq.amd.ioctl import call, counter_ticks_per_ms
from hcq.amd.launch import Scratch
from hcq.amd.link import Linked
from hcq.amd.memory import Allocation, KfdMemory, Place
from hcq.amd.module import AmdModule
from hcq.amd.process import KfdProcess, process_after, process_of
from hcq.amd.program import MAX_GRID
from hcq.amd.ring_sync import Numbered, RingSync, Start
from hcq.amd.rings import AqlRing, Pm4Ring, Ring, SdmaRing
from hcq.amd.topology import Node, read_nodes
from hcq.base import RingState, Sent
from hcq.code import containers
from hcq.command import Command
from hcq.config import Config
from hcq.device import Steps
from hcq.errors import DriverError, HcqError, UsageError
from hcq.gpu.clock import Clock, Reading
from hcq.gpu.device import CELLS_BYTES
from hcq.gpu.host_access import HostAccess
from hcq.gpu.release import do_all, quietly
from hcq.layout import Packet
from hcq.system import native
from hcq.system.port import PAGE_BYTES, Port

RING_FENCE_AT, COPY_FENCE_AT, TIMELINE_AT, QUEUE_AT, SIGNALS_AT = (
    0,
    64,
    128,
    256,
    512,
)  # in the memory of signals
LAST_FENCE = 2**32 - 2  # before it wraps, the device drains and starts again
SLEEP_MS = 20  # at most, before it looks again: wake-ups can be lost
HDP_MEM_FLUSH = 0  # word of the MMIO page
WAVES_PER_SIMD = 16  # at most, of any generation here: so many may ask the host for something at a time
UPLOAD_BYTES, UPLOAD_ALIGNMENT = 4 << 20, 64  # scalar loads fetch up to 64 bytes
SECOND_CONTEXTS = (1, 19)  # the kernel driver's interface that has them
IN_FLIGHT_KEPT = 256  # submissions whose places in the rings are remembered, for reports


class AmdDevice(HostAccess):
    """One GPU."""

    seen_place, hidden_place, stage_place = Place.PUBLIC, Place.PRIVATE, Place.STAGING
    spin_ns = 20_000
    node: Node
    chip: Chip
    process: KfdProcess
    gpu_memory: KfdMemory
    event_id = 0
    doorbells: Doorbells | None = None
    _cells: Allocation
    own_rings = RINGS
    waves_missing = (
        "their registers are in the context save area once the queue is off the GPU, and it is taken off for a "
        "wait that timed out or a fault alone. As root, `umr -O halt_waves -wa` shows them"
    )
    hostcall: Hostcall | None = None  # once a kernel is loaded that may ask the host for something

    def __init__(self, name: str, port: Port | None = None, config: Config | None = None) -> None:
        self.rings: dict[str, Ring] = {}  # before any step: `unwind` asks for them whichever was cut short
        self._ending: list[Ring] = []
        super().__init__(name, port, config)
        self._announce_cells()

    def _announce_cells(self) -> None:
        """Name the driver's own cells: those between the rings, and where writing raises the event."""
        encoder = self.encoder
        for name, va in (
            ("ring fence", encoder.ring_fence_va),
            ("copy fence", encoder.copy_fence_va),
            ("event", encoder.slot_va),
        ):
            for observer in self.observers:
                observer.alloc(va, 8, 8, name)

    # ------------------------------------------------------------ opening

    def open_driver(self) -> None:
        """Step: open /dev/kfd. Raises DriverError for a version of its interface that is not ours."""
        self.process = process_of(self.port)
        self.kfd_fd = self.process.open_kfd(self.port)
        version = call(self.port, self.kfd_fd, kfd.GET_VERSION)
        self.kfd_version = version.major_version, version.minor_version
        if version.major_version != kfd.MAJOR_VERSION:
            raise DriverError(
                f"AMDKFD_IOC_GET_VERSION -> {version.major_version}.{version.minor_version}: this driver speaks "
                f"version {kfd.MAJOR_VERSION}. Use a kernel that does."
            )

    def find_gpu(self) -> None:
        """Step: take the GPU of this number from the topology. Raises UsageError when there are not so many."""
        nodes = read_nodes(self.port)
        index = int(self.name.partition(":")[2] or 0)
        if index >= len(nodes):
            names = ", ".join(arch_of(node.gfx_target_version) for node in nodes) or "none"
            raise UsageError(
                f"{self.name}: the kernel driver shows {len(nodes)} GPU{'s' * (len(nodes) != 1)} ({names}); "
                "the first is AMD:0."
            )
        self.node = nodes[index]
        self.chip = chip_of(self.node.gfx_target_version)
        self.arch = self.chip.arch
        self.is_aql = self.config.amd_queue == "aql" if self.config.amd_queue else self.chip.prefers_aql

    def acquire_vm(self) -> None:
        """Step: give the process's address space on this GPU to the KFD, through the render node."""
        if not self.can_open_again:
            self.process.check_not_evicted(self.node.gpu_id)
        elif self.has_event():
            self.process = process_after(self.port, self.process)
            self.kfd_fd = self.process.open_kfd(self.port)
        self.drm_fd = self.process.render_fd(self.port, self.node.gpu_id, self.node.render_minor)
        try:
            call(self.port, self.kfd_fd, kfd.ACQUIRE_VM, drm_fd=self.drm_fd, gpu_id=self.node.gpu_id)
        except DriverError:
            quietly(lambda: self.process.drop_render_fd(self.port, self.node.gpu_id))
            raise
        self.process.acquired.add(self.node.gpu_id)
        self._begin_owning()
        self.gpu_memory = KfdMemory(self.port, self.kfd_fd, self.drm_fd, self.node.gpu_id)

    def read_apertures(self) -> None:
        """Step: ask where LDS and scratch memory are in the address space of kernels."""
        count = call(self.port, self.kfd_fd, kfd.GET_PROCESS_APERTURES_NEW).num_of_nodes
        layout = kfd.ProcessDeviceApertures
        array = bytearray(4 * layout.length_words * count)
        call(
            self.port,
            self.kfd_fd,
            kfd.GET_PROCESS_APERTURES_NEW,
            kfd_process_device_apertures_ptr=native.address_of(array),
            num_of_nodes=count,
        )
        words = memoryview(array).cast("I")
        entries = [
            layout.decode(words[at : at + layout.length_words])
            for at in range(0, len(words), layout.length_words)
        ]
        found = next((entry for entry in entries if entry.gpu_id == self.node.gpu_id), None)
        if found is None:
            raise DriverError(
                f"AMDKFD_IOC_GET_PROCESS_APERTURES_NEW: no entry for GPU {self.node.gpu_id:#x}. Update the "
                "amdgpu kernel driver."
            )
        self.apertures = found

    def make_events(self) -> None:
        """Step: make the events that wake waits and say what went wrong."""
        self.event_id = self.process.make_events(self.port, self.kfd_fd, self.gpu_memory)

    def map_flush_register(self) -> None:
        """What the host writes to the GPU's memory waits in the host data path until this register is written.

        Without a large BAR there is nothing to flush, and without the register (in virtual machines) nothing to flush
        with: the host then does not write there, and facts() says so. Nor does it where it might read what is old.
        """
        self._flush: memoryview | None = None
        if not self.node.is_vram_public:
            self._begin_access("the host does not see all of the GPU's memory")
            return
        if self.chip.reads_old:
            self._begin_access(
                f"what the host reads of {self.arch}'s memory may be old", "nothing changes that"
            )
            return
        try:
            page = self._own(PAGE_BYTES, Place.MMIO)
        except DriverError as error:
            self._begin_access(f"there is no register to flush the host's stores with ({error})", "see dmesg")
            return
        self._flush = native.view(page.va, PAGE_BYTES).cast("I")
        self._begin_access()

    def make_signals(self) -> None:
        """Step: allocate the cells of signals and the memory that arguments are uploaded to."""
        cells = self.gpu_memory.alloc(CELLS_BYTES, Place.SHARED)
        self._begin_cells(cells, TIMELINE_AT, SIGNALS_AT)
        queue = (
            aql.AmdQueue(  # what a PM4 launch shows kernels that ask for their queue: the apertures are in it
                group_segment_aperture_base_hi=self.apertures.lds_base >> 32,
                private_segment_aperture_base_hi=self.apertures.scratch_base >> 32,
            ).to_bytes()
        )
        self._cells_view[QUEUE_AT : QUEUE_AT + len(queue)] = queue
        self._begin_uploads(UPLOAD_BYTES, Place.SHARED, UPLOAD_ALIGNMENT)
        self.encoder = Encoder(
            self.chip,
            self.is_aql,
            self.node.xccs,
            ring_fence_va=self._cells.va + RING_FENCE_AT,
            copy_fence_va=self._cells.va + COPY_FENCE_AT,
            slot_va=self.process.slot(self.event_id),
            event_id=self.event_id,
        )
        self.scratch: Scratch | None = None
        self._pieces = self._dispatches = 0  # put into rings since it was opened

    def make_rings(self) -> None:
        """Step: create the compute queue and the copy queue."""
        compute = AqlRing if self.is_aql else Pm4Ring
        self.rings = {}
        if self.doorbells is None:
            self.doorbells = Doorbells(self.port, self.kfd_fd)
        for name, kind in ((COMPUTE, compute), (COPY, SdmaRing)):
            self.rings[name] = kind(
                self.port, self.gpu_memory, self.node, self.chip, self.doorbells, self.apertures
            )
            if "push" in self.config.debug:
                self.rings[name].seen = []
        self._sync = RingSync()
        self._before = 0, copy(self._sync)  # a submission, and where the rings stood before it
        self._written = 0  # the last submission that the rings have all of
        self._starts: deque[Start] = deque(maxlen=IN_FLIGHT_KEPT)
        self._cells_view[RING_FENCE_AT : COPY_FENCE_AT + 4] = bytes(COPY_FENCE_AT + 4 - RING_FENCE_AT)

    def read_clocks(self) -> None:
        """Step: compare the GPU's clock with the host's."""
        speed = counter_ticks_per_ms(self.port, self.drm_fd)
        reading = self.read_clock()
        self.clock = Clock(reading.ticks, reading.host_ns, speed)

    def read_clock(self) -> Reading:
        before = time.monotonic_ns()
        counters = call(self.port, self.kfd_fd, kfd.GET_CLOCK_COUNTERS, gpu_id=self.node.gpu_id)
        return Reading(counters.gpu_clock_counter, before, time.monotonic_ns())

    def end_rest(self) -> None:
        """The event, and the doorbells' pages."""
        acts: list[Callable[[], object]] = []
        if self.hostcall is not None:
            acts.append(self.hostcall.end)
        if self.event_id:
            acts.append(lambda: call(self.port, self.kfd_fd, kfd.DESTROY_EVENT, event_id=self.event_id))
        if self.doorbells is not None:
            acts.append(self.doorbells.unmap)
        do_all(acts)

    # ------------------------------------------------------------ memory and signals

    @property
    def peer_id(self) -> int:
        return self.node.gpu_id

    def ring_states(self) -> list[RingState]:
        return [ring_state(name, ring, self.decode) for name, ring in self.rings.items()]

    def graph(self, name: str = "graph") -> Any:
        """A new graph to record into."""
        return AmdGraph(self, self.encoder, name)

    def signal_set(self, va: int, value: int) -> None:
        super().signal_set(va, value)
        call(self.port, self.kfd_fd, kfd.SET_EVENT, event_id=self.event_id)

    def has_event(self) -> bool:
        return self.node.gpu_id in self.process.faults or bool(self.hostcall and self.hostcall.refusal)

    @property
    def can_open_again(self) -> bool:
        """Whether a process that is evicted from a GPU can have a second context there."""
        return self.kfd_version >= SECOND_CONTEXTS

    def _advice(self) -> str:
        if self.is_lost and self.has_event():
            return "What its buffers hold can still be read."
        return super()._advice()

    def pause(self, left_ns: int, pauses: int) -> None:
        if self.hostcall is None or not self.hostcall.look():
            self._sleep(max(1, min(SLEEP_MS, left_ns // 1_000_000)))

    def _sleep(self, timeout_ms: int) -> None:
        """Until something happens on the GPU."""
        try:
            self.process.wait(self.port, self.event_id, timeout_ms)
        except DriverError:
            if not self.dead:  # else another thread has closed the device, and its event is gone
                raise

    # ------------------------------------------------------------ programs

    def load_module(self, image: bytes, name: str, entry: str | None = None) -> AmdModule:
        return AmdModule(self, name, image, Linked(image, self.chip, name, self.node.has_sramecc))

    def take_out(self, image: bytes, name: str, entry: str | None) -> bytes:
        has_sramecc = self.node.has_sramecc
        return containers.taken_out(
            image, name, self.arch, lambda data: Linked.fits(data, self.chip, has_sramecc), entry
        )

    def note_code(self) -> None:
        """New code is in memory: launches that follow must not find what caches knew of the place."""
        self._sync.has_code = True

    @property
    def queue_va(self) -> int:
        """Where kernels that ask for their queue find it."""
        return self._cells.va + QUEUE_AT

    @property
    def bases(self) -> dict[str, int]:
        """Hidden arguments that are the same for all kernels: where memory windows begin, upper halves."""
        return {
            "private_base": self.apertures.scratch_base >> 32,
            "shared_base": self.apertures.lds_base >> 32,
        }

    def scratch_for(self, lane_bytes: int, lanes: int) -> Scratch | None:
        """Scratch memory for waves of this need. It only grows; what it was stays, for recorded work."""
        if not lane_bytes:
            return None
        unit = self.chip.wave_bytes_unit
        wave_bytes = -(-lane_bytes * lanes // unit) * unit
        known = self.scratch
        if known is not None and known.wave_bytes >= wave_bytes:
            return known
        node = self.node
        engines = node.shader_engines
        waves = node.scratch_waves_per_unit * node.compute_units // node.xccs // engines  # of an engine
        size = wave_bytes * waves * engines  # of an XCC
        area = self._own_region(size * node.xccs, Place.PRIVATE)
        made = Scratch(
            area.va, size, wave_bytes, min(waves * engines if self.chip.family < 11 else waves, 0xFFF)
        )
        ring = self.rings[COMPUTE]
        if isinstance(ring, AqlRing):
            with self.lock:
                self.drain(self.timeline.submitted)
                ring.set_scratch(made, unit)
        self.scratch = made
        return made

    # ------------------------------------------------------------ encoding

    def encode(self, what: Command) -> bytes:
        return self.encoder.encode(what)

    def decode(self, words: Sequence[int]) -> list[Packet]:
        return self.encoder.decode(words)

    def finish(self, value: int) -> Piece:
        """What ends a submission, on the ring that it ends on."""
        return self.encoder.finish(self.timeline.va, value, self._sync.active)

    # ------------------------------------------------------------ submitting

    def send(self, words: list[bytes], value: int) -> None:
        if self._abandoned:
            self._rebuild()
        if self._sync.fences >= LAST_FENCE - 2 * len(words) - 2:
            self.commit()
            self.drain(self.timeline.submitted)
            self._cells_view[RING_FENCE_AT : RING_FENCE_AT + 4] = bytes(4)
            self._sync.fences = 0
        rings, wait = self.rings, self._wait_for_room
        self._before = value, copy(self._sync)
        pieces = list(self._sync.pieces(self.encoder, words, self.timeline.va, value))
        self._make_room(pieces)
        self._starts.append(Start(value, {name: ring.put for name, ring in rings.items()}, pieces))
        for _, what in pieces:
            rings[what.ring].write(self._uploaded(what, value), wait)
            self._dispatches += what.dispatches
        self._written = value
        self._pieces += len(pieces)
        self.commit()
        if self.hostcall is not None:
            self.hostcall.wake(self._is_busy)

    def _make_room(self, pieces: Sequence[Numbered]) -> None:
        """Wait for all of it before the first packet: who is interrupted while the ring is full has sent nothing."""
        sizes = dict.fromkeys(self.rings, 0)
        for _, what in pieces:
            sizes[what.ring] += len(what)
        for name, ring in self.rings.items():
            units = ring.most_units(sizes[name])
            if units <= ring.capacity and not ring.has_room(units):
                self._wait_for_room(ring, units)

    def settle(self, value: int) -> Sent:
        if self._before[0] != value or not self.rings:
            return Sent.NOTHING
        if self._written == value:
            self.commit()  # a second time, perhaps: the doorbell takes what the write pointer says
            return Sent.ALL
        if self._starts and self._starts[-1].value == value:
            puts = self._starts[-1].puts
            if any(ring.wptr != puts[name] for name, ring in self.rings.items()):
                self._abandoned = True  # what one ring has of it may wait for what the other has not
                return Sent.A_PART
            self._starts.pop()
            for name, ring in self.rings.items():
                ring.take_back(puts[name])
        self._sync = self._before[1]
        return Sent.NOTHING

    def ring_words(self, words: list[bytes], value: int) -> bytes:
        """Every word that this submission puts into the rings: what orders it and ends it, and blocks it runs."""
        found = copy(self._sync).pieces(self.encoder, words, self.timeline.va, value)
        return b"".join([what.all_words for _, what in found])

    def current_command(self) -> int | None:
        """Which command of the submission that is next to finish the GPU has read up to."""
        value = self.timeline.value + 1
        entry = self.submission(value)
        start = next((one for one in self._starts if one.value == value), None)
        return None if entry is None or start is None else start.command_at(self.rings, entry[1])

    def _uploaded(self, what: Piece, value: int) -> bytes:
        """The packets with the addresses of what was uploaded beside them."""
        if not what.upload:
            return what
        size, uploads = len(what.upload), self.uploads
        start = uploads.take(size, value, self.timeline.value, self._wait_for_uploads)
        uploads.bytes[start : start + size] = what.upload
        va = uploads.va + start
        packets = bytearray(what)
        for at, offset in what.patches:
            packets[at : at + 8] = (int.from_bytes(packets[at : at + 8], "little") | va + offset).to_bytes(
                8, "little"
            )
        return bytes(packets)

    def commit(self) -> None:
        if self._flush is not None:
            self._flush[HDP_MEM_FLUSH] = 1
            # a read comes back when the write before it has arrived
            self._flushed = self._flush[HDP_MEM_FLUSH]
        for ring in self.rings.values():
            ring.commit()

    def _wait_for_room(self, ring: Ring, units: int) -> None:
        self.commit()  # let the GPU work on what is there
        self.wait_for_room(
            lambda: ring.has_room(units), lambda: self._sleep(1), lambda: f"room. {describe_ring(ring)}"
        )

    # ------------------------------------------------------------ faults

    def hostcalls(self) -> Hostcall:
        """What serves waves that ask the host for something; made when a kernel that may do so is loaded."""
        with self.lock:
            if self.hostcall is None:
                packets = 1 << max(self.node.simds * WAVES_PER_SIMD - 1, 63).bit_length()
                area = self._own_region(hostcall_bytes(packets), Place.SHARED)
                self.hostcall = Hostcall(area.va, packets)
            return self.hostcall

    def _is_busy(self) -> bool:
        return not self.dead and self.timeline.value < self._written

    def stopped_on(self) -> str:
        if self.hostcall is not None and self.hostcall.refusal:
            return self.hostcall.refusal
        self._sleep(0)
        known = self.process.faults.get(self.node.gpu_id)
        if known is not None:
            return describe_fault(known, self.describe_address, self.port.kernel_log())
        ring = self.rings.get(COMPUTE)
        if isinstance(ring, AqlRing) and ring.inactive_code:
            return f"the packet processor stopped the AQL queue: {describe_inactive(ring.inactive_code)}"
        return ""

    def make_queues(self) -> None:
        again = (
            f"Open the device again with hcq.open({self.name!r})."
            if self.can_open_again
            else "Restart the process."
        )
        self.process.check_not_evicted(self.node.gpu_id, again)
        if self.hostcall is not None:
            self.hostcall.begin()
        self.make_rings()
        ring = self.rings[COMPUTE]
        if isinstance(ring, AqlRing) and self.scratch is not None:
            ring.set_scratch(self.scratch, self.chip.wave_bytes_unit)

    def end_queues(self) -> None:
        self._ending += self.rings.values()
        self.rings = {}  # who looks at them next must not find their memory gone
        try:
            do_all(ring.destroy for ring in self._ending)
        except HcqError:
            # what a queue may still do, it must not do beside new ones: it is ended before those are made
            self._ending = [ring for ring in self._ending if ring.queue_id >= 0]
            raise
        self._ending = []  # a call that was interrupted before this comes here again

    def leave_queues(self) -> None:
        self.rings, self._ending = {}, []
        self._flush = self.hostcall = None

    def show_words(self, words: list[bytes], value: int) -> list[str]:
        """Every word that went into the rings, what orders them included."""
        lines = [f"submit #{value}"]
        for ring in self.rings.values():
            packets = b"".join(ring.seen or ())
            ring.seen = []
            if packets:
                lines.append(f" {ring.kind} ring, {len(packets) // 4} words")
                lines += [f"  {packet}" for packet in self.decode(memoryview(packets).cast("I"))]
        return lines

    def pending(self) -> str:
        rings = ". ".join(describe_ring(ring) for ring in self.rings.values())
        return f"{super().pending()} {rings}."

    # ------------------------------------------------------------ what there is to know

    def facts(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "arch": self.arch,
            "threads": self.node.compute_units,
            "model": f"AMD {self.arch}, {self.node.compute_units} compute units",
            "queue": "aql" if self.is_aql else "pm4",
            **self.memory_facts(),
            "vram_bytes": self.node.vram_bytes,
            "timeline": self.timeline.va,
            "ring_fence": self._cells.va + RING_FENCE_AT,
            "event_slot": self.process.slot(self.event_id),
            "kfd_version": ".".join(map(str, self.kfd_version)),
            "max_grid": MAX_GRID,
            "max_block": self.chip.max_block,
        }

    def stats(self) -> dict[str, int]:
        return {
            "submissions": self.timeline.submitted,
            "packets": self._pieces,
            "dispatches": self._dispatches,
            "mapped_bytes": self.memory.mapped_bytes,
            **{f"{name}_read": ring.get for name, ring in self.rings.items()},
        }

    steps = Steps["AmdDevice"](
        "open amd device",
        ("open the kernel driver", open_driver),
        ("find the GPU", find_gpu),
        ("acquire its address space", acquire_vm),
        ("read the apertures", read_apertures),
        ("make events", make_events),
        ("map the flush register", map_flush_register),
        ("make signals", make_signals),
        ("create the queues", make_rings),
        ("read the clocks", read_clocks),
    )
