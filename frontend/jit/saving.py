"""Saving: the recording of a jitted function as a file that runs without the compiler.

In       functions that `jit` made and that have run, one for each device; a path
Out      a program's file (hcq/artefact/), for `hcq.load_program`
Changes  the file, in one step; compiles a kernel for each result that is a view of other memory
Next     replay.py (what a recording is), hcq/artefact/file.py (every byte), docs/artefact.md

What a recording reads of tensors outside becomes part of the file: as a weight if no launch writes there, else as
state, which a loaded program keeps from call to call. What a call does to Python, `.grad` apart, no file can hold:
such a function is refused.
"""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hcq import checks
from hcq.artefact.file import (
    Beside,
    Contents,
    Launch,
    Memory,
    Parameter,
    ProgramFile,
    Spec,
    Variant,
    is_file_name,
)
from hcq.artefact.program import carried_of
from hcq.artefact.writing import Blob, write
from hcq.code.safetensors import read_header
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core import names as tensor_names
from hcq.frontend.core.device import toolchain
from hcq.frontend.core.known_later import MOST
from hcq.frontend.core.storage import Storage
from hcq.frontend.core.structure import structure_of
from hcq.frontend.core.threads import lock
from hcq.frontend.jit.function import Jit
from hcq.frontend.jit.pytree import Argument, New, Same
from hcq.frontend.jit.record import Role
from hcq.frontend.jit.replay import Recording
from hcq.frontend.jit.watched_call import settle
from hcq.frontend.run.plan import Plan, plan_for
from hcq.frontend.run.realize import storage_of
from hcq.frontend.symbolic.conditions import Condition
from hcq.frontend.symbolic.variable import Bound
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op

PIECE_BYTES = 16 << 20  # of weights, read from a device at a time


def save_program(
    path: str | os.PathLike[str],
    functions: Jit[Any, Any] | Sequence[Jit[Any, Any]],
    weights: str | None = None,
    names: Mapping[str, Tensor] | None = None,
    add: bool = False,
) -> None:
    """Write what a jitted function's last call submitted, as a file for `hcq.load_program`.

    Weights are what the recording reads; tensors that it writes in place (weights that it trains, optimizer state,
    running statistics, the counter of random numbers) are state, which begins with what they hold now.

    functions  a function that was called often enough to be recorded (twice with the same effect), or several that do
               the same on devices of several architectures: a file has one program for each
    weights    the name of a safetensors file in the same folder; weights and state that it holds, byte for byte, are
               not copied into the program, which asks for that file whenever it is loaded
    names      what weights and state are called, such as model.state_dict()
    add        to the file at `path`, which has this program for other architectures; without it, it is replaced
    Raises     UsageError, one sentence, for a function that has no recording or does what a file cannot hold:
               keeps tensors in Python, adds to the .grad of a call before; OSError as the system gives it

    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "twice.hcqprog")
    >>> twice = jit(lambda x: x * 2)
    >>> for _ in range(2):
    ...     _ = twice(Tensor([1.0, 2.0])).tolist()
    >>> hcq.save_program(path, twice)
    >>> [(spec.dtype, spec.shape) for spec in hcq.load_program(path).inputs]
    [('float32', (2,))]
    """
    found: list[Any] = list(functions) if isinstance(functions, (list, tuple)) else [functions]
    for function in found:
        if not isinstance(function, Jit):
            raise UsageError(f"[save_program] {checks.shown(function)}: takes functions that hcq.jit made.")
    if not found:
        raise UsageError("[save_program] no function. Give one, or a list of them.")
    if not isinstance(path, (str, os.PathLike)) or "\0" in os.fspath(path):
        raise UsageError(f"[save_program] path={checks.shown(path)}; takes the path of a file.")
    if names is not None and not isinstance(names, Mapping):
        raise UsageError(f"[save_program] names={checks.shown(names)}; takes names and their tensors.")
    blobs = _Blobs(Path(path), weights)
    try:
        called = _by_storage(names or {})
        saved = [_Saver(function, blobs, called).contents() for function in found]
        if add:
            saved.append(_existing(path, blobs, {one.key for each in saved for one in each.variants}))
        write(path, _joined(saved), blobs.all)
    finally:
        blobs.close()


