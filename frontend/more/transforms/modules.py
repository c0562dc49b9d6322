"""Modules as functions: their parameters as an argument.

In       a module, and tensors for its parameters and buffers by name
Out      functional_call: what the module gives with these; stack_module_state: several modules' parameters as one
         batch; replace_all_batch_norm_modules_
Changes  functional_call holds other tensors in the module while it runs, and puts the module's own back
Next     ../nn/module.py, vmap.py (an ensemble: vmap over stacked parameters)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hcq.checks import shown
from hcq.errors import UsageError
from hcq.frontend.tensor import Tensor


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
) -> Any:
    """What `module(*args, **kwargs)` gives when these tensors stand for its parameters and buffers.

    parameter_and_buffer_dicts  name -> tensor, one dict or several; the module's own where a name is not given
    args                        a tuple of arguments, or the only one
    Raises                      UsageError for a name that the module does not have

    >>> layer = hcq.nn.Linear(2, 1, bias=False)
    >>> hcq.func.functional_call(layer, {"weight": Tensor([[1.0, 2.0]])}, Tensor([[3.0, 4.0]])).tolist()
    [[11.0]]
    """
    dicts = (
        [parameter_and_buffer_dicts]
        if isinstance(parameter_and_buffer_dicts, Mapping)
        else parameter_and_buffer_dicts
    )
    given = {name: tensor for each in dicts for name, tensor in each.items()}
    own = module.state_dict()
    unknown = [name for name in given if name not in own]
    if unknown:
        raise UsageError(
            f"[functional_call] {type(module).__name__} has no {', '.join(map(shown, unknown))}. "
            f"Its names: {', '.join(own) or 'none'}."
        )
    before = {name: (own[name].node, own[name].device, own[name]._requires_grad) for name in given}
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for name, tensor in given.items():
            _hold(own[name], tensor.node, tensor.device, False)
        return module(*arguments, **(kwargs or {}))
    finally:
        for name, (node, device, requires_grad) in before.items():
            _hold(own[name], node, device, requires_grad)


def _hold(tensor: Tensor, node: Any, device: str, requires_grad: bool) -> None:
    tensor.node, tensor.device, tensor._requires_grad = node, device, requires_grad


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
    from hcq.frontend.nn.layers.norm import BatchNorm
    from hcq.frontend.nn.module import Module

    if not isinstance(root, Module):
        raise UsageError(f"[replace_all_batch_norm_modules_] {shown(root)}: give a module.")
    for module in root.modules():
        if isinstance(module, BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root
