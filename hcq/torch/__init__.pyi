# fmt: off
"""Written by `make docs`: what type checkers see of hcq.torch."""

import builtins
from typing import Any

from hcq.ir.dtype import DType
from hcq.frontend.tensor import Tensor as Tensor
from hcq.frontend.torch.settings import _assert as _assert
from hcq.frontend.amp.casting import autocast as autocast
from hcq.frontend.torch.device import device as device
from hcq.frontend.io.files import load as load
from hcq.frontend.grad.gradient import no_grad as no_grad
from hcq.frontend.io.files import save as save
from hcq.frontend.more.transforms import vmap as vmap
from hcq.frontend.functions import imag as imag
from hcq.frontend.functions import is_tensor as is_tensor
from hcq.frontend.functions import real as real
from hcq.frontend.functions import tensor as tensor
from hcq.torch import accelerator as accelerator
from hcq.torch import amp as amp
from hcq.torch import autograd as autograd
from hcq.torch import backends as backends
from hcq.torch import compiler as compiler
from hcq.torch import cuda as cuda
from hcq.torch import distributed as distributed
from hcq.torch import distributions as distributions
from hcq.torch import fft as fft
from hcq.torch import func as func
from hcq.torch import fx as fx
from hcq.torch import hub as hub
from hcq.torch import jit as jit
from hcq.torch import linalg as linalg
from hcq.torch import masked as masked
from hcq.torch import nn as nn
from hcq.torch import onnx as onnx
from hcq.torch import optim as optim
from hcq.torch import random as random
from hcq.torch import signal as signal
from hcq.torch import special as special
from hcq.torch import testing as testing
from hcq.torch import utils as utils
from hcq.frontend.functions.older import BFloat16Tensor as BFloat16Tensor
from hcq.frontend.functions.older import BoolTensor as BoolTensor
from hcq.frontend.functions.older import ByteTensor as ByteTensor
from hcq.frontend.functions.older import CharTensor as CharTensor
from hcq.frontend.functions.older import DoubleTensor as DoubleTensor
from hcq.frontend.functions.older import FloatTensor as FloatTensor
from hcq.frontend.functions.random import Generator as Generator
from hcq.frontend.amp import GradScaler as GradScaler
from hcq.frontend.functions.older import HalfTensor as HalfTensor
from hcq.frontend.functions.older import IntTensor as IntTensor
from hcq.frontend.functions.older import LongTensor as LongTensor
from hcq.frontend.functions.older import ShortTensor as ShortTensor
from hcq.frontend.functions.older import Size as Size
from hcq.frontend.nn.functional_random import alpha_dropout as alpha_dropout
from hcq.frontend.io.dlpack import as_tensor as as_tensor
from hcq.frontend.io.dlpack import asarray as asarray
from hcq.frontend.more.fourier.windows import bartlett_window as bartlett_window
from hcq.frontend.functions.random import bernoulli as bernoulli
from hcq.frontend.nn.functional_losses import bilinear as bilinear
from hcq.frontend.more.fourier.windows import blackman_window as blackman_window
from hcq.frontend.functions.types import can_cast as can_cast
from hcq.frontend.functions.older import chain_matmul as chain_matmul
from hcq.frontend.torch.settings import channels_last as channels_last
from hcq.frontend.torch.settings import channels_last_3d as channels_last_3d
from hcq.frontend.torch.settings import compile as compile
from hcq.frontend.torch.settings import contiguous_format as contiguous_format
from hcq.frontend.nn.functional_orders import conv_tbc as conv_tbc
from hcq.frontend.nn.functional_ctc import ctc_loss as ctc_loss
from hcq.frontend.functions.random import default_generator as default_generator
from hcq.frontend.nn.functional_random import dropout as dropout
from hcq.frontend.functions.older import dtype as dtype
from hcq.frontend.nn.functional_bags import embedding_bag as embedding_bag
from hcq.frontend.functions.modes import enable_grad as enable_grad
from hcq.frontend.nn.functional_random import feature_alpha_dropout as feature_alpha_dropout
from hcq.frontend.functions.types import finfo as finfo
from hcq.frontend.functions.older import frobenius_norm as frobenius_norm
from hcq.frontend.io.dlpack import from_dlpack as from_dlpack
from hcq.frontend.io.dlpack import from_numpy as from_numpy
from hcq.frontend.io.dlpack import frombuffer as frombuffer
from hcq.frontend.torch.settings import get_autocast_cpu_dtype as get_autocast_cpu_dtype
from hcq.frontend.torch.settings import get_autocast_dtype as get_autocast_dtype
from hcq.frontend.torch.settings import get_autocast_gpu_dtype as get_autocast_gpu_dtype
from hcq.frontend.torch.settings import get_default_device as get_default_device
from hcq.frontend.torch.settings import get_default_dtype as get_default_dtype
from hcq.frontend.torch.settings import get_num_threads as get_num_threads
from hcq.frontend.ops.printing import get_printoptions as get_printoptions
from hcq.frontend.functions.random import get_rng_state as get_rng_state
from hcq.frontend.functions.places import gradient as gradient
from hcq.frontend.nn.functional_sampling import grid_sampler as grid_sampler
from hcq.frontend.nn.functional_sampling import grid_sampler_2d as grid_sampler_2d
from hcq.frontend.nn.functional_sampling import grid_sampler_3d as grid_sampler_3d
from hcq.frontend.more.fourier.windows import hamming_window as hamming_window
from hcq.frontend.more.fourier.windows import hann_window as hann_window
from hcq.frontend.functions.bits import hash_tensor as hash_tensor
from hcq.frontend.functions.histogram import histogram as histogram
from hcq.frontend.functions.histogram import histogramdd as histogramdd
from hcq.frontend.functions.types import iinfo as iinfo
from hcq.frontend.functions.modes import inference_mode as inference_mode
from hcq.frontend.functions.random import initial_seed as initial_seed
from hcq.frontend.torch.settings import is_autocast_cpu_enabled as is_autocast_cpu_enabled
from hcq.frontend.torch.settings import is_autocast_enabled as is_autocast_enabled
from hcq.frontend.functions.modes import is_grad_enabled as is_grad_enabled
from hcq.frontend.more.fourier.windows import kaiser_window as kaiser_window
from hcq.frontend.torch.settings import layout as layout
from hcq.frontend.functions.random import manual_seed as manual_seed
from hcq.frontend.torch.settings import memory_format as memory_format
from hcq.frontend.torch.native import native_batch_norm as native_batch_norm
from hcq.frontend.nn.functional_orders import native_channel_shuffle as native_channel_shuffle
from hcq.frontend.torch.native import native_dropout_backward as native_dropout_backward
from hcq.frontend.torch.native import native_group_norm as native_group_norm
from hcq.frontend.torch.native import native_layer_norm as native_layer_norm
from hcq.frontend.functions.random import normal as normal
from hcq.frontend.functions.older import nuclear_norm as nuclear_norm
from hcq.frontend.torch.settings import preserve_format as preserve_format
from hcq.frontend.functions.types import promote_types as promote_types
from hcq.frontend.functions.random import randint_like as randint_like
from hcq.frontend.functions.older import range as range
from hcq.frontend.functions.types import result_type as result_type
from hcq.frontend.nn.functional_random import rrelu as rrelu
from hcq.frontend.nn.functional_random import rrelu_ as rrelu_
from hcq.frontend.functions.random import seed as seed
from hcq.frontend.functions.segments import segment_reduce as segment_reduce
from hcq.frontend.torch.settings import set_default_device as set_default_device
from hcq.frontend.torch.settings import set_default_dtype as set_default_dtype
from hcq.frontend.functions.modes import set_grad_enabled as set_grad_enabled
from hcq.frontend.ops.printing import set_printoptions as set_printoptions
from hcq.frontend.functions.random import set_rng_state as set_rng_state
from hcq.frontend.torch.settings import strided as strided
from hcq.frontend.functions.places import tril_indices as tril_indices
from hcq.frontend.functions.places import triu_indices as triu_indices
from hcq.frontend.torch.settings import typename as typename
from hcq.frontend.functions.places import unravel_index as unravel_index

