"""The colours of the trace page differ for everybody: for people who see red, green or blue badly, in light and dark.

What they see is simulated by the matrices of Machado, Oliveira and Fernandes (2009), "A Physiologically-based Model for
Simulation of Color Vision Deficiency", severity 1. Colours are compared in OKLab (Ottosson, 2020), where equal
distances look about equally large. Contrast is that of WCAG 2.1.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from hcq.tools.trace.serve import PAGE

KINDS = ("kernel", "graph", "copy", "fill", "packets", "wait", "compile", "talk", "other")
SEEN: dict[str, Any] = {
    "as they are": np.eye(3),
    "without red": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "without green": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.01182, 0.04294, 0.968881],
    ],
    "without blue": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.3039],
    ],
}
CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
LAB = [
    [0.2104542553, 0.793617785, -0.0040720468],
    [1.9779984951, -2.428592205, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.808675766],
]


def palette(scheme: str) -> dict[str, Any]:
    """Name -> linear red, green and blue."""
    light, dark = (PAGE / "page.css").read_text().split("@media (prefers-color-scheme: dark)", 1)
    found = {}
    for name, *parts in re.findall(
        r"--([\w-]+): #(..)(..)(..);", light if scheme == "light" else dark.split("\n}", 1)[0]
    ):
        encoded = np.array([int(part, 16) / 255 for part in parts])
        found[name] = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("sight", SEEN)
def test_kinds_of_work_differ_for_everybody(scheme: str, sight: str) -> None:
    colours = palette(scheme)
    seen = {kind: np.clip(np.array(SEEN[sight]) @ colours[kind], 0, 1) for kind in KINDS}
    lab = {kind: np.array(LAB) @ np.cbrt(np.array(CONES) @ one) for kind, one in seen.items()}
    for one, other in itertools.combinations(KINDS, 2):
        assert np.linalg.norm(lab[one] - lab[other]) > 0.08, (one, other)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_bars_and_texts_stand_out_from_the_page(scheme: str) -> None:
    colours = palette(scheme)

    def contrast(one: str, other: str) -> float:
        first, second = (
            float(np.array([0.2126, 0.7152, 0.0722]) @ colours[name]) + 0.05 for name in (one, other)
        )
        return max(first, second) / min(first, second)

    for kind in KINDS:
        assert contrast(kind, "page") > 3, kind
    for text, ground in itertools.product(("text", "dim", "accent", "wrong", "time"), ("page", "raised")):
        assert contrast(text, ground) > 4.5, (text, ground)
