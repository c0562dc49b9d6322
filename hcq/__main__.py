"""python -m hcq: what can be opened here, and what to do when something cannot.

In       the command line
Out      text, or JSON; the exit status says whether all is well
Changes  nothing that stays; `devices` and `doctor` open each device and close it again; `run` runs a program's file
Next     doctor/ (what both do), device.py (how a device opens), config.py (the switches listed in the help)
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import hcq
from hcq import config
from hcq.checks import printable
from hcq.config import SWITCHES
from hcq.errors import HcqError

if TYPE_CHECKING:
    from hcq.doctor.host import Host

DEVICES = """examples:
  python -m hcq devices                    what is here, one line each
  python -m hcq devices --json             the same for another program
  HCQ_EMULATE=amd:gfx1100 python -m hcq devices

The exit status is 0 when at least one device can be opened. `python -m hcq doctor` looks deeper.
"""

DOCTOR = """The checks, each needing those before it:
{questions}

examples:
  python -m hcq doctor                             every device of this machine
  python -m hcq doctor --device AMD:1              one alone; also one that seems not to be here, to learn why
  python -m hcq doctor --emulated amd:gfx1100      an emulated GPU, too; no hardware is needed
  python -m hcq doctor --device AMD --emulated amd:gfx1100
  python -m hcq doctor --json > doctor.json        to attach to a bug report: no names of users, no home folders

A check that fails prints a line `fix` with the command to run. The exit status is 0 when every device passes, 1 when
one does not, 2 when the question makes no sense.
"""


EMULATE = """Everything but the GPU is this machine: the program, its libraries, its files. Device nodes and files of
sysfs that concern GPUs are the emulated ones; kernels run on the CPU, hundreds of times slower than on a GPU.

words, separated by commas; options follow after colons:
  amd:gfx1100              one GPU of that architecture (gfx90a gfx942 gfx950 gfx1030 gfx1100 gfx1101 gfx1102 gfx1151
                           gfx1200 gfx1201)
  amd:gfx1100,amd:gfx942   two GPUs
  amd:gfx1100:caches       what is not acquired is old, what is not released is hidden
  amd:gfx1100:seed=7       queues and what nothing orders run in random order
  amd:gfx1100:private      the host sees none of its memory (no large BAR)
  amd:gfx1100:kfd=1.14     its kernel driver's interface has this version (1.11 to 1.19)

examples:
  python -m hcq emulate amd:gfx1100 -- rocminfo
  python -m hcq emulate -v amd:gfx90a,amd:gfx1100 -- ./my_hip_program --size 4
  python -m hcq emulate amd:gfx942 -- sh -c 'rocminfo | grep gfx'
  python -m hcq emulate amd:gfx90a --sanitize race --schedules 20 -- ./my_hip_program

