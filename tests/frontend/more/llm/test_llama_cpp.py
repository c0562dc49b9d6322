"""Quantised models of GGUF files give llama.cpp's logits, as near as its rounding of activations lets them.

A product with quantised weights is computed in float32 here. llama.cpp first rounds the activations to 8 bits, in
pieces of 32 (Q8_0) or of 256 (Q4_K). Both are held against a reference in float64 of the weights that the file means.
Ours is within 1e-4 of it. That llama.cpp's distance from it, and so from ours, is its rounding is not taken on trust: a
second reference rounds as it does, is as far from the first, and has llama.cpp's logits to 1e-5 wherever no number lies
so near the middle between two bytes that it falls to the other side. Distances are parts of the logits' root mean
square.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hcq
from hcq import Tensor
from hcq.frontend.io.gguf_writer import Packed
from hcq.frontend.more.llm.configuration import Configuration
from hcq.frontend.more.llm.files import open_model
from hcq.frontend.more.llm.session import Session
from hcq.frontend.more.llm.splitting import GPT2, LLAMA3, QWEN2
from hcq.tools.bench.cases.random_blocks import FORMS, rounded
from tests.frontend.more.llm.test_model import NO_WORDS
from tests.frontend.more.llm.test_tokenizer import TEXTS, trained, words_of_pieces

pytestmark = pytest.mark.thorough

OURS, THEIRS = 1e-4, 0.04
ROUNDED_IN = {"Q8_0": (32, np.float16), "Q4_K": (256, np.float32)}
VOCABULARY = 512
SHAPES = {
    "llama": Configuration("llama", VOCABULARY, 256, 2, 4, 2, 64, 512, 128, rotary_size=64, is_interleaved=True),
    "gpt2": Configuration(
        "gpt2", VOCABULARY, 256, 2, 4, 4, 64, 512, 128, is_gated=False, activation="gelu_tanh",
        has_layer_norm=True, rotary_base=0.0,
    ),
}  # fmt: skip


@dataclass
class Weights:
    """What a file has: tensors under llama.cpp's names, as they are written, and as numbers in float64."""

    written: dict[str, Any]
    numbers: dict[str, Any]


def weights_of(c: Configuration, form: str) -> Weights:
    kv, made = c.kv_heads * c.head_size, Weights({}, {})
    draw = np.random.default_rng(7)

    def product(name: str, *shape: int) -> None:
        raw, made.numbers[name] = FORMS[form](shape, shape[1] ** -0.5, len(made.written))
        made.written[f"{name}.weight"] = Packed(form, shape, raw.tobytes())
        if c.has_layer_norm and name.startswith("blk"):
            plain(f"{name}.bias", shape[0])

    def plain(name: str, *shape: int, mean: float = 0.0) -> None:
        array = (draw.standard_normal(shape) * 0.1 + mean).astype(np.float32)
        made.written[name] = Tensor(array)
        made.numbers[name.removesuffix(".weight")] = array.astype(np.float64)

    def norm(name: str) -> None:
        plain(f"{name}.weight", c.width, mean=1.0)
        if c.has_layer_norm:
            plain(f"{name}.bias", c.width)

    product("token_embd", c.vocabulary, c.width)
    if not c.rotary_base:
        plain("position_embd.weight", c.context, c.width)
    for layer in range(c.depth):
        at = f"blk.{layer}."
        if c.is_gated:
            for side, size in (("q", c.width), ("k", kv), ("v", kv)):
                product(f"{at}attn_{side}", size, c.width)
            product(f"{at}ffn_gate", c.inner, c.width)
        else:
            product(f"{at}attn_qkv", 3 * c.width, c.width)
        product(f"{at}attn_output", c.width, c.width)
        product(f"{at}ffn_up", c.inner, c.width)
        product(f"{at}ffn_down", c.width, c.inner)
        norm(f"{at}attn_norm")
        norm(f"{at}ffn_norm")
    norm("output_norm")
    return made


