"""Installation: the top-level folders become parts of the one package `hcq`.

In       the folders beside this file
Out      packages hcq, hcq.ir, hcq.compiler, hcq.frontend, hcq.tools: no generic name lands in site-packages
Next     pyproject.toml (everything that is plain data: dependencies, programs, settings of the tools)
"""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
MAPPED = ("ir", "compiler", "frontend", "tools")


def packages() -> dict[Path, str]:
    """Every folder with an __init__.py -> the name it is imported by."""
    found = {}
    for top in ("hcq", *MAPPED):
        for init in sorted((ROOT / top).rglob("__init__.py")):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            found[init.parent] = name if top == "hcq" else f"hcq.{name}"
    return found


def data(known: dict[Path, str]) -> dict[str, list[str]]:
    """Package -> its files that are no Python: all in its folder, and in folders there that are no packages."""
    found: dict[str, list[str]] = {}
    for top in ("hcq", *MAPPED):
        for path in sorted((ROOT / top).rglob("*")):
            if path.is_file() and path.suffix != ".py" and path.parent.name != "__pycache__":
                home = next(parent for parent in path.parents if parent in known)
                found.setdefault(known[home], []).append(path.relative_to(home).as_posix())
    return found


setup(
    packages=list(packages().values()),
    package_dir={"hcq": "hcq", **{f"hcq.{top}": top for top in MAPPED}},
    package_data=data(packages()),
)
