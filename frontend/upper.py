"""Upper rooms: which of them does what for the rooms below, which do not import them.

In       calls of core/, schedule/, run/, tensor.py and nn/, by way of core/above.py
Out      what the room above makes of them; it is imported by the first call
Changes  core/above.py: imported once, with the package
Next     core/above.py (what is asked for), devices/sharding/ (groups of devices), search/ (schedules that were found),
         symbolic/ (numbers known later), rewrites/ (graphs of the same values), torch/device_words.py
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from hcq.frontend.core import above

PLACES = {
    "group_plan": "hcq.frontend.devices.sharding.plan:group_plan",
    "brought": "hcq.frontend.devices.sharding.transfer:brought",
    "stored": "hcq.frontend.devices.sharding.storage:stored",
    "schedules_for": "hcq.frontend.search.searching:schedules_for",
    "schedules_digest": "hcq.frontend.search.store:digest",
    "sizes": "hcq.frontend.symbolic.size_rules:sizes",
    "bound_of": "hcq.frontend.symbolic.variable:bound_of",
    "padded_by_numbers": "hcq.frontend.symbolic.placing:padded",
    "flipped_by_numbers": "hcq.frontend.symbolic.placing:flipped",
    "joined_by_numbers": "hcq.frontend.symbolic.placing:joined",
    "without_gaps": "hcq.frontend.rewrites.gaps:without_gaps",
    "in_channels": "hcq.frontend.rewrites.channels:in_channels",
    "in_planes": "hcq.frontend.rewrites.planes:in_planes",
    "reduction_in_steps": "hcq.frontend.rewrites.two_steps:reduction",
    "scan_in_steps": "hcq.frontend.rewrites.two_steps:scan",
    "sorts_of": "hcq.frontend.rewrites.sorts:sorts_of",
    "sorted_in_one_piece": "hcq.frontend.rewrites.sorts:in_one_piece",
    "bucket": "hcq.frontend.rewrites.sorts:bucket",
    "shared_array": "hcq.frontend.io.dlpack:array",
    "dlpack_capsule": "hcq.frontend.io.dlpack:capsule",
    "pickled": "hcq.frontend.io.pickled:reduced",
    "ranks_met": "hcq.frontend.more.distributed.job:ranks_met",
    "type_of_device": "hcq.frontend.torch.device_words:type_of",
    "device_spelled": "hcq.frontend.torch.device_words:spelled",
}


def _imported_by_the_first_call(word: str, place: str) -> Callable[..., Any]:
    def first(*given: Any) -> Any:
        file, _, name = place.partition(":")
        function = getattr(import_module(file), name)
        above.register(**{word: function})  # the calls after this one go there
        return function(*given)

    return first


above.register(**{word: _imported_by_the_first_call(word, place) for word, place in PLACES.items()})
