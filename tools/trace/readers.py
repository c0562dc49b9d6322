"""Readers: what `hcq-trace decode` recognises by itself, one line for each kind of pasted material.

In       the bytes of a file, and what the command line says about them
Out      a `Reading`, as text or as data; None where no reader knows it, and it is a log of ioctls, perhaps
Next     kernel_log/ (kernel logs), devcoredump/ (amdgpu's dumps), umr/, radv/, rocm/ (waves and rings of AMD's tools),
         amd_words.py (packets of AMD's rings), decode.py (logs of ioctls, NVIDIA's words)

A new kind of material is a line in READERS: what tells it from all others, and who reads it. The first that recognises
a file has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from hcq.errors import UsageError
from hcq.tools.trace import (
    amd_tables,
    amd_texts,
    amd_words,
    decode,
    devcoredump,
    envelopes,
    hex_text,
    kernel_log,
    nv_words,
    nvidia_report,
    radv,
    rocm,
    umr,
)
from hcq.tools.trace.color import Color, clean
from hcq.tools.trace.cuda import core, core_file
from hcq.tools.trace.cuda import text as cuda_text
from hcq.tools.trace.rocm import gpu_core

GUESSED_BYTES = 1 << 16  # of larger files the beginning decides which language it is


class Wanted(NamedTuple):
    """What the command line says: the form of words, the chip, NVIDIA's architecture; empty where it says nothing."""

    form: str = ""
    chip: str = ""
    nv: str = ""


class Reading(NamedTuple):
    """What a file holds: lines for people, objects for programs."""

    lines: Callable[[Color], Iterator[str]]
    as_json: Callable[[], Any]
    has_calls: bool = False  # a log of ioctls may stand between what was read


class Reader(NamedTuple):
    """One kind of material: whether a file is it, and what it says."""

    name: str
    recognises: Callable[[bytes, Wanted], bool]
    read: Callable[[bytes, Wanted], Reading]


def find(
    content: bytes, wanted: Wanted, besides: Callable[[bytes, Wanted], bool] | None = None
) -> Reading | None:
    """What the first reader that recognises the file makes of it; None for a file that none does.

    What stands around its lines is taken off where that makes a text of a tool of it, and where nobody knows it as it
    is: kernel logs keep their stamps, and words that are understood stay as they are.
    besides     what tells a kind that it shall not be
    """
    content = envelopes.plain(content)
    first = _reader(content, wanted, besides)
    if first is not None and first.name in AS_IT_IS:
        return first.read(content, wanted)
    bare = envelopes.bare(content)
    second = _reader(bare, wanted, besides) if bare != content else None
    if second is not None and (first is None or second.name not in KEPT):
        return second.read(bare, wanted)
    return None if first is None else first.read(content, wanted)


def _reader(content: bytes, wanted: Wanted, besides: Callable[[bytes, Wanted], bool] | None) -> Reader | None:
    for reader in READERS:
        if reader.recognises is not besides and reader.recognises(content, wanted):
            return reader
    return None


# ------------------------------------------------------------ what several readers have in common


def _text(recognises: Callable[[bytes], bool]) -> Callable[[bytes, Wanted], bool]:
    """Whether a file is a text of some kind; none is where the command line says that it is words."""
    return lambda content, wanted: not wanted.form and recognises(content)


def _shown(reader: Any) -> Callable[[bytes, Wanted], Reading]:
    """What a module reads, in lines and as data."""

    def read(content: bytes, wanted: Wanted) -> Reading:
        found = reader.read(content)
        return Reading(lambda color: reader.lines(found, color), lambda: reader.as_json(found))

    return read


def _events(reader: Any) -> Callable[[bytes, Wanted], Reading]:
    """The events that a module finds in a text, shown as those of kernel logs."""

    def read(content: bytes, wanted: Wanted) -> Reading:
        found = reader.events(content.decode("utf-8", "replace").split("\n"))
        return Reading(
            lambda color: kernel_log.lines(found, color), lambda: kernel_log.json(found), b"ioctl" in content
        )

    return read


# ------------------------------------------------------------ words of AMD's rings


