"""Files: a language model and its tokenizer from what people publish.

In       a GGUF file, or a folder with config.json, tokenizer.json and safetensors
Out      `Opened`: a model, its tokenizer, what it is called
Changes  device memory for the weights; quantised ones stay quantised there
Next     io/ (the formats), configuration.py, names.py, tokenizer_files.py
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from hcq.frontend.core.errors import UsageError
from hcq.frontend.io.files import load
from hcq.frontend.io.weights import Weights
from hcq.frontend.more.llm.configuration import Configuration, of_config, of_gguf
from hcq.frontend.more.llm.model import Model
from hcq.frontend.more.llm.names import weights_of
from hcq.frontend.more.llm.tokenizer import Tokenizer
from hcq.frontend.more.llm.tokenizer_files import of_folder as tokenizer_of_folder
from hcq.frontend.more.llm.tokenizer_files import of_gguf as tokenizer_of_gguf
from hcq.frontend.tensor import Tensor

MAX_CONFIG_BYTES = 1 << 20
# what GGUF files say of a tokenizer where they have none
NO_VOCABULARY = ("no_vocab", "none")


class Opened(NamedTuple):
    """A model with its tokenizer. tokenizer: None where the file has none."""

    model: Model
    tokenizer: Tokenizer | None
    name: str


def open_model(path: str | os.PathLike[str], device: str | None = None) -> Opened:
    """A language model from a GGUF file, or a folder as transformers writes it.

    device  where its weights are put; None is the default device
    Raises  UsageError, one sentence, for a damaged file, and for an architecture or a tokenizer that is not known
    """
    where = Path(path)
    if where.is_dir() and (where / "config.json").is_file():
        weights = load(where, device)
        model = Model(configuration := _config(where / "config.json"), _weights(weights, configuration))
        tokenizer = (
            tokenizer_of_folder(where, configuration.vocabulary)
            if (where / "tokenizer.json").is_file()
            else None
        )
        return Opened(model, tokenizer, where.name)
    weights = load(where, device)
    if weights.kind != "GGUF":
        raise UsageError(
            f"[llm] {where} is a {weights.kind} file. Give a GGUF file, or a folder with config.json."
        )
    shape = weights.entry("token_embd.weight").shape if "token_embd.weight" in weights else ()
    if len(shape) != 2:
        raise UsageError(
            f"[llm] {where} has no tensor token_embd.weight of two axes: it is no language model."
        )
    has_factors = {"rope_factors_short.weight", "rope_factors_long.weight"} <= set(weights)
    configuration = of_gguf(weights.metadata, shape[0], has_factors)
    tokenizer = None
    if weights.metadata.get("tokenizer.ggml.model", "no_vocab") not in NO_VOCABULARY:
        tokenizer = tokenizer_of_gguf(weights.metadata, shape[0])
    model = Model(configuration, _weights(weights, configuration))
    name = weights.metadata.get("general.name")
    return Opened(model, tokenizer, name[:200] if isinstance(name, str) and name else where.stem)


def _weights(weights: Weights, configuration: Configuration) -> dict[str, Tensor]:
    """The weights by our names: plain ones in memory as they are in the file, quantised ones as their bytes."""
    return weights_of(weights, weights.kind, configuration)


def _config(path: Path) -> Configuration:
    with open(path, "rb") as file:
        text = file.read(MAX_CONFIG_BYTES + 1)
    try:
        config = json.loads(text) if len(text) <= MAX_CONFIG_BYTES else None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"[llm] {path} is no JSON: {error}.") from None
    if not isinstance(config, dict):
        raise UsageError(f"[llm] {path} is no JSON object, or too large.")
    return of_config(config)
