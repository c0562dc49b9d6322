"""Modules: containers, buffers, hooks, parametrisations, moves, and states of well-known models by their names."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from hcq import Tensor, dtypes, nn
from hcq.errors import UsageError
from hcq.frontend.nn.utils import parametrizations, parametrize, rnn


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(Tensor([2.0, 3.0]))
        self.scratch = Tensor([9.0, 9.0])  # the module's own matter
        self.register_buffer("mask", Tensor([1.0, 0.0]))
        self.register_buffer("cache", Tensor([5.0]), persistent=False)
        self.register_parameter("none", None)

    def forward(self, x):
        return x * self.scale * self.mask


def test_parameters_buffers_and_other_tensors_are_told_apart():
    m = Masked()
    assert [n for n, _ in m.named_parameters()] == ["scale"]
    assert [n for n, _ in m.named_buffers()] == ["mask", "cache"]
    assert list(m.state_dict()) == ["scale", "mask"]
    m.scale.requires_grad_(False)
    assert [n for n, _ in m.named_parameters()] == ["scale"]


def test_a_tensor_that_required_a_gradient_is_a_parameter_when_it_is_frozen():
    m = nn.Module()
    m.w = Tensor([1.0], requires_grad=True)
    m.requires_grad_(False)
    assert [n for n, _ in m.named_parameters()] == ["w"]


def test_what_is_computed_from_a_parameter_is_a_tensor():
    p = nn.Parameter(Tensor([1.0]))
    assert type(p) is nn.Parameter and type(p + 1) is Tensor and type(copy.deepcopy(p)) is nn.Parameter


def test_containers_name_their_parts_as_lists_and_dicts_do():
    d = nn.ModuleDict({"a": nn.Linear(1, 2), "b": nn.ReLU()})
    d["c"] = nn.Linear(2, 1, bias=False)
    assert list(d.state_dict()) == ["a.weight", "a.bias", "c.weight"] and d.pop("b") and list(d) == ["a", "c"]
    rows = nn.ModuleList([nn.Linear(1, 1)]).append(nn.ReLU())
    rows.insert(0, nn.Tanh())
    rows += [nn.Identity()]
    assert [type(part).__name__ for part in rows] == ["Tanh", "Linear", "ReLU", "Identity"]
    del rows[0]
    assert list(rows.state_dict()) == ["0.weight", "0.bias"]
    named = nn.Sequential({"first": nn.Linear(2, 2), "act": nn.ReLU()})
    named.add_module("last", nn.Linear(2, 1))
    assert named.first is named[0] and len(named) == 3 and named(Tensor.ones(4, 2)).shape == (4, 1)
    assert list(named[1:].state_dict()) == ["last.weight", "last.bias"]
    weights = nn.ParameterDict({"x": Tensor([1.0]), "y": Tensor([2.0])})
    assert [n for n, _ in weights.named_parameters()] == ["x", "y"] and weights["x"].requires_grad


def test_submodules_are_reached_replaced_and_applied_to_by_name():
    net = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), nn.Linear(2, 1))
    assert net.get_submodule("0.0") is net[0][0] and net.get_parameter("1.bias") is net[1].bias
    net.set_submodule("0.1", nn.Tanh())
    assert isinstance(net[0][1], nn.Tanh)
    seen = []
    net.apply(lambda module: seen.append(type(module).__name__))
    assert seen == ["Linear", "Tanh", "Sequential", "Linear", "Sequential"]
    with pytest.raises(UsageError, match=r"Sequential has no module 'x'; it has \['0', '1'\]"):
        net.get_submodule("x")


def test_moving_to_a_dtype_changes_floats_in_place_and_leaves_integers():
    net = nn.BatchNorm1d(2)
    weight = net.weight
    net.to(dtypes.float64)
    assert (
        net.weight is weight and weight.dtype is dtypes.float64 and net.running_mean.dtype is dtypes.float64
    )
    assert net.num_batches_tracked.dtype is dtypes.int64
    assert net.half().weight.dtype is dtypes.float16


def test_a_tied_weight_is_saved_under_both_names_and_loaded():
    class Tied(nn.Module):
        def __init__(self):
            self.table = nn.Embedding(3, 2)
            self.head = nn.Linear(2, 3, bias=False)
            self.head.weight = self.table.weight

    m = Tied()
    assert list(m.state_dict()) == ["table.weight", "head.weight"] and len(list(m.parameters())) == 1
    assert repr(m.load_state_dict(m.state_dict())) == "<All keys matched successfully>"


def test_a_state_that_does_not_fit_is_refused_with_everything_that_differs():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))
    state = {
        "0.weight": Tensor.zeros(3, 3),
        "0.bias": Tensor.zeros(4),
        "1.weight": Tensor.zeros(1, 3),
        "x": Tensor([1.0]),
    }
    with pytest.raises(
        UsageError, match=r"missing: 1\.bias; unknown: x; 0\.weight has shape .*; 0\.bias has shape"
    ):
        net.load_state_dict(state)
    found = net.load_state_dict({"1.bias": np.ones(1, np.float32), "x": 1}, strict=False)
    assert found.missing_keys == ["0.weight", "0.bias", "1.weight"] and found.unexpected_keys == ["x"]
    assert net[1].bias.tolist() == [1.0]


def test_assigned_state_takes_the_place_of_what_was_there():
    net, value = nn.Sequential(nn.Linear(2, 1, bias=False)), Tensor([[1.0, 2.0]], dtype=dtypes.float64)
    net.load_state_dict({"0.weight": value}, assign=True)
    assert net[0].weight.dtype is dtypes.float64 and net[0].weight.requires_grad
    assert net[0].weight.tolist() == [[1.0, 2.0]]


def test_hooks_see_and_change_what_goes_in_and_comes_out():
    layer, seen = nn.Identity(), []
    first = layer.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    layer.register_forward_hook(lambda module, args, y: seen.append(args[0].tolist()))
    layer.register_forward_hook(lambda module, args, kwargs, y: y * 10, with_kwargs=True, prepend=True)
    assert layer(Tensor([1.0])).tolist() == [20.0] and seen == [[2.0]]
    first.remove()
    assert layer(Tensor([1.0])).tolist() == [10.0]


@pytest.mark.torch
def test_backward_hooks_get_pytorchs_gradients():
    torch = pytest.importorskip("torch")

    def gradients(library, tensor, module):
        seen = []
        module.register_full_backward_pre_hook(lambda m, g: (g[0] * 2,))
        module.register_full_backward_hook(lambda m, gi, go: seen.append((gi[0], gi[1], go[0])))
        module.register_full_backward_hook(lambda m, gi, go: (gi[0] * 3, gi[1]))
        x, y = tensor([[1.0, 2.0]]), tensor([[3.0, -1.0, 2.0]])
        x.requires_grad, y.requires_grad = True, True
        module(x, y).sum().backward()
        return [
            np.array(g.tolist()) for g in (*seen[0], x.grad, y.grad, *(p.grad for p in module.parameters()))
        ]

    theirs = torch.nn.Bilinear(2, 3, 2)
    ours = nn.Bilinear(2, 3, 2)
    ours.load_state_dict(theirs.state_dict())
    for a, b in zip(gradients(nn, Tensor, ours), gradients(torch.nn, torch.tensor, theirs)):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_hook_of_a_first_layer_gets_no_gradient_of_its_input():
    layer, seen = nn.Linear(2, 1), []
    layer.register_full_backward_hook(lambda module, gi, go: seen.append((gi, go[0].tolist())))
    layer(Tensor([[1.0, 2.0]])).sum().backward()
    assert seen == [((None,), [[1.0]])]


def test_hooks_of_states_can_rename_what_is_loaded_and_change_what_is_saved():
    layer = nn.Linear(1, 1, bias=False)
    layer.register_state_dict_post_hook(
        lambda m, state, prefix, meta: state.update({prefix + "w": state.pop(prefix + "weight")})
    )
    net = nn.Sequential(layer)
    assert list(net.state_dict()) == ["0.w"]
    layer.register_load_state_dict_pre_hook(
        lambda m, state, prefix, *rest: state.update({prefix + "weight": state.pop(prefix + "w")})
    )
    net.load_state_dict({"0.w": Tensor([[7.0]])})
    assert layer.weight.tolist() == [[7.0]]


@pytest.mark.torch
@pytest.mark.parametrize(
    "name, kwargs",
    [
        ("weight_norm", {}),
        pytest.param("weight_norm", {"dim": None}, marks=pytest.mark.thorough),
        pytest.param("spectral_norm", {}, marks=pytest.mark.thorough),
    ],
)
def test_parametrised_weights_load_and_compute_as_pytorchs(name, kwargs):
    torch = pytest.importorskip("torch")
    theirs = getattr(torch.nn.utils.parametrizations, name)(torch.nn.Linear(3, 2), **kwargs)
    ours = getattr(parametrizations, name)(nn.Linear(3, 2), **kwargs)
    ours.load_state_dict(theirs.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x = np.ones((1, 3), np.float32)
    for _ in range(2):  # power iteration moves on
        y, z = ours(Tensor(x)), theirs(torch.tensor(x))
        np.testing.assert_allclose(y.numpy(), z.detach().numpy(), rtol=1e-5)
    y.sum().backward()
    z.sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters()):
        np.testing.assert_allclose(a.grad.numpy(), b.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_a_parametrisation_is_removed_with_or_without_its_effect():
    class Double(nn.Module):
        def forward(self, x):
            return x * 2

        def right_inverse(self, x):
            return x / 2

    layer = nn.Linear(1, 1, bias=False)
    layer.weight.assign(Tensor([[3.0]])).realize()
    parametrize.register_parametrization(layer, "weight", Double())
    assert parametrize.is_parametrized(layer, "weight") and layer.weight.tolist() == [[3.0]]
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert type(layer) is nn.Linear and layer.weight.tolist() == [[1.5]]


@pytest.mark.torch
@pytest.mark.thorough
def test_packed_sequences_go_through_recurrent_layers_as_pytorchs_do():
    torch = pytest.importorskip("torch")
    x, lengths = np.random.default_rng(0).standard_normal((3, 3, 2)).astype(np.float32), [1, 3, 2]
    theirs = torch.nn.LSTM(2, 2, batch_first=True, bidirectional=True)
    ours = nn.LSTM(2, 2, batch_first=True, bidirectional=True)
    ours.load_state_dict(theirs.state_dict())
    options = {"batch_first": True, "enforce_sorted": False}
    y, (h, c) = ours(rnn.pack_padded_sequence(Tensor(x), lengths, **options))
    z, (k, d) = theirs(torch.nn.utils.rnn.pack_padded_sequence(torch.tensor(x), lengths, **options))
    assert list(y.batch_sizes) == z.batch_sizes.tolist()
    padded, counts = rnn.pad_packed_sequence(y, batch_first=True)
    wanted, _ = torch.nn.utils.rnn.pad_packed_sequence(z, batch_first=True)
    assert counts.tolist() == lengths
    for a, b in ((padded, wanted), (h, k), (c, d)):
        np.testing.assert_allclose(a.numpy(), b.detach().numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.torch
@pytest.mark.thorough
def test_pooled_elements_go_back_to_where_they_were():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).standard_normal((1, 2, 4, 4)).astype(np.float32)
    y = nn.MaxUnpool2d(2)(*nn.MaxPool2d(2, return_indices=True)(Tensor(x)))
    z = torch.nn.MaxUnpool2d(2)(*torch.nn.MaxPool2d(2, return_indices=True)(torch.tensor(x)))
    np.testing.assert_array_equal(y.numpy(), z.numpy())


def test_stacks_of_transformer_layers_begin_as_copies_of_one():
    one = nn.TransformerEncoderLayer(4, 2, 8, 0.0)
    stack = nn.TransformerEncoder(one, 2)
    names = list(stack.state_dict())
    assert names[0] == "layers.0.self_attn.in_proj_weight" and len(names) == 24
    assert stack.layers[0].linear1.weight is not stack.layers[1].linear1.weight
    assert stack.layers[0].linear1.weight.tolist() == one.linear1.weight.tolist()
    assert "(0-1): 2 x TransformerEncoderLayer(" in repr(stack)


# -- well-known models: names and shapes of their states --------------------------------------------------------------


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.layer1 = nn.Sequential(BasicBlock(4, 4, 1))
        self.layer2 = nn.Sequential(BasicBlock(4, 8, 2))
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        return self.fc(nn.functional.adaptive_avg_pool2d(x, 1).flatten(1))


def torchvision_names():
    def norm(name, n):
        found = {f"{name}.{key}": (n,) for key in ("weight", "bias", "running_mean", "running_var")}
        return {**found, f"{name}.num_batches_tracked": ()}

    names = {"conv1.weight": (4, 3, 7, 7), **norm("bn1", 4)}
    for layer, (inside, outside) in {"layer1.0": (4, 4), "layer2.0": (4, 8)}.items():
        names[f"{layer}.conv1.weight"] = (outside, inside, 3, 3)
        names |= norm(f"{layer}.bn1", outside)
        names[f"{layer}.conv2.weight"] = (outside, outside, 3, 3)
        names |= norm(f"{layer}.bn2", outside)
    names["layer2.0.downsample.0.weight"] = (8, 4, 1, 1)
    return {**names, **norm("layer2.0.downsample.1", 8), "fc.weight": (2, 8), "fc.bias": (2,)}


class Gpt(nn.Module):
    """GPT-2 as transformers names it: attention's matrices are (in, out), and the causal mask is no state."""

    def __init__(self, width=4):
        super().__init__()
        self.transformer = nn.ModuleDict({"wte": nn.Embedding(7, width), "wpe": nn.Embedding(5, width)})
        block = nn.Module()
        block.ln_1, block.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        block.attn, block.mlp = nn.Module(), nn.Module()
        for holder, name, inside, outside in (
            (block.attn, "c_attn", width, 3 * width), (block.attn, "c_proj", width, width),
            (block.mlp, "c_fc", width, 4 * width), (block.mlp, "c_proj", 4 * width, width),
        ):  # fmt: skip
            part = nn.Module()
            part.weight, part.bias = (
                nn.Parameter(Tensor.zeros(inside, outside)),
                nn.Parameter(Tensor.zeros(outside)),
            )
            holder.add_module(name, part)
        block.attn.register_buffer("bias", Tensor.ones(5, 5).tril(), persistent=False)
        self.transformer["h"] = nn.ModuleList([block])
        self.transformer["ln_f"] = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, 7, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight


