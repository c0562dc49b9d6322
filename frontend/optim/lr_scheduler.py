"""Schedules: the learning rate, and at times the momentum, as functions of how many steps or epochs there were.

In       an optimizer; then `step()` after each epoch or batch
Out      `StepLR`, `CosineAnnealingLR`, `OneCycleLR` and others, under PyTorch's names
Changes  the options of the optimizer's groups
Next     schedules.py (what they share), schedule_curves.py, schedule_cycles.py, schedule_chains.py; groups.py (how a
         new rate reaches kernels and recordings)
Source   PyTorch's torch.optim.lr_scheduler, for names, arguments and values; Loshchilov and Hutter 2017; Smith 2017

step() belongs outside of a recorded function (jit): a replay runs no Python, and the rate it reads is the one that is
set when it runs. Inside, it is refused.
"""

from hcq.frontend.optim.schedule_chains import ChainedScheduler as ChainedScheduler
from hcq.frontend.optim.schedule_chains import ReduceLROnPlateau as ReduceLROnPlateau
from hcq.frontend.optim.schedule_chains import SequentialLR as SequentialLR
from hcq.frontend.optim.schedule_curves import ConstantLR as ConstantLR
from hcq.frontend.optim.schedule_curves import CosineAnnealingLR as CosineAnnealingLR
from hcq.frontend.optim.schedule_curves import CosineAnnealingWarmRestarts as CosineAnnealingWarmRestarts
from hcq.frontend.optim.schedule_curves import ExponentialLR as ExponentialLR
from hcq.frontend.optim.schedule_curves import LambdaLR as LambdaLR
from hcq.frontend.optim.schedule_curves import LinearLR as LinearLR
from hcq.frontend.optim.schedule_curves import MultiplicativeLR as MultiplicativeLR
from hcq.frontend.optim.schedule_curves import MultiStepLR as MultiStepLR
from hcq.frontend.optim.schedule_curves import PolynomialLR as PolynomialLR
from hcq.frontend.optim.schedule_curves import StepLR as StepLR
from hcq.frontend.optim.schedule_cycles import CyclicLR as CyclicLR
from hcq.frontend.optim.schedule_cycles import OneCycleLR as OneCycleLR
from hcq.frontend.optim.schedules import LRScheduler as LRScheduler
