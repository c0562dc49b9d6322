"""Ranks on two machines, which are two network namespaces here, and the link between them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frontend.more.distributed.ranks import HERE, mpirun, needs_mpi

pytestmark = [pytest.mark.own_devices, pytest.mark.thorough, pytest.mark.deadline(150)]

LAUNCH = """#!/bin/sh
# what ssh does: run a command on another machine
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
if [ "$host" = ADDRESS ]; then exec ip netns exec NAMESPACE sh -c "$*"; fi
exec sh -c "$*"
"""


def ip(*words: str) -> None:
    """Run ip; skip the test where it is not permitted."""
    if shutil.which("ip") is None:
        pytest.skip("needs ip: apt install iproute2")
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"needs network namespaces, and ip {' '.join(words)} says: {done.stderr.strip()}")


def wait_until_up(namespace: str, link: str) -> None:
    """The kernel says so up to a second after the link was set up, and MPI passes over links that are down."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        words = ["ip", "-n", namespace, "link", "show", link]
        if " state UP " in subprocess.run(words, capture_output=True, text=True).stdout:
            return
        time.sleep(0.05)
    pytest.fail(f"{link} is not up after 30 s")


@pytest.fixture
def machines() -> Iterator[tuple[str, str]]:
    """Two namespaces with a link between them: 10.77.3.1 and 10.77.3.2."""
    needs_mpi()
    names = [f"hcq{os.getpid()}{side}" for side in "ab"]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip(
            "link",
            "add",
            "hcqlink0",
            "netns",
            names[0],
            "type",
            "veth",
            "peer",
            "name",
            "hcqlink1",
            "netns",
            names[1],
        )
        for number, name in enumerate(names):
            ip("-n", name, "addr", "add", f"10.77.3.{number + 1}/24", "dev", f"hcqlink{number}")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", f"hcqlink{number}", "up")
        for number, name in enumerate(names):
            wait_until_up(name, f"hcqlink{number}")
        yield names[0], names[1]
    finally:
        for name in made:
            found = subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout
            for pid in found.split():
                os.kill(int(pid), signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", name])


def test_when_a_link_is_cut_both_sides_name_the_rank_behind_it_at_the_deadline(
    machines: tuple[str, str], tmp_path: Path
) -> None:
    launch = tmp_path / "launch"
    launch.write_text(LAUNCH.replace("ADDRESS", "10.77.3.2").replace("NAMESPACE", machines[1]))
    launch.chmod(0o755)
    command = [
        "ip",
        "netns",
        "exec",
        machines[0],
        str(mpirun()),
        "-launcher",
        "ssh",
        "-launcher-exec",
        str(launch),
    ]
    command += ["-hosts", "10.77.3.1,10.77.3.2", "-ppn", "1", "-n", "2"]
    command += [sys.executable, str(HERE / "programs.py"), "cut", "hcqlink1", str(tmp_path)]
    # both are on one machine, and would else find that they share its memory
    env = {**os.environ, "UCX_TLS": "tcp,self", "HCQ_THREADS": "1"}
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        said = [tmp_path / f"said{rank}" for rank in range(2)]
        end = time.monotonic() + 100
        while not all(path.exists() for path in said) and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        running.kill()  # the launcher waits for its own message across the link
        running.wait()
    out = running.stdout.read() if running.stdout else ""
    for rank, path in enumerate(said):
        assert path.exists(), out
        seconds, kind, *words = path.read_text().split()
        assert kind == "WaitTimeout" and float(seconds) > 2.5
        found = re.search(
            rf"waited 3000 ms for rank {1 - rank} on .*; nothing heard of it for (\d+\.\d) s", " ".join(words)
        )
        assert found is not None and float(found[1]) > 1.5, path.read_text()
        place = (tmp_path / f"clock{rank}").read_text()
        assert f"rank={rank}, ranks=2" in place
