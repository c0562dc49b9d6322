"""The tensor layer: lazy tensors, gradients, the scheduler, and what runs them on a device.

In       Python numbers and arrays
Out      tensors: graphs of ir nodes, computed when their values are needed
Changes  sys.modules: FORMER; devices open when a tensor first needs one
Next     tensor.py (the class), run/realize.py (the way to the device), grad/gradient.py, nn/
"""

from hcq import lazy_module

# paths of version 0.1, which programs, its documents and pickled tensors name, and where each is now
FORMER = {
    "collectives": "hcq.frontend.devices.collectives",
    "collectives.links": "hcq.frontend.devices.collectives.links",
    "distributed": "hcq.frontend.more.distributed",
    "errors": "hcq.frontend.core.errors",
    "gradient": "hcq.frontend.grad.gradient",
    "llm": "hcq.frontend.more.llm",
    "llm.batch": "hcq.frontend.more.llm.batch",
    "llm.files": "hcq.frontend.more.llm.files",
    "llm.sampling": "hcq.frontend.more.llm.sampling",
    "llm.session": "hcq.frontend.more.llm.session",
    "names": "hcq.frontend.core.names",
    "onnx": "hcq.frontend.more.onnx",
    "pickled": "hcq.frontend.io.pickled",
    "state": "hcq.frontend.io",
    "state.arrays": "hcq.frontend.io.arrays",
    "state.files": "hcq.frontend.io.files",
    "state.gguf": "hcq.frontend.io.gguf",
    "state.safetensors": "hcq.frontend.io.safetensors",
    "state.torch_file": "hcq.frontend.io.torch_file",
}
for _name, _place in FORMER.items():
    lazy_module.stands_for(__name__, _name, _place)
