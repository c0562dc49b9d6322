"""Configuration: what differs between language models of one plan, as numbers and flags.

In       metadata of a GGUF file, or a config.json
Out      `Configuration`
Changes  nothing
Next     facts.py (what a file says), model.py (who computes by it), names.py (which tensors go with it)
Source   llama.cpp's keys of GGUF metadata; transformers' configurations of the architectures below
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcq.checks import shown
from hcq.frontend.errors import UsageError
from hcq.frontend.llm.facts import Facts

# by the word of config.json, which is also GGUF's; Mistral's models are called llama in GGUF files
ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "phi3", "gpt2")
MAX_DEPTH = 4096


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
    facts = Facts(config, "config.json")
    whole, real = facts.whole, facts.real
    if kind == "gpt2":
        width, heads = whole("n_embd"), whole("n_head", low=1)
        return _checked(Configuration(
            kind, whole("vocab_size"), width, whole("n_layer"), heads, heads, width // heads,
            whole("n_inner", 4 * width), whole("n_positions"), real("layer_norm_epsilon"),
            is_gated=False, activation="gelu_tanh", has_layer_norm=True, rotary_base=0.0,
        ))  # fmt: skip
    width, heads = whole("hidden_size"), whole("num_attention_heads", low=1)
    head_size = whole("head_dim", width // heads)
    rotary = facts.part("rope_parameters", "rope_scaling")
    part = real("partial_rotary_factor", rotary.real("partial_rotary_factor", 1.0, high=1.0), high=1.0)
    is_gemma = kind.startswith("gemma")
    uses_window = facts.flag("use_sliding_window", True) and kind in ("mistral", "gemma2", "phi3")
    is_gemma2 = kind == "gemma2"
    return _checked(Configuration(
        kind, whole("vocab_size"), width, whole("num_hidden_layers"), heads,
        whole("num_key_value_heads", heads, low=1), head_size, whole("intermediate_size"),
        whole("max_position_embeddings"), real("rms_norm_eps"),
        activation="gelu_tanh" if is_gemma else "silu",
        norm_offset=1.0 if is_gemma else 0.0,
        rotary_base=rotary.real("rope_theta", real("rope_theta", 10000.0, low=1.0), low=1.0),
        rotary_size=int(head_size * part),
        rotary_scale=_scale_of_config(rotary),
        window=whole("sliding_window", 0) if uses_window else 0,
        windowed=2 if is_gemma2 else 1,
        attention_scale=real("query_pre_attn_scalar", low=1e-6) ** -0.5 if is_gemma2 else 0.0,
        attention_cap=real("attn_logit_softcapping", 0.0) if is_gemma2 else 0.0,
        cap=real("final_logit_softcapping", 0.0) if is_gemma2 else 0.0,
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def of_gguf(metadata: Mapping[str, Any], vocabulary: int) -> Configuration:
    """The configuration that metadata of a GGUF file says. Raises UsageError for an architecture that is not known."""
    kind = _known(metadata.get("general.architecture"), "general.architecture is")
    facts = Facts(metadata, "the metadata", f"{kind}.")
    whole, real = facts.whole, facts.real
    width, heads = whole("embedding_length"), whole("attention.head_count", low=1)
    is_gpt2, is_gemma, is_gemma2 = kind == "gpt2", kind.startswith("gemma"), kind == "gemma2"
    head_size = whole("attention.key_length", width // heads)
    scale: tuple[float, ...] = ()
    stretch = facts.text("rope.scaling.type", "none")
    if stretch == "linear":
        scale = (real("rope.scaling.factor", low=1e-6),)
    elif stretch != "none":
        raise UsageError(
            f"[llm] positions are stretched by {shown(stretch)}; known are linear and Llama 3's."
        )
    epsilon = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    deep = real("attention.query_pre_attn_scalar", float(head_size), low=1e-6)
    if is_gemma2 and whole("block_count") == 46:  # the one size whose queries are scaled by width / heads
        deep = width / heads
    return _checked(Configuration(
        kind, vocabulary, width, whole("block_count"), heads, whole("attention.head_count_kv", heads, low=1),
        head_size, whole("feed_forward_length"), whole("context_length"), real(epsilon),
        is_gated=not is_gpt2,
        activation="gelu_tanh" if is_gpt2 or is_gemma else "silu",
        has_layer_norm=is_gpt2,
        rotary_base=0.0 if is_gpt2 else real("rope.freq_base", 10000.0, low=1.0),
        rotary_size=0 if is_gpt2 else whole("rope.dimension_count", head_size),
        is_interleaved=kind in ("llama", "mistral"),
        rotary_scale=scale,
        window=whole("attention.sliding_window", 0),
        windowed=2 if is_gemma2 else 1,
        attention_scale=max(deep, 1e-6) ** -0.5 if is_gemma2 else 0.0,
        attention_cap=real("attn_logit_softcapping", 0.0),
        cap=real("final_logit_softcapping", 0.0),
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def _known(kind: Any, says: str) -> str:
    if kind not in ARCHITECTURES:
        raise UsageError(f"[llm] {says} {shown(kind)}; known are {', '.join(ARCHITECTURES)}.")
    return str(kind)


def _scale_of_config(rotary: Facts) -> tuple[float, ...]:
    kind = rotary.text("rope_type", rotary.text("type", "default"))
    if kind == "default":
        return ()
    if kind == "linear":
        return (rotary.real("factor", low=1e-6),)
    if kind == "llama3":
        keys = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
        return tuple(rotary.real(key, low=1e-6) for key in keys)
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
    if min(sizes) < 1 or max(sizes) > 1 << 24 or found.depth > MAX_DEPTH or found.context < 1:
        raise UsageError(f"[llm] no model has these sizes: {found}.")
    if found.heads % found.kv_heads or found.rotary_size % 2 or found.rotary_size > found.head_size:
        raise UsageError(
            f"[llm] {found.heads} heads of queries, {found.kv_heads} of keys, {found.rotary_size} of {found.head_size} "
            "numbers turned: heads come in groups, numbers in pairs."
        )
    if len(found.rotary_scale) == 4 and not found.rotary_scale[1] < found.rotary_scale[2]:
        raise UsageError(
            f"[llm] positions are stretched by {found.rotary_scale}: the second is less than the third."
        )
    return found
