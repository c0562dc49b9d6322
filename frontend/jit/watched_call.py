"""Watched call: a function is called once while a Capture watches, on stand-ins for its tensor arguments.

In       a function, its arguments and their memory
Out      `capture`: the result, and a `CallRecord` of what the call did; `settle`: nothing is pending before one
Changes  whatever the function changes; after an error the arguments mean what they meant, with what was written to them
Next     capture.py (the watcher), stand_ins.py, delivery.py (what goes in and comes out), function.py (which call is
         captured and which replayed)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hcq.errors import UsageError
from hcq.frontend.core.base import Core, drop_default_mode, live, mode_of_thread
from hcq.frontend.core.storage import Storage
from hcq.frontend.jit.capture import Capture
from hcq.frontend.jit.delivery import deliver
from hcq.frontend.jit.overwritten import give, hand_back, keep_others
from hcq.frontend.jit.pytree import shape_of
from hcq.frontend.jit.record import CallRecord, Role
from hcq.frontend.jit.stand_ins import stand_ins
from hcq.frontend.run.realize import give_memory, realize, unwatched
from hcq.frontend.tensor import Tensor
from hcq.ir.node import Node
from hcq.ir.op import Op


def settle() -> bool:
    """Do this thread's pending writes, so that they are not taken for a call's own, and compute gradients.

    Returns  True when there were any: then tensors may have other memory now
    """
    pending = [tensor for tensor in live.own() if tensor.node.op is Op.ASSIGN]
    for tensor in pending:
        realize((tensor,))  # one by one, for two may be of one memory
    lazy = [
        gradient
        for t in live.own()
        if (gradient := t._grad) is not None and gradient.node.op is not Op.BUFFER
    ]
    give_memory(lazy)
    return bool(pending or lazy)


def capture(
    function: Callable[..., Any],
    name: str,
    call: tuple[Any, Any],
    tensors: Sequence[Tensor],
    storages: Sequence[Storage],
    is_first: bool,
    donated: Iterable[int] = (),
) -> tuple[Any, CallRecord]:
    """Call a function on (args, kwargs), whose tensors have this memory. Returns its result and what it did."""
    own: dict[Storage, Storage] = {}
    for s in storages:
        if s not in own:
            own[s] = s.like(s.buffer)
            own[s].number = s.number
    watch = Capture(name, tensors, storages, [own[s] for s in storages], is_first)
    watch.seen.donated = frozenset(donated)
    watch.before_call()
    mode = mode_of_thread()
    mode.watcher = watch
    meant = {own[s].node(): s.node() for s in own}
    held: list[Core] = []
    finished = is_refused = False
    try:
        args, kwargs = stand_ins(call, tensors, [own[s] for s in storages], watch.stand_ins)
        held += [one for each in watch.stand_ins.values() if (one := each.ref()) is not None]
        one = None
        before = shape_of((args, kwargs))
        result = function(*args, **kwargs)
        if shape_of((args, kwargs)) != before:
            raise UsageError(
                f"[jit] {name} changes a list or dict that is its argument, which a replay does not. Return it instead."
            )
        del args, kwargs, before
        tree = watch.after_call(result, held, meant)
        del result
        finished = True
    except UsageError as error:
        is_refused = str(error).startswith("[jit]")  # then arguments stay as they are
        raise
    finally:
        mode.watcher = None
        drop_default_mode()
        if not finished:
            _restore(watch, [] if is_refused else held, meant)
        held.clear()
    with unwatched():
        found: dict[Role, Storage] = {("argument", n): s for n, s in enumerate(storages)}
        found |= {role: s for s, role in watch.roles.items() if role[0] == "made" or role[0] == "grad"}
        before = {key: gradient for key, (_, gradient) in watch.grads.items()}
        families = {
            watch.families[id(whole)]: whole for whole in watch.wholes.values() if id(whole) in watch.families
        }
        result = deliver(tree, watch.seen, tensors, storages, found, before, families=families)
        del before
    del found, tree
    seen = watch.close()  # not in the line below, where Python holds the result twice
    return result, seen


def _restore(watch: Capture, held: Sequence[Core], meant: dict[Node, Node]) -> None:
    """After an error: what the call left lazy means the arguments, not their stand-ins. These have what it wrote."""
    ids = {id(one) for one in held}
    left = [tensor for ref in watch.tensors if (tensor := ref()) is not None and id(tensor) not in ids]
    for tensor in (*left, *watch.touched.values()):
        tensor.node = tensor.node.substitute(meant)
    for tensor in held:
        stand_in = watch.stand_ins[id(tensor)]
        number = stand_in.number
        caller, storage = watch.tensors_of_call[number], watch.storages[number]
        with unwatched():
            how = watch.writing.get(number)
            if how is not None:
                if number not in watch.overwritten:
                    keep_others({number: how}, watch.tensors_of_call, watch.storages)
                tensor.realize()  # type: ignore[attr-defined]
                hand_back(caller, storage, how)
                if tensor.node is not stand_in.node and tensor.node.shape == stand_in.node.shape:
                    give(caller, tensor, how)
        tensor.node = tensor.node.substitute(meant)
