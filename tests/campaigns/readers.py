"""Readers: everything that reads a file, an image, a log or packets, given valid ones that were damaged with care.

In       valid files of every format, made here; damages to lengths, offsets, counts, tables, tokens
Out      what the file says, or one clear error; no other exception, no hang, no memory without end
Changes  nothing outside the worker
Next     _mutate.py (the damages)

    objects        ELF files for the CPU, for AMD and NVIDIA GPUs; loaded, not run; disassembled
    bundles, PTX   a cubin with its PTX; the loader's view of PTX, and the emulated GPU's
    safetensors, cached plans and objects
    traces         parsed, shown, judged, compared, edited and put together again
    packets        of every queue of every kind of device; decoding them never raises
    logs           of ioctls, of the kernel; of the tools of NVIDIA; coredumps; words of pushbuffers and rings
    questions      to the server of a trace's page
    kernel files   the topology of AMD's kernel driver, the release of NVIDIA's
    switches       HCQ_EMULATE and its kin
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import random
import resource
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hcq.errors import HcqError
from tests.campaigns import _mutate as mutate
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

FILES_OF_A_CASE = 8
MOST_GROWTH_KIB = 300 << 10  # of one file, none of which is larger than a MiB
DATA = Path(__file__).resolve().parent.parent / "data"


class Space:
    """Valid files, made once."""

    def __init__(self) -> None:
        import hcq
        from hcq import Tensor, nn
        from tests.hcq.amd.kernels import image as amd_image
        from tests.hcq.conftest import IR, assemble
        from tests.hcq.nv.kernels import image as ptx_image
        from tests.tools.trace.test_decode import GVISOR, STRACE, UVM, WORDS_BELOW
        from tests.tools.trace.test_kernel_log_damage import WHOLE

        self.folder = tempfile.TemporaryDirectory()
        self.cpu_object = assemble(IR)
        self.device = hcq.open("CPU")
        self.amd_object = amd_image("gfx1100")
        self.cubin = (DATA / "nv" / "scale_sm_80_ptxas_12.8.cubin").read_bytes()
        self.ptx = ptx_image("sm_80").decode()
        self.logs = (STRACE, UVM, GVISOR, WORDS_BELOW)
        self.kernel_log = WHOLE
        self.file = Path(self.folder.name) / "file"
        nn.save_file(
            {"w": Tensor([[1.0, 2.0]]), "n": hcq.tensor([1, 2, 3]), "b": hcq.tensor([True])},
            self.file,
            {"k": "v"},
        )
        self.safetensors = self.file.read_bytes()
        self.trace = self._record()
        self.plan, self.code = self._compile()

    def _record(self) -> bytes:
        from hcq.command import Copy, Fill, Signal, Wait
        from tests.tools.trace.making import CELL, Maker

        maker = Maker()
        maker.device()
        maker.alloc(0x20000, 4096, "out").alloc(CELL, 16, "gate")
        maker.host_sets(CELL, 1)
        maker.submit(Wait(CELL, 1), Signal(CELL, 2))
        maker.submit(Copy(0x20000, 0x20800, 64), Fill(0x20000, 7, 64), words=bytes(64))
        maker.times((1, 1000, 2000), (2, 3000, 4000))
        maker.free(0x20000)
        return maker.content

    def _compile(self) -> tuple[bytes, bytes]:
        from hcq.frontend.run import plan
        from hcq.frontend.tensor import Tensor

        x = Tensor([[1.0, 2.0], [3.0, 4.0]])
        made = ((x @ x).softmax(1) + 1).schedule()[0]
        from hcq.compiler.code_object import CodeObject

        launch = made.launches[0]
        code = CodeObject(
            name=launch.name, arch="x86_64", image=launch.image, entry=launch.entry, args=("buffer",),
            grid=launch.grid, block=launch.block, scratch_bytes=0, dynamic_shared_bytes=0, tensor_maps=("",), flops=1,
            traffic_bytes=1, choice="",
        )  # fmt: skip
        return plan._encode(made), code.to_bytes()


@functools.cache
def _space() -> Space:
    return Space()


@functools.cache
def _server() -> Any:
    from hcq.tools.trace.serve import PageServer

    file = Path(_space().folder.name) / "served"
    file.write_bytes(_space().trace)
    return PageServer(str(file))


# ------------------------------------------------------------ the readers: each damages a file and reads it


def _elf(image: bytes, rng: random.Random) -> bytes:
    return mutate.of_bytes(image, mutate.elf_places(image), rng)


def cpu_object(rng: random.Random) -> None:
    """A relocatable object for this machine, loaded."""
    space = _space()
    program = space.device.load(_elf(space.cpu_object, rng), rng.choice(("step", "functions", "add_one")))
    del program


def amd_object(rng: random.Random) -> None:
    from hcq.amd.chip import CHIPS
    from hcq.amd.link import Linked

    linked = Linked(_elf(_space().amd_object, rng), CHIPS["gfx1100"], "fuzz")
    linked.place(0x7_0000_0000)
    for kernel in linked.kernels.values():
        linked.lanes(kernel)


def metadata(rng: random.Random) -> None:
    """The notes of an AMD object: MessagePack."""
    from hcq.amd.metadata import kernels_of
    from hcq.code.elf import Object

    image = _space().amd_object
    note = next(section for section in Object(image).sections if section.type == 7)
    data = bytearray(image)
    inside = mutate.of_bytes(image[note.offset : note.offset + note.size_bytes], [], rng)
    data[note.offset : note.offset + note.size_bytes] = inside[: note.size_bytes].ljust(
        note.size_bytes, b"\0"
    )
    kernels_of(Object(bytes(data)))


def cubin(rng: random.Random) -> None:
    from hcq.nv.bundle import Bundle
    from hcq.nv.chip import CHIPS
    from hcq.nv.link import Linked

    space = _space()
    image = _elf(space.cubin, rng)
    if rng.random() < 0.3:
        packed = Bundle(space.cubin, space.ptx.encode()).pack()
        image = mutate.of_bytes(packed, [mutate.Place(at, 8) for at in (0, 8, 16, 24)], rng)
    bundle = Bundle.of(image)
    chip = next(chip for chip in CHIPS.values() if chip.arch == "sm_80")
    Linked(bundle, "scale", chip, "fuzz").place(0x7_0000_0000)


def disassembly(rng: random.Random) -> None:
    from hcq.tools.disassembly import amd, host

    space = _space()
    if rng.random() < 0.5:
        host.disassemble(_elf(space.cpu_object, rng), "x86_64", "step", "fuzz")
    else:
        amd.disassemble(_elf(space.amd_object, rng), "gfx1100", "scale", "fuzz")


def ptx(rng: random.Random) -> None:
    """The loader's view of a text, and the emulated GPU's."""
    from hcq.emu.nv.shader.parser import parse
    from hcq.emu.nv.shader.run import Kernel
    from hcq.nv.ptx import read_module

    text = mutate.of_text(_space().ptx, rng)
    with contextlib.suppress(HcqError):
        read_module(text)
    module = parse(text)
    for name, function in list(module.functions.items()):
        if function.is_entry:
            Kernel(module, name, dict.fromkeys(module.variables, 0))


def safetensors(rng: random.Random) -> None:
    from hcq import nn
    from hcq.frontend.io.safetensors import read_metadata

    space = _space()
    space.file.write_bytes(mutate.of_safetensors(space.safetensors, rng))
    with contextlib.suppress(HcqError):
        read_metadata(space.file)
    nn.load_file(space.file)


def plans(rng: random.Random) -> None:
    """A plan and an object of the cache, as if the file's hash were right."""
    from hcq.compiler.code_object import CodeObject
    from hcq.frontend.run import plan

    space = _space()
    length = int.from_bytes(space.plan[:8], "little")
    words = json.dumps(mutate.of_json(json.loads(space.plan[8 : 8 + length]), rng)).encode()
    plan._decode("CPU", len(words).to_bytes(8, "little") + words + space.plan[8 + length :])
    plan._decode("CPU", mutate.of_bytes(space.plan, [mutate.Place(0, 8)], rng))
    with contextlib.suppress(ValueError):
        CodeObject.from_bytes(mutate.of_bytes(space.code, [], rng))
    head, _, image = space.code.partition(b"\n")
    with contextlib.suppress(ValueError):
        CodeObject.from_bytes(json.dumps(mutate.of_json(json.loads(head), rng)).encode() + b"\n" + image)


