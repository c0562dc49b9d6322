"""Configuration: what differs between language models of one plan, as numbers and flags.

In       metadata of a GGUF file, or a config.json
Out      `Configuration`
Next     facts.py (what a file says), stretching.py (positions), model.py (who computes by it), names.py (which tensors
         go with it)
Source   llama.cpp's keys of GGUF metadata; transformers' configurations of the architectures below
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.facts import Facts
from hcq.frontend.more.llm.stretching import PLAIN, Stretch, Yarn, stretch_of_config, stretch_of_gguf

# by the word of config.json, which is also GGUF's; Mistral's models are called llama in GGUF files
ARCHITECTURES = (
    "llama", "mistral", "mixtral", "qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma", "gemma2", "gemma3", "phi3",
    "gpt2",
)  # fmt: skip
# where config.json has another word
ALIASES = {"qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe", "gemma3_text": "gemma3"}
MAX_DEPTH, MAX_EXPERTS = 4096, 4096


@dataclass(frozen=True, slots=True)
class Experts:
    """Feed-forward parts of which each token takes some.

    count, used  how many there are, and how many a token takes
    inner        numbers between the products of each; shared  of one that all tokens take; 0 for none
    is_normed    shares of those that are taken add up to 1
    layers       which layers have them; the others have one part for all tokens
    """

    count: int
    used: int
    inner: int
    shared: int
    is_normed: bool
    layers: frozenset[int]


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
    stretch              how rotary positions are slowed down
    window               how many tokens back a layer looks; 0 for all
    windowed             which layers look no further than that, a flag for each; () for all of them
    local_base           rotary_base of those layers, whose positions are not stretched; 0 where they are as the others
    experts              None where all tokens take the same feed-forward part
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
    stretch: Stretch = PLAIN
    window: int = 0
    windowed: tuple[bool, ...] = ()
    local_base: float = 0.0
    experts: Experts | None = None
    attention_scale: float = 0.0
    attention_cap: float = 0.0
    cap: float = 0.0
    embedding_scale: float = 1.0

    def window_of(self, layer: int) -> int:
        """How many tokens back a layer looks; 0 for all."""
        return self.window if self.is_windowed(layer) else 0

    def is_windowed(self, layer: int) -> bool:
        """Whether a layer looks no further than the window."""
        return not self.windowed or self.windowed[layer]

    def experts_of(self, layer: int) -> Experts | None:
        """The experts of a layer."""
        return self.experts if self.experts is not None and layer in self.experts.layers else None


def of_config(config: Mapping[str, Any]) -> Configuration:
    """The configuration that a config.json says. Raises UsageError for an architecture that is not known."""
    if "text_config" in config:
        raise UsageError(
            "[llm] config.json has a text_config: the model reads more than text. Give a folder of one for text alone."
        )
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
    is_gemma3 = kind == "gemma3"
    local = 0.0
    if is_gemma3:
        local = rotary.part("sliding_attention").real(
            "rope_theta", real("rope_local_base_freq", 10000.0, low=1.0), low=1.0
        )
        rotary = rotary if rotary.get("full_attention") is None else rotary.part("full_attention")
    plain_base = 1e6 if is_gemma3 or kind == "mixtral" else 10000.0
    part = real("partial_rotary_factor", rotary.real("partial_rotary_factor", 1.0, high=1.0), high=1.0)
    is_gemma = kind.startswith("gemma")
    is_qwen = kind.startswith("qwen")
    uses_window = facts.flag("use_sliding_window", not is_qwen) and kind not in ("llama", "gemma")
    window = whole("sliding_window", 0) if uses_window else 0
    depth, is_capped = whole("num_hidden_layers", high=MAX_DEPTH), kind in ("gemma2", "gemma3")
    return _checked(Configuration(
        kind, whole("vocab_size"), width, depth, heads,
        whole("num_key_value_heads", heads, low=1), head_size, whole("intermediate_size"),
        whole("max_position_embeddings"), real("rms_norm_eps"),
        activation="gelu_tanh" if is_gemma else "silu",
        norm_offset=1.0 if is_gemma else 0.0,
        rotary_base=rotary.real("rope_theta", real("rope_theta", plain_base, low=1.0), low=1.0),
        rotary_size=int(head_size * part),
        stretch=stretch_of_config(rotary, facts, int(head_size * part)),
        window=window,
        windowed=_windowed(kind, facts, depth) if window else (),
        local_base=local,
        experts=_experts_of_config(kind, facts, depth),
        attention_scale=real("query_pre_attn_scalar", low=1e-6) ** -0.5 if is_capped else 0.0,
        attention_cap=real("attn_logit_softcapping", 0.0) if is_capped else 0.0,
        cap=real("final_logit_softcapping", 0.0) if is_capped else 0.0,
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def of_gguf(metadata: Mapping[str, Any], vocabulary: int, has_factors: bool = False) -> Configuration:
    """The configuration that metadata of a GGUF file says.

    has_factors  the file has tensors of rotary factors for short and for long texts
    Raises       UsageError for an architecture that is not known
    """
    kind = _known(metadata.get("general.architecture"), "general.architecture is")
    facts = Facts(metadata, "the metadata", f"{kind}.")
    whole, real = facts.whole, facts.real
    width, heads = whole("embedding_length"), whole("attention.head_count", low=1)
    is_gpt2, is_gemma, is_gemma3 = kind == "gpt2", kind.startswith("gemma"), kind == "gemma3"
    is_capped, depth = kind in ("gemma2", "gemma3"), whole("block_count", high=MAX_DEPTH)
    head_size = whole("attention.key_length", width // heads)
    epsilon = "attention.layer_norm_epsilon" if is_gpt2 else "attention.layer_norm_rms_epsilon"
    deep = real("attention.query_pre_attn_scalar", float(head_size), low=1e-6)
    # of each family one size, known by its depth, has queries that are scaled by width / heads
    if (kind, depth) in (("gemma2", 46), ("gemma3", 62)):
        deep = width / heads
    window = whole("attention.sliding_window", 0)
    windowed: tuple[bool, ...] = ()
    if window and is_capped:
        every = whole("attention.sliding_window_pattern", 6 if is_gemma3 else 2, low=1)
        windowed = tuple((layer + 1) % every != 0 for layer in range(depth))
    return _checked(Configuration(
        kind, vocabulary, width, depth, heads, whole("attention.head_count_kv", heads, low=1),
        head_size, whole("feed_forward_length"), whole("context_length"), real(epsilon),
        is_gated=not is_gpt2,
        activation="gelu_tanh" if is_gpt2 or is_gemma else "silu",
        has_layer_norm=is_gpt2,
        rotary_base=0.0 if is_gpt2 else real("rope.freq_base", 10000.0, low=1.0),
        rotary_size=0 if is_gpt2 else whole("rope.dimension_count", head_size),
        is_interleaved=kind in ("llama", "mistral", "mixtral"),
        stretch=PLAIN if is_gpt2 else stretch_of_gguf(facts, has_factors),
        window=window,
        windowed=windowed,
        local_base=real("rope.freq_base_swa", 10000.0, low=1.0) if is_gemma3 else 0.0,
        experts=_experts_of_gguf(kind, facts, depth),
        attention_scale=max(deep, 1e-6) ** -0.5 if is_capped else 0.0,
        attention_cap=real("attn_logit_softcapping", 0.0),
        cap=real("final_logit_softcapping", 0.0),
        embedding_scale=width**0.5 if is_gemma else 1.0,
    ))  # fmt: skip


def _windowed(kind: str, facts: Facts, depth: int) -> tuple[bool, ...]:
    """Which layers have the window; () for all."""
    types = facts.values("layer_types", str, "texts")
    if types is not None:
        if set(types) - {"full_attention", "sliding_attention"} or len(types) != depth:
            raise facts.wrong("layer_types", f"{depth} times full_attention or sliding_attention")
        return tuple(one == "sliding_attention" for one in types)
    if kind.startswith("qwen"):
        first = facts.whole("max_window_layers", 0)
        return tuple(layer >= first for layer in range(depth))
    if kind in ("gemma2", "gemma3"):
        every = facts.whole("sliding_window_pattern", 6 if kind == "gemma3" else 2, low=1)
        return tuple((layer + 1) % every != 0 for layer in range(depth))
    return ()


def _experts_of_config(kind: str, facts: Facts, depth: int) -> Experts | None:
    if kind not in ("mixtral", "qwen2moe", "qwen3moe"):
        return None
    whole = facts.whole
    key = "num_local_experts" if facts.get("num_local_experts") is not None else "num_experts"
    count = whole(key, low=1, high=MAX_EXPERTS)
    used = whole("num_experts_per_tok", low=1, high=count)
    if kind == "mixtral":
        return Experts(count, used, whole("intermediate_size"), 0, True, frozenset(range(depth)))
    step = whole("decoder_sparse_step", 1, low=1)
    plain = facts.values("mlp_only_layers", int, "layers") or ()
    layers = {layer for layer in range(depth) if (layer + 1) % step == 0} - set(plain)
    shared = whole("shared_expert_intermediate_size", low=1) if kind == "qwen2moe" else 0
    is_normed = facts.flag("norm_topk_prob", False)
    return Experts(count, used, whole("moe_intermediate_size"), shared, is_normed, frozenset(layers))


def _experts_of_gguf(kind: str, facts: Facts, depth: int) -> Experts | None:
    whole = facts.whole
    count = whole("expert_count", 0, high=MAX_EXPERTS)
    if not count:
        return None
    if kind not in ("llama", "mixtral", "qwen2moe", "qwen3moe"):
        raise UsageError(f"[llm] a model of {kind} with {count} experts is not known.")
    used, inner = whole("expert_used_count", low=1, high=count), whole("feed_forward_length")
    own = inner // used if kind.startswith("qwen") else inner
    shared = whole("expert_shared_feed_forward_length", inner) if kind == "qwen2moe" else 0
    is_normed = facts.flag("expert_weights_norm", kind != "qwen2moe")
    return Experts(
        count, used, whole("expert_feed_forward_length", own), shared, is_normed, frozenset(range(depth))
    )


def _known(kind: Any, says: str) -> str:
    kind = ALIASES.get(kind, kind) if isinstance(kind, str) else kind
    if kind not in ARCHITECTURES:
        raise UsageError(f"[llm] {says} {shown(kind)}; known are {', '.join(ARCHITECTURES)}.")
    return str(kind)


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
        raise UsageError(
            "[llm] no model has these sizes: vocabulary {}, width {}, depth {}, {} heads of queries and {} of keys, "
            "each of {} numbers, {} inner ones".format(*sizes)
            + f", context {found.context}."
        )
    if found.heads % found.kv_heads or found.rotary_size % 2 or found.rotary_size > found.head_size:
        raise UsageError(
            f"[llm] {found.heads} heads of queries, {found.kv_heads} of keys, {found.rotary_size} of {found.head_size} "
            "numbers turned: heads come in groups, numbers in pairs."
        )
    if found.rotary_base and isinstance(found.stretch, Yarn) and found.rotary_base <= 1:
        raise UsageError("[llm] positions are stretched by YaRN with a base of 1: it has to be more.")
    experts = found.experts
    if experts is not None and not 1 <= max(experts.inner, experts.shared) <= 1 << 24:
        raise UsageError(f"[llm] no experts have these sizes: {experts}.")
    return found
