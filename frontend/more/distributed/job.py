"""The world: all ranks of a job, from the moment they meet to the moment they part.

In       a program that a launcher of MPI started several times, or once
Out      `init()`, the group of all ranks; `rank()`, `size()`, `world()`; `close()`
Changes  MPI is initialised, and finalised at exit; a guardian may be forked; hcq.events.ranks knows this process's
         place
Next     group.py (operations and deadlines), guardian.py, heartbeats.py, clocks.py (what they are set by)
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from typing import Any

from hcq import checks, config
from hcq.errors import DriverError, HcqError, UsageError
from hcq.events.ranks import host_name
from hcq.frontend.more.distributed import clocks, guardian
from hcq.frontend.more.distributed.group import Group, Job
from hcq.frontend.more.distributed.heartbeats import TOKEN_BYTES, Heartbeats
from hcq.frontend.more.distributed.rollcall import ABSENT, LEFT, Table

INSTALL = "pip install 'hcq[mpi]' brings mpi4py and MPICH; with the site's own MPI: pip install mpi4py"

_world: World | None = None


class World(Group):
    """The group of all ranks, and what ends with it."""

    def __init__(self, job: Job, comm: Any, hearts: Heartbeats | None) -> None:
        super().__init__(job, comm, range(comm.size), "world")
        self.hearts = hearts
        self.is_closed = False

    def close(self, timeout_ms: float | None = None, is_exit: bool = False) -> None:
        """Wait for all ranks to come here, and leave MPI. Raises as a barrier does; nothing when it is closed.

        is_exit   the program has come to its end: who still waits for this rank is told so
        """
        if self.is_closed:
            return
        self.is_closed = True
        job = self.job
        if job.failed:
            self._leave()
            return
        try:
            with self.operation("close", timeout_ms=timeout_ms, is_exit=is_exit) as op:
                op.meet()
        finally:
            if not job.failed:
                job.rows[job.rank].set_end(LEFT, 0)
            self._leave()
        limit = job.timeout_ms if timeout_ms is None else timeout_ms
        alarm = threading.Timer(limit / 1000, _give_up, ("close", limit, "the others to leave MPI"))
        alarm.daemon = True
        alarm.start()
        job.mpi.Finalize()
        alarm.cancel()

    def _leave(self) -> None:
        global _world
        if _world is self:
            _world = None
        if self.hearts is not None:
            self.hearts.stop()


def init(timeout_ms: float | None = None, guarded: bool | None = None) -> World:
    """Meet the other ranks. Call it first in a program: before tensors are made, and before MPI is used.

    timeout_ms  deadline of operations that name none; default HCQ_TIMEOUT_MS
    guarded     whether a guardian process stands between launcher and rank, so that a rank that is killed does not take
                the others along; None: when the launcher would kill them
    Returns     the group of all ranks; the same when called again
    Raises      DriverError when mpi4py, or the MPI under it, is missing; UsageError after close()

    >>> world = hcq.distributed.init()
    >>> 0 <= hcq.distributed.rank() < hcq.distributed.size() == world.size
    True
    """
    global _world
    if _world is not None:
        return _world
    limit = config.current().timeout_ms if timeout_ms is None else checks.milliseconds("init", timeout_ms)
    wants_guard = guardian.is_wanted() if guarded is None else guarded
    if wants_guard and "mpi4py.MPI" not in sys.modules:
        guardian.stand_between()
    seen: list[Table] = []
    alarm = threading.Timer(limit / 1000, lambda: _give_up("init", limit, f"{_absent(seen)} to call init()"))
    alarm.daemon = True
    alarm.start()
    try:
        _world = world = _met(limit, seen)
    finally:
        alarm.cancel()
    atexit.register(_at_exit)
    _watch_for_errors(world.job)
    return world


def _met(limit: float, seen: list[Table]) -> World:
    """Meet; `seen` gets the table as soon as there is one."""
    mpi = _initialised()
    comm = mpi.COMM_WORLD
    table, row, nodes, node = _table(mpi, comm)
    seen.append(table)
    hosts = comm.allgather(host_name())
    table.rows[row].begin()
    guardian.hand_over(table, row, limit)
    hearts = None
    if max(nodes) > 0:
        hearts = Heartbeats(table, row)
        token = comm.bcast(os.urandom(TOKEN_BYTES), 0)
        hearts.start(token, node, nodes, comm.allgather(hearts.place))
    world = World(Job(mpi, row, table.rows, hosts, limit), comm, hearts)
    comm.Barrier()  # from here on every row says what its rank does
    # and every pair is connected: no later message asks the launcher for an address
    comm.alltoall([0] * comm.size)
    clocks.measure(world)
    return world


def _absent(seen: list[Table]) -> str:
    """Who has not met the others, as far as that is known."""
    found = [str(rank) for rank, row in enumerate(seen[0].rows) if row.state == ABSENT] if seen else []
    return f"rank {', '.join(found)}" if found else "all ranks"


def _give_up(call: str, limit: float, what: str) -> None:
    """Ranks are late in a call of MPI that all of them make and that has no deadline: end this process."""
    print(
        f"hcq.errors.WaitTimeout: [{call}] process {os.getpid()} on {host_name()}: waited {limit:g} ms for {what}. Did "
        "every process start, and does each come there? HCQ_TIMEOUT_MS, or timeout_ms, gives it longer.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(1)


def world() -> World:
    """The group of all ranks. Raises UsageError before init() and after close().

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.world() is world
    True
    """
    if _world is None:
        raise UsageError("[distributed] the ranks have not met. Call hcq.distributed.init() first.")
    return _world


def ranks_met() -> int:
    """How many ranks there are, and 1 before init() and after close()."""
    return 1 if _world is None else _world.size


def rank() -> int:
    """This process's number among all ranks, from 0. Raises UsageError before init().

    >>> _ = hcq.distributed.init()
    >>> hcq.distributed.rank() in range(hcq.distributed.size())
    True
    """
    return world().rank


def size() -> int:
    """How many ranks there are. Raises UsageError before init().

    >>> world = hcq.distributed.init()
    >>> hcq.distributed.size() == world.size
    True
    """
    return world().size


def close(timeout_ms: float | None = None) -> None:
    """Part: wait until every rank comes here, then leave MPI. At exit it is called for who did not.

    >>> _ = hcq.distributed.init()
    >>> hcq.distributed.close() is None
    True
    """
    if _world is not None:
        _world.close(timeout_ms)


def _initialised() -> Any:
    try:
        import mpi4py

        mpi4py.rc.finalize = (
            False  # it waits for all ranks, dead ones included: close() does it when all are there
        )
        from mpi4py import MPI
    except ImportError as error:
        raise DriverError(f"[init] mpi4py cannot be imported ({error}): {INSTALL}.") from error
    except RuntimeError as error:
        why = str(error).splitlines()[0]
        raise DriverError(f"[init] mpi4py finds no MPI ({why}): {INSTALL}.") from error
    if MPI.Is_finalized():
        raise UsageError("[init] MPI was left by close(), and can be entered once only. Start a new process.")
    return MPI


def _table(mpi: Any, comm: Any) -> tuple[Table, int, list[int], int]:
    """The table that all ranks of this machine share, this rank's number, every rank's machine, and its own."""
    here = comm.Split_type(mpi.COMM_TYPE_SHARED)
    table = Table.made(comm.size) if here.rank == 0 else None
    pid, descriptor = here.bcast((os.getpid(), table.descriptor if table else 0), 0)
    if table is None:
        table = Table.of_process(pid, descriptor)
    here.Barrier()
    leaders = comm.allgather(here.bcast(comm.rank, 0))
    here.Free()
    numbers = {leader: number for number, leader in enumerate(sorted(set(leaders)))}
    nodes = [numbers[leader] for leader in leaders]
    return table, comm.rank, nodes, nodes[comm.rank]


def _watch_for_errors(job: Job) -> None:
    """An exception that ends the program ends this rank's part: the others shall not wait for it."""
    before = sys.excepthook

    def noted(kind: Any, error: Any, trace: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            job.fail(f"{kind.__name__}: {error}")
        before(kind, error, trace)

    sys.excepthook = noted


def _at_exit() -> None:
    try:
        if _world is not None:
            _world.close(is_exit=True)
    except HcqError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(1)
