"""Emulated GPUs for a file of tests: fixtures made of the words that say which.

    machine = machine_of(*GPUS)
    gpu = gpu_of(GPUS)

`machine` holds while the tests of the file run; a test that names a device by itself asks for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pytest

import hcq
from hcq.compiler.target import Target
from tests.compiler.building import emulating


def machine_of(*words: str) -> Any:
    """A fixture: the process's GPUs are these, in this order."""

    @pytest.fixture(scope="module", name="machine")
    def machine() -> Iterator[None]:
        with emulating(*words):
            yield

    return machine


def gpu_of(gpus: Mapping[str, tuple[str, Target]], thorough: Collection[str] = ()) -> Any:
    """A fixture: each of these, as an open device and its target. gpus: word -> its name there, its target; thorough:
    words for `--thorough` alone."""
    params = [pytest.param(word, marks=[pytest.mark.thorough] * (word in thorough)) for word in gpus]

    @pytest.fixture(params=params, name="gpu")
    def gpu(request: pytest.FixtureRequest, machine: None) -> tuple[Any, Target]:
        name, target = gpus[request.param]
        return hcq.open(name), target

    return gpu


def name_of(gpus: Mapping[str, str], thorough: Collection[str] = ()) -> Any:
    """A fixture: the name of each of these. gpus: name -> word; thorough: words for `--thorough` alone."""
    params = [
        pytest.param(name, id=word, marks=[pytest.mark.thorough] * (word in thorough))
        for name, word in gpus.items()
    ]

    @pytest.fixture(params=params, name="gpu")
    def gpu(request: pytest.FixtureRequest, machine: None) -> str:
        name: str = request.param
        return name

    return gpu