def metadata_of(c: Configuration, tokenizer: dict[str, Any]) -> dict[str, Any]:
    norm = "attention.layer_norm_epsilon" if c.has_layer_norm else "attention.layer_norm_rms_epsilon"
    found = {
        "embedding_length": c.width, "block_count": c.depth, "attention.head_count": c.heads,
        "attention.head_count_kv": c.kv_heads, "feed_forward_length": c.inner, "context_length": c.context,
        norm: c.epsilon, "vocab_size": c.vocabulary,
    }  # fmt: skip
    words = {f"{c.architecture}.{key}": value for key, value in found.items()}
    return {"general.architecture": c.architecture, **words, **tokenizer}


def reference(c: Configuration, w: dict[str, Any], tokens: list[int], rounding: Any = None) -> Any:
    """Logits after every token, in float64.

    rounding  what `rounded` is told of the numbers that weights are multiplied with; None for not rounded
    """
    count, half = len(tokens), c.head_size // 2

    def linear(name: str, x: Any) -> Any:
        return (rounded(x, *rounding) if rounding else x) @ w[name].T + w.get(f"{name}.bias", 0)

    def norm(name: str, x: Any) -> Any:
        if c.has_layer_norm:
            x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + c.epsilon)
        return x * w[name] + w.get(f"{name}.bias", 0)

    def turned(x: Any) -> Any:
        if not c.rotary_base:
            return x
        angles = np.arange(count)[:, None, None] * c.rotary_base ** (-np.arange(half) / half)
        pairs = x[..., ::2] + 1j * x[..., 1::2]
        pairs = pairs * np.exp(1j * angles)
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)

    def activated(x: Any) -> Any:
        if c.activation == "silu":
            return x / (1 + np.exp(-x))
        if rounding:  # llama.cpp looks GELU up in a table of float16
            x = x.astype(np.float16).astype(np.float64)
        x = 0.5 * x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3)))
        return x.astype(np.float16).astype(np.float64) if rounding else x

    x = w["token_embd"][tokens]
    if "position_embd" in w:
        x = x + w["position_embd"][:count]
    for layer in range(c.depth):
        at, group = f"blk.{layer}.", c.heads // c.kv_heads
        y = norm(f"{at}attn_norm", x)
        if c.is_gated:
            q, k, v = (linear(f"{at}attn_{side}", y) for side in "qkv")
        else:
            q, k, v = np.split(linear(f"{at}attn_qkv", y), 3, -1)
        q, k, v = (side.reshape(count, -1, c.head_size) for side in (q, k, v))
        q, k, v = turned(q), np.repeat(turned(k), group, 1), np.repeat(v, group, 1)
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(c.head_size)
        scores = np.where(np.tril(np.ones((count, count), bool)), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        found = np.einsum("hqk,khd->qhd", p / p.sum(-1, keepdims=True), v).reshape(count, -1)
        x = x + linear(f"{at}attn_output", found)
        y = norm(f"{at}ffn_norm", x)
        inner = linear(f"{at}ffn_up", y)
        inner = activated(linear(f"{at}ffn_gate", y)) * inner if c.is_gated else activated(inner)
        x = x + linear(f"{at}ffn_down", inner)
    return linear("token_embd", norm("output_norm", x))


@pytest.fixture(scope="module")
def llama_cpp() -> Any:
    return pytest.importorskip("llama_cpp")


def opened_by(llama_cpp: Any, path: Path) -> Any:
    """llama.cpp's model with keys and values in float32: its own default is float16.

    Its products by AMX end the process on virtual machines that only show AMX, so weights stay as they are.
    """
    found = llama_cpp.llama_model_default_params

    def plain() -> Any:
        made = found()
        made.use_extra_bufts = False
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llama_cpp.llama_cpp.llama_model_default_params", plain)
        return llama_cpp.Llama(
            str(path), n_ctx=64, n_batch=64, n_threads=1, n_threads_batch=1, logits_all=True, type_k=0, type_v=0,
            flash_attn=False, verbose=False,
        )  # fmt: skip


def off(found: Any, expected: Any) -> float:
    """The deviation of logits from those expected, as a part of these."""
    return float(np.sqrt(((found - expected) ** 2).mean() / (expected**2).mean()))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("architecture", SHAPES)
def test_logits_are_those_of_llama_cpp(tmp_path: Path, architecture: str, form: str, llama_cpp: Any) -> None:
    c = SHAPES[architecture]
    w = weights_of(c, form)
    hcq.save(w.written, tmp_path / "x.gguf", metadata_of(c, NO_WORDS))
    tokens = [int(token) for token in np.random.default_rng(3).integers(0, VOCABULARY, 24)]
    prompt = 20
    theirs = opened_by(llama_cpp, tmp_path / "x.gguf")
    theirs.eval(tokens[:prompt])
    for token in tokens[prompt:]:
        theirs.eval([token])
    session = Session(open_model(tmp_path / "x.gguf").model, 64)
    ours = [session.read(tokens[:prompt]).numpy()]
    ours += [session.read([token]).numpy() for token in tokens[prompt:]]

    expected = reference(c, w.numbers, tokens)
    rounds_alike = reference(c, w.numbers, tokens, ROUNDED_IN[form])
    for at, found in enumerate(ours, prompt - 1):
        assert off(found, expected[at]) < OURS
        assert off(found, theirs.scores[at]) < THEIRS
    # where no number lies so near the middle between two bytes that it falls to the other side, rounding is all
    alike = [off(theirs.scores[at], rounds_alike[at]) < 1e-5 for at in range(len(tokens))]
    assert sum(alike) > len(tokens) // 4
    assert THEIRS / 8 < off(rounds_alike, expected) < THEIRS / 1.5


def words_of(theirs: Any, split: str) -> dict[str, Any]:
    """A byte-level tokenizer of the tokenizers library as metadata."""
    known, merges = (
        json.loads(theirs.to_str())["model"]["vocab"],
        json.loads(theirs.to_str())["model"]["merges"],
    )
    tokens = sorted(known, key=known.get)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": split,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in tokens],
        "tokenizer.ggml.merges": [" ".join(merge) for merge in merges],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
    }


