"""The server answers in the form of OpenAI's API, refuses in one sentence, and frees the slot of who hangs up."""

from __future__ import annotations

import http.client
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hcq import DriverError, UsageError
from hcq.frontend.io import local_server
from hcq.frontend.io.local_server import Deadlines
from hcq.frontend.more.llm import server as server_module
from hcq.frontend.more.llm.batch import Batch
from hcq.frontend.more.llm.dialogue import form_of
from hcq.frontend.more.llm.engine import Engine
from hcq.frontend.more.llm.questions import Reader
from hcq.frontend.more.llm.server import Server
from tests.frontend.more.llm import alphabet

ROOM = 4000
PLAIN = {"temperature": 0.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0, "repetition": 1.0, "seed": None}
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    tokenizer = alphabet.tokenizer()
    made = Server(Reader("alphabet", 260, tokenizer, form_of(tokenizer), ROOM, PLAIN))
    made.engine = Engine(Batch(alphabet.model(), 2, ROOM), waiting=1)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.stop()


def ask(server: Server, path: str, body: Any = None, method: str = "", **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer. body: an object, or bytes as they are."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=50)
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    kind = {"Content-Type": "application/json"} if content is not None else {}
    method = method or ("GET" if content is None else "POST")
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, content, kind | given)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    assert answer.headers["Content-Type"] == "application/json", text
    return answer.status, json.loads(text)


