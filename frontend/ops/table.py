"""Table: where the methods are that are imported when a program first asks for one, and what methods refer to by name.

In       the name of a method that Tensor's own groups lack; the name of a part of the tensor layer above the methods
Out      METHODS: the method -> "module:class" of its group; `above`, the module itself
Changes  `above` imports the module
Next     late.py (who looks here), complex_arguments.py, parts.py, factoring.py and conversion.py (who go above)

This file alone knows these places. It imports none of them, so nothing that they import is in a circle with a method.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hcq.frontend.ops import in_place_names

# "module:class" of a group -> its methods
GROUPS = {
    "hcq.frontend.ops.joining:Joining": ("cat stack"),
    "hcq.frontend.ops.in_place:InPlace": " ".join(
        ("_written", "zero_", "copy_", "fill_diagonal_", *in_place_names.METHODS)
    ),
    "hcq.frontend.ops.cutting:Cutting": ("shrink narrow _part unfold split chunk unbind"),
    "hcq.frontend.ops.repeating:Repeating": ("repeat tile repeat_interleave _each_repeated roll"),
    "hcq.frontend.ops.transfer:Transfer": ("to shard _moved shard_ cpu"),
    "hcq.frontend.ops.writing:Writing": ("assign _become _before_change _write_view"),
    "hcq.frontend.ops.functions:Functions": (
        "__floordiv__ __rfloordiv__ __mod__ remainder floor_divide __rmod__ _floor_divide _modulo _pair "
        "__divmod__ fmod __abs__ exp exp2 log log2 log10 sin cos tan sqrt rsqrt reciprocal square abs sign "
        "trunc floor ceil round frac isnan isinf isfinite _all isclose"
    ),
    "hcq.frontend.ops.power:Power": ("__pow__ pow __rpow__"),
    "hcq.frontend.ops.loss:Loss": (
        "_reduced _difference mse_loss l1_loss huber_loss smooth_l1_loss kl_div binary_cross_entropy "
        "binary_cross_entropy_with_logits nll_loss cross_entropy _soft_cross_entropy _class_axis _at_classes"
    ),
    "hcq.frontend.ops.attention:Attention": ("scaled_dot_product_attention _kept_scores"),
    "hcq.frontend.ops.normalisation:Normalisation": (
        "softmax _softmax log_softmax _log_softmax softmin _exponentials layer_norm rms_norm group_norm "
        "instance_norm batch_norm _normalised _last_axes normalize cosine_similarity one_hot embedding"
    ),
    "hcq.frontend.ops.window:Window": (
        "conv2d conv1d conv3d conv_transpose2d conv_transpose1d conv_transpose3d _surrounded _windows "
        "_refuse_wide_padding"
    ),
    "hcq.frontend.ops.indexing:Indexing": (
        "__getitem__ _settled _basic _complete _at_bounds _slice_of_bounds _picked _mask_picks _checked "
        "_pick _pick_wide _flat_index _gather_line"
    ),
    "hcq.frontend.ops.index_writes:IndexWrites": (
        "__setitem__ _set _write_in_family _is_on_a_gradients_way _write _write_picked _scattered _spread"
    ),
    "hcq.frontend.ops.random:Random": (
        "manual_seed rand randn _drawn_alike uniform normal randint bernoulli _bernoulli_of randperm _sorted_on_host "
        "rand_like randn_like _draw"
    ),
    "hcq.frontend.ops.creation:Creation": (
        "full _leaf zeros ones empty arange linspace logspace eye full_like _placed_alike zeros_like "
        "ones_like empty_like tril triu _triangle diagonal diag diag_embed diagflat _zero_unless"
    ),
    "hcq.frontend.ops.ordering:Ordering": ("sort argsort topk _ordered"),
    "hcq.frontend.ops.initial:Initial": ("kaiming_uniform kaiming_normal xavier_uniform xavier_normal"),
    "hcq.frontend.ops.shapes:Shapes": (
        "view_as reshape_as ravel sum_to_size new_full new_zeros new_ones new_empty scalar_tensor "
        "broadcast_shapes broadcast_tensors meshgrid cartesian_prod combinations atleast_1d atleast_2d "
        "atleast_3d hstack vstack row_stack dstack column_stack block_diag fliplr flipud _second rot90 "
        "tensor_split hsplit vsplit dsplit _split_evenly split_with_sizes "
        "select_scatter slice_scatter diagonal_scatter fill constant_pad_nd equal"
    ),
    "hcq.frontend.ops.parts:Parts": (
        "real imag conj conj_physical resolve_conj resolve_neg is_conj angle H mH adjoint cfloat cdouble "
        "view_as_complex view_as_real complex polar stft istft"
    ),
    "hcq.frontend.ops.pooling:Pooling": (
        "max_pool1d max_pool2d max_pool3d _max_pool _pads avg_pool1d avg_pool2d avg_pool3d _avg_pool "
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_average adaptive_max_pool1d "
        "adaptive_max_pool2d adaptive_max_pool3d _adaptive_greatest _wanted _adaptive_windows max_unpool1d "
        "max_unpool2d max_unpool3d _unpooled"
    ),
    "hcq.frontend.ops.extremes:Extremes": (
        "amax amin max min _extreme argmax argmin _where_is _where_is_along _first_that_is _not_empty"
    ),
    "hcq.frontend.ops.deviations:Deviations": ("var std _root var_mean std_mean norm _norm logsumexp"),
    "hcq.frontend.ops.conversion:Conversion": (
        "cast bitcast _bits_regrouped type bool int long byte char short half bfloat16 float double"
    ),
    "hcq.frontend.ops.statistics:Statistics": (
        "cummax cummin _running_extreme logcumsumexp msort kthvalue median nanmedian mode _of_equals _line_of "
        "_chosen quantile nanquantile _quantile nansum nanmean _zero_for_nan aminmax diff trapezoid trapz "
        "cumulative_trapezoid _areas trace cov corrcoef dist renorm"
    ),
    "hcq.frontend.ops.smooth:Smooth": (
        "_in_float erf tanh sigmoid gelu silu swish mish softplus logsigmoid log1p expm1 sinh cosh"
    ),
    "hcq.frontend.ops.gates:Gates": ("celu glu prelu hardshrink softshrink tanhshrink threshold"),
    "hcq.frontend.ops.signs:Signs": (
        "positive sgn signbit copysign heaviside nan_to_num _bounded isposinf isneginf isreal fmax fmin "
        "_has_nan _present clamp_min clamp_max ldexp rsub nextafter frexp"
    ),
    "hcq.frontend.ops.angles:Angles": (
        "asin acos atan asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh atan2 arctan2 hypot "
        "deg2rad rad2deg sinc"
    ),
    "hcq.frontend.ops.logarithms:Logarithms": ("logaddexp logaddexp2 logit xlogy xlog1py entr float_power"),
    "hcq.frontend.ops.gathering:Gathering": (
        "gather take_along_dim index_select select masked_select _index_like nonzero nonzero_static argwhere _nonzero"
    ),
    "hcq.frontend.ops.padding:Padding": ("pad _varying_pads _padded_by_numbers _pad_from_inside _grown"),
    "hcq.frontend.ops.scattering:Scattering": (
        "scatter scatter_add _placed _all_over scatter_reduce _combined _slices index_add index_copy index_fill "
        "index_reduce index_put _flat_places take put masked_scatter"
    ),
    "hcq.frontend.ops.matrices:Matrices": (
        "_plus _plus_product _plus_matmul addmm addmv addr baddbmm addbmm vdot inner tensordot kron cross "
        "matrix_power vander"
    ),
    "hcq.frontend.ops.factoring:Factoring": (
        "cholesky cholesky_solve cholesky_inverse lu lu_solve lu_unpack triangular_solve inverse det slogdet "
        "logdet qr geqrf ormqr orgqr svd pinverse matrix_exp svd_lowrank pca_lowrank _matrix_norm"
    ),
    "hcq.frontend.ops.bits:Bits": (
        "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm "
        "_whole_pair"
    ),
    "hcq.frontend.ops.counting:Counting": (
        "bincount histc searchsorted bucketize isin unique _each_once _answers unique_consecutive"
    ),
    "hcq.frontend.ops.margins:Margins": (
        "pairwise_distance cdist pdist soft_margin_loss hinge_embedding_loss poisson_nll_loss "
        "gaussian_nll_loss multilabel_soft_margin_loss multi_margin_loss margin_ranking_loss "
        "cosine_embedding_loss triplet_margin_loss triplet_margin_with_distance_loss"
    ),
    "hcq.frontend.ops.rearranging:Rearranging": (
        "pixel_shuffle pixel_unshuffle channel_shuffle local_response_norm interpolate _averaged _resized "
        "_weighed_neighbours _taken"
    ),
    "hcq.frontend.ops.special_values:SpecialValues": (
        "erfc erfcx erfinv ndtr log_ndtr ndtri _in_double lgamma digamma polygamma mvlgamma i0 i0e i1 i1e "
        "igamma igammac _incomplete"
    ),
    "hcq.frontend.ops.synonyms:Synonyms": (
        "absolute negative multiply subtract divide greater greater_equal less less_equal not_equal swapdims "
        "fix narrow_copy unsafe_split unsafe_chunk ndimension nelement"
    ),
    "hcq.frontend.ops.strided:Strided": (
        "as_strided as_strided_copy as_strided_scatter _places empty_strided empty_permuted new_empty_strided "
        "resize_ resize_as_"
    ),
    "hcq.frontend.ops.drawing:Drawing": (
        "multinomial _numbers _waits _put poisson _float_at_least_32 bernoulli_ uniform_ normal_ log_normal_ "
        "exponential_ geometric_ cauchy_ random_"
    ),
    "hcq.frontend.ops.asking:Asking": (
        "stride storage_offset is_contiguous data_ptr is_cpu is_cuda is_mps is_xpu cuda get_device pin_memory "
        "is_sparse is_quantized is_meta itemsize is_signed is_nonzero is_same_size "
        "new_tensor new type_as apply_ map_ _mapped"
    ),
    "hcq.frontend.ops.history:History": ("is_leaf grad_fn register_hook _own_hooks retain_grad retains_grad"),
}
METHODS = {name: place for place, names in GROUPS.items() for name in names.split()}

# what some methods do, and what is made of Tensor itself
ABOVE = {
    "complex": "hcq.frontend.more.complex.tensor",
    "linalg": "hcq.frontend.more.linalg.functions",
    "older": "hcq.frontend.functions.older",
    "short_time": "hcq.frontend.more.fourier.short_time",
}


def above(name: str) -> Any:
    """The module that ABOVE has under this name."""
    return import_module(ABOVE[name])
