"""Talk: a conversation in the terminal.

In       lines from standard input, up to its end
Out      answers, as they are written
Changes  the session, which has the conversation's tokens: what was said is not read again
Next     dialogue.py (how a conversation is written), command.py (who asks)
"""

from __future__ import annotations

import sys

from hcq.frontend.core.errors import UsageError
from hcq.frontend.more.llm.dialogue import Message, encoded, ends_of, form_of
from hcq.frontend.more.llm.files import Opened
from hcq.frontend.more.llm.sampling import Sampler
from hcq.frontend.more.llm.session import Session, common
from hcq.frontend.more.llm.stops import Stops
from hcq.frontend.more.llm.tokenizer import Numbers, Tokenizer


def talk(opened: Opened, session: Session, sampler: Sampler, most: int) -> int:
    """Answer line by line. Returns the exit status."""
    tokenizer = opened.tokenizer
    if tokenizer is None:
        tokenizer = Tokenizer(Numbers(opened.model.configuration.vocabulary), {}, None, ())
    form = form_of(tokenizer)
    print(
        f"{opened.name}, conversation as {form.name}. Ctrl-C ends an answer, Ctrl-D the conversation.",
        file=sys.stderr,
    )
    messages: list[Message] = []
    while (line := _line()) is not None:
        if not line.strip():
            continue
        messages.append(Message("user", line))
        tokens = encoded(form, tokenizer, messages)
        if len(tokens) >= session.room:
            raise UsageError(
                f"[llm] the conversation has {len(tokens)} tokens, and there is room for {session.room}. Begin a new "
                "one, or give more room: --context."
            )
        # of what is there, so much is the same; the last token is read, for its logits
        known = min(common(session.tokens, tokens), len(tokens) - 1)
        session.cut(known)
        stops, answer = Stops(form.stops), ""
        try:
            written = session.write(tokens[known:], sampler, most, ends_of(form, tokenizer))
            for piece in tokenizer.stream(written):
                text = stops.feed(piece)
                answer += text
                print(text, end="", flush=True)
                if stops.is_hit:
                    break
            text = stops.rest()
            answer += text
            print(text)
        except KeyboardInterrupt:
            print()
        messages.append(Message("assistant", answer))
    return 0


def _line() -> str | None:
    """The next line; None at the end."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None
    except KeyboardInterrupt:
        print()
        return None
