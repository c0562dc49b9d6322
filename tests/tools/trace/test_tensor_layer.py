"""Traces of tensor programs: parameters by name, kernels with their source, lines of the user's program."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hcq import config
from hcq.lifetime import open_devices
from hcq.tools.trace.page_data import PageData
from hcq.tools.trace.views import submission_view
from hcq.trace.file import Trace
from hcq.trace.records import Kind
from tests.tools.trace.making import record

TRAINING = """
from hcq import Tensor, jit, nn, tensor
net = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
optimizer = nn.optim.Adam(net.parameters(), lr=1e-2)
@jit
def step(x, y):
    optimizer.zero_grad()
    loss = net(x).cross_entropy(y)
    loss.backward()
    optimizer.step()
    return loss.realize()
for k in range(4):
    loss = step(Tensor([[float(k + i) for i in range(8)]]), tensor([k % 2]))
loss.item()
"""


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(TRAINING, tmp_path_factory.mktemp("training") / "run.hcqtrace", options="")


def names_in(trace: Trace) -> set[str]:
    return {span.name for made in trace.submissions for span in made.memory().ranges}


def test_parameters_and_the_state_of_optimizers_are_called_by_their_path(training):
    trace = Trace.read(str(training))
    parameters = {f"{layer}.{what}" for layer in (0, 2) for what in ("weight", "bias")}
    state = {f"{name} (Adam {what})" for name in parameters for what in ("exp_avg", "exp_avg_sq")}
    assert names_in(trace) >= parameters | state | {"Adam learning rate", "Adam step"}
    memory = trace.submissions[-1].memory()
    sizes = {span.name: span.size_bytes for span in memory.ranges}
    assert (sizes["0.weight"], sizes["2.bias"], sizes["0.weight (Adam exp_avg)"]) == (128, 8, 128)


def test_a_name_holds_from_the_allocation_on(training):
    trace = Trace.read(str(training))
    (named,) = [one for one in trace.records if one.kind == Kind.NAME and one.fields["name"] == "0.weight"]
    used = [made for made in trace.submissions if any(place.name == "0.weight" for place in made.buffers())]
    assert used[0].record < named.index  # the submission that made it came first
    texts = [packet["text"] for packet in submission_view(used[0])["packets"]]
    assert any("0.weight" in text for text in texts)
    page = PageData(trace)
    assert "0.weight" in page.memory["names"]


def test_kernels_of_tensors_carry_their_graph_and_their_source(trace, training):
    read = Trace.read(str(training))
    for code in read.code:
        assert "SINK" in code.facts["ir"].upper(), code.name
        assert f"@{code.entry}(" in code.facts["source"], code.name
        assert "args" not in code.facts
    page = PageData(read)
    assert set(page.kernel(0)["texts"]) == {"ir", "source"}


def test_disasm_prints_the_texts_and_counts_launches_by_code(trace, training, capsule):
    listed = trace("disasm", training).out.splitlines()
    read = Trace.read(str(training))
    launches = sum(
        len([c for c in made.all_commands() if c["verb"] == "dispatch"]) for made in read.submissions
    )
    assert sum(int(line.split(", ")[2].split()[0]) for line in listed) == launches
    name = read.code[0].name
    assert f"@{read.code[0].entry}(" in trace("disasm", training, name, "--source").out
    assert "sink" in trace("disasm", training, name, "--ir").out.lower()
    done = trace("disasm", capsule, "mixed", "--source")
    assert (done.status, "the trace has no source of it" in done.err) == (2, True)


def test_a_tensor_is_called_what_the_user_calls_it(tmp_path):
    script = """
