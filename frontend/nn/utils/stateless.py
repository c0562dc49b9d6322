"""stateless: functional_call under the name of the file that PyTorch had it in.

In       a module, tensors for its parameters, arguments
Out      `functional_call`
Changes  nothing
Next     hcq/frontend/more/transforms/modules.py (the function)
"""

from hcq.frontend.more.transforms.modules import functional_call as functional_call
