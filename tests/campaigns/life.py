"""Life cycles: devices open, close and open again, processes fork, are interrupted, run out of descriptors and end.

In       a case: a random sequence of steps on one kind of device, with NumPy as the second opinion on every value
Out      RIGHT; or REFUSED when a step was answered with one of our errors where the model allows one
Changes  the worker's devices and children; at the end of every case all of it is given back, and that is counted
Next     docs/life.md (what is promised), hcq/lifetime/dead_device.py, hcq/lifetime/open_devices.py, hcq/cpu/fork.py
"""

from __future__ import annotations

import contextlib
import gc
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import hcq
from hcq import Tensor, jit
from hcq.lifetime import open_devices
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

CHILD_S = 90  # a child that takes longer hangs
ENDS_S = 20  # an emulated GPU's thread ends by itself when its last queue has ended
SPARE_MAPS = 48  # the C library's own come and go


class Held:
    """A buffer or a tensor, what it should hold, and why it may not be used any more."""

    def __init__(self, thing: Any, value: Any) -> None:
        self.thing, self.value, self.gone = thing, value, ""


class World:
    """What a process has, as it is and as it should be."""

    def __init__(self, name: str, rng: random.Random, depth: int = 0) -> None:
        self.name, self.rng, self.depth = name, rng, depth
        self.held: list[Held] = []
        self.functions: list[Any] = []
        self.queues: list[tuple[Any, Held]] = []
        self.log: list[str] = []
        self.was_refused = False

    @property
    def device(self) -> Any:
        return hcq.open(self.name)

    def pick(self, kind: type) -> Held | None:
        found = [one for one in self.held if isinstance(one.thing, kind)]
        return self.rng.choice(found) if found else None

    def lose(self, why: str) -> None:
        """The memory of everything is gone."""
        for one in self.held:
            one.gone = one.gone or why

    def same(self, what: str, got: Any, want: Any) -> None:
        if not np.array_equal(np.asarray(got), np.asarray(want)):
            raise Wrong(f"{what}: {got!r} where {want!r} should be. {self.story()}")

    def story(self) -> str:
        return f"Steps: {'; '.join(self.log)}"

    def refused(self, what: str, act: Callable[[], Any], why: str) -> None:
        """It must be refused with this reason."""
        try:
            got = act()
        except hcq.HcqError as error:
            if why not in str(error):
                raise Wrong(f"{what}: said {error}, and not that {why!r}. {self.story()}") from error
            self.was_refused = True
        else:
            raise Wrong(f"{what}: gave {got!r} although {why}. {self.story()}")

    # ------------------------------------------------------------ steps

    def make_buffer(self) -> None:
        size = self.rng.choice([8, 64, 4096, 1 << 17])
        data = self.rng.randbytes(8) * (size // 8)
        buffer = self.device.alloc(size, "life")
        buffer.write(data)
        self.held.append(Held(buffer, data))

    def fill_buffer(self) -> None:
        one = self.pick(hcq_buffer())
        if one is None:
            return
        value = self.rng.randrange(256)
        if one.gone:
            self.refused("fill", lambda: self.device.queue().fill(one.thing, value), one.gone)
            return
        done = self.device.queue().fill(one.thing, value).submit()
        one.value = bytes([value]) * len(one.value)
        if self.rng.random() < 0.5:
            done.wait()

    def read_buffer(self) -> None:
        one = self.pick(hcq_buffer())
        if one is None:
            return
        if one.gone:
            verb = self.rng.choice(["read", "write", "host"])
            acts = {
                "read": one.thing.read,
                "write": lambda: one.thing.write(b"x"),
                "host": lambda: one.thing.host,
            }
            self.refused(verb, acts[verb], one.gone)
        else:
            self.same("a buffer", list(one.thing.read()), list(one.value))

    def record_queue(self) -> None:
        """Recorded now, submitted some steps later."""
        one = self.pick(hcq_buffer())
        if one is not None and not one.gone:
            record = self.device.graph() if self.rng.random() < 0.5 else self.device.queue()
            self.queues.append((record.fill(one.thing, 0x5A), one))

    def submit_queue(self) -> None:
        if not self.queues:
            return
        queue, one = self.queues.pop(self.rng.randrange(len(self.queues)))
        if one.gone:
            self.refused("submit", queue.submit, one.gone)
        else:
            queue.submit()
            one.value = b"\x5a" * len(one.value)

    def make_tensor(self) -> None:
        value = np.array([self.rng.randrange(-9, 9) for _ in range(self.rng.choice([1, 4, 30]))], np.float32)
        tensor = Tensor(value)
        self.held.append(Held(tensor.realize() if self.rng.random() < 0.8 else tensor, value))

    def compute(self) -> None:
        one = self.pick(Tensor)
        if one is None:
            return
        if one.gone:
            self.refused("compute", (one.thing * 3 + 1).numpy, one.gone)
            return
        made = one.thing * 3 + 1
        if self.rng.random() < 0.5:
            self.same("a tensor", made.numpy(), one.value * 3 + 1)
        else:
            self.held.append(Held(made.realize(), one.value * 3 + 1))

    def read_tensor(self) -> None:
        one = self.pick(Tensor)
        if one is None:
            return
        if one.gone:
            self.refused("numpy", one.thing.numpy, one.gone)
        else:
            self.same("a tensor", one.thing.numpy(), one.value)

    def assign(self) -> None:
        one = self.pick(Tensor)
        if one is not None and not one.gone:
            one.thing.assign(one.thing + 1)
            one.value = one.value + 1
            one.thing.realize()

    def call_jit(self) -> None:
        if not self.functions:
            self.functions.append(jit(lambda a: (a * 2 - 1).realize()))
        one = self.pick(Tensor)
        if one is None:
            return
        for _ in range(self.rng.choice([1, 3])):
            if one.gone:
                self.refused("jit", lambda: self.functions[0](one.thing).numpy(), one.gone)
            else:
                self.same("a jitted function", self.functions[0](one.thing).numpy(), one.value * 2 - 1)

    def close(self) -> None:
        self.device.close()
        self.lose("it was closed")

    def close_elsewhere(self) -> None:
        """From other threads, while others compute."""
        bad: list[str] = []
        device = self.device

        def compute() -> None:
            try:
                for turn in range(4):
                    self.same("in a thread", (Tensor([float(turn)]) + 1).numpy(), [turn + 1])
            except hcq.UsageError as error:
                if "it was closed" not in str(error):
                    bad.append(str(error))
            except Exception:
                bad.append(traceback.format_exc())

        threads = [threading.Thread(target=act) for act in (compute, compute, device.close, device.close)]
        self.rng.shuffle(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.lose("it was closed")
        if bad:
            raise Wrong(f"{bad[0]} {self.story()}")

    def work_in_threads(self) -> None:
        bad: list[str] = []

        def compute(number: int) -> None:
            try:
                x = Tensor([float(number), 2.0])
                for turn in range(5):
                    self.same("in a thread", (x * turn).numpy(), [number * turn, 2 * turn])
            except Exception:
                bad.append(traceback.format_exc())

        threads = [threading.Thread(target=compute, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if bad:
            raise Wrong(f"{bad[0]} {self.story()}")

    def reset(self) -> None:
        """Work that never ends is dropped; what it should have written says so, and the rest stays."""
        device = self.device
        with contextlib.suppress(hcq.DeviceFault):  # of the reset before
            device.synchronize()  # a reset drops everything that is in flight
        lost = device.alloc(64, "lost")
        done = device.queue().wait(device.signal("never"), 1).fill(lost, 1).submit()
        device.reset()
        self.refused("a completion", done.wait, "")
        self.refused("what it should have written", lost.read, "")

    def interrupt(self) -> None:
        """Ctrl-C while the host waits."""
        device = self.device
        gate = device.signal("gate")
        done = device.queue().wait(gate, 1).submit()
        with interrupted_after(self.rng.uniform(0.0005, 0.02)):
            done.wait()
            raise Wrong(f"a wait for nothing returned. {self.story()}")
        gate.set(1)
        done.wait()

    def fork(self) -> None:
        child = World(self.name, random.Random(self.rng.getrandbits(64)), self.depth + 1)
        child.held, child.functions, child.log = self.held, self.functions, [*self.log, "in the child"]
        child.queues = self.queues[:]
        ending = self.rng.choice(["_exit", "exit", "kill", "raise", "killed"])
        steps = self.rng.randrange(1, 5)
        reads, writes = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(reads)
            child.live(steps, ending, writes)
        os.close(writes)
        if ending == "killed":
            time.sleep(self.rng.uniform(0, 0.05))
            os.kill(pid, signal.SIGKILL)
        with open(reads, "rb") as pipe:
            code = wait_for(pid)
            said = pipe.read().decode(errors="replace")
        wanted = {"_exit": [0], "exit": [0], "kill": [-9], "raise": [5], "killed": [-9, 0, 3]}[ending]
        if said or code not in wanted:
            raise Wrong(f"the child ended with {code}, and not {wanted}. {said or self.story()}")

    def live(self, steps: int, ending: str, writes: int) -> None:
        """In the child: some steps, and the end."""
        try:
            if self.name != "CPU":
                self.lose("is a fork of the one that opened it")
            self.run(steps)
            for one in self.held:
                self.check(one)
            if ending == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if ending == "exit":
                open_devices._close_all()
            os._exit(5 if ending == "raise" else 0)
        except BaseException as error:
            what = str(error) if isinstance(error, Wrong) else traceback.format_exc() + self.story()
            os.write(writes, what.encode()[:60000])
            os._exit(1)

    def few_files(self) -> None:
        """In a child: descriptors are short. Steps work, or say so; afterwards all works."""
        pid = os.fork()
        if not pid:
            try:
                hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                few = len(os.listdir("/proc/self/fd")) + self.rng.randrange(-1, 3)
                resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
                try:
                    fresh = World(self.name, self.rng, 2)
                    for act in (World.make_buffer, World.fill_buffer, World.make_tensor, World.compute):
                        act(fresh)
                except (hcq.HcqError, OSError) as error:
                    if "EMFILE" not in str(error) and getattr(error, "errno", 0) != 24:
                        raise
                    self.was_refused = True
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                self.same("a tensor", (Tensor([1.0, 2.0]) + 1).numpy(), [2, 3])
                os._exit(3 if self.was_refused else 0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        code = wait_for(pid)
        self.was_refused |= code == 3
        if code not in (0, 3):
            raise Wrong(f"a child that is short of descriptors ended with {code}. {self.story()}")

    def end_a_process(self) -> None:
        """A whole process with work in flight, and how it ends."""
        ending, code = self.rng.choice(
            [
                ("pass", 0),
                ("sys.exit(3)", 3),
                ("os._exit(4)", 4),
                ("os.kill(os.getpid(), 9)", -9),
                ("1 / 0", 1),
            ]
        )
        script = (
            "import os, sys, threading, hcq\nfrom hcq import Tensor\n"
            f"dev = hcq.open({self.name!r})\nx = (Tensor([1.0]) + 1).realize()\n"
            f"dev.queue().fill(dev.alloc(1 << 20), 1).submit()\n"
            + self.rng.choice(["", "dev.queue().wait(dev.signal('never'), 1).submit()\n"])
            + self.rng.choice(
                ["", "threading.Thread(target=sys.exit).start()\n", "if os.fork(): os.wait()\n"]
            )
            + ending
        )
        before = set(os.listdir("/dev/shm"))
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=CHILD_S,
            env={**os.environ, "HCQ_TIMEOUT_MS": "200"},
        )
        lines = [line for line in done.stderr.splitlines() if line.startswith(("Fatal", "Exception ignored"))]
        if done.returncode != code or lines or not set(os.listdir("/dev/shm")) <= before:
            raise Wrong(f"{script}\nended with {done.returncode}: {done.stderr}")

    STEPS = (
        (make_buffer, 6),
        (fill_buffer, 6),
        (read_buffer, 6),
        (record_queue, 4),
        (submit_queue, 4),
        (make_tensor, 6),
        (compute, 6),
        (read_tensor, 6),
        (assign, 4),
        (call_jit, 5),
        (close, 4),
        (close_elsewhere, 1),
        (work_in_threads, 1),
        (reset, 1),
        (interrupt, 2),
        (fork, 5),
        (few_files, 1),
    )

    def run(self, steps: int) -> None:
        acts, weights = zip(*self.STEPS)
        for _ in range(steps):
            act = self.rng.choices(acts, weights)[0]
            if self.depth >= 2 and act in (World.fork, World.few_files):
                continue
            self.log.append(act.__name__)
            act(self)

    def check(self, one: Held) -> None:
        """At the end everything holds what it should, or says why not."""
        is_tensor = isinstance(one.thing, Tensor)
        read = one.thing.numpy if is_tensor else one.thing.read
        if one.gone:
            self.refused("a thing that is gone", read, one.gone)
        else:
            self.same(
                "at the end",
                read() if is_tensor else list(read()),
                one.value if is_tensor else list(one.value),
            )


def hcq_buffer() -> type:
    from hcq.memory import Buffer

    return Buffer


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Ctrl-C while what is inside runs."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def wait_for(pid: int) -> int:
    """The exit code of a child; one that hangs is killed, and that is wrong."""
    end = time.monotonic() + CHILD_S
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.001)
    os.kill(pid, signal.SIGABRT)  # faulthandler says where it is
    time.sleep(1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise Wrong(f"a child hangs for {CHILD_S} s")


def counts() -> dict[str, int]:
    gc.collect()
    open_devices.unmap_closed()
    return {
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "maps": Path("/proc/self/maps").read_bytes().count(b"\n") - SPARE_MAPS,
    }


def descriptors() -> list[str]:
    """What the open ones are."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(found)


_before: dict[str, int] = {}  # before the first case of this worker: what a process keeps for itself


def warm_up(name: str) -> None:
    """Everything that a process loads once is loaded."""
    for _ in range(2):
        world = World(name, random.Random(1))
        for act, _ in World.STEPS:
            if act is not World.few_files:
                act(world)
        for device in open_devices.devices():
            device.close()
    del world
    now = counts()
    _before.update(now, maps=now["maps"] + SPARE_MAPS)


def one(name: str, case: Case) -> Outcome:
    """A random life; at its end everything is as it was."""
    if not _before:
        warm_up(name)
    rng = case.rng()
    world = World(name, rng)
    try:
        world.run(rng.randrange(4, 16))
        if rng.random() < 0.04:
            world.log.append("end_a_process")
            world.end_a_process()
        for each in world.held:
            world.check(each)
    except Wrong:
        raise
    except Exception as error:
        raise Wrong(f"{traceback.format_exc()}{world.story()}") from error
    finally:
        for device in open_devices.devices():
            device.close()
    story, was_refused = world.story(), world.was_refused
    del world
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        pass
    else:
        raise Wrong(f"a child is left. {story}")
    end = time.monotonic() + ENDS_S
    while grown := {what: (_before[what], n) for what, n in counts().items() if n > _before[what]}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    if grown:
        _before.clear()
        which = descriptors() if "descriptors" in grown else ""
        raise Wrong(f"left behind, before and after: {grown}. {which} {story}")
    return Outcome.REFUSED if was_refused else Outcome.RIGHT


def campaign(label: str, word: str, short: int) -> Campaign:
    name = word.partition(":")[0].upper() or "CPU"
    return Campaign(
        f"life-{label}",
        "open, close, reopen, fork, kill, Ctrl-C, threads, EMFILE, exit in any order",
        partial(one, name),
        short=short,
        environment={"HCQ_EMULATE": word, "HCQ_DEVICE": name, "HCQ_TIMEOUT_MS": "20000", "HCQ_REPORT": "off"},
        deadline_s=240,
    )


CAMPAIGNS = (
    campaign("cpu", "", 20),
    campaign("gfx1100", "amd:gfx1100", 6),
    campaign("gfx942", "amd:gfx942", 6),
    campaign("sm_90", "nv:sm_90", 6),
)
