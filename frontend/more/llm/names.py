"""Names: what the tensors of a language model are called here, and in the files of others.

In       the tensors of a file
Out      tensors under our names, in our shapes: products are (out, in)
Changes  nothing
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

GGUF = {
    "token_embd": "embedding",
    "position_embd": "positions",
    "output_norm": "norm",
    "output": "head",
    "rope_freqs": "rotary_factors",
    "rope_factors_short": "rotary_short",
    "rope_factors_long": "rotary_long",
}
GGUF_LAYER = {
    "attn_norm": "before",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_qkv": "qkv",
    "attn_output": "out",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "ffn_norm": "between",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
    "ffn_gate_inp": "router",
    "ffn_gate_exps": "gate_experts",
    "ffn_up_exps": "up_experts",
    "ffn_down_exps": "down_experts",
    "ffn_gate_inp_shexp": "shared_router",
    "ffn_gate_shexp": "shared_gate",
    "ffn_up_shexp": "shared_up",
    "ffn_down_shexp": "shared_down",
    "post_attention_norm": "after_attention",
    "post_ffw_norm": "after_feed_forward",
}
STATE_DICT = {
    "embed_tokens": "embedding",
    "norm": "norm",
    "lm_head": "head",
    "wte": "embedding",
    "wpe": "positions",
    "ln_f": "norm",
}
STATE_DICT_LAYER = {
    "input_layernorm": "before",
    "self_attn.q_proj": "q",
    "self_attn.k_proj": "k",
    "self_attn.v_proj": "v",
    "self_attn.qkv_proj": "qkv",
    "self_attn.o_proj": "out",
    "self_attn.q_norm": "q_norm",
    "self_attn.k_norm": "k_norm",
    "post_attention_layernorm": "between",
    "mlp.gate_proj": "gate",
    "mlp.up_proj": "up",
    "mlp.gate_up_proj": "gate_up",
    "mlp.down_proj": "down",
    "ln_1": "before",
    "attn.c_attn": "qkv",
    "attn.c_proj": "out",
    "ln_2": "between",
    "mlp.c_fc": "up",
    "mlp.c_proj": "down",
    "mlp.gate": "router",
    "block_sparse_moe.gate": "router",
    "mlp.shared_expert_gate": "shared_router",
    "mlp.shared_expert.gate_proj": "shared_gate",
    "mlp.shared_expert.up_proj": "shared_up",
    "mlp.shared_expert.down_proj": "shared_down",
}
# of one expert of several
STATE_DICT_EXPERT = {
    "gate_proj": "gate_experts",
    "up_proj": "up_experts",
    "down_proj": "down_experts",
    "w1": "gate_experts",
    "w3": "up_experts",
    "w2": "down_experts",
}
# of Gemma 2 and 3, where the word for the norm between stands for the one after attention
GEMMA2_LAYER = {
    "post_attention_layernorm": "after_attention",
    "pre_feedforward_layernorm": "between",
    "post_feedforward_layernorm": "after_feed_forward",
}
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
    found: dict[str, Tensor] = {}
    apart: dict[str, dict[int, Tensor]] = {}  # of experts, by their numbers
    for name in tensors:
        if _LEFT_OUT.fullmatch(name):
            continue
        match = (_GGUF if is_gguf else _STATE).fullmatch(name)
        layer, word, part = match.groups() if match else (None, "", "")
        if layer is None:
            ours = (GGUF if is_gguf else STATE_DICT).get(word)
        else:
            table = GGUF_LAYER if is_gguf else STATE_DICT_LAYER
            own = GEMMA2_LAYER if model.architecture in ("gemma2", "gemma3") and not is_gguf else {}
            ours = own.get(word) or table.get(word)
            if (one := _EXPERT.fullmatch(word)) and not is_gguf and one[2] in STATE_DICT_EXPERT:
                apart.setdefault(f"{layer}.{STATE_DICT_EXPERT[one[2]]}", {})[int(one[1])] = tensors[name]
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
