"""Other names: what PyTorch calls by a second name.

In       nothing
Out      OTHER_NAMES: the second name of a method -> its first
Next     synonyms.py (x.subtract), in_place.py (x.subtract_), functions.py (hcq.subtract)
"""

OTHER_NAMES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "subtract": "sub", "divide": "div", "greater": "gt",
    "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "swapdims": "swapaxes", "fix": "trunc", "narrow_copy": "narrow", "unsafe_split": "split", "unsafe_chunk": "chunk",
    "ndimension": "dim", "nelement": "numel",
}  # fmt: skip
