"""Transforms of functions: derivatives, and one example's function over a whole batch.

In       a function of tensors
Out      another function: its gradient, its derivative in a direction, its Jacobian, the same over a new axis
Changes  nothing; what a transform returns is lazy, and can be transformed again, differentiated and recorded by jit
Next     reverse.py (vjp, grad), forward.py (jvp), vmap.py and batching.py (vmap), jacobians.py, modules.py

The function runs once, on stand-ins for its arguments, and the graph of what it returns is what is transformed. So a
function may not look at values: `.item()`, `.numpy()` and `if x > 0` are refused inside vmap and jvp's stand-ins have
none; shapes may be looked at. The names and arguments are those of torch.func.
"""

from hcq.frontend.more.transforms.forward import jvp as jvp
from hcq.frontend.more.transforms.forward import linearize as linearize
from hcq.frontend.more.transforms.jacobians import hessian as hessian
from hcq.frontend.more.transforms.jacobians import jacfwd as jacfwd
from hcq.frontend.more.transforms.jacobians import jacobian as jacobian
from hcq.frontend.more.transforms.jacobians import jacrev as jacrev
from hcq.frontend.more.transforms.modules import functional_call as functional_call
from hcq.frontend.more.transforms.modules import (
    replace_all_batch_norm_modules_ as replace_all_batch_norm_modules_,
)
from hcq.frontend.more.transforms.modules import stack_module_state as stack_module_state
from hcq.frontend.more.transforms.reverse import grad as grad
from hcq.frontend.more.transforms.reverse import grad_and_value as grad_and_value
from hcq.frontend.more.transforms.reverse import value_and_grad as value_and_grad
from hcq.frontend.more.transforms.reverse import vjp as vjp
from hcq.frontend.more.transforms.vmap import vmap as vmap