from hcq import Tensor
from hcq.frontend.core import names
x = names.set_name(Tensor([1.0, 2.0]), "samples")
y = names.set_name(x * 2, "doubled")
(y + 1).realize()
y.realize()
"""
    trace = Trace.read(str(record(script, tmp_path / "t", options="")))
    assert {"samples", "doubled"} <= names_in(trace)
    texts = [packet["text"] for made in trace.submissions for packet in submission_view(made)["packets"]]
    assert any(text.startswith("mul_2(doubled, samples)") for text in texts), texts


def test_only_a_tensor_has_a_name():
    from hcq import Tensor
    from hcq.errors import UsageError
    from hcq.frontend.core import names

    with pytest.raises(UsageError, match=r"names.set_name\(3, 'x'\): takes a tensor and a text"):
        names.set_name(3, "x")  # type: ignore[arg-type]
    x = names.set_name(Tensor([1.0]) + 1, "known without a trace").realize()
    assert x.node.arg.buffer.name == "known without a trace"


def test_a_process_that_finds_its_kernels_compiled_has_the_texts_too(training, tmp_path):
    again = Trace.read(str(record(TRAINING, tmp_path / "again", options="")))
    first = Trace.read(str(training))
    assert [code.facts for code in again.code] == [code.facts for code in first.code]


def test_two_runs_of_a_tensor_program_did_the_same_work(trace, training, tmp_path):
    again = record(TRAINING, tmp_path / "again", options="")
    done = trace("diff", training, again)
    assert (done.status, done.out.startswith("same work")) == (0, True), done.out
    assert trace("lint", training).out.startswith("clean")


def test_submissions_of_tensors_name_the_line_of_the_program(training):
    sites = {made.site for made in Trace.read(str(training)).submissions}
    assert all(site.startswith("<string>:") for site in sites), sites
    assert "<string>:13 in <module>" in sites


def test_a_program_run_as_a_module_has_lines_and_so_has_one_of_ours(tmp_path):
    (tmp_path / "mine.py").write_text("from hcq import Tensor\n\n(Tensor([1.0]) + 1).realize()\n")
    path = tmp_path / "t"
    root = Path(__file__).parents[3]
    for module, about in (("mine", "mine.py:3 in <module>"), ("hcq", "__main__.py:")):
        path.unlink(missing_ok=True)
        subprocess.run(
            [sys.executable, "-m", module, *(["doctor", "--device", "CPU"] if module == "hcq" else [])],
            env={"PYTHONPATH": f"{root}:{tmp_path}", "HCQ_TRACE": str(path), "HCQ_CACHE_DIR": str(tmp_path)},
            timeout=50,
            capture_output=True,
            check=True,
        )
        sites = {made.site for made in Trace.read(str(path)).submissions}
        assert any(about in site for site in sites), sites
        assert not any("frozen" in site for site in sites), sites


def test_nothing_is_learnt_without_a_trace(tmp_path):
    asked = "assert not (names._names or kernel_sources._known)"
    script = f"{TRAINING}\nfrom hcq.frontend.core import names\nfrom hcq.frontend.run import kernel_sources\n{asked}"
    subprocess.run([sys.executable, "-c", script], timeout=50, check=True, cwd=Path(__file__).parents[3])


def test_show_prints_parameters_in_the_arguments_of_kernels(trace, training):
    last = json.loads(trace("show", training, "--last", "1", "--json").out)
    inside = [packet["text"] for packet in last["packets"][0]["packets"]]
    assert any("0.weight (Adam exp_avg)" in text and "0.weight," in text for text in inside), inside


# ------------------------------------------------------------ the same program on emulated GPUs


@pytest.fixture(
    scope="module",
    params=["AMD amd:gfx1100", pytest.param("NV nv:sm_90", marks=pytest.mark.thorough)],
    ids=["AMD", "NV"],
)
def gpu(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, Path]]:
    """The name of an emulated GPU that this process may open, too, and the program's capsule recorded on it."""
    device, emulate = request.param.split()
    path = tmp_path_factory.mktemp(device) / "run.hcqtrace"
    record(TRAINING, path, environment=[f"HCQ_EMULATE={emulate}", f"HCQ_DEVICE={device}"])
    before = config.current()
    config.use(dataclasses.replace(before, emulate=(emulate,)))
    yield device, path
    for opened in open_devices.devices():
        if opened.name == device:
            opened.close()
    config.use(before)


def test_show_names_kernels_parameters_and_lines(trace, gpu):
    device, path = gpu
    shown = trace("show", path).out
    assert f"{device} main: " in shown
    assert "0.weight (Adam exp_avg)" in shown
    assert "step stand-in" not in shown  # the arguments of a replay are those that it was given
    assert "the command was" not in shown
    assert "<string>:13 in <module>" in shown


def test_lint_stats_and_graph_read_it(trace, gpu):
    device, path = gpu
    assert trace("lint", path).out.startswith("clean: 8 submissions")
    found = json.loads(trace("stats", path, "--json").out)
    assert [one["device"] for one in found["devices"]] == [device]
    steps, of_inputs, of_a_step = 4, 2, 12  # kernels
    assert sum(row["count"] for row in found["work"]) == steps * (of_inputs + of_a_step)
    assert trace("graph", path).status == 0


def test_it_replays_bit_for_bit(trace, gpu):
    _, path = gpu
    done = trace("replay", path, "--json")
    found = json.loads(done.out)
    assert (done.status, found["same"], found["submissions"], found["unchecked"]) == (0, True, 8, 0), done.out
    assert found["compared"] > 50


def test_it_is_the_same_work_as_a_second_run_and_comes_back_from_text(trace, gpu, tmp_path):
    device, path = gpu
    emulate = config.current().emulate[0]
    again = record(
        TRAINING, tmp_path / "again", environment=[f"HCQ_EMULATE={emulate}", f"HCQ_DEVICE={device}"]
    )
    done = trace("diff", path, again)
    assert (done.status, done.out.startswith("same work")) == (0, True), done.out
    text, back = tmp_path / "text", tmp_path / "back"
    trace("edit", path, "-o", text)
    trace("assemble", text, "-o", back)
    assert back.read_bytes() == path.read_bytes()


def test_the_page_and_the_exports_take_it(trace, gpu, tmp_path):
    _, path = gpu
    page = PageData(Trace.read(str(path)))
    kernel = page.kernel(0)
    assert set(kernel["texts"]) == {"ir", "source"}
    assert kernel["lines"] or "nvdisasm" in kernel["unread"]
    assert page.findings["count"] == 0
    assert len(page.submission(7)["packets"]) > 1
    for form in ("--perfetto", "--csv", "--json"):
        assert trace("export", path, form, "-o", tmp_path / "out").status == 0
        assert (tmp_path / "out").stat().st_size > 4000


PRODUCT = """
import numpy as np
from hcq import Tensor
a = Tensor(np.arange(512 * 128).reshape(512, 128).astype(np.float16) % 7)
b = Tensor(np.arange(128 * 512).reshape(128, 512).astype(np.float16) % 5)
(a @ b).numpy()
"""


def test_a_product_with_tensor_maps_and_large_shared_memory_replays(trace, tmp_path):
    """On Hopper: launches of the replay make the maps anew, of the replay's own buffers."""
    path = record(PRODUCT, tmp_path / "product", environment=["HCQ_EMULATE=nv:sm_90", "HCQ_DEVICE=NV"])
    (code,) = [code for code in Trace.read(str(path)).code if "tensor_maps" in code.facts]
    assert code.facts["tensor_maps"].count("\n") == 2
    before = config.current()
    config.use(dataclasses.replace(before, emulate=("nv:sm_90",)))
    try:
        done = trace("replay", path)
    finally:
        for opened in open_devices.devices():
            if opened.name == "NV":
                opened.close()
        config.use(before)
    assert (done.status, done.out.splitlines()[-1].startswith("same results")) == (0, True), done.out
