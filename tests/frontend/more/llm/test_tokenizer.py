"""Tokenizers give the tokens of the tokenizers library, from tokenizer.json and from GGUF metadata alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hcq import UsageError
from hcq.frontend.more.llm.byte_pairs import characters
from hcq.frontend.more.llm.splitting import GPT2, LLAMA3, QWEN2, splitter
from hcq.frontend.more.llm.tokenizer_files import of_folder, of_gguf

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and doesn't look back.",
    "In 1984 there were 12345 pages; they'll be read again.",
    "Grüße aus München: das Wetter ist schön, nicht wahr?",
    "def f(x):\n    return x + 1\n\n\nprint(f(3))",
]
TEXTS = [
    *CORPUS,
    "",
    " ",
    "   two  spaces   ",
    "\n\n\r\n tail \t",
    "we're WE'RE I'M it's",
    "½ ² Ⅷ 一二三 ١٢٣ 12345678",
    "日本語のテキスト 🙂👩‍👩‍👧 e\u0301",
    "x" * 40,
    "a<|end|>b<|end|>",
]


def trained(folder: Path, pattern: str) -> Any:
    """A byte-level tokenizer of the library's own, with its file."""
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(CORPUS, trainer)
    made.save(str(folder / "tokenizer.json"))
    return made


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, QWEN2], ids=["gpt2", "llama3", "qwen2"])
def test_byte_pairs_are_those_of_the_tokenizers_library(tmp_path: Path, pattern: str) -> None:
    theirs = trained(tmp_path, pattern)
    ours = of_folder(tmp_path)
    for text in TEXTS:
        tokens = theirs.encode(text, add_special_tokens=False).ids
        assert ours.encode(text) == tokens, text
        assert ours.decode(tokens, with_special=True) == text
        assert "".join(ours.stream(tokens)) == text.replace("<|end|>", "")


def test_metadata_of_a_gguf_file_means_the_same_tokenizer(tmp_path: Path) -> None:
    theirs = trained(tmp_path, LLAMA3)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    ours = of_gguf(
        {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.pre": "llama-bpe",
            "tokenizer.ggml.tokens": tokens,
            "tokenizer.ggml.token_type": [3 if token == "<|end|>" else 1 for token in tokens],
            "tokenizer.ggml.merges": [" ".join(merge) for merge in model["merges"]],
            "tokenizer.ggml.bos_token_id": 0,
            "tokenizer.ggml.eos_token_id": 0,
        }
    )
    assert ours.ends == {0}
    for text in TEXTS:
        assert ours.encode(text) == [0, *theirs.encode(text, add_special_tokens=False).ids]
    assert 0 not in ours.encode("a<|end|>", begins=False, takes_special=False)


def pieces(**more: Any) -> Any:
    return of_gguf(words_of_pieces() | more)


def words_of_pieces() -> dict[str, Any]:
    """A vocabulary of pieces as SentencePiece has them: the longer, the better."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [
        "\u2581",
        *"helo wrd".replace(" ", ""),
        "he",
        "ll",
        "\u2581he",
        "llo",
        "hello",
        "\u2581hello",
        "wo",
        "rld",
    ]
    types = [2, 3, 3] + [6] * 256 + [1] * len(texts)
    scores = [0.0] * 259 + [-float(i) for i in range(len(texts))]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": words + texts,
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


def test_pieces_merge_by_score_and_what_no_piece_is_becomes_bytes() -> None:
    ours = pieces()
    shown = [ours.bytes_of(token).decode() for token in ours.encode("hello world")]
    assert shown == ["<s>", " hello", " ", "wo", "r", "l", "d"]
    assert ours.decode(ours.encode("hello wörld 🙂")) == "hello wörld 🙂"
    assert ours.encode("ö", begins=False)[1:] == [3 + byte for byte in "ö".encode()]
    assert "".join(ours.stream(ours.encode("🙂", begins=False))) == " 🙂"


def test_pieces_are_those_of_the_tokenizers_library(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    from tokenizers import decoders, models, normalizers, trainers

    plain = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trainer = trainers.BpeTrainer(vocab_size=150, special_tokens=["<unk>"], show_progress=False)
    plain.train_from_iterator(["\u2581" + text.replace(" ", "\u2581") for text in CORPUS], trainer)
    learnt = json.loads(plain.to_str())["model"]
    vocabulary = {"<unk>": 0} | {f"<0x{byte:02X}>": 1 + byte for byte in range(256)}
    for text in learnt["vocab"]:
        vocabulary.setdefault(text, len(vocabulary))
    merges = [tuple(merge) for merge in learnt["merges"]]
    theirs = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    theirs.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    theirs.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = of_folder(tmp_path)
    for text in TEXTS:
        assert ours.encode(text) == theirs.encode(text).ids, text
        assert ours.decode(ours.encode(text)) == text


def test_every_byte_has_a_character_of_its_own() -> None:
    assert len(set(characters())) == 256
    assert characters()[ord("A")] == "A"


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, QWEN2])
def test_words_together_are_the_text(pattern: str) -> None:
    for text in TEXTS:
        assert "".join(splitter(pattern)(text)) == text


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({}, "of the kind None"),
        ({"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["a"]}, "of the kind 'bert'"),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.pre": "x"},
            "split as 'x'",
        ),
        (
            {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"], "tokenizer.ggml.merges": ["a"]},
            "merge 'a'",
        ),
        ({"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a"]}, "1 tokens and 0 scores"),
        (
            {
                "tokenizer.ggml.model": "llama",
                "tokenizer.ggml.tokens": ["a"],
                "tokenizer.ggml.token_type": [1, 1],
            },
            "1 tokens and 2 types",
        ),
    ],
)
def test_a_tokenizer_that_is_not_known_says_why(metadata: Any, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        of_gguf(metadata)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("{", "no JSON"),
        ('{"model": {"type": "WordPiece"}}', "'WordPiece'; BPE is known"),
        (
            '{"model": {"type": "BPE", "vocab": {}, "merges": []}, "pre_tokenizer": {"type": "Digits"}}',
            "splits texts by",
        ),
    ],
)
def test_a_tokenizer_json_that_is_not_known_says_why(tmp_path: Path, data: str, why: str) -> None:
    (tmp_path / "tokenizer.json").write_text(data)
    with pytest.raises(UsageError, match=why):
        of_folder(tmp_path)
