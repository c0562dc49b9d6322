"""Questions: bodies of requests in the form of OpenAI's API, checked field by field.

In       the bytes of a body; a tokenizer and its form of conversation
Out      a `Question`: tokens, how to choose, where to stop, how to answer
Next     server.py (who asks), dialogue.py (messages to tokens), sampling.py (how tokens are chosen)
Source   OpenAI's API reference: /v1/chat/completions and /v1/completions; top_k, min_p and repetition_penalty as other
         local servers take them

A field that is not known, or says what cannot be done, is refused: no answer looks as if it had been followed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hcq.checks import shown
from hcq.frontend.more.llm.dialogue import ROLES, Form, Message, encoded, ends_of
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.more.llm.tokenizer import Tokenizer

MOST_TOKENS = 512  # that are written where nobody says how many
MAX_STOPS, MAX_STOP_LENGTH = 4, 256
MAX_MESSAGES = 4096
MAX_ANSWERS = 128
MAX_LIKELIEST = 20
# what changes nothing here, whatever it says
UNREAD = {"user", "metadata", "store", "safety_identifier", "prompt_cache_key", "service_tier"}
# what can be done in one way only; null is that way, too
ONE_WAY: dict[str, tuple[Any, ...]] = {
    "best_of": (1,), "echo": (False,), "suffix": ("",), "tools": ([],), "functions": ([],),
    "tool_choice": ("none", "auto"), "response_format": ({"type": "text"},), "modalities": (["text"],),
    "parallel_tool_calls": (True, False),
}  # fmt: skip
READ = {
    "model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed", "stop", "stream",
    "stream_options", "n", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs",
}  # fmt: skip


class Refused(Exception):
    """A request that is not answered. status: of HTTP; parameter: the field that is to blame; code: a word for it."""

    def __init__(self, text: str, parameter: str | None = None, status: int = 400, code: str | None = None):
        super().__init__(text)
        self.parameter, self.status, self.code = parameter, status, code

    @property
    def body(self) -> dict[str, Any]:
        """What is answered."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        error = {"message": str(self), "type": kind, "param": self.parameter, "code": self.code}
        return {"error": error}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for.

    samplers   one for each answer
    likeliest  of how many tokens the chance is told beside each that is written; None for none
    """

    prompt: list[int]
    samplers: list[Sampler]
    most: int
    ends: frozenset[int]
    stops: list[str]
    is_stream: bool
    wants_usage: bool
    is_chat: bool
    likeliest: int | None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads questions for one model.

    room   tokens that there is place for, the answer's included
    plain  values of a `Sampler` where nobody says others
    """

    model: str
    vocabulary: int
    tokenizer: Tokenizer
    form: Form
    room: int
    plain: Mapping[str, Any]

    def question(self, content: bytes, is_chat: bool) -> Question:
        """A question. Raises Refused."""
        body = _object(content)
        _check_names(body, is_chat)
        if (model := body.get("model")) is not None and model != self.model:
            raise Refused(
                f"model {shown(model)} is not here; there is {shown(self.model)}.",
                "model",
                404,
                "model_not_found",
            )
        prompt = self._conversation(body) if is_chat else self._prompt(body)
        if not prompt:
            raise Refused("there is no token to go on from: the prompt is empty.", "prompt")
        if len(prompt) >= self.room:
            raise Refused(
                f"the prompt has {len(prompt)} tokens, and there is room for {self.room} with the answer. Shorten it.",
                "messages" if is_chat else "prompt", code="context_length_exceeded",
            )  # fmt: skip
        options = body.get("stream_options") or {}
        is_stream = _flag(body, "stream")
        if not isinstance(options, dict) or set(options) - {"include_usage"} or (options and not is_stream):
            raise Refused(
                f"stream_options says {shown(options)}; it takes include_usage, where stream is true.",
                "stream_options",
            )
        stops, ends = _stops(body), self.tokenizer.ends
        if is_chat:
            stops, ends = [*stops, *self.form.stops], ends_of(self.form, self.tokenizer)
        name = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
        most = _number(body, name, int, 1, 1 << 30, MOST_TOKENS)
        usage = _flag(options, "include_usage")
        count = _number(body, "n", int, 1, MAX_ANSWERS, 1)
        samplers = [self._sampler(body, which) for which in range(count)]
        likeliest = _likeliest(body, is_chat)
        return Question(prompt, samplers, most, ends, stops, is_stream, usage, is_chat, likeliest)

    def _sampler(self, body: dict[str, Any], which: int) -> Sampler:
        """The sampler of an answer; with a seed, each has its own."""
        plain = self.plain
        seed = _number(body, "seed", int, -(1 << 63), 1 << 63, plain["seed"])
        return Sampler(
            _number(body, "temperature", float, 0, 2, plain["temperature"]),
            _number(body, "top_k", int, 0, 1 << 30, plain["top_k"]),
            _number(body, "top_p", float, 1e-9, 1, plain["top_p"]),
            _number(body, "min_p", float, 0, 1, plain["min_p"]),
            _number(body, "repetition_penalty", float, 1e-3, 1e3, plain["repetition"]),
            None if seed is None else seed + which,
            _number(body, "presence_penalty", float, -2, 2, 0.0),
            _number(body, "frequency_penalty", float, -2, 2, 0.0),
            self._bias(body),
        )

    def _bias(self, body: dict[str, Any]) -> dict[int, float]:
        bias = body.get("logit_bias")
        takes = f"it takes an object of tokens, '0' to '{self.vocabulary - 1}', with numbers from -100 to 100"
        if bias is not None and not isinstance(bias, dict):
            raise Refused(f"logit_bias says {shown(bias)}; {takes}.", "logit_bias")
        found = {}
        for name, value in (bias or {}).items():
            is_token = name.isascii() and name.isdecimal() and len(name) < 10 and int(name) < self.vocabulary
            if not is_token or not _is_number(value) or not -100 <= value <= 100:
                raise Refused(f"logit_bias has {shown(value)} for {shown(name)}; {takes}.", "logit_bias")
            found[int(name)] = float(value)
        return found

    def _prompt(self, body: dict[str, Any]) -> list[int]:
        prompt = body.get("prompt")
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
            prompt = prompt[0]
        if isinstance(prompt, str):
            return self.tokenizer.encode(_text(prompt, "prompt"))
        if isinstance(prompt, list) and all(_is_whole(token) for token in prompt):
            if bad := [token for token in prompt if not 0 <= token < self.vocabulary]:
                raise Refused(f"the prompt has token {bad[0]} of {self.vocabulary}.", "prompt")
            return prompt
        raise Refused(f"prompt says {shown(prompt)}; it takes one text, or its tokens.", "prompt")

    def _conversation(self, body: dict[str, Any]) -> list[int]:
        messages = body.get("messages")
        if not isinstance(messages, list) or not 1 <= len(messages) <= MAX_MESSAGES:
            raise Refused(
                "messages takes a list of messages, [{'role': 'user', 'content': '...'}], at least one.",
                "messages",
            )
        return encoded(self.form, self.tokenizer, [_message(entry, i) for i, entry in enumerate(messages)])


