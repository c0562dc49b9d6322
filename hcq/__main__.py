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
from typing import TYPE_CHECKING, Any

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
  amd:gfx1100              one GPU of that architecture (gfx90a gfx942 gfx1100 gfx1101 gfx1102 gfx1200 gfx1201)
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


def _search(options: argparse.Namespace) -> int:
    status: int = _search_command().run(options)
    return status


def _search_command() -> Any:
    """Of the tensor layer, which this floor does not import."""
    return importlib.import_module("hcq.frontend.search.command")


def _show(options: argparse.Namespace) -> int:
    status: int = _show_command().run(options)
    return status


def _show_command() -> Any:
    """Of the tensor layer, too."""
    return importlib.import_module("hcq.frontend.io.command")


def _onnx(options: argparse.Namespace) -> int:
    status: int = _onnx_command().run(options)
    return status


def _onnx_command() -> Any:
    """Of the tensor layer, too."""
    return importlib.import_module("hcq.frontend.more.onnx.command")


def _run_command(asked_for: str) -> Any:
    """The verb `run`, imported only for who asks for it."""
    if asked_for != "run":
        return None
    from hcq.artefact import command

    return command


def _abi_command(asked_for: str) -> Any:
    """The verb `abi`, imported only for who asks for it."""
    if asked_for != "abi":
        return None
    from hcq.atlas import command

    return command


def _inspect_command(asked_for: str) -> Any:
    """The verb `inspect`, imported only for who asks for it."""
    if asked_for != "inspect":
        return None
    from hcq.inspect import command

    return command


def _debug_command(asked_for: str) -> Any:
    """The verb `debug`, imported only for who asks for it."""
    if asked_for != "debug":
        return None
    from hcq.debug import command

    return command


def _llm(options: argparse.Namespace) -> int:
    status: int = _llm_command().run(options)
    return status


def _llm_command() -> Any:
    """Of the tensor layer, too."""
    return importlib.import_module("hcq.frontend.more.llm.command")


def _emulated(options: argparse.Namespace) -> tuple[str, ...]:
    """The words of --emulated, which may be given often and hold commas; else those of HCQ_EMULATE."""
    given = tuple(word.strip() for text in options.emulated for word in text.split(",") if word.strip())
    return given or config.current().emulate


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
    verbs = parser.add_subparsers(
        dest="verb",
        metavar="abi | debug | devices | doctor | emulate | inspect | llm | onnx | run | search | show",
    )
    interfaces = verbs.add_parser(
        "abi",
        help="what changed between releases of a kernel driver's interface, and which calls of a trace break",
        description="Kernel drivers' interfaces, release by release: structures, fields, calls.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if atlas := _abi_command(asked_for):
        atlas.add_verb(interfaces)
    debugging = verbs.add_parser(
        "debug",
        help="step through kernels on emulated GPUs, forwards and backwards",
        description="Debug queues and kernels: breakpoints, lanes, registers, memory, and where a byte comes from.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if debugger := _debug_command(asked_for):
        debugger.add_verb(debugging)
    devices = verbs.add_parser(
        "devices",
        help="list devices, open each, and say why one cannot be opened",
        description="List devices with their architecture, memory, queues and driver.",
        epilog=DEVICES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    devices.set_defaults(act=_devices)
    doctor = verbs.add_parser(
        "doctor",
        help="examine every device from its driver's file up, and print the fix for what fails",
        description="Examine devices step by step, measure them, and say what to do about what fails.",
        epilog=DOCTOR.format(questions=_questions()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    doctor.add_argument("--device", metavar="NAME", help="look at CPU, AMD, AMD:1, NV, ... alone")
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
    emulate = verbs.add_parser(
        "emulate",
        usage="hcq emulate [-h] [-v] [--sanitize WORDS] [--schedules N] [--findings FILE] WORDS -- PROGRAM ...",
        help="run an unmodified program on emulated GPUs",
        description="Run a program that uses AMD's libraries, or a GPU's kernel driver directly, without a GPU.",
        epilog=EMULATE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if asked_for == "emulate":
        from hcq.emu.supervisor import command

        command.add_options(emulate, takes_command)
    emulate.set_defaults(act=_emulate)
    inspect = verbs.add_parser(
        "inspect",
        help="what the devices of another process do now, while it works or hangs",
        description="Look at devices that another process of this user has open, or at the rings of a real GPU.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if inspection := _inspect_command(asked_for):
        inspection.add_verb(inspect)
    search = verbs.add_parser(
        "search", help="look at schedules that HCQ_SEARCH found, and merge files of them"
    )
    search.set_defaults(act=_search)
    if asked_for == "search":
        _search_command().add_verb(search)
    show = verbs.add_parser(
        "show",
        help="list the tensors of a file: safetensors, GGUF, PyTorch, npz, npy",
        description="List names, formats, shapes and bytes of the tensors in a file, and its metadata.",
        epilog=_show_command().EPILOG if asked_for == "show" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.set_defaults(act=_show)
    if asked_for == "show":
        _show_command().add_verb(show)
    onnx = verbs.add_parser(
        "onnx",
        help="show a model of ONNX: nodes, shapes, weights, kernels and their times",
        description="Show what is in a model of ONNX and which kernels it becomes; with --run, how long each takes.",
        epilog=_onnx_command().EPILOG if asked_for == "onnx" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    onnx.set_defaults(act=_onnx)
    if asked_for == "onnx":
        _onnx_command().add_verb(onnx)
    llm = verbs.add_parser(
        "llm",
        help="a language model from a GGUF file or safetensors writes text",
        description="Let a language model go on from a text, on any device.",
        epilog=_llm_command().EPILOG if asked_for == "llm" else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    llm.set_defaults(act=_llm)
    if asked_for == "llm":
        _llm_command().add_verb(llm)
    program = verbs.add_parser(
        "run",
        help="show what is in a file of hcq.save_program, and run it",
        description="Show what is in a program's file, run it, and say how long that takes. No compiler is needed.",
        epilog=artefacts.EPILOG if (artefacts := _run_command(asked_for)) else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if artefacts:
        artefacts.add_verb(program)
    return parser


def _questions() -> str:
    from hcq.doctor.check import CHECKS

    return "\n".join(f"  {name:<12} {question}" for name, question in CHECKS.items())


if __name__ == "__main__":
    sys.exit(main())
