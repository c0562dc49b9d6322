"""The notebooks of docs/notebooks, run from top to bottom and kept with what they print.

In       docs/notebooks/*.ipynb; nbclient and ipykernel (`make notebooks` installs them)
Out      the same files with today's outputs
Changes  the files
Next     tests/test_notebooks.py (what a reader is to see in each)

    python tools/notebooks.py [NAME...]
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "notebooks"


def run(path: Path) -> Any:
    """The notebook with its outputs. Raises what a cell raised."""
    import nbclient
    import nbformat

    book = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    )
    client.execute()
    return book


def cleaned(book: Any) -> Any:
    """Without when and where it ran: times of cells, this machine's folders."""
    for cell in book.cells:
        cell.get("metadata", {}).pop("execution", None)
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = output["text"].replace(f"{ROOT}/", "")
            for kind, text in output.get("data", {}).items():
                if isinstance(text, str):
                    output["data"][kind] = text.replace(f"{ROOT}/", "")
    return book


def main(names: list[str]) -> int:
    """The program. Returns its exit status."""
    import nbformat

    os.environ["HCQ_COMPILERS"] = (
        "1"  # a process of its own would print again what the kernel has not sent yet
    )
    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            nbformat.write(cleaned(run(path)), path)
            print(f"ran {path.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
