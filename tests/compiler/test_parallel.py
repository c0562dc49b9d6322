"""Many kernels at a time: the results are those of one after the other, whatever becomes of a helper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from hcq import Tensor
from hcq.compiler import compile as compiling
from hcq.compiler import parallel
from hcq.compiler.compile import compile_kernel, compile_kernels
from hcq.compiler.kernel import kernel_key
from hcq.compiler.target import cpu_target
from hcq.frontend.schedule.schedule import schedule
from tests.compiler.building import kernel, out, param

HERE = os.getpid()


def children() -> set[str]:
    found: set[str] = set()
    for task in Path("/proc/self/task").iterdir():
        found.update((task / "children").read_text().split())
    return found


def test_results_are_in_the_order_of_the_jobs():
    jobs = [lambda i=i: f"{i}".encode() * i for i in range(100)]
    assert parallel.run(jobs, 3) == [job() for job in jobs]


def test_helpers_do_a_part_of_the_work_and_are_gone_afterwards(tmp_path):
    before = children()

    def job(i: int) -> bytes:
        (tmp_path / f"{os.getpid()}-{i}").touch()
        while len({path.name.partition("-")[0] for path in tmp_path.iterdir()}) < 2 and i < 20:
            pass  # until both are at work: nothing here depends on who is faster
        return b"%d" % i

    made = parallel.run([lambda i=i: job(i) for i in [*range(9), 20]], 2)  # type: ignore[misc]
    assert made == [b"%d" % i for i in [*range(9), 20]]
    assert {path.name.partition("-")[0] for path in tmp_path.iterdir()} > {str(HERE)}
    assert children() == before


def test_what_a_job_raises_is_raised_here():
    def refuse() -> bytes:
        raise ValueError("no such kernel")

    jobs: list[Any] = [lambda: b"made"] * 10
    jobs[4] = refuse
    before = children()
    with pytest.raises(ValueError, match="no such kernel"):
        parallel.run(jobs, 3)
    assert children() == before


def test_the_jobs_of_a_helper_that_dies_are_done_here():
    def job(i: int) -> bytes:
        if os.getpid() != HERE:
            os._exit(9)
        return b"%d" % i

    assert parallel.run([lambda i=i: job(i) for i in range(12)], 3) == [b"%d" % i for i in range(12)]


def test_few_jobs_start_no_process(monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    assert parallel.run([lambda: b"1"] * (parallel.ENOUGH - 1), 8) == [b"1"] * (parallel.ENOUGH - 1)


def test_a_result_that_is_cut_short_is_left_out(tmp_path):
    number = parallel._number
    whole = number(3) + number(4) + b"four"
    for size in range(len(whole) + 1):
        file = (tmp_path / "results").open("w+b")
        file.write(whole[:size])
        assert parallel._read(file) == ({3: b"four"} if size == len(whole) else {})


def test_kernels_compiled_by_several_processes_are_those_of_one():
    x = Tensor([float(i) for i in range(24)]).realize()
    y = [x.reshape(2 + i, -1) if 24 % (2 + i) == 0 else x * (i + 0.5) for i in range(12)]
    roots = [(t.exp() + float(i)).sum().contiguous().node for i, t in enumerate(y)]
    sinks = [k.sink for root in roots for k in schedule([root], [x.node.arg]).kernels]
    compiling.forget()
    together = compile_kernels(sinks, cpu_target(), workers=2)
    compiling.forget()
    assert [(code.name, code.image) for code in together] == [
        (code.name, code.image) for code in (compile_kernel(sink, cpu_target()) for sink in sinks)
    ]


def test_schedules_that_were_found_are_used_and_those_that_do_not_apply_are_passed_over():
    sinks = [kernel((out(0, (40 + i,)), param(1, (40 + i,)) + 1.0)) for i in range(parallel.ENOUGH + 1)]
    texts = ["split r0 8; vectorize r0.1", "swirl r0", "split r0 4; unroll r0.1", "split r7 4"]
    schedules = {kernel_key(sink): text for sink, text in zip(sinks, texts, strict=False)}
    heuristic = [compile_kernel(sink, cpu_target()).choice for sink in sinks]
    for workers in (1, 2):
        compiling.forget()
        found = [code.choice for code in compile_kernels(sinks, cpu_target(), None, workers, schedules)]
        assert found == [texts[0], heuristic[1], texts[2], *heuristic[3:]]
