"""Rows: names that PyTorch's programs use and that mean little here, each with the reason why.

In       the name of a module and what it is asked for: "backends.cudnn", "benchmark"
Out      a function that answers, ignores, gives back its argument or refuses; or a switch that nothing reads
Next     modules.py and names.py (who look here first)

A name with work behind it has a file of its own. A row says in one sentence why there is none to do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from hcq.errors import UsageError


class Row(NamedTuple):
    """What a name is.

    kind  "switch", "answers", "block", "same" or "refused"
    make  the name with its module -> the value
    why   one sentence
    """

    kind: str
    make: Callable[[str], Any]
    why: str


def switch(value: Any, why: str) -> Row:
    """A value that a program may set. Nothing reads it."""
    return Row("switch", lambda name: value, why)


def answers(value: Any, why: str) -> Row:
    """A function that always answers the same."""
    return Row("answers", lambda name: lambda *args, **options: value, why)


def does_nothing(why: str) -> Row:
    """A function that may be called: there is nothing to do."""
    return answers(None, why)


def block(why: str) -> Row:
    """A with-statement that may be entered: there is nothing to do."""

    @contextmanager
    def entered(*args: Any, **options: Any) -> Iterator[None]:
        yield

    return Row("block", lambda name: entered, why)


def same(why: str, argument: int = 0) -> Row:
    """A function, or a decorator with options, that gives its argument back."""

    def given(*args: Any, **options: Any) -> Any:
        if len(args) > argument and not isinstance(args[argument], bool):
            return args[argument]
        return lambda function: function

    return Row("same", lambda name: given, why)


def refused(instead: str) -> Row:
    """A function that says what to use instead."""

    def make(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **options: Any) -> Any:
            raise UsageError(f"[{name}] {instead}")

        if name.rpartition(".")[2][0].isupper():  # a class: programs ask isinstance, too
            return type(name.rpartition(".")[2], (), {"__new__": refuse})
        return refuse

    return Row("refused", make, instead)


COMPILED = "Its Python runs, and its operators are compiled in any case."
NOT_CALLED = "Kernels are compiled here: no such library is called."
ATTENTION = "Attention is compiled from its definition."

ROWS: dict[str, dict[str, Row]] = {
    "": {
        "set_num_threads": does_nothing("HCQ_THREADS sets them before the device opens."),
        "set_num_interop_threads": does_nothing("HCQ_THREADS sets them before the device opens."),
        "set_float32_matmul_precision": does_nothing("float32 is multiplied as float32."),
        "get_float32_matmul_precision": answers("highest", "float32 is multiplied as float32."),
        "use_deterministic_algorithms": does_nothing("The same program gives the same bits."),
        "are_deterministic_algorithms_enabled": answers(True, "The same program gives the same bits."),
        "is_storage": answers(False, "Memory is no object of a program's."),
    },
    "_dynamo": {"allow_in_graph": same(COMPILED), "disable": same(COMPILED)},
    "compiler": {
        "allow_in_graph": same(COMPILED),
        "disable": same(COMPILED),
        "is_compiling": answers(False, "Python runs."),
    },
    "jit": {
        "is_scripting": answers(False, "Python runs."),
        "is_tracing": answers(
            False, "A recording notes what is submitted, and not the Python that submits it."
        ),
        **dict.fromkeys(
            "script script_method script_if_tracing export unused ignore interface freeze optimize_for_inference "
            "_overload_method _script_if_tracing".split(),
            same(COMPILED),
        ),
        "annotate": same("The value: its type is for TorchScript.", argument=1),
        "Final": switch(Final, "Python's own."),
        "trace": refused("use hcq.jit(func): it records what the function submits, and replays that."),
        "save": refused(
            "nothing writes TorchScript. Use hcq.save(model.state_dict(), path), or hcq.save_program."
        ),
        "load": refused(
            "nothing runs TorchScript. Make the module in Python, and load_state_dict(hcq.load(path))."
        ),
    },
    "fx": {
        "wrap": same("A tracer, which is not here, would leave the function whole."),
        "Proxy": switch(type("Proxy", (), {}), "What a tensor is while torch.fx traces. There are none."),
        "symbolic_trace": refused(
            "operators build graphs of tensors here, which HCQ_DEBUG=schedule prints; no graph of Python is made. "
            "Change the module itself."
        ),
    },
    "onnx": {
        "export": refused(
            "nothing writes ONNX. Save model.state_dict(), or a program that runs alone: hcq.save_program."
        )
    },
    "hub": {
        "load": refused(
            "programs of others are not fetched and run. Fetch weights: hcq.torch.hub.load_state_dict_from_url."
        )
    },
    "optim": {"SparseAdam": refused("gradients are dense here: use Adam.")},
    "nn.parallel": {
        "DistributedDataParallel": refused(
            "start the processes with mpirun, and give the module to hcq.distributed.DataParallel: "
            "docs/distributed.md."
        )
    },
    "cuda": {"empty_cache": does_nothing("The pool gives large free blocks back by itself.")},
    "backends.cudnn": {
        "enabled": switch(False, NOT_CALLED),
        "benchmark": switch(False, NOT_CALLED),
        "deterministic": switch(True, NOT_CALLED),
        "allow_tf32": switch(False, NOT_CALLED),
        "is_available": answers(False, NOT_CALLED),
        "version": answers(None, NOT_CALLED),
        "flags": block(NOT_CALLED),
    },
    "backends.cuda": {
        "is_built": answers(True, "GPUs of NVIDIA and AMD can be used, on a machine that has one."),
        **dict.fromkeys(
            "enable_flash_sdp enable_mem_efficient_sdp enable_math_sdp enable_cudnn_sdp".split(),
            does_nothing(ATTENTION),
        ),
        "sdp_kernel": block(ATTENTION),
    },
    "backends.cuda.matmul": {
        "allow_tf32": switch(False, "Products are of the dtypes that they are given."),
        "allow_fp16_reduced_precision_reduction": switch(False, "Sums of products are float32."),
        "allow_bf16_reduced_precision_reduction": switch(False, "Sums of products are float32."),
    },
    "backends.mps": {"is_built": answers(True, "Metal devices can be used, on a machine that has one.")},
    **{
        f"backends.{library}": {
            "enabled": switch(False, NOT_CALLED),
            "is_available": answers(False, NOT_CALLED),
        }
        for library in ("mkl", "mkldnn", "openmp")
    },
}


def found(module: str, name: str) -> Any:
    """The value of a row. KeyError where there is none."""
    row = ROWS[module][name]
    value = row.make(f"{module}.{name}".lstrip("."))
    if callable(value) and not isinstance(value, type):
        try:
            value.__doc__, value.__name__, value.__module__ = row.why, name, "hcq.torch"
        except AttributeError:  # typing.Final
            pass
    return value
