"""Wrong types: every public call of tensors, nn and devices with arguments that it does not take.

In       the names of what is public, found on the objects themselves; for each a right call; values of the wrong kind
Out      a right answer, or an error of ours; then the device still computes
Changes  nothing outside the worker
Next     frontend/ops/arguments.py and hcq/checks.py (who refuse), tests/hcq/test_wrong_calls.py (alike on every device)

A call is text, so a failure prints as a program. A public name without a right call fails the campaign: write its call
into CALLS. What is refused is refused by an HcqError, or by Python itself where the number of arguments is wrong.
"""

from __future__ import annotations

import functools
import inspect
import math
import os
import random
import re
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import hcq
from hcq.errors import DeviceFault, HcqError, WaitTimeout
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

CALLS_OF_A_CASE = 12
RIGHT_SHARES = 3
DEVICE_BYTES = 64 << 20
MOST_ELEMENTS = 1 << 16  # results up to this size are computed

# what no parameter expects, and what only a few do
HOSTILE = (
    "None", "'x'", "''", "b''", "b'abc'", "NAN", "INF", "-INF", "-1", "0", "1", "2**31", "2**63", "2**64", "10**30",
    "-10**30", "10**400", "1.5", "1e300", "True", "[]", "()", "[[]]", "[1, [2]]", "[None]", "ITSELF", "object()", "{}",
    "{1: 2}", "set()", "1j", "range(3)", "iter([1])", "(lambda: 1)", "int", "Tensor", "...", "slice(None)",
    "(2**40, 2**40)", "(-1, -1)", "(0, 0)", "[1.5]", "('x',)", "np.float32(2)", "np.int64(1)", "np.bool_(True)",
    "np.zeros(0)", "np.ones((2, 3))", "np.array('x')", "np.array(None)", "np.array(3)", "dtypes.int32",
    "dtypes.fp8e4m3",
    "hcq.tensor(1)", "Tensor(1.5)", "Tensor([])", "Tensor([1, 2, 3], dtype=dtypes.int64)",
    "Tensor([True, False])", "Tensor.ones(2, 3, 4)",
    "x.cast(dtypes.float16)", "x.cast(dtypes.uint8)", "x.cast(dtypes.fp8e4m3)", "x.to('CPU:1')",
)  # fmt: skip

# what the receiver of a method may be instead of `x`
RECEIVERS = (
    "x", "x", "x", "Tensor(1.0)", "hcq.tensor(1)", "Tensor([])", "Tensor.zeros(0, 3)", "x.cast(dtypes.int32)",
    "x.cast(dtypes.bool)", "x.cast(dtypes.float16)", "x.cast(dtypes.fp8e4m3)", "x.cast(dtypes.float64)", "image",
)  # fmt: skip

