"""Tools around modules and training, under PyTorch's names.

In       modules, parameters with gradients, sequences
Out      clip_grad_norm_, ..., weight_norm and spectral_norm, layers fused with batch norms, `parametrize`,
         `parametrizations`, `prune`, `rnn`, `stateless`
Changes  gradients, and what modules are made of
Next     clip.py, normed.py, fusion.py, parametrize.py, prune.py, rnn.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.frontend.nn.utils import parametrizations as parametrizations
from hcq.frontend.nn.utils import parametrize as parametrize
from hcq.frontend.nn.utils import rnn as rnn
from hcq.frontend.nn.utils.clip import clip_grad_norm as clip_grad_norm
from hcq.frontend.nn.utils.clip import clip_grad_norm_ as clip_grad_norm_
from hcq.frontend.nn.utils.clip import clip_grad_value_ as clip_grad_value_
from hcq.frontend.nn.utils.clip import clip_grads_with_norm_ as clip_grads_with_norm_
from hcq.frontend.nn.utils.clip import get_total_norm as get_total_norm
from hcq.frontend.nn.utils.clip import parameters_to_vector as parameters_to_vector
from hcq.frontend.nn.utils.clip import vector_to_parameters as vector_to_parameters
from hcq.lazy_module import late_names

if TYPE_CHECKING:
    from hcq.frontend.nn.utils import prune as prune
    from hcq.frontend.nn.utils import stateless as stateless
    from hcq.frontend.nn.utils.fusion import *
    from hcq.frontend.nn.utils.normed import *

# imported when they are asked for: those of layers, which are imported after this, and modules of few programs
LATE = {
    "fusion": "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights skip_init",
    "normed": "weight_norm remove_weight_norm spectral_norm remove_spectral_norm",
}
__getattr__, __dir__ = late_names(__name__, LATE, ("prune", "stateless"))
