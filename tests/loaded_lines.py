"""What a program loads of this package: its modules, their lines, and who imports each of them first.

In       a program's text, or a file: python tests/loaded_lines.py first.py; the first example of the README without one
Out      a row for each module, the longest first: lines, name, and the line that imported it; then the sum
Changes  runs the program, with a cache of its own that is empty
Next     test_imports.py (how many lines there may be)
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
_WATCH = """
import importlib, json, sys
from pathlib import Path
why = {}
class Watch:
    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1)
        while "importlib" in frame.f_code.co_filename:
            frame = frame.f_back
        why.setdefault(name, f"{frame.f_code.co_filename}:{frame.f_lineno}")
sys.meta_path.insert(0, Watch())
exec(compile(sys.stdin.read(), "program", "exec"), {"__name__": "__main__"})
files = {}
for name, module in sorted(sys.modules.items()):
    file = getattr(module, "__file__", None)
    if name.partition(".")[0] == "hcq" and file:
        files.setdefault(str(Path(file).resolve()), name)
rows = [(len(Path(file).read_text().splitlines()), name, why.get(name, "")) for file, name in files.items()]
print(json.dumps(sorted(rows, reverse=True)))
"""


def first_example() -> str:
    """The first program of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert found is not None
    return found[1]


def loaded(program: str) -> list[tuple[int, str, str]]:
    """(lines, name, who imports it first) of each module that a program has loaded at its end, the longest first."""
    with tempfile.TemporaryDirectory() as cache:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HCQ_")}
        done = subprocess.run(
            [sys.executable, "-c", _WATCH],
            cwd=ROOT,
            env={**kept, "HCQ_CACHE_DIR": cache},
            input=program,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return [tuple(row) for row in json.loads(done.stdout.splitlines()[-1])]


def table(rows: list[tuple[int, str, str]]) -> str:
    """The rows as text, and their sum."""
    lines = [f"{lines:6} {name:44} {why}" for lines, name, why in rows]
    return "\n".join([*lines, f"{sum(row[0] for row in rows):6} of {len(rows)} modules"])


if __name__ == "__main__":
    print(table(loaded(Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else first_example())))