# right calls of what the rules below do not find: its arguments, or a receiver and its arguments
CALLS: dict[str, tuple[str, ...] | None] = {
    "x.clamp": ("x", "0.0", "1.0"),
    "x.cuda": None,  # there is no GPU
    "x.register_hook": ("Tensor([1.0], requires_grad=True)", "abs"),
    "x.retain_grad": ("Tensor([1.0], requires_grad=True) * 2",),
    "x.as_strided": ("x", "(2, 2)", "(1, 1)"),
    "x.as_strided_copy": ("x", "(2, 2)", "(1, 1)"),
    "x.as_strided_scatter": ("x", "Tensor.ones(2, 2)", "(2, 2)", "(2, 1)"),
    "Tensor.empty_permuted": ("(2, 3)", "(1, 0)"),
    "Tensor.empty_strided": ("(2, 3)", "(3, 1)"),
    "x.new_empty_strided": ("x", "(2, 3)", "(3, 1)"),
    "x.resize_": ("x.clone().realize()", "(3, 2)"),
    **{
        f"x.{name}": ("Tensor([[2.0, 1.0], [1.0, 3.0]])",)
        for name in "cholesky cholesky_inverse det inverse logdet matrix_exp slogdet".split()
    },
    "x.cholesky_solve": ("line.reshape(3, 1)", "Tensor.eye(3)"),
    "x.triangular_solve": ("line.reshape(3, 1)", "Tensor.eye(3)"),
    "x.lu_solve": (
        "line.reshape(3, 1)",
        "Tensor.eye(3)",
        "Tensor([1, 2, 3], dtype=dtypes.int64).cast(dtypes.int32)",
    ),
    "x.orgqr": ("Tensor.eye(3)", "Tensor([0.0, 0.0])"),
    "x.stft": (
        *("Tensor.ones(32)", "8", "4", "8", "Tensor.ones(8)"),
        *("True", "'reflect'", "False", "True", "True"),
    ),
    "x.svd_lowrank": ("x", "2"),
    "x.istft": (
        "Tensor.ones(32).stft(8, 4, 8, Tensor.ones(8), return_complex=True)",
        "8",
        "4",
        "8",
        "Tensor.ones(8)",
    ),
    "x.view_as_complex": ("Tensor.ones(3, 2)",),
    "x.view_as_real": ("Tensor.ones(3).cfloat()",),
    "x.clip": ("x", "0.0", "1.0"),
    "x.swapdims": ("x", "0", "1"),
    "Tensor.kaiming_normal": ("2", "3"),
    "Tensor.kaiming_uniform": ("2", "3"),
    "Tensor.xavier_normal": ("2", "3"),
    "Tensor.xavier_uniform": ("2", "3"),
    "x.adaptive_avg_pool2d": ("image", "2"),
    "x.assign": ("x.clone().realize()", "y"),
    "x.avg_pool1d": ("image[0]", "2"),
    "x.avg_pool2d": ("image", "2"),
    "x.max_pool1d": ("image[0]", "2"),
    "x.max_pool2d": ("image", "2"),
    "x.backward": ("leaf.sum()",),
    "x.batch_norm": ("image",),
    "x.instance_norm": ("image",),
    "x.group_norm": ("image", "1"),
    "x.bitcast": ("x", "dtypes.int32"),
    "x.bmm": ("cube", "cube.transpose(1, 2)"),
    "x.matmul": ("x", "x.T"),
    "x.mm": ("x", "x.T"),
    "x.dot": ("line", "line"),
    "x.mv": ("x", "line"),
    "x.outer": ("line", "line"),
    "x.diag": ("line",),
    "x.broadcast_to": ("x", "2", "2", "3"),
    "x.expand": ("x", "2", "2", "3"),
    "x.chunk": ("x", "2"),
    "x.split": ("x", "1"),
    "x.conv1d": ("image[:, :, 0]", "weight[:, :, 0]"),
    "x.conv2d": ("image", "weight"),
    "x.conv3d": ("image.unsqueeze(2)", "weight.unsqueeze(2)"),
    "x.conv_transpose2d": ("image", "weight"),
    "x.cross_entropy": ("x", "Tensor([0, 1], dtype=dtypes.int64)"),
    "x.nll_loss": ("x", "Tensor([0, 1], dtype=dtypes.int64)"),
    "x.embedding": ("Tensor([0, 1], dtype=dtypes.int64)", "x"),
    "x.one_hot": ("Tensor([0, 1], dtype=dtypes.int64)",),
    "x.flip": ("x", "0"),
    "x.permute": ("x", "1", "0"),
    "x.repeat": ("x", "2", "1"),
    "x.tile": ("x", "2", "1"),
    "x.gather": ("x", "1", "index"),
    "x.scatter_add": ("x", "1", "index", "y"),
    "x.take_along_dim": ("x", "index", "1"),
    "x.index_select": ("x", "0", "Tensor([1], dtype=dtypes.int64)"),
    "x.select": ("x", "0", "1"),
    "x.item": ("Tensor([3], dtype=dtypes.int64)",),
    "x.layer_norm": ("x", "3"),
    "x.rms_norm": ("x", "3"),
    "x.lerp": ("x", "y", "0.5"),
    "x.linear": ("x", "y"),
    "x.masked_fill": ("x", "x > 0", "1.0"),
    "x.masked_select": ("x", "x > 0"),
    "x.movedim": ("x", "0", "1"),
    "x.narrow": ("x", "0", "1", "1"),
    "x.pad": ("x", "(1, 1)"),
    "x.realize": ("x",),
    "x.schedule": ("x + 1",),
    "x.repeat_interleave": ("x", "2"),
    "x.reshape": ("x", "3", "2"),
    "x.view": ("x", "3", "2"),
    "x.roll": ("x", "1"),
    "x.scaled_dot_product_attention": ("cube", "cube", "cube"),
    "x.shrink": ("x", "((0, 1), None)"),
    "x.shard": ("x", "['CPU', 'CPU:1']"),
    "x.shard_": ("x * 1", "['CPU', 'CPU:1']"),
    "x.to": ("x", "'CPU'"),
    "x.topk": ("x", "1"),
    "x.type": ("x", "dtypes.int32"),
    "x.cast": ("x", "dtypes.int32"),
    "x.transpose": ("x", "0", "1"),
    "x.swapaxes": ("x", "0", "1"),
    "x.unflatten": ("x", "1", "(3, 1)"),
    "x.unfold": ("x", "1", "2", "1"),
    "x.where": ("x > 0", "x", "y"),
    "x.t": ("x",),
    "x.diagonal": ("x",),
    "x.sort": ("x",),
    "x.requires_grad_": ("x.clone()",),
    "x.full_like": ("x", "2"),
    "x.binary_cross_entropy": ("x.sigmoid()", "y.sigmoid()"),
    "x.addcdiv": ("x", "y", "y"),
    "x.logical_and": ("x", "y"),
    "x.unsqueeze": ("x", "0"),
    "x.cosine_similarity": ("x", "y"),
    "Tensor.arange": ("3",),
    "Tensor.linspace": ("0.0", "1.0", "3"),
    "Tensor.logspace": ("0.0", "1.0", "3"),
    "Tensor.eye": ("3",),
    "Tensor.full": ("(2, 3)", "1.0"),
    "x.bitwise_and": ("index", "index"),
    "x.bitwise_or": ("index", "index"),
    "x.bitwise_xor": ("index", "index"),
    "x.bitwise_not": ("index",),
    "x.bitwise_left_shift": ("index", "index"),
    "x.bitwise_right_shift": ("index", "index"),
    "x.gcd": ("index", "index"),
    "x.lcm": ("index", "index"),
    "x.glu": ("x", "0"),
    "x.prelu": ("x", "line[:1]"),
    "x.threshold": ("x", "0.0", "1.0"),
    "x.sum_to_size": ("x", "1", "3"),
    "x.narrow_copy": ("x", "0", "1", "1"),
    "x.new_empty": ("x", "2"),
    "x.new_ones": ("x", "2"),
    "x.new_zeros": ("x", "2"),
    "x.new_full": ("x", "(2, 3)", "1.0"),
    "Tensor.scalar_tensor": ("1.0",),
    "Tensor.broadcast_shapes": ("(2, 1)", "(3,)"),
    "x.meshgrid": ("line", "line"),
    "x.cartesian_prod": ("line", "line"),
    "x.broadcast_tensors": ("x", "y"),
    "x.combinations": ("line",),
    "x.atleast_1d": ("x",),
    "x.atleast_2d": ("x",),
    "x.atleast_3d": ("x",),
    "x.hstack": ("x", "y"),
    "x.vstack": ("x", "y"),
    "x.row_stack": ("x", "y"),
    "x.dstack": ("x", "y"),
    "x.column_stack": ("x", "y"),
    "x.block_diag": ("x", "y"),
    "x.tensor_split": ("x", "2"),
    "x.hsplit": ("x", "3"),
    "x.vsplit": ("x", "2"),
    "x.dsplit": ("cube", "3"),
    "x.split_with_sizes": ("x", "(1, 1)"),
    "x.unsafe_split": ("x", "1"),
    "x.unsafe_chunk": ("x", "2"),
    "x.select_scatter": ("x", "line", "0", "1"),
    "x.slice_scatter": ("x", "y"),
    "x.diagonal_scatter": ("x", "line[:2]"),
    "x.fill": ("x", "1.0"),
    "x.constant_pad_nd": ("x", "(1, 1)"),
    "x.diag_embed": ("line",),
    "x.moveaxis": ("x", "0", "1"),
    "x.scatter": ("x", "1", "index", "y"),
    "x.scatter_reduce": ("x", "1", "index", "y", "'sum'"),
    "x.index_add": ("x", "0", "Tensor([1, 0], dtype=dtypes.int64)", "y"),
    "x.index_copy": ("x", "0", "Tensor([1, 0], dtype=dtypes.int64)", "y"),
    "x.index_fill": ("x", "0", "Tensor([1], dtype=dtypes.int64)", "1.0"),
    "x.index_reduce": ("x", "0", "Tensor([1, 0], dtype=dtypes.int64)", "y", "'amax'"),
    "x.index_put": ("x", "(hcq.tensor([1, 0]),)", "y"),
    "x.put": ("x", "index", "y"),
    "x.take": ("x", "index"),
    "x.masked_scatter": ("x", "x > 0", "y"),
    "x.kthvalue": ("x", "1"),
    "x.quantile": ("x", "0.5"),
    "x.nanquantile": ("x", "0.5"),
    "x.renorm": ("x", "2.0", "0", "1.0"),
    "x.apply_": ("x.clone()", "abs"),
    "x.map_": ("x.clone()", "x", "max"),
    "x.is_nonzero": ("x.sum()",),
    "x.geometric_": ("x.clone()", "0.5"),
    "x.multinomial": ("x.abs()", "1"),
    "x.bincount": ("Tensor([1, 3, 1], dtype=dtypes.int64)",),
    "x.searchsorted": ("line", "x"),
    "x.bucketize": ("x", "line"),
    "x.polygamma": ("x", "1"),
    "x.nonzero_static": ("x", "2"),
    "x.igamma": ("x", "y"),
    "x.igammac": ("x", "y"),
    "x.mvlgamma": ("x", "2"),
    "x.isin": ("x", "y"),
    "x.view_as": ("x", "y"),
    "x.reshape_as": ("x", "y"),
    "x.addmm": ("x", "x", "Tensor.ones(3, 3)"),
    "x.addmv": ("line[:2]", "x", "line"),
    "x.addr": ("x", "line[:2]", "line"),
    "x.baddbmm": ("cube", "cube", "Tensor.ones(2, 3, 3)"),
    "x.addbmm": ("x", "cube", "Tensor.ones(2, 3, 3)"),
    "x.vdot": ("line", "line"),
    "x.inner": ("x", "y"),
    "x.tensordot": ("x", "x.T", "1"),
    "x.kron": ("x", "y"),
    "x.cross": ("x", "y"),
    "x.matrix_power": ("Tensor.ones(3, 3)", "2"),
    "x.vander": ("line",),
    "x.pixel_shuffle": ("Tensor.ones(1, 4, 2, 2)", "2"),
    "x.pixel_unshuffle": ("image", "2"),
    "x.channel_shuffle": ("Tensor.ones(1, 4, 2, 2)", "2"),
    "x.local_response_norm": ("image", "2"),
    "x.interpolate": ("image", "3"),
    "x.cdist": ("x", "y"),
    "x.pdist": ("x",),
    "x.multi_margin_loss": ("x", "Tensor([0, 1], dtype=dtypes.int64)"),
    "x.cosine_embedding_loss": ("x", "y", "line[:2]"),
    "x.max_pool3d": ("image.unsqueeze(2).expand(1, 1, 4, 4, 4)", "2"),
    "x.avg_pool3d": ("image.unsqueeze(2).expand(1, 1, 4, 4, 4)", "2"),
    "x.adaptive_avg_pool1d": ("image[0]", "2"),
    "x.adaptive_avg_pool3d": ("image", "2"),
    "x.adaptive_max_pool1d": ("image[0]", "2"),
    "x.adaptive_max_pool2d": ("image", "3"),
    "x.adaptive_max_pool3d": ("image", "2"),
    "x.max_unpool1d": ("line.reshape(1, 1, 3)", "Tensor([[[0, 2, 5]]], dtype=dtypes.int64)", "2"),
    "x.max_unpool2d": ("image", "Tensor.arange(16).reshape(1, 1, 4, 4)", "2"),
    "x.max_unpool3d": ("image", "Tensor.arange(16).reshape(1, 1, 4, 4)", "2"),
    "x.conv_transpose1d": ("image[:, :, 0]", "weight[:, :, 0]"),
    "x.conv_transpose3d": ("image.unsqueeze(2)", "weight.unsqueeze(2)"),
    "x.cat": ("x", "y"),
    "x.stack": ("x", "y"),
    "Tensor.einsum": ("'ij,kj->ik'", "x", "y"),
    "Tensor.manual_seed": ("3",),
    "Tensor.randint": ("0", "5", "(2, 3)"),
    "Tensor.randperm": ("5",),
    "Tensor": ("[1.0, 2.0]",),
    "nn.Linear": ("3", "2"),
    "nn.Conv2d": ("1", "2", "3"),
    "nn.Embedding": ("3", "2"),
    "nn.MaxPool2d": ("2",),
    "nn.AvgPool2d": ("2",),
    "nn.BatchNorm": ("1",),
    "nn.BatchNorm1d": ("3",),
    "nn.Dropout.forward": ("nn.Dropout()", "x"),
    "nn.BatchNorm2d": ("1",),
    "nn.BatchNorm3d": ("1",),
    "nn.LayerNorm": ("3",),
    "nn.GroupNorm": ("1", "1"),
    "nn.RMSNorm": ("3",),
    "nn.Sequential": ("nn.ReLU()",),
    "nn.ModuleList": ("[nn.ReLU()]",),
    "nn.load_file": ("FILE",),
    "nn.save_file": ("{'x': x}", "FILE"),
    "nn.Linear.forward": ("nn.Linear(3, 2)", "x"),
    "nn.Conv2d.forward": ("nn.Conv2d(1, 2, 3)", "image"),
    "nn.Embedding.forward": ("nn.Embedding(3, 2)", "Tensor([1], dtype=dtypes.int64)"),
    "nn.MaxPool2d.forward": ("nn.MaxPool2d(2)", "image"),
    "nn.AvgPool2d.forward": ("nn.AvgPool2d(2)", "image"),
    "nn.BatchNorm.forward": ("nn.BatchNorm(3)", "x"),
    "nn.BatchNorm1d.forward": ("nn.BatchNorm1d(3)", "x"),
    "nn.BatchNorm2d.forward": ("nn.BatchNorm2d(1)", "image"),
    "nn.BatchNorm3d.forward": ("nn.BatchNorm3d(1)", "image.unsqueeze(2)"),
    "nn.LayerNorm.forward": ("nn.LayerNorm(3)", "x"),
    "nn.GroupNorm.forward": ("nn.GroupNorm(1, 3)", "x"),
    "nn.RMSNorm.forward": ("nn.RMSNorm(3)", "x"),
    "nn.Module.forward": None,
    "nn.ModuleList.forward": None,
    "nn.ModuleDict": ("{'a': nn.ReLU()}",),
    "nn.ModuleDict.forward": None,
    "nn.ParameterList": ("[x]",),
    "nn.ParameterList.forward": None,
    "nn.ParameterDict": ("{'a': x}",),
    "nn.ParameterDict.forward": None,
    "nn.Parameter": ("x",),
    "nn.MaxUnpool1d": ("2",),
    "nn.MaxUnpool2d": ("2",),
    "nn.MaxUnpool3d": ("2",),
    "nn.MaxUnpool1d.forward": None,
    "nn.MaxUnpool2d.forward": None,
    "nn.MaxUnpool3d.forward": None,
    "nn.TransformerEncoder": ("nn.ReLU()", "2"),
    "nn.TransformerDecoder": ("nn.ReLU()", "2"),
    "nn.TransformerEncoder.forward": None,
    "nn.TransformerDecoder.forward": None,
    "nn.CrossMapLRN2d": ("3",),
    "nn.CrossMapLRN2d.forward": ("nn.CrossMapLRN2d(3)", "image"),
    "nn.FractionalMaxPool2d": ("2", "2"),
    "nn.FractionalMaxPool2d.forward": ("nn.FractionalMaxPool2d(2, 2)", "image"),
    "nn.FractionalMaxPool3d": ("2", "1"),
    "nn.FractionalMaxPool3d.forward": ("nn.FractionalMaxPool3d((1, 2, 2), (1, 2, 2))", "image"),
    "nn.RNNBase": ("'GRU'", "3", "2"),
    "nn.RNNBase.forward": ("nn.RNNBase('GRU', 3, 2)", "cube"),
    "nn.RNNCellBase": ("3", "2", "True", "4"),
    "nn.RNNCellBase.forward": None,
    "nn.UninitializedParameter": None,
    "nn.UninitializedBuffer": None,
    "nn.DataParallel": ("nn.ReLU()",),
    "nn.DataParallel.forward": ("nn.DataParallel(nn.ReLU())", "x"),
    "nn.LazyLinear": ("2",),
    "nn.LazyLinear.forward": None,  # the call makes it another layer
    **{
        f"nn.Lazy{kind}{axes}d{what}": None if what else ("2", "1") if kind.startswith("Conv") else ()
        for kind in ("Conv", "ConvTranspose", "BatchNorm", "InstanceNorm")
        for axes in (1, 2, 3)
        for what in ("", ".forward")
    },
    "nn.MultiMarginLoss.forward": ("nn.MultiMarginLoss()", "y", "Tensor([0, 2], dtype=dtypes.int64)"),
    "nn.utils.get_total_norm": ("[x]",),
    "nn.utils.parameters_to_vector": ("[x]",),
    "nn.utils.vector_to_parameters": ("Tensor.ones(6)", "[x.clone().realize()]"),
    "nn.functional.dropout1d": ("image[0]",),
    "nn.functional.dropout2d": ("image",),
    "nn.functional.dropout3d": ("image",),
    "nn.functional.fold": ("Tensor.ones(1, 4, 4)", "3", "2"),
    "nn.functional.unfold": ("image", "2"),
    "nn.functional.batch_norm": ("x", "None", "None", "None", "None", "True"),
    "nn.functional.instance_norm": ("image",),
    "nn.Sequential.forward": ("nn.Sequential(nn.ReLU())", "x"),
    "nn.CrossEntropyLoss.forward": ("nn.CrossEntropyLoss()", "x", "Tensor([0, 1], dtype=dtypes.int64)"),
    "nn.NLLLoss.forward": ("nn.NLLLoss()", "x", "Tensor([0, 1], dtype=dtypes.int64)"),
    "nn.functional.dropout": ("x",),
    "nn.functional.linear": ("x", "y"),
    "nn.init.dirac_": ("image.clone()",),
    "nn.init.sparse_": ("x.clone()", "0.5"),
    "nn.init.kaiming_std": ("(2, 3)", "0.0", "'fan_in'", "'relu'"),
    "nn.init.xavier_std": ("(2, 3)", "1.0"),
    "nn.init.calculate_gain": ("'relu'",),
    "nn.utils.clip_grad_norm": ("[with_grad()]", "1.0"),
    "nn.utils.clip_grads_with_norm_": ("[with_grad()]", "1.0", "Tensor(2.0)"),
    "nn.utils.clip_grad_norm_": ("[with_grad()]", "1.0"),
    "nn.utils.clip_grad_value_": ("[with_grad()]", "1.0"),
    "nn.optim.Optimizer": None,
    "nn.optim.SGD": ("[leaf]", "0.1"),
    "nn.optim.Adam": ("[leaf]",),
    **{f"nn.optim.{name}": ("[leaf]",) for name in "AdamW Adamax NAdam RAdam LAMB LARS Lion RMSprop".split()},
    **{f"nn.optim.{name}": ("[leaf]",) for name in "Adagrad Adadelta Adafactor ASGD Rprop LBFGS".split()},
    "nn.optim.Muon": ("[leaf]",),
    "module.load_state_dict": ("nn.Linear(3, 2)", "nn.Linear(3, 2).state_dict()"),
    "module.train": ("nn.Linear(3, 2)",),
    "module.requires_grad_": ("nn.Linear(3, 2)",),
    "optimizer.load_state_dict": ("nn.optim.Adam([leaf])", "nn.optim.Adam([leaf]).state_dict()"),
    "optimizer.zero_grad": ("nn.optim.Adam([leaf])",),
    "modules.append": ("nn.ModuleList()", "nn.ReLU()"),
}

