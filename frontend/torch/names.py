"""Names of `torch` itself: what `hcq.torch.relu`, `hcq.torch.float32` and `hcq.torch.device` are.

In       a name
Out      what it is here
Next     rows.py (names with nothing behind them), ../functions/__init__.py (methods as functions, dtypes, numbers)
"""

from __future__ import annotations

import importlib
from typing import Any

from hcq.frontend.torch.modules import MODULES
from hcq.frontend.torch.rows import ROWS, found

VERSION = "2.13.0+hcq"  # of the PyTorch whose names these are: libraries compare it

PLACES = {  # a name -> where it is written
    "Tensor": "hcq.frontend.tensor",
    "device": "hcq.frontend.torch.device",
    "no_grad": "hcq.frontend.grad.gradient",
    "autocast": "hcq.frontend.amp.casting",
    "load": "hcq.frontend.io.files",
    "save": "hcq.frontend.io.files",
    "vmap": "hcq.frontend.more.transforms",
    "_assert": "hcq.frontend.torch.settings",
}

FILES = {  # functions in files of their own
    "more.fourier.windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
    "io.dlpack": "as_tensor asarray from_dlpack from_numpy frombuffer",
    "functions.random": "Generator default_generator manual_seed seed initial_seed get_rng_state set_rng_state normal "
    "bernoulli randint_like",
    "functions.types": "finfo iinfo promote_types result_type can_cast",
    "torch.settings": "compile get_default_dtype set_default_dtype get_default_device set_default_device "
    "get_num_threads is_autocast_enabled is_autocast_cpu_enabled get_autocast_dtype get_autocast_gpu_dtype "
    "get_autocast_cpu_dtype typename memory_format contiguous_format preserve_format "
    "channels_last channels_last_3d layout strided",
    "amp": "GradScaler",
    "functions.modes": "enable_grad set_grad_enabled inference_mode is_grad_enabled",
    "nn.functional_random": "dropout alpha_dropout feature_alpha_dropout rrelu rrelu_",
    "nn.functional_orders": "conv_tbc native_channel_shuffle",
    "functions.older": "FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor "
    "ByteTensor BoolTensor Size dtype range chain_matmul frobenius_norm nuclear_norm",
    "ops.printing": "set_printoptions get_printoptions",
    "functions.places": "tril_indices triu_indices unravel_index gradient",
    "functions.histogram": "histogram histogramdd",
    "torch.native": "native_layer_norm native_group_norm native_batch_norm native_dropout_backward",
    "functions.bits": "hash_tensor",
    "functions.segments": "segment_reduce",
    "nn.functional_sampling": "grid_sampler grid_sampler_2d grid_sampler_3d",
    "nn.functional_losses": "bilinear",
    "nn.functional_bags": "embedding_bag",
    "nn.functional_ctc": "ctc_loss",
}
ELSEWHERE = {name: file for file, found in FILES.items() for name in found.split()}  # function -> its module


def named(name: str, module: str = "hcq.torch") -> Any:
    """What `hcq.torch.name` is. Raises AttributeError, for the module that was asked, where there is nothing of it."""
    from hcq.frontend import functions  # the tensor layer: not before a name of it is asked for

    if name in MODULES:
        return importlib.import_module(f"hcq.torch.{name}")
    if name in PLACES:
        return getattr(importlib.import_module(PLACES[name]), name)
    if name in ROWS[""]:
        return found("", name)
    if name in ELSEWHERE:
        return getattr(importlib.import_module(f"hcq.frontend.{ELSEWHERE[name]}"), name)
    if not name.startswith("_") and functions.has(name):
        return functions.named(name)
    from hcq.frontend.ops.late import Unknown

    raise Unknown(
        importlib.import_module("hcq.torch"), name, f"module {module!r} has no attribute or function"
    )


def every_name() -> list[str]:
    """All that `named` knows."""
    from hcq.frontend import functions

    return sorted(
        {
            *PLACES,
            *ELSEWHERE,
            *(name for name in MODULES if "." not in name),
            *ROWS[""],
            *functions.every_name(),
        }
    )


def short(name: str) -> Any:
    """What `hcq.name` is: a function, a dtype or a number of PyTorch's, without `torch`. Not a module.

    Raises  AttributeError, which says how the name is written in full where it is one of PyTorch's
    """
    if name in MODULES:
        raise AttributeError(
            f"hcq has no {name!r}: write hcq.torch.{name}, after `import hcq.torch`.", name=name
        )
    return named(name, "hcq")
