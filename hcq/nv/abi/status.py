"""Statuses: what the resource manager, UVM and a channel's error notifier say, in words with the usual cause.

In       a status number, the number of a channel error (Xid)
Out      NvStatus, those that code asks for; name_of, describe_status and describe_xid for all
Next     data/statuses.tsv, data/xids.tsv (all of them with their causes),
         data/xid_advice.tsv (what they mean, what to try), ioctls.py (the calls that answer so)
Source   nvstatuscodes.h of the open kernel module 580.142
"""

from __future__ import annotations

from enum import IntEnum

from hcq.nv.abi.names import table


class NvStatus(IntEnum):
    """NV_STATUS, as 580 numbers it: those that the driver looks for or the emulated one answers."""

    NV_OK = 0x0
    NV_ERR_GPU_UUID_NOT_FOUND = 0x12
    NV_ERR_ILLEGAL_ACTION = 0x16
    NV_ERR_IN_USE = 0x17
    NV_ERR_INSERT_DUPLICATE_NAME = 0x19
    NV_ERR_INSUFFICIENT_RESOURCES = 0x1A
    NV_ERR_INSUFFICIENT_PERMISSIONS = 0x1B
    NV_ERR_INVALID_ADDRESS = 0x1E
    NV_ERR_INVALID_ARGUMENT = 0x1F
    NV_ERR_INVALID_CHANNEL = 0x21
    NV_ERR_INVALID_CLASS = 0x22
    NV_ERR_INVALID_CLIENT = 0x23
    NV_ERR_INVALID_DEVICE = 0x26
    NV_ERR_INVALID_FLAGS = 0x29
    NV_ERR_INVALID_LIMIT = 0x2E
    NV_ERR_INVALID_OBJECT = 0x31
    NV_ERR_INVALID_OBJECT_HANDLE = 0x33
    NV_ERR_INVALID_OBJECT_NEW = 0x34
    NV_ERR_INVALID_OBJECT_PARENT = 0x36
    NV_ERR_INVALID_OFFSET = 0x37
    NV_ERR_INVALID_OWNER = 0x39
    NV_ERR_INVALID_PARAM_STRUCT = 0x3A
    NV_ERR_INVALID_PARAMETER = 0x3B
    NV_ERR_INVALID_POINTER = 0x3D
    NV_ERR_INVALID_STATE = 0x40
    NV_ERR_NO_MEMORY = 0x51
    NV_ERR_NOT_SUPPORTED = 0x56
    NV_ERR_OBJECT_NOT_FOUND = 0x57
    NV_ERR_OUT_OF_RANGE = 0x5B
    NV_ERR_PAGE_TABLE_NOT_AVAIL = 0x5D
    NV_ERR_RC_ERROR = 0x60
    NV_ERR_STATE_IN_USE = 0x63
    NV_ERR_UVM_ADDRESS_IN_USE = 0x68
    NV_WARN_NOTHING_TO_DO = 0x10006


RENUMBERED_595 = {0x8B: "NV_ERR_OPERATION_ABORTED", 0x8C: "NV_ERR_DMA_XFER_FAILED"}  # 595 inserted one
# calls that answer these have done their work
BENIGN = frozenset({NvStatus.NV_OK, NvStatus.NV_WARN_NOTHING_TO_DO})


def name_of(status: int, release: int = 580) -> str:
    """The vendor's name of a status; the number when there is none."""
    if release >= 595 and status in RENUMBERED_595:
        return RENUMBERED_595[status]
    return table("statuses").get(status, (f"status {status:#x}", ""))[0]


def describe_status(status: int, release: int = 580) -> str:
    """A status in words: name, number and the usual cause where one is known."""
    _, cause = table("statuses").get(status, ("", ""))
    return f"{name_of(status, release)} ({status:#x}{f': {cause}' if cause else ''})"


def describe_xid(number: int) -> str:
    """A channel error in words, as the error notifier and the kernel's log number them."""
    name, cause = table("xids").get(number, ("-", ""))
    named = name if name != "-" else "no name in the headers"
    return f"Xid {number} ({named}{f': {cause}' if cause else ''})"


def xid_name(number: int) -> str:
    """The name of a channel error in the headers; "" where it has none."""
    name, _ = table("xids").get(number, ("-", ""))
    return "" if name == "-" else name


def xid_help(number: int) -> tuple[str, str, str]:
    """What a channel error means, what causes it mostly, and what to try; "" where that is unknown."""
    meaning, advice = table("xid_advice").get(number, ("", ""))
    return meaning, table("xids").get(number, ("", ""))[1], advice
