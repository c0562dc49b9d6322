"""The examples run as a user runs them: from a checkout, each in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def run(name: str, *flags: str) -> str:
    """What the example prints; it must end well and say nothing on its error output."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *flags],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.deadline(120)
def test_the_digits_demo_learns_and_says_what_was_submitted(tmp_path):
    trace = tmp_path / "digits.trace"
    out = run("digits.py", "--trace", str(trace))
    right = re.search(r"test accuracy   (\d\.\d+) of 360 images", out)
    assert right is not None
    assert float(right[1]) >= 0.97
    assert re.search(r"submitted       [\d,]+ kernels, [\d,]+ packets, [\d,]+ doorbells", out)
    assert "Dispatch" in out.split("the last packets:")[1]
    assert trace.stat().st_size > 0


@pytest.mark.deadline(120)
def test_the_digits_demo_gives_the_same_numbers_with_and_without_recording(tmp_path):
    flags = ("--epochs", "1", "--trace", str(tmp_path / "digits.trace"))
    epoch = re.compile(r"epoch  1  loss \d+\.\d+  test accuracy \d\.\d+")
    recorded, eager = run("digits.py", *flags), run("digits.py", "--no-jit", *flags)
    assert epoch.search(recorded)[0] == epoch.search(eager)[0]


def test_the_raw_queue_computes_what_it_says():
    assert "computed: (0.0, 0.5, 1.0, 1.5) ... 511.5" in run("raw_queue.py")


@pytest.mark.thorough
@pytest.mark.deadline(120)
@pytest.mark.parametrize(
    ("name", "flags", "says", "least", "most"),
    [
        ("characters.py", "--steps 40 --width 64 --write 20", r"loss on unseen text   ([\d.]+)", 0, 3.2),
        ("textures.py", "--steps 60 --batch 32", r"accuracy   ([\d.]+) of 500", 0.3, 1),
        ("diffusion.py", "--steps 500 --points 300", r"which is ([\d.]+) from it", 0, 0.3),
        ("cartpole.py", "--rounds 20", r"stays up for (\d+) of 200", 80, 200),
    ],
    ids=["characters", "textures", "diffusion", "cartpole"],
)
def test_a_small_network_learns_in_some_seconds(name: str, flags: str, says: str, least: float, most: float):
    out = run(name, *flags.split())
    found = re.search(says, out)
    assert found is not None
    assert least <= float(found[1]) <= most
    assert "█" in out  # its curve


@pytest.mark.thorough
@pytest.mark.deadline(120)
def test_networks_of_other_peoples_shapes_run_forward(tmp_path: Path):
    out = run("whisper.py", *"--layers 1 --width 64 --heads 2 --seconds 2 --tokens 3".split())
    assert re.search(r"tokens a second: \[\d+, \d+, \d+\]", out)
    picture = tmp_path / "made.ppm"
    run("unet.py", *f"--levels 2 --size 8 --steps 3 --image {picture}".split())
    head, width, height, most, pixels = picture.read_bytes().split(maxsplit=4)
    assert (head, width, height, most) == (b"P6", b"64", b"64", b"255")
    assert len(pixels) == 64 * 64 * 3
    out = run("resnet.py", "--size", "32", "--image", str(picture))
    assert len(re.findall(r"% +class \d+", out)) == 5


def test_every_program_explains_itself():
    assert "--epochs" in run("digits.py", "--help")
    assert "mpirun -n 2" in run("train_distributed.py", "--help")
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(program.name in listed for program in EXAMPLES.glob("*.py"))


def test_a_flag_that_makes_no_sense_is_answered_with_a_sentence():
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "digits.py"), "--epochs", "0"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ},
    )
    assert done.returncode == 2
    assert "--epochs is 1 or more" in done.stderr


@pytest.mark.thorough
@pytest.mark.deadline(300)
def test_a_rank_of_the_distributed_example_can_be_killed_and_two_ranks_go_on(tmp_path):
    launcher = Path(sys.executable).parent / "mpirun"
    tried = subprocess.run([sys.executable, "-c", "from mpi4py import MPI"], capture_output=True, check=False)
    if tried.returncode or not launcher.exists():
        pytest.skip("needs MPI: make mpi")

    def ranks(count, *flags):
        command = [
            launcher,
            "-n",
            str(count),
            sys.executable,
            EXAMPLES / "train_distributed.py",
            "--steps",
            "7",
        ]
        flags = (
            "--checkpoint",
            tmp_path / "run.safetensors",
            "--every",
            "3",
            "--layers",
            "1",
            "--width",
            "32",
            *flags,
        )
        return subprocess.run([*command, *flags], capture_output=True, text=True, timeout=200, check=False)

    killed = ranks(4, "--parallel", "sharded", "--kill", "2@4")
    assert killed.returncode != 0
    assert killed.stderr.count("rank 2 on") == 3 and "was killed by signal 9" in killed.stderr
    resumed = ranks(2)
    assert resumed.returncode == 0, resumed.stderr
    (tmp_path / "run.safetensors").unlink()
    alone = ranks(1)
    last = re.compile(r"step    6  loss \d+\.\d+")
    assert "from step 3" in resumed.stdout
    assert last.search(resumed.stdout)[0] == last.search(alone.stdout)[0]
