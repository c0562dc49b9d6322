# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.utils."""

from hcq.frontend.nn.utils import *
from hcq.torch.nn.utils import parametrizations as parametrizations
from hcq.torch.nn.utils import parametrize as parametrize
from hcq.torch.nn.utils import prune as prune
from hcq.torch.nn.utils import rnn as rnn
from hcq.torch.nn.utils import stateless as stateless
from hcq.frontend.nn.utils.fusion import fuse_conv_bn_eval as fuse_conv_bn_eval
from hcq.frontend.nn.utils.fusion import fuse_conv_bn_weights as fuse_conv_bn_weights
from hcq.frontend.nn.utils.fusion import fuse_linear_bn_eval as fuse_linear_bn_eval
from hcq.frontend.nn.utils.fusion import fuse_linear_bn_weights as fuse_linear_bn_weights
from hcq.frontend.nn.utils.normed import remove_spectral_norm as remove_spectral_norm
from hcq.frontend.nn.utils.normed import remove_weight_norm as remove_weight_norm
from hcq.frontend.nn.utils.fusion import skip_init as skip_init
from hcq.frontend.nn.utils.normed import spectral_norm as spectral_norm
from hcq.frontend.nn.utils.normed import weight_norm as weight_norm
