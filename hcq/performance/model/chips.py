"""Chips: the rates of a chip, from the row that it has.

In       a chip's datasheet
Out      its Rates
Next     rates_nvidia.py, rates_amd.py, rates_apple.py (the rows), rates.py (what they say), ../datasheets.py (peaks)
"""

from __future__ import annotations

from hcq.errors import UsageError
from hcq.performance.datasheets import Datasheet
from hcq.performance.model import rates_amd, rates_apple, rates_nvidia
from hcq.performance.model.rates import Rates

RATES: dict[str, Rates] = {**rates_nvidia.RATES, **rates_amd.RATES, **rates_apple.RATES}


def rates_of(chip: Datasheet) -> Rates:
    """The rates of a chip. Raises UsageError for one that has none."""
    if chip.name not in RATES:
        raise UsageError(f"there are no rates of {chip.name}. There are those of {', '.join(RATES)}.")
    return RATES[chip.name]
