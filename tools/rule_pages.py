"""Rule pages: what docs/rules repeats of the declared rules, their titles and the index, written from these.

In       the rules; their pages, whose prose and examples are written by hand
Out      each page with its head, the README with its tables; a page to be filled in for a rule that has none
Next     pages.py (writes and checks them), hcq/rules/ (the rules), tests/hcq/test_rules.py (runs the examples)
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

from hcq import backends
from hcq.rules.examine import all_rules
from hcq.rules.rule import Rule

# heading of a table -> the module whose rules it lists, in the order of its source
TABLES = {
    "Packets": "hcq.rules.packets",
    "Addresses": "hcq.rules.addresses",
    "Signals and waits": "hcq.rules.signals",
    "Order": "hcq.rules.order",
    "Launches": "hcq.rules.launches",
    "Kernels": "hcq.rules.kernels",
    "Blocks, rings, arenas": "hcq.rules.blocks",
}
INDEX = re.compile(r"(?<=^## The rules\n\n).*?(?=^## )", re.MULTILINE | re.DOTALL)
PROSE = """\
## What it means

## How it happens

## How to fix it

## An example that fires it

```python
```
"""


def pages(docs: Path) -> dict[str, str]:
    """File name -> text, for every rule and the index."""
    folder = docs / "rules"
    found = {f"rules/{rule.id}.md": rule_page(rule, folder) for rule in all_rules().values()}
    readme = folder / "README.md"
    text = (
        readme.read_text(encoding="utf-8") if readme.is_file() else "# Rules\n\n## The rules\n\n## Further\n"
    )
    found["rules/README.md"] = INDEX.sub(lambda match: "\n".join(tables()), text)
    return found


def rule_page(rule: Rule, folder: Path) -> str:
    """A rule's page: its head from the declaration, what follows as it is."""
    path = folder / f"{rule.id}.md"
    prose = path.read_text(encoding="utf-8") if path.is_file() else PROSE
    level = "Level: warning. It is reported once, and the work goes on.\n\n" * (rule.level == "warning")
    return f"# {rule.id}\n\n{rule.title}\n\n{level}{prose[max(prose.find('## '), 0) :]}"


def tables() -> Iterator[str]:
    """The index: every rule under its heading, with its title; those of single kinds of devices last."""
    left = set(all_rules())
    own = [backend.rules.partition(":")[0] for backend in backends.every() if backend.rules]
    for heading, modules in [*((key, [name]) for key, name in TABLES.items()), ("One kind of device", own)]:
        yield f"### {heading}\n\n| rule | what must hold |\n| --- | --- |"
        for module in modules:
            for rule in vars(importlib.import_module(module)).values():
                if isinstance(rule, Rule) and rule.id in left:
                    left.remove(rule.id)
                    warning = " (warning)" if rule.level == "warning" else ""
                    yield f"| [{rule.id}]({rule.id}.md) | {rule.title}{warning} |"
        yield ""
    yield ""
