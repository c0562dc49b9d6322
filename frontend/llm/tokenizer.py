"""Tokenizer: text to the numbers that a model reads, and back, as the model's file says.

In       metadata of a GGUF file, or a tokenizer.json
Out      `Tokenizer`: encode, decode, and text from tokens that come one at a time
Changes  nothing
Next     byte_pairs.py (merges of bytes), pieces.py (pieces with scores), splitting.py (words first)
Source   llama.cpp's tokenizer.ggml keys; the tokenizer.json of the tokenizers library
"""

from __future__ import annotations

import json
import os
import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from hcq.checks import shown
from hcq.frontend.errors import UsageError
from hcq.frontend.llm.byte_pairs import BytePairs
from hcq.frontend.llm.pieces import Pieces
from hcq.frontend.llm.splitting import SPLITS, splitter_of_json

MAX_JSON_BYTES = 64 << 20
# types of tokens in GGUF files
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6


class Coder(Protocol):
    """What turns plain text into tokens, and a token into bytes."""

    def encode(self, text: str) -> list[int]:
        """The tokens of a text without special ones."""

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for."""


class Tokenizer:
    """Text to tokens and back.

    coder    of plain text
    special  text -> token, of those that stand for themselves, as <|endoftext|>; these are never made of plain text
             unless the text says so
    first    what a text begins with; None for nothing
    ends     tokens after which nothing follows
    """

    def __init__(
        self,
        coder: Coder,
        special: Mapping[str, int],
        first: int | None,
        ends: Iterable[int],
        has_leading_space: bool = False,
    ):
        self.coder = coder
        self.special = dict(special)
        self.first = first
        self.ends = frozenset(ends)
        self.has_leading_space = has_leading_space
        self._names = {token: text for text, token in special.items()}
        words = sorted(special, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, words))) if words else None

    def encode(self, text: str, begins: bool = True, takes_special: bool = True) -> list[int]:
        """The tokens of a text.

        begins         put the token first that a text begins with, if the model has one
        takes_special  words such as <|im_start|> in the text become the tokens they name; False for text of strangers
        """
        found = [self.first] if begins and self.first is not None else []
        at = 0
        for match in self._special.finditer(text) if self._special is not None and takes_special else ():
            if match.start() > at:
                found += self.coder.encode(text[at : match.start()])
            found.append(self.special[match[0]])
            at = match.end()
        return found + (self.coder.encode(text[at:]) if at < len(text) else [])

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for; a special one's name. Raises UsageError for a number that is no token."""
        name = self._names.get(token)
        return self.coder.bytes_of(token) if name is None else name.encode()

    def decode(self, tokens: Sequence[int], with_special: bool = False) -> str:
        """The text of tokens; special ones have none unless asked for."""
        kept = [token for token in tokens if with_special or token not in self._names]
        text = b"".join(map(self.bytes_of, kept)).decode("utf-8", "replace")
        return text[1:] if self.has_leading_space and text[:1] == " " else text

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """Text as tokens come: whole characters only, also where a character is several tokens."""
        decoder = getincrementaldecoder("utf-8")("replace")
        for token in tokens:
            if token not in self._names and (text := decoder.decode(self.bytes_of(token))):
                yield text
        if text := decoder.decode(b"", True):
            yield text