# operators and brackets, with what is replaced in braces
OPERATORS = (
    "x + {y}", "x - {y}", "x * ({y})", "x / {y}", "x // {y}", "x % {y}", "x ** {y}", "{y} + x", "{y} - x", "{y} / x",
    "{y} // x", "{y} % x", "{2} ** x", "x @ {x.T}", "x < {y}", "x == {y}", "x != {y}", "x >= {y}", "index & {index}",
    "index | {index}", "index ^ {index}", "index << {index}", "index >> {1}", "x[{0}]", "x[{0}, {1}]", "x[{0}:{1}]",
    "x[::{1}]", "x[..., {0}]", "x[{index}]", "x[{None}, {...}]", "setitem(x.clone(), {0}, {1.0})",
    "setitem(x.clone().realize(), {0}, {1.0})", "setitem(x.clone(), {index}, {1.0})", "{1.0} in x", "divmod(x, {y})",
    "abs({x})", "hcq.Device[{'CPU'}]", "hcq.open({'CPU'})", "setattr(leaf, 'requires_grad', {True})",
    "setattr(nn.optim.SGD([leaf], 0.1), 'lr', {0.1})", "jit(lambda a: (a + 1).realize())({x})", "jit({lambda a: a})",
    "nn.Sequential(nn.ReLU(), nn.ReLU())[{0}]", "nn.ModuleList([nn.ReLU()])[{0}]",
    "nn.functional.relu({x})", "nn.functional.conv2d({image}, {weight})", "nn.functional.pad({x}, {(1, 1)})",
)  # fmt: skip


