"""graph: who waits for whom, and what can never go on."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from hcq.command import Signal, Wait
from hcq.tools.trace.graph import Graph
from hcq.trace.file import Trace
from hcq.trace.records import MAGIC
from tests.tools.trace.making import CELL, TIMELINE, Maker

A, B, C = CELL, CELL + 16, CELL + 32


@pytest.fixture
def two() -> Maker:
    """Two devices and three signals."""
    made = Maker()
    made.device("CPU")
    made.device("CPU:1")
    return made.alloc(A, name="a").alloc(B, name="b").alloc(C, name="c")


def graph(trace, made, tmp_path):
    done = trace("graph", made.write(tmp_path / "t"), "--json")
    return done.status, json.loads(done.out)


def test_a_wait_names_the_submission_that_ends_it(two, trace, tmp_path):
    two.submit(Wait(A, 2), device=1)
    two.submit(Signal(A, 1), device=0)
    two.submit(Signal(A, 2), device=0)
    status, found = graph(trace, two, tmp_path)
    assert status == 0
    assert found["stuck"] == []
    assert found["waits"] == [
        {"device": "CPU:1", "submission": 1, "signal": "a", "value": 2, "by": None, "by_device": "CPU",
         "by_submission": 2}
    ]  # fmt: skip
    text = trace("graph", tmp_path / "t").out
    assert "waits for a >= 2  <- #2 on CPU" in text
    assert "sets a for #1 on CPU:1" in text
    assert "No deadlock" in text


def test_a_wait_for_another_devices_timeline_is_understood(two, trace, tmp_path):
    two.submit(Wait(TIMELINE, 1), device=1)
    two.submit(device=0)
    status, found = graph(trace, two, tmp_path)
    assert status == 0
    assert found["waits"][0]["by_submission"] == 1
    assert found["waits"][0]["signal"] == "timeline of CPU"


def test_what_the_host_sets_is_reached(two, trace, tmp_path):
    two.submit(Wait(A, 5))
    two.host_sets(A, 5)
    status, found = graph(trace, two, tmp_path)
    assert status == 0
    assert found["waits"][0]["by"] == "host"


def test_a_wait_that_nobody_signals_is_a_deadlock(two, trace, tmp_path):
    two.submit(Wait(A, 2), device=0)
    two.submit(Signal(A, 1), device=1)
    status, found = graph(trace, two, tmp_path)
    assert status == 1
    assert found["stuck"][0]["why"] == "nobody sets a to 2 or more; the highest it gets is 1"
    text = trace("graph", tmp_path / "t").out
    assert "waits for a >= 2  <- NOBODY" in text
    assert "DEADLOCK CPU #1" in text


def test_two_queues_that_wait_for_each_other_are_a_deadlock(two, trace, tmp_path):
    two.submit(Wait(A, 1), Signal(B, 1), device=0)
    two.submit(Wait(B, 1), Signal(A, 1), device=1)
    status, found = graph(trace, two, tmp_path)
    assert status == 1
    assert len(found["stuck"]) == 2
    assert [wait["signal"] for wait in found["stuck"][0]["cycle"]] == ["a", "b"]
    assert "each of these waits for the next one" in trace("graph", tmp_path / "t").out


def test_the_same_two_queues_the_other_way_round_are_none(two, trace, tmp_path):
    two.submit(Signal(B, 1), Wait(A, 1), device=0)
    two.submit(Wait(B, 1), Signal(A, 1), device=1)
    assert graph(trace, two, tmp_path)[0] == 0


def test_a_queue_that_waits_for_its_own_future_is_a_deadlock(two, trace, tmp_path):
    two.submit(Wait(A, 1))
    two.submit(Signal(A, 1))
    status, found = graph(trace, two, tmp_path)
    assert status == 1
    assert found["stuck"][0]["why"] == "what would signal it comes after it in its own queue"


def test_who_waits_for_a_stuck_queue_is_stuck_and_told_why(two, trace, tmp_path):
    two.submit(Wait(C, 1), Signal(A, 1), device=0)
    two.submit(Wait(A, 1), device=1)
    status, found = graph(trace, two, tmp_path)
    assert status == 1
    whys = [stuck["why"] for stuck in found["stuck"]]
    assert whys == [
        "nobody sets c to 1 or more; the highest it gets is 0",
        "it waits for #1 on CPU, and nobody sets c to 1 or more; the highest it gets is 0",
    ]


def test_a_signal_at_a_used_again_address_is_another_signal(two, trace, tmp_path):
    two.submit(Signal(A, 9), device=0)
    two.free(A).alloc(A, name="again")
    two.submit(Wait(A, 1), device=1)
    assert graph(trace, two, tmp_path)[0] == 1


def test_dot_is_read_by_graphviz_and_shows_every_arrow(two, trace, tmp_path):
    two.alloc(C + 16, name='say "hi" \\ bye')
    two.submit(Signal(A, 1), device=0)
    two.submit(Wait(A, 1), Wait(C + 16, 1), device=1)
    text = trace("graph", two.write(tmp_path / "t"), "--dot").out
    assert 's0 -> s1 [label="a >= 1", color=blue]' in text
    assert 'label="say \\"hi\\" \\\\ bye >= 1", color=red' in text
    assert text.count("{") == text.count("}")
    if shutil.which("dot"):
        assert subprocess.run(["dot", "-Tsvg"], input=text, text=True, capture_output=True).returncode == 0


def test_processes_that_have_the_same_addresses_are_kept_apart() -> None:
    """Each has a signal of its own at CELL, and waits for what it sets itself; nobody waits for another's."""
    content = b""
    for process in (7, 8):
        maker = Maker(process)
        maker.device()
        maker.alloc(CELL, name=f"cell of {process}")
        maker.submit(Signal(CELL, 1))
        maker.submit(Wait(CELL, 1))
        content += maker.content if not content else maker.content[len(MAGIC) :]
    trace = Trace.parse(content)
    assert [str(made.memory().find(CELL)) for made in trace.submissions[::2]] == ["cell of 7", "cell of 8"]
    found = Graph(trace)
    assert [(wait.name, wait.by) for wait in found.waits] == [
        ("cell of 7", trace.submissions[0]),
        ("cell of 8", trace.submissions[2]),
    ]
    assert not found.stuck
    assert {device.key for device in trace.devices} == {"CPU", "CPU@8"}