__version__: builtins.str

def install() -> None: ...
def set_num_threads(*args: Any, **options: Any) -> Any: ...
def set_num_interop_threads(*args: Any, **options: Any) -> Any: ...
def set_float32_matmul_precision(*args: Any, **options: Any) -> Any: ...
def get_float32_matmul_precision(*args: Any, **options: Any) -> Any: ...
def use_deterministic_algorithms(*args: Any, **options: Any) -> Any: ...
def are_deterministic_algorithms_enabled(*args: Any, **options: Any) -> Any: ...
def is_storage(*args: Any, **options: Any) -> Any: ...
bool: DType
uint8: DType
uint16: DType
uint32: DType
uint64: DType
int8: DType
int16: DType
int32: DType
int64: DType
float16: DType
bfloat16: DType
float32: DType
float64: DType
half: DType
float: DType
double: DType
short: DType
int: DType
long: DType
float8_e4m3fn: DType
float8_e5m2: DType
complex64: DType
complex128: DType
cfloat: DType
cdouble: DType
inf: builtins.float
nan: builtins.float
pi: builtins.float
e: builtins.float
newaxis: None
abs = Tensor.abs
abs_ = Tensor.abs_
absolute = Tensor.absolute
absolute_ = Tensor.absolute_
acos = Tensor.acos
acos_ = Tensor.acos_
acosh = Tensor.acosh
acosh_ = Tensor.acosh_
adaptive_avg_pool1d = Tensor.adaptive_avg_pool1d
adaptive_avg_pool2d = Tensor.adaptive_avg_pool2d
adaptive_avg_pool3d = Tensor.adaptive_avg_pool3d
adaptive_max_pool1d = Tensor.adaptive_max_pool1d
adaptive_max_pool2d = Tensor.adaptive_max_pool2d
adaptive_max_pool3d = Tensor.adaptive_max_pool3d
add = Tensor.add
add_ = Tensor.add_
addbmm = Tensor.addbmm
addbmm_ = Tensor.addbmm_
addcdiv = Tensor.addcdiv
addcdiv_ = Tensor.addcdiv_
addcmul = Tensor.addcmul
addcmul_ = Tensor.addcmul_
addmm = Tensor.addmm
addmm_ = Tensor.addmm_
addmv = Tensor.addmv
addmv_ = Tensor.addmv_
addr = Tensor.addr
addr_ = Tensor.addr_
adjoint = Tensor.adjoint
alias_copy = Tensor.clone
all = Tensor.all
allclose = Tensor.allclose
amax = Tensor.amax
amin = Tensor.amin
aminmax = Tensor.aminmax
angle = Tensor.angle
any = Tensor.any
apply_ = Tensor.apply_
arange = Tensor.arange
arccos = Tensor.arccos
arccos_ = Tensor.arccos_
arccosh = Tensor.arccosh
arccosh_ = Tensor.arccosh_
arcsin = Tensor.arcsin
arcsin_ = Tensor.arcsin_
arcsinh = Tensor.arcsinh
arcsinh_ = Tensor.arcsinh_
arctan = Tensor.arctan
arctan2 = Tensor.arctan2
arctan2_ = Tensor.arctan2_
arctan_ = Tensor.arctan_
arctanh = Tensor.arctanh
arctanh_ = Tensor.arctanh_
argmax = Tensor.argmax
argmin = Tensor.argmin
argsort = Tensor.argsort
argwhere = Tensor.argwhere
as_strided = Tensor.as_strided
as_strided_copy = Tensor.as_strided_copy
as_strided_scatter = Tensor.as_strided_scatter
asin = Tensor.asin
asin_ = Tensor.asin_
asinh = Tensor.asinh
asinh_ = Tensor.asinh_
atan = Tensor.atan
atan2 = Tensor.atan2
atan2_ = Tensor.atan2_
atan_ = Tensor.atan_
atanh = Tensor.atanh
atanh_ = Tensor.atanh_
atleast_1d = Tensor.atleast_1d
atleast_2d = Tensor.atleast_2d
atleast_3d = Tensor.atleast_3d
avg_pool1d = Tensor.avg_pool1d
avg_pool2d = Tensor.avg_pool2d
avg_pool3d = Tensor.avg_pool3d
baddbmm = Tensor.baddbmm
baddbmm_ = Tensor.baddbmm_
batch_norm = Tensor.batch_norm
bernoulli_ = Tensor.bernoulli_
binary_cross_entropy = Tensor.binary_cross_entropy
binary_cross_entropy_with_logits = Tensor.binary_cross_entropy_with_logits
bincount = Tensor.bincount
bitcast = Tensor.bitcast
bitwise_and = Tensor.bitwise_and
bitwise_and_ = Tensor.bitwise_and_
bitwise_left_shift = Tensor.bitwise_left_shift
bitwise_left_shift_ = Tensor.bitwise_left_shift_
bitwise_not = Tensor.bitwise_not
bitwise_not_ = Tensor.bitwise_not_
bitwise_or = Tensor.bitwise_or
bitwise_or_ = Tensor.bitwise_or_
bitwise_right_shift = Tensor.bitwise_right_shift
bitwise_right_shift_ = Tensor.bitwise_right_shift_
bitwise_xor = Tensor.bitwise_xor
bitwise_xor_ = Tensor.bitwise_xor_
block_diag = Tensor.block_diag
bmm = Tensor.bmm
broadcast_shapes = Tensor.broadcast_shapes
broadcast_tensors = Tensor.broadcast_tensors
broadcast_to = Tensor.broadcast_to
bucketize = Tensor.bucketize
byte = Tensor.byte
cartesian_prod = Tensor.cartesian_prod
cast = Tensor.cast
cat = Tensor.cat
cauchy_ = Tensor.cauchy_
cdist = Tensor.cdist
ceil = Tensor.ceil
ceil_ = Tensor.ceil_
celu = Tensor.celu
celu_ = Tensor.celu_
channel_shuffle = Tensor.channel_shuffle
char = Tensor.char
cholesky = Tensor.cholesky
cholesky_inverse = Tensor.cholesky_inverse
cholesky_solve = Tensor.cholesky_solve
chunk = Tensor.chunk
clamp = Tensor.clamp
clamp_ = Tensor.clamp_
clamp_max = Tensor.clamp_max
clamp_max_ = Tensor.clamp_max_
clamp_min = Tensor.clamp_min
clamp_min_ = Tensor.clamp_min_
clip = Tensor.clip
clip_ = Tensor.clip_
clone = Tensor.clone
column_stack = Tensor.column_stack
combinations = Tensor.combinations
complex = Tensor.complex
concat = Tensor.cat
concatenate = Tensor.cat
conj = Tensor.conj
conj_physical = Tensor.conj_physical
constant_pad_nd = Tensor.constant_pad_nd
conv1d = Tensor.conv1d
conv2d = Tensor.conv2d
conv3d = Tensor.conv3d
conv_transpose1d = Tensor.conv_transpose1d
conv_transpose2d = Tensor.conv_transpose2d
conv_transpose3d = Tensor.conv_transpose3d
copy_ = Tensor.copy_
copysign = Tensor.copysign
copysign_ = Tensor.copysign_
corrcoef = Tensor.corrcoef
cos = Tensor.cos
cos_ = Tensor.cos_
cosh = Tensor.cosh
cosh_ = Tensor.cosh_
cosine_embedding_loss = Tensor.cosine_embedding_loss
cosine_similarity = Tensor.cosine_similarity
count_nonzero = Tensor.count_nonzero
cov = Tensor.cov
cross = Tensor.cross
cross_entropy = Tensor.cross_entropy
cummax = Tensor.cummax
cummin = Tensor.cummin
cumprod = Tensor.cumprod
cumprod_ = Tensor.cumprod_
cumsum = Tensor.cumsum
cumsum_ = Tensor.cumsum_
cumulative_trapezoid = Tensor.cumulative_trapezoid
data_ptr = Tensor.data_ptr
deg2rad = Tensor.deg2rad
deg2rad_ = Tensor.deg2rad_
det = Tensor.det
detach = Tensor.detach
detach_ = Tensor.detach_
diag = Tensor.diag
diag_embed = Tensor.diag_embed
diagflat = Tensor.diagflat
diagonal = Tensor.diagonal
diagonal_copy = Tensor.diagonal
diagonal_scatter = Tensor.diagonal_scatter
diff = Tensor.diff
digamma = Tensor.digamma
digamma_ = Tensor.digamma_
dist = Tensor.dist
div = Tensor.div
div_ = Tensor.div_
divide = Tensor.divide
divide_ = Tensor.divide_
dot = Tensor.dot
dsplit = Tensor.dsplit
dstack = Tensor.dstack
einsum = Tensor.einsum
elu = Tensor.elu
elu_ = Tensor.elu_
embedding = Tensor.embedding
empty = Tensor.empty
empty_like = Tensor.empty_like
empty_permuted = Tensor.empty_permuted
empty_strided = Tensor.empty_strided
entr = Tensor.entr
eq = Tensor.eq
eq_ = Tensor.eq_
equal = Tensor.equal
erf = Tensor.erf
erf_ = Tensor.erf_
erfc = Tensor.erfc
erfc_ = Tensor.erfc_
erfcx = Tensor.erfcx
erfinv = Tensor.erfinv
erfinv_ = Tensor.erfinv_
exp = Tensor.exp
exp2 = Tensor.exp2
exp2_ = Tensor.exp2_
exp_ = Tensor.exp_
expand = Tensor.expand
expand_as = Tensor.expand_as
expand_copy = Tensor.expand
expm1 = Tensor.expm1
expm1_ = Tensor.expm1_
exponential_ = Tensor.exponential_
eye = Tensor.eye
fill = Tensor.fill
fill_ = Tensor.fill_
fill_diagonal_ = Tensor.fill_diagonal_
fix = Tensor.fix
fix_ = Tensor.fix_
flatten = Tensor.flatten
flip = Tensor.flip
fliplr = Tensor.fliplr
flipud = Tensor.flipud
float_power = Tensor.float_power
float_power_ = Tensor.float_power_
floor = Tensor.floor
floor_ = Tensor.floor_
floor_divide = Tensor.floor_divide
floor_divide_ = Tensor.floor_divide_
fmax = Tensor.fmax
fmin = Tensor.fmin
fmod = Tensor.fmod
fmod_ = Tensor.fmod_
frac = Tensor.frac
frac_ = Tensor.frac_
frexp = Tensor.frexp
full = Tensor.full
full_like = Tensor.full_like
gather = Tensor.gather
gaussian_nll_loss = Tensor.gaussian_nll_loss
gcd = Tensor.gcd
gcd_ = Tensor.gcd_
ge = Tensor.ge
ge_ = Tensor.ge_
gelu = Tensor.gelu
geometric_ = Tensor.geometric_
geqrf = Tensor.geqrf
ger = Tensor.outer
get_device = Tensor.get_device
glu = Tensor.glu
greater = Tensor.greater
greater_ = Tensor.greater_
greater_equal = Tensor.greater_equal
greater_equal_ = Tensor.greater_equal_
group_norm = Tensor.group_norm
gt = Tensor.gt
gt_ = Tensor.gt_
hardshrink = Tensor.hardshrink
hardsigmoid = Tensor.hardsigmoid
hardswish = Tensor.hardswish
hardtanh = Tensor.hardtanh
hardtanh_ = Tensor.hardtanh_
heaviside = Tensor.heaviside
heaviside_ = Tensor.heaviside_
hinge_embedding_loss = Tensor.hinge_embedding_loss
histc = Tensor.histc
hsplit = Tensor.hsplit
hstack = Tensor.hstack
huber_loss = Tensor.huber_loss
hypot = Tensor.hypot
hypot_ = Tensor.hypot_
i0 = Tensor.i0
i0_ = Tensor.i0_
i0e = Tensor.i0e
i1 = Tensor.i1
i1e = Tensor.i1e
igamma = Tensor.igamma
igamma_ = Tensor.igamma_
igammac = Tensor.igammac
igammac_ = Tensor.igammac_
index_add = Tensor.index_add
index_add_ = Tensor.index_add_
index_copy = Tensor.index_copy
index_copy_ = Tensor.index_copy_
index_fill = Tensor.index_fill
index_fill_ = Tensor.index_fill_
index_put = Tensor.index_put
index_put_ = Tensor.index_put_
index_reduce = Tensor.index_reduce
index_reduce_ = Tensor.index_reduce_
index_select = Tensor.index_select
inner = Tensor.inner
instance_norm = Tensor.instance_norm
interpolate = Tensor.interpolate
inverse = Tensor.inverse
is_complex = Tensor.is_complex
is_conj = Tensor.is_conj
is_contiguous = Tensor.is_contiguous
is_floating_point = Tensor.is_floating_point
is_nonzero = Tensor.is_nonzero
is_same_size = Tensor.is_same_size
is_signed = Tensor.is_signed
isclose = Tensor.isclose
isfinite = Tensor.isfinite
isin = Tensor.isin
isinf = Tensor.isinf
isnan = Tensor.isnan
isneginf = Tensor.isneginf
isposinf = Tensor.isposinf
isreal = Tensor.isreal
istft = Tensor.istft
kaiming_normal = Tensor.kaiming_normal
kaiming_uniform = Tensor.kaiming_uniform
kl_div = Tensor.kl_div
kron = Tensor.kron
kthvalue = Tensor.kthvalue
l1_loss = Tensor.l1_loss
layer_norm = Tensor.layer_norm
lcm = Tensor.lcm
lcm_ = Tensor.lcm_
ldexp = Tensor.ldexp
ldexp_ = Tensor.ldexp_
le = Tensor.le
le_ = Tensor.le_
leaky_relu = Tensor.leaky_relu
leaky_relu_ = Tensor.leaky_relu_
lerp = Tensor.lerp
lerp_ = Tensor.lerp_
less = Tensor.less
less_ = Tensor.less_
less_equal = Tensor.less_equal
less_equal_ = Tensor.less_equal_
lgamma = Tensor.lgamma
lgamma_ = Tensor.lgamma_
linear = Tensor.linear
linspace = Tensor.linspace
local_response_norm = Tensor.local_response_norm
log = Tensor.log
log10 = Tensor.log10
log10_ = Tensor.log10_
log1p = Tensor.log1p
log1p_ = Tensor.log1p_
log2 = Tensor.log2
log2_ = Tensor.log2_
log_ = Tensor.log_
log_ndtr = Tensor.log_ndtr
log_normal_ = Tensor.log_normal_
log_softmax = Tensor.log_softmax
logaddexp = Tensor.logaddexp
logaddexp2 = Tensor.logaddexp2
logcumsumexp = Tensor.logcumsumexp
logdet = Tensor.logdet
logical_and = Tensor.logical_and
logical_and_ = Tensor.logical_and_
logical_not = Tensor.logical_not
logical_not_ = Tensor.logical_not_
logical_or = Tensor.logical_or
logical_or_ = Tensor.logical_or_
logical_xor = Tensor.logical_xor
logical_xor_ = Tensor.logical_xor_
logit = Tensor.logit
logit_ = Tensor.logit_
logsigmoid = Tensor.logsigmoid
logspace = Tensor.logspace
logsumexp = Tensor.logsumexp
lt = Tensor.lt
lt_ = Tensor.lt_
lu = Tensor.lu
lu_solve = Tensor.lu_solve
lu_unpack = Tensor.lu_unpack
map_ = Tensor.map_
margin_ranking_loss = Tensor.margin_ranking_loss
masked_fill = Tensor.masked_fill
masked_fill_ = Tensor.masked_fill_
masked_scatter = Tensor.masked_scatter
masked_scatter_ = Tensor.masked_scatter_
masked_select = Tensor.masked_select
matmul = Tensor.matmul
matrix_exp = Tensor.matrix_exp
matrix_power = Tensor.matrix_power
max = Tensor.max
max_pool1d = Tensor.max_pool1d
max_pool2d = Tensor.max_pool2d
max_pool3d = Tensor.max_pool3d
max_unpool1d = Tensor.max_unpool1d
max_unpool2d = Tensor.max_unpool2d
max_unpool3d = Tensor.max_unpool3d
maximum = Tensor.maximum
mean = Tensor.mean
median = Tensor.median
meshgrid = Tensor.meshgrid
min = Tensor.min
minimum = Tensor.minimum
mish = Tensor.mish
mm = Tensor.mm
mode = Tensor.mode
moveaxis = Tensor.moveaxis
movedim = Tensor.movedim
mse_loss = Tensor.mse_loss
msort = Tensor.msort
mul = Tensor.mul
mul_ = Tensor.mul_
multi_margin_loss = Tensor.multi_margin_loss
multilabel_soft_margin_loss = Tensor.multilabel_soft_margin_loss
multinomial = Tensor.multinomial
multiply = Tensor.multiply
multiply_ = Tensor.multiply_
mv = Tensor.mv
mvlgamma = Tensor.mvlgamma
mvlgamma_ = Tensor.mvlgamma_
nan_to_num = Tensor.nan_to_num
nan_to_num_ = Tensor.nan_to_num_
nanmean = Tensor.nanmean
nanmedian = Tensor.nanmedian
nanquantile = Tensor.nanquantile
nansum = Tensor.nansum
narrow = Tensor.narrow
narrow_copy = Tensor.narrow_copy
ndimension = Tensor.ndimension
ndtr = Tensor.ndtr
ndtri = Tensor.ndtri
ne = Tensor.ne
ne_ = Tensor.ne_
neg = Tensor.neg
neg_ = Tensor.neg_
negative = Tensor.negative
negative_ = Tensor.negative_
nelement = Tensor.nelement
new = Tensor.new
new_empty = Tensor.new_empty
new_empty_strided = Tensor.new_empty_strided
new_full = Tensor.new_full
new_ones = Tensor.new_ones
new_tensor = Tensor.new_tensor
new_zeros = Tensor.new_zeros
nextafter = Tensor.nextafter
nextafter_ = Tensor.nextafter_
nll_loss = Tensor.nll_loss
nonzero = Tensor.nonzero
nonzero_static = Tensor.nonzero_static
norm = Tensor.norm
normal_ = Tensor.normal_
normalize = Tensor.normalize
not_equal = Tensor.not_equal
not_equal_ = Tensor.not_equal_
numel = Tensor.numel
one_hot = Tensor.one_hot
ones = Tensor.ones
ones_like = Tensor.ones_like
orgqr = Tensor.orgqr
ormqr = Tensor.ormqr
outer = Tensor.outer
pad = Tensor.pad
pairwise_distance = Tensor.pairwise_distance
pca_lowrank = Tensor.pca_lowrank
pdist = Tensor.pdist
permute = Tensor.permute
permute_copy = Tensor.permute
pin_memory = Tensor.pin_memory
pinverse = Tensor.pinverse
pixel_shuffle = Tensor.pixel_shuffle
pixel_unshuffle = Tensor.pixel_unshuffle
poisson = Tensor.poisson
poisson_nll_loss = Tensor.poisson_nll_loss
polar = Tensor.polar
polygamma = Tensor.polygamma
polygamma_ = Tensor.polygamma_
positive = Tensor.positive
pow = Tensor.pow
pow_ = Tensor.pow_
prelu = Tensor.prelu
prod = Tensor.prod
put = Tensor.put
put_ = Tensor.put_
qr = Tensor.qr
quantile = Tensor.quantile
rad2deg = Tensor.rad2deg
rad2deg_ = Tensor.rad2deg_
rand = Tensor.rand
rand_like = Tensor.rand_like
randint = Tensor.randint
randn = Tensor.randn
randn_like = Tensor.randn_like
random_ = Tensor.random_
randperm = Tensor.randperm
ravel = Tensor.ravel
reciprocal = Tensor.reciprocal
reciprocal_ = Tensor.reciprocal_
register_hook = Tensor.register_hook
relu = Tensor.relu
relu6 = Tensor.relu6
relu_ = Tensor.relu_
remainder = Tensor.remainder
remainder_ = Tensor.remainder_
renorm = Tensor.renorm
renorm_ = Tensor.renorm_
repeat = Tensor.repeat
repeat_interleave = Tensor.repeat_interleave
reshape = Tensor.reshape
reshape_as = Tensor.reshape_as
resize_ = Tensor.resize_
resize_as_ = Tensor.resize_as_
resolve_conj = Tensor.resolve_conj
resolve_neg = Tensor.resolve_neg
retain_grad = Tensor.retain_grad
rms_norm = Tensor.rms_norm
roll = Tensor.roll
rot90 = Tensor.rot90
round = Tensor.round
round_ = Tensor.round_
row_stack = Tensor.row_stack
rsqrt = Tensor.rsqrt
rsqrt_ = Tensor.rsqrt_
rsub = Tensor.rsub
scalar_tensor = Tensor.scalar_tensor
scaled_dot_product_attention = Tensor.scaled_dot_product_attention
scatter = Tensor.scatter
scatter_ = Tensor.scatter_
scatter_add = Tensor.scatter_add
scatter_add_ = Tensor.scatter_add_
scatter_reduce = Tensor.scatter_reduce
scatter_reduce_ = Tensor.scatter_reduce_
searchsorted = Tensor.searchsorted
select = Tensor.select
select_scatter = Tensor.select_scatter
selu = Tensor.selu
selu_ = Tensor.selu_
sgn = Tensor.sgn
sgn_ = Tensor.sgn_
shrink = Tensor.shrink
sigmoid = Tensor.sigmoid
sigmoid_ = Tensor.sigmoid_
sign = Tensor.sign
sign_ = Tensor.sign_
signbit = Tensor.signbit
silu = Tensor.silu
sin = Tensor.sin
sin_ = Tensor.sin_
sinc = Tensor.sinc
sinc_ = Tensor.sinc_
sinh = Tensor.sinh
sinh_ = Tensor.sinh_
slice_scatter = Tensor.slice_scatter
slogdet = Tensor.slogdet
smooth_l1_loss = Tensor.smooth_l1_loss
soft_margin_loss = Tensor.soft_margin_loss
softmax = Tensor.softmax
softmin = Tensor.softmin
softplus = Tensor.softplus
softshrink = Tensor.softshrink
softsign = Tensor.softsign
sort = Tensor.sort
split = Tensor.split
split_with_sizes = Tensor.split_with_sizes
split_with_sizes_copy = Tensor.split_with_sizes
sqrt = Tensor.sqrt
sqrt_ = Tensor.sqrt_
square = Tensor.square
square_ = Tensor.square_
squeeze = Tensor.squeeze
squeeze_ = Tensor.squeeze_
squeeze_copy = Tensor.squeeze
stack = Tensor.stack
std = Tensor.std
std_mean = Tensor.std_mean
stft = Tensor.stft
storage_offset = Tensor.storage_offset
stride = Tensor.stride
sub = Tensor.sub
sub_ = Tensor.sub_
subtract = Tensor.subtract
subtract_ = Tensor.subtract_
sum = Tensor.sum
sum_to_size = Tensor.sum_to_size
svd = Tensor.svd
svd_lowrank = Tensor.svd_lowrank
swapaxes = Tensor.swapaxes
swapaxes_ = Tensor.swapaxes_
swapdims = Tensor.swapdims
swapdims_ = Tensor.swapdims_
swish = Tensor.swish
t = Tensor.t
t_ = Tensor.t_
t_copy = Tensor.t
take = Tensor.take
take_along_dim = Tensor.take_along_dim
tan = Tensor.tan
tan_ = Tensor.tan_
tanh = Tensor.tanh
tanh_ = Tensor.tanh_
tanhshrink = Tensor.tanhshrink
tensor_split = Tensor.tensor_split
tensordot = Tensor.tensordot
threshold = Tensor.threshold
threshold_ = Tensor.threshold_
tile = Tensor.tile
topk = Tensor.topk
trace = Tensor.trace
transpose = Tensor.transpose
transpose_ = Tensor.transpose_
transpose_copy = Tensor.transpose
trapezoid = Tensor.trapezoid
trapz = Tensor.trapz
triangular_solve = Tensor.triangular_solve
tril = Tensor.tril
tril_ = Tensor.tril_
triplet_margin_loss = Tensor.triplet_margin_loss
triplet_margin_with_distance_loss = Tensor.triplet_margin_with_distance_loss
triu = Tensor.triu
triu_ = Tensor.triu_
true_divide = Tensor.true_divide
true_divide_ = Tensor.true_divide_
trunc = Tensor.trunc
trunc_ = Tensor.trunc_
type = Tensor.type
type_as = Tensor.type_as
unbind = Tensor.unbind
unbind_copy = Tensor.unbind
unflatten = Tensor.unflatten
unfold = Tensor.unfold
unfold_copy = Tensor.unfold
uniform = Tensor.uniform
uniform_ = Tensor.uniform_
unique = Tensor.unique
unique_consecutive = Tensor.unique_consecutive
unsafe_chunk = Tensor.unsafe_chunk
unsafe_split = Tensor.unsafe_split
unsqueeze = Tensor.unsqueeze
unsqueeze_ = Tensor.unsqueeze_
unsqueeze_copy = Tensor.unsqueeze
vander = Tensor.vander
var = Tensor.var
var_mean = Tensor.var_mean
vdot = Tensor.vdot
view = Tensor.view
view_as = Tensor.view_as
view_as_complex = Tensor.view_as_complex
view_as_real = Tensor.view_as_real
view_copy = Tensor.view
vsplit = Tensor.vsplit
vstack = Tensor.vstack
where = Tensor.where
xavier_normal = Tensor.xavier_normal
xavier_uniform = Tensor.xavier_uniform
xlog1py = Tensor.xlog1py
xlogy = Tensor.xlogy
xlogy_ = Tensor.xlogy_
zero_ = Tensor.zero_
zeros = Tensor.zeros
zeros_like = Tensor.zeros_like
