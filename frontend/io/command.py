"""The command `python -m hcq show FILE`: what is in a file of tensors.

In       a path
Out      names, formats, shapes and bytes of its tensors, and its metadata, as text or as JSON; no tensor is read
Next     files.py (which files), hcq/__main__.py (the program)
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any

from hcq.checks import printable, shown
from hcq.frontend.io.files import load
from hcq.frontend.io.weights import Weights

EPILOG = """examples:
  python -m hcq show model.safetensors             also .gguf, .pt, .pth, .npz, .npy, an index.json, a folder with one
  python -m hcq show model.gguf --json

Nothing in a file is run, and no tensor is read. The exit status is 2 for a file that cannot be what it says it is.
"""
SHOWN = 70  # characters of a value of metadata


def add_verb(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    parser.epilog = EPILOG
    parser.set_defaults(act=run)
    parser.add_argument("file", metavar="FILE", help="a file of tensors, or a folder that has one")
    parser.add_argument("--json", action="store_true", help="for another program")


def run(options: argparse.Namespace) -> int:
    """Print what is there. Returns the exit status."""
    weights = load(options.file)
    print(json.dumps(_as_data(weights), indent=2) if options.json else _as_text(weights))
    return 0


def _as_data(weights: Weights) -> dict[str, Any]:
    return {
        "path": weights.path,
        "kind": weights.kind,
        "size_bytes": weights.size_bytes,
        "metadata": {key: _short(value) for key, value in weights.metadata.items()},
        "tensors": [
            {
                "name": entry.name,
                "format": entry.format,
                "dtype": entry.dtype.name,
                "shape": list(entry.shape),
                "size_bytes": entry.size_bytes,
            }
            for entry in weights.entries.values()
        ],
    }


def _as_text(weights: Weights) -> str:
    lines = [
        f"{printable(weights.path)}: {weights.kind}, {len(weights)} tensors, {weights.size_bytes:,} bytes"
    ]
    if weights.metadata:
        pairs = [(printable(key), _short(value)) for key, value in weights.metadata.items()]
        width = max(len(key) for key, _ in pairs)
        lines += ["", *[f"  {key:<{width}}  {value}" for key, value in pairs]]
    rows = [
        (
            printable(entry.name),
            entry.format,
            " x ".join(map(str, entry.shape)) or "()",
            f"{entry.size_bytes:,} bytes",
        )
        for entry in weights.entries.values()
    ]
    if rows:
        widths = [max(len(row[i]) for row in rows) for i in range(4)]
        lines.append("")
        for name, form, shape, size in rows:
            row = f"  {name:<{widths[0]}}  {form:<{widths[1]}}  {shape:<{widths[2]}}  {size:>{widths[3]}}"
            lines.append(row.rstrip())
    return "\n".join(lines)


def _short(value: Any, depth: int = 0) -> Any:
    """A value as one line shows it."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if isinstance(value, str):
        text = value[:SHOWN].encode("unicode_escape").decode()
        return text if len(text) <= SHOWN and len(value) <= SHOWN else f"{text[: SHOWN - 3]}..."
    if isinstance(value, Sequence) and not isinstance(value, bytes) and len(value) > 8 and depth < 2:
        first = ", ".join(str(_short(item, depth + 1)) for item in value[:4])
        return f"{len(value)} of {first[:SHOWN]}, ..."
    return printable(shown(value)[:SHOWN])
