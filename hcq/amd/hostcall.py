"""Hostcalls: what waves ask the host for while they run. printf is served: its text goes to stdout or stderr.

In       memory that the GPU shares with the host, in which waves put packets
Out      text; answers, for which the waves wait
Changes  that memory, sys.stdout and sys.stderr; a thread serves while work is in flight, and so does whoever waits
Next     abi/hostcall.py (layouts), printf.py (text), module.py (whose kernels are given it), device.py (who wakes us)
Source   ROCm Device Libraries: ockl, hostcall

The list of ready packets is only read: a wave puts a packet before those that are there, so all in front of the one
that was first when we last looked are new. None of them changes before it is answered.
"""

from __future__ import annotations

import struct
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from hcq.amd import printf
from hcq.amd.abi.hostcall import (
    IS_READY,
    LANES,
    PAYLOAD_BYTES,
    WORDS,
    Descriptor,
    HostcallBuffer,
    HostcallHeader,
    Service,
)
from hcq.gpu.fence import full_fence
from hcq.system import native

DOORBELL_AT, HEADERS_AT = 128, 4096  # of our memory; the buffer that waves are given is its first bytes
USER_SIGNAL = 1  # the kind of an amd_signal_t, its first word
HEADER_BYTES = 4 * HostcallHeader.length_words
FIRST_PAUSE_S, LONGEST_PAUSE_S = 50e-6, 2e-3
MAX_MESSAGE_WORDS = 1 << 17
MAX_MESSAGES = 1 << 18  # that are not whole yet
_ROW = struct.Struct(f"<{WORDS}Q")


