"""Installation: the top-level folders become parts of the one package `hcq`.

In       the folders beside this file
Out      packages hcq, hcq.ir, hcq.compiler, hcq.frontend, hcq.tools: no generic name lands in site-packages; of tools/
         what SHIPPED names; the stubs, which are made here
Changes  an editable install makes .editable, in which there is a link to hcq alone
Next     pyproject.toml (everything that is plain data: dependencies, programs, settings of the tools), tools/stubs.py
"""

import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.editable_wheel import editable_wheel

ROOT = Path(__file__).parent
EDITABLE = ".editable"
MAPPED = ("ir", "compiler", "frontend", "tools")
# of tools/: what looks at submissions and checks a GPU. Benchmarks and the makers of pages stay in a checkout
SHIPPED = ("__init__", "disassembly", "hcq_trace", "hw", "hw_check", "trace")


def is_shipped(path: Path) -> bool:
    """Whether a file goes into the wheel."""
    top, *rest = path.relative_to(ROOT).parts
    return "__pycache__" not in rest and (top != "tools" or Path(rest[0]).stem in SHIPPED)


def packages() -> dict[Path, str]:
    """Every folder with an __init__.py -> the name it is imported by."""
    found = {}
    for top in ("hcq", *MAPPED):
        for init in sorted(filter(is_shipped, (ROOT / top).rglob("__init__.py"))):
            name = ".".join(init.parent.relative_to(ROOT).parts)
            found[init.parent] = name if top == "hcq" else f"hcq.{name}"
    return found


def data(known: dict[Path, str]) -> dict[str, list[str]]:
    """Package -> its files that are no Python: all in its folder, and in folders there that are no packages."""
    found: dict[str, list[str]] = {}
    for top in ("hcq", *MAPPED):
        for path in sorted(filter(is_shipped, (ROOT / top).rglob("*"))):
            if path.is_file() and path.suffix not in (".py", ".pyi"):
                home = next(parent for parent in path.parents if parent in known)
                found.setdefault(known[home], []).append(path.relative_to(home).as_posix())
    return found


class Build(build_py):
    """What is installed: of tools/ the programs that users of a device run, and stubs, for type checkers."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            subprocess.run(
                [sys.executable, ROOT / "tools" / "stubs.py", Path(self.build_lib, "hcq")], check=True
            )

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        modules: list[tuple[str, str, str]] = super().find_package_modules(package, package_dir)
        return [module for module in modules if is_shipped(ROOT / module[2])]


class Editable(editable_wheel):
    """An editable install is one folder on sys.path, and nothing but `hcq` is in it.

    setuptools would install an import hook, since folders are mapped. Such a hook is asked last: in the folder above a
    clone, Python finds the clone first, and takes it for a package without files. A package on sys.path is preferred to
    that. The clone's own folder would do there, too, but then `import tools` would find ours in every program.
    """

    def finalize_options(self) -> None:
        link = ROOT / EDITABLE / "hcq"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..", "hcq"), target_is_directory=True)
        self.distribution.packages = [
            name for folder, name in packages().items() if folder.is_relative_to(ROOT / "hcq")
        ]
        self.distribution.package_dir = {"": EDITABLE}
        super().finalize_options()


setup(
    cmdclass={"build_py": Build, "editable_wheel": Editable},
    packages=list(packages().values()),
    package_dir={"hcq": "hcq", **{f"hcq.{top}": top for top in MAPPED}},
    package_data=data(packages()),
)
