"""Configuration: every HCQ_* environment variable, read in this one place at first use.

In       the environment (or a mapping, in tests)
Out      a frozen Config; `current()` is the process's own
Changes  nothing; a misspelt variable or word is a UsageError that lists the valid ones
Next     docs/environment.md (the same table for people)
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from hcq.checks import is_decimal, shown
from hcq.errors import UsageError
from hcq.record import record

DEVICE_DEBUG_WORDS = ("push", "sync", "alloc")  # what devices do; the rest is of the compiler
DEBUG_WORDS = ("graph", "schedule", "ir", "code", "passes", "rules", *DEVICE_DEBUG_WORDS)

AMD_QUEUES = ("pm4", "aql")
NV_RENDERERS = ("ptx", "cuda")
CPU_LEVELS = ("x86-64-v3",)
INEXACT_WORDS = ("tf32", "fp8")  # compiler/loops/matrix_units.py: what units need
SANITIZE_WORDS = ("memory", "race", "unequal", "init", "wait", "sync")  # unequal: race, but for equal values
REPORT_WORDS = ("signal", "off", "nowaves")
ON_WORDS, OFF_WORDS = frozenset(("1", "on", "yes")), frozenset(("0", "off", "no"))

# name -> what it takes, one line each; `python -m hcq --help` prints this table
SWITCHES: dict[str, str] = {
    "HCQ_DEVICE": "the default device of the tensor layer: CPU, CPU:1, ... (default CPU)",
    "HCQ_EMULATE": "emulated devices to offer, comma separated: amd:gfx1100, nv:sm_90, ... (default none)",
    "HCQ_EMU_COMPILED": "1: emulated GPUs run hot kernels as machine code (default); always; 0: none",
    "HCQ_EMU_THREADS": "threads that workgroups of a launch on an emulated GPU are spread over (default: our cores)",
    "HCQ_EMU_PTX": "FOLDER: cubins of programs that load their own, NAME.cubin, and their PTX, NAME.ptx, which emulated"
    " NVIDIA GPUs run (default: that in cubins made with -lineinfo)",
    "HCQ_DEBUG": f"comma separated words of {', '.join(DEBUG_WORDS)}: print that stage to stderr",
    "HCQ_TRACE": "FILE or FILE,data: record every submission, with data also buffer contents; read it with hcq-trace;"
    " %r in FILE is the rank, %p the process, %h the host",
    "HCQ_VALIDATE": "1: check packets against the rules before the doorbell (default 0)",
    "HCQ_SANITIZE": f"words of {', '.join(SANITIZE_WORDS)}: look for faults of kernels while emulated GPUs run them"
    " (default none)",
    "HCQ_SANITIZE_IGNORE": "FILE: findings of HCQ_SANITIZE that are to be left out (default none)",
    "HCQ_SANITIZE_SCHEDULES": "N: python -m hcq emulate runs the program N times, with seeds 1 to N (default: once)",
    "HCQ_PROFILE": "words of 1 (timestamp every dispatch) and counters (count what kernels do on emulated GPUs;"
    " counters:N runs only N blocks of each launch, so results are wrong): print a table when the device closes"
    " (default 0)",
    "HCQ_SEARCH": "N: search for better schedules, by a beam of N, on the device itself (default 0: do not)",
    "HCQ_SEARCH_RESULTS": "FILE: schedules that searches found; used, and added to (default: one in HCQ_CACHE_DIR)",
    "HCQ_SEARCH_SECONDS": "how long the searches of a process may take, all together (default 300)",
    "HCQ_SEARCH_SEED": "a number that decides which candidates are tried first (default 0)",
    "HCQ_INEXACT": f"words of {', '.join(INEXACT_WORDS)}: products that matrix units may do though they round more"
    " (default none)",
    "HCQ_JIT_CHECK": "1: compare the first replays of a jit with eager results (default 0)",
    "HCQ_CHECK_INDICES": "1: read indices and labels back, and refuse those out of range (default 0)",
    "HCQ_REPORT": "words of signal (on SIGUSR1), off, nowaves (AMD: queues stay on); default: on timeouts, faults",
    "HCQ_REPORT_DIR": "folder for reports, the newest 32 of which are kept (default reports/ in HCQ_CACHE_DIR)",
    "HCQ_INSPECT": "1: answer `python -m hcq inspect` of other processes of this user (default 0)",
    "HCQ_DUMP_DIR": "folder for devcoredumps of emulated AMD GPUs that hang (default: none are written)",
    "HCQ_CACHE_DIR": "folder for compiled objects (default $XDG_CACHE_HOME/hcq or ~/.cache/hcq)",
    "HCQ_TIMEOUT_MS": "how long a wait may take before it is a WaitTimeout, in milliseconds (default 30000)",
    "HCQ_COMPILERS": "processes that compile kernels at a time, when there are many (default: the cores we may use)",
    "HCQ_THREADS": "threads of the CPU device, its command processor included (default: the cores we may use)",
    "HCQ_CPUS": "CPU devices (CPU:0, CPU:1, ...) that share HCQ_THREADS, each with as many of them (default 1)",
    "HCQ_CPU_LEVEL": "x86-64-v3: kernels of the CPU use AVX2 and nothing above it (default: all that it has)",
    "HCQ_AMD_QUEUE": "pm4 or aql: the packets of AMD compute queues (default: what suits the GPU)",
    "HCQ_NV_RENDERER": "ptx (LLVM writes PTX) or cuda (CUDA C through nvrtc): how NV kernels are made (default ptx)",
    "HCQ_VISIBLE": "GPUs to use, comma separated, as AMD:1 or as numbers of every kind: the first is then number 0;"
    " empty hides all (default all)",
}


@record(frozen=True)
class Config:
    """What the switches say. Fields are named after the variables, in lower case."""

    device: str = "CPU"
    emulate: tuple[str, ...] = ()
    emu_compiled: str = ""
    emu_threads: int = 1
    emu_ptx: Path | None = None
    debug: frozenset[str] = frozenset()
    trace: str | None = None
    trace_data: bool = False
    validate: bool = False
    sanitize: frozenset[str] = frozenset()
    sanitize_schedules: int = 0
    sanitize_ignore: Path | None = None
    profile: bool = False
    counters: bool = False
    counted_blocks: int = 0
    search: int = 0
    search_results: Path | None = None
    search_seconds: int = 300
    search_seed: int = 0
    inexact: frozenset[str] = frozenset()
    jit_check: bool = False
    check_indices: bool = False
    report: frozenset[str] = frozenset()
    report_dir: Path = Path()
    inspect: bool = False
    dump_dir: Path | None = None
    cache_dir: Path = Path()
    timeout_ms: int = 30_000
    threads: int = 1
    compilers: int = 1
    visible: tuple[tuple[str, int], ...] | None = None  # kind ("" for each kind of GPU) and number, in order
    cpu_level: str = ""
    amd_queue: str = ""
    nv_renderer: str = "ptx"

    @property
    def is_observed(self) -> bool:
        """Whether anything asks for observers of devices (hcq.observe)."""
        is_debugged = not self.debug.isdisjoint(DEVICE_DEBUG_WORDS)
        is_checked = self.validate or bool(self.sanitize)
        return self.trace is not None or is_checked or self.profile or self.counters or is_debugged

    @staticmethod
    def read(environ: Mapping[str, str]) -> Config:
        """Parse an environment. Raises UsageError naming the variable, what it said, and what is valid.

        >>> Config.read({"HCQ_DEVICE": "AMD", "HCQ_TIMEOUT_MS": "50"}).timeout_ms
        50
        """
        for name in environ:
            if name.startswith("HCQ_") and name not in SWITCHES:
                raise UsageError(f"{name} is not a switch. The switches are {', '.join(SWITCHES)}.")
        profile = _profile(environ)
        return Config(
            device=environ.get("HCQ_DEVICE", "").strip() or "CPU",
            emulate=_words(environ, "HCQ_EMULATE"),
            emu_compiled=_word(environ, "HCQ_EMU_COMPILED", ("0", "1", "always")),
            emu_threads=_number(environ, "HCQ_EMU_THREADS", cores(), 1, 1024),
            emu_ptx=_path(environ, "HCQ_EMU_PTX"),
            debug=frozenset(_words(environ, "HCQ_DEBUG", DEBUG_WORDS)),
            trace=environ.get("HCQ_TRACE", "").removesuffix(",data") or None,
            trace_data=environ.get("HCQ_TRACE", "").endswith(",data"),
            validate=_flag(environ, "HCQ_VALIDATE"),
            sanitize=sanitize_words(_words(environ, "HCQ_SANITIZE", SANITIZE_WORDS)),
            sanitize_schedules=_number(environ, "HCQ_SANITIZE_SCHEDULES", 0, 0, 10_000),
            sanitize_ignore=_path(environ, "HCQ_SANITIZE_IGNORE"),
            profile=bool(profile & ON_WORDS),
            counters=any(word.startswith("counters") for word in profile),
            counted_blocks=max(
                (int(word[9:]) for word in profile if word.startswith("counters:")), default=0
            ),
            search=_number(environ, "HCQ_SEARCH", 0, 0, 1024),
            search_results=_path(environ, "HCQ_SEARCH_RESULTS"),
            search_seconds=_number(environ, "HCQ_SEARCH_SECONDS", 300, 1, 2**40),
            search_seed=_number(environ, "HCQ_SEARCH_SEED", 0, 0, 2**63),
            inexact=frozenset(_words(environ, "HCQ_INEXACT", INEXACT_WORDS)),
            jit_check=_flag(environ, "HCQ_JIT_CHECK"),
            check_indices=_flag(environ, "HCQ_CHECK_INDICES"),
            report=frozenset(_words(environ, "HCQ_REPORT", REPORT_WORDS)),
            report_dir=Path(environ.get("HCQ_REPORT_DIR") or _cache_dir(environ) / "reports"),
            inspect=_flag(environ, "HCQ_INSPECT"),
            dump_dir=_path(environ, "HCQ_DUMP_DIR"),
            cache_dir=_cache_dir(environ),
            timeout_ms=_number(environ, "HCQ_TIMEOUT_MS", 30_000, 1, 2**40),
            threads=max(
                1, _number(environ, "HCQ_THREADS", cores(), 1, 1024) // _number(environ, "HCQ_CPUS", 1, 1, 64)
            ),
            compilers=_number(environ, "HCQ_COMPILERS", cores(), 1, 1024),
            cpu_level=_word(environ, "HCQ_CPU_LEVEL", CPU_LEVELS),
            amd_queue=_word(environ, "HCQ_AMD_QUEUE", AMD_QUEUES),
            nv_renderer=_word(environ, "HCQ_NV_RENDERER", NV_RENDERERS) or "ptx",
            visible=tuple(_visible(word) for word in _words(environ, "HCQ_VISIBLE"))
            if "HCQ_VISIBLE" in environ
            else None,
        )

    def numbers_of(self, kind: str) -> tuple[int, ...] | None:
        """The numbers of the devices of a kind that HCQ_VISIBLE shows, in its order; None when it hides none of them.

        >>> Config.read({"HCQ_VISIBLE": "AMD:1"}).numbers_of("AMD")
        (1,)
        """
        if self.visible is None:
            return None
        named = tuple(number for word, number in self.visible if word == kind)
        if named or kind == "CPU":
            return named or None
        everywhere = tuple(number for word, number in self.visible if not word)
        return everywhere if everywhere or not self.visible else None


def current() -> Config:
    """The process's configuration, read from the environment when first asked for."""
    global _current
    if _current is None:
        _current = Config.read(os.environ)
    return _current