def trace(rng: random.Random) -> None:
    """Records with right checksums and damaged contents, looked at by every verb that only reads."""
    from hcq.trace.frames import read_records
    from hcq.trace.records import MAGIC, pack_record

    space = _space()
    parts = [MAGIC]
    records, _, _ = read_records(space.trace)
    hit = rng.randrange(len(records))
    for record in records:
        text_bytes = int.from_bytes(record.raw[8:12], "little")
        start = len(record.raw) - text_bytes - int.from_bytes(record.raw[12:16], "little")
        text, data = record.raw[start : start + text_bytes], record.raw[start + text_bytes :]
        kind = int(record.kind)
        if record.index == hit:
            if text and rng.random() < 0.7:
                text = json.dumps(mutate.of_json(json.loads(text), rng)).encode()
            elif rng.random() < 0.9:
                places = [mutate.Place(at, size) for at in range(0, len(data) - 8, 4) for size in (4, 8)]
                data = mutate.of_bytes(data, places, rng)
            else:
                kind = rng.randrange(256)
        parts.append(pack_record(kind, record.process, record.time_ns, text, data))
        if record.index == hit and rng.random() < 0.1:
            parts.append(parts[-1])
    content = b"".join(parts)
    if rng.random() < 0.2:
        content = mutate.of_bytes(content, [], rng)
    space.file.write_bytes(content)
    verb = rng.choice(
        (["show"], ["show", "--hex"], ["stats"], ["lint"], ["graph"], ["edit"], ["export"], ["diff"])
    )
    files = [str(space.file)] * (2 if verb == ["diff"] else 1)
    _verb([*verb, *files])


