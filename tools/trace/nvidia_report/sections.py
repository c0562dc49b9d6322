"""Sections of a bug report: what stands between its rules of underscores, by heading.

In       lines of nvidia-bug-report.sh's text
Out      `Section`s: heading, what it holds, its lines
Next     read.py (who reads them)
Source   what nvidia-bug-report.sh of the drivers 185 to 580 writes: a rule, an empty line, then "*** FILE" with
         "*** ls: ..." below it, "*** FILE does not exist", or a command as it was called
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

RULE = re.compile(r"^_{20,}\s*$")
# what a section holds, by its heading; the first that fits. "" is known and has nothing that is read here
KINDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), kind)
    for pattern, kind in (
        (r"^Start of NVIDIA bug report|^End of NVIDIA bug report", "head"),
        (r"does not exist$|skipped|not found", "absent"),
        (r"_COMM=|coredumpctl|systemctl", ""),
        (r"journalctl|\bdmesg|/var/log/(?:messages|kern\.log|syslog|dmesg)|/dev/kmsg", "kernel log"),
        (r"/proc/driver/nvidia/\S*version$|/proc/version", "version"),
        (r"/proc/driver/nvidia/\S*params$", "params"),
        (r"/proc/driver/nvidia/\S*registry$", "registry"),
        (r"/proc/driver/nvidia/\S*/information$", "information"),
        (r"/proc/driver/nvidia/\S*warnings", "warnings"),
        (r"nvidia-smi|^nvidia-debugdump", "nvidia-smi"),
        (r"lspci", "lspci"),
        (r"^(?:/\S*/)?(?:Xorg|glxinfo|vulkaninfo|nvidia-settings|xrandr|xset|uname|lsmod|ps|df|free)\b", ""),
        (r"/var/log/(?:Xorg|XFree86|nvidia-installer|gdm)", ""),
        (r"/proc/(?:cmdline|cpuinfo|interrupts|meminfo|modules|pci|iomem|mtrr|asound)", ""),
        (r"/etc/|/usr/(?:share|lib)|/sys/|/power$|/run/", ""),
    )
)
MAX_HEADING = 200  # characters
UNKNOWN = "unknown"


class Section(NamedTuple):
    """A part of a report. line: the number of its first line of content, from 1."""

    heading: str
    kind: str
    line: int
    lines: Sequence[str]


def sections(lines: Sequence[str]) -> Iterator[Section]:
    """The sections in order. A text without rules is one section without a heading."""
    rules = [at for at, line in enumerate(lines) if line.startswith("____") and RULE.match(line)]
    if not rules:
        yield Section("", "", 1, lines)
        return
    if rules[0] and any(line.strip() for line in lines[: rules[0]]):
        yield Section("before the report", UNKNOWN, 1, lines[: rules[0]])
    for start, end in zip(rules, [*rules[1:], len(lines)]):
        at = start + 1
        while at < end and not lines[at].strip():
            at += 1
        if at == end:
            continue
        heading = lines[at].strip()[:MAX_HEADING].removeprefix("*** ")
        kind = next((kind for pattern, kind in KINDS if pattern.search(heading)), UNKNOWN)
        if kind == "head":
            yield Section(heading, kind, at + 1, lines[at:end])
            continue
        at += 1
        while at < end and lines[at].startswith("*** ls:"):
            at += 1
        yield Section(heading, kind, at + 1, lines[at:end])
