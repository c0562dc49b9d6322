# fmt: off
"""Written by `make docs`: what type checkers see of the package."""

from typing import Any

from hcq.frontend.core.device import Device as Device
from hcq.errors import DeviceFault as DeviceFault
from hcq.errors import DriverError as DriverError
from hcq.errors import HcqError as HcqError
from hcq.queue import Queue as Queue
from hcq.frontend.tensor import Tensor as Tensor
from hcq.errors import UsageError as UsageError
from hcq.frontend.symbolic.variable import Variable as Variable
from hcq.errors import WaitTimeout as WaitTimeout
from hcq.frontend.more.custom import custom as custom
from hcq.ir.dtype import dtypes as dtypes
from hcq.frontend.jit import jit as jit
from hcq.frontend.io.files import load as load
from hcq.artefact import load_program as load_program
from hcq.lifetime.opening import open as open
from hcq.frontend.io.files import save as save
from hcq.frontend.jit import save_program as save_program
from hcq.performance import counters as counters
from hcq.frontend.more import distributed as distributed
from hcq.frontend.more import transforms as func
from hcq.frontend import nn as nn
from hcq.frontend.more import onnx as onnx
from hcq.frontend import optim as optim
from hcq.events import ranks as ranks
from hcq.performance import roofline as roofline

__version__: str

def __getattr__(name: str) -> Any: ...
