"""Footguns: what people do around a recorded function, each as without jit, call by call, or refused with a sentence.

A footgun (footguns_python.py, _calls.py, _training.py) is a generator that makes its calls with a `jit`, and yields all
that can be seen; it is run without jit and with it. Those in REFUSED are right until ours refuses.
"""

from __future__ import annotations

import doctest
from pathlib import Path

import numpy as np
import pytest

from hcq import Tensor, jit
from hcq.errors import UsageError
from tests.frontend import footguns_calls, footguns_python, footguns_training
from tests.frontend.footguns import FOOTGUNS

ALL = footguns_calls, footguns_python, footguns_training  # which put theirs into FOOTGUNS

REFUSED = {
    "item_inside": r"item while .* is recorded",
    "branch_on_tensor": r"item while .* is recorded",
    "numpy_inside": r"numpy while .* is recorded",
    "out_argument_list": r"changes a list or dict that is its argument",
    "lr_schedule_inside": r"StepLR.step.. while",
    "dataclass_in": r"an argument of type DC",
    "dataclass_out": r"returns a DC",
    "ordered_dict": r"returns a OrderedDict",
    "defaultdict_out": r"returns a defaultdict",
    "gradient_through": r"which keeps no graph",
    "gradient_to_argument": r"requires a gradient",
    "generator_function": r"returns a generator",
    "numpy_argument": r"an argument of type ndarray",
    "numpy_captured": r"new host data",
    "set_argument": r"an argument of type set",
    "float_argument_many": r"32 different shapes or plain values",
    "result_shape_tuple": r"returns a DType",
}
QUICK = """
attribute_number_changed_outside dict_entry_changed_outside list_of_numbers_grows_outside
list_of_tensors_entry_replaced_outside
attribute_tensor_replaced_outside method_self_number default_argument_mutated default_replaced
partial_argument callable_object lambda_argument class_attribute
nested_config property_config helper_method getattr_config
list_of_layers_grows closure_deep state_replaced_outside dropout_probability_changed
module_layer_replaced object_argument exception_during_record kwargs_order
dict_order none_vs_tensor item_inside branch_on_tensor
inplace_on_argument out_argument_list
""".split()


def seen(value):
    if isinstance(value, Tensor):
        return value.dtype.name, value.shape, value.detach().float().numpy().astype(np.float64)
    if isinstance(value, (list, tuple)):
        return [seen(each) for each in value]
    if isinstance(value, dict):
        return [(key, seen(each)) for key, each in value.items()]
    return repr(value)


def same(a, b):
    if isinstance(a, np.ndarray):
        return np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.thorough]) for n in FOOTGUNS]
)
def test_a_recorded_function_is_the_function_call_by_call_or_refused(name):
    Tensor.manual_seed(0)
    wanted = [seen(value) for value in FOOTGUNS[name](lambda function: function)]
    Tensor.manual_seed(0)
    found, error = [], None
    try:
        for value in FOOTGUNS[name](jit):
            found.append(seen(value))
    except UsageError as refused:
        error = refused
    for place, (a, b) in enumerate(zip(wanted, found)):
        assert same(a, b), f"look {place}: {b}, without jit {a}"
    if name in REFUSED:
        with pytest.raises(UsageError, match=REFUSED[name]):
            raise error or AssertionError("it was not refused")
    else:
        assert error is None and len(found) == len(wanted)
    Tensor.manual_seed(0)


def test_what_the_page_prints_is_what_it_prints_here():
    page = Path(__file__).resolve().parents[2] / "docs" / "jit.md"
    failed, tried = doctest.testfile(str(page), module_relative=False)
    assert tried > 4 and failed == 0
