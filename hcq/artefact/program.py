"""A loaded program: its code, weights and state on a device, called with bytes or buffers.

In       a file (file.py), the name of a device; for each call what goes in
Out      `load_program`, `LoadedProgram`; for each call a buffer for everything that comes out
Changes  opens the device; device memory; the program's own state, in each call
Next     file.py (what a file says), hcq/graph.py (a call is one doorbell), hcq/code/program_file_parts.py (what
         kinds of device ask)

A call submits one recorded graph. What changes from call to call are the addresses of what goes in and out, the patch
points of the graph; weights, state and temporary memory are recorded with their own.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

from hcq import backends, checks, config
from hcq.artefact.file import ACCESS, Beside, Contents, Memory, Parameter, ProgramFile, Spec, Variant
from hcq.code import fixed_numbers
from hcq.code.program_file_parts import NOTHING, Carried
from hcq.errors import UsageError
from hcq.graph import Symbol
from hcq.lifetime import opening
from hcq.memory import ALIGNMENT, Buffer
from hcq.program import Program

_LETTERS = {  # of buffers in Python: what they hold, whatever their size
    **dict.fromkeys("efd", "float"),
    **dict.fromkeys("bhilqn", "int"),
    **dict.fromkeys("BHILQN", "uint"),
    "?": "bool",
}


def load_program(path: str | os.PathLike[str], device: str | None = None) -> LoadedProgram:
    """The program of a file, on a device, ready to be called. Neither compiler nor tensor layer is imported.

    device  its name; default: the default device (HCQ_DEVICE, or CPU) where the file has code for its kind, else the
            first kind it has code for
    Raises  UsageError, one sentence, for a file that is damaged or of another version, or holds nothing for this
            device; DriverError as hcq.open

    >>> import array, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "twice.hcqprog")
    >>> twice = jit(lambda x: x * 2)
    >>> for _ in range(2):
    ...     _ = twice(Tensor([1.0, 2.0])).tolist()
    >>> hcq.save_program(path, twice)
    >>> (out,) = hcq.load_program(path)(array.array("f", [3.0, 4.0]))
    >>> array.array("f", bytes(out.read())).tolist()
    [6.0, 8.0]
    """
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise UsageError(f"[load_program] path={checks.shown(path)}; takes the path of a file.")
    with ProgramFile(path) as file:
        name = _device_for(file.contents, device)
        for variant in file.contents.variants:
            if variant.runtime is not None and variant.device == _kind(name):
                key, blob = variant.runtime
                carried_of(variant.device).offer(key, file.blob(blob))
        opened = opening.open(name)
        return LoadedProgram(file, _variant_for(file, opened), opened)


def carried_of(kind: str) -> Carried:
    """What a kind of device asks of a program's file."""
    backend = backends.of(kind)
    found: Carried = backends.load(backend.carried) if backend.carried else NOTHING
    return found


def _kind(device: str) -> str:
    return device.partition(":")[0].upper()


def _device_for(contents: Contents, device: str | None) -> str:
    if device is not None:
        return checks.text("load_program", "device", device)
    kinds = [variant.device for variant in contents.variants]
    default = config.current().device
    return default if _kind(default) in kinds else kinds[0]


def _variant_for(file: ProgramFile, device: Any) -> Variant:
    """The variant for an open device: of those that fit, the one that uses most of the processor."""
    variants = file.contents.variants
    alike = [one for one in variants if (one.device, one.arch) == (_kind(device.name), device.arch)]
    if not alike:
        held = ", ".join(dict.fromkeys(f"{one.device} {one.arch}" for one in variants))
        raise UsageError(
            f"[load_program] {file.path}: it holds code for {held}, and {device.name} is {device.arch}. "
            "Save it on such a device, too: save_program(path, step, add=True)."
        )
    carried = carried_of(_kind(device.name))
    abi = [one for one in alike if one.abi == carried.abi]
    if not abi:
        raise UsageError(
            f"[load_program] {file.path}: its kernels are called by convention {alike[0].abi} of "
            f"{alike[0].device}, and this hcq has {carried.abi}; it was saved by "
            f"{file.contents.made_by}. Save it again with this one."
        )
    here = carried.features()
    fitting = [one for one in abi if one.features <= here]
    if not fitting:
        missing = min((sorted(one.features - here) for one in abi), key=len)
        raise UsageError(
            f"[load_program] {file.path}: it was saved on a processor with {' '.join(missing[:8])}"
            f"{' and more' if len(missing) > 8 else ''}, which this one lacks. Save it on one like this, too."
        )
    return max(fitting, key=lambda one: len(one.features))


