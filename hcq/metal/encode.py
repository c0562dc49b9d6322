"""Encoding: commands to Metal's packets, and back.

In       a Command; words
Out      bytes of whole packets; packets
Next     packets.py (every bit), program.py (launches, whose arguments it packs), commands.py (what becomes of
         packets)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hcq import command
from hcq.errors import UsageError
from hcq.layout import Packet, decode_stream
from hcq.metal import packets


def encode(what: command.Command) -> bytes:
    """One command as packet bytes. Raises UsageError for what there is no packet for."""
    match what:
        case command.Copy(dst, src, size_bytes):
            made: Packet = packets.CopyFromBuffer(dst=dst, src=src, size_bytes=size_bytes)
        case command.Fill(dst, pattern, size_bytes):
            made = packets.FillBuffer(dst=dst, pattern=pattern, size_bytes=size_bytes)
        case command.Wait(signal, value):
            made = packets.EncodeWaitForEvent(signal=signal, value=value)
        case command.Signal(signal, value):
            made = packets.EncodeSignalEvent(signal=signal, value=value)
        case command.Barrier():
            made = packets.Barrier()
        case command.Indirect(address, size_words):
            made = packets.Run(address=address, size_words=size_words)
        case command.Timestamp(address):
            made = packets.GpuEndTime(address=address)
        case _:
            raise UsageError(f"Metal has no packet for {what!r}.")
    return made.to_bytes()


def decoder(arch: str) -> Callable[[Sequence[int]], list[Packet]]:
    """The decoder of an architecture; packets are the same on all of them."""
    return decode


def decode(words: Sequence[int]) -> list[Packet]:
    """Words as packets. Never raises: what makes no sense ends as the header that said so."""
    return decode_stream(words, packets.Header, packets.PACKETS)
