"""What footguns are made of: generators that are run with and without jit, see test_jit_footguns.py."""

from __future__ import annotations

import dataclasses

from hcq import Tensor

FOOTGUNS = {}


def gun(calls):
    FOOTGUNS[calls.__name__] = calls
    return calls


def T(*values):
    return Tensor([float(each) for each in values]).realize()


class Box:
    pass


@dataclasses.dataclass
class DC:
    a: object
    b: object
    k: float = 1.0
