"""Modules as functions: their parameters as an argument.

In       a module, and tensors for its parameters and buffers by name
Out      functional_call: what the module gives with these; stack_module_state: several modules' parameters as one
         batch; replace_all_batch_norm_modules_
Changes  functional_call holds other tensors in the module while it runs, and puts the module's own back
Next     ../nn/module.py, vmap.py (an ensemble: vmap over stacked parameters)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.nn.layers.norm import BatchNorm
from hcq.frontend.nn.module import Module
from hcq.frontend.nn.utils.stateless import functional_call as functional_call
from hcq.frontend.tensor import Tensor


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of modules of one kind, each stacked along a new first axis.

    Returns  (parameters, buffers), by name; the parameters require gradients where all of the modules' do
    Raises   UsageError for no modules, and for modules whose names or shapes differ

    >>> nets = [hcq.nn.Linear(2, 3) for _ in range(4)]
    >>> parameters, buffers = hcq.func.stack_module_state(nets)
    >>> parameters["weight"].shape
    (4, 3, 2)
    """
    listed = list(models)
    if not listed:
        raise UsageError("[stack_module_state] no modules. Give at least one.")
    found = []
    for which in ("named_parameters", "named_buffers"):
        states = [dict(getattr(model, which)()) for model in listed]
        if any(list(state) != list(states[0]) for state in states):
            raise UsageError(
                "[stack_module_state] the modules differ in their names. Give modules of one kind."
            )
        stacked = {}
        for name in states[0]:
            tensors = [state[name] for state in states]
            if any(tensor.shape != tensors[0].shape for tensor in tensors):
                raise UsageError(
                    f"[stack_module_state] {name!r} has shapes {[tensor.shape for tensor in tensors]}: give modules of "
                    "one kind and size."
                )
            joined = Tensor.stack([tensor.detach() for tensor in tensors]).realize()
            stacked[name] = joined.requires_grad_(all(tensor._requires_grad for tensor in tensors))
        found.append(stacked)
    parameters, buffers = found
    return parameters, buffers


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Have every BatchNorm inside keep no running statistics, which vmap could not write. Returns the module.

    >>> net = hcq.func.replace_all_batch_norm_modules_(hcq.nn.Sequential(hcq.nn.BatchNorm1d(2)))
    >>> net[0].running_mean, net[0].track_running_stats, list(net.state_dict())
    (None, False, ['0.weight', '0.bias'])
    """
    if not isinstance(root, Module):
        raise UsageError(f"[replace_all_batch_norm_modules_] {shown(root)}: give a module.")
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
