"""Stand: where an emulated GPU stands after it ran the packets of a capsule, and what had to be assumed.

In       what a replay found
Out      Stand, as text and as JSON
Next     capsule_replay.py, nv_capsule_replay.py (who run capsules)
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Stand(NamedTuple):
    """Where the emulated GPU stands.

    word, block, block_word  as the trace's mark has them
    is_same  whether it stands at the marked packet
    why      why it goes on no more
    passed   packets before the mark that were passed over
    assumed  what was chosen for memory that the marked packet waits for
    """

    word: int
    block: int | None
    block_word: int
    packet: str
    is_same: bool
    why: str
    done: int
    passed: list[str]
    unknown_bytes: int
    arch: str
    assumed: str = ""

    def as_json(self) -> dict[str, Any]:
        """What `hcq-trace replay --json` prints."""
        return {
            "same": self.is_same,
            **{name: value for name, value in self._asdict().items() if name != "is_same"},
        }

    def lines(self) -> list[str]:
        """The same as text."""
        place = (
            f"word {self.word}"
            if self.block is None
            else f"word {self.block_word} of the buffer at {self.block:#x}"
        )
        verdict = "stops at the same packet" if self.is_same else "does not stop where the dump says"
        found = [
            f"{verdict}: {place}, {self.packet or 'the end of the ring'}",
            f"  {self.why}",
            f"  on an emulated {self.arch}: {self.done} packets were done",
        ]
        if self.passed:
            found.append(
                f"  {len(self.passed)} before it were passed over, as the dump says that they were done:"
            )
            found += [f"    {text}" for text in self.passed[:8]]
        if self.assumed:
            found.append(f"  {self.assumed}")
        if self.unknown_bytes:
            found.append("  memory that the dump does not have was read as zeros, or written")
        return found
