"""Labels: what a submission is called on one line, and which kind of work it is drawn as.

In       a Submission
Out      a Label
Next     page_data.py and where_time_went.py (who use it), page/page.css (the colours of the kinds)
"""

from __future__ import annotations

from typing import NamedTuple

from hcq.trace.file import Submission

KINDS_OF_WORK = ("graph", "kernel", "copy", "fill", "packets", "wait", "other")
SPEAKING = (
    "indirect",
    "dispatch",
    "copy",
    "fill",
    "packets",
    "wait",
)  # a submission is the first of these it holds
NAMED = ("indirect", "dispatch", "packets")


class Label(NamedTuple):
    """`work` is a place in KINDS_OF_WORK."""

    work: int
    text: str


def label_of(submission: Submission) -> Label:
    """What a submission does: its first kernel, graph, copy or fill, and how many more."""
    verbs = [c["verb"] for c in submission.commands if c["verb"] in SPEAKING]
    what = next((verb for verb in SPEAKING if verb in verbs), "")
    text = what or (submission.commands[0]["verb"] if submission.commands else "empty")
    if what in NAMED:
        first = next(command for command in submission.commands if command["verb"] == what)
        text = str(first.get("kernel") or first.get("label") or what)
    if len(verbs) > 1:
        text += f" and {len(verbs) - 1} more"
    if not what and any(command["verb"] == "signal" for command in submission.commands):
        return Label(SPEAKING.index("wait"), text)
    return Label(SPEAKING.index(what) if what else len(SPEAKING), text)
