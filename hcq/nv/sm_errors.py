"""SM errors: which SM stopped which warp at which address, after a channel was stopped, as the resource manager says.

In       an open device whose channel stopped; its programs, by where their code begins
Out      `kernels`: Kernels with the warps that SMs name, for reports
Changes  a debugger's object of the resource manager, made and freed here
Next     abi/sm_errors.py (the registers), channel.py (the channel), hcq/observe/report_waves.py (who asks)
Source   ctrl83dedebug.h: NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES; cl83de.h; nv0000 client's rights:
         ksmdbgssnConstruct. No hardware has run this: whether registers keep their state until then is not known

RM lists the SMs that are asked for, 100 at most at a time. Those without an error are zeros.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hcq.errors import DriverError
from hcq.events.waves import Kernel, Wave
from hcq.gpu.release import quietly
from hcq.nv.abi.classes import ClassId
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.sm_errors import WarpEsr, global_errors
from hcq.nv.abi.structures import structure

SMS_PER_CALL = 100  # NV83DE_CTRL_DEBUG_MAX_SMS_PER_CALL
READ = ControlId.NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES


class SmError(NamedTuple):
    """What one SM says. address: of the access that was wrong, where the SM knows it."""

    sm: int
    warp: WarpEsr
    global_esr: int
    pc: int
    address: int

    @property
    def why(self) -> str:
        """Its errors in words."""
        return "; ".join(filter(None, (self.warp.description, global_errors(self.global_esr))))


def kernels(device: Any, programs: Mapping[int, Any]) -> list[Kernel]:
    """What SMs say of the warps that they stopped.

    programs  those that it may be, by the address of their code
    Raises    DriverError when the resource manager refuses
    """
    stopped = [channel for channel in device._channels if channel.is_stopped]
    if not stopped:
        raise DriverError(f"{device.name}: {device.waves_missing}.")
    found = [each for channel in stopped for each in read(device, channel) if each.why]
    if not found:
        raise DriverError(
            f"{device.name}: no SM has an error in its registers: it was not a warp's, or they were cleared."
        )
    by_entry: dict[int, list[SmError]] = defaultdict(list)
    for each in found:
        below = [entry for entry in sorted(programs) if entry <= each.pc < _end(programs[entry])]
        by_entry[below[-1] if below else 0].append(each)
    return [
        Kernel(entry, "" if entry else "of code that this device did not load", tuple(map(_warp, those)))
        for entry, those in by_entry.items()
    ]


def read(device: Any, channel: Any) -> list[SmError]:
    """The registers of every SM, of the context of a channel."""
    rm = channel.rm
    debugger = rm.alloc(
        channel.memory.device, ClassId.GT200_DEBUGGER, happclient=rm.client, hclass3dobject=channel.compute
    )
    try:
        return list(_all(device, channel, debugger))
    finally:
        quietly(lambda: rm.free(debugger, channel.memory.device))


def _all(device: Any, channel: Any, debugger: int) -> Iterator[SmError]:
    entry = structure("SmErrorState")
    count = device.gpu.sm_count
    for first in range(0, count, SMS_PER_CALL):
        many = min(SMS_PER_CALL, count - first)
        fields = {"htargetchannel": channel.handle, "numsmstoread": many, "startingsm": first}
        said = channel.rm.control(debugger, READ, **fields).values
        states = int(said["smerrorstatearray"]).to_bytes(SMS_PER_CALL * entry.size_bytes, "little")
        for number in range(many):
            one = entry.from_bytes(states[number * entry.size_bytes :][: entry.size_bytes])
            yield SmError(
                first + number,
                WarpEsr.decode([one.hwwwarpesr]),
                one.hwwglobalesr,
                one.hwwwarpesrpc64 or one.hwwwarpesrpc,
                one.hwwesraddr,
            )


def _warp(each: SmError) -> Wave:
    about = f", of the access at {each.address:#x}" if each.address else ""
    words = f"warp ESR {each.warp.words[0]:#x}, global ESR {each.global_esr:#x}{about}"
    number = f"SM {each.sm}" + (f" (its warp {each.warp.wrap_id})" if each.warp.error else "")
    return Wave(
        "warp",
        1,
        number,
        each.pc,
        "",
        "the instruction is not read: machine code of NVIDIA's" if each.pc else "its PC is not known",
        words,
        stopped_by=each.why,
    )


def _end(program: Any) -> int:
    return int(program.code.address + program.code.size_bytes)
