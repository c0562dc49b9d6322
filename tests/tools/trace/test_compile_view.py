"""The way of a kernel through the compiler: what is kept of it, that it changes nothing, and the pane that shows it."""

from __future__ import annotations

import dataclasses
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.compiler.loops.loop_nest import LoopNest
from hcq.compiler.pipeline import build, lower
from hcq.compiler.target import amd_target, cpu_target, metal_target, nv_target
from hcq.errors import UsageError
from hcq.ir import text as graph_text
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node, index
from hcq.ir.op import Op
from hcq.tools import hcq_trace
from hcq.tools.trace import compile_view, serve_program
from hcq.tools.trace.page_data import plain
from hcq.tools.trace.serve import PageServer
from hcq.trace.file import Code, Trace
from tests.browser import Tab, browser
from tests.tools.trace.making import Maker, record
from tests.tools.trace.test_tensor_layer import TRAINING

WIDE, NARROW = (1400, 900), (900, 700)
HOSTILE = '<img src=x onerror="window.owned=1">\u202e'
HALVES = """
import numpy as np
from hcq import Tensor, dtypes
a = Tensor(np.ones((64, 96), np.float32)).cast(dtypes.float16).realize()
b = Tensor(np.ones((96, 32), np.float32)).cast(dtypes.float16).realize()
((a @ b).relu() * 2).softmax(-1).numpy()
Tensor(np.ones(600, np.float32)).reshape(20, 30).pad((3, 4, 1, 2)).permute(1, 0).contiguous().numpy()
"""
TARGETS = {
    "cpu": lambda: cpu_target(),
    "amd": lambda: amd_target("gfx1100", None),
    "nv": lambda: nv_target("sm_90", None),
    "metal": lambda: metal_target("apple9", None),
}


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(TRAINING + HALVES, tmp_path_factory.mktemp("way") / "run.hcqtrace", options="")


@pytest.fixture(scope="module")
def codes(training: Path) -> list[Code]:
    return [code for code in Trace.read(str(training)).code if "graph" in code.facts]


def sink_of(code: Code) -> Node:
    return graph_text.read(str(code.facts["graph"]))


def test_the_way_ends_at_the_object_that_the_trace_holds(codes):
    for code in codes:
        found = compile_view.way_of_code(code)
        assert not found["problem"]
        assert found["is_same_object"], code.name
        assert found["schedule_before"] == found["loops"]["choice"]
        assert found["assembly"]["lines"]
        assert found["rendered"] in str(code.facts["source"])
        json.dumps(plain(found), allow_nan=False)


@pytest.mark.parametrize("target", TARGETS)
def test_watching_changes_nothing(codes, target):
    for code in codes[-6:]:
        sink, to = sink_of(code), TARGETS[target]()
        assert compile_view.way(sink, to)["image"] == build(sink, to).image


@pytest.mark.parametrize("target", TARGETS)
def test_every_transform_of_a_schedule_stands_under_a_reason(codes, target):
    for code in codes:
        found = compile_view.way(sink_of(code), TARGETS[target]())
        loops = found["loops"]
        under = [choice for row in loops["decisions"] for choice in row["choices"]]
        assert "; ".join(under) == loops["choice"], "in their order, each once"
        assert all(row["why"] for row in loops["decisions"] if row["choices"]), loops
        for axis in loops["ranges"]:
            assert axis["size"] >= 1


def test_a_nest_that_was_scheduled_by_hand_has_choices_without_reasons(codes):
    nests = [LoopNest(lower(sink_of(code), cpu_target())) for code in codes]
    nest = next(nest for nest in nests if nest.axes and nest.axes[0].size > 4)
    name = nest.axes[0].name
    nest.apply(f"split {name} 2")
    assert compile_view.loops_of(nest)["decisions"] == [{"why": "", "choices": [f"split {name} 2"]}]


def test_what_rules_did_adds_up(codes):
    for code in codes:
        for station in compile_view.way_of_code(code)["stations"]:
            if "rewrites" not in station:
                continue
            shown = sum(one["times"] for one in station["rewrites"])
            assert station["applied"] == sum(count for _, count, _ in station["rules"])
            assert station["not_shown"] == station["applied"] - shown
            assert {one["rule"] for one in station["rewrites"]} <= {rule for rule, _, _ in station["rules"]}
            assert all(says for _, _, says in station["rules"]), "each rule is said in words"


