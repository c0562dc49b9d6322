"""HCQ_SANITIZE for a foreign program: what an emulated GPU finds wrong in its kernels.

In       faults of the kernels of a ForeignDevice
Out      a line for each set of instructions; `findings`, in order
Changes  tells the device's other observers of each finding
Next     hcq/observe/sanitizer.py (the sister), hcq/observe/kernel_findings.py (the words), session.py (who hears)
"""

from __future__ import annotations

from collections.abc import Callable

from hcq.events.foreign_devices import ForeignDevice, ForeignObserver, ForeignProgram
from hcq.events.kernel_faults import KernelFault
from hcq.observe.ignored import Ignored
from hcq.observe.kernel_findings import Found, KernelFindings


class ForeignSanitizer(ForeignObserver):
    """What is found in the kernels of one device. say: takes a line for each finding; note: the finding as data."""

    def __init__(
        self,
        device: ForeignDevice,
        say: Callable[[str], None],
        ignored: Ignored,
        note: Callable[[Found], None],
    ) -> None:
        self.device, self.say, self.note = device, say, note
        self.known = KernelFindings(device.name, self._buffer_at, ignored)

    def load(self, program: ForeignProgram) -> None:
        self.known.load(program.code_va, program.name, program.locate)

    def kernel_fault(self, entry: int, fault: KernelFault) -> None:
        found = self.known.take(entry, fault)
        if found is None:
            return
        device, finding = self.device, found.finding
        self.say(f"hcq: {device.name} of process {device.client.pid}: {finding.level} {finding}")
        self.note(found)
        for one in device.observers:
            one.found(found.as_fields())

    def _buffer_at(self, address: int) -> tuple[str, str] | None:
        buffer = self.device.find(address)
        if buffer is None:
            return None
        return buffer.name, f"byte {address - buffer.va} of {buffer.name or 'a buffer'}"
