"""Functions that are saved here and run elsewhere; test_saving.py runs both halves, each in a process of its own.

In       argv: "save" or "run", a folder, devices
Out      save: a program of each case with code for every device, and beside it what goes in and what jit gave: JSON
         run: one line of JSON, case -> "" where a loaded program gives the same bytes as jit, else what differs

The second half runs where neither llvmlite nor NumPy can be imported; an emulated GPU, which stands for hardware, is
itself allowed NumPy.
"""

from __future__ import annotations

import builtins
import json
import sys
from pathlib import Path
from typing import Any

CALLS = 3


def cases(device: str) -> dict[str, tuple[Any, list[Any]]]:
    """Name -> a function, not jitted yet, and its inputs: the same on every device."""
    from hcq import Tensor, dtypes, nn

    Tensor.manual_seed(7)
    x = Tensor([[0.5, -1.0, 2.0, 3.5], [1.5, 0.25, -2.0, 0.0]], device=device)
    w = Tensor([[1.0, 2.0, 3.0, 4.0]] * 4, device=device).realize()
    total = Tensor([0, 0], dtype=dtypes.int32, device=device).realize()
    weight = Tensor([[0.5], [0.25], [-0.5], [1.0]], device=device).realize().requires_grad_()
    bias = Tensor([0.125], device=device).realize().requires_grad_()
    optimizer = nn.optim.Adam([weight, bias], lr=0.05)

    def several(a: Any) -> Any:
        sums = a.sum(1).realize()
        return {"rows": (a @ w).relu(), "sums": sums, "view": (a + 1).realize().T, "itself": a}

    def counting(a: Any) -> Any:
        total.assign(total + (a > 0).sum(1).cast(dtypes.int32)).realize()
        return total, a.softmax(1)

    def training(a: Any) -> Any:
        optimizer.zero_grad()
        loss = (a @ weight + bias).square().mean()
        loss.backward()
        optimizer.step()
        return loss.realize()

    def drawing(a: Any) -> Any:
        return a + Tensor.rand(2, 4, device=device)

    def narrow(a: Any, b: Any) -> Any:
        return (a.cast(dtypes.bfloat16) @ b.cast(dtypes.bfloat16).T).cast(dtypes.float16)[[1, 0]]

    return {
        "several": (several, [x]),
        "counting": (counting, [x]),
        "training": (training, [x]),
        "drawing": (drawing, [x]),
        "narrow": (narrow, [x, x * 2]),
    }


def contents(result: Any) -> list[str]:
    """The bytes of all tensors of a result, as text."""
    from hcq.frontend.run.realize import realize, storage_of

    if isinstance(result, dict):
        return [text for leaf in result.values() for text in contents(leaf)]
    if isinstance(result, tuple):
        return [text for leaf in result for text in contents(leaf)]
    tensor = result.clone()
    realize((tensor,))
    storage = storage_of(tensor)
    return [storage.buffer.read(0, storage.size_bytes).hex()]


def save(folder: Path, devices: list[str]) -> None:
    """Save every case, and what jit gives in the calls after that."""
    from hcq import jit, save_program

    made: dict[str, Any] = {device: cases(device) for device in devices}
    for name in made[devices[0]]:
        functions, wanted = [], {}
        for device in devices:
            function, inputs = made[device][name]
            functions.append((jit(function), [x.realize() for x in inputs]))
        for function, inputs in functions:
            for _ in range(3):
                function(*inputs)
        save_program(folder / f"{name}.hcqprog", [function for function, _ in functions])
        for device, (function, inputs) in zip(devices, functions):
            wanted[device] = [contents(function(*inputs)) for _ in range(CALLS)]
        given = [contents(x)[0] for x in functions[0][1]]
        (folder / f"{name}.json").write_text(json.dumps({"inputs": given, "wanted": wanted}))


def forbid(is_emulated: bool) -> None:
    """From here on llvmlite and NumPy cannot be imported; but for an emulated GPU, which stands for hardware, NumPy."""
    absent: dict[str, Any] = {"llvmlite": None, "torch": None}
    sys.modules.update(absent)
    if not is_emulated:
        absent["numpy"] = None
        sys.modules.update(absent)
        return
    allowed = builtins.__import__

    def guarded(name: str, *rest: Any) -> Any:
        if name.partition(".")[0] == "numpy":
            frame: Any = sys._getframe(1)
            while frame is not None and not frame.f_globals.get("__name__", "").startswith("hcq."):
                frame = frame.f_back
            if frame is None or not frame.f_globals["__name__"].startswith("hcq.emu"):
                raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
        return allowed(name, *rest)

    builtins.__import__ = guarded


def run(folder: Path, devices: list[str]) -> dict[str, str]:
    """Load every program on every device, call it, and compare."""
    forbid(devices != ["CPU"])
    import hcq

    found = {}
    for path in sorted(folder.glob("*.json")):
        case = json.loads(path.read_text())
        for device in devices:
            program = hcq.load_program(path.with_suffix(".hcqprog"), device)
            inputs = [bytes.fromhex(text) for text in case["inputs"]]
            given = [[out.read().hex() for out in program(*inputs)] for _ in range(CALLS)]
            wanted = case["wanted"][device]
            found[f"{path.stem} on {device}"] = "" if given == wanted else f"{given} is not {wanted}"
    above = [name for name in sys.modules if name.startswith(("hcq.frontend", "hcq.compiler", "hcq.ir"))]
    found["imports"] = " ".join(above)
    return found


if __name__ == "__main__":
    verb, place, *names = sys.argv[1:]
    if verb == "save":
        save(Path(place), names)
    else:
        print(json.dumps(run(Path(place), names)))