def test_before_and_after_share_what_is_marked_as_the_same():
    place = Node(Op.RANGE, dtypes.index, (index(9),), 0)
    dice = random.Random(5)
    for _ in range(100):
        shared = place * dice.randrange(2, 9) + dice.randrange(1, 9)
        before = shared // 3 + dice.randrange(1, 5)
        after = shared % 7
        old, new = compile_view.both_sides(before, after)
        same = [text for text, is_same in old if is_same]
        assert same
        assert set(same) & {text for text, is_same in new if is_same}
        assert "".join(text for text, _ in old) == str(before)
        assert "".join(text for text, _ in new) == str(after)


def test_what_a_side_uses_more_than_once_has_a_line_of_its_own():
    place = Node(Op.RANGE, dtypes.index, (index(900),), 0)
    long = (place * 77 + 12345) % 1001
    (parts, _) = compile_view.both_sides(long * long + long, place)
    lines = "".join(text for text, _ in parts).split("\n")
    assert lines == ["t1 = (r0*77 + 12345)%1001", "t1*t1 + t1"]
    tower = place
    for _ in range(300):
        tower = Node(Op.MAX, dtypes.index, (tower, tower))
    (parts, _) = compile_view.both_sides(tower, index(1))
    assert sum(len(text) for text, _ in parts) < 10_000


def test_many_rewrites_are_counted_and_only_the_first_kept(monkeypatch, codes):
    monkeypatch.setattr(compile_view, "MAX_REWRITES", 3)
    code = max(codes, key=lambda code: len(str(code.facts["graph"])))
    stations = [s for s in compile_view.way_of_code(code)["stations"] if "rewrites" in s]
    assert all(len(station["rewrites"]) <= 3 for station in stations)
    assert any(station["not_shown"] > 0 for station in stations)


def test_a_kernel_that_cannot_be_compiled_says_so_and_a_damaged_graph_too(codes):
    code = codes[0]
    broken = dataclasses.replace(code, facts={})
    with pytest.raises(UsageError, match="does not hold its graph"):
        compile_view.way_of_code(broken)
    with pytest.raises(UsageError, match="not a graph"):
        compile_view.way_of_code(dataclasses.replace(code, facts={"graph": HOSTILE}))
    with pytest.raises(UsageError, match="characters"):
        compile_view.way_of_code(
            dataclasses.replace(code, facts={"graph": "x" * (compile_view.MAX_GRAPH + 1)})
        )


@pytest.mark.parametrize("seed", range(60))
def test_cut_and_mixed_graphs_are_one_sentence(codes, seed):
    dice = random.Random(seed)
    code = dice.choice(codes)
    lines = str(code.facts["graph"]).splitlines()
    at = dice.randrange(1, len(lines))
    what = seed % 3
    if what == 0:
        lines = lines[:at]
    elif what == 1:
        lines[at] = lines[at].replace("1", "7", 1)
    else:
        lines[at] = lines[dice.randrange(1, len(lines))]
    try:
        found = compile_view.way_of_code(dataclasses.replace(code, facts={"graph": "\n".join(lines)}))
    except UsageError as said:
        assert str(said).startswith(code.name)
    else:
        json.dumps(plain(found), allow_nan=False)


def test_bad_numbers_are_a_sentence(training):
    trace = Trace.read(str(training))
    for number in ("-1", "9999", "x", "1e3"):
        with pytest.raises(UsageError, match="the trace holds"):
            compile_view.answer(trace, {"number": [number]})
    assert compile_view.answer(trace, {})["kernels"]


def test_a_program_is_recorded_and_its_folder_removed(tmp_path):
    program = tmp_path / "small.py"
    program.write_text(
        "import sys\nfrom hcq import Tensor\nprint((Tensor([1.0, 2.0]) + len(sys.argv)).numpy())\n"
    )
    with serve_program.recorded([str(program), "more"]) as path:
        assert Path(path).name == "small.hcqtrace"
        assert any("graph" in code.facts for code in Trace.read(path).code)
    assert not Path(path).exists()
    empty = tmp_path / "empty.py"
    empty.write_text("")
    with pytest.raises(UsageError, match="left no trace"), serve_program.recorded([str(empty)]):
        pass


def test_a_server_without_compile_compiles_nothing(training):
    server = PageServer(str(training))
    try:
        assert server.answer("data/compile", {"number": ["0"]}) == {"enabled": False, "kernels": []}
    finally:
        server.server_close()
    assert hcq_trace.parser().parse_args(["serve", "--compile", "x.py", "7"]).files == ["x.py", "7"]


