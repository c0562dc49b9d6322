"""Lint: the validation rules over a whole trace, offline: what HCQ_VALIDATE=1 would have said.

In       a Trace
Out      Findings: rule, submission, packet, what is wrong, what to do
Next     hcq/observe/lint.py (who runs them), hcq/rules/ (the rules), docs/rules/ (a page for each)
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.observe import lint
from hcq.rules import examine
from hcq.rules.rule import Finding
from hcq.tools.trace.color import Color, clean, counted
from hcq.trace.file import Trace


def findings(trace: Trace) -> list[Finding]:
    """Every breach of a rule, in the order of the submissions."""
    try:
        return list(lint.lint(trace))
    except (ValueError, KeyError, struct.error) as error:  # records that were made or changed by hand
        raise UsageError(
            f"lint {trace.path or 'trace'}: its records do not fit each other: {error}."
        ) from None


def check_rule_name(rule: str) -> None:
    """Raises UsageError when there is no such rule."""
    rules = [*examine.all_rules(), *lint.RECORDED]
    if rule not in rules:
        near = [known for known in rules if rule.partition("-")[0] in known]
        raise UsageError(
            f"there is no rule {rule!r}. {'Near it' if near else 'Rules'}: {', '.join(near or rules)}. See docs/rules/."
        )


def rules(color: Color) -> Iterator[str]:
    """Every rule with what must hold."""
    known = examine.all_rules()
    width = max(map(len, known))
    for one in known.values():
        style = "wrong" if one.level == "error" else "buffer"
        yield f"{color(f'{one.id:{width}}', 'heading')}  {color(f'{one.level:7}', style)}  {one.title}"
    yield f"{len(known)} rules; docs/rules/ has a page for each, with an example and what to do"
    yield f"beside them: {' and '.join(lint.RECORDED)}, of what the trace itself recorded"


def rules_as_json() -> list[dict[str, Any]]:
    """The same as plain data."""
    return [one._asdict() for one in examine.all_rules().values()]


def lines(found: Sequence[Finding], trace: Trace, color: Color, limit: int) -> Iterator[str]:
    """The findings as text."""
    for one in found[:limit]:
        place = f"{one.device} #{one.submission}" if one.submission else one.device
        style = "wrong" if one.level == "error" else "buffer"
        yield f"{color(place, 'heading')} {color(f'[{one.rule}]', style)} {clean(one.what)}"
        inside = [
            part
            for part in (
                f"word {one.word}: {one.packet}" if one.packet else "",
                f"kernel {one.kernel}" if one.kernel else "",
                f"buffer {one.buffer}" if one.buffer else "",
                one.site,
            )
            if part
        ]
        if inside:
            yield color(f"    {', '.join(inside)}", "note")
        page = "docs/trace.md" if one.rule in lint.RECORDED else f"docs/rules/{one.rule}.md"
        yield f"    {one.fix} ({page})"
    if len(found) > limit:
        yield f"... and {len(found) - limit} more; --limit shows them"
    errors = sum(one.level == "error" for one in found)
    verdict = f"{counted(errors, 'error')}, {counted(len(found) - errors, 'warning')}"
    checked = f"{counted(len(trace.submissions), 'submission')}, {len(examine.all_rules())} rules"
    yield f"{color(verdict if found else 'clean', 'wrong' if errors else 'more')}: {checked}"


def as_json(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """The findings as plain data: the fields of Finding."""
    return [one._asdict() for one in found]