def gpt_names():
    names = {"transformer.wte.weight": (7, 4), "transformer.wpe.weight": (5, 4)}
    for name, shape in {
        "attn.c_attn": (4, 12),
        "attn.c_proj": (4, 4),
        "mlp.c_fc": (4, 16),
        "mlp.c_proj": (16, 4),
    }.items():
        names |= {f"transformer.h.0.{name}.weight": shape, f"transformer.h.0.{name}.bias": shape[1:]}
    for name in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
        names |= {f"transformer.{name}.weight": (4,), f"transformer.{name}.bias": (4,)}
    return {**names, "lm_head.weight": (7, 4)}


class Llama(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(7, width)
        layer = nn.Module()
        layer.self_attn = nn.ModuleDict(
            {f"{name}_proj": nn.Linear(width, size, bias=False) for name, size in zip("qkvo", (4, 2, 2, 4))}
        )
        layer.mlp = nn.ModuleDict(
            {"gate_proj": nn.Linear(width, 6, bias=False), "up_proj": nn.Linear(width, 6, bias=False)}
        )
        layer.mlp["down_proj"] = nn.Linear(6, width, bias=False)
        layer.input_layernorm, layer.post_attention_layernorm = nn.RMSNorm(width), nn.RMSNorm(width)
        self.model.layers = nn.ModuleList([layer])
        self.model.norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, 7, bias=False)


