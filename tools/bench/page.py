"""Figures kept by `compare.py --json`, as a table in Markdown: docs/performance.md has it.

In       files written by `compare.py --json`; of a case that several have, the last one counts
Out      one line per case: our figure, what the best peer's is to ours, each peer's, our share of the machine's ceiling
Next     compare.py (which measures), docs/performance.md
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __package__ in (None, ""):  # run as a file from a checkout: the package is beside this folder
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hcq.tools.bench.cases.case import LIBRARIES
from hcq.tools.bench.compare import Figure, Row, number

TITLES = {
    "numpy": "NumPy",
    "torch": "PyTorch",
    "torch-kept": "PyTorch, memory kept",
    "jax": "JAX",
    "tinygrad": "tinygrad",
    "llama_cpp": "llama.cpp",
}


def rows_of(path: Path) -> list[Row]:
    """The rows of a file written by `bench/compare.py --json`; ValueError, with the path, where it is none."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return [_row(kept) for kept in record["rows"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} was not written by bench/compare.py --json: {error!r}") from error


def _row(kept: dict[str, Any]) -> Row:
    figures = {library: Figure(**figure) for library, figure in kept["figures"].items()}
    return Row(**(kept | {"figures": figures}))


def best_peer(row: Row) -> tuple[str, float] | None:
    """The fastest peer of a row and how many times faster than it we are; None where there is no peer's figure."""
    ratios = {peer: ratio for peer in row.figures if peer != "hcq" and (ratio := row.ratio(peer)) is not None}
    return min(ratios.items(), key=lambda item: item[1]) if ratios else None


def table(rows: Sequence[Row]) -> list[str]:
    """The lines of the table. A ratio above 1 means that we are faster."""
    peers = [peer for peer in LIBRARIES[1:] if any(peer in row.figures for row in rows)]
    head = ["case", "hcq", "beside the best", *(TITLES[peer] for peer in peers), "of the ceiling"]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        ours, best = row.figures["hcq"].value, best_peer(row)
        cells = [row.name, f"{number(ours)} {row.unit}" if ours else "failed"]
        cells.append(f"{ratio(best[1])} ({TITLES[best[0]]})" if best else "")
        for peer in peers:
            theirs, faster = row.figures.get(peer, Figure()).value, row.ratio(peer)
            cells.append(f"{number(theirs)} ({ratio(faster)})" if theirs and faster else "")
        cells.append(f"{100 * ours / row.ceiling:.0f} %" if ours and row.ceiling else "")
        lines.append(cells)
    return [f"| {' | '.join(cells)} |" for cells in lines]


def ratio(value: float) -> str:
    """How many times faster, with two digits, or three below ten."""
    return f"{value:.0f}x" if value >= 10 else f"{value:.2f}x"


def main(argv: Sequence[str] | None = None) -> int:
    """The program. Returns its exit status."""
    made = argparse.ArgumentParser(
        prog="page",
        description=(__doc__ or "").split("\n\n")[0],
        epilog="example:\n  python tools/bench/compare.py --json all.json && python tools/bench/page.py all.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("file", nargs="+", type=Path, help="a file written by bench/compare.py --json")
    args = made.parse_args(argv)
    rows: dict[str, Row] = {}
    for path in args.file:
        try:
            rows |= {row.name: row for row in rows_of(path)}
        except (OSError, ValueError) as error:
            made.error(str(error))
    print("\n".join(table(list(rows.values()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
