"""Lookup: which form of an operator holds for a model, of all that the modules of operators/ declare.

In       an operator's domain, name and version
Out      its Implementation; why there is none
Changes  nothing; the modules of operators/ are imported when an operator is first looked up
Next     table.py (how operators get into the table), graph.py (who looks them up)
"""

from __future__ import annotations

import functools
import importlib

from hcq.frontend.more.onnx.table import TABLE, Implementation

GROUPS = (
    "activation attention control conv image index logic loss math ml norm older pool product quantize random_numbers "
    "reduction rnn sequence shape signal text training trees"
).split()


@functools.cache
def load() -> dict[tuple[str, str], list[Implementation]]:
    """The whole table: (domain, operator) -> its forms, the oldest first."""
    for group in GROUPS:
        importlib.import_module(f"hcq.frontend.more.onnx.operators.{group}")
    for forms in TABLE.values():
        forms.sort(key=lambda form: form.since)
    return TABLE


def find(domain: str, op: str, version: int) -> Implementation | None:
    """The form of an operator that holds in a version; None where there is none."""
    forms = load().get((domain, op), ())
    return next((form for form in reversed(forms) if form.since <= version), None)


def why_not(domain: str, op: str, version: int) -> str:
    """In a few words why there is none."""
    forms = load().get((domain, op), ())
    if forms:
        return f"its form of operator set {version} is not known, that from {forms[0].since} on is"
    return "there is no such operator here"
