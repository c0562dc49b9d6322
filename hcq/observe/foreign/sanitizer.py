"""HCQ_SANITIZE for a foreign program: what an emulated GPU finds wrong in its kernels.

In       faults of the kernels of a ForeignDevice; its memory, as its calls of the kernel driver show it
Out      a line for each set of instructions; `findings`, in order
Changes  tells the device's other observers of each finding
Next     hcq/observe/sanitizer.py (the sister), hcq/observe/kernel_findings.py (the words), session.py (who hears)

A buffer is what the kernel driver mapped. Memory that is not mapped stops a kernel; memory of another buffer is found
where an access's pointer came from an argument.
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.code.used_pages import used
from hcq.events import kernel_touches, known_memory
from hcq.events.foreign_devices import ForeignBuffer, ForeignDevice, ForeignObserver, ForeignProgram
from hcq.events.kernel_faults import KernelFault, Site
from hcq.events.kernel_touches import Touches
from hcq.events.known_memory import KnownMemory, Stretch
from hcq.events.unwritten_memory import UnwrittenMemory
from hcq.observe.foreign.runtime_log import RuntimeLog
from hcq.observe.foreign.stream_order import StreamOrder, Work
from hcq.observe.ignored import Ignored
from hcq.observe.kernel_findings import Found, KernelFindings, joined

NEAR_BYTES = 1 << 16  # so far behind a buffer an address is said by its distance


class ForeignSanitizer(ForeignObserver):
    """What is found in the kernels of one device.

    say    takes a line for each finding; note: the finding as data
    races      between its launches, too
    unwritten  what nobody wrote of the memory of the process's GPUs, where somebody wants to know
    """

    def __init__(
        self,
        device: ForeignDevice,
        say: Callable[[str], None],
        ignored: Ignored,
        note: Callable[[Found], None],
        races: bool = False,
        unwritten: UnwrittenMemory | None = None,
    ) -> None:
        self.device, self.say, self.note = device, say, note
        self.known = KernelFindings(device.name, self._buffer_at, ignored)
        self._arguments: dict[int, tuple[int, int] | None] = {}  # by where code begins: KnownMemory.arguments
        self._log: RuntimeLog | None = None  # once a kernel is launched
        self._end = known_memory.listen(self._known)
        self._unlisten = kernel_touches.listen(self._touched) if races else None
        self._unwritten = unwritten

    def load(self, program: ForeignProgram) -> None:
        self.known.load(
            program.code_va, program.name, lambda pc: joined(program.locate(pc), program.caller(pc))
        )
        self._arguments[program.code_va] = program.kernarg_place

    def alloc(self, buffer: ForeignBuffer) -> None:
        if self._unwritten is not None and buffer.is_new:
            self._unwritten.fresh(buffer.va, buffer.size_bytes)

    def free(self, buffer: ForeignBuffer) -> None:
        if self._unwritten is not None:
            self._unwritten.drop(buffer.va)

    def kernel_fault(self, entry: int, fault: KernelFault) -> None:
        found = self.known.take(entry, fault)
        if found is None:
            return
        device, finding = self.device, found.finding
        self.say(f"hcq: {device.name} of process {device.client.pid}: {finding.level} {finding}")
        self.note(found)
        for one in device.observers:
            one.found(found.as_fields())

    def _known(self, pid: int, address: int) -> KnownMemory | None:
        """From a thread of an emulated GPU, as a launch begins."""
        if pid != self.device.client.pid:
            return None
        if address not in self._arguments:  # such as the runtime's own copies: what they store is written
            is_ours = self._unwritten is not None and self.device.find(address) is not None
            return KnownMemory((), (), (), None, self._unwritten) if is_ours else None
        live = sorted(Stretch(one.va, one.end) for one in list(self.device.live.values()))
        freed = sorted(Stretch(one.va, one.end) for one in list(self.device.freed))
        gone = [
            one for one in freed if not any(one.start < other.end and other.start < one.end for other in live)
        ]
        self._note_the_hosts()
        given_back = self._given_back(self._arguments[address])
        if not given_back:
            return KnownMemory(tuple(live), tuple(gone), (), self._arguments[address], self._unwritten)
        kept = tuple(one for one in live if one not in given_back)
        closed = tuple(sorted({*gone, *given_back}))
        return KnownMemory(kept, closed, given_back, self._arguments[address], self._unwritten)

    def _note_the_hosts(self) -> None:
        """Pages of the GPU's memory that the process has touched count as written: nobody sees its stores."""
        if self._unwritten is None:
            return
        try:
            pages = open(f"/proc/{self.device.client.pid}/pagemap", "rb", buffering=0)
        except OSError:
            return
        with pages:
            for one in list(self.device.live.values()):
                if self._unwritten.has(one.va):
                    for start, end in used(pages, one.va, one.end):
                        self._unwritten.written(start, end - start)

    def _given_back(self, place: tuple[int, int] | None) -> tuple[Stretch, ...]:
        """Memory that is mapped, and that the program had given back to a pool when it launched this."""
        registers = known_memory.registers()
        if place is None or len(registers) < place[0] + 2:
            return ()
        low, high = registers[place[0] : place[0] + 2]
        found = [(at, self._size_at(at)) for at in sorted(self._runtime().given_back(low | high << 32))]
        return tuple(Stretch(at, at + size) for at, size in found if size)

    def _runtime(self) -> RuntimeLog:
        if self._log is None:
            order = StreamOrder(self.device.client.read) if self._unlisten is not None else None
            self._log = RuntimeLog(self.device.client.pid, self._size_at, order)
        return self._log

    def _touched(self, pid: int, entry: int, touches: Touches) -> None:
        """From a thread of an emulated GPU, as a launch ends."""
        place, given = self._arguments.get(entry), known_memory.registers()
        if pid != self.device.client.pid or place is None or len(given) < place[0] + 2:
            return
        low, high = given[place[0] : place[0] + 2]
        for one in self._runtime().touched(low | high << 32, entry, touches):
            sites = tuple(_site(work, number) for work, number in zip((one.one, one.other), one.numbers))
            what = "two works of different streams at one place, with nothing that orders them:"
            self.kernel_fault(entry, KernelFault("unordered-launches", what, "global", one.address, sites))

    def _size_at(self, address: int) -> int:
        """The bytes of the buffer that begins there; 0: none does."""
        buffer = self.device.find(address)
        return buffer.end - buffer.va if buffer is not None and buffer.va == address else 0

    def _buffer_at(self, address: int) -> tuple[str, str] | None:
        buffer = self.device.find(address)
        if buffer is not None:
            return buffer.name, f"byte {address - buffer.va} of {buffer.name or 'a buffer'}"
        for one in reversed(list(self.device.freed)):
            if one.va <= address < one.end:
                return one.name, f"byte {address - one.va} of {one.name or 'a buffer'}, which was freed"
        near = [one for one in list(self.device.live.values()) if one.end <= address < one.end + NEAR_BYTES]
        if not near:
            return None
        last = max(near, key=lambda one: one.end)
        return last.name, f"{address - last.end} bytes behind the end of {last.name or 'a buffer'}"


def _site(work: Work, number: int) -> Site:
    """A launch or a copy, by the range of its touches that has this number."""
    assert work.touches is not None
    place = work.touches.place[number]
    text = work.what or work.touches.text_of(place)
    return Site("writes it" if work.touches.is_write[number] else "reads it", text, place, "", work.entry)
