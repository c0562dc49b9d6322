"""Ring synchronisation: the pieces of a submission, with the fences that make two rings run them one after the other.

In       pieces as the encoder made them; where the rings stand after the submission before
Out      all that goes into the rings, in order; for reports, which command the GPU has read up to
Changes  where the rings stand
Next     encode.py (the packets between), device.py (who writes them into rings)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hcq.amd.encode import COMPUTE, COPY, RINGS, Encoder, Piece
from hcq.amd.rings import Ring
from hcq.command import Command, Indirect
from hcq.errors import UsageError

Numbered = tuple[int, Piece]  # a piece, and the number of the entry of the submission that it belongs to


@dataclass
class RingSync:
    """Where the two rings stand.

    active      the ring that the last piece went to
    fences      how often one ring has signalled the other
    has_copied  the last packets of the copy ring are a copy that nothing has waited for
    has_code    code was loaded that instruction caches may hold something older for
    """

    active: str = COMPUTE
    fences: int = 0
    has_copied: bool = False
    has_code: bool = True

    def pieces(
        self, encoder: Encoder, words: Sequence[bytes], timeline_va: int, value: int
    ) -> Iterator[Numbered]:
        """What a submission puts into the rings. What ends it has the number after its last entry's.

        What is free goes into its ring as it is: the compute ring, on which the entries around it end, waits for it.
        """
        yield 0, encoder.acquire if self.active == COMPUTE else encoder.acquire_copies
        for number, what in enumerate(words):
            here = what if isinstance(what, Piece) else Piece(what)
            if here.ring not in RINGS:
                raise UsageError(
                    f"submit: a piece for the ring {here.ring!r}; an AMD GPU has the rings {' and '.join(RINGS)}. "
                    "Make it with hcq.amd.encode.piece."
                )
            if here.is_free:
                yield number, here
                continue
            if here.ring != self.active:
                self.fences += 1
                yield number, encoder.ring_fence_signal(self.active, self.fences)
                yield number, encoder.ring_fence_wait(here.ring, self.fences)
                if here.ring == COMPUTE:
                    yield number, encoder.acquire
                self.active = here.ring
            elif self.has_copied:
                yield number, encoder.copy_fence
            if self.has_code and here.ring == COMPUTE:
                yield number, encoder.acquire_code
                self.has_code = False
            self.has_copied = here.ring == COPY
            yield number, here
        if self.has_copied:
            yield len(words), encoder.copy_fence
        self.has_copied = self.active == COPY
        yield len(words), encoder.finish(timeline_va, value, self.active)


class Start(NamedTuple):
    """A submission in the rings: where it starts in each of them, and all its pieces."""

    value: int
    puts: Mapping[str, int]
    pieces: Sequence[Numbered]

    def command_at(self, rings: Mapping[str, Ring], commands: Sequence[Command]) -> int | None:
        """The command that the GPU has read up to, blocks counted as the commands in them.

        None when all of it is read, and inside the block of a graph: no ring says how far a block has been read.
        """
        puts = dict(self.puts)
        number = None
        for piece_number, what in self.pieces:
            ring = rings[what.ring]
            puts[what.ring] = ring.after(puts[what.ring], what)
            if what and puts[what.ring] > ring.get:
                number = piece_number
                break
        if number is None:
            return None
        around = self.pieces[-1][0] - len(commands)  # a traced submission has timestamps around it
        at = number - around // 2
        if not 0 <= at < len(commands) or isinstance(commands[at], Indirect):
            return None
        return sum(len(one.commands) if isinstance(one, Indirect) else 1 for one in commands[:at])
