"""The notebooks of docs/notebooks, run from top to bottom and kept with what they print.

In       docs/notebooks/*.ipynb; nbclient and ipykernel (`make notebooks` installs them)
Out      the same files with today's outputs
Changes  the files
Next     tests/test_notebooks.py (what a reader is to see in each)

    python tools/notebooks.py [NAME...]
"""

from __future__ import annotations

import re
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
    """Without when and where it ran, and with what a cell prints in one piece."""
    for cell in book.cells:
        cell.get("metadata", {}).pop("execution", None)
        outputs: list[Any] = []
        for output in cell.get("outputs", []):
            if "text" in output:
                output["text"] = placeless(output["text"])
            for kind, text in output.get("data", {}).items():
                if isinstance(text, str):
                    output["data"][kind] = placeless(text)
            before = outputs[-1] if outputs else {}
            if (
                output["output_type"] == before.get("output_type") == "stream"
                and output["name"] == before["name"]
            ):
                # a forked helper sends again what the kernel had in its buffer
                again = output["text"].startswith(before["text"])
                before["text"] = output["text"] if again else before["text"] + output["text"]
            else:
                outputs.append(output)
        if cell["cell_type"] == "code":
            cell["outputs"] = outputs
    return book


def placeless(text: str) -> str:
    """Text without this machine's folders."""
    text = re.sub(r"/tmp/ipykernel_\d+/\d+\.py", "cell.py", text.replace(f"{ROOT}/", ""))
    return re.sub(r"/tmp/tmp\w+/", "", text)


def main(names: list[str]) -> int:
    """The program. Returns its exit status."""
    import nbformat

    for path in sorted(FOLDER.glob("*.ipynb")):
        if not names or path.stem in names:
            nbformat.write(cleaned(run(path)), path)
            print(f"ran {path.name}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
