"""Every public method of Tensor, and how its numbers are checked.

In       number_cases.py
Out      TABLE: the cases that compare a method; NOT_COMPARED: the reason why a method has none
Next     test_numbers.py (against PyTorch and C), numbers_on_two_machines.py (a GPU against the CPU),
         tests/campaigns/numbers.py (random expressions of the same functions)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from hcq.frontend.ops.in_place import OPERATORS, InPlace
from hcq.frontend.ops.other_names import OTHER_NAMES
from tests.frontend.number_cases import (
    INF,
    NAN,
    Case,
    Cases,
    activation,
    bell,
    both,
    c_divide,
    c_floor_divide,
    c_fmod,
    c_pow,
    c_remainder,
    either_zero,
    functional,
    has_power,
    has_products,
    has_squares,
    has_sums,
    is_near,
    is_ordinary,
    loss,
    named,
    operators,
    positive_zero,
    powers,
    rest,
    row,
    torch,
    two,
    within_one,
)

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "eq": operator.eq, "ne": operator.ne,
}  # fmt: skip
NOT_COMPARED: dict[str, str] = {}


def _because(reason: str, names: str) -> None:
    NOT_COMPARED.update(dict.fromkeys(names.split(), reason))


_because(
    "moves values and computes none: test_movement.py, test_indexing.py, test_torch.py",
    "T mT broadcast_to cat chunk clone contiguous "
    "cpu detach diag diagonal expand expand_as flatten flip gather "
    "index_select masked_fill masked_select movedim narrow nonzero pad permute repeat repeat_interleave reshape roll "
    "select shrink split squeeze stack swapaxes t take_along_dim tile to transpose tril triu unbind unflatten unfold "
    "unsqueeze view __getitem__ __setitem__ __iter__ embedding one_hot",
)
_because(
    "asks or sets what a tensor is, or reads it on the host",
    "data device dim dtype element_size grad is_floating_point item nbytes ndim node numel numpy requires_grad "
    "requires_grad_ shape size tolist __array__ __bool__ "
    "__contains__ __copy__ __deepcopy__ __float__ __getattr__ __index__ __int__ "
    "__len__ allclose",
)
_because("runs or writes, and computes nothing of its own", "assign backward realize schedule")
_because(
    "makes numbers of none: test_creation.py, test_random.py",
    "arange bernoulli empty empty_like eye full full_like kaiming_normal kaiming_uniform linspace logspace manual_seed "
    "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ multinomial normal normal_ poisson random_ uniform_ "
    "ones ones_like rand rand_like randint randn "
    "randn_like randperm uniform xavier_normal xavier_uniform zeros zeros_like",
)
_because(
    "sums of products, and averages: test_torch.py, test_torch_gradients.py, test_product.py, test_window.py",
    "adaptive_avg_pool2d avg_pool1d avg_pool2d bmm conv1d conv2d conv3d "
    "conv_transpose2d dot einsum linear matmul mm mv "
    "outer scaled_dot_product_attention scatter_add batch_norm group_norm instance_norm __matmul__ __rmatmul__",
)
_because("an extreme of windows, as amax: test_window.py", "max_pool1d max_pool2d")
_because("asks for classes, not for pairs of numbers: test_loss.py", "cross_entropy nll_loss")
_because(
    "bits of integers and bool: the tests of integers in test_numbers.py",
    "bitcast __invert__ __lshift__ __rshift__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__",
)
_because(
    "PyTorch's own samples of them: make conformance; bounds of the special ones: test_special_values.py",
    "acos acosh aminmax arccos arccosh arcsin arcsinh arctan arctan2 arctanh argwhere asin asinh atan "
    "atan2 atanh atleast_1d atleast_2d atleast_3d bincount bitwise_and bitwise_left_shift bitwise_not "
    "bitwise_or bitwise_right_shift bitwise_xor block_diag broadcast_shapes broadcast_tensors bucketize "
    "cartesian_prod celu clamp_max clamp_min column_stack combinations constant_pad_nd copysign corrcoef "
    "cov cummax cummin cumulative_trapezoid deg2rad diag_embed diagflat diagonal_scatter diff digamma "
    "dist dsplit dstack entr equal erfc erfcx erfinv fill fliplr flipud float_power floor_divide fmax "
    "fmin frexp gcd glu hardshrink heaviside histc hsplit hstack hypot i0 i0e i1 i1e igamma igammac "
    "index_add index_copy "
    "index_fill index_put index_reduce isin isneginf isposinf isreal kthvalue lcm ldexp lgamma log_ndtr "
    "logaddexp logaddexp2 logcumsumexp logit masked_scatter median meshgrid mode moveaxis msort mvlgamma "
    "nan_to_num nanmean nanmedian nanquantile nansum narrow_copy ndtr ndtri new_empty new_full new_ones "
    "new_zeros nextafter polygamma positive prelu put quantile rad2deg ravel renorm reshape_as rot90 "
    "row_stack rsub scalar_tensor scatter scatter_reduce searchsorted select_scatter sgn signbit sinc "
    "slice_scatter softshrink split_with_sizes std_mean sum_to_size take tanhshrink tensor_split "
    "threshold trace trapezoid trapz true_divide unique unique_consecutive unsafe_chunk unsafe_split "
    "nonzero_static view_as vsplit vstack xlog1py xlogy ",
)
_because(
    "memory that is shared, and views by strides: test_exchange.py",
    "__dlpack__ __dlpack_device__ as_strided as_strided_copy as_strided_scatter empty_permuted empty_strided "
    "new_empty_strided resize_ resize_as_",
)
_because(
    "asks what a tensor is, or makes one like it: test_asking.py",
    "apply_ data_ptr is_contiguous is_cpu is_leaf is_nonzero is_same_size is_signed itemsize map_ ndimension nelement "
    "new new_tensor storage_offset stride type_as",
)
_because(
    "asks after devices that PyTorch has, or for one: test_words_of_devices.py",
    "cuda get_device is_cuda is_meta is_mps is_quantized is_sparse is_xpu pin_memory",
)
_because(
    "the memory itself, and what is called with gradients: test_autograd.py",
    "as_memoryview grad_fn register_hook retain_grad retains_grad",
)
_because("moves parts to devices: tests/frontend/devices/sharding", "shard shard_")
_because(
    "PyTorch's own samples of them: make conformance; the rest of it is in test_vision.py",
    "adaptive_avg_pool1d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
    "addbmm addmm addmv addr avg_pool3d baddbmm byte cdist channel_shuffle char conv_transpose1d "
    "conv_transpose3d cosine_embedding_loss cross gaussian_nll_loss hinge_embedding_loss inner "
    "interpolate kron local_response_norm margin_ranking_loss matrix_power max_pool3d max_unpool1d "
    "max_unpool2d max_unpool3d multi_margin_loss multilabel_soft_margin_loss pairwise_distance pdist "
    "pixel_shuffle pixel_unshuffle poisson_nll_loss short soft_margin_loss tensordot triplet_margin_loss "
    "triplet_margin_with_distance_loss vander vdot ",
)
_because("casts: the tests of casts in test_numbers.py", "bfloat16 bool cast double float half int long type")
_because(
    "writes into the tensor's memory what the method without _ computes: test_in_place.py",
    " ".join({name for name in dir(InPlace) if name.endswith("_") and name[0] != "_"} | set(OPERATORS)),
)
_because("another name of a method that is compared: test_in_place.py", " ".join(OTHER_NAMES))
_because(
    "parts of matrices, and what follows from them: test_linalg.py, test_linalg_*.py",
    "cholesky cholesky_inverse cholesky_solve det geqrf inverse logdet lu lu_solve lu_unpack matrix_exp orgqr ormqr "
    "pca_lowrank pinverse qr slogdet svd svd_lowrank triangular_solve",
)
_because(
    "complex numbers: test_complex.py, test_short_time.py",
    "H adjoint angle cdouble cfloat complex conj conj_physical imag is_complex is_conj istft mH polar real "
    "resolve_conj resolve_neg stft view_as_complex view_as_real",
)

SURE = {"zero_sign": False, "units": 16, "slope_units": 64, "floor": 256, "scale": 1}
STATISTIC = {
    "zero_sign": False,
    "units": 32,
    "slope_units": 64,
    "floor": 256,
    "scale": 4,
    "where": has_squares,
}
SQUASHED: dict[str, Any] = {"units": 8, "floor": 64}
TABLE: dict[str, Cases] = {
    # one argument
    **{
        name: [named(name)]
        for name in ("ceil", "floor", "trunc", "sign", "square", "isnan", "isinf", "isfinite")
    },
    "abs": [named("abs")],
    "__abs__": [both("abs()", abs)],
    "frac": [named("frac")],
    "neg": [named("neg")],
    "__neg__": [both("-x", operator.neg)],
    "__pos__": [both("+x", operator.pos)],
    "round": [named("round")],
    "logical_not": [named("logical_not")],
    **{name: [named(name)] for name in ("exp", "exp2", "log", "log2", "log1p", "sin", "cos", "tan", "sqrt")},
    "log10": [named("log10", c_slope=lambda x: c_divide(math.log10(math.e), x))],
    "expm1": [named("expm1", c_slope=lambda x: math.exp(x) if x < 709 else INF)],
    "rsqrt": [named("rsqrt")],
    "reciprocal": [named("reciprocal")],
    **{name: [named(name, units=8)] for name in ("sinh", "cosh", "erf")},
    "tanh": [named("tanh", units=8, c_slope=lambda x: 4.0 * bell(2.0 * x))],
    "sigmoid": [named("sigmoid", units=8, c_slope=bell)],
    # activations
    **{name: [activation(name, instead=positive_zero, slope=True)] for name in ("relu", "relu6")},
    **{name: [activation(name)] for name in ("leaky_relu", "hardtanh", "softsign", "logsigmoid", "softplus")},
    **{
        name: [activation(name, **SQUASHED, slope_units=64, scale=0.5)]
        for name in ("elu", "selu", "silu", "mish")
    },
    "hardswish": [activation("hardswish", **SQUASHED, slope_units=64, scale=0.5, where=is_ordinary)],
    "hardsigmoid": [
        activation("hardsigmoid", **SQUASHED, c_slope=lambda x: 1.0 / 6.0 if -3.0 < x < 3.0 else 0.0)
    ],
    "gelu": [
        activation("gelu", **SURE, instead=lambda x: x if x == INF or x > 1e300 else None),
        activation("gelu", call={"approximate": "tanh"}, **SURE, where=lambda x: abs(x) < 100),
    ],
    "swish": [
        Case(
            "swish",
            lambda x: x.swish(),
            lambda x: functional().silu(x),
            **SQUASHED,
            slope_units=64,
            scale=0.5,
        )
    ],
    # two arguments
    "add": [two("add")],
    "__add__": operators("+", operator.add),
    "__radd__": [],
    "sub": [two("sub")],
    "__sub__": operators("-", operator.sub),
    "__rsub__": [],
    "mul": [two("mul")],
    "__mul__": operators("*", operator.mul),
    "__rmul__": [],
    "div": [two("div", c=c_divide)],
    "__truediv__": operators("/", operator.truediv, c=c_divide),
    "__rtruediv__": [],
    "pow": [two("pow", c=c_pow, units=1100, slope_units=2400, where=has_power)],
    "__pow__": powers(),
    "__rpow__": [],
    "fmod": rest("fmod", lambda x, y: x.fmod(y), c_fmod, has_left=False),
    "remainder": [two("remainder", c=c_remainder, where=is_near, units=1, slope_units=1)],
    "__mod__": rest("%", operator.mod, c_remainder),
    "__rmod__": [],
    "__floordiv__": rest("//", operator.floordiv, c_floor_divide, slope=False),
    "__rfloordiv__": [],
    "__divmod__": [],
    **{name: [two(name, where=either_zero)] for name in ("maximum", "minimum")},
    **{name: [two(name)] for name in COMPARISONS},
    **{f"__{name}__": operators(name, function) for name, function in COMPARISONS.items()},
    **{name: [two(name)] for name in ("logical_and", "logical_or", "logical_xor")},
    "isclose": [two("isclose")],
    "where": [
        Case("where", lambda x, y: (x < y).where(x, y), lambda x, y: torch().where(x < y, x, y), over="two"),
        *[
            Case(
                f"x where x {name} {zero}, else {zero}; turned: {is_turned}",
                lambda x, f=function, z=zero, t=is_turned: f(x, z).where(*((z, x) if t else (x, z))),
                lambda x, f=function, z=zero, t=is_turned: torch().where(f(x, z), *((z, x) if t else (x, z))),
            )
            for name, function in COMPARISONS.items()
            for zero in (0.0, -0.0)
            for is_turned in (False, True)
        ],
        both("exp - inf", lambda x: x.exp() - INF, slope=False),
        both("inf - x * x", lambda x: INF - x * x, slope=False),
        both("1 / (0.0 - x)", lambda x: 1.0 / (0.0 - x), slope=False),
        both("1 / (0.0 + x * -1.0)", lambda x: 1.0 / (0.0 + x * -1.0), slope=False),
    ],
    **{
        name: [
            both(
                f"{name} to at least y",
                lambda x, y, n=name: getattr(x, n)(min=y),
                over="two",
                where=either_zero,
            ),
            both(
                f"{name} to at most y",
                lambda x, y, n=name: getattr(x, n)(max=y),
                over="two",
                where=either_zero,
            ),
            both(f"{name} between", lambda x, n=name: getattr(x, n)(-0.75, 2.5)),
            both(f"{name} to NaN", lambda x, n=name: getattr(x, n)(min=NAN)),
        ]
        for name in ("clamp", "clip")
    },
    "lerp": [
        Case(
            "lerp",
            lambda x, y: x.lerp(y, 0.3),
            lambda x, y: torch().lerp(x, y, 0.3),
            over="two",
            **SURE,
            where=is_ordinary,
        )
    ],
    "addcmul": [
        Case(
            "addcmul",
            lambda x, y: x.addcmul(x, y, 2),
            lambda x, y: torch().addcmul(x, x, y, value=2),
            over="two",
            **SURE,
            where=is_ordinary,
        )
    ],
    "addcdiv": [
        Case(
            "addcdiv",
            lambda x, y: x.addcdiv(y, x, 2),
            lambda x, y: torch().addcdiv(x, y, x, value=2),
            over="two",
            **SURE,
            where=is_ordinary,
        )
    ],
    # losses
    **{name: [loss(name)] for name in ("mse_loss", "l1_loss", "huber_loss", "smooth_l1_loss")},
    "binary_cross_entropy_with_logits": [
        loss("binary_cross_entropy_with_logits", scale=1, where=lambda x, y: 0 <= y <= 1)
    ],
    "binary_cross_entropy": [
        Case(
            "binary_cross_entropy",
            lambda x, y: x.binary_cross_entropy(y, reduction="none"),
            lambda x, y: functional().binary_cross_entropy(within_one(x), within_one(y), reduction="none"),
            over="two",
            where=lambda x, y: 1e-3 < x < 1 and 0 <= y <= 1,
            **SURE,
        )
    ],
    "kl_div": [
        loss("kl_div", slope=False, where=lambda x, y: is_ordinary(x, y) and y != INF),
        loss("kl_div", call={"log_target": True}),
    ],
    # rows
    **{
        name: [row(name, units=8, where=has_sums if "sum" in name else has_products)]
        for name in ("sum", "prod")
    },
    "mean": [row("mean", units=8, where=has_sums)],
    **{
        name: [row(name, call={"dim": 1, "correction": c}, **STATISTIC) for c in (0, 1)]
        for name in ("var", "std")
    },
    "var_mean": [
        Case(
            "var_mean",
            lambda x: x.var_mean(1)[0] + x.var_mean(1)[1],
            lambda x: x.var(1) + x.mean(1),
            over="rows",
            **STATISTIC,
        )
    ],
    **{name: [row(name, zero_sign=False)] for name in ("amax", "amin")},
    "max": [
        Case(
            "max",
            lambda x: x.max(1).values,
            lambda x: x.max(1).values,
            over="rows",
            zero_sign=False,
            slope=False,
        )
    ],
    "min": [
        Case(
            "min",
            lambda x: x.min(1).values,
            lambda x: x.min(1).values,
            over="rows",
            zero_sign=False,
            slope=False,
        )
    ],
    **{name: [row(name)] for name in ("argmax", "argmin", "any", "all", "count_nonzero")},
    "logsumexp": [row("logsumexp", **SURE, where=has_sums)],
    **{name: [row(name, call={"dim": 1}, **SURE)] for name in ("softmax", "log_softmax")},
    "softmin": [
        Case("softmin", lambda x: x.softmin(1), lambda x: functional().softmin(x, 1), over="rows", **SURE)
    ],
    **{
        name: [row(name, units=8, where=has_sums if "sum" in name else has_products)]
        for name in ("cumsum", "cumprod")
    },
    "norm": [row("norm", p, **STATISTIC) for p in (2, 1, 0, 3, INF, -INF)],
    "normalize": [
        Case(
            "normalize",
            lambda x: x.normalize(dim=1),
            lambda x: functional().normalize(x, dim=1),
            over="rows",
            **STATISTIC,
        )
    ],
    "cosine_similarity": [
        Case(
            "cosine_similarity",
            lambda x: x.cosine_similarity(x * 2 + 1),
            lambda x: functional().cosine_similarity(x, x * 2 + 1),
            over="rows",
            **STATISTIC,
        )
    ],
    "layer_norm": [
        Case(
            "layer_norm",
            lambda x: x.layer_norm(3),
            lambda x: functional().layer_norm(x, (3,)),
            over="rows",
            **STATISTIC,
        )
    ],
    "rms_norm": [
        Case(
            "rms_norm",
            lambda x: x.rms_norm(3),
            lambda x: functional().rms_norm(x, (3,)),
            over="rows",
            **STATISTIC,
        )
    ],
    "sort": [
        Case("sort", lambda x: x.sort(1).values, lambda x: x.sort(dim=1, stable=True).values, over="rows"),
        Case(
            "sort down",
            lambda x: x.sort(1, True).values,
            lambda x: x.sort(dim=1, descending=True, stable=True).values,
            over="rows",
        ),
    ],
    "argsort": [
        Case("argsort", lambda x: x.argsort(1), lambda x: torch().argsort(x, dim=1, stable=True), over="rows")
    ],
    "topk": [
        Case(
            "topk",
            lambda x: x.topk(2, 1).values,
            lambda x: x.topk(2, 1).values,
            over="rows",
            zero_sign=False,
            slope=False,
        )
    ],
}


def cases(over: str) -> Cases:
    """All cases over "one", "two" or "rows"."""
    return [case for found in TABLE.values() for case in found if case.over == over]
