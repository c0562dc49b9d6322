"""Models with experts, windows beside full layers and stretched positions: from GGUF files, and against NumPy."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError
from hcq.frontend.io.gguf_writer import Packed
from hcq.frontend.more.llm.configuration import Configuration, Experts, of_config, of_gguf
from hcq.frontend.more.llm.files import open_model
from hcq.frontend.more.llm.model import Model, mixture
from hcq.frontend.more.llm.names import IN_A_LAYER, OUTSIDE, weights_of, words_of
from hcq.frontend.more.llm.session import Session
from hcq.frontend.more.llm.stretching import PLAIN, Linear, Llama3, Long, Yarn
from tests.frontend.more.llm import test_hostile, test_model
from tests.frontend.more.llm.test_model import LLAMA, METADATA, TOKENS

BOTH = frozenset({0, 1})
EXPERTS = Experts(4, 2, 32, 64, False, BOTH)
SCALE = 8**-0.5
# what GGUF's metadata say, beside those of a small Llama, and what they mean
MODELS: dict[str, tuple[str, dict[str, Any], Configuration]] = {
    "mixtral": (
        "llama",
        {"expert_count": 4, "expert_used_count": 2},
        replace(LLAMA, is_interleaved=True, experts=Experts(4, 2, 64, 0, True, BOTH)),
    ),
    "qwen2moe": (
        "qwen2moe",
        {
            "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
        },
        replace(LLAMA, architecture="qwen2moe", experts=EXPERTS),
    ),
    "qwen3moe": (
        "qwen3moe",
        {
            "expert_count": 4, "expert_used_count": 3, "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32, "expert_feed_forward_length": 32,
        },
        replace(
            LLAMA, architecture="qwen3moe", experts=Experts(4, 3, 32, 0, True, BOTH),
            stretch=Yarn(0.1 * math.log(4) + 1, 4.0, 32.0),
        ),
    ),
    "gemma3": (
        "gemma3",
        {
            "attention.key_length": 8, "attention.sliding_window": 4, "attention.sliding_window_pattern": 2,
            "rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
        },
        replace(
            LLAMA, architecture="gemma3", window=4, windowed=(True, False), rotary_base=1e6, local_base=1e4,
            stretch=Linear(factor=8.0), attention_scale=SCALE, activation="gelu_tanh", embedding_scale=math.sqrt(32),
        ),
    ),
    "phi3": (
        "phi3",
        {"rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.25},
        replace(LLAMA, architecture="phi3", stretch=Long(1.25, 16.0)),
    ),
}  # fmt: skip


def metadata_of(kind: str, more: dict[str, Any]) -> dict[str, Any]:
    found = {key.replace("llama.", f"{kind}."): value for key, value in METADATA.items()}
    return found | {"general.architecture": kind} | {f"{kind}.{key}": value for key, value in more.items()}


@pytest.mark.parametrize("name", MODELS)
def test_metadata_mean_the_configuration(name: str) -> None:
    kind, more, expected = MODELS[name]
    assert of_gguf(metadata_of(kind, more), 97, has_factors=name == "phi3") == expected


def gguf_of(w: dict[str, Any], c: Configuration) -> dict[str, Any]:
    """Tensors under GGUF's names; the experts of qwen2moe quantised, 32 numbers a block."""
    words = {ours: theirs for theirs, ours in words_of(IN_A_LAYER, True).items()}
    plain = {ours: theirs for theirs, ours in words_of(OUTSIDE, True).items()}
    found: dict[str, Any] = {}
    for name, array in w.items():
        layer, _, word = name.rpartition(".")
        theirs = f"blk.{layer}.{words[word]}" if layer else plain[name]
        tensor: Any = Tensor(array)
        if word.endswith("_experts") and c.architecture == "qwen2moe":
            scale = np.abs(array.reshape(-1, 32)).max(-1, keepdims=True).astype(np.float16) / np.float16(127)
            steps = np.round(array.reshape(-1, 32) / scale.astype(np.float32)).clip(-127, 127).astype(np.int8)
            raw = np.concatenate([scale.view(np.int8), steps], -1)
            w[name] = (steps * scale.astype(np.float32)).reshape(array.shape)
            tensor = Packed("Q8_0", array.shape, raw.tobytes())
        found[f"{theirs}.weight"] = tensor
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_a_gguf_file_with_merged_experts_gives_the_logits_of_its_weights(tmp_path: Path, name: str) -> None:
    kind, more, c = MODELS[name]
    w = test_model.weights_of(c)
    factors = {"rotary_short": [1.0, 1.5, 2.0, 3.0], "rotary_long": [1.0, 2.0, 4.0, 8.0]}
    extra = {n: np.array(v, np.float32) for n, v in factors.items()} if name == "phi3" else {}
    tensors = gguf_of(w | extra, c) if name != "qwen2moe" else gguf_of(w, c)
    hcq.save(tensors, tmp_path / "x.gguf", metadata_of(kind, more))
    for room in (16, 32):
        own = replace(c, stretch=Long(1.25, 16.0, *map(tuple, factors.values()))) if extra else c
        session = Session(Model(own, {n: Tensor(a) for n, a in w.items()}), room)
        opened = Session(open_model(tmp_path / "x.gguf").model, room)
        for tokens in (TOKENS[:9], TOKENS[9:10]):
            np.testing.assert_allclose(opened.read(tokens).numpy(), session.read(tokens).numpy(), atol=2e-4)
        if not extra:
            return


def bent(x: Any) -> Any:
    return x / (1 + np.exp(-x))


