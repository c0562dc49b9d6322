"""Page faults of amdgpu: the five to ten lines that one fault takes, put together.

In       LogLines
Out      Events of kind "page fault"
Changes  the events that are being put together
Next     hcq/amd/abi/page_fault.py (the status word, clients), read.py (who gives the lines)
Source   gmc_v9_0.c, gmc_v10_0.c, gmc_v11_0.c: *_process_interrupt; gfxhub_v2_0.c and its sisters:
         *_print_l2_protection_fault_status; amdgpu_vm_print_task_info
"""

from __future__ import annotations

import re

from hcq.amd.abi import page_fault
from hcq.amd.abi.page_fault import ProtectionFaultStatus
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import FAULT_SPAN, LogLine

_HEADER = re.compile(
    r"\[(?P<hub>\w{0,8}hub\w{0,4})\]\s*(?P<retry>no-retry |retry )?page fault \(src_id:(?P<src_id>\d{1,5})"
    r"(?:\s+ring:(?P<ring>\d{1,5}))?(?:\s+vmid:(?P<vmid>\d{1,5}))?(?:\s+pasid:(?P<pasid>\d{1,10}))?"
)
_PROCESS = re.compile(
    r"\b(?:for process|in process|Process)\s+(?P<process>.{0,64}?)\s+pid\s+(?P<pid>\d{1,10})"
    r"(?:\s+thread\s+(?P<thread>.{0,64}?)\s+pid\s+(?P<tid>\d{1,10}))?"
)
_ADDRESS = re.compile(
    r"in page starting at address (?P<address>0x[0-9a-fA-F]{1,16})\b"
    r"(?:\s+from (?P<ih>IH )?client (?P<client>0x[0-9a-fA-F]{1,4}|\d{1,5})(?:\s+\((?P<name>[^)]{0,40})\))?)?"
)
_STATUS = re.compile(
    r"(?P<register>(?:GC|MM)?VM_L2_PROTECTION_FAULT_STATUS\w{0,8})\s*:\s*(?P<status>0x[0-9a-fA-F]{1,8})\b"
)
_CLIENT = re.compile(r"Faulty UTCL2 client ID:\s*(?P<name>.{0,40}?)\s*\((?P<cid>0x[0-9a-fA-F]{1,4})\)")
_FIELD = re.compile(
    r"\b(MORE_FAULTS|WALKER_ERROR|PERMISSION_FAULTS|MAPPING_ERROR|RW)\s*:\s*(0x[0-9a-fA-F]{1,8})"
)
_DIE = re.compile(r"cookie node_id (?P<node>\d{1,5}) fault from die (?P<die>[\w.]{1,20})")
ADDRESS_DIGITS = 16  # that the kernel prints
MOST_OPEN = 16  # faults whose lines may stand between each other

# Who asked, by how the client's name begins: what it mostly is, and what to look at.
_HELP = (
    (
        "TCP",
        "a pointer or an index of a kernel: past the end of a buffer, a buffer that was freed, or a bad argument",
        "find the buffer at or before the address, and the kernel that ran (HCQ_TRACE, hcq-trace show)",
    ),
    (
        "SQC (inst)",
        "the code itself: a wrong entry address, or a code object that was freed while its kernel ran",
        "compare the address with where the program was loaded, and look who freed it",
    ),
    (
        "SQC (data)",
        "the address of a kernel's arguments, or a pointer in them that is read as a scalar",
        "look at the kernel argument address of the dispatch, and at what its arguments point to",
    ),
    (
        "CP",
        "an address that the packet processor was given: of a ring, indirect buffer, fence or a queue's own memory",
        "decode the ring and the indirect buffers around their read pointers, and look for the address in them",
    ),
    (
        "SDMA",
        "a copy: source, destination, length, or the fence behind it",
        "decode the copy queue's packets, and compare addresses and lengths with the buffers",
    ),
)
_HELP_MMHUB = (
    "a buffer of the video, display or firmware engines that is gone or not mapped for them",
    "look which buffers were shared with that engine, and when they were freed",
)
_HELP_ELSE = (
    "a buffer that was freed, that is too small, or that was never mapped for this process",
    "find the buffer at or before the address; VMID and PASID say whose address space it is",
)


