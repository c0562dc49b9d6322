"""Sizes of models that people know, for random weights: how fast they are can be seen without a file.

In       nothing
Out      `SIZES`: name -> Configuration
Next     model.py (Model.random), command.py (--random)
"""

from hcq.frontend.more.llm.configuration import Configuration

SIZES = {
    "llama-tiny": Configuration("llama", 512, 64, 2, 4, 2, 16, 128, 512, rotary_size=16),
    "gpt2": Configuration(
        "gpt2", 50257, 768, 12, 12, 12, 64, 3072, 1024, 1e-5, False, "gelu_tanh", True, rotary_base=0.0
    ),
    "llama-15m": Configuration("llama", 32000, 288, 6, 6, 6, 48, 768, 1024, rotary_size=48),
    "llama-160m": Configuration("llama", 32000, 768, 12, 12, 12, 64, 3072, 2048, rotary_size=64),
    "llama-1b": Configuration(
        "llama", 128256, 2048, 16, 32, 8, 64, 8192, 8192, rotary_base=500000.0, rotary_size=64
    ),
}
