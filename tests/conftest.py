"""What every test runs under: a cache of its own, a deadline, and the options of this test suite.

In       pytest's command line: --renew-golden, --require-torch, --require-browser, --emulate, --thorough, --turn, ...
Out      fixtures `device` (the embedded CPU device) and `golden` (reviewed text in kernels_golden/)
Changes  the HCQ_* environment of the test processes: the user's switches and cache do not reach a test
Next     pyproject.toml, [tool.pytest.ini_options] (markers), kernels_golden/README.md (reviewed kernels)
"""

from __future__ import annotations

import difflib
import faulthandler
import functools
import gc
import importlib.util
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests import turns
from tests.passed import Passed, left
from tests.without_findings import WithoutFindings

if TYPE_CHECKING:
    from hcq.device import Device

# of a test; one example of Hypothesis has none, as a busy machine stops for longer than an example runs
DEADLINE_SECONDS = 60
MOST_BUSY = 20  # a machine with more to do than it can has tests take longer, up to so many times
EMULATED_FACTOR = 5  # under --emulate and --random-schedules
RANDOM_TIMEOUT_MS = 200_000  # under --random-schedules: one thread may have all the work of a kernel
hypothesis.settings.register_profile("hcq", deadline=None)
hypothesis.settings.load_profile("hcq")
NO_FLOAT64 = (
    "float64: Metal's GPUs have no numbers of that size"  # what tests of float64 are skipped for there
)
GOLDEN = Path(__file__).parent.parent / "kernels_golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hcq")
    group.addoption(
        "--renew-golden", action="store_true", help="rewrite kernels_golden/ from what is rendered now"
    )
    group.addoption(
        "--require-torch", action="store_true", help="without PyTorch the comparisons fail, not skip"
    )
    group.addoption(
        "--require-browser", action="store_true", help="without a browser the tests of pages fail, not skip"
    )
    group.addoption(
        "--require-vendor",
        action="store_true",
        help="without AMD's runtimes the tests of them fail, not skip",
    )
    group.addoption(
        "--emulate",
        metavar="WORD",
        help="tests of tensors run on this emulated device: amd:gfx1100, nv:sm_90",
    )
    group.addoption(
        "--sanitize",
        metavar="WORDS",
        help="under --emulate: HCQ_SANITIZE is memory,race or others, and a test whose kernels leave a finding fails",
    )
    group.addoption(
        "--emu-compiled",
        choices=("0", "1", "always"),
        help="HCQ_EMU_COMPILED: whether emulated AMD GPUs run kernels as machine code",
    )
    group.addoption(
        "--random-schedules",
        metavar="SEED",
        help="under --emulate: kernels get random schedules, not those that the heuristic believes in",
    )
    group.addoption(
        "--thorough",
        action="store_true",
        help="run what is marked thorough, too: known laws over more seeds, machines and formats",
    )
    group.addoption(
        "--turn",
        metavar="NUMBER/OF",
        help="of what is marked thorough only a part: 3/10 is a tenth, picked by the hashes of names",
    )
    group.addoption(
        "--since", metavar="COMMIT", help="with --turn: what changed since this commit has its turn always"
    )
    group.addoption(
        "--kernels",
        metavar="DIR",
        help="keep what tests compile in this folder, and find it there, instead of in one of this run alone",
    )
    group.addoption("--passed-to", metavar="FILE", help="write the names of the tests that pass to this file")
    group.addoption(
        "--except-passed", metavar="FILE", help="leave out the tests that an earlier run wrote to this file"
    )
    group.addoption("--pictures", metavar="DIR", help="keep the pictures that tests take of pages")


def pytest_configure(config: pytest.Config) -> None:
    # a shell's background job: the processes of tests would too
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if seed := config.getoption("--random-schedules"):
        from tests.compiler.loops.random_gpu_schedules import choose_at_random

        choose_at_random(int(seed))
    if config.getoption("--sanitize"):
        config.pluginmanager.register(WithoutFindings())
    if hasattr(config, "workerinput"):
        return  # a process of pytest-xdist: it inherits the environment made below
    if path := config.getoption("--passed-to"):
        config.pluginmanager.register(Passed(Path(path)))
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False  # files go to processes in the order of _longest_first
    for name in [name for name in os.environ if name.startswith("HCQ_")]:
        del os.environ[name]
    os.environ["HCQ_CACHE_DIR"] = _cache_of(config)
    os.environ["HCQ_VALIDATE"] = "1"
    if config.getoption("--random-schedules"):
        os.environ["HCQ_TIMEOUT_MS"] = str(RANDOM_TIMEOUT_MS)
    if emulated := config.getoption("--emulate"):
        os.environ["HCQ_EMULATE"] = emulated
        os.environ["HCQ_DEVICE"] = emulated.partition(":")[0].upper()
    if words := config.getoption("--sanitize"):
        os.environ["HCQ_SANITIZE"] = words
    if way := config.getoption("--emu-compiled"):
        os.environ["HCQ_EMU_COMPILED"] = way


