"""Queue: a list of commands, recorded on the host and sent to the device by submit().

In       programs, buffers, signals; verbs that chain
Out      submit() -> Completion
Changes  nothing until submit; then the device's ring. After submit the queue is empty and can be reused
Next     command.py (the commands), device.py (submit), graph.py (record once, replay often)

One device runs all its queues' submissions in the order of the submit calls, each command finished before the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from hcq import checks, command
from hcq.base import Base, Grid
from hcq.errors import HcqError, UsageError
from hcq.layout import Packet
from hcq.memory import Buffer
from hcq.program import Program, check_dispatch
from hcq.signal import Completion, Signal
from hcq.system.call_site import Site, site

Q = TypeVar("Q", bound="Queue")
ONE: Grid = (1, 1, 1)


class Queue:
    """Work to be submitted together: verbs record commands in order, `submit` hands all of them to the device at once.

    Every verb returns the queue, so that calls chain. Each command is finished before the next one begins.
    device    what it is for; buffers, programs and signals must be that device's (or within its reach)
    commands  what was recorded since the last submit
    words     the same as the packets that the device will read

    >>> dev = hcq.open("CPU")
    >>> a, b = dev.alloc(8, "a"), dev.alloc(8, "b")
    >>> done = dev.queue().fill(a, 7, value_bytes=2).copy(b, a).submit()
    >>> done.wait(timeout_ms=1000)
    >>> b.read().hex()
    '0700070007000700'
    """

    is_recording = False  # a graph's words stay, so its cells stay, too
    reaches_peers = (
        False  # whether buffers of other devices may be named, where this one reaches their memory
    )

    def __init__(self, device: Base) -> None:
        if device.dead:
            device.check_alive()
        self.device = device
        self.commands: list[command.Command] = []
        self._words: list[bytes] = []
        self._site: Site = None  # the line of the last command that is no dispatch
        # buffers must outlive the submit call; after it the device's order protects them
        self._held: list[Any] = []

    def dispatch(
        self: Q,
        program: Program,
        args: Sequence[Any] = (),
        grid: Grid = ONE,
        block: Grid = ONE,
        groups_per_claim: int = 0,
    ) -> Q:
        """Record one launch.

        args              a Buffer, an int or a float for each parameter
        grid, block       workgroups per launch, threads per workgroup: (x, y, z)
        groups_per_claim  how many groups a worker takes at a time; 0 leaves it to the device
        Raises            UsageError when an argument, the grid or the block cannot be right
        """
        device = self.device
        try:
            if program._numbers:
                args = program.with_numbers(args)
            words, values = device.encode_dispatch(program, args, grid, block, groups_per_claim)
        except HcqError:
            raise
        except (AttributeError, TypeError, ValueError):  # what was passed has not even the right type
            check_dispatch(device, program, args, block, groups_per_claim)
            raise
        what = command.Dispatch(program, values, grid, block, groups_per_claim, program._dynamic_shared)
        if device.wraps_dispatches:
            return self._dispatch_wrapped(words, what, args)
        self._held.extend(args)  # the words last: a call that is interrupted before them has recorded nothing
        self.commands.append(what)
        self._words.append(words)
        return self

    def copy(
        self: Q,
        dst: Buffer,
        src: Buffer,
        size_bytes: int | None = None,
        dst_offset: int = 0,
        src_offset: int = 0,
    ) -> Q:
        """Record a copy of `size_bytes` (default: as much as both hold). The ranges may overlap.

        dst_offset, src_offset  where it begins in each buffer, in bytes; any alignment
        Raises                  UsageError when a range does not lie in its buffer, or a buffer is freed or out of
                                reach
        """
        to, room = self._range("copy", dst, dst_offset, size_bytes)
        from_, size = self._range("copy", src, src_offset, size_bytes)
        return self._add(command.Copy(to, from_, min(room, size)), dst, src)

    def fill(
        self: Q,
        dst: Buffer,
        value: int = 0,
        size_bytes: int | None = None,
        offset: int = 0,
        value_bytes: int = 1,
    ) -> Q:
        """Record a fill with a value of 1, 2, 4 or 8 bytes, repeated.

        value        signed or unsigned, as wide as `value_bytes`; stored with its lowest byte first
        size_bytes   a multiple of value_bytes; default: from `offset` to the end of the buffer
        Raises       UsageError when the value does not fit, or the range is no whole number of values in the buffer
        """
        count = checks.whole("fill", "value_bytes", value_bytes)
        if count not in (1, 2, 4, 8):
            raise UsageError(f"fill: value_bytes={value_bytes}; a value has 1, 2, 4 or 8 bytes.")
        number = checks.whole("fill", "value", value, -(1 << 63))
        if not -(1 << 8 * count - 1) <= number < 1 << 8 * count:
            raise UsageError(f"fill: {value} does not fit {count} bytes. Give value_bytes=2, 4 or 8.")
        to, size = self._range("fill", dst, offset, size_bytes, count)
        once = number % (1 << 8 * count)
        pattern = int.from_bytes(once.to_bytes(count, "little") * (8 // count), "little")
        return self._add(command.Fill(to, pattern, size), dst)

    def wait(self: Q, signal: Signal, value: int) -> Q:
        """Record: go on once the signal is at least `value`, a whole number from 0.

        The host or another device may set it. One of another device is waited for where this one sees it.

        Raises UsageError where it does not
        """
        va = self._cell("wait", signal)
        if signal.device is not self.device:
            if not self.device.can_watch(signal.device):
                raise UsageError(
                    f"wait: {signal!r} is of {signal.device.name}, whose signals {self.device.name} does not see. Wait "
                    f"for it on the host, and set one of {self.device.name}."
                )
            signal.device.show_signal(signal)
        return self._add(command.Wait(va, checks.whole("wait", "value", value)), signal)

    def signal(self: Q, signal: Signal, value: int) -> Q:
        """Record: set the signal to `value`, a whole number from 0, and its timestamp once all before it is done."""
        va = self._cell("signal", signal)
        return self._add(command.Signal(va, checks.whole("signal", "value", value)), signal)

    def timestamp(self: Q, dst: Buffer, offset: int = 0) -> Q:
        """Record: store the device's clock, 8 bytes; `Device.moment_ns` says when that was on time.monotonic_ns.

        offset  where in the buffer, in bytes
        Raises  UsageError when 8 bytes from there do not lie in the buffer
        """
        return self._add(command.Timestamp(self._range("timestamp", dst, offset, 8)[0]), dst)

    def barrier(self: Q) -> Q:
        """Record: all memory written before is visible to all that comes after."""
        return self._add(command.Barrier())

    def packets(
        self: Q,
        *packets: Packet | int | bytes | bytearray | memoryview,
        ring: str = "compute",
        uses: Sequence[Buffer] = (),
    ) -> Q:
        """Record packets of one's own: they go into the ring as they are, in the order of all commands.

        packets  layouts of hcq.layout, 32-bit words, or bytes of such; together whole packets of that ring
        ring     "compute" or "copy"; a CPU device has one ring, which both name
        uses     buffers that the packets use: they live until the work is done, and reading them waits for it. Those
                 that a packet names where its layout has an address are found without that
        Raises   UsageError for a ring that the device does not have, for what is no whole packet of it, and for an
                 address at which nothing is mapped for the device

        >>> from hcq.cpu import packets
        >>> dev = hcq.open("CPU")
        >>> cell = dev.alloc(8, "cell")
        >>> dev.queue().packets(packets.Fill(dst=cell.address, pattern=7, size_bytes=8)).submit().wait()
        >>> cell.read().hex()
        '0700000000000000'
        """
        from hcq.work import own_packets  # who sends none never loads what checks them

        if self.device.dead:
            self.device.check_alive()
        if not isinstance(uses, (list, tuple)):
            raise UsageError(f"packets: uses takes a list of buffers, not {checks.shown(uses)}.")
        for buffer in uses:
            self._range("packets", buffer, 0, None)
        what, found = own_packets.checked(self.device, packets, ring, uses)
        for buffer in uses:  # what unknown packets write there nobody sees
            for observer in self.device.observers:
                observer.wrote(buffer.address)
        return self._add(what, *uses, *found)

    def submit(self) -> Completion:
        """Hand everything recorded to the device, with one doorbell. The queue is empty afterwards.

        Returns  the Completion that stands for this work
        Raises   UsageError when a buffer was freed since it was recorded, when the rules refuse it
                 (HCQ_VALIDATE=1), or when the device cannot be used any more
        """
        words, commands = self._words, self.commands
        self._words, self.commands = [], []
        held, self._held = self._held, []
        for thing in held:
            if type(thing) is Buffer and thing.va is None:
                self._refuse_freed(thing, commands)
        try:
            done: Completion = self.device.submit(words, commands, held, self._site)
            value = done.value
            for thing in held:
                if type(thing) is Buffer:
                    (thing.parent or thing).last = value
        except BaseException:
            for thing in held:  # it may have been sent: the host waits for all before it writes there
                if type(thing) is Buffer:
                    (thing.parent or thing).last = self.device.timeline.submitted
            raise
        return done

    def _refuse_freed(self, buffer: Buffer, commands: Sequence[command.Command]) -> None:
        """A buffer was freed between being recorded and being submitted: its memory may be someone else's by now."""
        what = "; ".join(str(each) for each in commands[:4])
        why = f"submit on {self.device.name}: {buffer!r} was freed after it was recorded in: {what}."
        self.device.report(why, ("freed", id(buffer)))
        raise UsageError(f"{why} Keep it until its last use is submitted.")

    @property
    def words(self) -> bytes:
        """The packets recorded so far, as the device will read them."""
        return b"".join(self._words)

    def _dispatch_wrapped(self: Q, words: bytes, what: command.Dispatch, args: Sequence[Any]) -> Q:
        """A dispatch between the commands of those who want some around it."""
        name = what.program.name
        asked = [observer.around_dispatch(name, self.is_recording) for observer in self.device.observers]
        around = [pair for pair in asked if pair is not None]
        for before, _ in around:
            self._add(before)
        self._held.extend(args)
        self.commands.append(what)
        self._words.append(words)
        for _, after in reversed(around):
            self._add(after)
        return self

    def _add(self: Q, what: command.Command, *held: object) -> Q:
        if self.device.dead:
            self.device.check_alive()
        words = self.device.encode(what)
        self._held.extend(held)
        self._site = site()
        self.commands.append(what)
        self._words.append(words)
        return self

    def _range(
        self, verb: str, buffer: Buffer, offset: int, size_bytes: int | None, step: int = 1
    ) -> tuple[int, int]:
        """The address of a part of a buffer, and its size: what is left from the offset on by default."""
        if not isinstance(buffer, Buffer):
            raise UsageError(f"{verb}: takes a Buffer, not {checks.shown(buffer)}.")
        self._check_reach(verb, buffer)
        offset, size = buffer._check_range(verb, offset, size_bytes)
        if size % step:
            raise UsageError(f"{verb}: {size} bytes are no whole number of {step}-byte values.")
        if self.device.failures and buffer.device is self.device:
            buffer.check_poison(verb, is_overwritten=verb == "fill" and size == buffer.size_bytes)
        return buffer.address + offset, size

    def _check_reach(self, verb: str, buffer: Buffer) -> None:
        if buffer.device is self.device:
            return
        if not self.reaches_peers:
            raise buffer.elsewhere(verb, self.device)
        if not self.device.can_reach(buffer):
            if buffer.device.dead:
                buffer.device.check_alive()
            raise UsageError(
                f"{verb}: {buffer!r} is on {buffer.device.name}, and {self.device.name} cannot reach its memory. "
                "Copy it through the host."
            )

    def _cell(self, verb: str, signal: Signal) -> int:
        if not isinstance(signal, Signal):
            raise UsageError(f"{verb}: takes a Signal, not {checks.shown(signal)}.")
        return signal.va

    def __repr__(self) -> str:
        return f"Queue({self.device.name}, {len(self.commands)} commands)"
