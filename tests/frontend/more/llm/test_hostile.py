"""Files that say what no model has are refused in one sentence, and take no memory for it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hcq
from hcq import Tensor, UsageError
from hcq.frontend.more.llm.configuration import of_config, of_gguf
from hcq.frontend.more.llm.files import open_model
from hcq.frontend.more.llm.session import Session
from hcq.frontend.more.llm.tokenizer_files import of_folder
from hcq.frontend.more.llm.tokenizer_files import of_gguf as tokenizer_of_gguf
from tests.frontend.more.llm.test_model import LLAMA, METADATA, SMALL, gguf_of, weights_of

VALUES: list[Any] = [
    None, "", "7", "x" * 100_000, [], [1, 2], ["a"], {}, {"a": 1}, True, 0, -1, 3, 1 << 40, 1 << 400, 0.5, -1.5, 1e300,
    math.nan, math.inf, b"x",
]  # fmt: skip
GGUF: dict[str, Any] = METADATA | {
    "llama.attention.key_length": 8,
    "llama.rope.freq_base": 10000.0,
    "llama.rope.dimension_count": 8,
    "llama.rope.scaling.type": "linear",
    "llama.rope.scaling.factor": 2.0,
    "llama.attention.sliding_window": 0,
    "llama.attn_logit_softcapping": 0.0,
    "llama.final_logit_softcapping": 0.0,
    "llama.attention.query_pre_attn_scalar": 8,
}
TOKENIZER: dict[str, Any] = {
    "tokenizer.ggml.model": "llama",
    "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", "a", "b"],
    "tokenizer.ggml.token_type": [2, 3, 3, 1, 1],
    "tokenizer.ggml.scores": [0.0, 0.0, 0.0, -1.0, -2.0],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.eot_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.ggml.add_bos_token": True,
    "tokenizer.ggml.add_space_prefix": True,
    "tokenizer.chat_template": "[INST] [/INST]",
}
PAIRS: dict[str, Any] = TOKENIZER | {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "llama-bpe",
    "tokenizer.ggml.merges": ["a b"],
}
CONFIG: dict[str, Any] = SMALL | {
    "model_type": "gemma2", "rms_norm_eps": 1e-5, "head_dim": 8, "sliding_window": 4, "query_pre_attn_scalar": 8,
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "use_sliding_window": True, "rope_theta": 1e4,
    "partial_rotary_factor": 1.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 1e4,
        "original_max_position_embeddings": 32, "partial_rotary_factor": 1.0,
    },
}  # fmt: skip
GPT2: dict[str, Any] = {
    "model_type": "gpt2", "vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128, "n_inner": 64,
    "layer_norm_epsilon": 1e-5,
}  # fmt: skip
JSON: dict[str, Any] = {
    "model": {
        "type": "BPE",
        "vocab": {"a": 0, "b": 1, "ab": 2},
        "merges": [["a", "b"]],
        "byte_fallback": False,
    },
    "added_tokens": [{"id": 3, "content": "<s>", "special": True}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "normalizer": None,
    "post_processor": {"type": "TemplateProcessing"},
}


def variations(facts: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Facts with one of them left out, or saying something else, also within objects and lists."""
    found: list[tuple[str, dict[str, Any]]] = []
    for key, value in facts.items():
        found.append((f"no {key}", {name: other for name, other in facts.items() if name != key}))
        found += [(f"{key}={str(bad)[:20]}", facts | {key: bad}) for bad in VALUES]
        if isinstance(value, dict):
            found += [(f"{key}.{what}", facts | {key: inner}) for what, inner in variations(value)]
        if isinstance(value, list) and value:
            found += [(f"{key}[0]={str(bad)[:20]}", facts | {key: [bad, *value[1:]]}) for bad in VALUES]
            if isinstance(value[0], dict):
                found += [
                    (f"{key}[0].{what}", facts | {key: [inner]}) for what, inner in variations(value[0])
                ]
    return found


def refused(facts: dict[str, Any], read: Callable[[dict[str, Any]], Any]) -> int:
    """How many variations are refused; each is, or is read."""
    read(facts)
    count = 0
    for what, changed in variations(facts):
        try:
            read(changed)
        except UsageError as error:
            text = str(error)
            assert text.startswith("[llm] ") and text.endswith(".") and "\n" not in text, (what, text)
            assert len(text) < 600, (what, text)
            count += 1
        except Exception as error:
            pytest.fail(f"{what}: {error!r}")
    return count


def test_metadata_of_wrong_kinds_and_sizes_is_refused_in_one_sentence() -> None:
    assert refused(GGUF, lambda facts: of_gguf(facts, 97)) > 150
    gemma = {key.replace("llama.", "gemma2."): value for key, value in GGUF.items()}
    assert refused(gemma | {"general.architecture": "gemma2"}, lambda facts: of_gguf(facts, 97)) > 150


def test_config_json_of_wrong_kinds_and_sizes_is_refused_in_one_sentence() -> None:
    for config in (CONFIG, GPT2):
        assert refused(config, of_config) > 100


@pytest.mark.parametrize("metadata", [TOKENIZER, PAIRS], ids=["pieces", "pairs"])
def test_tokenizers_of_wrong_kinds_and_sizes_are_refused_in_one_sentence(metadata: dict[str, Any]) -> None:
    def read(facts: dict[str, Any]) -> None:
        made = tokenizer_of_gguf(facts, 97)
        if all(isinstance(token, int) and 0 <= token < 97 for token in made.ends):
            made.decode([3, 4])

    assert refused(metadata, read) > 100


def test_a_tokenizer_json_of_wrong_kinds_is_refused_in_one_sentence(tmp_path: Path) -> None:
    def read(data: dict[str, Any]) -> None:
        try:
            text = json.dumps(data)
        except (TypeError, ValueError):
            return  # it cannot be written either
        (tmp_path / "tokenizer.json").write_text(text)
        of_folder(tmp_path, 97)

    assert refused(JSON, read) > 50


def test_absurd_sizes_take_no_memory(tmp_path: Path) -> None:
    tensors = gguf_of(weights_of(LLAMA), LLAMA)
    for key, value in (
        ("llama.block_count", 1 << 30),
        ("llama.embedding_length", 1 << 30),
        ("llama.feed_forward_length", (1 << 24) - 1),
        ("llama.attention.head_count", 1 << 22),
        ("llama.block_count", 4096),
    ):
        hcq.save(tensors, tmp_path / "x.gguf", METADATA | {key: value})
        with pytest.raises(UsageError, match=r"^\[llm\] "):
            open_model(tmp_path / "x.gguf")


def test_an_embedding_that_is_no_table_is_refused(tmp_path: Path) -> None:
    hcq.save({"token_embd.weight": Tensor([1.0, 2.0])}, tmp_path / "x.gguf", METADATA)
    with pytest.raises(UsageError, match="no language model"):
        open_model(tmp_path / "x.gguf")


def test_turns_that_are_divided_by_nothing_are_refused(tmp_path: Path) -> None:
    for bad in (0.0, math.nan, math.inf, -1.0):
        factors = {"rope_freqs.weight": Tensor([1.0, 1.0, bad, 8.0])}
        hcq.save(gguf_of(weights_of(LLAMA), LLAMA) | factors, tmp_path / "x.gguf", METADATA)
        with pytest.raises(UsageError, match="not all above 0"):
            Session(open_model(tmp_path / "x.gguf").model, 16)
