"""Names: what the tensors of a language model are called here, and in the files of others.

In       the tensors of a file
Out      tensors under our names, in our shapes: products are (out, in)
Next     model.py (who uses them), files.py (who asks)
Source   the tensor names of llama.cpp's GGUF files; the state dicts of transformers

    embedding, positions, norm, head, rotary_factors (Llama 3 in GGUF)
    LAYER.before, LAYER.q k v out, LAYER.between, LAYER.gate up down       and .bias behind a name, where there is one
    LAYER.q_norm k_norm (Qwen 3, Gemma 3), LAYER.after_attention after_feed_forward (Gemma 2 and 3)
    LAYER.router, LAYER.gate_experts up_experts down_experts, LAYER.shared_router shared_gate shared_up shared_down
    rotary_short rotary_long (LongRoPE in GGUF)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.configuration import Configuration, Experts
from hcq.frontend.tensor import Tensor

# our name, the word in GGUF files, and those in state dicts of transformers; - is none
OUTSIDE = """
    embedding           token_embd          embed_tokens                 wte
    positions           position_embd       wpe
    norm                output_norm         norm                         ln_f
    head                output              lm_head
    rotary_factors      rope_freqs
    rotary_short        rope_factors_short
    rotary_long         rope_factors_long
"""
IN_A_LAYER = """
    before              attn_norm           input_layernorm              ln_1
    q                   attn_q              self_attn.q_proj
    k                   attn_k              self_attn.k_proj
    v                   attn_v              self_attn.v_proj
    qkv                 attn_qkv            self_attn.qkv_proj           attn.c_attn
    out                 attn_output         self_attn.o_proj             attn.c_proj
    q_norm              attn_q_norm         self_attn.q_norm
    k_norm              attn_k_norm         self_attn.k_norm
    between             ffn_norm            post_attention_layernorm     ln_2
    gate                ffn_gate            mlp.gate_proj
    up                  ffn_up              mlp.up_proj                  mlp.c_fc
    gate_up             -                   mlp.gate_up_proj
    down                ffn_down            mlp.down_proj                mlp.c_proj
    router              ffn_gate_inp        mlp.gate                     block_sparse_moe.gate
    gate_experts        ffn_gate_exps       experts.*.gate_proj          experts.*.w1
    up_experts          ffn_up_exps         experts.*.up_proj            experts.*.w3
    down_experts        ffn_down_exps       experts.*.down_proj          experts.*.w2
    shared_router       ffn_gate_inp_shexp  mlp.shared_expert_gate
    shared_gate         ffn_gate_shexp      mlp.shared_expert.gate_proj
    shared_up           ffn_up_shexp        mlp.shared_expert.up_proj
    shared_down         ffn_down_shexp      mlp.shared_expert.down_proj
    after_attention     post_attention_norm
    after_feed_forward  post_ffw_norm
"""
# of Gemma 2 and 3, where the word for the norm between stands for the one after attention
GEMMA2 = """
    after_attention     -                   post_attention_layernorm
    between             -                   pre_feedforward_layernorm
    after_feed_forward  -                   post_feedforward_layernorm