def size_bytes(packets: int) -> int:
    """How much memory so many packets take, a power of two. As many waves may ask at a time."""
    return HEADERS_AT + -(-packets * HEADER_BYTES // 4096) * 4096 + packets * PAYLOAD_BYTES


class Hostcall:
    """The packets of one device.

    va        what kernels are given
    refusal   why a wave waits in vain: it asked for something that is not served
    """

    def __init__(self, va: int, packets: int) -> None:
        self.va, self.packets = va, packets
        self.refusal = ""
        self._payloads_at = HEADERS_AT + -(-packets * HEADER_BYTES // 4096) * 4096
        self._memory = native.view(va, size_bytes(packets))
        self._ready_at = HostcallBuffer.ready_stack.byte_offset
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self.begin()

    def begin(self) -> None:
        """All packets are free: before the first launch, and after the queues were ended with waves in them."""
        with self._lock:
            self.refusal = ""
            self._last = 0
            self._messages: dict[int, list[int]] = {}
            self._next_message = 1
            count = self.packets
            memory = self._memory
            # packet i is named i + count, as if each had been used once: 0 is the end of a list
            for number in range(count):
                following = number + 1 + count if number + 1 < count else 0
                at = HEADERS_AT + HEADER_BYTES * number
                memory[at : at + HEADER_BYTES] = HostcallHeader(next=following).to_bytes()
            memory[DOORBELL_AT : DOORBELL_AT + 64] = struct.pack("<Q", USER_SIGNAL).ljust(64, b"\0")
            first = HostcallBuffer(
                headers=self.va + HEADERS_AT,
                payloads=self.va + self._payloads_at,
                doorbell=self.va + DOORBELL_AT,
                free_stack=count,
                index_mask=count - 1,
            ).to_bytes()
            memory[: len(first)] = first

    # ------------------------------------------------------------ who serves

    def wake(self, is_busy: Callable[[], bool]) -> None:
        """Work was submitted: serve until there is none in flight. is_busy: asked again and again."""
        if self._thread is None:
            self._is_busy = is_busy
            self._thread = threading.Thread(
                target=_serve, args=(weakref.ref(self), self._wanted), name="hcq hostcalls", daemon=True
            )
            self._thread.start()
        self._wanted.set()

    def end(self) -> None:
        """The device closes: its memory is about to go."""
        with self._lock:
            self._memory = memoryview(b"")
        thread, self._thread = self._thread, None
        self._wanted.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(1)

    def look(self) -> bool:
        """Answer whatever was asked. Whether anything was."""
        if not self._lock.acquire(blocking=False):
            return False  # somebody else is at it
        try:
            if not self._memory or self.refusal:
                return False
            ready = self._new_packets()
            for number in ready:
                self._answer(number)
            if ready:
                for stream in (sys.stdout, sys.stderr):
                    _quietly(stream, "flush")
            return bool(ready)
        finally:
            self._lock.release()

    def _new_packets(self) -> list[int]:
        """Indices of packets that came since we last looked, oldest first."""
        (first,) = struct.unpack_from("<Q", self._memory, self._ready_at)
        found: list[int] = []
        at, mask = first, self.packets - 1
        while at != self._last and at:
            found.append(at & mask)
            (at,) = struct.unpack_from("<Q", self._memory, HEADERS_AT + HEADER_BYTES * (at & mask))
            if len(found) > self.packets:
                self.refusal = "the list of its hostcalls is damaged: a kernel has written there"
                return []
        self._last = first
        return found[::-1]

    # ------------------------------------------------------------ what is served

    def _answer(self, number: int) -> None:
        memory, at = self._memory, HEADERS_AT + HEADER_BYTES * number
        header = HostcallHeader.decode(memory[at : at + HEADER_BYTES].cast("I"))
        if header.service != Service.PRINTF:
            known = next((one.name for one in Service if one == header.service), "unknown")
            self.refusal = self.refusal or (
                f"a kernel asked the host for service {header.service} ({known}), which is not served: "
                "only printf is"
            )
            return
        for lane in range(LANES):
            if header.activemask >> lane & 1:
                place = self._payloads_at + PAYLOAD_BYTES * number + _ROW.size * lane
                words = _ROW.unpack_from(memory, place)
                struct.pack_into("<QQ", memory, place, self._row(words[0], words[1:]), 0)
        full_fence()
        control = at + HostcallHeader.control.byte_offset
        memory[control : control + 4] = struct.pack("<I", header.control & ~IS_READY)

    def _row(self, word: int, rest: tuple[int, ...]) -> int:
        """One lane's part of a message; what it is answered."""
        row = Descriptor.of(word)
        key = row.message
        if row.is_first:
            key, self._next_message = self._next_message, self._next_message + 1
            self._messages[key] = []
        message = self._messages.get(key)
        if message is None or len(self._messages) > MAX_MESSAGES or len(message) > MAX_MESSAGE_WORDS:
            self.refusal = self.refusal or "a kernel's printf sent a message that nobody can read"
            return 0
        message += rest[: row.words]
        if not row.is_last:
            return Descriptor.of_message(key)
        del self._messages[key]
        is_error, text = printf.text_of(message)
        _quietly(sys.stderr if is_error else sys.stdout, "write", text)
        return len(text.encode("utf-8", "replace"))


def _quietly(stream: Any, verb: str, *arguments: Any) -> None:
    """Text of a kernel goes nowhere where the stream is closed: a thread has nobody to tell."""
    try:
        if stream is not None:
            getattr(stream, verb)(*arguments)
    except (OSError, ValueError):
        return


def _serve(to: weakref.ref[Hostcall], wanted: threading.Event) -> None:
    """A thread's life: asleep while nothing is in flight."""
    while True:
        wanted.wait()
        wanted.clear()
        pause = FIRST_PAUSE_S
        while True:
            hostcall = to()
            if hostcall is None or hostcall._thread is None or not hostcall._memory:
                return
            pause = FIRST_PAUSE_S if hostcall.look() else min(2 * pause, LONGEST_PAUSE_S)
            if not hostcall._is_busy():
                break
            del hostcall
            time.sleep(pause)
