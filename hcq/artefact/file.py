"""Program file: every byte of it, head, header and blobs, and reading it without trusting a number in it.

In       a path
Out      `ProgramFile`: its `Contents`, every number of which is checked, and its blobs when they are asked for
Next     program.py (who loads it), writing.py (who writes it), docs/artefact.md (the same as tables)

    head     56 bytes: magic, version, sizes, and a digest over all of this and the header
    header   JSON: what goes in and out, and for each architecture its code, memory and launches
    blobs    code objects and weights, each at a multiple of 64; the header has their places and digests

Every byte that means something is under a digest, so a damaged file is an error. A digest is no signature: a program's
file holds machine code, and is to be trusted like any program (docs/security.md).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import struct
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any, BinaryIO, NamedTuple

from hcq.checks import shown
from hcq.code import fixed_numbers
from hcq.code.safetensors import FORMATS, read_header
from hcq.errors import UsageError
from hcq.memory import MAX_BUFFER_BYTES

MAGIC = b"HCQPROG\n"
VERSION = 1
HEAD = struct.Struct("<8sIIQ32s")  # magic, version, bytes of the header, bytes of the file, digest
ALIGNMENT = 64  # of blobs in the file
MAX_HEADER_BYTES = 64 << 20
MAX_RANK = 64
MAX_SIDE = 2**31 - 1
PIECE_BYTES = 16 << 20  # read or written at a time
ITEM_BYTES = dict(FORMATS.values())  # of a number format, by name
ACCESS = {"r": "read", "w": "write"}


class Spec(NamedTuple):
    """A tensor: what it is called, its number format and its shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size_bytes(self) -> int:
        """Row-major, with nothing in between."""
        return prod(self.shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Beside(NamedTuple):
    """Contents that are in a safetensors file in the program's folder; a digest says that they are still the same."""

    file: str
    tensor: str
    digest: str


class Memory(NamedTuple):
    """A buffer of a program.

    kind    "input" or "output", of which `number` says which; "weight", which the file holds; "state", which starts
            as the file holds it and is kept from call to call; "temporary"
    spec    of a weight or a state
    source  of a weight or a state: the number of a blob, or a tensor beside the file
    """

    kind: str
    size_bytes: int
    number: int = 0
    spec: Spec | None = None
    source: int | Beside = 0


class Launch(NamedTuple):
    """One kernel: its code, and which memory each argument is. access: "r" or "w" for each argument.

    numbers  where parameters are numbers, too: a word for each parameter, see hcq/code/fixed_numbers.py
    """

    name: str
    entry: str
    image: int
    arguments: tuple[int, ...]
    access: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scratch_bytes: int
    dynamic_shared_bytes: int
    tensor_maps: tuple[str, ...]
    numbers: tuple[str, ...] = ()


class Variant(NamedTuple):
    """The program for one architecture. features, runtime: see hcq/code/program_file_parts.py; runtime is a
    key and a blob."""

    device: str
    arch: str
    abi: int
    features: frozenset[str]
    runtime: tuple[str, int] | None
    memory: tuple[Memory, ...]
    launches: tuple[Launch, ...]

    @property
    def key(self) -> tuple[str, str, frozenset[str]]:
        """What a file has one of."""
        return self.device, self.arch, self.features

    def blobs(self) -> set[int]:
        """The numbers of the blobs that it needs."""
        found = {launch.image for launch in self.launches}
        found |= {one.source for one in self.memory if one.spec and isinstance(one.source, int)}
        return found | ({self.runtime[1]} if self.runtime else set())


class Parameter(NamedTuple):
    """An input that is one number, which a size or a place is made of: its name, its range, which input it is."""

    name: str
    low: int
    high: int
    input: int


class Contents(NamedTuple):
    """What the header says."""

    name: str
    made_by: str
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]
    variants: tuple[Variant, ...]
    parameters: tuple[Parameter, ...] = ()


class Place(NamedTuple):
    """Where a blob is in a file, counted from the first one."""

    offset: int
    size_bytes: int
    digest: str


