"""Custom: a program of one's own as an operation on tensors.

In       a loaded program, an image or a source; the outputs' shapes, the inputs, how it is launched
Out      tensors that are computed by it: lazy, recorded by jit, saved, split over devices, maybe with a gradient
Changes  loads the program once, to check what is passed against what it says of itself
Next     languages.py (a source becomes an image), parts.py (grids that follow shapes, on several devices),
         gradients.py (backward), ir/own_program.py (the node), frontend/run/own_programs.py (its launch)
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from math import prod
from typing import Any

from hcq.checks import is_whole, shown
from hcq.errors import UsageError
from hcq.frontend.core import device as devices
from hcq.frontend.core.base import Core
from hcq.frontend.core.sizes import counts_of
from hcq.frontend.more.custom import gradients, languages
from hcq.frontend.more.custom.parts import Launch, Sizes, word_of
from hcq.frontend.run import own_programs
from hcq.frontend.run import plan as plans
from hcq.frontend.tensor import Tensor
from hcq.ir.dtype import DType, dtypes
from hcq.ir.node import Node
from hcq.ir.op import Op
from hcq.ir.own_program import OwnOutput, OwnProgram
from hcq.program import Program

MAX_CHECKED = 256  # launches that were found right, with their programs, which stay loaded

_checked: OrderedDict[tuple[str, OwnProgram], Any] = OrderedDict()


def custom(
    program: Any,
    outputs: Any,
    inputs: Sequence[Any],
    grid: Launch = 1,
    block: Launch | None = None,
    backward: Any = None,
    *,
    entry: str | None = None,
    shared_bytes: int | None = None,
    shard: int | None = None,
    name: str | None = None,
    device: str | None = None,
) -> Any:
    """Tensors that a program of one's own computes.

    program       a loaded hcq.Program; the bytes of an image that `device.load` takes; source text: CUDA C, PTX or
                  LLVM IR on NV, HIP C, assembly or LLVM IR on AMD, MSL on METAL, C or LLVM IR on CPU; or what Triton
                  compiled
    outputs       (shape, dtype) for one output, which is returned; a list of such for several, which come as a tuple. A
                  tensor stands for its shape and dtype
    inputs        what the program takes: tensors, Python numbers, None for a null pointer; a function of the tensors'
                  shapes for a number that follows from them. The outputs are its first parameters, in order; where they
                  are not, `...` stands in their place: one for each, or one for all
    grid, block   workgroups, and threads of each: a number, up to three, or a function of the tensors' shapes
    backward      backward(*gradients, *inputs), with a gradient of each output of floats, gives that of each input: a
                  tensor, or None for those that have none
    entry         the kernel's symbol, where the image has several
    shared_bytes  shared memory that a launch has beyond what the image declares
    shard         on several devices: the axis along which inputs and outputs may be split, so that each device launches
                  the program on its part. Grid and block are functions then, of the shapes of the part
    name          what traces and messages call it; the entry by default
    device        where it runs, if no input is a tensor
    Raises        UsageError where what is passed is not what the program takes, or the source does not compile

    The program must write all of its outputs, and nothing else.

    >>> text = '''
    ... define void @twice(ptr %out, ptr %x, ptr %group) {
    ...   %a = load float, ptr %x
    ...   %b = fadd float %a, %a
    ...   store float %b, ptr %out
    ...   ret void
    ... }'''
    >>> hcq.custom(text, ((1,), "float32"), [Tensor([1.5], device="CPU")]).tolist()
    [3.0]
    """
    given = list(inputs) if isinstance(inputs, (list, tuple)) else None
    if given is None:
        raise UsageError(f"[custom] inputs={shown(inputs)}: give a list of tensors and numbers.")
    tensors = [one for one in given if isinstance(one, Core)]
    where = _place(tensors, device)
    is_one, wanted = _outputs(outputs)
    opened = devices.get(devices.members(where)[0] if devices.is_group(where) else where)
    code = languages.code_of(program, opened, entry)
    sizes = Sizes(grid, block if block is not None else code.block or 1, given, shard)
    grid_sizes, block_sizes, words = sizes.at([tensor.shape for tensor in tensors])
    own = OwnProgram(
        name or code.name,
        code.entry,
        code.image,
        wanted,
        _parameters(given, len(wanted), words),
        grid_sizes,
        block_sizes,
        code.shared_bytes if shared_bytes is None else _bytes(shared_bytes),
        code.scratch_bytes,
        sizes if devices.is_group(where) else None,
    )
    own = _check(own, opened, tensors, code.spare_pointers)
    nodes = tuple([tensor.detach().node for tensor in tensors])
    launch = Node(Op.ROUTINE, wanted[0][1], nodes, own)
    made = [Tensor._of(launch, where)]
    # the launch itself is no tensor: memory of one output would stand for it in the others
    if len(wanted) > 1:
        nodes = tuple(
            [
                Node(Op.ROUTINE, dtype, (launch,), OwnOutput(number, shape, own.name))
                for number, (shape, dtype) in enumerate(wanted)
            ]
        )
        made = [Tensor._of(node, where) for node in nodes]
    made = gradients.with_backward(own.name, made, given, backward, where)
    return made[0] if is_one else tuple(made)


def _place(tensors: Sequence[Any], device: str | None) -> str:
    """Where all of the tensors are."""
    if device is None and not tensors:
        raise UsageError("[custom] no input is a tensor: say device= that it runs on.")
    where = str(tensors[0].device if tensors else devices.canonical(device))
    for number, tensor in enumerate(tensors):
        if tensor.device != where or (device is not None and devices.canonical(device) != where):
            raise UsageError(
                f"[custom] tensor {number} is on {tensor.device}, and the program runs on "
                f"{where if device is None else device}: move it with to()."
            )
        if tensor.is_complex():
            raise UsageError(f"[custom] tensor {number} is complex: pass its real and imag parts.")
        if counts_of(tensor.node):
            raise UsageError(
                f"[custom] tensor {number} has a size that is known only when the work runs: a program is launched "
                "over a grid that is known before."
            )
        if not prod(tensor.shape):
            raise UsageError(
                f"[custom] tensor {number} of shape {tensor.shape} has no elements: nothing is launched."
            )
    return where


def _outputs(outputs: Any) -> tuple[bool, tuple[tuple[tuple[int, ...], DType], ...]]:
    """Whether there is one, and shape and format of each."""
    is_one = isinstance(outputs, Core) or (
        isinstance(outputs, (list, tuple)) and len(outputs) == 2 and isinstance(outputs[1], (str, DType))
    )
    listed = [outputs] if is_one else outputs
    if not isinstance(listed, (list, tuple)) or not listed:
        raise UsageError(f"[custom] outputs={shown(outputs)}: give (shape, dtype), or a list of such.")
    return is_one, tuple([_output(number, one) for number, one in enumerate(listed)])


def _output(number: int, one: Any) -> tuple[tuple[int, ...], DType]:
    if isinstance(one, Core):
        one = one.shape, one.dtype
    if not isinstance(one, (list, tuple)) or len(one) != 2:
        raise UsageError(f"[custom] output {number} is {shown(one)}: give (shape, dtype).")
    shape, dtype = one
    sides = [shape] if is_whole(shape) else shape
    if not isinstance(sides, (list, tuple)) or not all(is_whole(side) and side > 0 for side in sides):
        raise UsageError(f"[custom] output {number} has the shape {shown(shape)}: give sizes from 1.")
    try:
        found = dtype if isinstance(dtype, DType) else dtypes.named(dtype)
    except (KeyError, TypeError) as problem:
        raise UsageError(
            f"[custom] output {number} has the dtype {shown(dtype)}: give one of hcq.dtypes."
        ) from problem
    if not found.itemsize or found.lanes != 1 or found is dtypes.index or found.name.startswith("complex"):
        raise UsageError(f"[custom] output {number} has the dtype {found.name}, which no memory has.")
    return tuple([side.__index__() for side in sides]), found


def _parameters(given: Sequence[Any], count: int, words: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """What each parameter of the program is. words: of the inputs that are no tensors, in order."""
    rooms = sum(one is ... for one in given)
    if rooms not in (0, 1, count):
        raise UsageError(
            f"[custom] {rooms} of the inputs are ..., and there are {count} outputs: give one for each, or one for all."
        )
    outputs = [("output", number) for number in range(count)]
    found: list[tuple[str, Any]] = [] if rooms else [*outputs]
    tensors = 0
    others = iter(words)
    for one in given:
        if one is ...:
            taken = outputs if rooms == 1 else outputs[:1]
            found += taken
            outputs = outputs[len(taken) :]
        elif isinstance(one, Core):
            found.append(("input", tensors))
            tensors += 1
        else:
            found.append(("number", next(others)))
    return tuple(found)


def _bytes(value: Any) -> int:
    if not is_whole(value) or value < 0:
        raise UsageError(f"[custom] shared_bytes={shown(value)}: give a number of bytes.")
    return int(value)


def _check(own: OwnProgram, device: Any, tensors: Sequence[Any], spare_pointers: int) -> OwnProgram:
    """The launch, found right by the device: parameters, grid and block are what the program says of itself.

    spare_pointers  how many null pointers a compiler may have put behind the parameters that its user knows
    """
    key = device.name, own
    known = _checked.get(key)
    if known is not None and not device.dead and known[1].device is device:
        _checked.move_to_end(key)
        return known[0]  # type: ignore[no-any-return]
    nulls = (("number", word_of(None)),) * spare_pointers
    problem: UsageError | None = None
    for count in range(spare_pointers, -1, -1):
        trial = own._replace(parameters=own.parameters + nulls[:count])
        try:
            program = _tried(trial, device, len(tensors))
        except UsageError as error:
            problem = error
            continue
        while len(_checked) >= MAX_CHECKED:
            _checked.popitem(last=False)
        _checked[key] = trial, program
        return trial
    text = str(problem).removeprefix(f"dispatch {own.name}: ").removeprefix(f"load({own.name!r}): ")
    raise UsageError(f"[custom] {own.name}: {text}") from problem


class _Size:
    """Stands for a value of a schedule: nothing is asked of it here but how large it is."""

    size_bytes = 0


def _tried(own: OwnProgram, device: Any, tensors: int) -> Program:
    """Load it, and encode a launch that is not submitted."""
    count = len(own.outputs)
    numbers = range(count + tensors)
    values = [_Size] * len(numbers)
    launch = plans.Launch(**own_programs.launch_fields(own, numbers[:count], numbers[count:], values))
    program: Program = plans.program_of(device, launch)
    buffer = device.alloc(64, "custom (check)")
    args = program.with_numbers([buffer] * len(launch.arguments))
    device.encode_dispatch(program, args, launch.grid, launch.block, 0)
    return program


def _forget(name: str) -> None:
    """A device is gone, and with it its programs."""
    for key in [key for key in _checked if key[0] == name]:
        _checked.pop(key, None)


devices.on_close.append(_forget)
