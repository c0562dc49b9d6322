"""NVIDIA's lines: Xids with what their message says, the firmware's report behind them, versions, assertions.

In       LogLines
Out      Events
Changes  the last event, when a line belongs to it
Next     hcq/nv/abi/status.py (Xids and statuses in words), hcq/nv/abi/mmu_fault.py (faults in words),
         hcq/nv/abi/sm_errors.py (error registers in words)
Source   kernel_rc.c: krcReportXid; kernel_gsp.c; kern_gpu_error_cont_ga100.c of the open kernel module 535 to 595;
         messages that GSP firmware makes are as public reports have them
"""

from __future__ import annotations

import re

from hcq.nv.abi import mmu_fault
from hcq.nv.abi.names import class_name, control_name
from hcq.nv.abi.sm_errors import WarpEsr, global_errors, register_name
from hcq.nv.abi.status import describe_status, xid_help, xid_name
from hcq.tools.trace.kernel_log.event import Event
from hcq.tools.trace.kernel_log.log_lines import LogLine

_XID = re.compile(
    r"(?P<switch>S?)Xid \((?:PCI:)?(?P<device>[0-9a-fA-F:.]{1,16})(?P<part>[^)]{0,40})\): (?P<number>\d{1,6})\b"
    r"(?:, ?(?P<said>.*))?"
)
_STARTS = (  # how messages begin: what stands before them is pid and name, which may hold anything
    "Ch [0-9a-fA-F]{4,8}|Channel ID |Graphics |MMU Fault|Class Error|DBE |An uncorrectable|A correctable|NVLink|"
    "GPU has|GPU recovery|GPU stopped|Row Remapper|Dynamic Page|Contained|Uncontained|Timeout |GSP[ -]|PMU |"
    "High single|SEC_FAULT|Error status|CE|PBDMA|LTC|[0-9a-f]{4}\\(|[0-9a-f]{8} "
)
_WHO = re.compile(
    rf"(?:pid=(?P<pid>'?<?\w{{1,12}}>?'?)(?:, name=(?P<name>.{{0,80}}?))?(?:, (?={_STARTS})))"
    rf"|(?:pid=(?P<pid2>'?<?\w{{1,12}}>?'?)(?:, name=(?P<name2>[^,]{{0,80}}))?(?:, |$))"
)
_CHANNEL = re.compile(r"\bCh(?:annel ID|ID)? (?:0x)?(?P<channel>[0-9a-fA-F]{1,8})\b")
_INTR = re.compile(r"\bintr ?(?P<intr>[0-9a-fA-F]{1,8})\b")
_BARE = re.compile(r"(?:Ch(?:annel ID|ID)?\b|intr|engmask|[0-9a-fA-F]{1,16}|[(), .])*")
_CAUSED = re.compile(r"caused by previous Xid (?P<xid>\d{1,4})")
_MMU = re.compile(
    r"MMU Fault: ENGINE (?P<engine>\w{1,24})(?: (?P<client>(?:GPC|HUB)CLIENT_\w{1,24}))? faulted @ "
    r"0x(?P<high>[0-9a-fA-F]{1,16})(?:_(?P<low>[0-9a-fA-F]{1,8}))?"
    r"(?:\. Fault is of type (?P<type>FAULT_\w{1,32})(?: (?P<access>ACCESS_TYPE_\w{1,32}))?)?"
)
_SM = re.compile(
    r"Graphics SM (?P<how>Warp|Global) Exception on \((?P<where>[^)]{1,60})\): (?P<what>.{1,120})",
    re.IGNORECASE,
)
_ESR = re.compile(r"Graphics Exception: ESR (?P<esr>0x.{1,200})")
_METHOD = re.compile(
    r"Ch(?:ID)? (?P<channel>[0-9a-fA-F]{1,8}), Class (?P<class>[0-9a-fA-F]{1,8}), Offset (?P<offset>[0-9a-fA-F]{1,8})"
    r"(?:, Data (?P<data>[0-9a-fA-F]{1,16}))?(?:, ErrorCode (?P<code>[0-9a-fA-F]{1,8}))?"
)
_CONTAINED = re.compile(
    r"(?:Unc|C)ontained: (?P<unit>\w{1,40}).*?RST: (?P<rst>Yes|No), D-RST: (?P<drain>Yes|No)"
)
_BARE_MESSAGE = re.compile(r"Graphics (?:SM (?:Warp|Global) Exception on \(|Exception: ESR 0x).*$")
_LINK = re.compile(r"link (?P<link>\d{1,2})\b")
_RPC = re.compile(
    r"Timeout after (?P<seconds>\d{1,5})s of waiting for RPC response from GPU(?P<gpu>\d{1,3}) GSP! Expected function "
    r"(?P<function>\d{1,4}) \((?P<name>\w{1,60})\)(?: sequence (?P<sequence>\d{1,10}))?"
    r"(?: \((?P<data0>0x[0-9a-fA-F]{1,16}) (?P<data1>0x[0-9a-fA-F]{1,16})\))?"
)
_RECOVERY = re.compile(
    r"changed from (?P<from>0x[0-9a-fA-F]{1,4}) \((?P<was>[^)]{1,60})\) to (?P<to>0x[0-9a-fA-F]{1,4})"
    r" \((?P<now>[^)]{1,60})\)"
)
_GSP_MORE = re.compile(
    r"GSP RPC|RPC history|GSP-CrashCat|^(?:GPU\d+\s+)?(?:entry|-?\d+)\s+(?:function|\d+)|^-+$"
)
_STATUS = re.compile(r"\[?(?P<name>NV_(?:ERR|WARN)_\w{1,60})\]?\W{0,3}\((?P<status>0x[0-9a-fA-F]{1,8})\)")
_INIT = re.compile(
    r"RmInitAdapter failed! \((?P<a>0x[0-9a-fA-F]{1,8}):(?P<status>0x[0-9a-fA-F]{1,8}):(?P<line>\d{1,6})\)"
)
_ASSERT = re.compile(
    r"[Aa]ssert\w* ?(?:failed)?:? ?(?P<what>.{0,200}?)(?: @ (?P<file>[\w./-]{1,80}:\d{1,6}))?\s*$"
)
_VERSION = re.compile(r"client has the version (?P<client>[\d.]{3,16})")
_MODULE = re.compile(r"kernel module has (?:the )?version (?P<module>[\d.]{3,16})")
_LOADED = re.compile(
    r"loading NVIDIA UNIX .{0,60}?Kernel Module(?: for \w+)?\s+(?P<release>\d{3}\.[\d.]{1,12})"
)
RPC_CONTROL, RPC_ALLOC = 76, 103
SPAN = 4  # lines in which parts of one report follow each other
QUIET = re.compile(
    r"GPU at PCI|GPU Board Serial|loading NVIDIA UNIX|Using |module license|nvidia-persistenced"
)