class Call(NamedTuple):
    """A right call. Text with {} where hostile values go; options: parameters that may be added by name."""

    name: str
    text: str
    options: tuple[str, ...]


def _parameters(function: Any) -> list[inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p for p in found if p.name not in ("self", "cls") and p.kind is not p.VAR_KEYWORD]


def _call(name: str, function: Any, receiver: str | None) -> Call | None:
    """The right call of a public name: CALLS says it, or what its parameters are called."""
    if function is object.__init__:
        return Call(name, f"{name}()", ())
    required = [p for p in _parameters(function) if p.default is p.empty]
    options = tuple(p.name for p in _parameters(function) if p.default is not p.empty)
    if name.endswith("_") and name not in CALLS and f"{name[:-1]}" in CALLS:  # in place: the same, of a copy
        known = CALLS[name[:-1]]
        if known is None:
            return None
        assert receiver is not None
        receiver, *known = (f"{known[0]}.clone()", *known[1:])  # type: ignore[assignment]
    elif name in CALLS:
        known = CALLS[name]
        if known is None:
            return None
        if receiver is not None:
            receiver, *known = known  # type: ignore[assignment]
    else:
        usual = {
            "dim": "0",
            "axis": "0",
            "shape": "2",
            "x": "x",
            "tensor": "x.clone()",
            "dtype": "dtypes.float32",
            "val": "1.0",
        }
        known = tuple(usual.get(p.name, "y") for p in required)
        receiver = "x.clone()" if receiver == "x" and name.endswith("_") else receiver
    called = name.rpartition(".")[2] if receiver is not None else name
    head = f"({{{receiver}}}).{called}" if receiver is not None else called
    return Call(name, f"{head}({', '.join('{' + each + '}' for each in known)})", options)