class LoadedProgram:
    """A program on a device. Call it with everything that goes in, in the order of `inputs`.

    inputs, outputs  what goes in and comes out: name, dtype, shape, size_bytes
    parameters       inputs that are numbers with a range, for sizes and places: name, low, high, which input
    state            what is kept from call to call, likewise: `read_state` and `write_state`
    name             of the function that was saved
    device           the open device it runs on
    kernels          how many a call runs
    made_by          the version of hcq that saved it
    """

    def __init__(self, file: ProgramFile, variant: Variant, device: Any) -> None:
        contents = file.contents
        self.name, self.made_by = contents.name, contents.made_by
        self.inputs, self.outputs = contents.inputs, contents.outputs
        self.parameters = contents.parameters
        self._ranges = {one.input: one for one in contents.parameters}
        self.device, self.variant = device, variant
        self.kernels = len(variant.launches)
        self._state: dict[str, tuple[Spec, Buffer]] = {}
        self._lock = threading.Lock()  # one call at a time writes addresses into the graph
        _all.add(self)
        places = [self._place(file, one) for one in variant.memory]
        self._symbols = {place.key for place in places if isinstance(place, Symbol)}
        programs = self._programs(file)
        self._graph = device.graph(self.name)
        for launch, program in zip(variant.launches, programs):
            args = [places[number] for number in launch.arguments]
            self._graph.dispatch(program, args, launch.grid, launch.block)
        # an input that no kernel reads has no place in the graph
        self._used = self._symbols & set(self._graph.patch_points)

    @property
    def state(self) -> tuple[Spec, ...]:
        """What is kept from call to call."""
        return tuple(spec for spec, _ in self._state.values())

    def read_state(self, name: str) -> bytes:
        """The contents of one of `state`, after all calls so far."""
        return self._of_state("read_state", name)[1].read()

    def write_state(self, name: str, data: Any) -> None:
        """Replace the contents of one of `state`; calls from now on go on from there.

        Raises  UsageError when the data has another size, number format or shape
        """
        spec, buffer = self._of_state("write_state", name)
        buffer.write(_checked(f"{self.name}.write_state", spec, data))

    def __call__(self, *inputs: Any) -> tuple[Buffer, ...]:
        """Run it. What comes out is new memory in each call, and may be read when this returns.

        inputs  for each of `inputs` its contents: bytes, an array or anything else with a buffer, which is copied to
                the device; or a Buffer of this device, which is read where it is; for one of `parameters` an int
        Raises  UsageError when there are not as many, one has another size, number format or shape, or an int is
                outside of its range
        """
        if len(inputs) != len(self.inputs):
            takes = ", ".join(map(str, self.inputs)) or "nothing"
            raise UsageError(f"{self.name}: takes {len(self.inputs)} inputs ({takes}), got {len(inputs)}.")
        # all are looked at before the first is copied
        given = [
            _number(self.name, self._ranges[place], value)
            if place in self._ranges
            else _checked(self.name, spec, value, self.device)
            for place, (spec, value) in enumerate(zip(self.inputs, inputs))
        ]
        buffers = [self._input(spec, value) for spec, value in zip(self.inputs, given)]
        outputs = tuple(self.device.alloc(spec.size_bytes, spec.name) for spec in self.outputs)
        values: dict[Any, Buffer] = {("input", number): buffer for number, buffer in enumerate(buffers)}
        values.update((("output", number), buffer) for number, buffer in enumerate(outputs))
        if self._graph.commands:
            with self._lock:
                self._graph.replay({key: values[key] for key in self._used})
        return outputs

    # ------------------------------------------------------------ loading

    def _place(self, file: ProgramFile, one: Memory) -> Buffer | Symbol:
        """The buffer that a launch's argument is, or the symbol under which each call names one."""
        if one.kind == "input" or one.kind == "output":
            return Symbol((one.kind, one.number))
        spec = one.spec
        buffer: Buffer = self.device.alloc(one.size_bytes, spec.name if spec else f"{self.name} (temporary)")
        if spec is not None:
            pieces = file.beside(one) if isinstance(one.source, Beside) else file.pieces(one.source)
            _fill(buffer, pieces)
            if one.kind == "state":
                if spec.name in self._state:
                    raise file.refuse(f"two states are called {checks.shown(spec.name)}")
                self._state[spec.name] = spec, buffer
        return buffer

    def _programs(self, file: ProgramFile) -> list[Program]:
        """The code of every launch; equal code is loaded once."""
        images = {number: file.blob(number) for number in {one.image for one in self.variant.launches}}
        loaded: dict[Any, Program] = {}
        found = []
        for launch in self.variant.launches:
            asks = launch.scratch_bytes, launch.dynamic_shared_bytes, launch.tensor_maps, launch.numbers
            key = (launch.image, launch.entry, launch.access, asks)
            if key not in loaded:
                args = ("buffer",) * len(launch.arguments)
                access = [ACCESS[letter] for letter in launch.access]
                if launch.numbers:
                    args, access = (
                        fixed_numbers.kinds(launch.numbers),
                        fixed_numbers.accesses(launch.numbers, access),
                    )
                program = loaded[key] = self.device.load(
                    images[launch.image],
                    launch.entry,
                    args=args,
                    scratch_bytes=launch.scratch_bytes,
                    name=launch.name,
                    access=access,
                )
                fixed_numbers.fix(program, launch.numbers)
                if any(launch.tensor_maps) or launch.dynamic_shared_bytes:
                    self._set_more(file, program, launch.tensor_maps, launch.dynamic_shared_bytes)
            found.append(loaded[key])
        return found

    def _set_more(self, file: ProgramFile, program: Any, maps: Sequence[str], shared_bytes: int) -> None:
        """What launches of a GPU's programs have besides arguments."""
        for name, wanted in (("set_tensor_maps", any(maps)), ("dynamic_shared_bytes", shared_bytes)):
            if wanted and not hasattr(program, name):
                what = "tensor maps" if name == "set_tensor_maps" else "shared memory"
                raise file.refuse(f"{program.name} asks for {what}, which {self.device.name} has not")
        if any(maps):
            program.set_tensor_maps(maps)
        if shared_bytes:
            program.dynamic_shared_bytes = shared_bytes

    # ------------------------------------------------------------ calling

    def _input(self, spec: Spec, value: Buffer | memoryview) -> Buffer:
        """A buffer of this device that begins where kernels expect one to."""
        if isinstance(value, Buffer):
            if value.address % ALIGNMENT == 0:
                return value
            copy: Buffer = self.device.alloc(spec.size_bytes, spec.name)
            self.device.queue().copy(copy, value).submit()
            return copy
        buffer: Buffer = self.device.alloc(spec.size_bytes, spec.name)
        buffer.write(value)
        return buffer

    def _of_state(self, call: str, name: str) -> tuple[Spec, Buffer]:
        found = self._state.get(name) if isinstance(name, str) else None
        if found is None:
            known = ", ".join(self._state) or "nothing: it keeps no state"
            raise UsageError(f"{self.name}.{call}({checks.shown(name)}): no such state. It has {known}.")
        return found

    def __repr__(self) -> str:
        takes, gives = ", ".join(map(str, self.inputs)), ", ".join(map(str, self.outputs))
        return f"LoadedProgram({self.name}({takes}) -> ({gives}) on {self.device.name})"