def llama_names():
    start = "model.layers.0."
    names = {f"{start}self_attn.{n}_proj.weight": (size, 4) for n, size in zip("qkvo", (4, 2, 2, 4))}
    names |= {f"{start}mlp.gate_proj.weight": (6, 4), f"{start}mlp.up_proj.weight": (6, 4)}
    names |= {f"{start}mlp.down_proj.weight": (4, 6), f"{start}input_layernorm.weight": (4,)}
    names |= {f"{start}post_attention_layernorm.weight": (4,), "model.norm.weight": (4,)}
    return {**names, "model.embed_tokens.weight": (7, 4), "lm_head.weight": (7, 4)}


class Bert(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(7, width, padding_idx=0), "position_embeddings": nn.Embedding(5, width),
                "token_type_embeddings": nn.Embedding(2, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12),
            }
        )  # fmt: skip

        def dense(inside, outside, norm=False):
            parts = {"dense": nn.Linear(inside, outside)}
            return nn.ModuleDict({**parts, "LayerNorm": nn.LayerNorm(outside)} if norm else parts)

        heads = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
        layer = nn.ModuleDict(
            {"attention": nn.ModuleDict({"self": heads, "output": dense(width, width, True)})}
        )
        layer.update({"intermediate": dense(width, 8), "output": dense(8, width, True)})
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList([layer])})
        self.pooler = dense(width, width)


