"""States: what nvidia-smi says of a GPU when something is wrong with it, and what that means.

In       the path of a value in `nvidia-smi -q`; a line of a text
Out      STATES and SENTENCES, as data
Next     smi.py (the values), read.py (who asks)
Source   the man page of nvidia-smi; NVIDIA's guide "GPU Memory Error Management"; the advice is in our own words
"""

from __future__ import annotations

import re
from typing import NamedTuple


class State(NamedTuple):
    """A value that tells of trouble. path: the end of its path; bad: what it then is."""

    path: str
    bad: re.Pattern[str]
    kind: str
    role: str
    sentence: str
    meaning: str
    advice: str


_YES = re.compile(r"^(?:Yes|Active)$", re.IGNORECASE)
_SOME = re.compile(r"^0*[1-9]\d{0,18}$")
_REPLACE = "let the GPU be replaced if it stays so after a reset; run NVIDIA's field diagnostic"
_RESET = "stop the work on this GPU, then nvidia-smi -r, or reboot"

STATES: tuple[State, ...] = (
    State("Remapped Rows/Remapping Failure Occurred", _YES, "row remapping failed", "fault",
          "a bad row of memory could not be remapped",
          "the spare rows of a bank are used up, or writing the list of rows failed", _REPLACE),
    State("Remapped Rows/Pending", _YES, "row remapping pending", "fault",
          "a bad row of memory waits to be remapped",
          "an uncorrectable error was found; the row is replaced at the next reset, and is used until then", _RESET),
    State("Remapped Rows/Uncorrectable Error", _SOME, "rows remapped", "notice",
          "{value} rows were remapped because of uncorrectable errors",
          "spare rows are in use; that is what they are for", "watch whether the number grows"),
    State("Remapped Rows/Correctable Error", _SOME, "rows remapped", "notice",
          "{value} rows were remapped because of many correctable errors",
          "spare rows are in use; that is what they are for", "watch whether the number grows"),
    State("Pending Page Blacklist", _YES, "page retirement pending", "fault",
          "a bad page of memory waits to be retired",
          "the page is used until the driver is loaded again", _RESET),
    State("SRAM Threshold Exceeded", _YES, "SRAM errors", "fault",
          "more uncorrectable errors of SRAM than the limit", "the GPU counts as defective", _REPLACE),
    State("GPU Reset Status/Reset Required", _YES, "reset required", "fault",
          "the GPU needs a reset", "an error left it in a state that only a reset ends", _RESET),
    State("GPU Reset Status/Drain and Reset Recommended", _YES, "drain and reset", "fault",
          "the GPU should get no new work, and then a reset", "an error was contained, and may come again",
          "let what runs end, then nvidia-smi -r"),
    State("GPU Recovery Action", re.compile(r"^(?!None$|N/A$|Unknown).+"), "recovery action", "fault",
          "the driver asks for: {value}", "what has to be done before the GPU is sound again", _RESET),
    State("HW Thermal Slowdown", _YES, "slow: heat", "fault", "the clocks are lowered because of heat",
          "the hardware protects itself", "look at fans, air and neighbours"),
    State("HW Power Brake Slowdown", _YES, "slow: power", "fault", "the clocks are lowered from outside",
          "the power supply or the baseboard asks for it", "look at the power supply and the baseboard's log"),
    State("SW Thermal Slowdown", _YES, "slow: heat", "notice", "the driver lowers the clocks because of heat",
          "the GPU or its memory is near its limit of temperature", "look at fans, air and neighbours"),
    State("Fabric/Status", re.compile(r"^(?!Success$|N/A$|Not Started).+"), "fabric", "fault",
          "the NVLink fabric did not accept this GPU: {value}", "CUDA does not start on this GPU until it does",
          "look at the log of nvidia-fabricmanager"),
    State("Fabric/State", re.compile(r"^(?:In Progress|Not Started)$"), "fabric", "notice",
          "the NVLink fabric is {value}", "CUDA does not start on this GPU until it is Completed",
          "look at the log of nvidia-fabricmanager"),
)  # fmt: skip


class Sentence(NamedTuple):
    """A line of nvidia-smi or lspci that tells of trouble by itself. The pattern may find `bus` and `what`."""

    pattern: re.Pattern[str]
    kind: str
    sentence: str
    meaning: str
    advice: str


SENTENCES: tuple[Sentence, ...] = tuple(
    Sentence(re.compile(pattern), *words)
    for pattern, *words in (
        (r"Unable to determine the device handle for (?:GPU|gpu)\s?\d*:? ?(?P<bus>[0-9A-Fa-f:.]{7,16})?:?(?P<what>.*)",
         "GPU lost", "nvidia-smi cannot reach this GPU: {what}",
         "the driver gave it up: off the bus, or broken in the middle of something",
         "look for Xid 79 or 154 in the kernel log; power the machine off and on"),
        (r"GPU is lost", "GPU lost", "a GPU is lost", "the driver gave it up",
         "look for Xid 79 in the kernel log; power the machine off and on"),
        (r"NVIDIA-SMI has failed because it couldn't communicate", "no driver",
         "nvidia-smi finds no driver", "the kernel module is not loaded, or did not start",
         "modprobe nvidia, and look at the kernel log for why it does not load"),
        (r"Failed to initialize NVML: (?P<what>[^\n]{1,80})", "no driver",
         "nvidia-smi does not start: {what}",
         "libraries and kernel module do not fit, or the module does not answer",
         "reboot, or load the module of the libraries' release"),
        (r"No devices were found", "no GPU", "nvidia-smi finds no GPU",
         "the driver is loaded, and no GPU started with it", "look at the kernel log for RmInitAdapter"),
        (r"^\|.*\bERR!", "sensor error", "nvidia-smi prints ERR! for a value",
         "the GPU, or its firmware, does not answer the question", "look at the kernel log for Xids"),
        (r"^(?P<bus>[0-9a-fA-F:.]{7,12}) .*NVIDIA.*\(rev ff\)", "off the bus",
         "the GPU does not answer on the PCI bus: its configuration reads as ff",
         "the device is gone, or has no power", "power the machine off and on; look at power and risers"),
    )
)  # fmt: skip