def _layers() -> dict[str, tuple[str, ...]]:
    """Right calls of layers and of their forward: those that are compared with PyTorch's."""
    from tests.frontend.layer_cases import CASES

    found: dict[str, tuple[str, ...]] = {}
    for case in CASES:
        if f"nn.{case.name}" in found or any(hasattr(value, "dtype") for value in case.kwargs.values()):
            continue
        arguments = [repr(arg) for arg in case.args]
        options = [f"{name}={value!r}" for name, value in case.kwargs.items()]
        inputs = [
            f"Tensor.ones{given!r}" if isinstance(given, tuple) else f"hcq.tensor({given.tolist()!r})"
            for given in case.inputs
        ]
        found[f"nn.{case.name}"] = tuple(arguments)
        found[f"nn.{case.name}.forward"] = (f"nn.{case.name}({', '.join([*arguments, *options])})", *inputs)
    return found


@functools.cache
def calls() -> tuple[Call, ...]:
    """Every public call that there is, found on the objects."""
    import hcq
    from hcq import Tensor, nn

    found: list[Call | None] = [Call(text, text, ()) for text in OPERATORS]
    found.append(_call("Tensor", Tensor.__init__, None))
    for name in dir(Tensor):
        getattr(Tensor, name)  # a late method becomes one of the class
        member = inspect.getattr_static(Tensor, name)
        if name.startswith("_") or not callable(getattr(Tensor, name)):
            continue
        is_made = isinstance(member, (classmethod, staticmethod))
        found.append(
            _call(f"{'Tensor' if is_made else 'x'}.{name}", getattr(Tensor, name), None if is_made else "x")
        )
    for name, value in _layers().items():
        CALLS.setdefault(name, value)
    for name in nn.__all__:
        member = getattr(nn, name)
        if inspect.isclass(member):
            found.append(_call(f"nn.{name}", member.__init__, None))
        if inspect.isclass(member) and issubclass(member, nn.Module):
            found.append(_call(f"nn.{name}.forward", member.forward, f"nn.{name}()"))
        elif inspect.isfunction(member):
            found.append(_call(f"nn.{name}", member, None))
    for where in ("functional", "init", "utils"):
        module = getattr(nn, where)
        for name, member in sorted(vars(module).items()):
            if (
                inspect.isfunction(member)
                and not name.startswith("_")
                and member.__module__.startswith(("hcq.frontend.nn", "hcq.frontend.ops.initial"))
            ):
                if getattr(hcq, name, None) is None and name not in ("constant_in",):
                    found.append(_call(f"nn.{where}.{name}", member, None))
    for name, member in sorted(vars(nn.optim).items()):
        if inspect.isclass(member) and hasattr(member, "step"):
            found.append(_call(f"nn.optim.{name}", member.__init__, None))
    for kind, owner in (("module", nn.Module), ("optimizer", nn.optim.Optimizer), ("modules", nn.ModuleList)):
        for name in ("load_state_dict", "train", "requires_grad_", "zero_grad", "append"):
            if f"{kind}.{name}" in CALLS:
                found.append(_call(f"{kind}.{name}", getattr(owner, name), kind))
    return tuple(call for call in found if call is not None)


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Text in parts; True for those that stand in braces, which may hold brackets of their own."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        if letter == "{":
            if not depth:
                yield text[start:at], False
                start = at + 1
            depth += 1
        elif letter == "}":
            depth -= 1
            if not depth:
                yield text[start:at], True
                start = at + 1
    yield text[start:], False


def right(call: Call) -> str:
    """The call as it should be."""
    return "".join(part for part, _ in _pieces(call.text))


def wrong(call: Call, rng: random.Random, hostile: tuple[str, ...] = HOSTILE) -> str:
    """The call with one argument or more replaced, or an option given a value that it may not take."""
    parts = list(_pieces(call.text))
    places = [place for place, (_, is_open) in enumerate(parts) if is_open]
    option = ""
    if call.options and (not places or rng.random() < 0.4):
        option = f"{rng.choice(call.options)}={rng.choice(hostile)}"
    if places and (not option or rng.random() < 0.2):
        for place in rng.sample(places, min(len(places), 1 if rng.random() < 0.8 else 2)):
            is_receiver = place == 1 and call.text.startswith("({")
            value = rng.choice(RECEIVERS if is_receiver and call.name.startswith("x.") else hostile)
            if is_receiver and not call.name.startswith("x."):
                continue
            parts[place] = (value, True)
    text = "".join(part for part, _ in parts)
    if option:
        text = f"{text[:-1]}{'' if text.endswith('()') else ', '}{option})"
    return text


class Space:
    """The names that a call may use; `x` and its like are made anew for each call."""

    def __init__(self) -> None:
        import numpy as np

        import hcq
        from hcq import Tensor, dtypes, jit, nn

        itself: list[Any] = []
        itself.append(itself)
        for name in ("CPU", "CPU:1"):  # what is honestly asked for, and larger, is refused and not computed
            hcq.open(name)._memory_bytes = DEVICE_BYTES
        self.folder = tempfile.TemporaryDirectory()
        os.chdir(self.folder.name)
        self.path = tempfile.NamedTemporaryFile(suffix=".safetensors")
        self.fixed: dict[str, Any] = {
            "hcq": hcq, "Tensor": Tensor, "dtypes": dtypes, "nn": nn, "jit": jit, "np": np, "NAN": math.nan,
            "INF": math.inf, "ITSELF": itself, "FILE": self.path.name, "with_grad": self.with_grad,
            "setitem": lambda to, key, value: to.__setitem__(key, value),
        }  # fmt: skip
        self.x = Tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -6.0]]).realize()
        self.y = Tensor([[2.0, 3.0, -1.0], [1.5, 0.5, 2.0]]).realize()

    def names(self) -> dict[str, Any]:
        from hcq import Tensor, nn

        nn.save_file({"x": self.x}, self.path.name)
        return {
            **self.fixed,
            "x": Tensor(self.x),
            "y": Tensor(self.y),
            "leaf": Tensor([[1.0, 2.0]], requires_grad=True),
            "line": Tensor([1.0, 2.0, 3.0]),
            "index": hcq.tensor([[0, 1, 0], [1, 0, 1]]),
            "cube": Tensor.ones(2, 2, 3),
            "image": Tensor.ones(1, 1, 4, 4),
            "weight": Tensor.ones(1, 1, 2, 2),
        }

    def with_grad(self) -> Any:
        from hcq import Tensor

        leaf = Tensor([1.0, 2.0], requires_grad=True)
        (leaf * leaf).sum().backward()
        return leaf