class AmdFaults:
    """Puts faults together. Lines of several faults may stand between each other."""

    def __init__(self) -> None:
        self.found: list[Event] = []
        self.open: list[Event] = []

    def take(self, line: LogLine) -> bool:
        """Whether the line is one of a fault."""
        text = line.text
        if "hub" in text and (header := _HEADER.search(text)):
            self._header(line, header)
        elif found := _ADDRESS.search(text):
            self._address(line, found)
        elif "FAULT_STATUS" in text and (found := _STATUS.search(text)):
            self._status(line, found)
        elif found := _CLIENT.search(text):
            self._put(line, {"client": found["name"], "cid": int(found["cid"], 16)}, "client")
        elif self.open and (fields := _FIELD.findall(text)):
            named: dict[str, object] = {f"printed_{name.lower()}": int(value, 16) for name, value in fields}
            self._put(line, named, next(iter(named)))
        elif found := _DIE.search(text):
            self._put(line, {"node_id": int(found["node"]), "die": found["die"]}, "die")
        elif self._is_open(line, "pid") and "timeout" not in text and (found := _PROCESS.search(text)):
            self._put(line, _named(found), "pid")
        else:
            return False
        return True

    # -- lines

    def _header(self, line: LogLine, found: re.Match[str]) -> None:
        event = self._begin(line)
        event.fields["hub"] = found["hub"]
        if found["retry"]:
            event.fields["retry"] = found["retry"].strip() == "retry"
        for name in ("src_id", "ring", "vmid", "pasid"):
            if found[name]:
                event.fields[name] = int(found[name])
        if process := _PROCESS.search(line.text):
            event.fields.update(_named(process))
        if rest := _ADDRESS.search(line.text):  # two lines that were pasted as one
            self._address(line, rest)

    def _address(self, line: LogLine, found: re.Match[str]) -> None:
        waiting = [event for event in self._near(line) if "page" not in event.fields]
        event = waiting[0] if waiting else self._begin(line)
        if event.line != line.number:
            event.lines.append(line.number)
        digits = found["address"][2:]
        event.fields["page"] = int(digits, 16)
        if len(digits) < ADDRESS_DIGITS:
            event.notes.append(
                f"the address has {len(digits)} digits of {ADDRESS_DIGITS}: its line may be cut"
            )
        if found["client"]:
            event.fields["ih_client"] = int(found["client"], 16 if found["client"].startswith("0x") else 10)
            if found["name"]:
                event.fields["ih_client_name"] = found["name"]
        if found["ih"]:
            event.fields["generation"] = "gfx9"

    def _status(self, line: LogLine, found: re.Match[str]) -> None:
        status = int(found["status"], 16)
        vmid = int(ProtectionFaultStatus.decode([status]).vmid)
        waiting = [event for event in self._near(line) if "status" not in event.fields]
        same = [event for event in waiting if event.fields.get("vmid") == vmid and "page" in event.fields]
        waiting = same or waiting
        event = waiting[-1] if waiting else self._begin(line)
        if event.line != line.number:
            event.lines.append(line.number)
        register = found["register"]
        event.fields.update(register=register, status=status)
        event.fields.setdefault("hub", "mmhub" if register.startswith("MM") else "gfxhub")
        event.fields["generation"] = "gfx9" if register.startswith("VM") else "gfx10"
        event.fields["last"] = line.number

    def _put(self, line: LogLine, fields: dict[str, object], key: str) -> None:
        """Fields of the fault whose status stood last, or of the newest that has them not yet."""
        waiting = [event for event in self._near(line) if key not in event.fields]
        waiting.sort(key=lambda event: int(event.fields.get("last", 0)))
        event = waiting[-1] if waiting else self._begin(line)
        if event.line != line.number:
            event.lines.append(line.number)
        event.fields.update(fields)

    # -- the faults that are not whole yet

    def _begin(self, line: LogLine) -> Event:
        event = Event("page fault", line.number, when=line.when, device=line.device, lines=[line.number])
        self.found.append(event)
        recent = [one for one in self.open if line.number - one.lines[-1] <= FAULT_SPAN]
        self.open = [*recent, event][-MOST_OPEN:]
        return event

    def _near(self, line: LogLine) -> list[Event]:
        return [
            event
            for event in self.open
            if line.number - event.lines[-1] <= FAULT_SPAN
            and (not line.device or not event.device or line.device == event.device)
        ]

    def _is_open(self, line: LogLine, key: str) -> bool:
        return any(key not in event.fields for event in self._near(line))


def _named(found: re.Match[str]) -> dict[str, object]:
    named: dict[str, object] = {"process": found["process"], "pid": int(found["pid"])}
    if found["tid"]:
        named.update(thread=found["thread"], tid=int(found["tid"]))
    return named


# ------------------------------------------------------------ words


