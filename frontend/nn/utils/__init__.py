"""Tools around modules and training, under PyTorch's names.

In       modules, parameters with gradients, sequences
Out      clip_grad_norm_ and its kin, weight_norm and spectral_norm, `parametrize`, `parametrizations`, `rnn`
Changes  gradients, and what modules are made of
Next     clip.py, parametrize.py, rnn.py
"""

from hcq.frontend.nn.utils import parametrizations as parametrizations
from hcq.frontend.nn.utils import parametrize as parametrize
from hcq.frontend.nn.utils import rnn as rnn
from hcq.frontend.nn.utils.clip import (
    clip_grad_norm_ as clip_grad_norm_,
)
from hcq.frontend.nn.utils.clip import (
    clip_grad_value_ as clip_grad_value_,
)
from hcq.frontend.nn.utils.clip import (
    get_total_norm as get_total_norm,
)
from hcq.frontend.nn.utils.clip import (
    parameters_to_vector as parameters_to_vector,
)
from hcq.frontend.nn.utils.clip import (
    vector_to_parameters as vector_to_parameters,
)
