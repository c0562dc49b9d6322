"""Heartbeats: rows of the roll call, carried between machines by datagrams of their own.

In       the table of this machine; the sockets' addresses of all ranks
Out      a thread that sends this rank's row a few times a second to one living rank of every other machine
Changes  the rows of ranks elsewhere in this machine's table, and when they were last heard of
Next     rollcall.py (the rows), job.py (who starts it), docs/distributed.md (what the network must let through)

MPI does not report who is late, and its messages may wait for ever on a link that is cut. Datagrams wait for nobody.
Each carries a word that rank 0 drew for the job; others are ignored. Every rank listens, and what it hears it writes
into the table that its whole machine reads, so one living rank for each machine is enough.
"""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from hcq.frontend.more.distributed.rollcall import HEARD, NODE, PID, ROW_BYTES, RUNNING, STATE, Table

BEAT_S = 0.2
QUIET_NS = int(5 * BEAT_S * 1e9)  # a rank that was not heard of for so long is passed over
TOKEN_BYTES = 16
SIOCGIFADDR = 0x8915  # linux/sockios.h
OWN_WORDS = (HEARD, NODE)  # of a row: what the one who hears it writes

Address = tuple[str, int]


def addresses_here() -> list[str]:
    """The addresses of this machine that others can reach; the loopback's when there is no other."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                found.append(socket.inet_ntoa(answer[20:24]))
    return [each for each in found if not each.startswith("127.")] or ["127.0.0.1"]


class Heartbeats:
    """The sender and the listener of one rank. `place` is what the others need to know to reach it."""

    def __init__(self, table: Table, rank: int) -> None:
        self.table, self.rank = table, rank
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("", 0))
        self.socket.settimeout(BEAT_S / 2)
        self.place = (addresses_here(), int(self.socket.getsockname()[1]))
        self.is_over = False

    def start(self, token: bytes, node: int, nodes: Sequence[int], places: Sequence[Any]) -> None:
        """Begin, once everybody's place is known.

        node, nodes  the number of this machine, and that of each rank's
        places       each rank's `place`
        """
        self.token, self.node, self.places = token, node, places
        self.others: dict[int, list[int]] = {}
        for rank, each in enumerate(nodes):
            if each != node:
                self.others.setdefault(each, []).append(rank)
        self.threads = [threading.Thread(target=each, daemon=True) for each in (self._send, self._listen)]
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Send what this rank says last, and end."""
        self._beat()
        self.is_over = True

    def _send(self) -> None:
        while not self.is_over:
            self._beat()
            time.sleep(BEAT_S)

    def _beat(self) -> None:
        row = bytes(self.table.rows[self.rank].words)
        message = self.token + self.rank.to_bytes(8, "little") + row
        for ranks in self.others.values():
            addresses, port = self.places[self._living(ranks)]
            for address in addresses:
                with contextlib.suppress(OSError):  # a link that is down: silence is what says so
                    self.socket.sendto(message, (address, port))

    def _living(self, ranks: list[int]) -> int:
        """The first rank of a machine that was heard of lately, or may be about to be."""
        rows, now = self.table.rows, time.monotonic_ns()
        for rank in ranks:
            words = rows[rank].words
            if words[STATE] <= RUNNING and now - words[HEARD] < QUIET_NS:
                return rank
        return ranks[int(now / QUIET_NS) % len(ranks)]  # nobody: try one after the other

    def _listen(self) -> None:
        size = TOKEN_BYTES + 8 + ROW_BYTES
        while not self.is_over:
            try:
                message = self.socket.recv(size + 1)
            except OSError:
                continue
            rank = int.from_bytes(message[TOKEN_BYTES : TOKEN_BYTES + 8], "little")
            if len(message) != size or message[:TOKEN_BYTES] != self.token or rank >= len(self.places):
                continue
            self._note(rank, memoryview(message[TOKEN_BYTES + 8 :]).cast("Q"))

    def _note(self, rank: int, heard: Any) -> None:
        row = self.table.rows[rank]
        row.hear(heard, (*OWN_WORDS, PID))
        row.words[HEARD] = time.monotonic_ns()
