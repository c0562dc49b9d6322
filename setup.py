"""Installation: the top-level folders become parts of the one package `hcq`.

In       the folders beside this file
Out      packages hcq, hcq.ir, hcq.compiler, hcq.frontend, hcq.tools: no generic name lands in site-packages
Next     pyproject.toml (everything that is plain data: dependencies, programs, settings of the tools)
"""

from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
MAPPED = ("ir", "compiler", "frontend", "tools")


def packages() -> list[str]:
    """Every folder with an __init__.py, under the name it is imported by."""
    found = []
    for top in ("hcq", *MAPPED):
        for init in sorted((ROOT / top).rglob("__init__.py")):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            found.append(name if top == "hcq" else f"hcq.{name}")
    return found


setup(
    packages=packages(),
    package_dir={"hcq": "hcq", **{f"hcq.{top}": top for top in MAPPED}},
    package_data={
        "hcq": ["py.typed"],
        "hcq.emu.amd.shader": ["opcodes/*.txt"],
        "hcq.nv.abi": ["data/*.tsv"],
        "hcq.tools.trace": ["page/*"],
    },
)
