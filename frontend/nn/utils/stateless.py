"""stateless: a module called with other tensors in place of its parameters.

In       a module, tensors for its parameters, arguments
Out      `functional_call`
Changes  it holds other tensors in the module while it runs, and puts the module's own back
Next     ../module.py, ../../more/transforms/modules.py (hcq.func, which has it, too)
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