def bert_names():
    def linear(name, inside, outside):
        return {f"{name}.weight": (outside, inside), f"{name}.bias": (outside,)}

    def norm(name):
        return {f"{name}.weight": (4,), f"{name}.bias": (4,)}

    names = {
        f"embeddings.{name}_embeddings.weight": (n, 4)
        for name, n in (("word", 7), ("position", 5), ("token_type", 2))
    }
    start = "encoder.layer.0."
    for name in ("query", "key", "value"):
        names |= linear(f"{start}attention.self.{name}", 4, 4)
    names |= {**linear(f"{start}attention.output.dense", 4, 4), **linear(f"{start}intermediate.dense", 4, 8)}
    names |= {**linear(f"{start}output.dense", 8, 4), **linear("pooler.dense", 4, 4)}
    return {
        **names,
        **norm("embeddings.LayerNorm"),
        **norm(f"{start}attention.output.LayerNorm"),
        **norm(f"{start}output.LayerNorm"),
    }


@pytest.mark.parametrize(
    "make, names",
    [(ResNet, torchvision_names), (Gpt, gpt_names), (Llama, llama_names), (Bert, bert_names)],
    ids=lambda each: each.__name__,
)
def test_states_of_well_known_models_load_by_their_names(make, names):
    model, rng = make(), np.random.default_rng(0)
    state = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in names().items()}
    if "lm_head.weight" in state and make is Gpt:
        state["lm_head.weight"] = state["transformer.wte.weight"]
    assert repr(model.load_state_dict(state)) == "<All keys matched successfully>"
    for name, tensor in model.state_dict().items():
        np.testing.assert_allclose(tensor.numpy(), state[name].astype(tensor.dtype.name), err_msg=name)
    if make is ResNet:
        assert model.eval()(Tensor.ones(1, 3, 8, 8)).shape == (1, 2)


def test_a_parameter_meets_lists_arrays_and_masks_as_any_tensor_does():
    p = nn.Parameter(Tensor([1.0, 2.0]))
    assert (p * [2.0, 3.0]).tolist() == (p * np.array([2.0, 3.0], np.float32)).tolist() == [2.0, 6.0]
    assert (p == [1.0, 3.0]).tolist() == [True, False]
    assert p[p > 1.5].tolist() == [2.0]
    assert p.nonzero().tolist() == [[0], [1]]
    assert type(p.repeat_interleave([1, 2])) is Tensor