"""


def words_of(table: str, is_gguf: bool) -> dict[str, str]:
    """A word of a file -> our name."""
    found: dict[str, str] = {}
    for ours, gguf, *others in map(str.split, table.strip().splitlines()):
        found |= {word: ours for word in ([gguf] if is_gguf else others) if word != "-"}
    return found


_GGUF = re.compile(r"(?:blk\.(\d+)\.)?(.+?)\.(weight|bias)")
_STATE = re.compile(r"(?:transformer\.|model\.)?(?:(?:layers|h)\.(\d+)\.)?(.+?)\.(weight|bias)")
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d{1,6})\.(\w+)")
# constants that older files keep among weights
_LEFT_OUT = re.compile(r".*\.(rotary_emb\.inv_freq|attn\.bias|attn\.masked_bias)")


def weights_of(tensors: Mapping[str, Tensor], kind: str, model: Configuration) -> dict[str, Tensor]:
    """The weights of a model by our names, from a file of that kind: "GGUF", or another of a state dict.

    Raises  UsageError for tensors that are missing, unknown or of another shape
    """
    is_gguf = kind == "GGUF"
    outside, words = words_of(OUTSIDE, is_gguf), words_of(IN_A_LAYER, is_gguf)
    if model.architecture in ("gemma2", "gemma3"):
        words |= words_of(GEMMA2, is_gguf)
    found: dict[str, Tensor] = {}
    apart: dict[str, dict[int, Tensor]] = {}  # of experts, by their numbers
    for name in tensors:
        if _LEFT_OUT.fullmatch(name):
            continue
        match = (_GGUF if is_gguf else _STATE).fullmatch(name)
        layer, word, part = match.groups() if match else (None, "", "")
        ours = (outside if layer is None else words).get(word)
        one = _EXPERT.fullmatch(word)
        if one and layer is not None and (several := words.get(f"experts.*.{one[2]}")):
            apart.setdefault(f"{layer}.{several}", {})[int(one[1])] = tensors[name]
            continue
        if ours is None:
            raise UsageError(f"[llm] the tensor {name!r} is not one of a model of {model.architecture}.")
        tensor = tensors[name]
        if model.architecture == "gpt2" and not is_gguf and layer is not None and len(tensor.shape) == 2:
            tensor = tensor.T  # a Conv1D of transformers is (in, out)
        if ours == "shared_router" and len(tensor.shape) == 2 and tensor.shape[0] == 1:
            tensor = tensor.reshape(tensor.shape[1])  # a product with one output in a state dict
        prefix = f"{layer}." if layer is not None else ""
        found[f"{prefix}{ours}{'.bias' if part == 'bias' else ''}"] = tensor
    _take_apart(found, model)
    for name, experts in apart.items():
        found[name] = _together(name, experts, model)
    _check(found, model)
    return found


def _take_apart(found: dict[str, Tensor], model: Configuration) -> None:
    """Products that are kept as one become several."""
    kv = model.kv_heads * model.head_size
    ends = {"q": model.heads * model.head_size, "k": kv, "v": kv}
    for name in list(found):
        prefix, _, word = name.partition(".")
        word, _, bias = word.partition(".")
        parts: Mapping[str, int] = {}
        if word == "qkv":
            parts = ends
        elif word == "gate_up" or (
            word == "up" and model.is_gated and found[name].shape[0] == 2 * model.inner
        ):
            parts = {"gate": model.inner, "up": model.inner}
        if not parts:
            continue
        whole = found.pop(name)
        if whole.shape[0] != sum(parts.values()):
            raise UsageError(f"[llm] {name} has shape {whole.shape}; {sum(parts.values())} rows are needed.")
        at = 0
        for part, size in parts.items():
            found[f"{prefix}.{part}{'.bias' if bias else ''}"] = whole[at : at + size]
            at += size


def _together(name: str, experts: Mapping[int, Tensor], model: Configuration) -> Tensor:
    """The weights of a layer's experts, one behind the other."""
    count = model.experts.count if model.experts is not None else 0
    if sorted(experts) != list(range(count)):
        raise UsageError(
            f"[llm] {name} is of {len(experts)} experts, numbered up to {max(experts)}; the model has {count}."
        )
    shape = experts[0].shape
    others = [one.shape for one in experts.values() if one.shape != shape]
    if others:
        raise UsageError(
            f"[llm] {name} has experts of shapes {shape} and {others[0]}, which have to be alike."
        )
    return Tensor.stack([experts[i] for i in range(count)]).contiguous().realize()


def shapes_of(model: Configuration) -> dict[str, tuple[int, ...]]:
    """The weights that a model has to have, with their shapes; others are biases, norms, or a head of its own."""
    width, kv = model.width, model.kv_heads * model.head_size
    found: dict[str, tuple[int, ...]] = {"embedding": (model.vocabulary, width), "norm": (width,)}
    if not model.rotary_base:
        found["positions"] = (model.context, width)
    norms = ["before", "between"]
    if model.architecture in ("gemma2", "gemma3"):
        norms += ["after_attention", "after_feed_forward"]
    for layer in range(model.depth):
        found |= {f"{layer}.{norm}": (width,) for norm in norms}
        found[f"{layer}.q"] = (model.heads * model.head_size, width)
        found[f"{layer}.k"] = found[f"{layer}.v"] = (kv, width)
        found[f"{layer}.out"] = (width, model.heads * model.head_size)
        if (experts := model.experts_of(layer)) is not None:
            found |= {f"{layer}.{name}": shape for name, shape in _shapes_of_experts(experts, width).items()}
        else:
            found[f"{layer}.up"] = (model.inner, width)
            found[f"{layer}.down"] = (width, model.inner)
            if model.is_gated:
                found[f"{layer}.gate"] = (model.inner, width)
        if model.architecture in ("qwen3", "qwen3moe", "gemma3"):
            found[f"{layer}.q_norm"] = found[f"{layer}.k_norm"] = (model.head_size,)
    return found


def _shapes_of_experts(experts: Experts, width: int) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "router": (experts.count, width),
        "gate_experts": (experts.count, experts.inner, width),
        "up_experts": (experts.count, experts.inner, width),
        "down_experts": (experts.count, width, experts.inner),
    }
    if experts.shared:
        found["shared_router"] = (width,)
        found["shared_gate"] = found["shared_up"] = (experts.shared, width)
        found["shared_down"] = (width, experts.shared)
    return found


def _check(found: Mapping[str, Tensor], model: Configuration) -> None:
    needed = shapes_of(model)
    missing = [name for name in needed if name not in found]
    if missing:
        raise UsageError(f"[llm] a model of {model.architecture} needs {missing[0]}, which the file has not.")
    turned = (model.rotary_size // 2,)
    optional = {
        "head": needed["embedding"],
        "rotary_factors": turned,
        "rotary_short": turned,
        "rotary_long": turned,
    }
    for name, tensor in found.items():
        base = name.removesuffix(".bias")
        wanted = needed.get(base, optional.get(base))
        if wanted is not None and name.endswith(".bias"):
            wanted = wanted[:1]
        if tensor.shape != wanted:
            raise UsageError(
                f"[llm] {name} has shape {tensor.shape}, and {model.architecture} has {wanted} there."
            )