@functools.cache
def _space() -> Space:
    return Space()


def _settle(value: Any, depth: int = 0) -> None:
    """Compute what a call returned: a node that means nothing is found out here."""
    from hcq import Tensor

    if isinstance(value, Tensor):
        if value.numel() <= MOST_ELEMENTS:
            value.realize()
    elif isinstance(value, (tuple, list)) and depth < 4:
        for each in value[:8]:
            _settle(each, depth + 1)


def attempt(text: str, names: dict[str, Any] | None = None, may_be_late: bool = False) -> Outcome:
    """Evaluate a call. Raises Wrong for any error that is not ours, or not Python's for a wrong number of arguments."""
    names = _space().names() if names is None else names
    try:
        value = eval(text, names)
        _settle(value)
    except WaitTimeout as error:
        if may_be_late:
            return Outcome.REFUSED
        import hcq

        hcq.open(os.environ.get("HCQ_DEVICE", "CPU")).reset()
        raise Wrong(_told(text, error)) from None
    except HcqError as error:
        if not str(error).strip():
            raise Wrong(f"{text}\n{type(error).__name__} without a word") from None
        return Outcome.REFUSED
    except Exception as error:
        frame = error.__traceback__
        assert frame is not None
        while frame.tb_next is not None:
            frame = frame.tb_next
        if isinstance(error, OSError) and "_file(" in text:
            return Outcome.REFUSED  # as the system gives it
        # by Python at the call itself, by a function that stands in the call, or by NumPy as the left operand
        code = frame.tb_frame.f_code
        if (
            code.co_filename == "<string>"
            or "/numpy/" in code.co_filename
            or (
                code.co_name == "first" and code.co_filename.endswith("arguments.py")
            )  # a method's first call
        ):
            return Outcome.REFUSED
        raise Wrong(_told(text, error)) from None
    return Outcome.RIGHT