def use(config: Config | None) -> None:
    """Replace the process's configuration; None means: read the environment again when next asked."""
    global _current
    _current = config


def sanitize_words(words: Iterable[str]) -> frozenset[str]:
    """What is looked for when these words of HCQ_SANITIZE are said."""
    found = frozenset(words)
    return found | {"race"} if "unequal" in found else found


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


_current: Config | None = None


def _words(environ: Mapping[str, str], name: str, valid: tuple[str, ...] | None = None) -> tuple[str, ...]:
    words = tuple(word.strip() for word in environ.get(name, "").split(",") if word.strip())
    for word in words:
        if valid is not None and word.lower() not in valid:
            raise UsageError(
                f"{name}={environ[name]!r}: unknown word {word!r}. Valid words: {', '.join(valid)}."
            )
    return words if valid is None else tuple(word.lower() for word in words)


def _word(environ: Mapping[str, str], name: str, valid: tuple[str, ...]) -> str:
    words = _words(environ, name, valid)
    if len(words) > 1:
        raise UsageError(f"{name}={environ[name]!r}: takes one word. Valid words: {', '.join(valid)}.")
    return words[0] if words else ""


def _profile(environ: Mapping[str, str]) -> frozenset[str]:
    """The words of HCQ_PROFILE: a flag, "counters" with or without a number, or both."""
    words = _words({"HCQ_PROFILE": environ.get("HCQ_PROFILE", "").lower()}, "HCQ_PROFILE")
    numbers = [word for word in words if re.fullmatch("counters:0*[1-9][0-9]{0,8}", word)]
    rest = {"HCQ_PROFILE": ",".join(word for word in words if word not in numbers)}
    _words(rest, "HCQ_PROFILE", ("counters", "counters:NUMBER", *sorted(ON_WORDS | OFF_WORDS)))
    return frozenset(words)


