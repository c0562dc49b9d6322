"""Optimizers: move parameters against their gradients, in place, all in one schedule; schedules of the learning rate.

In       parameters (tensors in memory) and, at each step, their `.grad`
Out      `SGD`, `Adam`, `AdamW` and others, `lr_scheduler`, `swa_utils`
Changes  `step` writes the parameters and the optimizer's own state
Next     optimizer.py (what they share), lr_scheduler.py, grad/gradient.py (who fills `.grad`)
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hcq.frontend.ops.arguments import check_methods
from hcq.frontend.ops.late import Unknown
from hcq.frontend.optim.optimizer import Optimizer as Optimizer
from hcq.frontend.optim.optimizer import Part as Part
from hcq.lazy_module import late_names

MODULES = ("lr_scheduler", "swa_utils")
# a file -> its optimizers: it is imported when one is first asked for
LATE = {
    "adam": "LAMB Adam Adamax AdamW Lion NAdam RAdam",
    "lbfgs": "LBFGS",
    "scaled": "Adadelta Adafactor Adagrad Muon RMSprop Rprop",
    "sgd": "ASGD LARS SGD",
}

if TYPE_CHECKING:  # as MODULES and LATE have them
    from hcq.frontend.optim import lr_scheduler as lr_scheduler
    from hcq.frontend.optim import swa_utils as swa_utils
    from hcq.frontend.optim.adam import *
    from hcq.frontend.optim.lbfgs import *
    from hcq.frontend.optim.scaled import *
    from hcq.frontend.optim.sgd import *
else:
    __all__ = [*MODULES, *" ".join(LATE.values()).split(), "Optimizer", "Part"]  # noqa: PLE0604


__getattr__, __dir__ = late_names(
    __name__,
    LATE,
    MODULES,
    refuse=lambda name: Unknown(
        sys.modules[__name__], name, "module 'hcq.optim' has no attribute or optimizer"
    ),
    finish=lambda optimizer: check_methods(optimizer, "__init__"),
)
check_methods(Optimizer, "__init__")
