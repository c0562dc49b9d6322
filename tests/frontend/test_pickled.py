"""Pickles and deep copies: a tensor comes back with its numbers, dtype and device, in memory of its own."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import pytest

import hcq
from hcq import Tensor, dtypes, jit, nn, no_grad
from hcq.errors import UsageError

TENSORS = {
    "numbers": lambda: Tensor([[1.5, 2.0], [3.0, -4.0]]),
    "view": lambda: hcq.tensor([[1, 2, 3], [4, 5, 6]]).realize().T[1:],
    "lazy": lambda: Tensor([1.0, 2.0]).exp() + 1,
    "constant": lambda: hcq.tensor(5),
    "nothing": lambda: Tensor.zeros(0, 3),
    "bool": lambda: hcq.tensor([True, False]),
    "narrow": lambda: Tensor([1.0, -2.5]).cast(dtypes.bfloat16),
    "leaf": lambda: Tensor([1.0, 2.0], requires_grad=True),
    "parameter": lambda: nn.Parameter(Tensor([1.0, 2.0])),
    "frozen": lambda: nn.Parameter(Tensor([1.0]), requires_grad=False),
    "complex": lambda: Tensor([1 + 2j, 3 - 1j]),
    "split": lambda: _on_two(0),
    "on each": lambda: _on_two(None),
}


def _on_two(axis):
    x = Tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    return x.shard(("CPU:0", "CPU:1"), axis)


def through_a_pickle(value, protocol=None):
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("again", [through_a_pickle, copy.deepcopy])
@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_comes_back_as_it_was_in_memory_of_its_own(kind, again):
    tensor = TENSORS[kind]()
    found = again(tensor)
    facts = [(t.tolist(), t.dtype, t.shape, t.device, t.requires_grad, type(t)) for t in (tensor, found)]
    assert facts[0] == facts[1]
    if tensor.numel():
        with no_grad():
            found[...] = 0
        assert tensor.tolist() == facts[0][0] != found.tolist()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_every_protocol_of_pickle_carries_a_tensor(protocol):
    assert through_a_pickle(Tensor([1.0, 2.0]), protocol).tolist() == [1.0, 2.0]


def test_numbers_may_travel_beside_the_pickle():
    buffers = []
    text = pickle.dumps(Tensor.arange(1000), protocol=5, buffer_callback=buffers.append)
    assert len(text) < 500 and len(buffers) == 1
    assert pickle.loads(text, buffers=buffers).tolist() == list(range(1000))


def test_numbers_beside_the_pickle_are_let_go_one_tensor_after_the_other():
    count, size = 8, 1 << 16
    pickled = pickle.dumps(
        [Tensor.rand(size).realize() for _ in range(count)], 5, buffer_callback=lambda _: None
    )
    tracemalloc.start()
    again = pickle.loads(pickled, buffers=(bytearray(4 * size) for _ in range(count)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [x.shape for x in again] == [(size,)] * count
    assert peak < 3 * 4 * size


def test_one_tensor_that_is_there_twice_is_one_again():
    x = Tensor([1.0])
    found = through_a_pickle({"a": x, "b": [x]})
    assert found["a"] is found["b"][0]


def test_a_model_goes_through_a_pickle_and_is_trained_on_where_it_is():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
    x = Tensor([[1.0, 2.0], [3.0, -1.0]])
    model(x)
    found = through_a_pickle(model)
    results = []
    for each in (model, found):
        step = nn.optim.SGD(each.parameters(), lr=0.1)
        (each(x) ** 2).sum().backward()
        step.step()
        results.append([tensor.tolist() for tensor in each.state_dict().values()])
    assert results[0] == results[1]
    with pytest.raises(UsageError, match=r"\[pickle\] SGD: .* state_dict"):
        pickle.dumps(step)


def test_a_deep_copy_has_a_copy_of_the_gradient():
    for leaf in (Tensor([2.0], requires_grad=True), nn.Parameter(Tensor([2.0]))):
        (leaf * leaf).sum().backward()
        found = copy.deepcopy(leaf)
        assert found.grad.item() == 4.0 and found.grad is not leaf.grad
        leaf.grad.mul_(2)
        assert found.grad.item() == 4.0


class Layer(nn.Module):
    """A layer whose call is recorded."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(Tensor([2.0]))

    @jit
    def forward(self, x):
        return x * self.weight


@jit
def recorded(x):
    return x + 1


def test_a_recorded_function_is_found_by_its_name_and_a_recorded_method_in_its_object():
    assert through_a_pickle(recorded) is recorded
    layer = Layer()
    for _ in range(3):
        layer(Tensor([1.0]))
    found = through_a_pickle(layer)
    with no_grad():
        found.weight.mul_(2)
    for _ in range(4):
        assert (layer(Tensor([3.0])).item(), found(Tensor([3.0])).item()) == (6.0, 12.0)


def test_a_recorded_function_that_no_module_has_is_refused():
    with pytest.raises(UsageError, match=r"\[pickle\] .*save_program"):
        pickle.dumps(jit(lambda x: x))


def test_a_tensor_is_not_pickled_inside_of_a_recording():
    f = jit(lambda x: pickle.dumps(x) and x)
    f(Tensor([1.0]))
    with pytest.raises(UsageError, match=r"pickle while .* is recorded"):
        f(Tensor([1.0]))