def _joined(saved: Sequence[Contents]) -> Contents:
    """One program of several architectures. Raises UsageError when they are not one."""
    first = saved[0]
    for other in saved[1:]:
        for what, mine, its in (
            ("takes", first.inputs, other.inputs),
            ("gives", first.outputs, other.outputs),
        ):
            if [spec[1:] for spec in mine] != [spec[1:] for spec in its]:
                raise UsageError(
                    f"[save_program] {first.name} {what} {_listed(mine)}, and {other.name} {_listed(its)}. "
                    "A file has one program: save them in two."
                )
        if [one[1:] for one in first.parameters] != [one[1:] for one in other.parameters]:
            raise UsageError(
                f"[save_program] {first.name} has the parameters {list(first.parameters)}, and {other.name} "
                f"{list(other.parameters)}. A file has one program: save them in two."
            )
    variants = tuple(one for each in saved for one in each.variants)
    keys = [one.key for one in variants]
    for one in variants:
        if keys.count(one.key) > 1:
            raise UsageError(
                f"[save_program] two functions on {one.device} {one.arch}. A file has one for each."
            )
    return first._replace(variants=variants)


def _listed(specs: Sequence[Spec]) -> str:
    return ", ".join(map(str, specs)) or "nothing"


def _by_storage(names: Mapping[str, Tensor]) -> dict[Storage, str]:
    found = {}
    for name, tensor in names.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UsageError(f"[save_program] names: {checks.shown(name)}: takes names and their tensors.")
        if tensor.node.op is Op.BUFFER:
            found[storage_of(tensor)] = name
    return found


class _Blobs:
    """What goes into the file beside its header, each content once, and the tensors of the file of weights."""

    def __init__(self, path: Path, weights: str | None) -> None:
        self.all: list[Blob] = []
        self._numbers: dict[str, int] = {}
        self._beside: dict[tuple[str, int, str], str] = {}
        self._old: ProgramFile | None = None
        self.weights = weights
        if weights is None:
            return
        if not isinstance(weights, str) or not is_file_name(weights):
            raise UsageError(
                f"[save_program] weights={checks.shown(weights)}; takes the name of a safetensors file in the folder "
                "of the program, without that folder."
            )
        beside = path.parent / weights
        with open(beside, "rb") as file:
            for entry in read_header(file, str(beside), "save_program").entries:
                digest = hashlib.sha256()
                file.seek(entry.begin)
                for at in range(entry.begin, entry.end, PIECE_BYTES):
                    digest.update(file.read(min(PIECE_BYTES, entry.end - at)))
                key = entry.dtype, entry.end - entry.begin, digest.hexdigest()
                self._beside.setdefault(key, entry.name)

    def add(self, blob: Blob) -> int:
        """Its number."""
        number = self._numbers.setdefault(blob.digest, len(self.all))
        if number == len(self.all):
            self.all.append(blob)
        return number

    def add_bytes(self, data: bytes) -> int:
        return self.add(Blob.of(lambda: (data,)))

    def source(self, storage: Storage) -> int | Beside:
        """Where the contents of a tensor are kept."""
        blob = Blob.of(lambda: _pieces_of(storage))
        name = self._beside.get((storage.dtype.name, blob.size_bytes, blob.digest))
        if name is not None and self.weights is not None:
            return Beside(self.weights, name, blob.digest)
        return self.add(blob)

    def keep(self, old: ProgramFile) -> None:
        """A file that is read when the new one is written."""
        self._old = old

    def close(self) -> None:
        if self._old is not None:
            self._old.close()


def _pieces_of(storage: Storage) -> Iterator[bytes]:
    buffer = storage.buffer
    if buffer is None:
        if storage.size_bytes:
            raise UsageError(
                f"[save_program] a tensor {storage.shape} that it reads has no memory. Realize it first."
            )
        return
    for at in range(0, storage.size_bytes, PIECE_BYTES):
        yield buffer.read(at, min(PIECE_BYTES, storage.size_bytes - at))


def _existing(path: str | os.PathLike[str], blobs: _Blobs, replaced: set[Any]) -> Contents:
    """What a file holds for other architectures; its blobs are numbered anew."""
    old = ProgramFile(path, "save_program")
    blobs.keep(old)

    def moved(number: int) -> int:
        return blobs.add(Blob.of(lambda: old.pieces(number)))

    variants = []
    for variant in old.contents.variants:
        if variant.key in replaced:
            continue
        new = {number: moved(number) for number in sorted(variant.blobs())}
        variants.append(
            Variant(
                variant.device,
                variant.arch,
                variant.abi,
                variant.features,
                None if variant.runtime is None else (variant.runtime[0], new[variant.runtime[1]]),
                tuple(
                    one._replace(source=new[one.source]) if one.spec and isinstance(one.source, int) else one
                    for one in variant.memory
                ),
                tuple(one._replace(image=new[one.image]) for one in variant.launches),
            )
        )
    contents = old.contents
    return Contents(
        contents.name, "", contents.inputs, contents.outputs, tuple(variants), contents.parameters
    )


