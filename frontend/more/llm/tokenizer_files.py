"""Tokenizers of files: what a GGUF file's metadata or a tokenizer.json says of text and tokens.

In       metadata of a GGUF file, or a folder with tokenizer.json
Out      a `Tokenizer`; one sentence about a file that is damaged, or of a kind that is not known
Next     tokenizer.py (what it does), facts.py (each word of a file is checked), splitting.py (words first)
Source   llama.cpp's tokenizer.ggml keys; the tokenizer.json of the tokenizers library
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hcq.checks import shown
from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.byte_pairs import BytePairs
from hcq.frontend.more.llm.facts import Facts
from hcq.frontend.more.llm.merging import merged
from hcq.frontend.more.llm.splitting import SPLITS, splitter_of_json
from hcq.frontend.more.llm.tokenizer import Coder, Tokenizer

MAX_JSON_BYTES = 64 << 20
MAX_TOKENS = 1 << 22
# types of tokens in GGUF files
UNKNOWN, CONTROL, USER_DEFINED, BYTE = 2, 3, 4, 6
ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")


def of_gguf(metadata: Mapping[str, Any], vocabulary: int = MAX_TOKENS) -> Tokenizer:
    """The tokenizer of a GGUF file.

    vocabulary  how many tokens the model has
    Raises      UsageError for a file that has none, of a kind that is not known, and where it says what cannot be
    """
    facts = Facts(metadata, "the metadata", "tokenizer.ggml.")
    kind, tokens = facts.get("model"), facts.values("tokens", str, "texts")
    if kind not in ("gpt2", "llama") or tokens is None:
        raise UsageError(
            f"[llm] the file has a tokenizer of the kind {shown(kind)}; gpt2 and llama are known."
        )
    if len(tokens) > vocabulary:
        raise UsageError(
            f"[llm] the file has {len(tokens)} tokens, and its model {vocabulary}. It is damaged."
        )
    types = facts.values("token_type", int, "whole numbers") or [1] * len(tokens)
    if len(types) != len(tokens):
        raise UsageError(
            f"[llm] the file has {len(tokens)} tokens and {len(types)} types of them. It is damaged."
        )

    def token_of(key: str) -> int | None:
        return None if facts.get(key) is None else facts.whole(key, high=vocabulary - 1)

    typed = enumerate(zip(tokens, types, strict=True))
    special = {text: i for i, (text, type_) in typed if type_ in (CONTROL, USER_DEFINED) and text}
    coder: Coder
    leading = False
    if kind == "gpt2":
        split = facts.text("pre", "gpt-2")
        if split not in SPLITS:
            raise UsageError(f"[llm] texts are split as {shown(split)} does; known are {', '.join(SPLITS)}.")
        merges = facts.values("merges", str, "texts") or []
        coder = BytePairs(tokens, _merges(merges), SPLITS[split])
        begins = facts.flag("add_bos_token", split == "llama-bpe")
    else:
        scores = facts.values("scores", float, "numbers") or []
        leading = facts.flag("add_space_prefix", True)
        coder = Pieces(tokens, scores, types, leading, token_of("unknown_token_id"))
        begins = facts.flag("add_bos_token", True)
    found = [token_of(key) for key in ("eos_token_id", "eot_token_id", "eom_token_id")]
    ends = [token for token in found if token is not None]
    ends += [special[word] for word in ENDS if word in special]
    first = token_of("bos_token_id")
    template = Facts(metadata, "the metadata").text("tokenizer.chat_template", "")
    return Tokenizer(coder, special, first if begins else None, ends, leading, template)


def of_folder(folder: str | os.PathLike[str], vocabulary: int = MAX_TOKENS) -> Tokenizer:
    """The tokenizer beside a model's safetensors: tokenizer.json, and what config.json says of the ends."""
    path = Path(folder) / "tokenizer.json"
    try:
        return _of_json(path, vocabulary)
    except RecursionError:
        raise UsageError(f"[llm] {path} has objects within objects, too deep to read.") from None


def _of_json(path: Path, vocabulary: int) -> Tokenizer:
    data = _json(path)
    model = Facts(data, str(path)).part("model")
    known, merges = model.get("vocab"), model.get("merges")
    if model.get("type") != "BPE" or not isinstance(known, dict) or not isinstance(merges, list):
        raise UsageError(
            f"[llm] {path} has a tokenizer of the kind {shown(model.get('type'))}; BPE is known."
        )
    added = _added(data, path)
    tokens = _texts(known | added, vocabulary, path)
    names, config = _json_or_none(path, "tokenizer_config.json"), _json_or_none(path, "config.json")
    coder: Coder
    has_space = False
    if not model.get("byte_fallback"):
        coder = BytePairs(tokens, _merges(merges), splitter_of_json(data.get("pre_tokenizer")))
    else:
        # pieces by merges: an earlier merge is a better piece
        ranks = {left + right: -float(i) for i, (left, right) in enumerate(_merges(merges))}
        types = [BYTE if re.fullmatch(r"<0x[0-9A-F]{2}>", text) else 1 for text in tokens]
        before = json.dumps([data.get("normalizer"), data.get("pre_tokenizer")])
        has_space = "Prepend" in before or "Metaspace" in before
        lowest = -float(len(merges)) - 1
        coder = Pieces(tokens, [ranks.get(text, lowest) for text in tokens], types, has_space, None)
    behind = json.dumps(data.get("post_processor") or {})
    bos = _text_of(names.get("bos_token"))
    first = added.get(bos)
    begins = "bos" in behind or names.get("add_bos_token") is True or (first is not None and bos in behind)
    ends = config.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [ends]
    ends = [token for token in ends if isinstance(token, int) and not isinstance(token, bool)]
    if (end := added.get(_text_of(names.get("eos_token")))) is not None:
        ends.append(end)
    return Tokenizer(coder, added, first if begins else None, ends, has_space, _template(path, names))


