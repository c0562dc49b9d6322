"""The examples of docs/emulated-ptx.md run."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hcq.nv.abi.tensor_map import TensorMap
from tests.hcq.emu.nv.shader.running import needs_nvrtc

PAGE = Path(__file__).parents[5] / "docs" / "emulated-ptx.md"


@needs_nvrtc
def test_the_example_of_the_page_doubles_its_array(capsys: pytest.CaptureFixture[str]) -> None:
    example, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    assert capsys.readouterr().out.startswith("[0. 2. 4.] ")


def test_the_tensor_map_of_the_page_describes_its_tensor() -> None:
    _, example = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"dev": SimpleNamespace(alloc=lambda size_bytes: 0x10000)}
    exec(compile(example, str(PAGE), "exec"), names)
    made = TensorMap.decode(np.frombuffer(names["tiles"], np.uint32).tolist())
    assert (made.dims, made.strides, made.box) == ((512, 256), (2, 1024), (64, 128))
