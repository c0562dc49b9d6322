"""nvidia-smi: its table, and the tree of `nvidia-smi -q`, as what is known of each GPU.

In       lines of text
Out      Gpus by bus, driver and CUDA release, processes
Changes  the Report's `gpus` that it is given
Next     states.py (which values are bad), read.py (who asks)
Source   the man page of nvidia-smi, and what its releases 440 to 580 print
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MAX_GPUS = 512
MAX_VALUES = 2000  # of one GPU
MAX_TEXT = 200  # characters of a value

_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_VALUE = re.compile(r"^( *)([^:]{1,80}?)\s*:(?:\s(.*))?$")
_GROUP = re.compile(r"^( *)(\S.{0,80}?)\s*$")
_ROW = re.compile(r"^\| *(\d{1,4}) +(.{1,60}?) +(?:On|Off|N/A) *\| *([0-9A-Fa-f:.]{7,16}) +\S+ *\| *(\S+)")
_MEMORY = re.compile(r"(\d{1,9})MiB */ *(\d{1,9})MiB")
_TEMPERATURE = re.compile(r"\b(\d{1,3})C +(P\d{1,2})")
_PROCESS = re.compile(
    r"^\| +(\d{1,4}) +(?:\S+ +\S+ +)?(\d{1,10}) +([CGM+]{1,5}) +(.{1,200}?) +(\d{1,9})MiB *\|"
)
_MIB = re.compile(r"^(\d{1,9}) MiB$")


@dataclass
class Gpu:
    """What a report says of one GPU. `values`: everything of nvidia-smi -q by its path; `lines`: where that stands."""

    bus: str
    name: str = ""
    pci_id: str = ""
    memory_mib: int | None = None
    used_mib: int | None = None
    state: dict[str, str] = field(default_factory=dict)
    ecc: dict[str, int] = field(default_factory=dict)
    xids: Counter[int] = field(default_factory=Counter)
    processes: list[dict[str, str]] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)


@dataclass
class Machine:
    """The GPUs of a text by bus, and the releases that it names."""

    gpus: dict[str, Gpu] = field(default_factory=dict)
    releases: dict[str, str] = field(default_factory=dict)

    def gpu(self, bus: str) -> Gpu:
        """The GPU at a bus, made when it is new. Behind MAX_GPUS all are one."""
        key = bus_of(bus)
        if key not in self.gpus and len(self.gpus) >= MAX_GPUS:
            key = "others"
        return self.gpus.setdefault(key, Gpu(key))


def bus_of(text: str) -> str:
    """A bus as the kernel's log has it: 0000:0a:00 of 00000000:0A:00.0, 0a:00.0 and PCI:0000:0a:00."""
    text = text.lower().removeprefix("pci:").partition(".")[0]
    parts = text.split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:]])


def is_query(lines: Sequence[str]) -> bool:
    """Whether these are of `nvidia-smi -q`."""
    return any("NVSMI LOG" in line or _GPU.match(line) for line in lines)


def read_query(lines: Sequence[str], first: int, machine: Machine) -> None:
    """Values of `nvidia-smi -q`; `first` is the number of the first line."""
    gpu: Gpu | None = None
    path: list[tuple[int, str]] = []  # indentation, name
    process: dict[str, str] | None = None
    for number, line in enumerate(lines, first):
        text = line.rstrip()[:MAX_TEXT].expandtabs(8)
        if not text:
            continue
        if found := _GPU.match(text):
            gpu, path, process = machine.gpu(found[1]), [], None
            continue
        if value := _VALUE.match(text):
            depth, name, said = len(value[1]), value[2], (value[3] or "").strip()
        elif group := _GROUP.match(text):
            depth, name, said = len(group[1]), group[2], ""
        else:
            continue
        if gpu is None:
            if name in ("Driver Version", "CUDA Version") and value:
                machine.releases.setdefault(name, said)
            continue
        while path and path[-1][0] >= depth:
            path.pop()
        if name == "Process ID":
            process = {} if len(gpu.processes) < MAX_GPUS else None
            if process is not None:
                gpu.processes.append(process)
        if process is not None and path and path[0][1] == "Processes" and value:
            process[name] = said
        elif value and said and len(gpu.values) < MAX_VALUES:
            key = "/".join([*(one for _, one in path), name])
            gpu.values.setdefault(key, said)
            gpu.lines.setdefault(key, number)
        path.append((depth, name))
    for one in machine.gpus.values():
        _settle(one)