def _told(text: str, error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)
    ours = [
        f"{os.path.relpath(f.filename)}:{f.lineno} {f.name}" for f in where if "campaigns" not in f.filename
    ]
    return f"{text}\n{type(error).__name__}: {str(error)[:300]}\n  " + "\n  ".join(ours[-5:])


def _still_works() -> None:
    from hcq import Tensor

    found = (Tensor([1.0, 2.0]) * 3).tolist()
    if found != [3.0, 6.0]:
        raise Wrong(f"afterwards hcq.tensor([1, 2]) * 3 is {found}")


def run_right(share: int, case: Case) -> Outcome:
    """A share of the right calls, from which the wrong ones are made."""
    for call in calls()[share::RIGHT_SHARES]:
        if attempt(right(call)) is not Outcome.RIGHT:
            raise Wrong(f"{call.name}: {right(call)} is refused; write a right call into CALLS")
    return Outcome.RIGHT


def run(case: Case) -> Outcome:
    """Several wrong calls of tensors."""
    rng = case.rng()
    outcomes = [attempt(wrong(rng.choice(calls()), rng)) for _ in range(CALLS_OF_A_CASE)]
    _still_works()
    return Outcome.REFUSED if Outcome.REFUSED in outcomes else Outcome.RIGHT


# ------------------------------------------------------------ devices

DEVICE_HOSTILE = (
    "None", "'x'", "b''", "b'abc'", "NAN", "INF", "-1", "0", "1", "2**31", "2**63", "2**64", "10**30", "10**400",
    "1.5", "True", "[]", "ITSELF", "object()", "{}", "1j", "(0, 0, 0)", "(-1, 1, 1)", "(1, 1)",
    "(2**40, 1, 1)", "('x', 1, 1)", "np.int64(3)", "np.zeros(3)", "out", "freed()", "elsewhere",
    "signal", "far_signal", "kernel", "far_kernel", "queue", "device", "bytearray(8)",
    "np.zeros((2, 3))[:, 1]", "[out]", "[out, None]",
    "[out, 'x']", "[out, 1.5]", "[out, 2**64]", "(out, 8)",
    "iter([out, 8])",
)  # fmt: skip

# a null pointer is a right argument, and what this kernel writes through one ends the process on the CPU
NULLS = re.compile(r"(?:\[|to=)(?:None|0)\b")

DEVICE_CALLS = (
    "device.alloc({64})", "device.alloc({64}, {'name'})", "device.signal({'name'})", "device.graph({'name'})",
    "device.load({image}, {entry})", "device.load({image}, {entry}, args={('buffer', 'int')})",
    "device.load({image}, {entry}, access={['write', '']}, args=('buffer', 'int'))",
    "device.load({image}, {entry}, scratch_bytes={0})", "device.load({image}, {entry}, name={'k'})",
    "device.synchronize({1000})", "device.run({kernel}, {[out, 8]})", "device.run(kernel, [{out}, {8}])",
    "out.write({b'abcd'})", "out.write(b'abcd', {4})", "out.read({0}, {8})", "out.read_into({bytearray(8)}, {0})",
    "out.view({0}, {64})", "out.wait({1000})", "queue.copy({out}, {other})", "queue.copy(out, other, {64}, {0}, {0})",
    "queue.fill({out}, {1})", "queue.fill(out, {1}, {64}, {0}, {4})", "queue.wait({signal}, {0})",
    "queue.signal({signal}, {1})", "queue.timestamp({out}, {0})", "queue.dispatch({kernel}, {[out, 8]})",
    "queue.dispatch(kernel, [{out}, {8}])", "queue.dispatch(kernel, [out, 8], grid={(1, 1, 1)}, block={(1, 1, 1)})",
    "queue.dispatch(kernel, [out, 8], groups_per_claim={0})", "queue.fill(out, 1).submit().wait({1000})",
    "signal.set({3})", "signal.wait({0}, soon({1000}))", "recorded().replay({dict(to=out, n=8)})",
    "recorded().replay(dict(to={out}, n={8}))", "device.graph().dispatch({kernel}, {[out, 8]})",
    "device.graph().dispatch(kernel, [{out}, {8}]).submit().wait(1000)", "device.graph().fill({out}).replay()",
    "Symbol({'key'}, {'int'})", "device.close({1000}) if False else device",
)  # fmt: skip


