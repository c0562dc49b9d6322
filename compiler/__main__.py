"""python -m hcq.compiler: the passes, in order, and why each is there; `python -m hcq.compiler decompose`: its rules.

In       names of passes, or none
Out      text
Next     pipeline.py (the list)
"""

from __future__ import annotations

import sys

from hcq.compiler.pipeline import PASSES


def main(names: list[str]) -> int:
    """Print the passes, or those named with their rules. Returns the exit status: 2 for a name that no pass has."""
    known = {step.name: step for step in PASSES}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no pass {', '.join(unknown)}; the passes are {', '.join(known)}", file=sys.stderr)
        return 2
    if names:
        print("\n\n".join([str(known[name]) for name in names]))
    else:
        print("\n".join([f"{step.name:<16} {step.why} ({len(step.rules)} rules)" for step in PASSES]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