# ------------------------------------------------------------ the pane


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser(tmp_path_factory.mktemp("chromium")) as made:
        yield made


@pytest.fixture
def tab(driver: Any) -> Tab:
    made = Tab(driver)
    made.look(WIDE, dark=False)
    return made


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., PageServer]]:
    servers = []

    def start(path: Path, compiles: bool = True) -> PageServer:
        servers.append(PageServer(str(path), compiles=compiles))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def open_way(tab: Tab, server: PageServer, name: str) -> None:
    tab.open(server.url)
    tab.see("!document.querySelector('[data-tab=compile]').hidden")
    tab.click("[data-tab=compile]")
    tab.see("document.querySelectorAll('#pane-compile .kernel-name').length > 0")
    tab.script(
        "[...document.querySelectorAll('#pane-compile .kernel-name')]"
        ".filter(x => x.innerText.startsWith(arguments[0])).at(-1).click()",
        name,
    )
    tab.see("document.querySelector('.way-rail') !== null")


def station(tab: Tab, name: str) -> None:
    tab.script(
        "[...document.querySelectorAll('.way-rail button')]"
        ".find(x => x.querySelector('.what').innerText === arguments[0]).click()",
        name,
    )


@pytest.mark.browser
def test_two_clicks_show_every_station_of_a_kernel(tab, serve, training):
    open_way(tab, serve(training), "dot")
    names = tab.texts(".way-rail .what")
    assert names[0] == "graph"
    assert {
        "lower-movement",
        "decompose",
        "choose",
        "linearize",
        "render",
        "assemble",
        "machine code",
    } <= set(names)
    assert len(tab.texts(".rewrite")) > 2
    assert tab.script("document.querySelectorAll('.rewrite mark').length") > 2
    tab.click(".way-rule")
    chosen = tab.text(".way-rule[aria-pressed=true] b")
    assert {text.split("\n")[0] for text in tab.texts(".rewrite > b")} == {chosen} or all(
        text.startswith(chosen) for text in tab.texts(".rewrite > b")
    )
    station(tab, "choose")
    assert tab.script("document.querySelectorAll('.way-reasons code').length") > 1
    for name in names[1:]:
        station(tab, name)
        tab.see("document.querySelector('.way-body').innerText.length > 20")
    assert tab.errors() == []


@pytest.mark.browser
def test_a_server_without_compile_has_no_such_tab(tab, serve, training):
    tab.open(serve(training, compiles=False).url)
    assert tab.script("document.querySelector('[data-tab=compile]').hidden")
    assert tab.errors() == []


@pytest.mark.browser
def test_texts_of_a_strangers_kernel_stay_text(tab, serve, codes, tmp_path):
    made = Maker()
    made.device("CPU")
    for graph in (codes[0].facts["graph"], HOSTILE):
        facts = {"graph": graph, "source": HOSTILE}
        from hcq.trace.records import Kind

        made.text(
            Kind.CODE,
            {
                "device": 0,
                "name": HOSTILE,
                "entry": "k",
                "va": 0x5000,
                "args": None,
                "scratch_bytes": 0,
                "facts": facts,
            },
            b"\x7fELF",
        )
    server = serve(made.write(tmp_path / "t.hcqtrace"))
    for number in (0, 1):
        tab.open(server.url)
        tab.see("!document.querySelector('[data-tab=compile]').hidden")
        tab.click("[data-tab=compile]")
        tab.see("document.querySelectorAll('#pane-compile .kernel-name').length === 2")
        tab.script(f"document.querySelectorAll('#pane-compile .kernel-name')[{number}].click()")
        tab.see("document.querySelector('.way-rail, #pane-compile .empty') !== null")
    assert tab.script("window.owned ?? null") is None
    assert tab.script("document.querySelectorAll('img').length") == 0


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_way_fits_the_window(tab, serve, training, size, dark, request, tmp_path):
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    tab.look(size, dark)
    open_way(tab, serve(training), "dot")
    for name in ("lower-movement", "choose", "promote-floats"):
        station(tab, name)
        time.sleep(0.1)
        assert tab.script("document.documentElement.scrollWidth <= innerWidth")
        assert tab.script(
            "[...document.querySelectorAll('.way-head *, .way-rail *')]"
            ".every(one => one.getBoundingClientRect().right <= innerWidth)"
        )
        shade = "dark" if dark else "light"
        assert tab.driver.save_screenshot(str(folder / f"way-{name}-{shade}-{size[0]}x{size[1]}.png"))
    assert tab.errors() == []
