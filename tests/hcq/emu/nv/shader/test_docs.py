"""The example of docs/emulated-ptx.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.hcq.emu.nv.shader.running import needs_nvrtc

PAGE = Path(__file__).parents[5] / "docs" / "emulated-ptx.md"


@needs_nvrtc
def test_the_example_of_the_page_doubles_its_array(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("[0. 2. 4.] ")
