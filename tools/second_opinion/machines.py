"""The machines that a HIP program can be run on, each as the words before its command line.

In       the words of --on: amd:gfx942 and the like, rocjitsu:CONFIG, hardware
Out      the command that runs a program there, with watch_hip.so loaded into it; a rocjitsu that was built
Changes  build_rocjitsu fetches and builds rocjitsu in the folder that it is given
Next     __main__.py (the program)

rocjitsu is AMD's emulator: https://github.com/ROCm/rocm-systems, emulation/rocjitsu, under the MIT licence. Nothing of
it is part of this project. It is run as a program, and watch_hip.so knows nothing of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hcq.errors import UsageError

SOURCES = "https://github.com/ROCm/rocm-systems"
INSIDE = "emulation/rocjitsu"
# adds to what the emulator has put there for itself, in place of taking it away
PRELOADED = 'export LD_PRELOAD="$0${LD_PRELOAD:+ $LD_PRELOAD}"; exec "$@"'


def command(machine: str, rocjitsu: Path | None, watcher: Path, program: Sequence[str]) -> list[str]:
    """The command line that runs a program on a machine and records its memory.

    machine   words of `hcq emulate`, "rocjitsu:CONFIG" or "hardware"
    rocjitsu  the folder that build_rocjitsu made, or another clone that was built
    watcher   watch_hip.so
    Raises    UsageError: there is no such machine, or no rocjitsu in the folder
    """
    watched = ["sh", "-c", PRELOADED, str(watcher), *program]
    if machine == "hardware":
        return watched
    if machine.startswith("amd:"):
        return [sys.executable, "-m", "hcq", "emulate", machine, "--", *watched]
    kind, _, config = machine.partition(":")
    if kind != "rocjitsu" or not config:
        raise UsageError(
            f"--on {machine}: it is words of `hcq emulate` (amd:gfx942), rocjitsu:CONFIG or hardware"
        )
    if rocjitsu is None:
        raise UsageError(
            f"--on {machine} needs --rocjitsu FOLDER: where rocjitsu was built (--build-rocjitsu does it)"
        )
    return [str(program_in(rocjitsu)), "--config", str(config_in(rocjitsu, config)), "--", *watched]


def program_in(folder: Path) -> Path:
    """The program rocjitsu below a folder. Raises UsageError if there is none."""
    for path in sorted(folder.rglob("rocjitsu")):
        if path.is_file() and os.access(path, os.X_OK):
            return path
    raise UsageError(
        f"{folder} holds no program named rocjitsu: build it there, or with --build-rocjitsu {folder}"
    )


def config_in(folder: Path, name: str) -> Path:
    """A configuration of rocjitsu: a path, or a name in its folder configs/, with or without .json."""
    if Path(name).is_file():
        return Path(name)
    for path in sorted(folder.rglob(f"configs/{name.removesuffix('.json')}.json")):
        return path
    known = sorted(path.stem for path in folder.rglob("configs/*_kmd.json"))
    raise UsageError(f"rocjitsu has no configuration {name}; {', '.join(known) or 'none'} are in {folder}")


def build_rocjitsu(folder: Path) -> None:
    """Fetch rocjitsu's sources into a folder, alone of their repository, and build them. Minutes, and a network.

    Raises  UsageError: a step failed; its own words are above that
    """
    clone = folder / "rocm-systems"
    if not clone.exists():
        _step(["git", "clone", "--depth=1", "--filter=blob:none", "--sparse", SOURCES, str(clone)])
        _step(["git", "-C", str(clone), "sparse-checkout", "set", INSIDE])
    build = folder / "build"
    _step(["cmake", "-S", str(clone / INSIDE), "-B", str(build), "-DCMAKE_BUILD_TYPE=Release"])
    _step(["cmake", "--build", str(build), "--parallel", str(os.cpu_count() or 1)])
    program_in(folder)


def _step(words: list[str]) -> None:
    print("+", *words, file=sys.stderr, flush=True)
    try:
        status = subprocess.run(words).returncode
    except FileNotFoundError:
        raise UsageError(
            f"{words[0]} is not installed; rocjitsu is built with git, cmake and a compiler of C++20"
        ) from None
    if status:
        raise UsageError(f"`{' '.join(words)}` ended with {status}: rocjitsu was not built")