def event_of(line: LogLine, last: Event | None) -> Event | None:
    """What a line says; `last` itself when the line belongs to the event before; None for a line that is not known."""
    if found := _XID.search(line.text):
        if found["switch"]:
            return _switch(line, found)
        return _xid(line, found, last)
    if "NVRM" not in line.text:
        return _of_windows(line, last)
    near = last is not None and line.number - last.lines[-1] <= SPAN
    if near and last is not None and last.kind == "Xid" and last.fields.get("xid") in (119, 120):
        if _GSP_MORE.search(line.message):
            last.lines.append(line.number)
            return last
    if near and last is not None and last.kind == "API mismatch":
        if module := _MODULE.search(line.text):
            _versions(last, "", module["module"])
        last.lines.append(line.number)
        return last
    return _other(line)


def _of_windows(line: LogLine, last: Event | None) -> Event | None:
    """An event of nvlddmkm: the message of an Xid without its head. Event 13 is Xid 13."""
    message = _BARE_MESSAGE.search(line.text)
    found = _XID.search(f"Xid (0): 13, {message[0]}") if message else None
    if found is None:
        return None
    event = _xid(line, found, last)
    event.device = ""
    return event


# ------------------------------------------------------------ Xids


def _xid(line: LogLine, found: re.Match[str], last: Event | None) -> Event:
    number = int(found["number"])
    said = (found["said"] or "").strip()
    event = Event("Xid", line.number, when=line.when, device=found["device"].lower(), lines=[line.number])
    fields = event.fields
    fields.update(xid=number, name=xid_name(number))
    if part := found["part"].strip():
        fields["instance"] = part
    if who := _WHO.match(said):
        pid, name = who["pid"] or who["pid2"], who["name"] or who["name2"]
        said = said[who.end() :]
        if pid.strip("'").isdecimal():
            fields["pid"] = int(pid.strip("'"))
        if name and "unknown" not in name:
            fields["process"] = name
    for pattern, key in ((_CHANNEL, "channel"), (_INTR, "intr")):
        if number_found := pattern.search(said):
            fields[key] = int(number_found[1], 16)
    if said:
        fields["message"] = said
    event.meaning, event.causes, event.advice = xid_help(number)
    what = _message(event, number, said)
    if number == 13 and last is not None and _is_same_report(event, last):
        last.lines.append(line.number)
        if "esr" in fields:
            fields["esr"] = {**last.fields.get("esr", {}), **fields["esr"]}
        last.fields.update(
            {key: value for key, value in fields.items() if key == "esr" or key not in last.fields}
        )
        last.fields["message"] = f"{last.fields.get('message', '')}; {said}"
        return last
    name = fields["name"] or ("" if event.meaning else "a number that decode does not know")
    title = f"Xid {number}{f' ({name})' if name else ''}"
    if not what and _BARE.fullmatch(said):  # numbers alone: what the Xid means says more
        what = event.meaning
        if what and said and "channel" not in fields:
            event.notes.append(f"the message is {said}")
    event.sentence = f"{title}: {what or said or event.meaning or 'no message'}{_who(event)}"
    if caused := _CAUSED.search(said):
        event.role = "consequence"
        event.notes.append(f"the driver says that Xid {caused['xid']} before it is the cause")
    elif number == 45:
        event.role = "consequence"
    elif number == 154:
        event.role = "outcome"
    if not event.meaning and not event.causes:
        event.notes.append("nothing public is known here of what this number means")
    return event


