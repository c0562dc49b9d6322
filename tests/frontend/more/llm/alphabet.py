"""A model whose every token says which follows: A to Z after a newline, then an end; digits go on for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hcq import Tensor
from hcq.frontend.more.llm.byte_pairs import BytePairs, characters
from hcq.frontend.more.llm.configuration import Configuration
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.splitting import SPLITS
from hcq.frontend.more.llm.tokenizer import Tokenizer
from tests.frontend.more.llm.test_model import weights_of

SPECIAL = {"<|im_start|>": 256, "<|im_end|>": 257, "<|end|>": 258}
END = 257
CONFIGURATION = Configuration("llama", 260, 64, 1, 4, 2, 16, 64, 1 << 16, rotary_size=16)


def successors() -> list[int]:
    """What follows each token: bytes are their own numbers."""
    found = [(token + 1) % 256 for token in range(256)] + [ord("A")] * 4
    found[ord("\n")] = ord("A")
    found[ord("Z")] = found[ord("z")] = END
    found[ord("9")] = ord("0")
    return found


def tokenizer(template: str = "") -> Tokenizer:
    tokens = [*characters(), *SPECIAL, "<unused>"]
    return Tokenizer(BytePairs(tokens, [], SPLITS["gpt-2"]), SPECIAL, None, {END}, template=template)


def model(context: int = 1 << 16) -> Model:
    """Layers add nothing; a row of the head is what the tokens that it follows are."""
    w: dict[str, Any] = weights_of(CONFIGURATION)
    for name in ("0.out", "0.down"):
        w[name][:] = 0
    w["norm"][:] = 1
    rows = w["embedding"] / np.linalg.norm(w["embedding"], axis=1, keepdims=True)
    w["embedding"], head = rows, np.zeros_like(rows)
    for token, follower in enumerate(successors()):
        head[follower] += rows[token]
    w["head"] = head
    weights = {name: Tensor(array) for name, array in w.items()}
    return Model(replace(CONFIGURATION, context=context), weights)
