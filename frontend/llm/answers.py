"""Answers: what the model writes, in the form of OpenAI's API, whole or in parts.

In       a question and its job
Out      objects of JSON
Changes  nothing; the job is given up where a stop is found
Next     server.py (who sends them), engine.py (where tokens come from), stops.py (where text ends)
Source   OpenAI's API reference: the chat completion object, its chunks, the completion object
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

from hcq.frontend.llm.engine import Job
from hcq.frontend.llm.questions import Question, Reader
from hcq.frontend.llm.stops import Stops


class Answer:
    """An answer that is being written. is_complete: it was written to its end, and somebody listened."""

    def __init__(
        self,
        question: Question,
        job: Job,
        reader: Reader,
        seconds: float,
        is_wanted: Callable[[], bool],
    ):
        self._question, self._job, self._reader = question, job, reader
        self._seconds, self._is_wanted = seconds, is_wanted
        self._id = f"{'chatcmpl' if question.is_chat else 'cmpl'}-{secrets.token_hex(12)}"
        self._began = int(time.time())
        self._tokens = 0
        self._why: str | None = None

    @property
    def is_complete(self) -> bool:
        """Whether it was written to its end."""
        return self._why is not None

    def texts(self) -> Iterator[str]:
        """The text as it is written, up to a stop. Raises Failed."""
        stops, tokenizer = Stops(self._question.stops), self._reader.tokenizer
        is_first = self._question.is_chat and tokenizer.has_leading_space
        for text in tokenizer.stream(self._counted()):
            if is_first:
                text, is_first = text.removeprefix(" "), False
            if given := stops.feed(text):
                yield given
            if stops.is_hit:
                self._why = "stop"
                self._job.give_up()
                return
        if rest := stops.rest():
            yield rest
        if self._job.ending:
            self._why = "stop" if self._job.ending == "end" else "length"

    def _counted(self) -> Iterator[int]:
        for token in self._job.tokens(self._seconds, self._is_wanted):
            self._tokens += 1
            yield token

    def whole(self) -> dict[str, Any]:
        """All of it. Raises Failed."""
        text = "".join(self.texts())
        choice: dict[str, Any] = {"text": text}
        if self._question.is_chat:
            choice = {"message": {"role": "assistant", "content": text, "refusal": None}}
        return self._part(choice, self._why) | {"usage": self._usage()}

    def parts(self) -> Iterator[dict[str, Any]]:
        """Piece by piece, the last with the reason why it ends. Raises Failed."""
        is_chat = self._question.is_chat
        texts = self.texts()
        text: str | None = next(texts, None)  # what cannot be answered at all fails here
        if is_chat:
            yield self._chunk({"delta": {"role": "assistant", "content": ""}})
        while text is not None:
            yield self._chunk({"delta": {"content": text}} if is_chat else {"text": text})
            text = next(texts, None)
        if not self.is_complete:
            return
        yield self._chunk({"delta": {}} if is_chat else {"text": ""}, self._why)
        if self._question.wants_usage:
            yield self._chunk(None) | {"usage": self._usage()}

    def _chunk(self, choice: dict[str, Any] | None, why: str | None = None) -> dict[str, Any]:
        more = {"usage": None} if self._question.wants_usage else {}
        return self._part(choice, why, ".chunk") | more

    def _part(self, choice: dict[str, Any] | None, why: str | None, kind: str = "") -> dict[str, Any]:
        name = f"chat.completion{kind}" if self._question.is_chat else "text_completion"
        choices = [] if choice is None else [{"index": 0, **choice, "logprobs": None, "finish_reason": why}]
        return {
            "id": self._id, "object": name, "created": self._began, "model": self._reader.model, "choices": choices,
        }  # fmt: skip

    def _usage(self) -> dict[str, int]:
        read = len(self._question.prompt)
        return {"prompt_tokens": read, "completion_tokens": self._tokens, "total_tokens": read + self._tokens}


def hashed(page: str, element: str) -> str:
    """The hashes of a page's own scripts or styles, as a Content-Security-Policy names them."""
    found = re.findall(rf"<{element}>(.*?)</{element}>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in found]
    return " ".join(f"'sha256-{digest}'" for digest in digests)
