"""Benchmark cases of a language model: GPT-2 small reading 256 tokens, and writing one more after them.

In       see case.py; the weights are random, which costs the same time as trained ones
Out      cases; `LANGUAGE_CASES` lists them
Next     inference.py (a network of pictures), training.py (the list of all)
Source   Radford et al. 2019, "Language Models are Unsupervised Multitask Learners" (sizes, order of the layers)

`_gpt2` is the network for every library, by PyTorch's names of functions; NumPy and JAX are given functions of these
names. Only attention differs, for each library keeps keys and values in its own way: hcq and JAX in arrays of a fixed
length, so that one recorded step serves every place, behind a mask; PyTorch looks at the part that is filled, and so
does hcq where the place is a variable.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from hcq.tools.bench.cases.case import Arrays, Case, Run, _random, waited
from hcq.tools.bench.cases.layers import softmax

VOCABULARY, CONTEXT, WIDTH, DEPTH, HEADS = 50257, 1024, 768, 12, 12
BEFORE = 256  # tokens
KEPT = 512  # places of the fixed arrays of keys and values

# a layer's number, its queries, keys, values: what the queries find
Attend = Callable[[int, Any, Any, Any], Any]


def _gpt2(F: Any, w: Arrays, tokens: Any, places: Any, attend: Attend) -> Any:
    """Logits (1, VOCABULARY) of what follows the last of the tokens (count,) at these places (count,)."""
    count = tokens.shape[0]

    def linear(name: str, x: Any) -> Any:
        return F.linear(x, w[name + ".weight"], w[name + ".bias"])

    def norm(name: str, x: Any) -> Any:
        return F.layer_norm(x, (WIDTH,), w[name + ".weight"], w[name + ".bias"])

    x = F.embedding(tokens, w["words"]) + F.embedding(places, w["places"])
    for layer in range(DEPTH):
        qkv = linear(f"{layer}.qkv", norm(f"{layer}.before", x)).reshape(count, 3, HEADS, WIDTH // HEADS)
        found = attend(layer, *(qkv[:, side].swapaxes(0, 1) for side in range(3)))
        x = x + linear(f"{layer}.out", found.swapaxes(0, 1).reshape(count, WIDTH))
        y = F.gelu(linear(f"{layer}.wider", norm(f"{layer}.after", x)), approximate="tanh")
        x = x + linear(f"{layer}.back", y)
    return F.linear(norm("norm", x[-1:]), w["words"])


def _weights() -> Arrays:
    """124 million numbers, by the names that `_gpt2` uses."""
    import numpy

    draw = numpy.random.default_rng(0)

    def normal(*shape: int) -> Any:
        found = draw.standard_normal(shape, "float32")
        found *= numpy.float32(0.02)
        return found

    w = {"words": normal(VOCABULARY, WIDTH), "places": normal(CONTEXT, WIDTH)}
    for layer in range(DEPTH):
        for name, out, into in (("qkv", 3, 1), ("out", 1, 1), ("wider", 4, 1), ("back", 1, 4)):
            w[f"{layer}.{name}.weight"] = normal(out * WIDTH, into * WIDTH)
            w[f"{layer}.{name}.bias"] = normal(out * WIDTH)
    for norm in ("norm", *(f"{layer}.{name}" for layer in range(DEPTH) for name in ("before", "after"))):
        w[norm + ".weight"], w[norm + ".bias"] = 1 + normal(WIDTH), normal(WIDTH)
    return w


def _functions(numpy: Any, wide: str) -> Any:
    """PyTorch's functions in NumPy, or in JAX's NumPy; sums of a norm are in the `wide` dtype."""

    def linear(x: Any, weight: Any, bias: Any = None) -> Any:
        y = x @ weight.T
        return y if bias is None else y + bias

    def layer_norm(x: Any, shape: Any, weight: Any, bias: Any) -> Any:
        y = x.astype(wide)
        y = y - y.mean(-1, keepdims=True)
        y = y / numpy.sqrt((y * y).mean(-1, keepdims=True) + 1e-5)
        return y.astype(x.dtype) * weight + bias

    def gelu(x: Any, approximate: str) -> Any:
        return 0.5 * x * (1 + numpy.tanh((2 / numpy.pi) ** 0.5 * (x + 0.044715 * x * x * x)))

    return SimpleNamespace(
        linear=linear, layer_norm=layer_norm, gelu=gelu, embedding=lambda index, table: table[index]
    )


def _jax_attention(q: Any, k: Any, v: Any, mask: Any) -> Any:
    import jax

    scores = (q @ k.swapaxes(1, 2)).astype("float32") * q.shape[-1] ** -0.5
    p = jax.nn.softmax(jax.numpy.where(mask, scores, -jax.numpy.inf), -1)
    return p.astype(v.dtype) @ v


def _hcq_functions() -> Any:
    from hcq import Tensor

    return SimpleNamespace(
        linear=Tensor.linear, layer_norm=Tensor.layer_norm, gelu=Tensor.gelu, embedding=Tensor.embedding
    )


class _Gpt2(Case):
    unit = "tokens/s"
    tolerance = 1e-3
    narrow: ClassVar[bool] = False  # whether everything is in bfloat16

    def tokens(self) -> Arrays:
        """What is read in one run, and at which places."""
        raise NotImplementedError

    def inputs(self) -> Arrays:
        import numpy

        kept = (DEPTH, HEADS, BEFORE, WIDTH // HEADS)
        found = {"w": _weights(), "keys": _random(*kept, seed=1), "values": _random(*kept, seed=2)}
        if self.narrow:  # numbers that bfloat16 holds exactly
            for array in (*found["w"].values(), found["keys"], found["values"]):
                array.view("uint32")[...] &= numpy.uint32(0xFFFF0000)
        return found | self.tokens()

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        w = {name: array.astype("float64") for name, array in inputs["w"].items()}
        tokens, places = inputs["tokens"], inputs["places"]
        kept = [inputs[side].astype("float64")[:, :, : places[0]] for side in ("keys", "values")]
        mask = numpy.arange(places[-1] + 1) <= places[:, None]

        def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
            k, v = (numpy.concatenate([old[layer], new], 1) for old, new in zip(kept, (k, v), strict=True))
            scores = numpy.where(mask, q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5, -numpy.inf)
            return softmax(scores) @ v

        return _gpt2(_functions(numpy, "float64"), w, tokens, places, attend)

    def kept(self, array: Any) -> Any:
        """Keys or values of the tokens before in arrays of the fixed length, zero behind them."""
        import numpy

        return numpy.pad(array, ((0, 0), (0, 0), (0, KEPT - BEFORE), (0, 0)))

    def on_hcq(self, inputs: Arrays, keep: Callable[[Any], Any]) -> tuple[Any, ...]:
        """What a step of ours reads: functions, weights, keys and values by layer, tokens and their places."""
        from hcq import Tensor, dtypes

        def put(array: Any) -> Any:
            return Tensor(array).cast(dtypes.bfloat16 if self.narrow else dtypes.float32).realize()

        w = {name: put(array) for name, array in inputs["w"].items()}
        keys, values = ([put(array) for array in keep(inputs[side])] for side in ("keys", "values"))
        tokens, places = (Tensor(inputs[name]).realize() for name in ("tokens", "places"))
        return _hcq_functions(), w, keys, values, tokens, places

    def torch(self, inputs: Arrays) -> Run:
        import torch
        from torch.nn import functional as F

        dtype = torch.bfloat16 if self.narrow else torch.float32
        w = {name: torch.from_numpy(array).to(dtype) for name, array in inputs["w"].items()}
        tokens, places = (torch.from_numpy(inputs[name]) for name in ("tokens", "places"))
        keys, values = (torch.from_numpy(self.kept(inputs[side])).to(dtype) for side in ("keys", "values"))
        start, end = int(places[0]), int(places[-1]) + 1

        def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
            keys[layer, :, start:end], values[layer, :, start:end] = k, v
            k, v = keys[layer : layer + 1, :, :end], values[layer : layer + 1, :, :end]
            return F.scaled_dot_product_attention(q[None], k, v, is_causal=start == 0)[0]

        def run() -> Any:
            with torch.inference_mode():
                return _gpt2(F, w, tokens, places, attend)

        return run


class _Decode(_Gpt2):
    amount = 1.0

    def tokens(self) -> Arrays:
        import numpy

        return {"tokens": numpy.array([VOCABULARY // 2], "int32"), "places": numpy.array([BEFORE], "int32")}

    def hcq(self, inputs: Arrays) -> Run:
        """The place is a tensor: the recorded step would serve the next token as well."""
        from hcq import Tensor, jit, no_grad

        F, w, keys, values, tokens, places = self.on_hcq(inputs, self.kept)
        every = Tensor.arange(KEPT).realize()

        @jit
        def step(tokens: Any, places: Any) -> Any:
            here, seen = (every == places).reshape(KEPT, 1), every <= places

            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                for kept, new in ((keys[layer], k), (values[layer], v)):
                    kept.assign(here.where(new, kept))
                return q.scaled_dot_product_attention(keys[layer], values[layer], attn_mask=seen)

            with no_grad():
                logits = _gpt2(F, w, tokens, places, attend)
                Tensor.realize(logits, *keys, *values)
            return logits

        return waited(lambda: step(tokens, places))

    def jax(self, inputs: Arrays) -> Run:
        import jax
        from jax import lax
        from jax import numpy as jnp

        dtype = jnp.bfloat16 if self.narrow else jnp.float32
        w = {name: jnp.asarray(array, dtype) for name, array in inputs["w"].items()}
        tokens, places = (jnp.asarray(inputs[name]) for name in ("tokens", "places"))
        kept = [
            [jnp.asarray(array, dtype) for array in self.kept(inputs[side])] for side in ("keys", "values")
        ]

        def step(kept: Any, w: Arrays, tokens: Any, places: Any) -> Any:
            kept = [list(side) for side in kept]

            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                for side, new in zip(kept, (k, v), strict=True):
                    side[layer] = lax.dynamic_update_slice(side[layer], new, (0, places[0], 0))
                return _jax_attention(q, kept[0][layer], kept[1][layer], jnp.arange(KEPT) <= places[0])

            return _gpt2(F, w, tokens, places, attend), kept

        F = _functions(jnp, "float32")
        # XLA is ten times faster at a matrix times a vector than at one row times a matrix
        if not self.narrow:
            F.linear = lambda x, weight, bias=0.0: (weight @ x[0])[None] + bias
        compiled = jax.jit(step, donate_argnums=0)

        def run() -> Any:
            nonlocal kept
            logits, kept = jax.block_until_ready(compiled(kept, w, tokens, places))
            return logits.astype("float32")

        return run


class Gpt2DecodeSymbolic(_Decode):
    """The place is a variable: one recording serves all, writes one row, and looks at the part that is filled."""

    name = "gpt2-decode-symbolic"
    about = f"as gpt2-decode; in hcq the place is a Variable, in place of a mask over all {KEPT}"

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, Variable, jit, no_grad, tensor

        F, w, keys, values, tokens, _ = self.on_hcq(inputs, self.kept)
        count = Variable("count", 1, KEPT)  # of the tokens, with this one

        @jit
        def step(tokens: Any, n: Any) -> Any:
            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                for kept, new in ((keys[layer], k), (values[layer], v)):
                    kept[:, n - 1 : n] = new
                return q.scaled_dot_product_attention(keys[layer][:, :n], values[layer][:, :n])

            with no_grad():
                logits = _gpt2(F, w, tokens, tensor(n - 1).reshape(1), attend)
                Tensor.realize(logits, *keys, *values)
            return logits

        return waited(lambda: step(tokens, count.bind(BEFORE + 1)))


class Gpt2Decode(_Decode):
    name = "gpt2-decode"
    about = f"GPT-2 small, 124M random float32 weights, batch 1: one token after {BEFORE}"


class Gpt2DecodeBfloat16(_Decode):
    name = "gpt2-decode-bf16"
    about = f"GPT-2 small, 124M random bfloat16 weights, batch 1: one token after {BEFORE}"
    tolerance = 3e-2
    narrow = True


class Gpt2Prefill(_Gpt2):
    name = f"gpt2-prefill-{BEFORE}"
    about = f"GPT-2 small, 124M random float32 weights, batch 1: reads {BEFORE} tokens, logits of the last"
    amount = float(BEFORE)

    def tokens(self) -> Arrays:
        import numpy

        draw = numpy.random.default_rng(0)
        return {
            "tokens": draw.integers(0, VOCABULARY, BEFORE, "int32"),
            "places": numpy.arange(BEFORE, dtype="int32"),
        }

    def hcq(self, inputs: Arrays) -> Run:
        from hcq import Tensor, jit, no_grad

        F, w, keys, values, tokens, places = self.on_hcq(inputs, list)

        @jit
        def step(tokens: Any, places: Any) -> Any:
            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                keys[layer].assign(k)
                values[layer].assign(v)
                return q.scaled_dot_product_attention(keys[layer], values[layer], is_causal=True)

            with no_grad():
                logits = _gpt2(F, w, tokens, places, attend)
                Tensor.realize(logits, *keys, *values)
            return logits

        return waited(lambda: step(tokens, places))

    def jax(self, inputs: Arrays) -> Run:
        import jax
        from jax import numpy as jnp

        w = jax.device_put(inputs["w"])
        tokens, places = (jnp.asarray(inputs[name]) for name in ("tokens", "places"))

        def step(w: Arrays, tokens: Any, places: Any) -> Any:
            kept: list[Any] = []

            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                kept.append((k, v))
                return _jax_attention(q, k, v, jnp.arange(BEFORE) <= places[:, None])

            return _gpt2(_functions(jnp, "float32"), w, tokens, places, attend), kept

        compiled = jax.jit(step)
        return lambda: jax.block_until_ready(compiled(w, tokens, places))[0]


LANGUAGE_CASES: tuple[type[Case], ...] = (Gpt2Prefill, Gpt2Decode, Gpt2DecodeSymbolic, Gpt2DecodeBfloat16)
