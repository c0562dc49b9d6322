"""Commands that look: registers, lanes, waves, memory, code, packets, origins. Nothing moves.

In       a session that has stopped, the words of a command
Out      VERBS: by name, what makes the lines to print
Next     commands.py (all others), show.py (how things are printed), origin.py
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from hcq.debug import show
from hcq.debug.arguments import Words, address_of, number_of, size_of
from hcq.debug.expression import Expression, of_lane
from hcq.debug.moment import Moment
from hcq.debug.origin import Origin
from hcq.debug.session import Session
from hcq.debug.timeline import Place
from hcq.errors import UsageError

MOST_BYTES = 1 << 16
MOST_LETTERS = 200  # of a packet in a list


def _moment(session: Session, what: str) -> Moment:
    if session.stop.moment is None:
        raise UsageError(
            f"{what}: no kernel is stopped here. `break kernel *` and `continue` stop at the next one."
        )
    return session.stop.moment


def _where(session: Session, words: Words) -> Iterator[str]:
    words.done()
    yield from show.stopped(session)
    stop = session.stop
    if stop.moment is not None and stop.record is not None:
        work = stop.moment.work
        yield f"   lane {session.lane}: {work.thread(session.wave, session.lane)}; {work.arch}"
        if packet := session.packets.of_launch(stop.record.number):
            yield f"   begun by {packet[:300]}"


def _is_there(moment: Moment, name: str, wave: int) -> bool:
    try:
        moment.read(name, wave)
    except UsageError:
        return False
    return True


def _names(moment: Moment, words: Words) -> list[str]:
    found: list[str] = []
    for word in words.all():
        span = re.fullmatch(r"([vsa])\[?(\d+)[:-](\d+)\]?", word)
        if span is None:
            found.append(word)
        else:
            found += [f"{span[1]}{n}" for n in range(int(span[2]), min(int(span[3]), int(span[2]) + 255) + 1)]
    return found


def _regs(session: Session, words: Words) -> Iterator[str]:
    moment = _moment(session, "regs")
    kind = words.after("as")
    whole = "all" in words.rest
    if whole:
        words.rest.remove("all")
    names = _names(moment, words)
    if names == ["v"] or (whole and not names):
        names = moment.names()
        yield from show.registers(moment, session.wave, session.lane, names, kind)
        return
    if whole:
        for name in names:
            yield from show.vector(moment, name, kind, session.wave)
        return
    if not names:
        used = dict.fromkeys(map(moment.spelled, [*moment.site.reads, *moment.site.writes]))
        names = [one for one in used if _is_there(moment, one, session.wave)] or moment.names()[:8]
    yield from show.registers(moment, session.wave, session.lane, names, kind)


def _lanes(session: Session, words: Words) -> Iterator[str]:
    moment = _moment(session, "lanes")
    kind = words.after("as")
    yield from show.lanes(moment, session.wave, _names(moment, words), kind)


def _waves(session: Session, words: Words) -> Iterator[str]:
    words.done()
    yield from show.waves(_moment(session, "waves"), session.wave)


def _why(session: Session, words: Words) -> Iterator[str]:
    words.done()
    moment = _moment(session, "why")
    yield moment.why(session.wave)
    yield from show.waves(moment, session.wave)


def _print(session: Session, words: Words) -> Iterator[str]:
    text = " ".join(words.all())
    if not text:
        raise UsageError("print takes an expression, as v3 * 4, f32(v3) or block.")
    value = Expression(text).value(_moment(session, "print"), session.wave, session.lane)
    yield f"{text} = {value!r}" + (
        f" ({value:#x})" if isinstance(value, int) and not isinstance(value, bool) else ""
    )


def _mem(session: Session, words: Words) -> Iterator[str]:
    kind = words.after("as") or "bytes"
    address = address_of(session, words.take("an address, or a buffer's name"))
    size = number_of(words.optional("64"))
    words.done()
    if not 0 < size <= MOST_BYTES:
        raise UsageError(f"mem shows 1 to {MOST_BYTES} bytes, not {size}.")
    data = session.stop.read(address, size)
    if data is None:
        raise UsageError(f"not all of {size} bytes at {address:#x} are mapped here.")
    if name := session.names.buffer(address):
        yield name
    yield from show.memory(data, address, kind)


def _of_block(session: Session, words: Words) -> Iterator[str]:
    moment = _moment(session, "lds")
    yield from _part(
        words, moment.shared(session.wave // moment.work.waves_per_block), moment.work.shared_name
    )


def _scratch(session: Session, words: Words) -> Iterator[str]:
    moment = _moment(session, "scratch")
    yield from _part(words, moment.local(session.wave, session.lane), "scratch")


def _part(words: Words, data: np.ndarray, name: str) -> Iterator[str]:
    kind = words.after("as") or "bytes"
    offset, size = number_of(words.optional("0")), number_of(words.optional("128"))
    words.done()
    if offset >= len(data):
        raise UsageError(f"{name} has {len(data)} bytes here.")
    yield from show.memory(data[offset : offset + min(size, MOST_BYTES)].tobytes(), offset, kind)


def _disasm(session: Session, words: Words) -> Iterator[str]:
    after = number_of(words.optional("10"))
    words.done()
    moment = _moment(session, "disasm")
    yield from show.code(session, moment.work, moment.site.key, 5, after)


def _packets(session: Session, words: Words) -> Iterator[str]:
    count = number_of(words.optional("20"))
    words.done()
    for one in list(session.packets.latest)[-count:]:
        launch = f"   -> launch {one.launch}" if one.launch else ""
        yield f"{one.number:>5} {one.vendor:<5} {_cut(one.text)}{launch}"
    if not session.packets.latest:
        yield "no packet was done yet."


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 4]} ..."


def _launches(session: Session, words: Words) -> Iterator[str]:
    words.done()
    for one in session.history.records:
        state = "" if one.is_over else ", runs"
        fault = f", fault: {one.fault[:80]}" if one.fault else ""
        yield f"{one.number:>5} {one.title}: {one.ticks} steps, {one.done} {one.work.unit} instructions{state}{fault}"
    if not session.history.records:
        yield "no launch is recorded yet."


def _info(session: Session, words: Words) -> Iterator[str]:
    words.done()
    history = session.history
    snapshots = sum(len(one.snapshots) for one in history.records)
    kept = f"{snapshots} snapshots, {history.pool.size_bytes} bytes of pages"
    yield f"{len(history.records)} launches recorded of {history.count}, {kept}"
    yield f"{session.packets.count} packets"
    for start, size, name in session.names.buffers():
        yield f"  {start:#x} {size:>10} bytes  {name}"


def _origin(session: Session, words: Words) -> Iterator[str]:
    stop = session.stop
    before = stop.place if stop.record is not None else Place(session.history.count + 1, 0)
    origin = Origin(session.history, session.names)
    first = words.take("an address, a buffer's name or a register")
    if first in ("lds", "shared"):
        moment = _moment(session, "origin lds")
        offset, size = number_of(words.take("an offset")), size_of(words.optional("4"))
        words.done()
        block = session.wave // moment.work.waves_per_block
        yield from show.origin(session, origin, origin.of_memory(offset, size, before, "shared", block))
        return
    moment_now = stop.moment
    is_register = False
    if moment_now is not None and first not in [name for _, _, name in session.names.buffers()]:
        try:
            value = int(of_lane(moment_now.read(first, session.wave), session.lane))
            is_register = True
        except UsageError:
            pass
    if is_register and moment_now is not None:
        lane = number_of(words.optional(str(session.lane)))
        words.done()
        if lane >= moment_now.work.lanes:
            raise UsageError(
                f"a {moment_now.work.unit} has lanes 0 to {moment_now.work.lanes - 1}, not {lane}."
            )
        value = int(of_lane(moment_now.read(first, session.wave), lane))
        yield from show.origin(session, origin, origin.of_register(first, session.wave, lane, before, value))
        return
    address, size = address_of(session, first), size_of(words.optional("4"))
    words.done()
    yield from show.origin(session, origin, origin.of_memory(address, size, before))


VERBS: dict[str, Callable[[Session, Words], Iterator[str]]] = {
    "where": _where, "regs": _regs, "lanes": _lanes, "waves": _waves, "why": _why, "print": _print, "mem": _mem,
    "lds": _of_block, "scratch": _scratch, "disasm": _disasm, "packets": _packets, "launches": _launches, "info": _info,
    "origin": _origin,
}  # fmt: skip
