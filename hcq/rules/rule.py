"""Rule: the declaration of a rule, and how a check reports that it is broken.

In       rule(...) lines and @check functions of the other modules here
Out      RULES by id; CHECKS by the kind of effect they look at; Findings
Changes  those two tables, while the modules of rules are imported
Next     state.py (what a check may ask), examine.py (who runs them), docs/rules/ (a page for each rule)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hcq.errors import UsageError


class Rule(NamedTuple):
    """One thing that must hold.

    id     kebab-case; also the name of its page in docs/rules/
    title  what must hold, in one line
    fix    what to do when it does not
    level  "error" stops a submission; "warning" is reported once, and the work goes on
    see    where more about it is written, for messages; "" for nowhere
    """

    id: str
    title: str
    fix: str
    level: str = "error"
    see: str = ""


class Violation(NamedTuple):
    """A check's report: the rule, what is wrong, and the address it is about (0: none)."""

    rule: Rule
    what: str
    va: int = 0


class Finding(NamedTuple):
    """A rule that is broken, and where. Texts are "" where nothing is known."""

    rule: str
    level: str
    what: str
    fix: str
    device: str = ""
    queue: str = ""
    submission: int = 0  # the value that the device's timeline has when it is done
    word: int = 0
    packet: str = ""
    kernel: str = ""
    buffer: str = ""
    site: str = ""  # the line of the program that submitted

    def __str__(self) -> str:
        where = [f"submission #{self.submission} of {self.device}"] if self.submission else []
        if self.site:
            where.append(f"from {self.site}")
        if self.kernel:
            where.append(f"kernel {self.kernel}")
        packet = f" Word {self.word}: {self.packet}." if self.packet else ""
        known = RULES.get(self.rule)
        see = f"docs/rules/{self.rule}.md" if known is None else known.see
        return (
            f"[{self.rule}] {', '.join(where)}{': ' if where else ''}{self.what}. {self.fix}{packet}"
            f"{f' See {see}.' if see else ''}"
        )


# of a SubmissionCheck, whose module stands above this one, and of an effect
Check = Callable[[Any, Any], Iterator[Violation]]

RULES: dict[str, Rule] = {}
CHECKS: dict[type, list[Check]] = {}


def rule(id: str, title: str, fix: str, level: str = "error", see: str | None = None) -> Rule:
    """Declare a rule.

    see     None: its page in docs/rules/
    Raises  UsageError when there is one of this id, or the level is another word
    """
    if id in RULES:
        raise UsageError(f"rule {id!r} is declared twice. Give each rule an id of its own.")
    if level not in ("error", "warning"):
        raise UsageError(f'rule {id!r}: level={level!r}; takes "error" or "warning".')
    made = RULES[id] = Rule(id, title, fix, level, f"docs/rules/{id}.md" if see is None else see)
    return made


def check(*effects: type) -> Callable[[Check], Check]:
    """Run the function on these effects of every device, or on these packets: classes of hcq.layout."""

    def declare(function: Check) -> Check:
        for effect in effects:
            CHECKS.setdefault(effect, []).append(function)
        return function

    return declare
