"""Upper rooms: what devices/ and search/ do for the rooms below them, which do not import them.

In       calls of run/ and symbolic/, by way of core/above.py
Out      what the room above makes of them; it is imported by the first call
Changes  core/above.py: imported once, with tensor.py
Next     core/above.py (what is asked for), devices/sharding/ (groups of devices), search/ (schedules that were found)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.frontend.core import above


def _group_plan(structure: Any, roots: Sequence[Any], group: str) -> Any:
    from hcq.frontend.devices.sharding.plan import group_plan

    return group_plan(structure, roots, group)


def _brought(source: Any, target: Any, realized: Any) -> Any:
    from hcq.frontend.devices.sharding.transfer import brought

    return brought(source, target, realized)


def _stored(group: str, dtype: Any, shape: tuple[int, ...], raw: Any, name: str) -> Any:
    from hcq.frontend.devices.sharding.storage import stored

    return stored(group, dtype, shape, raw, name)


def _schedules_for(device: str, sinks: Sequence[Any], target: Any) -> dict[str, str]:
    from hcq.frontend.search.searching import schedules_for

    return schedules_for(device, sinks, target)


def _schedules_digest() -> str:
    from hcq.frontend.search import store

    return store.digest()


above.register(
    group_plan=_group_plan,
    brought=_brought,
    stored=_stored,
    schedules_for=_schedules_for,
    schedules_digest=_schedules_digest,
)
