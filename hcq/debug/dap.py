"""The editor's face: requests of the Debug Adapter Protocol, while the program is stopped and while it runs.

In       requests, in their order
Out      responses, events; orders for the session
Changes  points of the session, which wave and lane are looked at
Next     dap_protocol.py (messages), dap_views.py (stack, variables, code), dap_server.py (the process), commands.py
         (the console)
Source   Debug Adapter Protocol, "Overview" (order of initialization), "Requests", "Events", "Types"

While the program is stopped, requests are answered by the thread that is stopped; while it runs, by the thread that
reads them. Threads are waves, or, if the launch asks for it, the lanes of the wave that is looked at.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable
from typing import Any

from hcq.debug.arguments import number_of
from hcq.debug.commands import Commands
from hcq.debug.dap_look import look
from hcq.debug.dap_protocol import Channel
from hcq.debug.dap_views import Views
from hcq.debug.expression import Expression
from hcq.debug.plans import CONTINUE
from hcq.debug.session import Go, Order, Session
from hcq.errors import HcqError, UsageError

CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsFunctionBreakpoints": True,
    "supportsConditionalBreakpoints": True,
    "supportsInstructionBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsStepBack": True,
    "supportsSteppingGranularity": True,
    "supportsEvaluateForHovers": True,
    "supportsDisassembleRequest": True,
    "supportsReadMemoryRequest": True,
    "supportsTerminateRequest": True,
    "supportsDelayedStackTraceLoading": True,
    "exceptionBreakpointFilters": [
        {"filter": "kernel", "label": "Beginning of every kernel", "default": False},
        {"filter": "finding", "label": "Accesses beyond a kernel's memory", "default": False},
        {"filter": "end", "label": "End of the program, to go back from", "default": False},
    ],
}
Arguments = dict[str, Any]


class Editor:
    """One editor. `start` is set when the program may begin; `launch` has the arguments of its request then."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.start = threading.Event()
        self.has_ended = False  # the program; the editor has been told
        self.gone = threading.Event()  # the editor
        self.launch: Arguments = {}
        self.session: Session | None = None
        self.views = Views()
        self.commands: Commands | None = None
        self.filters: set[str] = set()
        self._todo: queue.Queue[dict[str, Any]] = queue.Queue()
        self._is_asking = False
        self._order: Order | None = None
        self._lock = threading.Lock()
        self._made: list[
            Callable[[Session], Any]
        ] = []  # points that were asked for before there was a session
        self._launched: dict[str, Any] | None = None

    # ------------------------------------------------------------ the session's side

    def tell(self, text: str) -> None:
        """A line for the console."""
        self.channel.event("output", {"category": "console", "output": text + "\n"})

    def begin(self, session: Session) -> None:
        """There is a session now."""
        self.session, self.commands = session, Commands(session, self.tell)
        for make in self._made:
            make(session)

    def ask(self, session: Session) -> Order:
        """The program has stopped: say so, and answer until it is to move."""
        if self.session is None:
            self.begin(session)
        stop = session.stop
        if stop.record is None:
            is_end = stop.reason.startswith("the program has ended")
            is_entry = stop.reason.startswith("the program begins")
            if (is_end and "end" not in self.filters) or (is_entry and not self.launch.get("stopOnEntry")):
                return Go(CONTINUE)
        self.views.forget()
        with self._lock:
            self._is_asking = True
            self._forget_order()
        self.channel.event("stopped", self._why(session))
        while True:
            request = self._todo.get()
            self._answer(request)

            with self._lock:
                order = self._order
                if order is not None:
                    if request.get("command") == "evaluate":  # an editor does not know that this moves
                        self.channel.event("continued", {"threadId": 1, "allThreadsContinued": True})
                    self._is_asking = False
                    while not self._todo.empty():
                        self._answer(self._todo.get())
                    return order

    def _forget_order(self) -> None:
        self._order = None

    def _why(self, session: Session) -> dict[str, Any]:
        reason = session.stop.reason
        kind = "step"
        for word, name in (("fault", "exception"), ("the program begins", "entry"), ("interrupted", "pause"),
                           ("point", "breakpoint"), ("the program has ended", "exit")):  # fmt: skip
            if reason.startswith(word):
                kind = name
        hit = (
            [int(one) for one in reason.split(":")[0].split()[1:2] if one.isdigit()]
            if kind == "breakpoint"
            else []
        )
        body = {"reason": kind, "description": reason or "step", "threadId": self.views.current(session, self.launch),
                "allThreadsStopped": True}  # fmt: skip
        if kind == "exception":
            body["text"] = reason
        if hit:
            body["hitBreakpointIds"] = hit
            point = next((one for one in session.points.all if one.number == hit[0]), None)
            names = {"kernel": "function breakpoint", "watch": "data breakpoint"}
            body["reason"] = names.get(point.kind if point is not None else "", kind)
            if point is not None and point.owner == "instructions":
                body["reason"] = "instruction breakpoint"
        return body

    # ------------------------------------------------------------ the editor's side

    def read(self) -> None:
        """Take requests until the editor has gone. In a thread of its own."""
        status = 0
        try:
            while (request := self.channel.receive()) is not None:
                with self._lock:
                    if self._is_asking:
                        self._todo.put(request)
                        continue
                self._answer(request)
        except UsageError as error:
            print(f"hcq {error}", file=sys.stderr, flush=True)
            status = 1
        if self.has_ended:  # the program's status is to be this process's
            self.gone.set()
            return
        if self.session is not None:
            self.session.end()
        os._exit(status)

    def _answer(self, request: dict[str, Any]) -> None:
        name = str(request.get("command", ""))
        arguments = request.get("arguments") or {}
        act = getattr(self, f"_on_{name}", None)
        try:
            if act is None:
                raise UsageError(f"the request {name!r} is not answered here.")
            if not isinstance(arguments, dict):
                raise UsageError(f"{name}: its arguments are no object.")
            body = act(arguments)
        except (HcqError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            # arguments of any form may come
            why = f"{name}: {error} is missing" if isinstance(error, KeyError) else f"{name}: {error}"
            if isinstance(error, HcqError):
                why = str(error)
            self.channel.respond(request, error=why)
            return
        if name in ("launch", "attach"):
            self._launched = request
        else:
            self.channel.respond(request, body)
        if name == "initialize":
            self.channel.event("initialized")
        if self._launched is not None and self.start.is_set():
            self.channel.respond(self._launched)
            self._launched = None
        if name in ("disconnect", "terminate"):
            sys.stdout.flush()
            if self.has_ended:
                self.gone.set()
                return
            if self.session is not None:
                self.session.end()
            os._exit(0)

    def _stopped(self) -> Session:
        if self.session is None or not self._is_asking:
            raise UsageError("the program runs. Pause it first.")
        return self.session

    def _on_initialize(self, arguments: Arguments) -> dict[str, Any]:
        self.views.lines_from = 1 if arguments.get("linesStartAt1", True) else 0
        return dict(CAPABILITIES)

    def _on_launch(self, arguments: Arguments) -> None:
        self.launch = dict(arguments)
        self.views.are_lanes = arguments.get("threads", "waves") == "lanes"
        self._configured()

    def _on_attach(self, arguments: Arguments) -> None:
        self._on_launch(arguments)

    def _on_configurationDone(self, arguments: Arguments) -> None:
        self._is_configured = True
        self._configured()

    _is_configured = False

    def _configured(self) -> None:
        if self._is_configured and self.launch:
            self.start.set()

    # -- points

    def _with(self, make: Callable[[Session], list[dict[str, Any]]]) -> dict[str, Any]:
        if self.session is None:
            self._made.append(make)
            return {}
        found = make(self.session)
        self.session.rearm()
        return {"breakpoints": found}

    def _set(self, owner: str, specs: list[dict[str, Any]]) -> dict[str, Any]:
        """Points of one owner, in place of those that it had. specs: what Points.add takes."""
        for spec in specs:  # before anything changes
            spec["condition"] = Expression(spec["condition"]) if spec.get("condition") else None

        def make(session: Session) -> list[dict[str, Any]]:
            points = session.points
            points.all[:] = [one for one in points.all if one.owner != owner]
            found = []
            for spec in specs:
                rest = {key: value for key, value in spec.items() if key not in ("kind", "what", "shown")}
                point = points.add(spec["kind"], spec["what"], owner=owner, **rest)
                found.append({"id": point.number, "verified": True, **spec.get("shown", {})})
            return found

        answer = self._with(make)
        if not answer:
            answer = {"breakpoints": [{"verified": True, **spec.get("shown", {})} for spec in specs]}
        return answer

    def _on_setBreakpoints(self, arguments: Arguments) -> dict[str, Any]:
        source = arguments["source"]
        wanted = arguments.get("breakpoints") or [{"line": line} for line in arguments.get("lines") or []]
        specs = []
        for one in wanted:
            place = self.views.point_at(source, int(one["line"]))
            specs.append({**place, "condition": one.get("condition"), "shown": {"line": one["line"]}})
        return self._set(
            f"source {source.get('path') or source.get('sourceReference') or source.get('name')}", specs
        )

    def _on_setFunctionBreakpoints(self, arguments: Arguments) -> dict[str, Any]:
        specs = [{"kind": "kernel", "what": str(one["name"])} for one in arguments["breakpoints"]]
        return self._set("functions", specs)

    def _on_setInstructionBreakpoints(self, arguments: Arguments) -> dict[str, Any]:
        specs = []
        for one in arguments["breakpoints"]:
            address = number_of(str(one["instructionReference"])) + int(one.get("offset") or 0)
            specs.append({"kind": "pc", "what": hex(address), "address": address, "condition": one.get("condition"),
                          "shown": {"instructionReference": hex(address)}})  # fmt: skip
        return self._set("instructions", specs)

    def _on_setExceptionBreakpoints(self, arguments: Arguments) -> dict[str, Any]:
        self.filters = {str(one) for one in arguments.get("filters") or []}
        kinds = [
            {"kind": one, "what": "*" if one == "kernel" else ""}
            for one in ("kernel", "finding")
            if one in self.filters
        ]
        self._set("filters", kinds)
        return {}

    def _on_dataBreakpointInfo(self, arguments: Arguments) -> dict[str, Any]:
        session = self._stopped()
        name = str(arguments["name"])
        try:
            size = int(arguments.get("bytes") or 4)
            address = self.views.address(session, name)
        except UsageError as error:
            return {"dataId": None, "description": str(error)}
        return {
            "dataId": f"{address:#x}:{size}",
            "description": f"{size} bytes at {address:#x}",
            "accessTypes": ["read", "write", "readWrite"],
        }

    def _on_setDataBreakpoints(self, arguments: Arguments) -> dict[str, Any]:
        specs = []
        for one in arguments["breakpoints"]:
            address, _, size = str(one["dataId"]).partition(":")
            reads = "read" in str(one.get("accessType", "write")).lower()
            specs.append({"kind": "watch", "what": str(one["dataId"]), "address": number_of(address), "reads": reads,
                          "size_bytes": number_of(size or "4"), "condition": one.get("condition")})  # fmt: skip
        return self._set("data", specs)

    # -- moves

    def _move(self, arguments: Arguments, line: str) -> None:
        session = self._stopped()
        assert self.commands is not None
        if "threadId" in arguments:
            self.views.choose(session, int(arguments["threadId"]))
        said: list[str] = []
        commands = Commands(session, said.append)
        order = commands.run(line)
        if order is None:
            raise UsageError(" ".join(said).removeprefix("! ") or "the program cannot move from here.")
        self._order = order

    def _on_continue(self, arguments: Arguments) -> dict[str, Any]:
        self._move({}, "continue")
        return {"allThreadsContinued": True}

    def _on_next(self, arguments: Arguments) -> None:
        self._move(arguments, self._step(arguments, "step", "stepl"))

    def _on_stepIn(self, arguments: Arguments) -> None:
        self._move(arguments, self._step(arguments, "step", "stepl"))

    def _on_stepOut(self, arguments: Arguments) -> None:
        self._move(arguments, "finish")

    def _on_stepBack(self, arguments: Arguments) -> None:
        self._move(arguments, self._step(arguments, "reverse-step", "reverse-stepl"))

    def _on_reverseContinue(self, arguments: Arguments) -> None:
        self._move({}, "reverse-continue")

    def _step(self, arguments: Arguments, instruction: str, line: str) -> str:
        moment = self._stopped().stop.moment
        has_lines = moment is not None and bool(self._stopped().line(moment.work, moment.site))
        return line if has_lines and arguments.get("granularity") != "instruction" else instruction

    def _on_pause(self, arguments: Arguments) -> None:
        if self.session is None or not self.session.interrupt():
            raise UsageError("no kernel runs now: the next one can be stopped by a breakpoint.")

    # -- looking

    def _on_threads(self, arguments: Arguments) -> dict[str, Any]:
        if self.session is None or not self._is_asking:
            return {"threads": [{"id": self.views.HOST, "name": "the program"}]}
        return {"threads": self.views.threads(self.session)}

    def _on_stackTrace(self, arguments: Arguments) -> dict[str, Any]:
        return self.views.stack(self._stopped(), int(arguments["threadId"]))

    def _on_scopes(self, arguments: Arguments) -> dict[str, Any]:
        return {"scopes": self.views.scopes(self._stopped(), int(arguments["frameId"]))}

    def _on_variables(self, arguments: Arguments) -> dict[str, Any]:
        found = self.views.variables(self._stopped(), int(arguments["variablesReference"]))
        first, count = int(arguments.get("start") or 0), int(arguments.get("count") or 0)
        return {"variables": found[first : first + count] if count else found[first:]}

    def _on_source(self, arguments: Arguments) -> dict[str, Any]:
        given = (arguments.get("source") or {}).get("sourceReference") or arguments.get("sourceReference")
        return {"content": self.views.text(int(given or 0)), "mimeType": "text/x-asm"}

    def _on_disassemble(self, arguments: Arguments) -> dict[str, Any]:
        return {
            "instructions": self.views.disassemble(
                self._stopped(),
                number_of(str(arguments["memoryReference"])) + int(arguments.get("offset") or 0),
                int(arguments.get("instructionOffset") or 0),
                int(arguments["instructionCount"]),
            )
        }

    def _on_readMemory(self, arguments: Arguments) -> dict[str, Any]:
        address = number_of(str(arguments["memoryReference"])) + int(arguments.get("offset") or 0)
        return self.views.memory(self._stopped(), address, int(arguments["count"]))

    def _on_evaluate(self, arguments: Arguments) -> dict[str, Any]:
        session, text = self._stopped(), str(arguments["expression"])
        if arguments.get("frameId"):
            self.views.choose_frame(session, int(arguments["frameId"]))
        if arguments.get("context") == "repl":
            said: list[str] = []
            commands = Commands(session, said.append)
            order = commands.run(text)
            if order is not None:
                self._order = order
            if commands.failed:
                raise UsageError("\n".join(said).removeprefix("! "))
            return {"result": "\n".join(said), "variablesReference": 0}
        if session.stop.moment is None:
            raise UsageError("no kernel is stopped here.")
        value = Expression(text).value(session.stop.moment, session.wave, session.lane)
        return {"result": repr(value), "type": type(value).__name__, "variablesReference": 0}

    def _on_hcqLook(self, arguments: Arguments) -> dict[str, Any]:
        """Not of the protocol: all that a view shows of a stop, at once."""
        names = arguments.get("registers") or []
        if not isinstance(names, list):
            raise UsageError("hcqLook: `registers` is a list of names.")
        return look(self._stopped(), [str(one) for one in names], str(arguments.get("as") or ""))

    def _on_terminate(self, arguments: Arguments) -> None:
        return None

    def _on_disconnect(self, arguments: Arguments) -> None:
        return None