The exit status is the program's; 86 when that is 0 and --sanitize (or HCQ_SANITIZE) has found something. What the
emulated kernel drivers log (page faults, hangs) follows on stderr.
It needs Linux 5.9 and no privileges: calls are supervised by seccomp, so that programs gain no privileges by sudo or
the like. It is no sandbox. docs/emulated-programs.md tells how it works and where it ends.
"""


def main(argv: Sequence[str] | None = None, host: Host | None = None) -> int:
    """The program. Returns its exit status. host: the machine it looks at, instead of this one."""
    words = list(sys.argv[1:] if argv is None else argv)
    words, program = _divided(words)
    parser = _parser(words[0] if words else "", program is None)
    options = parser.parse_args(words)
    if program is not None:
        options.command = program
    options.host = host
    if options.verb is None:
        parser.print_help()
        return 0
    try:
        status: int = options.act(options)
        sys.stdout.flush()
    except HcqError as error:
        print(f"hcq {options.verb}: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read our output has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"hcq {options.verb}: {printable(f'{error.filename}: {error.strerror}')}", file=sys.stderr)
        return 2
    return status


def _devices(options: argparse.Namespace) -> int:
    from hcq.doctor import devices

    found = devices.list_devices(options.host, emulated=_emulated(options))
    print(json.dumps(devices.entries(found), indent=2) if options.json else devices.as_text(found))
    return 0 if any(run.is_well for run in found.runs) else 1


def _doctor(options: argparse.Namespace) -> int:
    from hcq.doctor import report
    from hcq.doctor.examine import examine

    found = examine(options.host, device=options.device, emulated=_emulated(options))
    print(report.as_json(found) if options.json else report.as_text(found, sys.stdout.isatty()))
    return 0 if found.is_well else 1


def _divided(words: list[str]) -> tuple[list[str], list[str] | None]:
    """Our own words, and the program to emulate behind --, whose options are its own."""
    if words[:1] != ["emulate"] or "--" not in words:
        return words, None
    at = words.index("--")
    return words[:at], words[at + 1 :]


def _emulate(options: argparse.Namespace) -> int:
    from hcq.emu.supervisor import command

    return command.run(options)


def _emulated(options: argparse.Namespace) -> tuple[str, ...]:
    """The words of --emulated, which may be given often and hold commas; else those of HCQ_EMULATE."""
    given = tuple(word.strip() for text in options.emulated for word in text.split(",") if word.strip())
    return given or config.current().emulate


class Verb(NamedTuple):
    """A verb: what the help says of it, and what adds its words, as "module:function"; empty for those of this file.

    A module is imported for who asks for its verb. It says what runs: set_defaults(act=...).
    """

    help: str
    description: str | None
    add: str = ""


VERBS = {
    "abi": Verb(
        "what changed between releases of a kernel driver's interface, and which calls of a trace break",
        "Kernel drivers' interfaces, release by release: structures, fields, calls.",
        "hcq.atlas.command:add_verb",
    ),
    "debug": Verb(
        "step through kernels on emulated GPUs, forwards and backwards",
        "Debug queues and kernels: breakpoints, lanes, registers, memory, and where a byte comes from.",
        "hcq.debug.command:add_verb",
    ),
    "devices": Verb(
        "list devices, open each, and say why one cannot be opened",
        "List devices with their architecture, memory, queues and driver.",
    ),
    "doctor": Verb(
        "examine every device from its driver's file up, and print the fix for what fails",
        "Examine devices step by step, measure them, and say what to do about what fails.",
    ),
    "emulate": Verb(
        "run an unmodified program on emulated GPUs",
        "Run a program that uses AMD's libraries, or a GPU's kernel driver directly, without a GPU.",
    ),
    "inspect": Verb(
        "what the devices of another process do now, while it works or hangs",
        "Look at devices that another process of this user has open, or at the rings of a real GPU.",
        "hcq.inspect.command:add_verb",
    ),
    "llm": Verb(
        "a language model from a GGUF file or safetensors writes text",
        "Let a language model go on from a text, on any device.",
        "hcq.frontend.more.llm.command:add_verb",
    ),
    "onnx": Verb(
        "show a model of ONNX: nodes, shapes, weights, kernels and their times",
        "Show what is in a model of ONNX and which kernels it becomes; with --run, how long each takes.",
        "hcq.frontend.more.onnx.command:add_verb",
    ),
    "run": Verb(
        "show what is in a file of hcq.save_program, and run it",
        "Show what is in a program's file, run it, and say how long that takes. No compiler is needed.",
        "hcq.artefact.command:add_verb",
    ),
    "search": Verb(
        "look at schedules that HCQ_SEARCH found, and merge files of them",
        None,
        "hcq.frontend.search.command:add_verb",
    ),
    "show": Verb(
        "list the tensors of a file: safetensors, GGUF, PyTorch, npz, npy",
        "List names, formats, shapes and bytes of the tensors in a file, and its metadata.",
        "hcq.frontend.io.command:add_verb",
    ),
}


def _parser(asked_for: str = "", takes_command: bool = True) -> argparse.ArgumentParser:
    switches = "\n".join(f"  {name:<18} {what}" for name, what in SWITCHES.items())
    parser = argparse.ArgumentParser(
        prog="hcq",
        description="Hardware command queues from Python. This program says what can be used on this machine.",
        epilog=f"examples:\n  python -m hcq devices\n  python -m hcq doctor\n  python -m hcq doctor --help\n"
        f"  python -m hcq emulate amd:gfx1100 -- rocminfo\n  python -m hcq run step.hcqprog\n"
        f"  python -m hcq debug nv:sm_90 -- matmul.py\n"
        f"  python -m hcq abi diff nv 570.86 580.142\n\n"
        f"then, in Python:\n  import hcq; dev = hcq.open('CPU')\n\nswitches (environment variables):\n{switches}\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hcq {hcq.__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar=" | ".join(VERBS))
    made = {
        name: verbs.add_parser(
            name,
            help=verb.help,
            description=verb.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        for name, verb in VERBS.items()
    }
    module, _, add = VERBS[asked_for].add.partition(":") if asked_for in VERBS else ("", "", "")
    if module:
        getattr(importlib.import_module(module), add)(made[asked_for])
    devices, doctor, emulate = made["devices"], made["doctor"], made["emulate"]
    devices.epilog, doctor.epilog, emulate.epilog = DEVICES, DOCTOR.format(questions=_questions()), EMULATE
    doctor.add_argument("--device", metavar="NAME", help="look at CPU, AMD, AMD:1, NV, ... alone")
    devices.set_defaults(act=_devices)
    doctor.set_defaults(act=_doctor)
    for verb in (devices, doctor):
        verb.add_argument(
            "--emulated",
            metavar="WORD",
            action="append",
            default=[],
            help="an emulated device, as amd:gfx1100",
        )
        verb.add_argument("--json", action="store_true", help="JSON, for another program or a bug report")
    emulate.usage = (
        "hcq emulate [-h] [-v] [--sanitize WORDS] [--schedules N] [--findings FILE] WORDS -- PROGRAM ..."
    )
    emulate.set_defaults(act=_emulate)
    if asked_for == "emulate":
        from hcq.emu.supervisor import command

        command.add_options(emulate, takes_command)
    return parser


def _questions() -> str:
    from hcq.doctor.check import CHECKS

    return "\n".join(f"  {name:<12} {question}" for name, question in CHECKS.items())


if __name__ == "__main__":
    sys.exit(main())