def _cache_of(config: pytest.Config) -> str:
    """A folder for what tests compile: an empty one, which goes when they have run, unless --kernels names one."""
    if kept := config.getoption("--kernels"):
        folder = Path(kept).absolute()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return str(folder)
    made = tempfile.mkdtemp(prefix="hcq-test-cache-")
    config.add_cleanup(lambda: shutil.rmtree(made, ignore_errors=True))
    return made


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in turns.beyond_the_sample(items):
        item.add_marker(pytest.mark.thorough)
    missing = {}
    if importlib.util.find_spec("torch") is None and not config.getoption("--require-torch"):
        missing["torch"] = "compares with PyTorch: make torch"
    if not _has_browser() and not config.getoption("--require-browser"):
        missing["browser"] = "needs a browser: apt install chromium chromium-driver; make browser"
    left_out = []
    if config.getoption("--emulate"):
        left_out.append("own_devices")
    if not config.getoption("--thorough"):
        left_out.append("thorough")
    out = {item for item in items for marker in left_out if item.get_closest_marker(marker)}
    if words := config.getoption("--turn"):
        try:
            since = config.getoption("--since")
            out |= turns.left_out(items, turns.read(words), turns.changed_since(since) if since else ())
        except ValueError as error:
            raise pytest.UsageError(f"--turn, --since: {error}") from None
    if path := config.getoption("--except-passed"):
        out |= {*items} - {*left(items, Path(path))}
    if out:
        config.hook.pytest_deselected(items=[*out])
        items[:] = [item for item in items if item not in out]
    if hasattr(config, "workerinput"):
        _longest_first(items)
    for item in items:
        for marker, reason in missing.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


def _longest_first(items: list[pytest.Item]) -> None:
    """Processes get whole files: those with long tests first, then by the number of tests, so that all end together."""
    weights: dict[Path, list[float]] = {}
    for item in items:
        weight = weights.setdefault(item.path, [0, 0])
        marker = item.get_closest_marker("deadline")
        weight[0] += float(marker.args[0]) if marker else 0
        weight[1] += 1
    items.sort(key=lambda item: weights[item.path], reverse=True)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Half a million objects of pytest's own live until the end: no collection of a test need look at them again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What outlives a file are caches, which only grow: collections in the files after it need not look at them."""
    if nextitem is not None and nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def _has_browser() -> bool:
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    return None not in programs and importlib.util.find_spec("selenium") is not None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the numbers that the generators of its file give first, whatever ran before it."""
    for generator, state in _generators(getattr(item, "module", None)):
        generator.bit_generator.state = state


@functools.cache
def _generators(module: ModuleType | None) -> list[tuple[Any, Any]]:
    """NumPy's generators among the names of a module that has just been imported, with their states."""
    library = sys.modules.get("numpy.random")
    if library is None or module is None:
        return []
    found = [value for value in vars(module).values() if isinstance(value, library.Generator)]
    return [(generator, generator.bit_generator.state) for generator in found]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that takes too long fails where it hangs; one that even a signal cannot stop ends the process.

    Too long is more than the deadline, and more than that by as much as the machine has more to do than it can.
    """
    marker = item.get_closest_marker("deadline")
    seconds = float(marker.args[0]) if marker else DEADLINE_SECONDS
    if item.config.getoption("--emulate") or item.config.getoption("--random-schedules"):
        seconds *= EMULATED_FACTOR

    begun = time.monotonic()

    def begin(left: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, left)
        # not sys.stderr: under capsys it has no descriptor, and this is in a signal handler
        faulthandler.dump_traceback_later(left + seconds + 10, exit=True, file=sys.__stderr__)

    def too_long(signum: int, frame: FrameType | None) -> None:
        left = seconds * _busyness() - (time.monotonic() - begun)
        if left > 0:
            begin(left)
            return
        pytest.fail(f"took longer than its deadline of {seconds:g} s", pytrace=True)

    previous = signal.signal(signal.SIGALRM, too_long)
    begin(seconds)
    try:
        return (yield)
    except ValueError as error:
        if (item.config.getoption("--emulate") or "").startswith("metal") and str(error).startswith(
            NO_FLOAT64
        ):
            traceback.clear_frames(
                error.__traceback__
            )  # a tensor that cannot be computed, in its frames, is let go
            pytest.skip(str(error))
        raise
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _busyness() -> float:
    """How many programs there are for each core, at least 1: how much longer everything takes."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), MOST_BUSY)


@pytest.fixture(autouse=True)
def no_rule_fires(request: pytest.FixtureRequest) -> Iterator[None]:
    """The law of validation: correct work breaks no rule. Errors raise by themselves; warnings fail the test here."""
    warnings = _warnings()
    known = len(warnings)
    yield
    told = [str(finding) for finding in _warnings()[known:]]
    if told and request.node.get_closest_marker("fires_rules") is None:
        pytest.fail("rules fired:\n" + "\n".join(told), pytrace=False)


def _warnings() -> list[object]:
    module = sys.modules.get("hcq.observe.validator")
    found: list[object] = [] if module is None else module.Validator.warnings
    return found


@pytest.fixture
def device() -> Device:
    """The embedded CPU device."""
    import hcq

    return hcq.open("CPU")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("cpu/matmul.txt", text)`: the reviewed file says the same, or --renew-golden makes it say so."""
    renew = request.config.getoption("--renew-golden")

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if renew:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.is_file(), f"kernels_golden/{name} does not exist: write it with pytest --renew-golden"
        reviewed = path.read_text(encoding="utf-8")
        if text != reviewed:
            lines = difflib.unified_diff(
                reviewed.splitlines(),
                text.splitlines(),
                f"kernels_golden/{name}",
                "rendered now",
                lineterm="",
            )
            shown = "\n".join([*lines][:200])
            pytest.fail(
                f"{shown}\n\nIf this is meant: pytest --renew-golden, and read the diff.", pytrace=False
            )

    return check
