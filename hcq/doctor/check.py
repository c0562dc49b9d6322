"""Checks: what the doctor asks of a device, one after the other, and what it found.

In       steps that return what they found, or raise
Out      Checks: ok, failed (with the fix) or skipped (with the reason)
Changes  nothing by itself
Next     examine.py (which steps), report.py (how checks are printed)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from hcq.errors import HcqError

# name -> what it asks; in this order, because each needs those before it
CHECKS: dict[str, str] = {
    "node": "is the kernel driver's file there?",
    "permission": "may this process open it?",
    "driver": "which driver is it, and do we know its interface?",
    "open": "do all steps of opening work?",
    "memory": "does allocated memory keep what is written to it?",
    "queue": "does a submission reach the device and come back?",
    "kernel": "does a kernel compute what it should?",
    "copy": "does a copy arrive whole?",
    "timestamp": "does the device's clock rise, at the host's rate?",
    "peers": "can it read the memory of its neighbours?",
}
EXTRAS = {"llvmlite": "hcq[tensor]", "mpi4py": "hcq[mpi]"}  # packages that an extra of ours brings
NEEDED = ("node", "permission", "driver", "open", "memory", "queue")  # without these nothing above can work


class Status(str, Enum):
    """How a check ended."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class Found(NamedTuple):
    """What an answered question looks like. Figures have their unit in the name."""

    text: str
    figures: Mapping[str, int | float | str] = {}


class Failure(Exception):
    """A check failed. fix: one line, with the exact command where there is one."""

    def __init__(self, text: str, fix: str) -> None:
        super().__init__(text)
        self.text, self.fix = text, fix


class Skip(Exception):
    """A check cannot be asked of this device; the message says why."""


@dataclass(frozen=True)
class Check:
    """One answered question."""

    name: str
    status: Status
    text: str
    fix: str = ""
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    took_s: float = 0.0


class Run:
    """The checks of one device, from the ground up.

    advise  the fix for an error that a check raised and did not explain itself
    """

    def __init__(
        self, device: str, kind: str, advise: Callable[[str, Exception], str], is_emulated: bool = False
    ) -> None:
        self.device, self.kind, self.is_emulated = device, kind, is_emulated
        self.advise = advise
        self.checks: list[Check] = []
        self.facts: dict[str, Any] = {}  # of the device, once it is open

    def check(self, name: str, step: Callable[[], Found]) -> None:
        """Ask one question, unless one below it that it needs has failed."""
        if below := self.blocked_by:
            self.checks.append(Check(name, Status.SKIPPED, f"needs {below}"))
            return
        report = "report it, with the output of: python -m hcq doctor --json"
        self.checks.append(answer(name, step, self.advise, report))

    @property
    def blocked_by(self) -> str:
        """The failed check that everything above needs, or ""."""
        failed = [
            check.name for check in self.checks if check.status == Status.FAILED and check.name in NEEDED
        ]
        return failed[0] if failed else ""

    @property
    def is_well(self) -> bool:
        """Whether nothing failed; what was skipped does not count."""
        return not any(check.status == Status.FAILED for check in self.checks)


def answer(
    name: str, step: Callable[[], Found], advise: Callable[[str, Exception], str], report: str
) -> Check:
    """Ask one question, whatever comes of it.

    advise  the fix for an error that the step did not explain itself
    report  what to send of a defect of ours
    """
    try:
        found = step()
    except Skip as reason:
        return Check(name, Status.SKIPPED, str(reason))
    except Failure as failure:
        return Check(name, Status.FAILED, failure.text, failure.fix)
    except ImportError as error:
        package = (error.name or "the package").partition(".")[0]
        text = f"{error}: this check needs {package}, which is not installed."
        return Check(name, Status.FAILED, text, _install(package))
    except (HcqError, OSError) as error:
        missing = _missing(error)
        fix = _install(missing) if missing else advise(name, error)
        return Check(name, Status.FAILED, str(error), fix)
    except Exception as error:  # whatever it is, the other checks and devices are still worth looking at
        text = f"{type(error).__name__}: {error}. This is a defect of hcq."
        return Check(name, Status.FAILED, text, report)
    return Check(name, Status.OK, found.text, "", found.figures)


def _install(package: str) -> str:
    """The command that brings a package; one that an extra of ours names comes with the extra."""
    wanted = EXTRAS.get(package)
    return f"python -m pip install {package if wanted is None else repr(wanted)}"


def _missing(error: BaseException | None) -> str:
    """The package whose absence an error comes from, or ""."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and error.name:
            return error.name.partition(".")[0]
        error = error.__cause__
    return ""
