"""The graph of one step: laws of its nodes, edges and layers, and the pane that draws it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hcq.command import Copy, Fill
from hcq.errors import UsageError
from hcq.tools.trace import step_graph, step_layout
from hcq.tools.trace.serve import PageServer
from hcq.trace.file import Trace
from tests.browser import Tab, browser
from tests.tools.trace.making import PROGRAM, Maker, record
from tests.tools.trace.test_tensor_layer import TRAINING

WIDE, NARROW = (1400, 900), (900, 700)
HOSTILE = '<img src=x onerror="window.owned=1">\u202e'


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(TRAINING, tmp_path_factory.mktemp("step") / "run.hcqtrace", options="")


def trace_of(tmp_path: Path, commands: list[list[Any]], size: int = 64, buffers: int = 8) -> Trace:
    made = Maker()
    made.device()
    for number in range(buffers):
        made.alloc(place(number, 0), size, f"b{number}")
    for one in commands:
        made.submit(*one, words=b"")
    return Trace.read(str(made.write(tmp_path / "t.hcqtrace")))


def place(buffer: int, offset: int) -> int:
    return 0x100000 + 0x1000 * buffer + offset


def random_commands(seed: int, count: int) -> list[Any]:
    dice = random.Random(seed)
    found: list[Any] = []
    for _ in range(count):
        size = 8 * dice.randint(1, 4)
        dst = place(dice.randrange(8), 8 * dice.randrange(4))
        if dice.random() < 0.3:
            found.append(Fill(dst, 0, size))
        else:
            found.append(Copy(dst, place(dice.randrange(8), 8 * dice.randrange(4)), size))
    return found


@pytest.mark.parametrize("seed", range(12))
def test_every_byte_that_is_read_comes_from_who_wrote_it_last_or_from_an_input(seed, tmp_path):
    """The second opinion marks bytes one by one."""
    commands = random_commands(seed, 40)
    trace = trace_of(tmp_path, [commands[:15], commands[15:]])
    step = step_graph.step_of(trace, 0, 1)
    expected: dict[tuple[int, int], int] = {}
    writer: dict[int, int] = {}
    for number, command in enumerate(commands):
        if isinstance(command, Copy):
            for byte in range(command.src, command.src + command.size_bytes):
                key = (writer.get(byte, -1), number)
                expected[key] = expected.get(key, 0) + 1
        for byte in range(command.dst, command.dst + command.size_bytes):
            writer[byte] = number
    found: dict[tuple[int, int], int] = {}
    for edge in step.edges:
        source = edge.source if step.items[edge.source].command is not None else -1
        found[source, edge.target] = found.get((source, edge.target), 0) + edge.size_bytes
    assert found == {key: size for key, size in expected.items() if key[0] != key[1]}


def laws(view: dict[str, Any]) -> None:
    nodes, edges = view["nodes"], view["edges"]
    for edge in edges:
        assert nodes[edge["from"]]["layer"] < nodes[edge["to"]]["layer"]
        assert edge["points"][0] == (nodes[edge["from"]]["x"], nodes[edge["from"]]["y"])
        assert edge["points"][-1] == (nodes[edge["to"]]["x"], nodes[edge["to"]]["y"])
        heights = [y for _, y in edge["points"]]
        assert heights == sorted(set(heights)), "a line runs downward, one layer at a time"
    for layer in {node["layer"] for node in nodes}:
        row = sorted(node["x"] for node in nodes if node["layer"] == layer)
        assert len(row) <= step_layout.WIDEST
        assert all(b - a >= step_layout.BOX_WIDE for a, b in zip(row, row[1:])), "boxes do not overlap"
        assert row[0] >= 0 and row[-1] <= view["width"]
    read = {edge["to"] for edge in edges}
    for number, node in enumerate(nodes):
        if node.get("reads"):
            own = {name for name, _ in node["reads"]} - {name for name, _, _ in node["writes"]}
            assert not own or number in read, node
        assert 0 <= node["y"] <= view["height"]


@pytest.mark.parametrize("seed", range(6))
def test_edges_go_to_later_layers_and_boxes_stand_apart(seed, tmp_path):
    trace = trace_of(tmp_path, [random_commands(seed, 60)])
    laws(step_graph.view(trace, 0, 0))


def test_the_step_of_a_training_program_obeys_the_laws_and_knows_who_writes(training):
    trace = Trace.read(str(training))
    number = step_graph.busiest(trace)
    view = step_graph.view(trace, number, number)
    laws(view)
    assert view["unsure"] == 0
    assert len(view["nodes"]) > 8
    kernels = [node for node in view["nodes"] if node["work"] == "kernel"]
    assert all(node["sure"] and node["writes"] for node in kernels)
    inputs = {node["name"] for node in view["nodes"] if node["work"] == "input"}
    assert {"0.weight", "2.weight"} <= inputs
    kept = {name for node in kernels for name, _, is_kept in node["writes"] if is_kept}
    assert {"0.weight", "0.bias", "2.weight", "2.bias"} <= kept
    laws(step_graph.view(trace, 0, len(trace.submissions) - 1))


def test_a_kernel_whose_writes_nobody_declared_is_taken_to_write_and_the_edge_says_so(kernels, tmp_path):
    trace = Trace.read(str(record(PROGRAM, tmp_path / "t.hcqtrace", str(kernels), options="")))
    view = step_graph.view(trace, 0, len(trace.submissions) - 1)
    laws(view)
    assert view["unsure"] > 0
    assert {"fill", "kernel", "copy"} <= {node["work"] for node in view["nodes"]}


def test_many_commands_are_grouped_and_a_group_opens_to_its_commands(tmp_path):
    count = step_graph.MAX_NODES * 4
    trace = trace_of(tmp_path, [random_commands(3, count)])
    view = step_graph.view(trace, 0, 0)
    laws(view)
    groups = [node for node in view["nodes"] if node["work"] == "group"]
    assert len(view["nodes"]) <= step_graph.MAX_NODES
    assert "share a node" in view["grouped"]
    assert sum(group["end"] - group["begin"] for group in groups) == count
    inside = step_graph.view(trace, 0, 0, groups[1]["begin"], groups[1]["end"])
    laws(inside)
    assert inside["commands"] == groups[1]["end"] - groups[1]["begin"]
    assert not inside["grouped"]


def test_a_damaged_graph_of_a_kernel_is_taken_as_none(training):
    trace = Trace.read(str(training))
    dice = random.Random(2)
    codes = [code for code in trace.code if "graph" in code.facts]
    number = step_graph.busiest(trace)
    for _ in range(60):
        code = dice.choice(codes)
        text = str(code.facts["graph"])
        at = dice.randrange(len(text))
        damaged = dice.choice(
            [text[:at], text[:at] + chr(dice.randrange(32, 127)) + text[at + 1 :], text[::-1]]
        )
        before, code.facts["graph"] = text, damaged
        laws(step_graph.view(trace, number, number))
        code.facts["graph"] = before


def test_twenty_thousand_commands_are_followed_and_the_rest_counted(tmp_path):
    trace = trace_of(tmp_path, [random_commands(seed, 3000) for seed in range(8)])
    view = step_graph.view(trace, 0, 7)
    laws(view)
    assert view["commands"] == step_graph.MAX_COMMANDS
    assert view["left_out"] == 24_000 - step_graph.MAX_COMMANDS


def test_a_range_outside_the_trace_is_a_sentence(tmp_path):
    trace = trace_of(tmp_path, [[]])
    with pytest.raises(UsageError, match="the trace holds 1"):
        step_graph.view(trace, 0, 4)
    with pytest.raises(UsageError, match="takes a whole number"):
        step_graph.answer(trace, {"first": ["-1"]})


def test_a_circle_is_refused():
    with pytest.raises(ValueError, match="in a circle"):
        step_layout.layers_of(3, [(0, 1), (1, 2), (2, 1)], set())


@pytest.mark.parametrize("seed", range(40))
def test_layers_of_random_graphs_hold_the_laws(seed):
    dice = random.Random(seed)
    count = dice.randint(1, 60)
    edges = sorted(
        {(a, b) for a, b in (sorted(dice.sample(range(count), 2)) for _ in range(2 * count))}
        if count > 1
        else set()
    )
    inputs = {node for node in range(count) if all(b != node for _, b in edges)}
    made = step_layout.place(count, edges, inputs)
    assert all(made.layers[a] < made.layers[b] for a, b in edges)
    assert set(made.layers) == set(range(max(made.layers) + 1))


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
def serve() -> Iterator[Callable[[Path], PageServer]]:
    servers = []

    def start(path: Path) -> PageServer:
        servers.append(PageServer(str(path)))
        threading.Thread(target=servers[-1].serve_forever, kwargs={"poll_interval": 0.02}).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def open_graph(tab: Tab, server: PageServer, address: str = "") -> None:
    tab.open(server.url + address)
    tab.click("[data-tab=step]")
    tab.see("document.querySelectorAll('.step-node').length > 1")


@pytest.mark.browser
def test_one_click_shows_the_step_and_two_more_lead_to_the_code_and_the_packets(tab, serve, training):
    open_graph(tab, serve(training))
    click = "document.querySelector('.step-node.step-kernel').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    tab.script(click)
    tab.see("document.querySelector('.step-beside h3') !== null")
    name = tab.text(".step-beside h3")
    assert "writes" in tab.text(".step-beside")
    buttons = "[...document.querySelectorAll('.step-beside button')]"
    press = f"{buttons}.find(x => x.innerText.includes(arguments[0])).click()"
    tab.script(press, "source")
    tab.see("document.querySelector('#pane-kernel h2') !== null")
    assert tab.text("#pane-kernel h2") == name
    assert tab.text("#pane-kernel .texts [aria-selected=true]") == "Source"
    tab.click("[data-tab=step]")
    tab.see("!document.querySelector('#pane-step').hidden && document.querySelector('.step-node') !== null")
    # the graph may be drawn anew after a click, and forgets what was chosen
    tab.see(f"{buttons}.some(x => x.innerText.includes('packets')) || ({click}, false)")
    tab.script(press, "packets")
    tab.see("document.querySelector('#pane-packets .packet.lit') !== null")
    assert name in tab.text("#pane-packets .packet.lit")
    assert tab.errors() == []


@pytest.mark.browser
def test_the_graph_zooms_under_the_wheel_and_moves_with_the_mouse(tab, serve, training):
    open_graph(tab, serve(training))
    where = "document.querySelector('.step-canvas g').getAttribute('transform')"
    before = tab.script(where)
    left, top = tab.script(
        "(r => [r.left + 200, r.top + 80])(document.querySelector('.step-canvas').getBoundingClientRect())"
    )
    tab.mouse("mouseWheel", left, top, deltaX=0, deltaY=-300)
    tab.see(f"{where} !== '{before}'")
    before = tab.script(where)
    tab.mouse("mousePressed", left, top, button="left", clickCount=1)
    tab.mouse("mouseMoved", left + 60, top + 30, button="left", buttons=1)
    tab.mouse("mouseReleased", left + 60, top + 30, button="left", clickCount=1)
    tab.see(f"{where} !== '{before}'")
    assert tab.errors() == []


@pytest.mark.browser
def test_a_group_opens_by_a_click_and_back_leads_out(tab, serve, tmp_path):
    made = Maker()
    made.device()
    for number in range(8):
        made.alloc(place(number, 0), 64, HOSTILE if number == 3 else f"b{number}")
    made.submit(*random_commands(1, 500), words=b"")
    open_graph(tab, serve(made.write(tmp_path / "t.hcqtrace")))
    assert "share a node" in tab.text(".step-head")
    tab.script(
        "document.querySelector('.step-node.step-group').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    tab.see("document.querySelectorAll('.step-node.step-copy').length > 2")
    tab.script("document.querySelector('.step-tools button').click()")
    tab.see("document.querySelectorAll('.step-node.step-group').length > 10")
    assert tab.script("window.owned ?? null") is None
    assert tab.script("document.querySelectorAll('img').length") == 0
    assert tab.errors() == []


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_graph_fits_the_window(tab, serve, training, size, dark, request, tmp_path):
    folder = Path(request.config.getoption("--pictures") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    tab.look(size, dark)
    open_graph(tab, serve(training))
    tab.script(
        "[...document.querySelectorAll('.step-node.step-kernel')][4]"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    tab.see("document.querySelector('.step-beside h3') !== null")
    time.sleep(0.2)
    assert tab.script("document.documentElement.scrollWidth <= innerWidth")
    shade = "dark" if dark else "light"
    assert tab.driver.save_screenshot(str(folder / f"graph-{shade}-{size[0]}x{size[1]}.png"))
    assert tab.errors() == []
