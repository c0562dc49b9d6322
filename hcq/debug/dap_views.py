"""What an editor shows: threads, stack frames, scopes and variables, listings, disassembly, memory.

In       a session that is stopped; numbers that an editor was given before
Out      objects of the Debug Adapter Protocol
Changes  the numbers that it has given out; which wave and lane are looked at
Next     dap.py (who asks), moment.py (what there is)
Source   Debug Adapter Protocol, "Types": Thread, StackFrame, Scope, Variable, Source, DisassembledInstruction
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from hcq.debug.arguments import address_of
from hcq.debug.expression import of_lane
from hcq.debug.moment import MOST_LINES, Moment, Site, Work
from hcq.debug.session import Session
from hcq.debug.show import bits
from hcq.errors import UsageError

MOST_THREADS = 256
MOST_READ_BYTES = 1 << 20
MOST_INSTRUCTIONS = 10_000
Variables = list[dict[str, Any]]


class Views:
    """Numbers of frames and variables are good until the program moves; those of listings stay."""

    HOST = 0x7FFFFFFF  # the thread that stands for the program, where no kernel is

    def __init__(self) -> None:
        self.lines_from, self.are_lanes = 1, False
        self._frames: list[tuple[int, int]] = []  # wave and lane of a frame
        self._held: list[Callable[[], Variables]] = []
        self._listings: list[tuple[str, Work, list[Site | None]]] = []

    def forget(self) -> None:
        """The program moves."""
        self._frames, self._held = [], []

    # ------------------------------------------------------------ threads

    def current(self, session: Session, launch: dict[str, Any]) -> int:
        """The thread of the wave and lane that are looked at."""
        moment = session.stop.moment
        if moment is None:
            return self.HOST
        lanes = moment.work.lanes
        return 1 + (session.wave * lanes + session.lane if self.are_lanes else session.wave)

    def threads(self, session: Session) -> list[dict[str, Any]]:
        """Waves that are resident; or the lanes of the one that is looked at."""
        moment = session.stop.moment
        if moment is None:
            return [{"id": self.HOST, "name": "the program"}]
        work = moment.work
        if self.are_lanes:
            first = session.wave * work.lanes
            return [
                {"id": 1 + first + lane, "name": f"{work.thread(session.wave, lane)}{'' if on else ' (off)'}"}
                for lane, on in enumerate(moment.on(session.wave).tolist())
            ]
        waves = sorted({int(wave) for one in moment.standing() for wave in one.waves})
        near = max(0, waves.index(session.wave) - MOST_THREADS // 2) if session.wave in waves else 0
        return [
            {"id": 1 + wave, "name": f"{work.unit} {wave}, block {wave // work.waves_per_block}"}
            for wave in waves[near : near + MOST_THREADS]
        ]

    def _where(self, session: Session, thread: int) -> tuple[int, int]:
        lanes = session.stop.moment.work.lanes if session.stop.moment is not None else 1
        if self.are_lanes:
            return (thread - 1) // lanes, (thread - 1) % lanes
        wave = thread - 1
        return wave, session.lane if wave == session.wave else 0

    def choose(self, session: Session, thread: int) -> None:
        """Look at the wave and lane of a thread."""
        if session.stop.moment is not None and thread != self.HOST:
            wave, lane = self._where(session, thread)
            session.stop.moment.on(wave)
            session.wave, session.lane = wave, lane

    def choose_frame(self, session: Session, frame: int) -> None:
        """Look at the wave and lane of a frame."""
        session.wave, session.lane = self._frame(frame)

    def _frame(self, frame: int) -> tuple[int, int]:
        if not 1 <= frame <= len(self._frames):
            raise UsageError(f"frame {frame} is of another stop.")
        return self._frames[frame - 1]

    # ------------------------------------------------------------ stack

    def stack(self, session: Session, thread: int) -> dict[str, Any]:
        """The instruction of a wave, and under it the launch and its packet."""
        stop = session.stop
        moment = stop.moment
        if moment is None or stop.record is None or thread == self.HOST:
            self._frames.append((session.wave, session.lane))
            frame = {
                "id": len(self._frames),
                "name": stop.reason or "between launches",
                "line": 0,
                "column": 0,
            }
            return {"stackFrames": [frame], "totalFrames": 1}
        wave, lane = self._where(session, thread)
        site = next(
            (one.site for one in moment.standing() if wave in one.waves and one.site is not None), moment.site
        )
        if wave in moment.waves and moment.on(wave).any():
            site = moment.site
        self._frames.append((wave, lane))
        source, line = self._source(session, moment.work, site)
        frames = [
            {
                "id": len(self._frames),
                "name": f"{moment.work.name or hex(moment.work.entry)}: {site.text}",
                "source": source,
                "line": line,
                "column": 1,
                "instructionPointerReference": hex(site.key),
            }
        ]
        self._frames.append((wave, lane))
        below = session.packets.of_launch(stop.record.number) or "begun by a packet that is not known"
        name = f"launch {stop.record.number}, step {stop.tick}: {below[:120]}"
        frames.append(
            {"id": len(self._frames), "name": name, "line": 0, "column": 0, "presentationHint": "label"}
        )
        return {"stackFrames": frames, "totalFrames": len(frames)}

    def _source(self, session: Session, work: Work, site: Site) -> tuple[dict[str, Any], int]:
        path, _, line = session.line(work, site).rpartition(":")
        if path and line.isdigit() and os.path.isabs(path) and os.path.exists(path):
            return {"name": os.path.basename(path), "path": path}, int(line)
        number, sites = self._listing(work)
        if site.line:
            at = (site.key & MOST_LINES) - 1
        else:
            at = next((n for n, one in enumerate(sites) if one is not None and one.key == site.key), 0)
        kind = "metal" if site.line.startswith("MSL") else "ptx" if site.line else "s"
        source = {
            "name": f"{work.name or hex(work.entry)}.{kind}",
            "sourceReference": number,
            "origin": "what the GPU runs",
        }
        return source, at + self.lines_from

    def _listing(self, work: Work) -> tuple[int, list[Site | None]]:
        name = f"{work.vendor} {work.entry:#x} {work.name}"
        sites = work.sites()
        by_line = bool(sites) and bool(sites[0].line)
        if by_line:  # instructions of a text stand in their own lines
            lines: list[Site | None] = [None] * max(one.key & MOST_LINES for one in sites)
            for one in sites:
                at = (one.key & MOST_LINES) - 1
                lines[at] = lines[at] or one  # the first of a line
        else:
            lines = list(sites)
        for number, (known, _, held) in enumerate(self._listings, 1):
            if known == name and len(held) == len(lines):
                return number, held
        self._listings.append((name, work, lines))
        return len(self._listings), lines

    def text(self, number: int) -> str:
        """A listing."""
        if not 1 <= number <= len(self._listings):
            raise UsageError(f"there is no source {number}.")
        _, work, sites = self._listings[number - 1]
        return work.source or "\n".join("" if one is None else one.text for one in sites) + "\n"

    def point_at(self, source: dict[str, Any], line: int) -> dict[str, Any]:
        """What Points.add takes for a line of a source. Raises UsageError."""
        number = int(source.get("sourceReference") or 0)
        if number:
            if not 1 <= number <= len(self._listings):
                raise UsageError(f"there is no source {number}.")
            _, work, sites = self._listings[number - 1]
            at = line - self.lines_from
            site = next((one for one in sites[max(at, 0) :] if one is not None), None)
            if site is None:
                raise UsageError(f"there is no instruction from line {line} on.")
            return {
                "kind": "pc",
                "what": f"{work.name} {site.text}",
                "address": site.key,
                "kernel": work.name,
            }
        path = str(source.get("path") or source.get("name") or "")
        line += 1 - self.lines_from
        if path.endswith((".ptx", ".metal")):
            return {"kind": "line", "what": f"{line}", "line": line}
        name = os.path.basename(path)
        return {"kind": "line", "what": f"{name}:{line}", "file": name, "line": line}

    # ------------------------------------------------------------ variables

    def scopes(self, session: Session, frame: int) -> list[dict[str, Any]]:
        """Registers of a lane, those that a wave shares, what the block shares, where it all is."""
        wave, lane = self._frame(frame)
        moment = session.stop.moment
        if moment is None:
            return []
        made = moment
        each, shared = self._names(made, wave)
        used = [*dict.fromkeys(map(made.spelled, [*made.site.reads, *made.site.writes]))]
        found = [
            self._scope("This instruction", "locals", lambda: self._registers(made, wave, lane, used)),
            self._scope("Registers", "registers", lambda: self._registers(made, wave, lane, each)),
        ]
        if shared:
            found.append(
                self._scope(
                    "Scalar registers", "registers", lambda: self._registers(made, wave, lane, shared)
                )
            )
        block = wave // made.work.waves_per_block
        found.append(self._scope(made.work.shared_name, None, lambda: self._words(made.shared(block)), True))
        found.append(self._scope("Launch", None, lambda: self._launch(session, made, wave, lane)))
        return found

    def _names(self, moment: Moment, wave: int) -> tuple[list[str], list[str]]:
        each: list[str] = []
        shared: list[str] = []
        for name in moment.names():
            try:
                (each if len(moment.read(name, wave)) > 1 else shared).append(name)
            except UsageError:
                continue
        return each, shared

    def _scope(
        self, name: str, hint: str | None, make: Callable[[], Variables], is_large: bool = False
    ) -> dict[str, Any]:
        scope = {"name": name, "variablesReference": self._hold(make), "expensive": is_large}
        return scope if hint is None else {**scope, "presentationHint": hint}

    def _hold(self, make: Callable[[], Variables]) -> int:
        self._held.append(make)
        return len(self._held)

    def variables(self, session: Session, number: int) -> Variables:
        """What a number stands for."""
        if not 1 <= number <= len(self._held):
            raise UsageError(f"variables {number} are of another stop.")
        return self._held[number - 1]()

    def _registers(self, moment: Moment, wave: int, lane: int, names: list[str]) -> Variables:
        found = []
        for name in names:
            try:
                values = moment.read(name, wave)
            except UsageError:
                continue
            value = int(of_lane(values, lane))
            one = {
                "name": name,
                "value": bits(value),
                "evaluateName": name,
                "variablesReference": 0,
                "memoryReference": hex(value),
            }
            if len(values) > 1:
                one["variablesReference"] = self._hold(lambda name=name: self._each(moment, wave, name))  # type: ignore[misc]
            found.append(one)
        return found

    def _each(self, moment: Moment, wave: int, name: str) -> Variables:
        on, values = moment.on(wave), moment.read(name, wave).tolist()
        return [
            {
                "name": f"lane {lane}" + ("" if on[lane] else " (off)"),
                "value": bits(int(value)),
                "variablesReference": 0,
            }
            for lane, value in enumerate(values)
        ]

    def _words(self, data: Any) -> Variables:
        whole = np.frombuffer(data[: len(data) // 4 * 4].tobytes(), np.uint32).tolist()
        return [
            {"name": f"{4 * n:#x}", "value": bits(value), "variablesReference": 0}
            for n, value in enumerate(whole[:4096])
        ]

    def _launch(self, session: Session, moment: Moment, wave: int, lane: int) -> Variables:
        work = moment.work
        facts = {
            "kernel": work.name or hex(work.entry), "grid": str(work.grid), "block": str(work.block),
            work.unit: str(wave), "lane": str(lane), "thread": work.thread(wave, lane), "why": moment.why(wave),
            "step": str(session.stop.tick), "GPU": work.arch,
        }  # fmt: skip
        return [{"name": name, "value": value, "variablesReference": 0} for name, value in facts.items()]

    # ------------------------------------------------------------ code and memory

    def disassemble(self, session: Session, address: int, offset: int, count: int) -> list[dict[str, Any]]:
        """So many instructions from one on; where there are none, as the protocol wants it, invalid ones."""
        moment = session.stop.moment
        if moment is None:
            raise UsageError("no kernel is stopped here.")
        if not 0 < count <= MOST_INSTRUCTIONS or abs(offset) > 1 << 20:
            raise UsageError(
                f"disassemble gives 1 to {MOST_INSTRUCTIONS} instructions, not {count} from {offset} on."
            )
        sites = moment.work.sites()
        at = next((n for n, one in enumerate(sites) if one.key >= address), len(sites)) + offset
        found: list[dict[str, Any]] = []
        for number in range(at, at + count):
            if not 0 <= number < len(sites):
                found.append(
                    {
                        "address": hex(max(0, address + 4 * (number - at))),
                        "instruction": "-",
                        "presentationHint": "invalid",
                    }
                )
                continue
            site = sites[number]
            source, line = self._source(session, moment.work, site)
            found.append(
                {"address": hex(site.key), "instruction": site.text, "location": source, "line": line}
            )
        return found

    def memory(self, session: Session, address: int, count: int) -> dict[str, Any]:
        """Bytes, as far as they are mapped."""
        if not 0 <= count <= MOST_READ_BYTES:
            raise UsageError(f"readMemory gives up to {MOST_READ_BYTES} bytes, not {count}.")
        data = b""
        while len(data) < count:
            size = min(count - len(data), 4096 - (address + len(data)) % 4096)
            piece = session.stop.read(address + len(data), size)
            if piece is None:
                break
            data += piece
        return {
            "address": hex(address),
            "data": base64.b64encode(data).decode(),
            "unreadableBytes": count - len(data),
        }

    def address(self, session: Session, name: str) -> int:
        """Of what a data breakpoint is asked for."""
        return address_of(session, name)
