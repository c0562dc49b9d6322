"""Optimizers: move parameters against their gradients, in place, all in one schedule; schedules of the learning rate.

In       parameters (tensors in memory) and, at each step, their `.grad`
Out      `SGD`, `Adam`, `AdamW` and others, `lr_scheduler`, `swa_utils`
Changes  `step` writes the parameters and the optimizer's own state
Next     optimizer.py (what they share), lr_scheduler.py, ../../gradient.py (who fills `.grad`)
"""

from hcq.frontend.nn.optim import lr_scheduler as lr_scheduler
from hcq.frontend.nn.optim import swa_utils as swa_utils
from hcq.frontend.nn.optim.adam import LAMB as LAMB
from hcq.frontend.nn.optim.adam import Adam as Adam
from hcq.frontend.nn.optim.adam import Adamax as Adamax
from hcq.frontend.nn.optim.adam import AdamW as AdamW
from hcq.frontend.nn.optim.adam import Lion as Lion
from hcq.frontend.nn.optim.adam import NAdam as NAdam
from hcq.frontend.nn.optim.adam import RAdam as RAdam
from hcq.frontend.nn.optim.lbfgs import LBFGS as LBFGS
from hcq.frontend.nn.optim.optimizer import Optimizer as Optimizer
from hcq.frontend.nn.optim.optimizer import Part as Part
from hcq.frontend.nn.optim.scaled import Adadelta as Adadelta
from hcq.frontend.nn.optim.scaled import Adafactor as Adafactor
from hcq.frontend.nn.optim.scaled import Adagrad as Adagrad
from hcq.frontend.nn.optim.scaled import Muon as Muon
from hcq.frontend.nn.optim.scaled import RMSprop as RMSprop
from hcq.frontend.nn.optim.scaled import Rprop as Rprop
from hcq.frontend.nn.optim.sgd import ASGD as ASGD
from hcq.frontend.nn.optim.sgd import LARS as LARS
from hcq.frontend.nn.optim.sgd import SGD as SGD
