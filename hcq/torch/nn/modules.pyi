# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.modules."""

from typing import Any
from hcq.frontend.nn.modules import *
activation: Any
adaptive: Any
batchnorm: Any
container: Any
conv: Any
distance: Any
dropout: Any
flatten: Any
fold: Any
instancenorm: Any
lazy: Any
linear: Any
loss: Any
module: Any
normalization: Any
padding: Any
pixelshuffle: Any
pooling: Any
rnn: Any
sparse: Any
transformer: Any
upsampling: Any
