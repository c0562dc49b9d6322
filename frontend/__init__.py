"""The tensor layer: lazy tensors, gradients, the scheduler, and what runs them on a device.

In       Python numbers and arrays
Out      tensors: graphs of ir nodes, computed when their values are needed
Changes  sys.modules: FORMER; devices open when a tensor first needs one
Next     tensor.py (the class), run/realize.py (the way to the device), grad/gradient.py, nn/
"""

import sys

from hcq import lazy_module
from hcq.frontend import upper as upper  # so that rooms below have what they ask of rooms above

# paths of versions 0.1 and 0.2, which programs, its documents and pickled tensors name, and where each is now
FORMER = {
    "collectives": "hcq.frontend.devices.collectives",
    "collectives.links": "hcq.frontend.devices.collectives.links",
    "distributed": "hcq.frontend.more.distributed",
    "errors": "hcq.frontend.core.errors",
    "functions_bits": "hcq.frontend.functions.bits",
    "functions_fft": "hcq.frontend.more.fourier.fft",
    "functions_histogram": "hcq.frontend.functions.histogram",
    "functions_linalg": "hcq.frontend.more.linalg.functions",
    "functions_masked": "hcq.frontend.functions.masked",
    "functions_modes": "hcq.frontend.functions.modes",
    "functions_older": "hcq.frontend.functions.older",
    "functions_places": "hcq.frontend.functions.places",
    "functions_random": "hcq.frontend.functions.random",
    "functions_segments": "hcq.frontend.functions.segments",
    "functions_special": "hcq.frontend.functions.special",
    "functions_types": "hcq.frontend.functions.types",
    "gradient": "hcq.frontend.grad.gradient",
    "llm": "hcq.frontend.more.llm",
    "llm.batch": "hcq.frontend.more.llm.batch",
    "llm.files": "hcq.frontend.more.llm.files",
    "llm.sampling": "hcq.frontend.more.llm.sampling",
    "llm.session": "hcq.frontend.more.llm.session",
    "names": "hcq.frontend.core.names",
    "nn.functional_indices": "hcq.frontend.nn.functional_pools",
    "nn.functional_lp": "hcq.frontend.nn.functional_pools",
    "nn.optim": "hcq.frontend.optim",
    "nn.optim.line_search": "hcq.frontend.optim.lbfgs",
    **{
        f"nn.optim.{file}": f"hcq.frontend.optim.{file}"
        for file in (
            "adam counts groups lbfgs lr_scheduler optimizer saved scaled schedule_chains "
            "schedule_curves schedule_cycles schedules sgd swa_utils"
        ).split()
    },
    "onnx": "hcq.frontend.more.onnx",
    "pickled": "hcq.frontend.io.pickled",
    "state": "hcq.frontend.io",
    "state.arrays": "hcq.frontend.io.arrays",
    "state.files": "hcq.frontend.io.files",
    "state.gguf": "hcq.frontend.io.gguf",
    "state.safetensors": "hcq.frontend.io.safetensors",
    "state.torch_file": "hcq.frontend.io.torch_file",
    "utils": "hcq.torch.utils",
    "utils.checkpoint": "hcq.frontend.autograd.checkpoint",
    "utils.data": "hcq.frontend.data",
}
for _name, _place in FORMER.items():
    if not _name.startswith("nn."):  # those in nn are known once nn is
        lazy_module.stands_for(__name__, _name, _place)
        if "." not in _name:
            globals()[_name] = sys.modules[f"{__name__}.{_name}"]
