"""Configuration: what differs between language models of one plan, as numbers and flags.

In       metadata of a GGUF file, or a config.json
Out      `Configuration`
Changes  nothing
Next     model.py (who computes by it), names.py (which tensors go with it)
Source   llama.cpp's keys of GGUF metadata; transformers' configurations of the architectures below
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcq.checks import shown
from hcq.frontend.errors import UsageError

# by the word of config.json, which is also GGUF's; Mistral's models are called llama in GGUF files
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "gpt2")


@dataclass(frozen=True, slots=True)
class Configuration:
    """A language model apart from its weights.

    width, depth         numbers of a token's state, and layers
    heads, kv_heads      of queries, and of keys and values, each of `head_size` numbers
    inner                numbers between the two products of a feed-forward part
    context              tokens that it was trained to look at
    is_gated             the feed-forward part multiplies by another product (Llama); else not (GPT-2)
    activation           "silu", "gelu" or "gelu_tanh"
    has_layer_norm       norms subtract the mean and add a bias (GPT-2); else they divide by the root of the mean square
    norm_offset          added to a norm's weight: 1 in Gemma's safetensors
    rotary_base          of rotary positions; 0 where positions are learned (GPT-2)
    rotary_size          how many numbers of a head are turned
    is_interleaved       neighbours are turned as a pair (Llama in GGUF); else a number and one half a head away
    rotary_scale         (factor, low, high, old context) of Llama 3's stretched positions, or (factor,) for linear ones
    window               how many tokens back a layer looks; 0 for all
    windowed             every how many layers, counted from the first, look no further than that: 1 all, 2 every other
    attention_scale      what scores are multiplied by; 0 for 1 / sqrt(head_size)
    attention_cap, cap   scores, and logits, are bent to stay within this; 0 for never
    embedding_scale      what a token's embedding is multiplied by
    """

    architecture: str
    vocabulary: int
    width: int
    depth: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    context: int
    epsilon: float = 1e-5
    is_gated: bool = True
    activation: str = "silu"
    has_layer_norm: bool = False
    norm_offset: float = 0.0
    rotary_base: float = 10000.0
    rotary_size: int = 0
    is_interleaved: bool = False
    rotary_scale: tuple[float, ...] = ()
    window: int = 0
    windowed: int = 1
    attention_scale: float = 0.0
    attention_cap: float = 0.0
    cap: float = 0.0
    embedding_scale: float = 1.0

    def window_of(self, layer: int) -> int:
        """How many tokens back a layer looks; 0 for all."""
        return self.window if layer % self.windowed == 0 else 0


def of_config(config: Mapping[str, Any]) -> Configuration:
    """The configuration that a config.json says. Raises UsageError for an architecture that is not known."""
    kind = _known(config.get("model_type"), "config.json says model_type")
    get = _reader(config, "config.json")
    if kind == "gpt2":
        width, heads = get("n_embd", int), get("n_head", int)
        return _checked(Configuration(
            kind, get("vocab_size", int), width, get("n_layer", int), heads, heads, width // heads,
            config.get("n_inner") or 4 * width, get("n_positions", int), get("layer_norm_epsilon", float),
            is_gated=False, activation="gelu_tanh", has_layer_norm=True, rotary_base=0.0,
        ))  # fmt: skip
    width, heads = get("hidden_size", int), get("num_attention_heads", int)
    head_size = config.get("head_dim") or width // heads
    rotary = config.get("rope_parameters") or config.get("rope_scaling") or {}
    part = config.get("partial_rotary_factor") or rotary.get("partial_rotary_factor")
    base = rotary.get("rope_theta") or config.get("rope_theta") or 10000.0
    is_gemma = kind.startswith("gemma")
    uses_window = config.get("use_sliding_window", True) and kind in ("mistral", "gemma2", "phi3")
    return _checked(Configuration(
        kind, get("vocab_size", int), width, get("num_hidden_layers", int), heads,
        config.get("num_key_value_heads") or heads, head_size, get("intermediate_size", int),
        get("max_position_embeddings", int), get("rms_norm_eps", float),
        activation="gelu_tanh" if is_gemma else "silu",
        norm_offset=1.0 if is_gemma else 0.0,
        rotary_base=float(base),
        rotary_size=int(head_size * float(part or 1.0)),
        rotary_scale=_scale_of_config(rotary),
        window=int(config.get("sliding_window") or 0) if uses_window else 0,
        windowed=2 if kind == "gemma2" else 1,
        attention_scale=float(config.get("query_pre_attn_scalar") or 0.0) ** -0.5 if kind == "gemma2" else 0.0,
        attention_cap=float(config.get("attn_logit_softcapping") or 0.0) if kind == "gemma2" else 0.0,
        cap=float(config.get("final_logit_softcapping") or 0.0) if kind == "gemma2" else 0.0,
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def of_gguf(metadata: Mapping[str, Any], vocabulary: int) -> Configuration:
    """The configuration that metadata of a GGUF file says. Raises UsageError for an architecture that is not known."""
    kind = _known(metadata.get("general.architecture"), "general.architecture is")
    plain = {key.removeprefix(f"{kind}."): value for key, value in metadata.items()}
    get = _reader(plain, "the metadata")
    width, heads = get("embedding_length", int), get("attention.head_count", int)
    is_gpt2, is_gemma = kind == "gpt2", kind.startswith("gemma")
    head_size = plain.get("attention.key_length") or width // heads
    scale: tuple[float, ...] = ()
    if plain.get("rope.scaling.type", "none") == "linear":
        scale = (float(plain["rope.scaling.factor"]),)
    elif plain.get("rope.scaling.type", "none") != "none":
        raise UsageError(
            f"[llm] positions are stretched by {shown(plain['rope.scaling.type'])}; known are linear and Llama 3's."
        )
    epsilon = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    deep = plain.get("attention.query_pre_attn_scalar") or head_size
    if (
        kind == "gemma2" and get("block_count", int) == 46
    ):  # the one size whose queries are scaled by width / heads
        deep = width / heads
    return _checked(Configuration(
        kind, vocabulary, width, get("block_count", int), heads, plain.get("attention.head_count_kv") or heads,
        head_size, get("feed_forward_length", int), get("context_length", int), get(epsilon, float),
        is_gated=not is_gpt2,
        activation="gelu_tanh" if is_gpt2 or is_gemma else "silu",
        has_layer_norm=is_gpt2,
        rotary_base=0.0 if is_gpt2 else float(plain.get("rope.freq_base") or 10000.0),
        rotary_size=0 if is_gpt2 else int(plain.get("rope.dimension_count") or head_size),
        is_interleaved=kind in ("llama", "mistral"),
        rotary_scale=scale,
        window=int(plain.get("attention.sliding_window") or 0),
        windowed=2 if kind == "gemma2" else 1,
        attention_scale=float(deep) ** -0.5 if kind == "gemma2" else 0.0,
        attention_cap=float(plain.get("attn_logit_softcapping") or 0.0),
        cap=float(plain.get("final_logit_softcapping") or 0.0),
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def _known(kind: Any, says: str) -> str:
    if kind not in ARCHITECTURES:
        raise UsageError(f"[llm] {says} {shown(kind)}; known are {', '.join(ARCHITECTURES)}.")
    return str(kind)


def _reader(values: Mapping[str, Any], where: str) -> Any:
    """A function that takes a number out of a mapping, or says that it is missing."""

    def get(key: str, kind: type) -> Any:
        value = values.get(key)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise UsageError(f"[llm] {where} says {shown(value)} for {key}; it takes a number.")
        return kind(value)

    return get


def _scale_of_config(rotary: Mapping[str, Any]) -> tuple[float, ...]:
    kind = rotary.get("rope_type") or rotary.get("type") or "default"
    if kind == "default":
        return ()
    if kind == "linear":
        return (float(rotary["factor"]),)
    if kind == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return tuple(float(rotary[key]) for key in keys)
    raise UsageError(f"[llm] positions are stretched by {shown(kind)}; known are linear and llama3.")


def _checked(found: Configuration) -> Configuration:
    """Sizes that a model can have."""
    sizes = (
        found.vocabulary,
        found.width,
        found.depth,
        found.heads,
        found.kv_heads,
        found.head_size,
        found.inner,
    )
    if min(sizes) < 1 or max(sizes) > 1 << 24 or not 1 <= found.context <= 1 << 30:
        raise UsageError(f"[llm] no model has these sizes: {found}.")
    if found.heads % found.kv_heads or found.rotary_size % 2 or found.rotary_size > found.head_size:
        raise UsageError(
            f"[llm] {found.heads} heads of queries, {found.kv_heads} of keys, {found.rotary_size} of {found.head_size} "
            "numbers turned: heads come in groups, numbers in pairs."
        )
    return found