def _settle(gpu: Gpu) -> None:
    """What everybody asks for first, out of all the values."""
    values = gpu.values
    gpu.name = values.get("Product Name", "") or gpu.name
    device = values.get("PCI/Device Id", "")
    if re.fullmatch(r"0x[0-9A-Fa-f]{8}", device):
        gpu.pci_id = f"{device[6:]}:{device[2:6]}".lower()
    for key, want in (("Total", "memory_mib"), ("Used", "used_mib")):
        if found := _MIB.match(values.get(f"FB Memory Usage/{key}", "")):
            setattr(gpu, want, int(found[1]))
    for key in ("GPU UUID", "VBIOS Version", "Performance State", "Temperature/GPU Current Temp", "ECC Mode/Current",
                "MIG Mode/Current", "Persistence Mode", "GPU Operation Mode/Current"):  # fmt: skip
        if key in values:
            gpu.state[key] = values[key]
    for key, said in values.items():
        if key.startswith("ECC Errors/") and said.isdecimal() and len(said) < 20:
            gpu.ecc[key.removeprefix("ECC Errors/")] = int(said)


def read_table(lines: Sequence[str], machine: Machine) -> None:
    """The table that `nvidia-smi` alone prints."""
    gpu: Gpu | None = None
    by_index: dict[str, Gpu] = {}
    for line in lines:
        text = line.rstrip()[:MAX_TEXT].lstrip("> \t")
        if "NVIDIA-SMI" in text and (head := re.search(r"Driver Version: *(\d\S{0,20})", text)):
            machine.releases.setdefault("Driver Version", head[1])
            if cuda := re.search(r"CUDA Version: *(\d\S{0,20})", text):
                machine.releases.setdefault("CUDA Version", cuda[1])
        elif row := _ROW.match(text):
            gpu = by_index[row[1]] = machine.gpu(row[3])
            gpu.name = gpu.name or row[2].strip()
            if row[4].isdecimal() and len(row[4]) < 20:
                gpu.ecc.setdefault("Volatile/Uncorrectable", int(row[4]))
        elif gpu is not None and (memory := _MEMORY.search(text)) and not _PROCESS.match(text):
            gpu.used_mib, gpu.memory_mib = int(memory[1]), int(memory[2])
            if found := _TEMPERATURE.search(text):
                gpu.state.setdefault("Temperature/GPU Current Temp", f"{found[1]} C")
                gpu.state.setdefault("Performance State", found[2])
        elif (found := _PROCESS.match(text)) and found[1] in by_index:
            owner = by_index[found[1]]
            if len(owner.processes) < MAX_GPUS:
                owner.processes.append(
                    {
                        "Process ID": found[2],
                        "Type": found[3],
                        "Name": found[4].strip(),
                        "Used GPU Memory": f"{found[5]} MiB",
                    }
                )


def as_json(gpu: Gpu) -> dict[str, Any]:
    """All that is known of a GPU, as data."""
    return {
        "bus": gpu.bus,
        "name": gpu.name,
        "pci_id": gpu.pci_id,
        "memory_mib": gpu.memory_mib,
        "used_mib": gpu.used_mib,
        "state": gpu.state,
        "ecc": gpu.ecc,
        "xids": {str(number): count for number, count in sorted(gpu.xids.items())},
        "processes": gpu.processes,
        "values": gpu.values,
    }