def of_gguf(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer of a GGUF file. Raises UsageError for one that has none, or of a kind that is not known."""
    get = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}.get
    kind, texts = get("model"), get("tokens")
    if kind not in ("gpt2", "llama") or texts is None:
        raise UsageError(
            f"[llm] the file has a tokenizer of the kind {shown(kind)}; gpt2 and llama are known."
        )
    tokens = list(texts)
    types = list(get("token_type") or [1] * len(tokens))
    if len(types) != len(tokens):
        raise UsageError(
            f"[llm] the file has {len(tokens)} tokens and {len(types)} types of them. It is damaged."
        )
    special = {
        text: i
        for i, (text, kind_) in enumerate(zip(tokens, types, strict=True))
        if kind_ in (CONTROL, USER_DEFINED)
    }
    coder: Coder
    if kind == "gpt2":
        split = get("pre", "gpt-2")
        if split not in SPLITS:
            raise UsageError(f"[llm] texts are split as {shown(split)} does; known are {', '.join(SPLITS)}.")
        coder = BytePairs(tokens, _merges(get("merges") or ()), SPLITS[split])
        begins = bool(get("add_bos_token", split in ("llama-bpe",)))
    else:
        scores = list(get("scores") or ())
        has_space = bool(get("add_space_prefix", True))
        coder = Pieces(tokens, scores, types, has_space, get("unknown_token_id"))
        begins = bool(get("add_bos_token", True))
    ends = [
        token for key in ("eos_token_id", "eot_token_id", "eom_token_id") if (token := get(key)) is not None
    ]
    ends += [
        special[word] for word in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>") if word in special
    ]
    leading = kind == "llama" and bool(get("add_space_prefix", True))
    return Tokenizer(coder, special, get("bos_token_id") if begins else None, ends, leading)


def of_folder(folder: str | os.PathLike[str]) -> Tokenizer:
    """The tokenizer beside a model's safetensors: tokenizer.json, and what config.json says of the ends."""
    path = Path(folder) / "tokenizer.json"
    data = _json(path)
    model = data.get("model") or {}
    vocabulary, merges = model.get("vocab"), model.get("merges")
    if model.get("type") != "BPE" or not isinstance(vocabulary, dict) or not isinstance(merges, list):
        raise UsageError(
            f"[llm] {path} has a tokenizer of the kind {shown(model.get('type'))}; BPE is known."
        )
    added = {token["content"]: token["id"] for token in data.get("added_tokens") or ()}
    tokens = [""] * (max([*vocabulary.values(), *added.values()], default=-1) + 1)
    for text, token in (vocabulary | added).items():
        tokens[token] = text
    names = (
        _json(path.with_name("tokenizer_config.json"))
        if path.with_name("tokenizer_config.json").is_file()
        else {}
    )
    config = _json(path.with_name("config.json")) if path.with_name("config.json").is_file() else {}
    is_bytes = not model.get("byte_fallback")
    coder: Coder
    if is_bytes:
        coder = BytePairs(tokens, _merges(merges), splitter_of_json(data.get("pre_tokenizer")))
        has_space = False
    else:
        # pieces by merges: an earlier merge is a better piece
        ranks = {left + right: -float(i) for i, (left, right) in enumerate(_merges(merges))}
        types = [BYTE if re.fullmatch(r"<0x[0-9A-F]{2}>", text) else 1 for text in tokens]
        has_space = "Prepend" in json.dumps(data.get("normalizer") or {}) or "Metaspace" in json.dumps(
            data.get("pre_tokenizer") or {}
        )
        lowest = -float(len(merges)) - 1
        coder = Pieces(tokens, [ranks.get(text, lowest) for text in tokens], types, has_space, None)
    first = added.get(_text_of(names.get("bos_token")))
    begins = "bos" in json.dumps(data.get("post_processor") or {}) or bool(names.get("add_bos_token"))
    if first is not None and _text_of(names.get("bos_token")) in json.dumps(data.get("post_processor") or {}):
        begins = True
    ends = config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends] if isinstance(ends, int) else []
    if (end := added.get(_text_of(names.get("eos_token")))) is not None:
        ends.append(end)
    return Tokenizer(coder, added, first if begins else None, ends, has_space)


def _text_of(token: Any) -> str:
    """A token's text, which may be in a dict with its flags."""
    return str(token.get("content")) if isinstance(token, dict) else str(token)


def _merges(merges: Iterable[Any]) -> list[tuple[str, str]]:
    found = []
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if len(parts) != 2:
            raise UsageError(f"[llm] the tokenizer has a merge {shown(merge)}; a merge is of two.")
        found.append((parts[0], parts[1]))
    return found


def _json(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_JSON_BYTES + 1)
        data = json.loads(text) if len(text) <= MAX_JSON_BYTES else None
    except FileNotFoundError:
        raise UsageError(f"[llm] {path} is missing.") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"[llm] {path} is no JSON: {error}.") from None
    if not isinstance(data, dict):
        raise UsageError(f"[llm] {path} is no JSON object, or too large.")
    return data