def soon(timeout_ms: Any) -> Any:
    """A deadline that is right but far away would be waited for."""
    return 1000 if type(timeout_ms) in (int, float) and 1000 < timeout_ms < 1 << 50 else timeout_ms


class DeviceSpace:
    """A device and things of it, and of another one."""

    def __init__(self) -> None:
        import numpy as np

        import hcq
        from hcq.graph import Symbol
        from tests.hcq.conftest import IR, assemble
        from tests.hcq.gpu.kernels import image

        name = os.environ.get("HCQ_DEVICE", "CPU")
        self.device = hcq.open(name)
        far = hcq.open("CPU:1") if name == "CPU" else hcq.open("CPU")
        cpu_image = assemble(IR)
        is_cpu = name == "CPU"
        self.image, self.entry = (cpu_image, "functions") if is_cpu else (image(self.device), "store_at")
        self.kernel = self.device.load(self.image, self.entry, args=("buffer", "int"))
        itself: list[Any] = []
        itself.append(itself)
        self.fixed: dict[str, Any] = {
            "np": np, "NAN": math.nan, "INF": math.inf, "ITSELF": itself, "device": self.device, "image": self.image,
            "entry": self.entry, "kernel": self.kernel, "elsewhere": far.alloc(4096), "far_signal": far.signal(),
            "far_kernel": far.load(cpu_image, "functions", args=("buffer", "int")), "Symbol": Symbol,
            "freed": self.freed, "recorded": self.recorded, "soon": soon,
        }  # fmt: skip

    def freed(self) -> Any:
        buffer = self.device.alloc(64)
        buffer.free()
        return buffer

    def recorded(self) -> Any:
        from hcq.graph import Symbol

        return self.device.graph().dispatch(self.kernel, [Symbol("to"), Symbol("n", "int")])

    def names(self) -> dict[str, Any]:
        device = self.device
        return {
            **self.fixed,
            "out": device.alloc(4096),
            "other": device.alloc(4096),
            "signal": device.signal(),
            "queue": device.queue(),
        }

    def check(self) -> None:
        """The device still works."""
        out = self.device.alloc(4096)
        out.write(bytes(4096))
        self.device.queue().fill(out, 7, 8).dispatch(self.kernel, [out, 64]).submit().wait()
        if out.read(8, 8) != bytes(8) and out.read(0, 8) != b"\7" * 8:
            raise Wrong("afterwards the device computes something else")


@functools.cache
def _device_space() -> DeviceSpace:
    return DeviceSpace()


def run_device(case: Case) -> Outcome:
    """Several wrong calls of a device; the first case makes all right ones."""
    space = _device_space()
    if case.number == 0:
        for text in DEVICE_CALLS:
            plain = right(Call(text, text, ()))
            if attempt(plain, space.names()) is not Outcome.RIGHT:
                raise Wrong(f"{plain} is refused, and is a right call")
        return Outcome.RIGHT
    rng = case.rng()
    outcomes = []
    for _ in range(CALLS_OF_A_CASE):
        text = wrong(Call("", rng.choice(DEVICE_CALLS), ()), rng, DEVICE_HOSTILE)
        if space.device.name.startswith("CPU") and NULLS.search(str(text)):
            continue
        names = space.names()
        outcomes.append(attempt(text, names, may_be_late=True))
        try:
            if not space.device.is_lost:
                space.device.queue().barrier().submit().wait()
        except DeviceFault:  # a number that the kernel took for an offset
            outcomes.append(Outcome.REFUSED)
        if (
            space.device.is_lost
        ):  # AMD's kernel driver keeps the process off the GPU, but for a second context
            space.device.close()
            _device_space.cache_clear()
            space = _device_space()
    space.check()
    return Outcome.REFUSED if Outcome.REFUSED in outcomes else Outcome.RIGHT


INJECTED = "arguments of wrong types and hostile values to a device, its queues, buffers, signals and graphs"

CAMPAIGNS = (
    *[
        Campaign(
            f"right-types-{share}",
            "nothing: a third of the public calls of tensors and nn, made rightly",
            functools.partial(run_right, share),
            1,
        )
        for share in range(RIGHT_SHARES)
    ],
    Campaign(
        "wrong-types",
        "arguments of wrong types and hostile values to every public call of tensors and nn",
        run,
        20,
    ),
    Campaign("wrong-types-cpu", INJECTED, run_device, 60),
    Campaign(
        "wrong-types-amd",
        INJECTED,
        run_device,
        40,
        {"HCQ_EMULATE": "amd:gfx1100:kfd=1.19", "HCQ_DEVICE": "AMD"},
    ),
    Campaign("wrong-types-nv", INJECTED, run_device, 40, {"HCQ_EMULATE": "nv:sm_90", "HCQ_DEVICE": "NV"}),
)