@pytest.mark.parametrize(("split", "pattern"), [("gpt-2", GPT2), ("llama-bpe", LLAMA3), ("qwen2", QWEN2)])
def test_tokens_of_a_files_vocabulary_are_those_of_llama_cpp(
    tmp_path: Path, split: str, pattern: str, llama_cpp: Any
) -> None:
    words = words_of(trained(tmp_path, pattern), split)
    c = replace(SHAPES["llama"], vocabulary=len(words["tokenizer.ggml.tokens"]), depth=1)
    hcq.save(weights_of(c, "Q8_0").written, tmp_path / "x.gguf", metadata_of(c, words))
    same_tokens(llama_cpp, tmp_path / "x.gguf")


def test_pieces_of_a_files_vocabulary_are_those_of_llama_cpp(tmp_path: Path, llama_cpp: Any) -> None:
    words = words_of_pieces()
    c = replace(SHAPES["llama"], vocabulary=len(words["tokenizer.ggml.tokens"]), depth=1)
    hcq.save(weights_of(c, "Q8_0").written, tmp_path / "x.gguf", metadata_of(c, words))
    same_tokens(llama_cpp, tmp_path / "x.gguf")


def same_tokens(llama_cpp: Any, path: Path) -> None:
    theirs, ours = opened_by(llama_cpp, path), open_model(path).tokenizer
    assert ours is not None
    for text in ("hello world", *TEXTS):
        assert ours.encode(text) == theirs.tokenize(text.encode(), add_bos=True, special=True), text