def _template(path: Path, names: dict[str, Any]) -> str:
    """How conversations are written: in a file of its own, in the other one, or there as one of several."""
    alone = path.with_name("chat_template.jinja")
    if alone.is_file():
        with open(alone, encoding="utf-8", errors="replace") as file:
            return file.read(MAX_JSON_BYTES)
    found = names.get("chat_template")
    if isinstance(found, list):
        found = next((one.get("template") for one in found if isinstance(one, dict)), "")
    return found if isinstance(found, str) else ""


def _added(data: dict[str, Any], path: Path) -> dict[str, int]:
    """Tokens that stand for themselves."""
    found: dict[str, int] = {}
    for token in Facts(data, str(path)).values("added_tokens", dict, "objects") or ():
        text = token.get("content")
        if not isinstance(text, str) or not text:
            raise UsageError(f"[llm] {path} adds {shown(token)}, which is no token.")
        found[text] = token.get("id")
    return found


def _texts(tokens: dict[str, Any], vocabulary: int, path: Path) -> list[str]:
    """The text of each token. Raises UsageError for numbers that are none."""
    for text, token in tokens.items():
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise UsageError(
                f"[llm] {path} has token {shown(token)} for {shown(text)}; tokens are from 0 to {vocabulary - 1}."
            )
    found = [""] * (max(tokens.values(), default=-1) + 1)
    for text, token in tokens.items():
        found[token] = text
    return found


def _text_of(token: Any) -> str:
    """A token's text, which may be in a dict with its flags."""
    return str(token.get("content")) if isinstance(token, dict) else str(token)


def _merges(merges: Iterable[Any]) -> list[tuple[str, str]]:
    found = []
    for merge in merges:
        parts = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) for part in parts):
            raise UsageError(f"[llm] the tokenizer has a merge {shown(merge)}; a merge is of two.")
        found.append((parts[0], parts[1]))
    return found


def _json_or_none(path: Path, name: str) -> dict[str, Any]:
    beside = path.with_name(name)
    return _json(beside) if beside.is_file() else {}


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


# -- tokens as pieces of text with scores, the best merge of two neighbours first --------------------------------------


SPACE = "\u2581"
NORMAL, BYTE = 1, 6
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Pieces:
    """Tokens by scores of what two neighbours become."""

    def __init__(
        self,
        tokens: Sequence[str],
        scores: Sequence[float],
        types: Sequence[int],
        has_leading_space: bool = True,
        unknown: int | None = None,
    ):
        if len(scores) != len(tokens):
            raise UsageError(
                f"[llm] the tokenizer has {len(tokens)} tokens and {len(scores)} scores. It is damaged."
            )
        self._texts = tokens
        self._tokens = {text: token for token, text in enumerate(tokens) if types[token] != BYTE}
        self._scores = scores
        self._bytes = {
            int(match[1], 16): token
            for token, text in enumerate(tokens)
            if types[token] == BYTE and (match := _BYTE.fullmatch(text))
        }
        self._values = {token: byte for byte, token in self._bytes.items()}
        self._has_leading_space = has_leading_space
        self._unknown = unknown

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        if not text:
            return []
        text = (" " if self._has_leading_space else "") + text
        found: list[int] = []
        for part in merged(text.replace(" ", SPACE), self._cost):
            token = self._tokens.get(part)
            found += [token] if token is not None else self._of_bytes(part)
        return found

    def _cost(self, left: str, right: str) -> float | None:
        """A better score costs less."""
        token = self._tokens.get(left + right)
        return None if token is None else -self._scores[token]

    def _of_bytes(self, part: str) -> list[int]:
        found = [self._bytes.get(byte, self._unknown) for byte in part.encode("utf-8", "surrogatepass")]
        return [token for token in found if token is not None]

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for."""
        if not 0 <= token < len(self._texts):
            raise UsageError(f"[llm] token {token} of {len(self._texts)}: there is none.")
        byte = self._values.get(token)
        return self._texts[token].replace(SPACE, " ").encode() if byte is None else bytes([byte])