def _object(content: bytes) -> dict[str, Any]:
    def no_number(word: str) -> Any:
        raise ValueError(f"{word} is no number of JSON")

    try:
        body = json.loads(content.decode("utf-8"), parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the body is no JSON: {str(error)[:200]}.") from None
    if not isinstance(body, dict):
        raise Refused(f"the body is {type(body).__name__}; it has to be a JSON object.")
    return body


def _check_names(body: dict[str, Any], is_chat: bool) -> None:
    own = {"messages", "max_completion_tokens", "top_logprobs"} if is_chat else {"prompt"}
    for name, value in body.items():
        if name in READ or name in own or name in UNREAD:
            continue
        if name not in ONE_WAY:
            raise Refused(
                f"{shown(name)} is not a field that is known here.", name[:64], code="unknown_parameter"
            )
        if value is not None and not any(value == way and type(value) is type(way) for way in ONE_WAY[name]):
            if not (isinstance(value, float) and value in ONE_WAY[name]):
                raise Refused(
                    f"{name} says {shown(value)}; this server does {shown(ONE_WAY[name][0])} alone.",
                    name, code="unsupported_value",
                )  # fmt: skip


def _message(entry: Any, place: int) -> Message:
    where = f"messages[{place}]"
    if not isinstance(entry, dict):
        raise Refused(f"{where} is {shown(entry)}; it takes an object with role and content.", where)
    role, content = entry.get("role"), entry.get("content")
    role = "system" if role == "developer" else role
    if role not in ROLES:
        raise Refused(f"{where} has the role {shown(role)}; known are {', '.join(ROLES)}.", f"{where}.role")
    if isinstance(content, list):
        are_texts = all(isinstance(part, dict) and part.get("type") == "text" for part in content)
        texts = [part.get("text") for part in content] if are_texts else [None]
        content = "".join(map(str, texts)) if all(isinstance(text, str) for text in texts) else None
    if not isinstance(content, str):
        raise Refused(f"{where} has a content that is no text, nor a list of texts.", f"{where}.content")
    if others := set(entry) - {"role", "content", "name", "refusal"}:
        raise Refused(f"{where} has {shown(min(others))}, which is not known here.", where)
    return Message(role, _text(content, f"{where}.content"))


def _text(text: str, where: str) -> str:
    """Text that can be written in UTF-8: half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused("there is half of a character, which is no text.", where) from None
    return text


def _stops(body: dict[str, Any]) -> list[str]:
    stops = body.get("stop")
    stops = [] if stops is None else [stops] if isinstance(stops, str) else stops
    are_words = isinstance(stops, list) and all(isinstance(word, str) and 0 < len(word) for word in stops)
    if not are_words or len(stops) > MAX_STOPS or any(len(word) > MAX_STOP_LENGTH for word in stops):
        raise Refused(
            f"stop takes a text, or up to {MAX_STOPS}, of 1 to {MAX_STOP_LENGTH} characters each.", "stop"
        )
    return [_text(word, "stop") for word in stops]


def _likeliest(body: dict[str, Any], is_chat: bool) -> int | None:
    """Of how many likely tokens the chance is asked for: in conversations by two fields, for texts by one."""
    if not is_chat:
        return (
            None if body.get("logprobs") is False else _number(body, "logprobs", int, 0, MAX_LIKELIEST, None)
        )
    is_asked, count = _flag(body, "logprobs"), _number(body, "top_logprobs", int, 0, MAX_LIKELIEST, 0)
    if count and not is_asked:
        raise Refused(f"top_logprobs says {count}; it takes numbers where logprobs is true.", "top_logprobs")
    return count if is_asked else None


def _flag(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refused(f"{name} says {shown(value)}; it takes true or false.", name)
    return bool(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_whole(value) or isinstance(value, float)


def _number(body: dict[str, Any], name: str, kind: type, low: float, high: float, plain: Any) -> Any:
    value = body.get(name)
    if value is None:
        return plain
    if not (_is_whole(value) or (kind is float and isinstance(value, float))) or not low <= value <= high:
        words = "a whole number" if kind is int else "a number"
        raise Refused(f"{name} says {shown(value)}; it takes {words} from {low:g} to {high:g}.", name)
    return kind(value)