def edited(rng: random.Random) -> None:
    """The text of a trace, put together again."""
    from hcq.tools.trace import edit

    text = "\n".join(edit.edit(_space().trace))
    edit.assemble(mutate.of_text(text, rng))


def _verb(words: list[str]) -> None:
    """A verb of hcq-trace: what it refuses it says on stderr in one line, with exit code 1 or 2."""
    from hcq.tools import hcq_trace

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = hcq_trace.main(words)
        except SystemExit as ended:
            status = int(ended.code or 0)
    if "Traceback" in err.getvalue():
        raise Wrong(f"hcq-trace {' '.join(words)}: {err.getvalue()[-400:]}")
    if status not in (0, 1, 2):
        raise Wrong(f"hcq-trace {' '.join(words)}: exit code {status}")


def packets(rng: random.Random) -> None:
    """Words of a queue: decoding never raises, and what is decoded can be printed."""
    from hcq import backends

    backend = rng.choice(list(backends.every()))
    arch = {
        "AMD": rng.choice(("gfx1100", "gfx90a", "gfx942", "gfx1201")),
        "NV": rng.choice(("sm_80", "sm_90", "sm_120")),
    }
    layouts = list(backend.packets())
    words: list[int] = []
    for _ in range(rng.randrange(1, 8)):
        layout = rng.choice(layouts)
        raw = [
            rng.choice((0, 1, 0xFFFFFFFF, rng.getrandbits(32), 1 << rng.randrange(32)))
            for _ in range(layout.length_words)
        ]
        with contextlib.suppress(HcqError, TypeError):
            raw = list(layout().words)
        words += raw
    data = mutate.of_bytes(b"".join(word.to_bytes(4, "little") for word in words), [mutate.Place(0, 4)], rng)
    words = [int.from_bytes(data[at : at + 4], "little") for at in range(0, len(data) // 4 * 4, 4)]
    for packet in backend.decode(words, arch.get(backend.name, "")):
        repr(packet)


def logs(rng: random.Random) -> None:
    """Logs of ioctls and of the kernel, NVIDIA's reports and CUDA's dumps, words of pushbuffers and ring entries."""
    from hcq.tools.trace import decode, hex_text, kernel_log, nv_words, readers
    from hcq.tools.trace.color import Color

    if rng.random() < 0.3:
        words = "\n".join(
            f"{rng.getrandbits(32):08x} 0x{rng.getrandbits(16):x}" for _ in range(rng.randrange(1, 40))
        )
        found = hex_text.read(mutate.of_text(words, rng).encode("utf-8", "replace")).words
        list(decode.word_lines(found, rng.choice(("sm_80", "sm_90", "sm_120")), rng.choice(nv_words.FORMS)))
        return
    if rng.random() < 0.4:
        from tests.tools.trace import cuda_cores, test_cuda_text, test_nvidia_report

        text = rng.choice((test_nvidia_report.WHOLE, test_cuda_text.WHOLE))
        content = mutate.of_text(text, rng).encode("utf-8", "replace")
        if rng.random() < 0.5:
            content = mutate.of_bytes(cuda_cores.core(), [mutate.Place(0, 4)], rng)
        reading = readers.find(content, readers.Wanted())
        if reading is not None:
            list(reading.lines(Color(False)))
            json.dumps(reading.as_json())
        return
    if rng.random() < 0.4:
        events = kernel_log.events(mutate.of_text(_space().kernel_log, rng).split("\n"))
        list(kernel_log.lines(events, Color(False)))
        json.dumps(kernel_log.json(events))
        return
    found_calls = decode.decode_log(mutate.of_text(rng.choice(_space().logs), rng).splitlines())
    list(decode.log_lines(*found_calls, Color(False)))
    json.dumps(decode.log_json(found_calls[0]))


def switches(rng: random.Random) -> None:
    """What the environment says."""
    from hcq.config import Config
    from hcq.emu.nv.spec import parse_all
    from hcq.emu.port import port_for

    valid = {"HCQ_EMULATE": "amd:gfx1100,nv:sm_90", "HCQ_VISIBLE": "0,1", "HCQ_TIMEOUT_MS": "100",
             "HCQ_DEBUG": "push,ir",
             "HCQ_THREADS": "2", "HCQ_DEVICE": "CPU", "HCQ_REPORT": "off", "HCQ_PROFILE": "1"}  # fmt: skip
    name = rng.choice(list(valid))
    found = Config.read({**valid, name: mutate.of_text(valid[name], rng).replace("\0", "")})
    if name == "HCQ_EMULATE" and rng.random() < 0.5:
        parse_all([mutate.of_text("nv:sm_90:seed=3:caches", rng)])
    elif name == "HCQ_EMULATE":
        port_for(found.emulate)


def questions(rng: random.Random) -> None:
    """What a page asks of the server of a trace."""
    from urllib.parse import parse_qs

    from hcq.tools.trace.page_data import plain
    from hcq.tools.trace.serve import _ROUTES

    name = rng.choice(list(_ROUTES))
    query = mutate.of_text(rng.choice(("number=1", "span=0", "text=fill", "number=2&text=a&span=3")), rng)
    json.dumps(plain(_server().answer(name, parse_qs(query))), allow_nan=False)


def kernel_files(rng: random.Random) -> None:
    """Text files of the kernel, one of them damaged, as a device reads them when it opens."""
    from hcq.amd.topology import read_nodes
    from hcq.emu.port import port_for
    from hcq.nv.process import NvProcess

    class Damaged:
        def __init__(self, word: str) -> None:
            self.inner, self.hit = port_for([word]), rng.randrange(6)

        def read_file(self, path: str) -> bytes:
            content: bytes = self.inner.read_file(path)
            self.hit -= 1
            return content if self.hit >= 0 else mutate.of_text(content.decode(), rng).encode()

    if rng.random() < 0.7:
        read_nodes(Damaged("amd:gfx1100"))  # type: ignore[arg-type]
    else:
        NvProcess().read_version(Damaged("nv:sm_90"))  # type: ignore[arg-type]


READERS: tuple[Callable[[random.Random], None], ...] = (
    cpu_object, amd_object, metadata, cubin, disassembly, ptx, safetensors, plans, trace, edited, packets, logs,
    questions, kernel_files, switches,
)  # fmt: skip


def run(case: Case) -> Outcome:
    """Several damaged files, each given to its reader."""
    rng = case.rng()
    outcomes = []
    for number in range(FILES_OF_A_CASE):
        reader = rng.choice(READERS)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            reader(rng)
            outcomes.append(Outcome.RIGHT)
        except HcqError as error:
            if not str(error).strip():
                raise Wrong(
                    f"file {number}, {reader.__name__}: {type(error).__name__} without a word"
                ) from None
            outcomes.append(Outcome.REFUSED)
        except Wrong:
            raise
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__)[-4:])
            told = f"file {number}, {reader.__name__}: {type(error).__name__}: {str(error)[:200]}\n{where}"
            raise Wrong(told) from None
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if grown > MOST_GROWTH_KIB:
            raise Wrong(f"file {number}, {reader.__name__}: {grown} KiB for a file of less than a MiB")
    return Outcome.REFUSED if Outcome.REFUSED in outcomes else Outcome.RIGHT


CAMPAIGNS = (
    Campaign(
        "readers",
        "damaged objects, cubins, PTX, safetensors, plans, traces, packets, logs, questions, kernel files, switches",
        run,
        40,
        deadline_s=60,
    ),
)
