"""A channel of an emulated GPU, as its engines see it: an address space, and work that nothing has ordered yet.

In       what RM_ALLOC made it with; launches and copies that engines begin
Out      the work done, at once or late
Changes  on an error the notifier is written
Next     pbdma.py (who fetches its methods), engine.py (what methods do), gpu.py (whose thread this is)
Source   nvos.h: NvNotification

With a seed, launches and copies do not happen where their method stands: they wait until something orders them, and
what nothing orders happens in random order, as on a GPU that has room for all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hcq.emu.backing import Backing
from hcq.emu.kernel import Process
from hcq.emu.nv.card import Card
from hcq.emu.nv.errors import ChannelError
from hcq.emu.nv.memory import Bytes, PageTable, View
from hcq.nv.abi.structures import structure

ERROR_IS_SET = 0xFFFF
EMPTY = PageTable()


class Setup(NamedTuple):
    """What a channel is made with: its address space, where its ring is in it, USERD, error notifier, whose it is."""

    table: Callable[[], PageTable | None]
    ring: int
    entries: int
    userd: Bytes
    notifier: Backing | None
    process: Process


class Group:
    """Channels that are scheduled, and that die, together."""

    def __init__(self, engine_type: int, is_implicit: bool) -> None:
        self.engine_type, self.is_implicit = engine_type, is_implicit
        self.channels: list[Channel] = []
        self.is_scheduled = False
        self.error: ChannelError | None = None


class Pending:
    """A launch or a copy that has not happened. An ordered one waits for all that its engine was given before."""

    def __init__(self, engine: object, act: Callable[[], None], is_ordered: bool) -> None:
        self.engine, self.act, self.is_ordered = engine, act, is_ordered


class Channel:
    """One channel."""

    def __init__(self, card: Card, group: Group, number: int, class_id: int, setup: Setup) -> None:
        self.card, self.group, self.number, self.class_id = card, group, number, class_id
        self.table, self.ring, self.entries, userd, self.notifier, self.process = setup
        self.userd = userd.view("<u4")
        self.userd[:] = 0  # whatever was in the memory: a new channel's ring is empty
        self.token = card.token_of(number, group.engine_type)
        self.classes: set[int] = set()  # of the engine objects allocated on it
        self.pending: list[Pending] = []
        self.last_engine: object = None  # that methods were sent to
        self.is_rung = False
        self.is_ending = False  # what it runs is to be given up
        self.is_stopped = False  # it is off the runlist for good

    @property
    def view(self) -> View:
        """The address space as it is now."""
        return (self.table() or EMPTY).view

    # ------------------------------------------------------------ work that engines do on their own

    def begin(self, engine: object, act: Callable[[], None], is_ordered: bool) -> None:
        """Do it now; with a seed, some time before something that waits for it."""
        if self.card.random is None:
            act()
        else:
            self.pending.append(Pending(engine, act, is_ordered))

    def finish_one(self) -> bool:
        """Do one piece of pending work that may be done. False when there is none."""
        if not self.pending or self.card.random is None:
            return False
        ready = [
            one
            for at, one in enumerate(self.pending)
            if not (one.is_ordered and any(before.engine is one.engine for before in self.pending[:at]))
        ]
        one = self.card.random.choice(ready)
        self.pending.remove(one)
        one.act()
        return True

    def finish(self, engine: object) -> None:
        """Until an engine has nothing left to do."""
        while any(one.engine is engine for one in self.pending):
            self.finish_one()

    def wait_for_idle(self) -> None:
        """What the front end waits for: the engine that methods were last sent to, and no other (dev_pbdma.ref)."""
        self.finish(self.last_engine)

    # ------------------------------------------------------------ the end

    def notify(self, error: ChannelError) -> None:
        """The error notifier says what stopped the channel; its status is stored last."""
        self.pending.clear()
        self.is_stopped = True
        if self.notifier is None:
            return
        note = structure("Notification")(
            timestamp=self.card.time_ns(),
            info32=error.xid,
            info16=self.group.engine_type,
            status=ERROR_IS_SET,
        ).to_bytes()
        self.notifier.data[:14] = memoryview(note)[:14]
        self.notifier.data[14:16].view("<u2")[0] = ERROR_IS_SET
