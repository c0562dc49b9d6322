"""`python -m hcq llm` writes text as the model and its tokenizer say, and says what it cannot do."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hcq
from hcq import Tensor
from hcq.__main__ import main
from hcq.frontend.more.llm.files import Opened
from hcq.frontend.more.llm.session import Session
from tests.frontend.more.llm import alphabet
from tests.frontend.more.llm.test_model import LLAMA, METADATA, gguf_of, weights_of

CHAT_ML = "<|im_start|><|im_end|>"


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A model of 97 tokens: bytes of ASCII, of which it writes the one after the last."""
    words = ["<s>", "</s>", *(chr(33 + i) for i in range(94)), "\u0120"]
    w = weights_of(LLAMA)
    for name in w:  # every layer adds nothing, so that what is seen is what the embedding says
        if name.endswith((".out", ".down")):
            w[name][:] = 0
    tensors: dict[str, Any] = gguf_of(w, LLAMA)
    tensors["output.weight"] = Tensor(w["embedding"][[96, *range(96)]])  # row i is what token i - 1 is
    metadata = METADATA | {
        "general.name": "next",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": [3, 3] + [1] * 95,
        "tokenizer.ggml.eos_token_id": 1,
    }
    hcq.save(tensors, tmp_path / "next.gguf", metadata)
    return str(tmp_path / "next.gguf")


def test_text_goes_on_from_the_prompt(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["llm", model, "a", "--temperature", "0", "--tokens", "3", "--context", "16"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "abcd\n"
    assert "next: 3 tokens in" in shown.err


@pytest.mark.thorough
def test_the_prompt_may_come_from_standard_input(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("mn"))
    assert main(["llm", model, "--temperature", "0", "--tokens", "2", "--context", "16"]) == 0
    assert capsys.readouterr().out == "mnop\n"


@pytest.mark.thorough
def test_a_conversation_goes_on_line_by_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Opened(alphabet.model(256), alphabet.tokenizer(CHAT_ML), "alphabet")
    monkeypatch.setattr("hcq.frontend.more.llm.command.open_model", lambda path, device: opened)
    read = []
    plain = Session.read
    monkeypatch.setattr(Session, "read", lambda self, tokens: read.append(len(tokens)) or plain(self, tokens))
    monkeypatch.setattr("sys.stdin", io.StringIO("hello\n\nagain\n"))
    assert main(["llm", "x.gguf", "--chat", "--temperature", "0"]) == 0
    letters = "".join(map(chr, range(ord("A"), ord("Z") + 1)))
    shown = capsys.readouterr()
    assert shown.out == f"{letters}\n{letters}\n" and "conversation as ChatML" in shown.err
    prompts = [count for count in read if count > 1]
    assert len(prompts) == 2 and prompts[1] < prompts[0] + 10  # what was said is not read again


@pytest.mark.thorough
def test_ctrl_c_ends_the_text_with_the_status_of_a_program_that_was_interrupted(
    model: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: Session, *args: Any) -> Iterator[int]:
        yield 66
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "write", interrupted)
    assert main(["llm", model, "a", "--context", "16"]) == 130
    shown = capsys.readouterr()
    assert shown.out == "aa\n" and "next: 1 tokens in" in shown.err


def test_what_it_cannot_do_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hcq.save({"w": Tensor([1.0])}, tmp_path / "x.gguf", {"general.architecture": "llama"})
    hcq.save({"w": Tensor([1.0])}, tmp_path / "x.safetensors")
    hcq.save(gguf_of(weights_of(LLAMA), LLAMA), tmp_path / "mute.gguf", METADATA)
    for words, why in (
        ([], "--random SIZE"),
        ([str(tmp_path / "x.gguf")], "no language model"),
        ([str(tmp_path / "x.safetensors")], "Give a GGUF file"),
        ([str(tmp_path / "mute.gguf"), "text"], "no tokenizer"),
        (["x.gguf", "prompt", "--serve"], "takes no prompt"),
        (["x.gguf", "--serve", "--slots", "0"], "slots are from 1"),
        (["x.gguf", "--tokens", "0"], "give 1 or more"),
        (["x.gguf", "--random", "gpt2"], "one of them"),
    ):
        assert main(["llm", *words]) == 2
        assert why in capsys.readouterr().err