def _is_same_report(event: Event, last: Event) -> bool:
    """The SM as a whole, and a line of ESR words, follow the sentence about a warp of it."""
    where = event.fields.get("where")
    is_global = (
        where is not None and where == last.fields.get("where") and "Global" in event.fields["message"]
    )
    return (
        last.kind == "Xid"
        and last.fields.get("xid") == 13
        and event.device in (last.device, "0")  # Windows does not say it
        and ("esr" in event.fields or is_global)
        and event.line - last.lines[-1] <= SPAN
    )


def _registers(esr: dict[str, str]) -> str:
    """What an SM's error registers say, by their addresses; "" for others, or when they say nothing."""
    found = []
    for address, text in esr.items():
        name, word = register_name(int(address, 16)), int(text, 16)
        warp = WarpEsr.decode([word])
        if name == "warp ESR" and warp.error:
            found.append(f"warp {warp.wrap_id}: {warp.description}")
        elif name == "global ESR" and word:
            found.append(f"the SM: {global_errors(word)}")
    return "; ".join(found)


def _who(event: Event) -> str:
    fields = event.fields
    channel = f", channel {fields['channel']:#x}" if "channel" in fields else ""
    if "process" in fields or "pid" in fields:
        pid = f" (pid {fields['pid']})" if "pid" in fields else ""
        return f", process {fields.get('process', '(no name)')}{pid}{channel}"
    return channel


def _message(event: Event, number: int, said: str) -> str:
    """What a message says, in words; "" where it has no form that is known."""
    fields = event.fields
    if found := _MMU.search(said):
        return _mmu(event, found)
    if found := _SM.search(said):
        fields.update(where=found["where"], exception=found["what"].strip(" ."))
        how = "a warp" if found["how"].lower() == "warp" else "the SM as a whole"
        return f"{how} on {found['where']} stopped with: {fields['exception']}"
    if found := _ESR.search(said):
        fields["esr"] = dict(re.findall(r"(0x[0-9a-fA-F]{1,8})=(0x[0-9a-fA-F]{1,8})", found["esr"]))
        named = _registers(fields["esr"])
        return f"the graphics engine's error registers are {found['esr'].strip()}" + (
            f": {named}" if named else ""
        )
    if found := _METHOD.search(said):
        number_of = {key: int(value, 16) for key, value in found.groupdict().items() if value}
        fields.update(number_of)
        data = f" with {number_of['data']:#x}" if "data" in number_of else ""
        code = f" (error code {number_of['code']:#x})" if "code" in number_of else ""
        return f"method {number_of['offset']:#x} of {class_name(number_of['class'])}{data} was refused{code}"
    if found := _CONTAINED.search(said):
        fields.update(
            unit=found["unit"], reset=found["rst"] == "Yes", drain_and_reset=found["drain"] == "Yes"
        )
        then = (
            "a reset is needed"
            if fields["reset"]
            else "drain and reset is needed"
            if fields["drain_and_reset"]
            else "no reset is needed now"
        )
        kept = "was contained" if number == 94 else "was not contained"
        return f"an uncorrectable error of {found['unit']} {kept}; {then}"
    if found := _RPC.search(said):
        return _rpc(event, found)
    if found := _RECOVERY.search(said):
        fields.update(was=found["was"], now=found["now"])
        return f"what has to be done with the GPU is now {found['now']!r} (it was {found['was']!r})"
    if number == 74 and (found := _LINK.search(said)):
        fields["link"] = int(found["link"])
    return ""