_all: weakref.WeakSet[LoadedProgram] = weakref.WeakSet()


def _after_fork() -> None:
    for each in list(_all):
        each._lock = threading.Lock()  # another thread of the parent may have had it


os.register_at_fork(after_in_child=_after_fork)


def _fill(buffer: Buffer, pieces: Iterable[bytes]) -> None:
    at = 0
    for piece in pieces:
        buffer.write(piece, at)
        at += len(piece)


def _number(call: str, parameter: Parameter, value: Any) -> memoryview:
    """The bytes of a number, if it is in the parameter's range. Raises UsageError for anything else."""
    if not checks.is_whole(value) or not parameter.low <= value.__index__() <= parameter.high:
        raise UsageError(
            f"{call}: {parameter.name} = {checks.shown(value)}; takes an int from {parameter.low} to {parameter.high}."
        )
    return memoryview(value.__index__().to_bytes(4, "little"))


def _checked(call: str, spec: Spec, value: Any, device: Any = None) -> Any:
    """What goes in, if it can be that. Raises UsageError, one sentence, for anything else."""
    if isinstance(value, Buffer):
        if device is None or value.device is not device:
            raise UsageError(
                f"{call}: input {spec} is {value!r}. Give one of {device and device.name}, or bytes."
            )
        value.check_poison(call)
        size = value.size_bytes
    else:
        value = checks.memory(f"{call}: input {spec.name}", value)
        size = value.nbytes
        letter = value.format.lstrip("@=<")
        if letter not in ("B", "c") or value.ndim > 1:
            kind, shape = _LETTERS.get(letter, letter), tuple(value.shape)
            count = 1
            for side in spec.shape:
                count *= side
            is_flat = shape == (count,)
            is_alike = spec.dtype == kind or (
                spec.dtype.startswith(kind) and spec.dtype[len(kind) :].isdecimal()
            )
            if not is_alike or not (is_flat or shape == spec.shape) or size != spec.size_bytes:
                raise UsageError(
                    f"{call}: input {spec} was given {kind}{8 * value.itemsize}{list(shape)}. Give an array of "
                    "its format and shape, or its bytes."
                )
    if size != spec.size_bytes:
        raise UsageError(f"{call}: input {spec} has {spec.size_bytes} bytes, got {size}.")
    return value
