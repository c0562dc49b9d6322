"""Commands: what a person can say at the prompt, in scripts, and in a debug console.

In       a line of text; a session that has stopped
Out      lines to print; an Order when the program is to move
Changes  points, which wave and lane are looked at
Next     help.py (what each does), looking.py (those that look), session.py (orders), terminal.py (a face)
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Iterator

from hcq import config
from hcq.debug import backwards, looking, plans, show
from hcq.debug import help as pages_of_help
from hcq.debug.arguments import Words, address_of, number_of, size_of
from hcq.debug.expression import Expression
from hcq.debug.moment import Moment, Work
from hcq.debug.packets import FieldTest, checked
from hcq.debug.plans import CONTINUE, Plan
from hcq.debug.session import Go, Goto, Order, Session
from hcq.debug.timeline import Place
from hcq.errors import UsageError

SHORT = {
    "b": "break", "c": "continue", "s": "step", "si": "step", "stepi": "step", "l": "stepl", "n": "stepl",
    "rs": "reverse-step", "reverse-stepi": "reverse-step", "rsi": "reverse-step", "rl": "reverse-stepl",
    "rc": "reverse-continue", "p": "print",
    "q": "quit", "exit": "quit", "x": "mem", "list": "disasm", "bt": "where", "h": "help", "?": "help", "r": "continue",
    "run": "continue", "shared": "lds", "local": "scratch", "breakpoints": "points",
}  # fmt: skip
KINDS = ("if", "kernel", "line", "pc", "text", "packet", "submission", "finding", "barrier")
REPEATS = ("step", "stepl", "reverse-step", "reverse-stepl", "next", "continue", "reverse-continue")


class Commands:
    """All of them. say: prints a line."""

    def __init__(self, session: Session, say: Callable[[str], None]) -> None:
        self.session, self.say = session, say
        self.last = ""
        self.failed = False  # the last command was refused
        self.quit_status: int | None = None
        self._verbs: dict[str, Callable[[Words], Order | None]] = {
            "break": self._break, "watch": lambda words: self._watch(words, False),
            "rwatch": lambda words: self._watch(words, True), "points": self._points, "delete": self._delete,
            "enable": lambda words: self._switch(words, True), "disable": lambda words: self._switch(words, False),
            "continue": lambda words: Go(CONTINUE), "step": self._step, "stepl": self._step_line, "next": self._next,
            "barrier": self._barrier, "finish": self._finish, "reverse-step": self._back,
            "reverse-stepl": self._back_line, "reverse-continue": self._reverse_continue, "goto": self._goto,
            "wave": self._wave, "lane": self._lane, "thread": self._thread, "help": self._help, "quit": self._quit,
            "detach": self._detach, "expect": self._expect, "echo": self._echo,
        }  # fmt: skip

    def names(self) -> list[str]:
        """What can begin a line, for completion."""
        return sorted([*self._verbs, *looking.VERBS])

    def run(self, line: str) -> Order | None:
        """Do what a line says. None: the program stays where it is."""
        self.failed = False
        line = line.split("#", 1)[0].strip() if line.lstrip().startswith("#") else line.strip()
        if not line:
            line = self.last
        if not line:
            return None
        try:
            parts = shlex.split(line, posix=False)
            verb = self._whole(SHORT.get(parts[0], parts[0]))
            self.last = line if verb in REPEATS else ""
            words = Words(verb, parts[1:])
            if verb in looking.VERBS:
                for text in looking.VERBS[verb](self.session, words):
                    self.say(text)
                return None
            return self._verbs[verb](words)
        except UsageError as error:
            self.refuse(str(error))
        except ValueError as error:  # of shlex
            self.refuse(f"{line!r}: {error}.")
        return None

    def refuse(self, text: str) -> None:
        """Say that a command was not done."""
        self.failed = True
        self.say(f"! {text}")

    def _whole(self, verb: str) -> str:
        """The verb that these letters begin. Raises UsageError when there is none, or several."""
        found = [name for name in self.names() if name.startswith(verb)]
        if verb in found or len(found) == 1:
            return verb if verb in found else found[0]
        meant = f" Is it {' or '.join(found)}?" if found else ""
        raise UsageError(f"there is no command {verb!r}.{meant} `help` lists them.")

    # ------------------------------------------------------------ points

    def _break(self, words: Words) -> None:
        condition = words.condition()
        kernel = words.after("in")
        kind = (
            words.take("a kind: kernel, line, pc, text, packet, submission, finding; or `if CONDITION`")
            if words.rest or (condition is None)
            else "if"
        )
        if kind not in KINDS:  # a bare word: a line or a kernel
            words.rest.insert(0, kind)
            kind = "line" if kind.rpartition(":")[2].isdigit() else "kernel"
        points = self.session.points
        if kind in ("kernel", "packet", "submission", "finding") and (condition is not None or kernel):
            instead = "break if CONDITION in KERNEL does" if kind == "kernel" else "`help break` has examples"
            raise UsageError(f"break {kind} takes no condition and no kernel: {instead}.")
        if kind == "if":
            point = points.add("everywhere", "", kernel=kernel, condition=condition)
        elif kind == "kernel":
            point = points.add("kernel", words.take("a kernel's name, or *"))
        elif kind == "line":
            what = words.take("a line: 12, or kernel.hip:12")
            file, _, number = what.rpartition(":")
            line = number_of(number)
            if not line:
                raise UsageError("lines are counted from 1.")
            point = points.add("line", what, kernel=kernel, file=file, line=line, condition=condition)
        elif kind == "pc":
            what = words.take("an address, or an offset in the kernel")
            point = points.add("pc", what, kernel=kernel, address=number_of(what), condition=condition)
        elif kind == "text":
            point = points.add("text", " ".join(words.all()), kernel=kernel, condition=condition)
        elif kind == "packet":
            what = words.take("a type of packet, as DispatchDirect; `packets` lists the latest ones")
            given = words.all()
            fields = tuple(FieldTest.read(word) for word in given)
            checked(what, fields, config.current().emulate)
            point = points.add("packet", " ".join([what, *given]), fields=fields)
        elif kind == "submission":
            what = words.take("its number")
            point = points.add("submission", what, line=number_of(what))
        elif kind == "finding":
            point = points.add("finding", "")
        else:
            point = points.add("barrier", "", kernel=kernel, condition=condition)
        words.done()
        self.say(f"point {point}")

    def _watch(self, words: Words, reads: bool) -> None:
        condition = words.condition()
        if words.rest and words.rest[0] in ("lds", "shared"):
            words.take("")
            block_text = words.after("block")
            offset = number_of(words.take("an offset"))
            size = size_of(words.optional("4"))
            block = number_of(block_text) if block_text else None
            point = self.session.points.add(
                "watch", f"lds {offset:#x}, {size} bytes", address=offset, size_bytes=size, space="shared", block=block,
                reads=reads, condition=condition,
            )  # fmt: skip
        else:
            what = words.take("an address, or a buffer's name")
            address = address_of(self.session, what)
            size = size_of(words.optional("4"))
            point = self.session.points.add(
                "watch",
                f"{what}, {size} bytes",
                address=address,
                size_bytes=size,
                reads=reads,
                condition=condition,
            )
        words.done()
        self.say(f"point {point}")

    def _points(self, words: Words) -> None:
        words.done()
        for one in self.session.points.all:
            self.say(str(one))
        if not self.session.points.all:
            self.say("the program stops at nothing. `break` and `watch` make points.")

    def _numbered(self, words: Words) -> Iterator[int]:
        for word in words.all() or [""]:
            number = number_of(word) if word != "all" else -1
            if number >= 0 and all(one.number != number for one in self.session.points.all):
                raise UsageError(f"there is no point {number}. `points` lists them.")
            yield number

    def _delete(self, words: Words) -> None:
        for number in self._numbered(words):
            self.session.points.all[:] = [
                one for one in self.session.points.all if number >= 0 and one.number != number
            ]

    def _switch(self, words: Words, is_on: bool) -> None:
        for number in self._numbered(words):
            for one in self.session.points.all:
                if number in (-1, one.number):
                    one.is_on = is_on

    # ------------------------------------------------------------ moves

    def _here(self, what: str) -> tuple[Moment, int]:
        stop = self.session.stop
        if stop.moment is None or stop.record is None:
            raise UsageError(
                f"{what}: no kernel is stopped here. `break kernel *` and `continue` stop at the next one."
            )
        return stop.moment, stop.record.number

    def _step(self, words: Words) -> Order:
        count = number_of(words.optional("1"))
        words.done()
        _, launch = self._here("step")
        return Go(plans.step(self.session.wave, launch, count))

    def _step_line(self, words: Words) -> Order:
        words.done()
        moment, launch = self._here("stepl")
        self._has_lines("stepl", moment)
        now = self.session.line(moment.work, moment.site)
        return Go(plans.line(self.session.wave, launch, now, self.session.line))

    def _has_lines(self, verb: str, moment: Moment) -> None:
        if not any(self.session.line(moment.work, site) for site in moment.work.sites()):
            step = verb.removesuffix("l")
            raise UsageError(
                f"{verb}: {moment.work.name or 'the kernel'} has no lines (-g). {step} goes by instructions."
            )

    def _next(self, words: Words) -> Order:
        what = words.optional("wave")
        words.done()
        if what == "barrier":
            return self._barrier(Words("barrier", []))
        if what != "wave":
            raise UsageError("next takes wave or barrier.")
        _, launch = self._here("next wave")
        return Go(plans.next_wave(self.session.wave, launch))

    def _barrier(self, words: Words) -> Order:
        words.done()
        _, launch = self._here("barrier")
        return Go(plans.barrier(self.session.wave, launch))

    def _finish(self, words: Words) -> Order:
        if words.rest[:1] == ["block"]:
            words.take("")
        words.done()
        _, launch = self._here("finish")
        return Go(plans.finish(self.session.wave, launch))

    def _search(self, plan: Plan, count: int = 1) -> Goto | None:
        """Back to where a plan's test holds, count times."""
        session, kept = self.session, self.session.stop
        test = plan.test
        assert test is not None
        found: Goto | None = None
        for _ in range(count):
            one = backwards.back(session, test, lambda work: None, plan.launch or None)
            if one is None:
                break
            found = one
            session.stop = type(kept)(
                "", session.history.record(one.place.launch), one.place.tick, None, True, kept.read
            )
        session.stop = kept
        return found

    def _back(self, words: Words) -> Order | None:
        count = number_of(words.optional("1"))
        words.done()
        launch = self._launch("reverse-step")
        wave = self.session.wave
        plan = Plan("", lambda moment: "" if wave in moment.waves else None, launch)
        found = self._search(plan, count)
        if found is None:
            raise UsageError(
                f"reverse-step: nothing of wave {wave} is before this, in this launch. reverse-continue goes further."
            )
        return found

    def _launch(self, what: str) -> int:
        record = self.session.stop.record
        if record is None:
            raise UsageError(
                f"{what}: no kernel is stopped here. reverse-continue, or goto LAUNCH STEP, go into one."
            )
        return record.number

    def _back_line(self, words: Words) -> Order:
        words.done()
        moment, launch = self._here("reverse-stepl")
        self._has_lines("reverse-stepl", moment)
        wave, line_of = self.session.wave, self.session.line
        now = line_of(moment.work, moment.site)

        def test(one: Moment) -> str | None:
            here = line_of(one.work, one.site) if wave in one.waves else ""
            return "" if here and here != now else None

        found = self._search(Plan("", test, launch))
        if found is None:
            raise UsageError("reverse-stepl: no other line of this wave is before this, in this launch.")
        return found

    def _reverse_continue(self, words: Words) -> Order:
        words.done()
        found = backwards.reverse_continue(self.session) or backwards.beginning(self.session)
        if found is None or found.place == self.session.stop.place:
            raise UsageError("reverse-continue: this is the beginning of what is recorded.")
        return found

    def _goto(self, words: Words) -> Order:
        what = words.take("a launch by its number, and a step; or `present`")
        if what == "present":
            words.done()
            return Goto(Place(1 << 60, 0), "the present")
        launch, tick = number_of(what), number_of(words.optional("1"))
        words.done()
        record = self.session.history.record(launch)
        if record is None:
            raise UsageError(f"launch {launch} is not recorded. `launches` lists those that are.")
        if not 1 <= tick <= record.ticks + 1:
            raise UsageError(f"launch {launch} has steps 1 to {record.ticks}, not {tick}.")
        return Goto(Place(launch, tick), "")

    # ------------------------------------------------------------ what is looked at

    def _wave(self, words: Words) -> None:
        number = number_of(words.take("its number; `waves` lists them"))
        words.done()
        moment, _ = self._here("wave")
        moment.on(number)  # is it there?
        self.session.wave, self.session.lane = number, 0
        self._look()

    def _lane(self, words: Words) -> None:
        number = number_of(words.take("its number"))
        words.done()
        moment, _ = self._here("lane")
        if not 0 <= number < moment.work.lanes:
            raise UsageError(f"a {moment.work.unit} has lanes 0 to {moment.work.lanes - 1}, not {number}.")
        self.session.lane = number
        self._look()

    def _thread(self, words: Words) -> None:
        block = number_of(words.take("the block's number, and the thread's in it"))
        thread = number_of(words.take("the thread's number in its block"))
        words.done()
        moment, _ = self._here("thread")
        threads = math.prod(moment.work.block)
        if block >= moment.work.blocks or thread >= threads:
            raise UsageError(
                f"there are blocks 0 to {moment.work.blocks - 1}, of threads 0 to {threads - 1}."
            )
        wave = block * moment.work.waves_per_block + thread // moment.work.lanes
        moment.on(wave)
        self.session.wave, self.session.lane = wave, thread % moment.work.lanes
        self._look()

    def _look(self) -> None:
        moment, _ = self._here("wave")
        work: Work = moment.work
        wave, lane = self.session.wave, self.session.lane
        self.say(f"{work.unit} {wave}, lane {lane}: {work.thread(wave, lane)}")
        self.say(moment.why(self.session.wave))

    # ------------------------------------------------------------ the rest

    def _help(self, words: Words) -> None:
        topic = words.optional("")
        topic = SHORT.get(topic, topic)
        if not topic:
            self.say(pages_of_help.OVERVIEW)
            return
        text = pages_of_help.TOPICS.get(topic)
        if text is None:
            raise UsageError(f"there is no help about {topic!r}. `help` lists the commands.")
        self.say(text)

    def _expect(self, words: Words) -> None:
        """For scripts: an expression must hold in the lane that is looked at."""
        text = " ".join(words.all())
        moment, _ = self._here("expect")
        if not Expression(text).value(moment, self.session.wave, self.session.lane):
            raise UsageError(f"expect {text}: it does not hold.")

    def _echo(self, words: Words) -> None:
        self.say(" ".join(words.all()))

    def _detach(self, words: Words) -> Order:
        self.session.is_off = True
        return Go(CONTINUE)

    def _quit(self, words: Words) -> None:
        self.quit_status = number_of(words.optional("0"))
        self.session.end()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.quit_status)

    def stopped(self) -> None:
        """Say where the program has stopped."""
        for text in show.stopped(self.session):
            self.say(text)