class _Saver:
    """One function's recording as the contents of a file with one variant."""

    def __init__(self, function: Jit[Any, Any], blobs: _Blobs, called: Mapping[Storage, str]) -> None:
        self.function, self.blobs, self.called = function, blobs, called
        self.memory: list[Memory] = []
        self.launches: list[Launch] = []
        self.places: dict[Any, int] = {}  # role, or ("shared", number) -> number of its memory
        self.used: set[str] = set()  # names of weights and state

    def contents(self) -> Contents:
        with self.function._lock, lock:
            settle()
            return self._contents(self._recording())

    def _recording(self) -> Recording:
        found = self.function._last
        if found is None:
            raise self.refuse(
                "it has no recording. Call it first, at least twice, with inputs of the shapes to be saved"
            )
        if devices.is_group(found.device):
            raise self.refuse(
                f"it runs on several devices, {found.device}, and a file is for one. Record it on one of them"
            )
        if not found.holds():
            raise self.refuse(
                "what it was recorded with has changed since its last call. Call it again, and save then"
            )
        return found

    def refuse(self, why: str) -> UsageError:
        return UsageError(f"[save_program] {self.function.name}: {why}.")

    def _narrowed(self, parameter: Parameter, conditions: list[Condition]) -> Parameter:
        """A variable with the range for which its conditions hold: a file asks for the range, and nothing else."""
        name, low, high, place = parameter
        for gap, places, words in conditions:
            if place not in places.values():
                continue
            leaf, *others = gap.leaves()
            times = gap.terms.get(leaf, 0)
            if times > 0:
                low = max(low, -(gap.constant // times))
            elif times < 0:
                high = min(high, gap.constant // -times)
            if others or not times or len(gap.terms) > 1 or low > high:
                raise self.refuse(
                    f"{words}, which is not so for all numbers of the variables, and a file asks for a range of each "
                    "alone. Give the variables ranges for which it is"
                )
        return Parameter(name, low, high, place)

    def _contents(self, recording: Recording) -> Contents:
        seen = recording.seen
        if seen.slots or seen.pins:
            raise self.refuse(
                "it reads the .grad that a call before left, which a file does not keep. Set it to None inside, as "
                "zero_grad does"
            )
        if seen.donated:
            raise self.refuse(
                "it takes its arguments as donated, and those of a program stay. Save jit(f) without donate"
            )
        if seen.overwritten or seen.given:
            raise self.refuse(
                "it writes to its arguments, which a program only reads. Return the new values, or reach the tensor "
                "from outside"
            )
        if seen.kept:
            raise self.refuse(
                "it keeps a tensor in a variable, a list or an attribute, which a file cannot. Return it, or assign to "
                "a tensor that stays"
            )
        found = _inputs_of(self.function, recording)
        if found is None:
            raise self.refuse("it was called with one tensor as two arguments. Call it with two")
        inputs, parameters = found
        parameters = [self._narrowed(one, list(seen.conditions.values())) for one in parameters]
        leaves = list(_leaves(seen.results, ""))
        plain = [name for name, leaf in leaves if not isinstance(leaf, (New, Argument, Same))]
        if plain:
            raise self.refuse(
                f"{plain[0] or 'its result'} is a plain value, and a program gives tensors. Return tensors alone"
            )
        self.written = set(seen.written)
        self.owners = {
            ref.node.arg: tensor_names.name_of(tensor)
            for ref in seen.externals
            if ref.node.op is Op.BUFFER and (tensor := ref.ref()) is not None
        }
        for number, spec in enumerate(inputs):
            self.places["argument", number] = self._add(Memory("input", spec.size_bytes, number))
        outputs, copies = [], []
        for number, (name, leaf) in enumerate(leaves):
            role, node, roles = self._result(recording, leaf, inputs)
            spec = Spec(name or "result", node.dtype.name, tuple(node.shape))
            at = self._add(Memory("output", spec.size_bytes, number))
            if role is not None and role not in self.places:
                self.places[role] = at
            else:
                copies.append((node, roles, at))
            outputs.append(spec)
        planned = recording.planned.places
        for number, run in enumerate(seen.runs):
            places = {v: self._place(recording, role) for v, role in run.roles().items()}
            used = dict.fromkeys(v for launch in run.plan.launches for v in launch.arguments)
            for v in [v for v in used if v not in places]:
                places[v] = self._shared(recording, planned[number, v])
            self._launch(run.plan, places)
        for node, roles, at in copies:
            self._copy(recording, node, roles, at)
        device = recording.opened
        kind = recording.device.partition(":")[0]
        carried = carried_of(kind)
        made = carried.runtime()
        runtime = None if made is None else (made[0], self.blobs.add_bytes(made[1]))
        variant = Variant(
            kind,
            device.arch,
            carried.abi,
            carried.features(),
            runtime,
            tuple(self.memory),
            tuple(self.launches),
        )
        name = getattr(self.function.function, "__name__", self.function.name)
        return Contents(name, "", tuple(inputs), tuple(outputs), (variant,), tuple(parameters))

    # ------------------------------------------------------------ memory

    def _add(self, one: Memory) -> int:
        self.memory.append(one)
        return len(self.memory) - 1

    def _place(self, recording: Recording, role: Role) -> int:
        """The number of the memory that a role stands for."""
        shared = recording.planned.places.get(role)
        if shared is not None and role not in self.places:
            return self._shared(recording, shared)
        if role not in self.places:
            kind, what = role
            if kind == "made":
                self.places[role] = self._add(Memory("temporary", recording.seen.sizes[role]))
            else:
                storage = recording.seen.data_storages[what] if kind == "data" else what
                self.places[role] = self._keep(storage)
        return self.places[role]

    def _keep(self, storage: Storage) -> int:
        """Memory of a tensor outside: its contents are part of the file."""
        kind = "state" if storage in self.written else "weight"
        source = self.blobs.source(storage)
        name = self.called.get(storage) or self.owners.get(storage) or ""
        if not name and isinstance(source, Beside):
            name = source.tensor
        if not name and storage.buffer is not None and storage.buffer.name == "random state":
            name = "random state"
        base = name or kind
        number = 0
        while not name or name in self.used:
            name = f"{base}{number}" if base == kind else f"{base}.{number}"
            number += 1
        self.used.add(name)
        spec = Spec(name, storage.dtype.name, tuple(storage.shape))
        return self._add(Memory(kind, spec.size_bytes, 0, spec, source))

    def _shared(self, recording: Recording, number: int) -> int:
        """Memory that values share which no call leaves behind, as the recording has planned it."""
        key = "shared", number
        if key not in self.places:
            self.places[key] = self._add(Memory("temporary", recording.planned.sizes[number]))
        return self.places[key]

    # ------------------------------------------------------------ launches

    def _launch(self, plan: Plan, places: Mapping[int, int]) -> None:
        for launch in plan.launches:
            used = [places[v] for v in launch.arguments]
            self.launches.append(
                Launch(
                    launch.name,
                    launch.entry,
                    self.blobs.add_bytes(launch.image),
                    tuple(used),
                    "".join("w" if value in launch.writes else "r" for value in launch.arguments),
                    launch.grid,
                    launch.block,
                    launch.scratch_bytes,
                    launch.dynamic_shared_bytes,
                    tuple(launch.tensor_maps),
                    launch.numbers,
                )
            )

    def _result(
        self, recording: Recording, leaf: Any, inputs: Sequence[Spec]
    ) -> tuple[Role | None, Node, dict[Storage, Role]]:
        """The role whose memory a result is all of, or None; its node, and the roles of the memory in that."""
        seen = recording.seen
        if isinstance(leaf, New):
            template = seen.templates[leaf.number]
            if template.device != recording.device:
                raise self.refuse(
                    f"a result is on {template.device}, and it runs on {recording.device}. Leave it there"
                )
            roles = {storage: role for role, storage in seen.placeholders.items()}
            whole = template.whole if template.whole in recording.fresh else None
            return whole, template.node, roles
        if isinstance(leaf, Argument):
            spec = inputs[leaf.number]
            storage = Storage(recording.device, dtypes.named(spec.dtype), spec.shape)
            return None, storage.node(), {storage: ("argument", leaf.number)}
        tensor = leaf.ref()
        if tensor is None or tensor.device != recording.device:
            raise self.refuse("it returns a tensor that is gone, or on another device")
        return None, tensor.node, {}

    def _copy(self, recording: Recording, node: Node, roles: Mapping[Storage, Role], at: int) -> None:
        """A kernel that writes a view, or what is elsewhere already, into memory of its own."""
        root = Node(Op.CONTIGUOUS, node.dtype, (node,))
        structure = structure_of([root])
        with toolchain():
            plan = plan_for(structure, [root], recording.device)
        places = {
            v: self._place(recording, roles.get(storage) or ("memory", storage))
            for v, storage in enumerate(structure.storages)
        }
        places[plan.results[0]] = at
        memories = [self._add(Memory("temporary", size)) for size in plan.memory_sizes]
        places |= {v: memories[one.memory] for v, one in enumerate(plan.values) if one.kind == "temporary"}
        self._launch(plan, places)


# -- what goes in, and what comes out ------------------------------------------------------------------------------


def _inputs_of(function: Jit[Any, Any], recording: Recording) -> tuple[list[Spec], list[Parameter]] | None:
    """The tensor arguments of the recorded call, by the names of the parameters, and behind them the numbers of bound
    variables; None when two were one tensor.
    """
    for key, versions in function._seen.items():
        if any(version.recording is recording for version in versions.known):
            args, kwargs, *more = key
            if any(isinstance(one, tuple) for one in more):
                return None
            found: list[Spec] = []
            words = _parameters(function.function)
            for number, part in enumerate(args[1:]):
                found += _tensors(part, words(number))
            for name, part in kwargs[1:]:
                found += _tensors(part, name[1])
            variables: dict[int, tuple[str, int, int]] = {}
            _variables(args, variables)
            _variables(kwargs, variables)
            numbers = []
            for number in sorted(variables):
                name, low, high = variables[number]
                if high > MOST:
                    raise UsageError(
                        f"[save_program] {function.name}: the variable {name} may be {high}; in a file it is up to "
                        f"{MOST}. Give it a narrower range."
                    )
                while any(name == spec.name for spec in found):
                    name += "_"
                numbers.append(Parameter(name, low, high, len(found)))
                found.append(Spec(name, dtypes.int32.name, ()))
            return found, numbers
    raise UsageError(f"[save_program] {function.name}: it has no recording any more. Call it again.")


def _variables(part: Any, found: dict[int, tuple[str, int, int]]) -> None:
    """The variables in the key of an argument, by their numbers: `Bound.key` has them as (times, key, number)."""
    if not isinstance(part, tuple):
        return
    if part[:1] == (Bound,):
        _leaves_of(part[1], found)
        return
    for each in part:
        _variables(each, found)


def _leaves_of(words: Any, found: dict[int, tuple[str, int, int]]) -> None:
    for _, *word in words[1:]:
        if len(word) == 2:
            found[word[1]] = word[0]
        else:
            _leaves_of(word[2], found)


def _parameters(function: Callable[..., Any]) -> Callable[[int], str]:
    """What the parameter of each positional argument is called."""
    try:
        known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        known = []

    def name_of(number: int) -> str:
        for place, parameter in enumerate(known):
            if parameter.kind is parameter.VAR_POSITIONAL:
                return f"{parameter.name}.{number - place}"
            if place == number:
                return parameter.name
        return f"input{number}"

    return name_of


def _tensors(part: Any, name: str) -> Iterator[Spec]:
    """The tensors in the key of an argument (function.py, `_key`), as `shape` and `dtype` stand there."""
    kind, *rest = part
    if kind is Tensor:
        yield Spec(name, rest[1].name, tuple(rest[0]))
    elif issubclass(kind, (list, tuple)):
        for number, item in enumerate(rest):
            yield from _tensors(item, f"{name}.{number}")
    elif issubclass(kind, dict):
        for word, item in rest:
            yield from _tensors(item, f"{name}.{word[1]}")


def _leaves(tree: Any, name: str) -> Iterator[tuple[str, Any]]:
    """The results of a call by their places: "0", "1.loss"; "" for one alone."""
    if isinstance(tree, (New, Argument, Same)):
        yield name, tree
    elif isinstance(tree, tuple) and hasattr(tree, "_fields"):
        for word, leaf in zip(tree._fields, tree):
            yield from _leaves(leaf, f"{name}.{word}" if name else word)
    elif isinstance(tree, (list, tuple)):
        for number, leaf in enumerate(tree):
            yield from _leaves(leaf, f"{name}.{number}" if name else str(number))
    elif isinstance(tree, dict):
        for word, leaf in tree.items():
            yield from _leaves(leaf, f"{name}.{word}" if name else str(word))
    elif tree is not None:
        yield name, tree