def events(server: Server, path: str, body: Any) -> list[Any]:
    """The data of a streamed answer; what is no JSON as it stands."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=50)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/event-stream"
    lines = answer.read().decode().split("\n\n")
    connection.close()
    assert lines.pop() == ""
    data = [line.removeprefix("data: ") for line in lines]
    assert all(line.startswith("data: ") for line in lines) and data.pop() == "[DONE]"
    return [json.loads(one) for one in data]


def idle(server: Server) -> None:
    """Wait until no slot is taken."""
    deadline = time.monotonic() + 40
    while server.engine.load != (0, 0):
        assert time.monotonic() < deadline, server.engine.load
        time.sleep(0.005)


def test_a_conversation_is_answered(server: Server) -> None:
    status, found = ask(server, CHAT, HELLO)
    assert status == 200 and found["object"] == "chat.completion" and found["model"] == "alphabet"
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": LETTERS, "refusal": None}
    assert choice["finish_reason"] == "stop" and choice["index"] == 0
    usage = found["usage"]
    assert usage["completion_tokens"] == 26 and usage["total_tokens"] == usage["prompt_tokens"] + 26


def test_a_conversation_is_answered_as_it_is_written(server: Server) -> None:
    body = HELLO | {"stream": True, "stream_options": {"include_usage": True}}
    *parts, usage = events(server, CHAT, body)
    deltas = [part["choices"][0]["delta"] for part in parts]
    assert deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}
    assert [delta["content"] for delta in deltas[1:-1]] == list(LETTERS)
    assert [part["choices"][0]["finish_reason"] for part in parts] == [None] * 27 + ["stop"]
    assert {part["object"] for part in parts} == {"chat.completion.chunk"} and len(
        {p["id"] for p in parts}
    ) == 1
    assert usage["choices"] == [] and usage["usage"]["completion_tokens"] == 26


def test_a_text_goes_on(server: Server) -> None:
    status, found = ask(server, TEXT, {"prompt": "abc", "max_tokens": 4})
    assert status == 200 and found["object"] == "text_completion"
    assert found["choices"] == [{"index": 0, "text": "defg", "logprobs": None, "finish_reason": "length"}]
    parts = events(server, TEXT, {"prompt": [97], "max_tokens": 2, "stream": True})
    assert [part["choices"][0]["text"] for part in parts] == ["b", "c", ""]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("H", "BCDEFG"),
        (["KLM", "FGHX", "JK"], "BCDEFGHI"),
        (["YZ!"], LETTERS[1:]),
        ("BC", ""),
        (None, LETTERS[1:]),
    ],
)
def test_text_ends_before_a_stop(server: Server, stop: Any, text: str, stream: bool) -> None:
    body = {"prompt": "A", "stop": stop, "stream": stream}
    parts = events(server, TEXT, body) if stream else [ask(server, TEXT, body)[1]]
    assert "".join(part["choices"][0]["text"] for part in parts) == text
    assert parts[-1]["choices"][0]["finish_reason"] == "stop"
    idle(server)


def test_the_same_seed_writes_the_same_text(server: Server) -> None:
    body = {"prompt": "0", "temperature": 2.0, "top_k": 0, "max_tokens": 12}
    texts = [ask(server, TEXT, body | {"seed": seed})[1]["choices"][0]["text"] for seed in (1, 2, 1)]
    assert texts[0] == texts[2] != texts[1]
    # of the likeliest alone, whatever the temperature
    assert ask(server, TEXT, body | {"top_p": 1e-6})[1]["choices"][0]["text"] == "123456789012"


WILD = {"prompt": "0", "temperature": 2.0, "top_k": 0, "max_tokens": 12, "seed": 5}


def test_several_choices_are_those_of_several_seeds(server: Server) -> None:
    alone = [ask(server, TEXT, WILD | {"seed": seed})[1]["choices"][0]["text"] for seed in (5, 6, 7)]
    status, found = ask(server, TEXT, WILD | {"n": 3})
    assert status == 200 and [choice["index"] for choice in found["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in found["choices"]] == alone and len(set(alone)) == 3
    assert found["usage"] == {"prompt_tokens": 1, "completion_tokens": 36, "total_tokens": 37}
    streamed = {0: "", 1: "", 2: ""}
    ends = []
    for part in events(server, TEXT, WILD | {"n": 3, "stream": True}):
        (choice,) = part["choices"]
        streamed[choice["index"]] += choice["text"]
        ends += [choice["index"]] * (choice["finish_reason"] == "length")
    assert list(streamed.values()) == alone and sorted(ends) == [0, 1, 2]


def test_several_choices_of_a_conversation_each_begin_and_end_and_stop(server: Server) -> None:
    body = HELLO | {"n": 2, "stream": True, "stop": ["KLM"], "stream_options": {"include_usage": True}}
    *parts, usage = events(server, CHAT, body)
    for which in (0, 1):
        choices = [one["choices"][0] for one in parts if one["choices"][0]["index"] == which]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(one["delta"].get("content", "") for one in choices) == "ABCDEFGHIJ"
        assert [one["finish_reason"] for one in choices if one["finish_reason"]] == ["stop"]
    assert usage["usage"]["completion_tokens"] == 2 * len("ABCDEFGHIJKLM")
    idle(server)


def logarithms(token: int) -> Any:
    """What the model thinks of what follows a token; its layers add nothing."""
    weights = alphabet.model().weights
    x = weights["embedding"].numpy()[token].astype(float)
    logits = weights["head"].numpy().astype(float) @ (x / np.sqrt(np.mean(x * x) + 1e-5))
    lower = logits - logits.max()
    return lower - np.log(np.exp(lower).sum())


def test_chances_are_those_of_the_models_logits_whatever_the_switches(server: Server) -> None:
    body = {"prompt": "a", "max_tokens": 2, "logprobs": 3, "temperature": 0.5, "logit_bias": {"99": 100}}
    (choice,) = ask(server, TEXT, body)[1]["choices"]
    found = choice["logprobs"]
    assert choice["text"] == "cc" and found["tokens"] == ["c", "c"] and found["text_offset"] == [0, 1]
    for i, before in enumerate((97, 99)):
        expected = logarithms(before)
        assert found["token_logprobs"][i] == pytest.approx(expected[99], abs=1e-4)
        likeliest = np.argsort(-expected)[:3]
        assert sorted(found["top_logprobs"][i].values()) == pytest.approx(
            sorted(expected[likeliest]), abs=1e-4
        )
        assert chr(likeliest[0]) == max(found["top_logprobs"][i], key=found["top_logprobs"][i].__getitem__)


@pytest.mark.parametrize("stream", [False, True])
def test_chances_of_a_conversation_are_told_with_the_text_that_they_belong_to(
    server: Server, stream: bool
) -> None:
    body = HELLO | {"logprobs": True, "top_logprobs": 1, "stop": ["DEF"], "stream": stream}
    if stream:
        choices = [part["choices"][0] for part in events(server, CHAT, body)]
        for choice in choices[1:-1]:
            tokens = [one["token"] for one in choice["logprobs"]["content"]]
            assert "".join(tokens) == choice["delta"]["content"]
        content = [one for choice in choices if choice["logprobs"] for one in choice["logprobs"]["content"]]
    else:
        content = ask(server, CHAT, body)[1]["choices"][0]["logprobs"]["content"]
    assert [one["token"] for one in content] == list("ABC")  # what a stop cuts off is not told
    for one in content:
        assert one["bytes"] == list(one["token"].encode()) and len(one["top_logprobs"]) == 1
        assert one["top_logprobs"][0] == {name: one[name] for name in ("token", "logprob", "bytes")}
        assert -1 < one["logprob"] < 0


def test_a_token_that_is_biased_away_is_never_written(server: Server) -> None:
    body = {"prompt": "a", "max_tokens": 8}
    assert "b" not in ask(server, TEXT, body | {"logit_bias": {"98": -100}})[1]["choices"][0]["text"]
    assert ask(server, TEXT, body | {"logit_bias": {"98": 100}})[1]["choices"][0]["text"] == "b" * 8


def test_models_are_listed(server: Server) -> None:
    status, found = ask(server, "/v1/models")
    assert status == 200 and [model["id"] for model in found["data"]] == ["alphabet"]
    assert ask(server, "/v1/models/alphabet")[1]["object"] == "model"
    assert ask(server, "/v1/models/other")[0] == 404
    assert ask(server, "/health") == (200, {"status": "ok", "writing": 0, "waiting": 0})


def message(role: Any = "user", content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content, **more}]}


@pytest.mark.parametrize(
    ("path", "body", "status", "parameter", "why"),
    [
        (CHAT, b"{", 400, None, "no JSON"),
        (CHAT, b"\xff{}", 400, None, "no JSON"),
        (CHAT, b"[" * 100_000, 400, None, "no JSON"),
        (CHAT, b'{"temperature": NaN}', 400, None, "NaN is no number"),
        (CHAT, [], 400, None, "JSON object"),
        (CHAT, {}, 400, "messages", "at least one"),
        (CHAT, {"messages": []}, 400, "messages", "at least one"),
        (CHAT, {"messages": ["x"]}, 400, "messages[0]", "role and content"),
        (CHAT, message(role="robot"), 400, "messages[0].role", "'robot'"),
        (CHAT, message(role=["user"]), 400, "messages[0].role", "known are system"),
        (CHAT, message(content=None), 400, "messages[0].content", "no text"),
        (CHAT, message(content=[{"type": "image_url"}]), 400, "messages[0].content", "no text"),
        (CHAT, message(content="\ud800"), 400, "messages[0].content", "half of a character"),
        (CHAT, message(tool_calls=[]), 400, "messages[0]", "tool_calls"),
        (CHAT, HELLO | {"model": "gpt-4"}, 404, "model", "'alphabet'"),
        (CHAT, HELLO | {"temperature": 3}, 400, "temperature", "from 0 to 2"),
        (CHAT, HELLO | {"temperature": True}, 400, "temperature", "a number"),
        (CHAT, HELLO | {"top_p": 0}, 400, "top_p", "a number from"),
        (CHAT, HELLO | {"max_tokens": 0}, 400, "max_tokens", "whole number from 1"),
        (CHAT, HELLO | {"max_completion_tokens": 1.5}, 400, "max_completion_tokens", "whole number"),
        (CHAT, HELLO | {"seed": "1"}, 400, "seed", "whole number"),
        (CHAT, HELLO | {"stop": [""]}, 400, "stop", "up to 4"),
        (CHAT, HELLO | {"stop": ["a"] * 5}, 400, "stop", "up to 4"),
        (CHAT, HELLO | {"stream": "yes"}, 400, "stream", "true or false"),
        (CHAT, HELLO | {"stream_options": {"include_usage": True}}, 400, "stream_options", "stream is true"),
        (CHAT, HELLO | {"n": 4}, 400, "n", "room for 3"),
        (CHAT, HELLO | {"n": 0}, 400, "n", "from 1 to 128"),
        (CHAT, HELLO | {"n": True}, 400, "n", "from 1 to 128"),
        (CHAT, HELLO | {"frequency_penalty": 2.5}, 400, "frequency_penalty", "from -2 to 2"),
        (CHAT, HELLO | {"presence_penalty": "1"}, 400, "presence_penalty", "from -2 to 2"),
        (CHAT, HELLO | {"logit_bias": [1]}, 400, "logit_bias", "it takes an object"),
        (CHAT, HELLO | {"logit_bias": {"260": 1}}, 400, "logit_bias", "for '260'"),
        (CHAT, HELLO | {"logit_bias": {"a": 1}}, 400, "logit_bias", "for 'a'"),
        (CHAT, HELLO | {"logit_bias": {"1": 101}}, 400, "logit_bias", "-100 to 100"),
        (CHAT, HELLO | {"logit_bias": {"1": True}}, 400, "logit_bias", "-100 to 100"),
        (CHAT, HELLO | {"logprobs": 1}, 400, "logprobs", "true or false"),
        (CHAT, HELLO | {"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs", "from 0 to 20"),
        (CHAT, HELLO | {"top_logprobs": 2}, 400, "top_logprobs", "where logprobs is true"),
        (CHAT, HELLO | {"tools": [{}]}, 400, "tools", "alone"),
        (CHAT, HELLO | {"frobnicate": 1}, 400, "frobnicate", "not a field"),
        (CHAT, message(content="x" * ROOM), 400, "messages", f"room for {ROOM}"),
        (TEXT, {}, 400, "prompt", "one text, or its tokens"),
        (TEXT, {"prompt": ""}, 400, "prompt", "empty"),
        (TEXT, {"prompt": ["a", "b"]}, 400, "prompt", "one text"),
        (TEXT, {"prompt": [1, 260]}, 400, "prompt", "token 260 of 260"),
        (TEXT, {"prompt": [-1]}, 400, "prompt", "token -1"),
        (TEXT, {"prompt": "a", "echo": True}, 400, "echo", "alone"),
        (TEXT, {"prompt": "a", "logprobs": True}, 400, "logprobs", "whole number"),
        (TEXT, {"prompt": "a", "top_logprobs": 1}, 400, "top_logprobs", "not a field"),
        (TEXT, {"prompt": "a", "messages": []}, 400, "messages", "not a field"),
        ("/v1/embeddings", {}, 404, None, "there are /"),
    ],
)  # fmt: skip
def test_a_bad_request_is_told_in_one_sentence(
    server: Server, path: str, body: Any, status: int, parameter: str | None, why: str
) -> None:
    found, answer = ask(server, path, body)
    error = answer["error"]
    assert (found, error["param"]) == (status, parameter)
    assert why in error["message"] and "\n" not in error["message"] and len(error["message"]) < 400
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(("error", "status"), [(UsageError("[llm] no token."), 400), (ValueError("oh"), 500)])
def test_what_fails_while_a_request_is_read_is_told_in_json(
    server: Server,
    error: Exception,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fails(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(server.reader.tokenizer, "encode_parts", fails)
    found, answer = ask(server, CHAT, HELLO)
    assert found == status and str(error) in answer["error"]["message"]
    assert ("Traceback" in capsys.readouterr().err) == (
        status == 500
    )  # whoever runs the server sees what is its own


def test_fields_that_say_what_is_done_anyway_are_taken(server: Server) -> None:
    same = {
        "n": 1, "logprobs": None, "top_logprobs": 0, "logit_bias": {},
        "tools": [], "frequency_penalty": 0.0, "presence_penalty": 0, "user": "me",
        "response_format": {"type": "text"}, "stop": None, "top_k": 5, "max_completion_tokens": 3, "model": "alphabet",
    }  # fmt: skip
    parts = [{"type": "text", "text": "he"}, {"type": "text", "text": "llo"}]
    status, found = ask(server, CHAT, message("user", parts) | same)
    assert status == 200 and found["choices"][0]["message"]["content"] == "ABC"


def test_other_pages_and_other_names_are_refused(server: Server) -> None:
    port = server.server_address[1]
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
        status, found = ask(server, CHAT, HELLO, **headers)
        assert status == 403 and found["error"]["message"], headers
    assert ask(server, "/v1/models", Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert ask(server, "/v1/models", Host=f"localhost:{port}")[0] == 200
    assert server.server_address[0] == "127.0.0.1"


def test_methods_kinds_and_lengths_are_checked(server: Server) -> None:
    assert ask(server, CHAT, method="GET")[0] == 405
    assert ask(server, "/v1/models", method="DELETE")[0] == 405
    assert ask(server, CHAT, HELLO, Content_Type="text/plain")[0] == 415
    status, found = ask(server, CHAT, b"", Content_Length=str(1 << 21))
    assert status == 413 and "1048576" in found["error"]["message"]
    for length in ("-1", "x", "9" * 30):
        assert ask(server, CHAT, b"", Content_Length=length)[0] == 411
    assert ask(server, CHAT, b"0\r\n\r\n", Transfer_Encoding="chunked")[0] == 411


def raw(server: Server, text: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=50)
    connection.sendall(text)
    return connection


def request(body: Any) -> bytes:
    content = json.dumps(body).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


ENDLESS = {"prompt": "0", "max_tokens": 1 << 20}


@pytest.mark.parametrize("stream", [False, True])
def test_whoever_hangs_up_frees_the_slot(server: Server, stream: bool) -> None:
    connection = raw(server, request(ENDLESS | {"stream": stream}))
    while server.engine.load[0] == 0:
        time.sleep(0.005)
    if stream:
        while b"data: " not in connection.recv(4096):
            pass
    (written,) = server.engine.batch.active
    connection.close()
    idle(server)
    assert not written.ending and len(written.tokens) < ROOM - 1


def test_more_than_can_be_answered_are_told_to_come_again(server: Server) -> None:
    connections = [raw(server, request(ENDLESS)) for _ in range(3)]
    while server.engine.load != (2, 1):
        time.sleep(0.005)
    status, found = ask(server, TEXT, {"prompt": "a"})
    assert (
        status == 429
        and "Ask again later" in found["error"]["message"]
        and found["error"]["type"] == "server_error"
    )
    connections.pop(0).close()  # the one that waits is answered now
    while server.engine.load != (2, 0):
        time.sleep(0.005)
    for connection in connections:
        connection.close()
    idle(server)
    assert ask(server, TEXT, {"prompt": "w"})[1]["choices"][0]["text"] == "xyz"


def test_several_are_answered_at_once_each_with_its_own(server: Server) -> None:
    found: dict[str, str] = {}

    def one(letter: str) -> None:
        found[letter] = ask(server, TEXT, {"prompt": letter})[1]["choices"][0]["text"]

    threads = [threading.Thread(target=one, args=(letter,)) for letter in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    letters = LETTERS.lower()
    assert found == {letter: letters[letters.index(letter) + 1 :] for letter in "abc"}


def test_an_answer_that_takes_too_long_is_given_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "seconds", 0.05)
    status, found = ask(server, TEXT, ENDLESS)
    assert status == 504 and "took longer than 0.05 s" in found["error"]["message"]
    idle(server)


def trickled(connection: socket.socket, byte: bytes) -> bytes:
    """What is answered to one byte after another, without end."""
    try:
        poll = select.poll()
        poll.register(connection, select.POLLIN)
        while not poll.poll(1):
            connection.sendall(byte)
        return connection.recv(4096)
    except ConnectionError:
        return b""


def test_silence_ends_a_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "head_seconds", 0.1)
    monkeypatch.setattr(server_module, "BODY_SECONDS", 0.1)
    for text in (b"", b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"):
        with raw(server, text) as connection:
            assert connection.recv(100) == b""
    with raw(server, request(ENDLESS)[:-5]) as connection:  # it promised five bytes more
        assert connection.recv(4096).startswith(b"HTTP/1.1 408 ")
    idle(server)


def test_a_request_that_trickles_ends_its_connection(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    # never silent for long, and never done: only all of a phase can be bounded
    monkeypatch.setattr(Server, "head_seconds", 0.1)
    monkeypatch.setattr(server_module, "BODY_SECONDS", 0.1)
    with raw(server, b"GET /v1/models HTTP/1.1\r\nX: ") as connection:
        assert trickled(connection, b"x") == b""
    head = request(ENDLESS).partition(b"Content-Length")[0] + b"Content-Length: 1000000\r\n\r\n"
    with raw(server, head) as connection:
        # a byte that comes after it has been closed makes the kernel drop what was answered
        answer = trickled(connection, b" ")
    assert not answer or answer.startswith(b"HTTP/1.1 408 ")
    while server._open:
        time.sleep(0.005)


def test_whoever_never_reads_frees_the_slot(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "write_seconds", 0.1)
    monkeypatch.setattr(local_server, "SEND_BUFFER_BYTES", 4096)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.server_address[1]))
        connection.sendall(request(ENDLESS | {"stream": True}))
        while server.engine.load[0] == 0:
            time.sleep(0.005)
        while server._open:  # the client stays, and the server has closed its side
            time.sleep(0.005)
    idle(server)


@pytest.mark.parametrize("apart", [1, 3])
def test_a_phase_ends_at_its_deadline_whatever_comes(apart: int) -> None:
    now = [0.0]

    class Trickle:
        """A socket with a byte every so many seconds."""

        left = 0.0

        def settimeout(self, left: float) -> None:
            self.left = left

        def recv_into(self, buffer: Any) -> int:
            now[0] += min(apart, self.left)
            if self.left < apart:
                raise TimeoutError
            return 1

    line = Deadlines(Trickle(), lambda: now[0])
    for _ in range(2):  # the next phase has a time of its own
        begun, count = now[0], 0
        line.begin(10)
        with pytest.raises(TimeoutError):
            while line.read(1):
                count += 1
        assert count == 10 // apart and now[0] - begun == 10


def test_so_many_connections_are_open_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "most_connections", 1)
    with raw(server, b"GET /v1/models HTTP/1.1\r\n"):
        while not server._open:
            time.sleep(0.005)
        with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=50) as other:
            assert other.recv(4096).startswith(b"HTTP/1.1 503 ")
    while server._open:
        time.sleep(0.005)


def test_lines_that_are_no_requests_are_answered_in_json(server: Server) -> None:
    with raw(server, b"NONSENSE\r\n\r\n") as connection:
        text = connection.makefile("rb").read()
    assert json.loads(text[text.index(b"{") :])["error"]["message"]
    with raw(server, b"GET /" + b"x" * 70000 + b" HTTP/1.1\r\n\r\n") as connection:
        assert b" 414 " in connection.recv(100)


def test_an_address_that_is_none_is_a_bad_request(server: Server, capfd: pytest.CaptureFixture[str]) -> None:
    for path in ("http://[x", "http://x]/"):
        with raw(server, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()) as connection:
            text = connection.makefile("rb").read()
        assert text.startswith(b"HTTP/1.1 400 ")
        assert "is no address" in json.loads(text[text.index(b"{") :])["error"]["message"]
    assert capfd.readouterr().err == ""


def test_a_port_that_is_taken_is_told(server: Server) -> None:
    with pytest.raises(DriverError, match="0 takes a free one"):
        Server(server.reader, server.server_address[1])


def test_the_page_is_one_file_that_asks_for_nothing_else(server: Server) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=50)
    connection.request("GET", "/")
    answer = connection.getresponse()
    text = answer.read().decode()
    policy = answer.headers["Content-Security-Policy"]
    assert "unsafe" not in policy and len(re.findall("sha256-", policy)) == 2
    assert not re.search(r"(src|href)=\"(?!data:)|https?://|@import|url\(", text)


@pytest.mark.thorough
def test_the_command_serves_until_ctrl_c(tmp_path: Any) -> None:
    words = [
        sys.executable,
        "-m",
        "hcq",
        "llm",
        "--random",
        "llama-tiny",
        "--serve",
        "--port",
        "0",
        "--slots",
        "1",
    ]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        match = re.search(r"llama-tiny with random weights is at http://127\.0\.0\.1:(\d+)/", line)
        assert match, (line, process.stderr.read() if process.stderr else "")
        connection = http.client.HTTPConnection("127.0.0.1", int(match[1]), timeout=50)
        body = HELLO | {"max_tokens": 3, "temperature": 0}
        connection.request("POST", CHAT, json.dumps(body), {"Content-Type": "application/json"})
        found = json.loads(connection.getresponse().read())
        assert re.fullmatch(r"(\d+ ){3}", found["choices"][0]["message"]["content"])
        # one that is being written ends, and says so
        connection.request(
            "POST", CHAT, json.dumps(body | {"max_tokens": 400}), {"Content-Type": "application/json"}
        )
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        status = connection.getresponse().status
        assert status in (200, 503)
        rest = process.communicate(timeout=50)
        assert process.returncode == 0 and "Traceback" not in rest[1], rest
