"""Reports and traces of NVIDIA devices: the same pages as for every device, with methods and QMDs in them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hcq.nv.abi.method import UnknownMethod
from hcq.nv.abi.methods import Push
from hcq.nv.decode import LaunchData, RunBlock
from hcq.nv.device import NvDevice
from hcq.observe.lint import lint
from hcq.tools.trace import views
from hcq.trace.file import Trace
from tests.hcq.nv.conftest import ARCHS
from tests.hcq.nv.kernels import image

Open = Callable[..., NvDevice]


@pytest.mark.parametrize("arch", ARCHS)
def test_a_trace_names_every_word_and_breaks_no_rule(open_nv: Open, tmp_path: Path, arch: str) -> None:
    path = tmp_path / "nv.hcqtrace"
    nv = open_nv(arch, trace=str(path))
    a, b, gate = nv.alloc(4096, "a"), nv.alloc(4096, "b"), nv.signal("gate")
    program = nv.load(image(arch), "increment")
    local = nv.load(image(arch), "local")
    nv.queue().fill(a, 7).copy(b, a).signal(gate, 2).timestamp(b, 64).submit().wait()
    nv.queue().wait(gate, 2).dispatch(program, [a], block=(64, 1, 1)).barrier().submit().wait()
    nv.queue().dispatch(local, [a, 5], block=(64, 1, 1)).submit().wait()
    graph = nv.graph("twice").dispatch(program, [a], block=(64, 1, 1)).copy(b, a).barrier()
    graph.replay().wait()
    nv.close()
    trace = Trace.read(str(path))
    assert len(trace.submissions) == 4
    streams = [(made.words, made.packets()) for made in trace.submissions]
    streams += [
        (block.words, made.block_packets(block)) for made in trace.submissions for block in made.blocks
    ]
    assert len(streams) == 5
    for words, packets in streams:
        assert sum(len(packet.words) for packet in packets) == len(words)
        for packet in packets:
            assert isinstance(packet, Push), packet
            assert not packet.unclaimed
            assert not packet.missing
            if isinstance(packet, LaunchData):
                assert not packet.qmd.unclaimed
            elif not isinstance(packet, RunBlock):
                for written in packet.methods:
                    assert not isinstance(written.method, UnknownMethod), packet
                    assert not written.method.unclaimed, packet
    launches = [packet for _, packets in streams for packet in packets if isinstance(packet, LaunchData)]
    assert {launch.qmd.value("program_address") for launch in launches} == {program.entry, local.entry}
    assert [str(place) for place in trace.submissions[0].buffers()] == ["a", "b", "gate"]
    assert not lint(trace)


def test_a_trace_shows_a_qmd_with_its_fields_and_names_the_ioctls(open_nv: Open, tmp_path: Path) -> None:
    path = tmp_path / "nv.hcqtrace"
    nv = open_nv("sm_90", trace=str(path))
    a = nv.alloc(256, "a")
    nv.queue().fill(a).dispatch(nv.load(image("sm_90"), "increment"), [a], block=(64, 1, 1)).submit().wait()
    nv.close()
    trace = Trace.read(str(path))
    (submission,) = trace.submissions
    texts = [
        views._fields_text(packet, {}) for packet in submission.packets() if isinstance(packet, LaunchData)
    ]
    assert len(texts) == 1
    for part in (
        "QmdV4(",
        "cta_thread_dimension0=64",
        "register_count=",
        "Bank0Sm90(ntid_x=64",
        "parameters=[",
    ):
        assert part in texts[0]
    requests = [record.fields["arguments"][1] for record in trace.calls if record.fields["call"] == "ioctl"]
    from hcq.nv.backend import BACKEND

    known = BACKEND.calls()
    assert requests
    assert {request for request in requests if request not in known} == set()
