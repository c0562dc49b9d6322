"""The terminal's face: a prompt with completion and history, or a script of commands.

In       lines that a person types, or those of a script
Out      orders for the session; text on stdout
Changes  nothing else
Next     commands.py (what a line does), command.py (who makes one)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from hcq.checks import printable
from hcq.debug.commands import Commands
from hcq.debug.plans import CONTINUE
from hcq.debug.session import Go, Order, Session

PROMPT = "(hcq) "


class Terminal:
    """Asks a script first, then a person; without one, at the end of the script the program runs on.

    script     lines
    is_batch   no person is asked; a command that is refused ends the program with status 1
    """

    def __init__(self, script: Iterable[str], is_batch: bool) -> None:
        self.script = [line.rstrip("\n") for line in script][::-1]
        self.is_batch = is_batch
        self.failures = 0
        self.commands: Commands | None = None
        self._is_ready = False

    def begin(self, session: Session) -> None:
        """There is a session now."""
        self.commands = Commands(session, self.tell)

    def tell(self, text: str) -> None:
        """A line of output."""
        print(printable(text) if "\n" not in text else text, flush=True)

    def ask(self, session: Session) -> Order:
        """Lines, until one makes the program move."""
        commands = self.commands
        assert commands is not None  # `begin` came first
        commands.stopped()
        while True:
            line = self._line(commands)
            if line is None:
                if self.is_batch:
                    return Go(CONTINUE)
                commands.run("quit")
                continue
            order = commands.run(line)
            if commands.failed and self.is_batch:
                self.failures += 1
                commands.run("quit 1")
            if order is not None:
                return order

    def _line(self, commands: Commands) -> str | None:
        if self.script:
            line = self.script.pop()
            print(f"{PROMPT}{line}", flush=True)
            return line
        if self.is_batch:
            return None
        if not self._is_ready:
            self._is_ready = True
            _complete(commands)
        try:
            return input(PROMPT)
        except EOFError:
            print(flush=True)
            return None


def _complete(commands: Commands) -> None:
    """Tab completes commands, registers and buffers."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ImportError:
        return
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            begun = readline.get_line_buffer().lstrip()
            session = commands.session
            if " " not in begun:
                known = commands.names()
            else:
                moment = session.stop.moment
                names = [name for _, _, name in session.names.buffers() if name]
                kernels = [*session.names.kernels(), *(one.work.name for one in session.history.records)]
                registers = moment.names() if moment is not None else []
                kinds = ["kernel", "line", "pc", "text", "packet", "submission", "finding", "as", "all"]
                known = [
                    *kinds,
                    *names,
                    *kernels,
                    *registers,
                    *(commands.names() if begun.startswith("help") else []),
                ]
            found[:] = sorted({one for one in known if one.startswith(text)})
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.set_completer_delims(" ")
    readline.parse_and_bind("tab: complete")