def padded(size_bytes: int) -> int:
    """Where the next thing begins in the file."""
    return -(-size_bytes // ALIGNMENT) * ALIGNMENT


def digest_of(header_bytes: int, file_bytes: int, text: bytes) -> bytes:
    """What the head holds: over itself, but for this, and the header."""
    return hashlib.sha256(HEAD.pack(MAGIC, VERSION, header_bytes, file_bytes, bytes(32)) + text).digest()


class Damaged(Exception):
    """Why bytes cannot be what they should be."""


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A file to read from; OSError for what is none, a pipe that nobody writes to included."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


class ProgramFile:
    """An open file of a program. `contents` is checked; `blob` reads and checks one. Close it, or use `with`."""

    def __init__(self, path: str | os.PathLike[str], call: str = "load_program") -> None:
        self.path = os.fspath(path)
        self.call = call
        try:
            self._file = open_plain(path)
        except OSError as error:
            raise UsageError(f"[{call}] {self.path}: cannot be read ({error.strerror}).") from None
        try:
            self._read_header()
        except BaseException as error:
            self._file.close()
            if isinstance(error, Damaged):
                raise self.refuse(error) from None
            raise

    def _read_header(self) -> None:
        size = os.fstat(self._file.fileno()).st_size
        head = self._file.read(HEAD.size)
        if head[: len(MAGIC)] != MAGIC:
            raise UsageError(
                f"[{self.call}] {self.path}: no program; it does not start with {MAGIC.decode().strip()!r}. "
                "Write one with hcq.save_program."
            )
        if len(head) < HEAD.size:
            raise Damaged(f"{size} bytes, and its head alone has {HEAD.size}")
        _, version, length, file_bytes, digest = HEAD.unpack(head)
        if version != VERSION:
            raise UsageError(
                f"[{self.call}] {self.path}: a program of version {version}, and this hcq reads version {VERSION}. "
                "Save it again with this one, or load it with the one that saved it."
            )
        if file_bytes != size or length > min(size - HEAD.size, MAX_HEADER_BYTES):
            raise Damaged(f"it has {size} bytes, and says {file_bytes}, of which {length} are its header")
        text = self._file.read(length)
        if digest_of(length, file_bytes, text) != digest:
            raise Damaged("the digest over its header is wrong")
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Damaged(f"its header is no JSON: {error}") from None
        self._start = padded(HEAD.size + length)
        self.contents, self._places = _from_json(table, size - self._start)

    def blob(self, number: int) -> bytes:
        """The bytes of a blob. Raises UsageError when they are damaged."""
        return b"".join(self.pieces(number))

    def pieces(self, number: int) -> Iterable[bytes]:
        """The same in pieces, the digest checked after the last one."""
        place = self._places[number]
        return self._checked(
            self._file, self._start + place.offset, place.size_bytes, place.digest, f"blob {number}"
        )

    def beside(self, one: Memory) -> Iterable[bytes]:
        """The contents of a weight or a state that is in a file of the same folder, in pieces, checked likewise."""
        source, spec = one.source, one.spec
        assert isinstance(source, Beside) and spec is not None
        path = os.path.join(os.path.dirname(self.path), source.file)
        try:
            file = open_plain(path)
        except OSError as error:
            raise UsageError(
                f"[{self.call}] {self.path}: its weights are in {source.file} beside it, which cannot be read "
                f"({error.strerror}). Put that file there."
            ) from None
        with file:
            entries = {entry.name: entry for entry in read_header(file, path, self.call).entries}
            entry = entries.get(source.tensor)
            if entry is None or entry.end - entry.begin != spec.size_bytes:
                raise UsageError(
                    f"[{self.call}] {self.path}: {source.file} beside it has no tensor {source.tensor!r} of "
                    f"{spec.size_bytes} bytes. Put the file there that the program was saved with."
                )
            yield from self._checked(
                file,
                entry.begin,
                spec.size_bytes,
                source.digest,
                f"tensor {source.tensor!r} of {source.file}",
            )

    def _checked(
        self, file: BinaryIO, offset: int, size_bytes: int, digest: str, what: str
    ) -> Iterable[bytes]:
        found = hashlib.sha256()
        for at in range(0, size_bytes, PIECE_BYTES):
            file.seek(offset + at)
            piece = file.read(min(PIECE_BYTES, size_bytes - at))
            found.update(piece)
            yield piece
        if found.hexdigest() != digest:
            raise self.refuse(f"{what} is not what was saved")

    def refuse(self, why: object) -> UsageError:
        """The error for a file that is damaged."""
        return UsageError(f"[{self.call}] {self.path}: {why}. It is damaged; copy or save it again.")

    def close(self) -> None:
        """Blobs cannot be read any more."""
        self._file.close()

    def __enter__(self) -> ProgramFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _from_json(table: Any, data_bytes: int) -> tuple[Contents, list[Place]]:
    """The header's facts, each checked. data_bytes: what follows the header."""
    names = ("name", "made_by", "parameters", "inputs", "outputs", "variants", "blobs")
    name, made_by, parameters, inputs, outputs, variants, blobs = _fields(table, names, "the header")
    places = [_place(one, data_bytes) for one in _list(blobs, "blobs")]
    takes = _specs(inputs, "inputs")
    gives = _specs(outputs, "outputs")
    numbers = tuple(_parameter(row, takes) for row in _list(parameters, "parameters"))
    if len({one.input for one in numbers}) != len(numbers):
        raise Damaged("two parameters are one input")
    found = tuple(_variant(one, takes, gives, places) for one in _list(variants, "variants"))
    if not found or len({one.key for one in found}) != len(found):
        raise Damaged("it has no variant, or two of one kind")
    return Contents(_text(name, "name"), _text(made_by, "made_by"), takes, gives, found, numbers), places


def _parameter(row: Any, inputs: Sequence[Spec]) -> Parameter:
    name, low, high, number = _row(row, 4, "a parameter")
    least = _whole(low, "a parameter", 0)
    found = Parameter(
        _text(name, "a parameter"),
        least,
        _whole(high, "a parameter", least),
        _whole(number, "a parameter", 0, len(inputs) - 1),
    )
    if inputs[found.input][1:] != ("int32", ()):
        raise Damaged(f"parameter {found.name} is input {inputs[found.input]}, and no int32 of shape ()")
    return found


def _variant(table: Any, inputs: Sequence[Spec], outputs: Sequence[Spec], places: Sequence[Place]) -> Variant:
    names = ("device", "arch", "abi", "features", "runtime", "memory", "launches")
    device, arch, abi, features, runtime, memory, launches = _fields(table, names, "a variant")
    rows = tuple(_memory(one, inputs, outputs, places) for one in _list(memory, "memory"))
    for kind, count in (("input", len(inputs)), ("output", len(outputs))):
        numbers = sorted(one.number for one in rows if one.kind == kind)
        if len(set(numbers)) != len(numbers) or (kind == "output" and len(numbers) != count):
            raise Damaged(f"the {kind}s of a variant are {numbers}, and the program has {count}")
    if runtime is not None:
        key, blob = _row(runtime, 2, "runtime")
        runtime = _text(key, "runtime"), _whole(blob, "runtime", 0, len(places) - 1)
    return Variant(
        _text(device, "device"),
        _text(arch, "arch"),
        _whole(abi, "abi", 1),
        frozenset(_text(word, "features") for word in _list(features, "features")),
        runtime,
        rows,
        tuple(_launch(one, rows, places) for one in _list(launches, "launches")),
    )


def _memory(row: Any, inputs: Sequence[Spec], outputs: Sequence[Spec], places: Sequence[Place]) -> Memory:
    kind = row[0] if isinstance(row, list) and row else None
    if kind == "input" or kind == "output":
        specs = inputs if kind == "input" else outputs
        number = _whole(_row(row, 2, "memory")[1], kind, 0, len(specs) - 1)
        return Memory(kind, specs[number].size_bytes, number)
    if kind == "temporary":
        return Memory(kind, _whole(_row(row, 2, "memory")[1], kind, 0, MAX_BUFFER_BYTES))
    if kind == "weight" or kind == "state":
        _, *words, source = _row(row, 5, "memory")
        spec = _spec(words, kind)
        if isinstance(source, list):
            source = Beside(*(_text(word, "a tensor beside the file") for word in _row(source, 3, kind)))
            if not is_file_name(source.file):
                raise Damaged(
                    f"a {kind} is in {shown(source.file)}, which is no name of a file in its folder"
                )
        elif places[_whole(source, kind, 0, len(places) - 1)].size_bytes != spec.size_bytes:
            raise Damaged(f"{spec} has {places[source].size_bytes} bytes")
        return Memory(kind, spec.size_bytes, 0, spec, source)
    raise Damaged(f"memory of kind {shown(kind)}")


def is_file_name(name: str) -> bool:
    """Whether it names a file in a folder, and nothing elsewhere."""
    return name not in ("", ".", "..") and "/" not in name and "\0" not in name


def _launch(table: Any, memory: Sequence[Memory], places: Sequence[Place]) -> Launch:
    names = Launch._fields
    if isinstance(table, Mapping):
        table = {"numbers": [], **table}  # where there are any
    name, entry, image, arguments, access, grid, block, scratch, shared, maps, numbers = _fields(
        table, names, "a launch"
    )
    label = _text(name, "the name of a launch")
    used = tuple(_whole(one, label, 0, len(memory) - 1) for one in _list(arguments, label))
    how = _text(access, label)
    if len(how) != len(used) or not set(how) <= set(ACCESS):
        raise Damaged(f"{label} has {len(used)} arguments, and {shown(how)} says what it does with them")
    written = [memory[one].kind for one, letter in zip(used, how) if letter == "w"]
    if "input" in written or "weight" in written:
        raise Damaged(f"{label} writes to an input or a weight")
    words = tuple(_text(one, label) for one in _list(maps, label))
    if len(words) != len(used):
        raise Damaged(f"{label} has {len(used)} arguments and {len(words)} tensor maps")
    always = tuple(_text(one, label) for one in _list(numbers, label))
    try:
        fixed_numbers.check(always, len(used))
    except (ValueError, OverflowError) as error:
        raise Damaged(f"{label} has numbers that are none: {error}") from None
    return Launch(
        label,
        _text(entry, label),
        _whole(image, label, 0, len(places) - 1),
        used,
        how,
        _sides(grid, label),
        _sides(block, label),
        _whole(scratch, label, 0, MAX_SIDE),
        _whole(shared, label, 0, MAX_SIDE),
        words,
        always,
    )


def _place(row: Any, data_bytes: int) -> Place:
    offset, size, digest = _row(row, 3, "a blob")
    at = _whole(offset, "a blob", 0, data_bytes)
    return Place(at, _whole(size, "a blob", 0, data_bytes - at), _text(digest, "a blob"))


def _specs(rows: Any, what: str) -> tuple[Spec, ...]:
    return tuple(_spec(row, what) for row in _list(rows, what))


def _spec(row: Any, what: str) -> Spec:
    name, dtype, shape = _row(row, 3, what)
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise Damaged(f"{what}: dtype {shown(dtype)}")
    sides = _list(shape, what)
    if len(sides) > MAX_RANK:
        raise Damaged(f"{what}: a shape of {len(sides)} dimensions")
    spec = Spec(_text(name, what), dtype, tuple(_whole(side, what, 0, MAX_BUFFER_BYTES) for side in sides))
    if spec.size_bytes > MAX_BUFFER_BYTES:
        raise Damaged(f"{what}: {shown(spec.size_bytes)} bytes")
    return spec


def _fields(table: Any, names: Sequence[str], what: str) -> list[Any]:
    """The values of a table that has exactly these names."""
    if not isinstance(table, Mapping) or set(table) != set(names):
        raise Damaged(f"{what} does not say {', '.join(names)}, and nothing else")
    return [table[name] for name in names]


def _row(value: Any, count: int, what: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != count:
        raise Damaged(f"{what}: {shown(value)}, expected {count} values")
    return value


def _list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise Damaged(f"{what}: {shown(value)}, expected a list")
    return value


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str) or any("\ud800" <= letter <= "\udfff" for letter in value):
        raise Damaged(f"{what}: {shown(value)}, expected a text")
    return value


def _whole(value: Any, what: str, low: int, high: int = 2**31 - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        raise Damaged(f"{what}: {shown(value)}, expected a whole number from {low} to {high}")
    return value


def _sides(value: Any, what: str) -> tuple[int, int, int]:
    x, y, z = (_whole(side, what, 1, MAX_SIDE) for side in _row(value, 3, what))
    return x, y, z
