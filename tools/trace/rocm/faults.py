"""What ROCm's runtime says of faults and failed queues, as events: what it means, what to try.

In       a line of standard error, of AMD_LOG_LEVEL, or of the debug agent
Out      an Event; None for a line that tells nothing
Next     dump.py (who reads lines), ../kernel_log/event.py (what an Event is), ../kernel_log/show.py (who prints it)
Source   ROCr: runtime.cpp (VMFaultHandler, HwExceptionHandler), hsa.h and hsa_ext_amd.h (statuses); CLR: rocdevice.cpp
         (callbackQueue), rocdebug; rocr_debug_agent: debug_agent.cpp; LLVM offload's error reports
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hcq.tools.trace.kernel_log.event import Event

# Status, code, what it means, what to try.
STATUSES: dict[str, tuple[int, str, str]] = {
    "HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION": (
        0x29,
        "a wave used an address that is in no aperture of the GPU: beyond the largest address, or not aligned",
        "look for a damaged pointer: an index that overflowed, a host pointer, memory that was not written yet",
    ),
    "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION": (
        0x2A,
        "a wave came to what is no instruction of this GPU",
        "check that the code is for this very GPU (gfx target, XNACK), and that nothing writes over code",
    ),
    "HSA_STATUS_ERROR_MEMORY_FAULT": (
        0x2B,
        "a wave used memory that is not mapped for the GPU",
        "find the buffer at or before the address; AMD_LOG_LEVEL=4 and HIP_LAUNCH_BLOCKING=1 name the kernel",
    ),
    "HSA_STATUS_ERROR_OUT_OF_REGISTERS": (
        0x2D,
        "a workgroup needs more registers than a compute unit has",
        "smaller workgroups, or __launch_bounds__",
    ),
    "HSA_STATUS_ERROR_OUT_OF_RESOURCES": (
        0x1008,
        "memory of the GPU, scratch memory, or a resource of the system ran out",
        "less memory, smaller scratch (fewer spilled registers, less recursion), or look for a leak",
    ),
    "HSA_STATUS_ERROR_INVALID_PACKET_FORMAT": (
        0x1009,
        "the packet processor took a packet that it does not know",
        "a queue that was written over, or packets out of order: whoever writes AQL by hand has it first",
    ),
    "HSA_STATUS_ERROR_INVALID_ISA": (
        0x100F,
        "the code is not for this GPU",
        "compile for it: --offload-arch=$(rocm_agent_enumerator)",
    ),
    "HSA_STATUS_ERROR_INVALID_CODE_OBJECT": (
        0x1010,
        "the code object is damaged, or of a newer version",
        "compile it again with the ROCm that is installed",
    ),
    "HSA_STATUS_ERROR_EXCEPTION": (
        0x1016,
        "a wave stopped by itself: a trap, of an assert or of __builtin_trap, or a fault that has no name of its own",
        "look for the message of the assertion above; the debug agent (HSA_TOOLS_LIB) shows the wave",
    ),
    "HSA_STATUS_ERROR": (
        0x1000,
        "something failed that has no status of its own",
        "AMD_LOG_LEVEL=3 names the call before it; the kernel log may have the cause",
    ),
    "HSA_STATUS_ERROR_INVALID_ARGUMENT": (
        0x1001,
        "the runtime was called with an argument that it refuses",
        "AMD_LOG_LEVEL=3 names the call; mostly memory that was freed, or of another GPU",
    ),
    "HSA_STATUS_ERROR_INVALID_QUEUE_CREATION": (
        0x1002,
        "a queue was asked for that the GPU cannot have",
        "a size that is no power of two, or too many queues: other programs' count, too",
    ),
    "HSA_STATUS_ERROR_INVALID_ALLOCATION": (
        0x1003,
        "memory was asked for, or named, that there is not",
        "a size that no pool has, or a pointer that the runtime did not allocate",
    ),
    "HSA_STATUS_ERROR_INVALID_AGENT": (
        0x1004,
        "a GPU was named that the runtime does not have",
        "ROCR_VISIBLE_DEVICES and HIP_VISIBLE_DEVICES; rocminfo lists GPUs",
    ),
    "HSA_STATUS_ERROR_NOT_INITIALIZED": (
        0x100B,
        "the runtime was not started, or was stopped already",
        "a call in a destructor at the end of the program, or after fork",
    ),
    "HSA_STATUS_ERROR_INVALID_MEMORY_POOL": (
        0x28,
        "a memory pool was named that there is not",
        "rocminfo lists the pools of each agent",
    ),
    "HSA_STATUS_ERROR_RESOURCE_BUSY": (
        0x2E,
        "something is in use by somebody else",
        "another profiler or debugger, mostly",
    ),
    "HSA_STATUS_ERROR_NOT_SUPPORTED": (
        0x2F,
        "this GPU or driver cannot do that",
        "compare the versions of the kernel's driver and of ROCm",
    ),
}
CODES = {code: name for name, (code, _, _) in STATUSES.items()}

# How a reason begins, in lower case; what it means, what to try.
REASONS = (
    (
        "page not present",
        "the page is not mapped for this GPU",
        "past the end of a buffer, a buffer that was freed, a host pointer, or memory of another GPU without access",
    ),
    (
        "write access to a read-only page",
        "the page must not be written",
        "constants, code and imported memory are read-only; otherwise as for a page that is not mapped",
    ),
    (
        "execute access to a page marked nx",
        "the GPU fetched code where there is none",
        "a damaged function pointer or kernel object, code that was unloaded, a wrong entry point",
    ),
    (
        "host access only",
        "the page belongs to the host alone",
        "hipHostMalloc, or hipHostRegister with mapping",
    ),
    (
        "dram ecc failure",
        "memory of the GPU is broken at this place",
        "the kernel log has RAS lines; reset, then test",
    ),
    ("sram ecc failure", "memory inside the GPU is broken", "the kernel log has RAS lines; reset, then test"),
    (
        "generic hang recovery",
        "the GPU hung and was reset",
        "the cause is in the kernel log, before the reset",
    ),
    ("unknown", "the runtime was not told why", "the kernel log has the fault's status word"),
)

_FAULT = re.compile(
    r"memory access fault by GPU (?:node-)?(\d{1,6})(?: \(agent(?: handle:)? (0x[0-9a-fA-F]{1,16})\))?"
    r" (?:on|at virtual) address (0x[0-9a-fA-F]{1,16}|\(?nil\)?)(\(may not be exact address\))?[.,]?"
    r"(?:\s*Reasons?: *(.*))?",
    re.IGNORECASE,
)
_REASON = re.compile(r"Reasons?: *(\S.{0,300})")
NO_REASON = "no reason is given"
_EXCEPTION = re.compile(r"HW Exception by GPU node-(\d{1,6}).{0,60}?reason ?: ?(.*)")
_CRITICAL = re.compile(
    r"Memory critical error by agent node-(\d{1,6})(?: \(Agent handle: (0x[0-9a-fA-F]{1,16})\))?"
    r"(?: on address (0x[0-9a-fA-F]{1,16}))?.{0,20}?(?:Reason: *(.{0,300}))?$"
)
_ABORT = re.compile(
    r"Queue (?:at )?(0x[0-9a-fA-F]{1,16}) aborting with error : (HSA_\w+):? ?(.*)", re.IGNORECASE
)
_INACTIVE = re.compile(r"Queue at (0x[0-9a-fA-F]{1,16}) inactivated due to async error:?(.*)")
_AGENT_QUEUE = re.compile(r"Queue error \((HSA_\w+)(.*)\)")
_SYSTEM = re.compile(r"System event \((HSA_AMD_GPU_\w+): ?(.*)\)")
_KERNEL = re.compile(
    r"Memory Fault Error \[host: ?([^,\]]{0,300}), GPU index: ?(\d{1,6}), faulting addr: ?(0x[0-9a-fA-F]{1,16})"
    r"(?:, kernel: ?(.*))?"
)
_ASSERT = re.compile(r"(?:Device-side assertion|thread: \[[\d,]{5,40}\] Assertion) [`'](.*?)[`'] failed")
_HIP = re.compile(r"\b(hip\w{1,60}): Returned (hipError\w{1,60})")
_HIP_ERROR = re.compile(
    r"(?:\bHIP (?:runtime )?error(?: \d{1,4})?|Triton Error \[HIP\])[:,] *(?:Code: \d{1,4}, Mess\w{2,6}: *)?[\"']?"
    r"([a-z][^.;\"'\n]{3,120})",
    re.IGNORECASE,
)
# what a message of HIP's says; what it means, what to try
HIP_ERRORS = (
    (
        "illegal memory access",
        "a kernel before this call used memory that is not mapped",
        "the call is not who did it: AMD_SERIALIZE_KERNEL=3 names the kernel; the kernel log has the page",
    ),
    (
        "invalid device function",
        "the kernel is not in the code for this GPU",
        "build for it: --offload-arch=$(rocm_agent_enumerator), PYTORCH_ROCM_ARCH",
    ),
    (
        "no kernel image",
        "there is no code for this GPU in the program",
        "build for it: --offload-arch=$(rocm_agent_enumerator), PYTORCH_ROCM_ARCH",
    ),
    (
        "shared object initialization",
        "the code object could not be loaded",
        "build it for this GPU and this ROCm",
    ),
    ("out of memory", "there is too little memory of the GPU", "free some, or ask for less at once"),
    (
        "unspecified launch failure",
        "a kernel before this call stopped; nothing more is told",
        "the kernel log and AMD_LOG_LEVEL=4 have the cause",
    ),
    ("device-side assert", "an assert() of a kernel failed", "standard error names file and line"),
    ("capturing", "a call that a graph's capture does not allow", "make it before the capture, or after it"),
)
_STATUS = re.compile(r"\b(HSA_STATUS_ERROR\w*)(.{0,200})")
_CORE = re.compile(r"GPU core dump created: (\S{1,300})")
_CODE = re.compile(r"\bcode: (0x[0-9a-fA-F]{1,8})\b")
_SIGNAL = re.compile(r'Thread (\d{1,9})(?: "([^"]*)")? received signal (SIG\w+)')
_LOG = re.compile(r":([0-4]):\s*(\S{1,60}) *:(\d{1,6}) *: *\d+d? us: *(?:\[[^\]]*\] *|\d+ *: *)*(.*)")
HARMLESS = ("hipErrorNotReady", "hipErrorPeerAccessAlreadyEnabled")
SIGNALS = {
    "SIGSEGV": "a wave used memory that is not mapped",
    "SIGBUS": "a wave used an address that the GPU cannot have",
    "SIGILL": "a wave came to what is no instruction",
    "SIGABRT": "a wave stopped by itself: an assert or a trap",
    "SIGFPE": "a wave's arithmetic raised an exception that is enabled",
    "SIGTRAP": "a breakpoint, or a step",
}


def log_message(line: str) -> tuple[int, str] | None:
    """The level and the message of a line of AMD_LOG_LEVEL; None for other lines."""
    found = _LOG.match(line) if line.startswith(":") else None
    return (int(found[1]), found[4]) if found else None


def event_of(line: str, number: int) -> Event | None:
    """What a line tells of a fault. line: without colours and spaces around it."""
    for form, make in _FORMS:
        if found := form.search(line):
            event = make(found)
            if event is not None:
                event.line, event.lines = number, [number]
            return event
    return None


def _fault(found: re.Match[str]) -> Event:
    reasons = (found[5] or "").strip(" .")
    page = int(found[3], 16) if found[3].startswith("0x") else 0
    meaning, advice = _of_reasons(reasons)
    sentence = f"memory fault: GPU node {found[1]} used {page:#x}: {reasons or NO_REASON}"
    fields = {"node": int(found[1]), "agent": found[2] or "", "address": page, "reason": reasons}
    event = Event("memory fault", 0, sentence=sentence, meaning=meaning, advice=advice, fields=fields)
    if page < 1 << 16:
        event.notes.append("an address near 0: a null pointer, or an offset from one")
    if found[4]:
        event.notes.append("the runtime says that the address may not be exact")
    elif not page & 0xFFF:
        event.notes.append("the address is that of the 4 KiB page, not of the access")
    return event


def add_reason(event: Event, line: str, number: int) -> bool:
    """Whether a line is the reason of the fault before it, from which somebody broke it off; it is added then."""
    if event.fields.get("reason") or not (found := _REASON.match(line)):
        return False
    reason = found[1].strip(" .")
    event.fields["reason"] = reason
    event.meaning, event.advice = _of_reasons(reason)
    event.sentence = event.sentence.removesuffix(NO_REASON) + reason
    event.lines.append(number)
    return True


def _of_reasons(reasons: str) -> tuple[str, str]:
    said = [
        (meaning, advice)
        for one in re.split(r"[,;|]", reasons.lower())
        for start, meaning, advice in REASONS
        if one.strip().startswith(start)
    ]
    meaning, advice = ("; ".join(dict.fromkeys(one[at] for one in said)) for at in (0, 1))
    return meaning, advice


def _exception(found: re.Match[str]) -> Event:
    return Event(
        "GPU exception",
        0,
        sentence=f"exception of GPU node {found[1]}: {found[2].strip()}",
        meaning="the GPU hung or its memory failed, and was reset: this process's queues are gone",
        advice="the kernel log has what came before; start the process again",
        fields={"node": int(found[1]), "reason": found[2].strip()},
    )


def _critical(found: re.Match[str]) -> Event:
    reason = (found[4] or "").strip(" .")[:200]
    sentence = f"critical memory error of node {found[1]}"
    sentence += f" at {found[3]}" if found[3] else ""
    meaning = advice = ""
    if reason.lower().startswith("memory in use"):
        meaning = (
            "the runtime could not free this memory: the kernel's driver refused, and the program was stopped"
        )
        advice = "in a container, see whether it may map /dev/kfd (SELinux: container_use_devices); else the kernel log"
    return Event(
        "memory error",
        0,
        sentence=f"{sentence}: {reason or NO_REASON}",
        meaning=meaning,
        advice=advice,
        fields={"node": int(found[1]), "agent": found[2] or "", "address": found[3] or "", "reason": reason},
    )


def _queue(queue: str, status: str, rest: str) -> Event:
    if status.startswith("0x"):
        status = CODES.get(int(status, 16), status)
    known, meaning, advice = STATUSES.get(status, (None, "", ""))
    printed = _CODE.search(rest)
    code = int(printed[1], 16) if printed else known
    where = f"queue {queue}" if queue else "a queue"
    fields = {"queue": queue, "status": status, "code": code, "message": rest.strip()[:300]}
    return Event(
        "queue error", 0, sentence=f"{where} stopped: {status}", meaning=meaning, advice=advice, fields=fields
    )


def _inactive(found: re.Match[str]) -> Event:
    status = _STATUS.search(found[2])
    return _queue(found[1], status[1] if status else "its status is in the next line", "")


def _system(found: re.Match[str]) -> Event:
    meaning, advice = _of_reasons(found[2])
    return Event(
        "memory fault" if "MEMORY_FAULT" in found[1] else "system event",
        0,
        sentence=f"{found[1]}: {found[2][:300]}",
        meaning=meaning,
        advice=advice,
        fields={"event": found[1], "reason": found[2]},
    )


def _kernel(found: re.Match[str]) -> Event:
    kernel = (found[4] or "").strip(" ]")[:300]
    sentence = f"memory fault at {found[3]}" + (f" while this kernel ran: {kernel}" if kernel else "")
    fields = {"host": found[1].strip(), "gpu": int(found[2]), "address": int(found[3], 16), "kernel": kernel}
    return Event("fault's kernel", 0, sentence=sentence, fields=fields)


def _hip(found: re.Match[str]) -> Event | None:
    if found[2] in HARMLESS:
        return None
    return Event("failed call", 0, role="consequence", sentence=f"{found[1]} returned {found[2]}")


def _hip_error(found: re.Match[str]) -> Event:
    what = " ".join(found[1].split())
    words = next((row for row in HIP_ERRORS if row[0] in what.lower()), ("", "", ""))
    return Event(
        "failed call",
        0,
        role="consequence",
        sentence=f"a call of HIP returned: {what}",
        meaning=words[1],
        advice=words[2],
        fields={"what": what},
    )


def _signal(found: re.Match[str]) -> Event | None:
    sentence = f"rocgdb: thread {found[1]} got {found[3]}"
    return Event(
        "signal", 0, sentence=sentence, meaning=SIGNALS.get(found[3], ""), fields={"signal": found[3]}
    )


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Event | None]], ...] = (
    (_FAULT, _fault),
    (_EXCEPTION, _exception),
    (_CRITICAL, _critical),
    (_ABORT, lambda found: _queue(found[1], found[2], found[3])),
    (_INACTIVE, _inactive),
    (_AGENT_QUEUE, lambda found: _queue("", found[1], found[2])),
    (_SYSTEM, _system),
    (_KERNEL, _kernel),
    (
        _ASSERT,
        lambda found: Event("assertion", 0, sentence=f"an assertion on the GPU failed: {found[1][:300]}"),
    ),
    (_HIP, _hip),
    (_HIP_ERROR, _hip_error),
    (_SIGNAL, _signal),
    (
        _CORE,
        lambda found: Event(
            "core dump",
            0,
            "notice",
            f"the runtime wrote the state of the GPU to {found[1]}",
            advice=f"rocgdb PROGRAM -c {found[1]}, then: info threads",
        ),
    ),
    (_STATUS, lambda found: _queue("", found[1], found[2])),
)
