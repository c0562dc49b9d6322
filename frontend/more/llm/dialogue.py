"""Dialogue: messages of a conversation to the tokens that a model was taught to read them as.

In       messages with roles; a tokenizer, with the marks that its vocabulary has
Out      tokens that end where the model's answer begins; which tokens and texts end the answer
Next     tokenizer.py (parts of text), questions.py (where messages come from)
Source   the chat templates of Qwen 2 (ChatML), Llama 3, Gemma, Phi 3, Mistral and Zephyr in their tokenizer_config.json

Files have such a form as a program of Jinja. It is not run: the form is recognised by its marks. What people write
never becomes a mark, be it spelled like one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hcq.frontend.more.llm.tokenizer import Tokenizer

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Message:
    """What someone said. role: of `ROLES`."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Form:
    """How a conversation is written.

    marks   by which it is recognised: all of them in a file's template, or tokens of its vocabulary
    turns   what stands before and behind each role's text; without "system", that text stands before the first user's
    answer  what stands before the answer
    ends    tokens that end an answer, if the vocabulary has them; stops  texts that do
    """

    name: str
    marks: tuple[str, ...]
    turns: Mapping[str, tuple[str, str]]
    answer: str
    ends: tuple[str, ...] = ()
    stops: tuple[str, ...] = ()


def _alike(before: str, behind: str, names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {role: (before.replace("ROLE", name), behind) for role, name in names.items()}


_ALL = {role: role for role in ROLES}
_GEMMA = {"user": "user", "assistant": "model"}
PLAIN = Form(
    "plain text",
    (),
    {"system": ("", "\n\n"), "user": ("User: ", "\n"), "assistant": ("Assistant: ", "\n")},
    "Assistant:",
    stops=("\nUser:",),
)
FORMS = (
    Form(
        "ChatML",
        ("<|im_start|>", "<|im_end|>"),
        _alike("<|im_start|>ROLE\n", "<|im_end|>\n", _ALL),
        "<|im_start|>assistant\n",
        ("<|im_end|>",),
    ),
    Form(
        "Llama 3",
        ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
        _alike("<|start_header_id|>ROLE<|end_header_id|>\n\n", "<|eot_id|>", _ALL),
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        ("<|eot_id|>",),
    ),
    Form(
        "Gemma",
        ("<start_of_turn>", "<end_of_turn>"),
        _alike("<start_of_turn>ROLE\n", "<end_of_turn>\n", _GEMMA),
        "<start_of_turn>model\n",
        ("<end_of_turn>",),
    ),
    Form(
        "Phi 3",
        ("<|user|>", "<|assistant|>", "<|end|>"),
        _alike("<|ROLE|>\n", "<|end|>\n", _ALL),
        "<|assistant|>\n",
        ("<|end|>",),
    ),
    Form(
        "Zephyr",
        ("<|user|>", "<|assistant|>"),
        _alike("<|ROLE|>\n", "</s>\n", _ALL),
        "<|assistant|>\n",
        ("</s>",),
    ),
    Form(
        "Mistral",
        ("[INST]", "[/INST]"),
        {"user": ("[INST] ", " [/INST]"), "assistant": (" ", "</s>")},
        "",
        ("</s>",),
    ),
)


def form_of(tokenizer: Tokenizer) -> Form:
    """The form that the file's template has marks of, or else its vocabulary; `PLAIN` where neither has."""
    for known in (tokenizer.template, tokenizer.special):
        for form in FORMS:
            if known and all(mark in known for mark in form.marks):
                return form
    return PLAIN


def encoded(form: Form, tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """The tokens of a conversation, up to where the answer begins."""
    parts: list[tuple[str, bool]] = []
    before_user = ""
    for message in messages:
        if message.role not in form.turns:
            before_user += f"{message.text.strip()}\n\n"
            continue
        begin, end = form.turns[message.role]
        text = message.text.strip()
        if message.role == "user":
            text, before_user = before_user + text, ""
        parts += [(begin, True), (text, False), (end, True)]
    return tokenizer.encode_parts([*parts, (form.answer, True)])


def ends_of(form: Form, tokenizer: Tokenizer) -> frozenset[int]:
    """The tokens that end an answer."""
    return tokenizer.ends | {tokenizer.special[word] for word in form.ends if word in tokenizer.special}