def _is_amd_words(content: bytes, wanted: Wanted) -> bool:
    if wanted.form:
        return wanted.form in amd_words.FORMS
    if not hex_text.is_binary(content) and b"ioctl" in content:
        return False
    head = content[:GUESSED_BYTES]
    if len(content) > len(head) and not hex_text.is_binary(content):
        head = head.rpartition(b"\n")[0]  # whole lines
    pasted = _pasted(head, wanted)
    return pasted.is_clean and bool(_guess(pasted.words, wanted))


def _pasted(content: bytes, wanted: Wanted) -> hex_text.Pasted:
    """The words; groups of four or eight digits may be numbers or bytes, and the reading that says something counts."""
    pasted = hex_text.read(content)
    if hex_text.is_binary(content) or not pasted.words:
        return pasted
    if _guess(pasted.words[: GUESSED_BYTES // 4], wanted):
        return pasted
    other = hex_text.read(content, is_in_order=True)
    best = _guess(other.words[: GUESSED_BYTES // 4], wanted) if other.words != pasted.words else []
    if best and wanted.form in ("", best[0].form):
        other.notes.append("the digits are read as bytes in the order of memory: as numbers they say nothing")
        return other
    return pasted


def _guess(words: list[int], wanted: Wanted) -> list[amd_words.Guess]:
    return amd_words.guess(words, amd_words.chip_named(wanted.chip) if wanted.chip else None)


def _read_amd_words(content: bytes, wanted: Wanted) -> Reading:
    """Raises UsageError for a file without words, and for a chip that is not known."""
    pasted = _pasted(content, wanted)
    if not pasted.words:
        raise UsageError(
            "no words in this file. Write them as hex, eight digits each or with 0x, as hexdump or xxd prints them,"
            " or give the binary file itself."
        )
    notes = list(pasted.notes)
    if wanted.form:
        form, said = wanted.form, ""
        chip = amd_words.chip_named(wanted.chip) if wanted.chip else amd_words.best_chip(pasted.words, form)
    else:
        best, *others = _guess(pasted.words[: GUESSED_BYTES // 4], wanted)
        form, chip = best.form, best.chip
        rivals = f", or {', '.join(one.form for one in others)}" if others else ""
        said = f"; by the look of it{rivals}: --form overrules"
    if not wanted.chip and form != "aql":
        said += "; --chip says which generation it is of"
    of_chip = "" if form == "aql" else f" of {chip.arch}"
    found = amd_words.pieces(pasted.words, form, chip)

    def lines(color: Color) -> Iterator[str]:
        for piece in found:
            text = clean(piece.line())
            yield f"{piece.at:6}  {text if piece.is_known else color(text, 'wrong')}"
        yield ""
        unknown = sum(len(piece.words) for piece in found if not piece.is_known)
        yield f"{len(pasted.words)} words, {unknown} of them not understood; {form}{of_chip}{said}"
        for note in notes:
            yield f"  {note}"

    def as_json() -> dict[str, Any]:
        return {
            "form": form,
            "chip": chip.arch,
            "notes": notes,
            "packets": [piece.as_json() for piece in found],
        }

    return Reading(lines, as_json)


# ------------------------------------------------------------ NVIDIA's reports


def _read_nvidia_report(content: bytes, wanted: Wanted) -> Reading:
    found = nvidia_report.read(content.decode("utf-8", "replace").split("\n"))
    return Reading(lambda color: nvidia_report.lines(found, color), lambda: nvidia_report.as_json(found))


# ------------------------------------------------------------ words of NVIDIA's channels


def _is_named_nv_words(content: bytes, wanted: Wanted) -> bool:
    return bool(wanted.nv) or wanted.form in nv_words.FORMS


def _is_qmd(content: bytes, wanted: Wanted) -> bool:
    words = _nv_words(content, wanted)
    return nv_words.arch_of_qmd(words) is not None


def _is_pushbuffer(content: bytes, wanted: Wanted) -> bool:
    return nv_words.arch_of_pushbuffer(_nv_words(content, wanted)) is not None


def _is_gpfifo(content: bytes, wanted: Wanted) -> bool:
    return nv_words.is_gpfifo(_nv_words(content, wanted))


def _nv_words(content: bytes, wanted: Wanted) -> list[int]:
    """The words of a file that may be taken for words; none of one that is too large to be guessed at."""
    if wanted.form or wanted.chip or len(content) > GUESSED_BYTES:
        return []
    pasted = hex_text.read(content)
    return pasted.words if pasted.is_clean else []


def _read_nv_words(content: bytes, wanted: Wanted) -> Reading:
    """Raises UsageError for a file without words, and for an architecture that is not known."""
    pasted = hex_text.read(content)
    found = nv_words.find(pasted.words, wanted.form, wanted.nv)
    if not pasted.words or found is None:
        raise UsageError(
            "no words in this text. Write them as hex, eight digits each, as many on a line as you like."
        )
    whose = "" if found.form == "gpfifo" else f" of {found.arch}"
    hint = "" if wanted.form else "; by the look of it: --form overrules"
    hint += "; --nv says which architecture it is of" if whose else ""

    def lines(color: Color) -> Iterator[str]:
        yield from map(clean, decode.word_lines(pasted.words, found.arch, found.form))
        if found.is_guess:
            yield ""
            yield f"{len(pasted.words)} words; {found.form}{whose}{hint}"
        for note in pasted.notes:
            yield f"  {note}"

    def as_json() -> Any:
        packets = decode.word_json(pasted.words, found.arch, found.form)
        if wanted.nv:
            return packets
        return {"form": found.form, "arch": found.arch, "notes": pasted.notes, "packets": packets}

    return Reading(lines, as_json)


# ------------------------------------------------------------ devcoredumps


def _read_devcoredump(content: bytes, wanted: Wanted) -> Reading:
    found = devcoredump.read(content)
    return Reading(
        lambda color: devcoredump.lines(found, color, wanted.chip),
        lambda: devcoredump.as_json(found, wanted.chip),
    )


# ------------------------------------------------------------ umr


def _read_amd_text(content: bytes, wanted: Wanted) -> Reading:
    found = amd_texts.read(content)
    return Reading(
        lambda color: amd_texts.lines(found, color, wanted.chip),
        lambda: amd_texts.as_json(found, wanted.chip),
        found.umr is None and b"ioctl" in content,
    )


# ------------------------------------------------------------ RADV


_is_radv = _text(radv.recognises)


def _read_radv(content: bytes, wanted: Wanted) -> Reading:
    found = radv.read(content)

    def part(text: bytes) -> Reading | None:  # a part is no report itself, even with a line of one in it
        return find(text, Wanted(), besides=_is_radv)

    return Reading(
        lambda color: radv.lines(found, color, wanted.chip, part),
        lambda: radv.as_json(found, wanted.chip, part),
    )


READERS: tuple[Reader, ...] = (
    Reader("words of NVIDIA's, as it is said", _is_named_nv_words, _read_nv_words),
    Reader("RADV's hang report, a folder", _is_radv, _read_radv),
    Reader("NVIDIA's bug report, nvidia-smi", _text(nvidia_report.recognises), _read_nvidia_report),
    Reader("CUDA coredump", lambda content, wanted: core_file.is_core(content), _shown(core)),
    Reader("core file of GPUs of ROCm", lambda content, wanted: gpu_core.is_core(content), _shown(gpu_core)),
    Reader("compute-sanitizer, cuda-gdb", _text(cuda_text.recognises), _events(cuda_text)),
    Reader("devcoredump of amdgpu", _text(devcoredump.recognises), _read_devcoredump),
    Reader("umr", _text(umr.recognises), _read_amd_text),
    Reader("ROCm: faults, debug agent, rocgdb", _text(rocm.recognises), _read_amd_text),
    Reader("amd-smi, rocm-smi, MQDs of the KFD", _text(amd_tables.recognises), _shown(amd_tables)),
    Reader("kernel log", _text(kernel_log.recognises), _events(kernel_log)),
    Reader("launch descriptions of NVIDIA's", _is_qmd, _read_nv_words),
    Reader("pushbuffers of NVIDIA's", _is_pushbuffer, _read_nv_words),
    Reader("words of AMD's rings", _is_amd_words, _read_amd_words),
    Reader("entries of NVIDIA's GPFIFO", _is_gpfifo, _read_nv_words),
)
AS_IT_IS = ("words of NVIDIA's, as it is said", "CUDA coredump", "core file of GPUs of ROCm")
KEPT = (
    "kernel log",
    "launch descriptions of NVIDIA's",
    "pushbuffers of NVIDIA's",
    "words of AMD's rings",
    "entries of NVIDIA's GPFIFO",
)
