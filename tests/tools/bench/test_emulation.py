"""The benchmark of emulated GPUs measures a revision alone and beside another."""

from __future__ import annotations

import re

import pytest

from hcq.tools.bench import emulation


def test_a_case_is_measured_beside_another_checkout(capsys: pytest.CaptureFixture[str]) -> None:
    assert emulation.main(["atomic-*", "--rounds", "2", "--beside", str(emulation.ROOT)]) == 0
    title, *lines = capsys.readouterr().out.splitlines()
    assert "here / there" in title
    assert [line.split()[0] for line in lines] == ["atomic-exch", "atomic-float"]
    assert all(re.search(r" [\d.e-]+x  \([\d.e-]+ to [\d.e-]+\)$", line) for line in lines)


def test_patterns_name_work_on_a_gpu_and_work_of_a_shader_core_alone() -> None:
    assert emulation.cases(["digits@amd:gfx1*"]) == ["digits@amd:gfx1100", "digits@amd:gfx1201"]
    assert emulation.cases(["cas-loop"]) == ["cas-loop"]
    with pytest.raises(SystemExit):
        emulation.main(["no such case"])