def _mmu(event: Event, found: re.Match[str]) -> str:
    fields = event.fields
    high = int(found["high"], 16)
    address = high << 32 | int(found["low"], 16) if found["low"] else high
    client, kind, access = found["client"] or "", found["type"] or "", found["access"] or ""
    fields.update(address=address, engine=found["engine"], client=client, fault_type=kind, access_type=access)
    did = mmu_fault.describe_access(access)
    did = "an access" if not did else f"an {did} access" if did == "atomic" else f"a {did}"
    does = mmu_fault.describe_client(client)
    by = f" by {client}{f', {does},' if does else ''}" if client else ""
    why = mmu_fault.describe_type(kind) or kind or "the log does not say why"
    if kind and not mmu_fault.describe_type(kind):
        event.notes.append(f"{kind} is no fault type that decode knows")
    if not access:
        event.notes.append("the line is cut: it does not say which access it was")
    named = f" ({kind})" if kind and why != kind else ""
    return f"{did} of {address:#x}{by} for engine {found['engine']}: {why}{named}"


def _rpc(event: Event, found: re.Match[str]) -> str:
    function, data = int(found["function"]), int(found["data0"] or "0", 16)
    event.fields.update(function=function, function_name=found["name"], seconds=int(found["seconds"]))
    asked = found["name"]
    if found["data0"] and function in (RPC_CONTROL, RPC_ALLOC):
        event.fields["asked"] = control_name(data) if function == RPC_CONTROL else class_name(data)
        asked += f" of {event.fields['asked']}"
    return f"the firmware of GPU {found['gpu']} did not answer {asked} within {found['seconds']} s"


def _switch(line: LogLine, found: re.Match[str]) -> Event:
    return Event(
        "SXid",
        line.number,
        "fault",
        f"an NVSwitch reports error {found['number']}: {(found['said'] or 'no message').strip()}",
        line.when,
        found["device"].lower(),
        "these are numbers of switches, which are not those of Xids",
        "a link, a port or the switch itself",
        "nvidia-smi nvlink -e on the GPUs; NVIDIA's page on NVSwitch errors; the fabric manager's log",
        {"sxid": int(found["number"]), "message": found["said"] or ""},
        lines=[line.number],
    )


# ------------------------------------------------------------ other lines


def _other(line: LogLine) -> Event | None:
    text = line.message
    event = Event("", line.number, when=line.when, device=line.device, lines=[line.number])
    if "API mismatch" in text:
        event.kind = "API mismatch"
        found, module = _VERSION.search(text), _MODULE.search(text)
        _versions(event, found["client"] if found else "", module["module"] if module else "")
        event.meaning = "libraries and kernel module are of different releases, and do not work together"
        event.causes = "an update without a reboot, or a container with other libraries than the host"
        event.advice = "reboot, or load the new module; mount the host's libraries into the container"
    elif found := _INIT.search(text):
        status = int(found["status"], 16)
        event.kind = "init failure"
        event.fields.update(status=status)
        event.sentence = f"the GPU did not start: {describe_status(status)}, after step {found['a']}"
        event.meaning = "the driver could not bring up this GPU"
        event.causes = "firmware or power, a GPU that hangs from before, another driver that holds it"
        event.advice = (
            "power the machine off and on; look for an Xid or a PCIe error before it; update the driver"
        )
    elif "rm_init_adapter failed" in text:
        event.kind, event.role = "init failure", "consequence"
        event.sentence = "the GPU did not start; the lines before it say why"
    elif found := _LOADED.search(text):
        event.kind, event.role = "driver", "notice"
        event.fields["release"] = found["release"]
        event.sentence = f"the driver is of release {found['release']}"
    elif "ssert" in text and (found := _ASSERT.search(text)):
        event.kind, event.role = "assertion", "unknown"
        where = f" at {found['file']}" if found["file"] else ""
        event.sentence = f"a check inside the driver failed{where}: {found['what'].strip() or text}"
        if status_found := _STATUS.search(text):
            event.sentence += f"; the status is {describe_status(int(status_found['status'], 16))}"
        event.notes.append("what such a check stands for is written in the driver's source alone")
    elif found := _STATUS.search(text):
        event.kind, event.role = "RM status", "unknown"
        status = int(found["status"], 16)
        event.fields.update(status=status, name=found["name"])
        event.sentence = f"the driver reports {describe_status(status)}: {text}"
    elif QUIET.search(text):
        event.kind, event.role = "driver", "notice"
        event.sentence = text
    else:
        return None
    return event


def _versions(event: Event, client: str, module: str) -> None:
    if client:
        event.fields["client"] = client
    if module:
        event.fields["module"] = module
    event.sentence = (
        f"a program's libraries are of release {event.fields.get('client', 'unknown')}, the kernel module is of"
        f" {event.fields.get('module', 'unknown')}"
    )