def _flag(environ: Mapping[str, str], name: str) -> bool:
    text = environ.get(name, "").strip().lower()
    if not text or text in OFF_WORDS:
        return False
    if text in ON_WORDS:
        return True
    raise UsageError(f"{name}={environ[name]!r}: unknown word. Valid words: 0, 1, off, on, no, yes.")


def _number(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    if not is_decimal(text) or not low <= int(text) <= high:
        raise UsageError(f"{name}={shown(text)}: takes a whole number from {low} to {high}.")
    return int(text)


def _visible(word: str) -> tuple[str, int]:
    kind, colon, number = word.upper().rpartition(":")
    if not is_decimal(number) or (colon and not kind.isalnum()):
        raise UsageError(
            f"HCQ_VISIBLE: {shown(word)} is not a device number. Give numbers such as 0,1, or devices such as AMD:1."
        )
    return kind, int(number)


def _path(environ: Mapping[str, str], name: str) -> Path | None:
    text = environ.get(name, "")
    return Path(text) if text else None


def _cache_dir(environ: Mapping[str, str]) -> Path:
    if given := environ.get("HCQ_CACHE_DIR"):
        return Path(given)
    if given := environ.get("XDG_CACHE_HOME"):
        return Path(given) / "hcq"
    # without a home there is no cache: nothing can be made below the null device
    return Path(environ.get("HOME") or os.devnull) / ".cache" / "hcq"
