# ruff: noqa: E501
# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch.nn.functional."""

from hcq.frontend.nn.functional import *
from hcq.frontend.tensor import Tensor
from hcq.frontend.nn.functional_pools import adaptive_max_pool1d_with_indices as adaptive_max_pool1d_with_indices
from hcq.frontend.nn.functional_pools import adaptive_max_pool2d_with_indices as adaptive_max_pool2d_with_indices
from hcq.frontend.nn.functional_pools import adaptive_max_pool3d_with_indices as adaptive_max_pool3d_with_indices
from hcq.frontend.nn.functional_sampling import affine_grid as affine_grid
from hcq.frontend.nn.functional_random import alpha_dropout as alpha_dropout
from hcq.frontend.nn.functional_losses import bilinear as bilinear
from hcq.frontend.nn.functional_orders import conv_tbc as conv_tbc
from hcq.frontend.nn.functional_ctc import ctc_loss as ctc_loss
from hcq.frontend.nn.functional_random import dropout as dropout
from hcq.frontend.nn.functional_random import dropout1d as dropout1d
from hcq.frontend.nn.functional_random import dropout2d as dropout2d
from hcq.frontend.nn.functional_random import dropout3d as dropout3d
from hcq.frontend.nn.functional_bags import embedding_bag as embedding_bag
from hcq.frontend.nn.functional_random import feature_alpha_dropout as feature_alpha_dropout
from hcq.frontend.nn.functional_fractional import fractional_max_pool2d as fractional_max_pool2d
from hcq.frontend.nn.functional_fractional import fractional_max_pool2d_with_indices as fractional_max_pool2d_with_indices
from hcq.frontend.nn.functional_fractional import fractional_max_pool3d as fractional_max_pool3d
from hcq.frontend.nn.functional_fractional import fractional_max_pool3d_with_indices as fractional_max_pool3d_with_indices
from hcq.frontend.nn.functional_sampling import grid_sample as grid_sample
from hcq.frontend.nn.functional_groups import grouped_mm as grouped_mm
from hcq.frontend.nn.functional_random import gumbel_softmax as gumbel_softmax
from hcq.frontend.nn.functional_losses import linear_cross_entropy as linear_cross_entropy
from hcq.frontend.nn.functional_pools import lp_pool1d as lp_pool1d
from hcq.frontend.nn.functional_pools import lp_pool2d as lp_pool2d
from hcq.frontend.nn.functional_pools import lp_pool3d as lp_pool3d
from hcq.frontend.nn.functional_pools import max_pool1d_with_indices as max_pool1d_with_indices
from hcq.frontend.nn.functional_pools import max_pool2d_with_indices as max_pool2d_with_indices
from hcq.frontend.nn.functional_pools import max_pool3d_with_indices as max_pool3d_with_indices
from hcq.frontend.nn.functional_heads import multi_head_attention_forward as multi_head_attention_forward
from hcq.frontend.nn.functional_losses import multilabel_margin_loss as multilabel_margin_loss
from hcq.frontend.nn.functional_orders import native_channel_shuffle as native_channel_shuffle
from hcq.frontend.nn.functional_random import rrelu as rrelu
from hcq.frontend.nn.functional_random import rrelu_ as rrelu_
from hcq.frontend.nn.functional_scaled import scaled_mm as scaled_mm
from hcq.frontend.nn.functional_sampling import upsample as upsample
from hcq.frontend.nn.functional_sampling import upsample_bilinear as upsample_bilinear
from hcq.frontend.nn.functional_sampling import upsample_nearest as upsample_nearest
adaptive_avg_pool1d = Tensor.adaptive_avg_pool1d
adaptive_avg_pool2d = Tensor.adaptive_avg_pool2d
adaptive_avg_pool3d = Tensor.adaptive_avg_pool3d
adaptive_max_pool1d = Tensor.adaptive_max_pool1d
adaptive_max_pool2d = Tensor.adaptive_max_pool2d
adaptive_max_pool3d = Tensor.adaptive_max_pool3d
avg_pool1d = Tensor.avg_pool1d
avg_pool2d = Tensor.avg_pool2d
avg_pool3d = Tensor.avg_pool3d
binary_cross_entropy = Tensor.binary_cross_entropy
binary_cross_entropy_with_logits = Tensor.binary_cross_entropy_with_logits
celu = Tensor.celu
celu_ = Tensor.celu_
channel_shuffle = Tensor.channel_shuffle
conv1d = Tensor.conv1d
conv2d = Tensor.conv2d
conv3d = Tensor.conv3d
conv_transpose1d = Tensor.conv_transpose1d
conv_transpose2d = Tensor.conv_transpose2d
conv_transpose3d = Tensor.conv_transpose3d
cosine_embedding_loss = Tensor.cosine_embedding_loss
cosine_similarity = Tensor.cosine_similarity
cross_entropy = Tensor.cross_entropy
elu = Tensor.elu
elu_ = Tensor.elu_
embedding = Tensor.embedding
gaussian_nll_loss = Tensor.gaussian_nll_loss
gelu = Tensor.gelu
glu = Tensor.glu
group_norm = Tensor.group_norm
hardshrink = Tensor.hardshrink
hardsigmoid = Tensor.hardsigmoid
hardswish = Tensor.hardswish
hardtanh = Tensor.hardtanh
hardtanh_ = Tensor.hardtanh_
hinge_embedding_loss = Tensor.hinge_embedding_loss
huber_loss = Tensor.huber_loss
interpolate = Tensor.interpolate
kl_div = Tensor.kl_div
l1_loss = Tensor.l1_loss
layer_norm = Tensor.layer_norm
leaky_relu = Tensor.leaky_relu
leaky_relu_ = Tensor.leaky_relu_
linear = Tensor.linear
local_response_norm = Tensor.local_response_norm
log_softmax = Tensor.log_softmax
logsigmoid = Tensor.logsigmoid
margin_ranking_loss = Tensor.margin_ranking_loss
max_pool1d = Tensor.max_pool1d
max_pool2d = Tensor.max_pool2d
max_pool3d = Tensor.max_pool3d
max_unpool1d = Tensor.max_unpool1d
max_unpool2d = Tensor.max_unpool2d
max_unpool3d = Tensor.max_unpool3d
mish = Tensor.mish
mse_loss = Tensor.mse_loss
multi_margin_loss = Tensor.multi_margin_loss
multilabel_soft_margin_loss = Tensor.multilabel_soft_margin_loss
nll_loss = Tensor.nll_loss
normalize = Tensor.normalize
one_hot = Tensor.one_hot
pad = Tensor.pad
pairwise_distance = Tensor.pairwise_distance
pdist = Tensor.pdist
pixel_shuffle = Tensor.pixel_shuffle
pixel_unshuffle = Tensor.pixel_unshuffle
poisson_nll_loss = Tensor.poisson_nll_loss
prelu = Tensor.prelu
relu = Tensor.relu
relu6 = Tensor.relu6
relu_ = Tensor.relu_
rms_norm = Tensor.rms_norm
scaled_dot_product_attention = Tensor.scaled_dot_product_attention
selu = Tensor.selu
selu_ = Tensor.selu_
sigmoid = Tensor.sigmoid
silu = Tensor.silu
smooth_l1_loss = Tensor.smooth_l1_loss
soft_margin_loss = Tensor.soft_margin_loss
softmax = Tensor.softmax
softmin = Tensor.softmin
softplus = Tensor.softplus
softshrink = Tensor.softshrink
softsign = Tensor.softsign
tanh = Tensor.tanh
tanhshrink = Tensor.tanhshrink
threshold = Tensor.threshold
threshold_ = Tensor.threshold_
triplet_margin_loss = Tensor.triplet_margin_loss
triplet_margin_with_distance_loss = Tensor.triplet_margin_with_distance_loss
