"""Language models give the logits of transformers, and those of a reference in NumPy, in pieces and token by token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor, UsageError
from hcq.frontend.io.gguf_writer import Packed
from hcq.frontend.more.llm.configuration import Configuration, of_config
from hcq.frontend.more.llm.files import open_model
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.names import shapes_of
from hcq.frontend.more.llm.session import PIECE, Session

TOKENS = [1, 5, 9, 33, 2, 7, 90, 3, 8, 11, 12]
LLAMA = Configuration("llama", 97, 32, 2, 4, 2, 8, 64, 128, rotary_size=8)
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.embedding_length": 32,
    "llama.block_count": 2,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.feed_forward_length": 64,
    "llama.context_length": 128,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}

NO_WORDS = {"tokenizer.ggml.model": "no_vocab"}  # what llama.cpp's files without a vocabulary say


def weights_of(model: Configuration, seed: int = 0) -> dict[str, Any]:
    draw = np.random.default_rng(seed)
    found = {}
    for name, shape in shapes_of(model).items():
        scale = shape[-1] ** -0.5 if len(shape) > 1 else 0.1
        found[name] = (draw.standard_normal(shape) * scale + (len(shape) == 1)).astype(np.float32)
    return found


def reference(c: Configuration, w: dict[str, Any], tokens: list[int], slower: Any = 1.0) -> Any:
    """Logits of Llama's architecture after every token, in float64."""

    def norm(name: str, x: Any) -> Any:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + c.epsilon) * w[name]

    def turned(x: Any) -> Any:
        half = c.head_size // 2
        angles = np.arange(len(tokens))[:, None] * (c.rotary_base ** (-np.arange(half) / half) / slower)
        a, b = x[..., :half], x[..., half:]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    w = {name: array.astype(np.float64) for name, array in w.items()}
    x = w["embedding"][tokens]
    count, group = len(tokens), c.heads // c.kv_heads
    for i in range(c.depth):
        y = norm(f"{i}.before", x)
        q, k, v = ((y @ w[f"{i}.{s}"].T).reshape(count, -1, c.head_size) for s in "qkv")
        q, k, v = turned(q), np.repeat(turned(k), group, 1), np.repeat(v, group, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.head_size)
        scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        found = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(count, -1)
        x = x + found @ w[f"{i}.out"].T
        y = norm(f"{i}.between", x)
        gate = y @ w[f"{i}.gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w[f"{i}.up"].T)) @ w[f"{i}.down"].T
    return norm("norm", x) @ w["embedding"].T


GGUF_NAMES = {
    "before": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "out": "attn_output", "between": "ffn_norm",
    "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip


def gguf_of(w: dict[str, Any], c: Configuration, packed: dict[str, Packed] | None = None) -> dict[str, Any]:
    """Tensors under llama.cpp's names; rows of queries and keys in its order, where turned pairs are neighbours."""
    found: dict[str, Any] = {}
    for name, array in w.items():
        layer, _, word = name.rpartition(".")
        if word in ("q", "k"):
            heads = len(array) // c.head_size
            array = array.reshape(heads, 2, c.head_size // 2, -1).swapaxes(1, 2).reshape(array.shape)
        plain = {"embedding": "token_embd", "norm": "output_norm"}
        theirs = f"blk.{layer}.{GGUF_NAMES[word]}" if layer else plain[name]
        found[f"{theirs}.weight"] = (packed or {}).get(name) or Tensor(array)
    return found


def test_a_model_of_a_gguf_file_gives_the_logits_of_the_reference_token_by_token(tmp_path: Path) -> None:
    w = weights_of(LLAMA)
    factors = Tensor([1.0, 1.0, 2.0, 8.0])  # Llama 3 turns slow pairs more slowly
    hcq.save(gguf_of(w, LLAMA) | {"rope_freqs.weight": factors}, tmp_path / "x.gguf", METADATA | NO_WORDS)
    opened = open_model(tmp_path / "x.gguf")
    assert opened.tokenizer is None
    session = Session(opened.model, 16)
    expected = reference(LLAMA, w, TOKENS, factors.numpy())
    for token, logits in zip(TOKENS, expected, strict=True):
        np.testing.assert_allclose(session.read([token]).numpy(), logits, atol=1e-4)


@pytest.mark.thorough
def test_reading_in_pieces_and_reading_one_by_one_are_the_same() -> None:
    w = weights_of(LLAMA)
    model = Model(LLAMA, {name: Tensor(array) for name, array in w.items()})
    tokens = [int(token) for token in np.random.default_rng(1).integers(0, 97, PIECE + 9)]
    expected = reference(LLAMA, w, tokens)
    session = Session(model, 128)
    for begin, end in ((0, 3), (3, 4), (4, PIECE + 7), (PIECE + 7, PIECE + 9)):
        found = session.read(tokens[begin:end]).numpy()
        np.testing.assert_allclose(found, expected[end - 1], atol=1e-4)
    assert session.tokens == tokens


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["Q8_0", "Q4_0"])
def test_a_quantised_model_gives_the_logits_of_its_dequantised_weights(tmp_path: Path, form: str) -> None:
    quants = pytest.importorskip("gguf.quants")
    w, kind, packed = weights_of(LLAMA), getattr(quants.GGMLQuantizationType, form), {}
    for name, array in w.items():
        if array.ndim == 2 and name[-2:] not in (".q", ".k"):
            raw = quants.quantize(array, kind)
            packed[name] = Packed(form, array.shape, raw.tobytes())
            w[name] = quants.dequantize(raw, kind)
    hcq.save(gguf_of(w, LLAMA, packed), tmp_path / "x.gguf", METADATA)
    session = Session(open_model(tmp_path / "x.gguf").model, 32)
    expected = reference(LLAMA, w, TOKENS)
    np.testing.assert_allclose(session.read(TOKENS[:9]).numpy(), expected[8], atol=1e-4)
    np.testing.assert_allclose(session.read(TOKENS[9:10]).numpy(), expected[9], atol=1e-4)


SMALL: dict[str, Any] = {
    "vocab_size": 97, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 4.0, 9.0], "original_max_position_embeddings": 64,
}  # fmt: skip
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2", {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "llama": ("Llama", SMALL),
    "llama3": ("Llama", SMALL | {"rope_parameters": LLAMA3}),
    "mistral": ("Mistral", SMALL | {"sliding_window": 6, "head_dim": 16}),
    "qwen2": ("Qwen2", SMALL),
    "qwen3": ("Qwen3", SMALL | {"head_dim": 16}),
    "gemma": ("Gemma", SMALL | {"head_dim": 16}),
    "gemma2": ("Gemma2", SMALL | {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24}),
    "gemma3": (
        "Gemma3",
        SMALL | {"head_dim": 16, "sliding_window": 6, "query_pre_attn_scalar": 24, "num_hidden_layers": 7},
    ),
    "gemma3 linear": (
        "Gemma3",
        SMALL
        | {
            "head_dim": 16,
            "sliding_window": 6,
            "query_pre_attn_scalar": 16,
            "layer_types": ["full_attention", "sliding_attention"],
        }
        | {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            }
        },
    ),
    "mixtral": ("Mixtral", SMALL | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen2 moe": ("Qwen2Moe", SMALL | MOE | {"shared_expert_intermediate_size": 24}),
    "qwen3 moe": (
        "Qwen3Moe",
        SMALL
        | MOE
        | {"head_dim": 16, "norm_topk_prob": True, "num_hidden_layers": 3, "decoder_sparse_step": 2},
    ),
    "qwen2 window": (
        "Qwen2",
        SMALL | {"use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1},
    ),
    "yarn": ("Llama", SMALL | {"rope_parameters": YARN}),
    "yarn qwen2": (
        "Qwen2",
        SMALL | {"rope_parameters": YARN | {"attention_factor": 0.9, "beta_fast": 4.0, "truncate": False}},
    ),
    "longrope short": ("Phi3", SMALL | {"original_max_position_embeddings": 64, "rope_parameters": LONGROPE}),
    "longrope": (
        "Phi3",
        SMALL
        | {"original_max_position_embeddings": 4}
        | {"rope_parameters": LONGROPE | {"original_max_position_embeddings": 4}},
    ),
    "phi3": ("Phi3", SMALL),
    "phi4": ("Phi3", SMALL | {"partial_rotary_factor": 0.5, "sliding_window": 6}),
    "linear": (
        "Llama",
        SMALL | {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}},
    ),
    "tied": ("Llama", SMALL | {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
}


def recordings_of(function: Any) -> int:
    """How many recordings a jitted function has made."""
    known = [version for versions in function._seen.values() for version in versions.known]
    return sum(version.recording is not None for version in known)


@pytest.fixture(scope="module")
def transformers() -> Any:
    """The library, whose import takes longer than any test here."""
    pytest.importorskip("torch")
    return pytest.importorskip("transformers")


@pytest.mark.thorough
@pytest.mark.torch
@pytest.mark.parametrize("name", OTHERS)
def test_a_folder_of_safetensors_gives_the_logits_of_transformers(
    tmp_path: Path, name: str, transformers: Any
) -> None:
    import torch

    kind, sizes = OTHERS[name]
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}{'Text' if kind == 'Gemma3' else ''}Config")(**sizes)
    config._attn_implementation = "eager"
    theirs = getattr(transformers, f"{kind}{'LMHeadModel' if kind == 'GPT2' else 'ForCausalLM'}")(
        config
    ).eval()
    for parameter in theirs.parameters():
        if parameter.ndim == 1:  # norms and biases that are all 1 or 0 would hide which is which
            parameter.data += torch.randn_like(parameter) * 0.1
        else:  # as they are made, all scores of attention are close to 0, and nobody sees what turns them
            parameter.data *= 8
    theirs.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = theirs(torch.tensor([TOKENS])).logits[0].numpy()
    # LongRoPE has other factors where there is room for more than the model first looked at
    session = Session(open_model(tmp_path).model, 32 if name == "longrope short" else 64)
    np.testing.assert_allclose(session.read(TOKENS[:8]).numpy(), expected[7], atol=1e-4)
    for i in range(8, len(TOKENS)):
        np.testing.assert_allclose(session.read([TOKENS[i]]).numpy(), expected[i], atol=1e-4)
    # both are recorded by now, once for all lengths: the recordings say the same, at other places
    session.cut()
    for i, token in enumerate(TOKENS):
        np.testing.assert_allclose(session.read([token]).numpy(), expected[i], atol=1e-4)
    for length in (5, 8, 11):
        session.cut()
        np.testing.assert_allclose(session.read(TOKENS[:length]).numpy(), expected[length - 1], atol=1e-4)
    for recorded in (session._write, session._read):
        assert recordings_of(recorded) == 1


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"model_type": "t5"}, "model_type 't5'; known are llama"),
        ({"model_type": "llama", "vocab_size": 7}, "says None for hidden_size"),
        ({"model_type": "gpt2", "n_embd": -4, "n_head": 2}, "-4 for n_embd"),
        (
            SMALL | {"model_type": "llama", "rms_norm_eps": 1e-5, "num_key_value_heads": 3},
            "heads come in groups",
        ),
        (
            SMALL | {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_scaling": {"type": "ntk"}},
            "'ntk'; known",
        ),
    ],
)
def test_a_configuration_that_is_not_known_says_why(config: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of_config(config)


def test_a_file_without_a_weight_or_with_one_of_another_shape_is_refused(tmp_path: Path) -> None:
    tensors = gguf_of(weights_of(LLAMA), LLAMA)
    up = tensors.pop("blk.1.ffn_up.weight")
    hcq.save(tensors, tmp_path / "x.gguf", METADATA)
    with pytest.raises(UsageError, match=r"needs 1\.up"):
        open_model(tmp_path / "x.gguf")
    hcq.save(tensors | {"blk.1.ffn_up.weight": up[:60]}, tmp_path / "x.gguf", METADATA)
    with pytest.raises(UsageError, match=r"1\.up has shape \(60, 32\)"):
        open_model(tmp_path / "x.gguf")
    hcq.save(tensors | {"blk.1.other.weight": up}, tmp_path / "x.gguf", METADATA)
    with pytest.raises(UsageError, match=r"'blk\.1\.other\.weight' is not one"):
        open_model(tmp_path / "x.gguf")


def test_tokens_that_a_session_cannot_read_are_refused() -> None:
    model = Model(LLAMA, {name: Tensor(array) for name, array in weights_of(LLAMA).items()})
    session = Session(model, 4)
    for tokens, why in (([], "no tokens"), ([97], "token 97"), ([-1], "token -1"), ([1] * 5, "room for 4")):
        with pytest.raises(UsageError, match=why):
            session.read(tokens)


def test_config_json_of_a_folder_is_checked(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[")
    hcq.save({"w": Tensor([1.0])}, tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match="is no JSON"):
        open_model(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps([]))
    with pytest.raises(UsageError, match="no JSON object"):
        open_model(tmp_path)
