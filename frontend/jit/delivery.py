"""Delivery: the results of a call, and the tensors that it keeps, made of that call's memory.

In       a CallRecord, and the memory that each of its roles is in this call
Out      the result, in the containers that it was in
Changes  arguments that the call writes to, `.grad` of tensors outside, and places where the call keeps tensors
Next     watched_call.py and replay.py (who ask for it)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hcq.frontend.core import views
from hcq.frontend.core.base import live
from hcq.frontend.core.nodes import reshaped
from hcq.frontend.core.storage import Storage
from hcq.frontend.jit.overwritten import give, hand_back
from hcq.frontend.jit.pytree import Argument, Gradient, New, Ref, Same, filled
from hcq.frontend.jit.record import CallRecord, Family, Role
from hcq.frontend.tensor import Tensor


def deliver(
    tree: Any,
    seen: CallRecord,
    tensors: Sequence[Tensor],
    storages: Sequence[Storage],
    found: dict[Role, Storage],
    before: Mapping[int, Any],
    gradients: Sequence[tuple[Ref, Any]] | None = None,
    families: Mapping[int, Ref] | None = None,
) -> Any:
    """Results and kept tensors of a call, made of this call's memory.

    before     the gradients that were there when it began, by the id of whose they are
    gradients  what to set; None when the function itself ran: it has set gradients, and kept tensors
    families   by their numbers, what those tensors are views of that it kept
    """
    made: dict[int, Tensor] = {}
    wholes: dict[int, Any] = dict(families or {})  # what tensors of one family are views of

    def join(tensor: Tensor, family: Family | None) -> None:
        if family is None:
            return
        whole: Any = live.ref(tensor)
        if isinstance(family, Argument):
            argument, memory = tensors[family.number], storages[family.number].node()
            now = {}
            if views.core_of(argument.node) is not memory:  # it was handed over as a copy of a part
                now[memory] = reshaped(argument.node, memory.shape)
            for number, at, _ in seen.given:
                # it has the values of another tensor now
                if number == family.number and made.get(at) is not None:
                    now[made[at].node] = argument.node
            if now:
                tensor.node = tensor.node.substitute(now)
            whole = live.ref(argument)
        elif isinstance(family, Gradient):
            whole = live.ref(before[family.key])
        elif isinstance(family, Same):
            whole = family.ref
        else:
            whole = wholes.setdefault(family, whole)
        tensor._is_view_of(whole)

    def tensor_of(leaf: Any) -> Any:
        if isinstance(leaf, New):
            tensor = made.get(leaf.number)
            if tensor is None:
                template = seen.templates[leaf.number]
                tensor = Tensor._of(template.filled(seen.placeholders, found), template.device)
                join(tensor, template.family)
                if template.requires_grad:
                    tensor.requires_grad_()
                made[leaf.number] = tensor
            return tensor
        if isinstance(leaf, Argument):
            return tensors[leaf.number]
        return before[leaf.key] if isinstance(leaf, Gradient) else leaf.ref()

    for number, how in seen.overwritten.items():
        if number not in seen.donated:
            hand_back(tensors[number], storages[number], how)
    for number, at, how in seen.given:
        if number not in seen.donated:
            give(tensors[number], tensor_of(New(at)), how)
    if gradients is not None:
        for ref, leaf in gradients:
            owner = ref()
            if owner is not None:
                owner._grad = None if leaf is None else tensor_of(leaf)
        for places, number in seen.kept:
            for place in places:
                place.put(tensor_of(New(number)))
    else:
        for ref, leaf in seen.gradients:
            owner = ref()
            if owner is not None and isinstance(leaf, New):
                made[leaf.number] = owner._grad
    return filled(tree, tensor_of)
