"""Metal takes no packets of a program's own, and says so."""

from __future__ import annotations

from typing import Any

import pytest

from hcq.errors import UsageError


def test_metal_says_that_it_takes_no_packets(open_metal: Any) -> None:
    dev = open_metal("m3")
    with pytest.raises(UsageError, match="takes no packets of a program's own; those of AMD, NV and CPU do"):
        dev.queue().packets(0, 0)