@pytest.mark.parametrize("is_normed", [False, True])
def test_a_mixture_is_the_sum_over_the_experts_that_each_token_takes(is_normed: bool) -> None:
    draw = np.random.default_rng(0)
    e = replace(EXPERTS, is_normed=is_normed, inner=6, shared=5)
    shapes = {
        "router": (4, 8), "gate_experts": (4, 6, 8), "up_experts": (4, 6, 8), "down_experts": (4, 8, 6),
        "shared_router": (8,), "shared_gate": (5, 8), "shared_up": (5, 8), "shared_down": (8, 5),
    }  # fmt: skip
    w = {name: draw.standard_normal(shape) for name, shape in shapes.items()}
    x = draw.standard_normal((3, 8))
    tensors = {name: Tensor(array.astype(np.float32)) for name, array in w.items()}
    found = mixture(Tensor(x.astype(np.float32)), e, tensors.__getitem__, lambda y: y.silu()).numpy()
    for token, row in enumerate(x):
        shares = np.exp(w["router"] @ row)
        shares /= shares.sum()
        taken = np.argsort(-shares)[:2]
        total = shares[taken].sum() if is_normed else 1.0
        expected = w["shared_down"] @ (bent(w["shared_gate"] @ row) * (w["shared_up"] @ row))
        expected = expected / (1 + np.exp(-(w["shared_router"] @ row)))
        for i in taken:
            inner = bent(w["gate_experts"][i] @ row) * (w["up_experts"][i] @ row)
            expected = expected + shares[i] / total * (w["down_experts"][i] @ inner)
        np.testing.assert_allclose(found[token], expected, atol=1e-4)


def test_stretched_positions_turn_at_the_speeds_of_their_definitions() -> None:
    plain = PLAIN.speeds(10000.0, 64, 0)
    assert plain == [10000.0 ** (-i / 32) for i in range(32)]
    for stretch in (Yarn(1.0, 8.0, 4096.0), Llama3(1.0, 8.0, 1.0, 4.0, 4096.0)):
        ratios = [speed / before for speed, before in zip(stretch.speeds(10000.0, 64, 0), plain, strict=True)]
        assert ratios[0] == 1 and ratios[-1] == pytest.approx(1 / 8)  # fast ones stay, slow ones are slowed
        assert all(one >= other for one, other in zip(ratios, ratios[1:], strict=False))
        turns = [4096 * speed / (2 * math.pi) for speed in plain]
        fast = 32 if isinstance(stretch, Yarn) else 4
        assert all(ratio == 1 for ratio, count in zip(ratios[:-1], turns[1:], strict=True) if count > fast)
    factors = tuple(float(i + 1) for i in range(32))
    long = Long(1.0, 100.0, (1.0,) * 32, factors)
    assert long.speeds(10000.0, 64, 100) == plain
    assert long.speeds(10000.0, 64, 101) == [
        speed / factor for speed, factor in zip(plain, factors, strict=True)
    ]


QWEN3: dict[str, Any] = test_model.SMALL | {
    "model_type": "qwen3_moe", "rms_norm_eps": 1e-5, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "decoder_sparse_step": 1, "mlp_only_layers": [0], "norm_topk_prob": True, "use_sliding_window": True,
    "sliding_window": 6, "layer_types": ["full_attention", "sliding_attention"],
    "rope_parameters": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0, "beta_slow": 1.0,
        "attention_factor": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "truncate": True,
    },
}  # fmt: skip
PHI3: dict[str, Any] = test_model.SMALL | {
    "model_type": "phi3", "rms_norm_eps": 1e-5, "original_max_position_embeddings": 32,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [2.0] * 4},
}  # fmt: skip
GEMMA3: dict[str, Any] = test_model.SMALL | {
    "model_type": "gemma3_text", "rms_norm_eps": 1e-5, "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 4,
    "sliding_window_pattern": 2, "rope_local_base_freq": 1e4,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
        "sliding_attention": {"rope_theta": 1e4},
    },
}  # fmt: skip


def test_configurations_of_wrong_kinds_and_sizes_are_refused_in_one_sentence() -> None:
    for config, count in ((QWEN3, 200), (PHI3, 100), (GEMMA3, 100)):
        assert test_hostile.refused(config, of_config) > count
    for name in ("qwen2moe", "qwen3moe"):
        kind, more, _ = MODELS[name]
        assert test_hostile.refused(metadata_of(kind, more), lambda facts: of_gguf(facts, 97)) > 100


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (GEMMA3 | {"text_config": {}}, "reads more than text"),
        (QWEN3 | {"layer_types": ["full_attention", "chunked"]}, "full_attention or sliding_attention"),
        (QWEN3 | {"num_experts_per_tok": 5}, "from 1 to 4"),
        (PHI3 | {"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 3}}, "short_factor"),
        (QWEN3 | {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0}}, "more than the second"),
    ],
)  # fmt: skip
def test_what_is_not_known_says_why(config: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of_config(config)


def test_experts_that_are_missing_are_told() -> None:
    c = replace(LLAMA, architecture="qwen3moe", experts=Experts(3, 2, 16, 0, True, BOTH))
    some = {f"model.layers.0.mlp.experts.{i}.up_proj.weight": Tensor.zeros(16, 32) for i in (0, 2)}
    with pytest.raises(UsageError, match=r"0\.up_experts is of 2 experts, numbered up to 2; the model has 3"):
        weights_of(some, "safetensors", c)
    others = {f"model.layers.0.mlp.experts.{i}.up_proj.weight": Tensor.zeros(16 + i, 32) for i in range(3)}
    with pytest.raises(UsageError, match="which have to be alike"):
        weights_of(others, "safetensors", c)
