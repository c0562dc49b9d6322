"""Docstrings as HTML: paragraphs, fields in two columns, examples and drawings as they stand.

In       a docstring in the form that CONTRIBUTING.md describes
Out      HTML, its text escaped
Next     reference.py (the pages around it)
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from itertools import groupby

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonConsoleLexer

FIELD = re.compile(r"(?P<name>\S+(?: \S+)*?) {2,}(?P<meaning>\S.*)")
# fields that say something of the whole, not of an argument or an attribute
GENERAL = {"In", "Out", "Changes", "Next", "Returns", "Raises", "Source"}
CODE = re.compile(r"`([^`]+)`")


def to_html(docstring: str) -> str:
    """A docstring without the indentation of its source -> HTML.

    A line with `>>>` begins an example, up to the next empty line; `name  meaning`, with two blanks or more, is a
    field, whose meaning goes on in indented lines; what is indented otherwise is a drawing; the rest is paragraphs.

    >>> to_html("Twice `x`.\\n\\nx  a number,\\n   or none")
    '<p>Twice <code>x</code>.</p>\\n<dl><dt><code>x</code></dt><dd>a number, or none</dd></dl>'
    """
    lines = docstring.expandtabs().splitlines()
    blocks = groupby(zip(_kinds(lines), lines), key=lambda pair: pair[0])
    return "\n".join(FORMS[kind]([line for _, line in block]) for kind, block in blocks if kind)


def _kinds(lines: list[str]) -> Iterator[str]:
    """What each line belongs to: "" for an empty one."""
    kind = ""
    for line in lines:
        if not line.strip():
            kind = ""
        elif line.startswith(">>>") or kind == "example":
            kind = "example"
        elif line[0].isspace():
            kind = "field" if kind == "field" else "drawing"
        else:
            kind = "field" if FIELD.fullmatch(line) else "text"
        yield kind


def _inline(text: str) -> str:
    """Text within a line: escaped, and what is between backquotes set as code."""
    return CODE.sub(r"<code>\1</code>", html.escape(text, quote=False))


def _text(lines: list[str]) -> str:
    return f"<p>{_inline(' '.join(lines))}</p>"


def _drawing(lines: list[str]) -> str:
    return "<pre>" + html.escape("\n".join(lines), quote=False) + "</pre>"


def _example(lines: list[str]) -> str:
    return highlight(
        "\n".join(lines), PythonConsoleLexer(), HtmlFormatter(cssclass="pdoc-code codehilite")
    ).strip()


def _field(lines: list[str]) -> str:
    fields: list[tuple[str, str]] = []
    for line in lines:
        if found := FIELD.fullmatch(line):
            fields.append((found["name"], found["meaning"]))
        else:
            name, meaning = fields.pop()
            fields.append((name, f"{meaning} {line.strip()}"))
    return f"<dl>{''.join(f'<dt>{_name(name)}</dt><dd>{_inline(meaning)}</dd>' for name, meaning in fields)}</dl>"


def _name(name: str) -> str:
    return name if name in GENERAL else f"<code>{html.escape(name.replace('`', ''), quote=False)}</code>"


FORMS = {"text": _text, "drawing": _drawing, "example": _example, "field": _field}