def finish(event: Event) -> None:
    """The sentence of a fault whose lines are all there, and what helps."""
    fields = event.fields
    fields.pop("last", None)
    if fields.get("status") == 0:  # what the kernel prints below it is made of that 0
        fields.pop("client", None)
        fields.pop("cid", None)
        for name in [name for name in fields if name.startswith("printed_")]:
            del fields[name]
    status = ProtectionFaultStatus.decode([fields["status"]]) if fields.get("status") else None
    client = _client(event, status)
    access, why = _access(event, status)
    page = f"the page at {fields['page']:#x}" if "page" in fields else "an unknown page"
    event.sentence = f"page fault: {access} of {page} by {client}"
    if "pid" in fields:
        event.sentence += f", for process {fields['process'] or '(no name)'} (pid {fields['pid']})"
    elif fields.get("pasid"):
        event.sentence += f", for the process with PASID {fields['pasid']}"
    event.sentence += f": {why}"
    event.meaning = (
        "the GPU asked for memory that its page tables do not allow; the address is that of the 4 KiB page"
    )
    name = str(fields.get("client", ""))
    is_mmhub = str(fields.get("hub", "")).startswith("mmhub")
    event.causes, event.advice = next(
        ((causes, advice) for start, causes, advice in _HELP if name.startswith(start)),
        _HELP_MMHUB if is_mmhub else _HELP_ELSE,
    )
    if "hub" not in fields or "src_id" not in fields:
        event.notes.append("the line with hub, VMID and PASID is missing")
    if "page" not in fields:
        event.notes.append("the line with the address is missing")
    if "status" not in fields:
        event.notes.append("the line with the status register is missing")
    elif status is None:
        event.notes.append("status 0: the fault was one of a burst, and nothing more is known of it")
    if fields.get("retry"):
        event.notes.append("a retry fault: the GPU repeats the access until the page is there")


def _client(event: Event, status: ProtectionFaultStatus | None) -> str:
    """Who asked, by the name that the log has, or by the number in the status word."""
    fields = event.fields
    number = fields.get("cid", int(status.cid) if status is not None else None)
    if status is not None:
        fields.setdefault("cid", number)
    name = str(fields.get("client", ""))
    if (not name or name == "unknown") and number is not None:
        if str(fields.get("hub", "")).startswith("mmhub"):
            event.notes.append("clients of the mmhub have other numbers on each chip")
            return f"client {number:#x} of the mmhub"
        known = page_fault.GFXHUB_CLIENTS[str(fields.get("generation", "gfx10"))]
        name = known.get(int(number), "")
        if not name:
            return f"client {number:#x}, which has no known name"
        fields["client"] = name
    if name:
        return page_fault.describe_client(name)
    if "ih_client_name" in fields:
        return f"an unknown client (interrupt client {fields['ih_client_name']})"
    if "ih_client" in fields:
        return f"an unknown client (interrupt client {fields['ih_client']})"
    return "an unknown client"


def _access(event: Event, status: ProtectionFaultStatus | None) -> tuple[str, str]:
    """Which access it was, and why it was refused."""
    fields = event.fields
    if status is not None:
        for name in ("more_faults", "walker_error", "permission_faults", "mapping_error", "rw", "atomic"):
            value = int(getattr(status, name))
            fields[name] = value
            if fields.get(f"printed_{name}", value) != value:
                event.notes.append(
                    f"the log has {name.upper()} {fields[f'printed_{name}']:#x}, the status word {value:#x}"
                )
        fields["status_vmid"] = int(status.vmid)
        if fields.get("vmid", fields["status_vmid"]) != fields["status_vmid"]:
            event.notes.append(
                f"the first line has VMID {fields['vmid']}, the status word {fields['status_vmid']}:"
                " it may be the status of another fault"
            )
        what = "an atomic access" if status.atomic else "a write" if status.rw else "a read"
        if (
            int(status.permission_faults) & page_fault.NO_EXECUTE
            and str(fields.get("client")) == "SQC (inst)"
        ):
            what = "a fetch"
        why = page_fault.describe_permission(status)
        if status.walker_error:
            known = page_fault.WALKER_ERRORS.get(int(status.walker_error), "an unknown walker error")
            event.notes.append(f"WALKER_ERROR {int(status.walker_error)}: {known}")
        return what, why
    for name in ("walker_error", "permission_faults", "mapping_error", "more_faults", "rw"):
        if f"printed_{name}" in fields:
            fields[name] = fields[f"printed_{name}"]
    # the status line is missing, those below it are there
    if "permission_faults" in fields or "rw" in fields:
        made = ProtectionFaultStatus(
            walker_error=int(fields.get("walker_error", 0)) & 7,
            permission_faults=int(fields.get("permission_faults", 0)) & 15,
            mapping_error=int(fields.get("mapping_error", 0)) & 1,
            rw=int(fields.get("rw", 0)) & 1,
        )
        what = "an access" if "rw" not in fields else "a write" if made.rw else "a read"
        return what, page_fault.describe_permission(made)
    ring = int(fields.get("ring", 0))
    what = (
        "a write"
        if ring & page_fault.RING_WRITE
        else "a read"
        if ring & page_fault.RING_READ
        else "an access"
    )
    why = "the page is not mapped" if ring & page_fault.RING_NOT_VALID else "the log does not say why"
    if ring & (page_fault.RING_WRITE | page_fault.RING_READ | page_fault.RING_NOT_VALID):
        event.notes.append(f"read from ring:{ring}, which is no ring but the interrupt's protection bits")
    return what, why
