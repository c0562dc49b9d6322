"""Benchmark cases of a quantised language model: Llama's architecture, 138 million weights, writing one more token.

In       see case.py; the weights are random blocks of a GGUF file's formats (random_blocks.py)
Out      cases; `QUANTISED_CASES` lists them
Changes  nothing that stays: hcq and llama.cpp open a file in a temporary folder
Next     language.py (models that are not quantised), training.py (the list of all)
Source   Touvron et al. 2023, "LLaMA: Open and Efficient Foundation Language Models" (order of the layers)

hcq and llama.cpp read the same file and keep its blocks. PyTorch has no product with them: it is given the numbers that
they mean, in float32, and reads four or seven times as many bytes. llama.cpp rounds activations to 8 bits, which the
tolerance is for; what that costs is in docs/language-models.md.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

from hcq.config import cores
from hcq.tools.bench.cases.case import Arrays, Case, Run, waited
from hcq.tools.bench.cases.layers import softmax
from hcq.tools.bench.cases.random_blocks import FORMS

VOCABULARY, WIDTH, DEPTH, HEADS, INNER = 32000, 768, 12, 12, 3072
BEFORE = 64  # tokens
KEPT = 256  # places for keys and values
EPSILON = 1e-5


def _llama(F: Any, w: Arrays, tokens: Any, turns: tuple[Any, Any], attend: Any) -> Any:
    """Logits (1, VOCABULARY) of what follows the last of the tokens (count,)."""
    count = tokens.shape[0]
    x = F.embedding(tokens, w["token_embd"])
    for layer in range(DEPTH):
        at = f"blk.{layer}."
        y = F.rms_norm(x, (WIDTH,), w[f"{at}attn_norm"], EPSILON)
        q, k, v = (
            F.linear(y, w[f"{at}attn_{side}"]).reshape(count, HEADS, -1).swapaxes(0, 1) for side in "qkv"
        )
        q, k = (_turned(F, side, *turns) for side in (q, k))
        found = attend(layer, q, k, v).swapaxes(0, 1).reshape(count, WIDTH)
        x = x + F.linear(found, w[f"{at}attn_output"])
        y = F.rms_norm(x, (WIDTH,), w[f"{at}ffn_norm"], EPSILON)
        y = F.silu(F.linear(y, w[f"{at}ffn_gate"])) * F.linear(y, w[f"{at}ffn_up"])
        x = x + F.linear(y, w[f"{at}ffn_down"])
    return F.linear(F.rms_norm(x[-1:], (WIDTH,), w["output_norm"], EPSILON), w["token_embd"])


def _turned(F: Any, x: Any, cosines: Any, sines: Any) -> Any:
    """Pairs of neighbours turned by their places' angles; (heads, count, head_size)."""
    a, b = x[..., ::2], x[..., 1::2]
    return F.stack([a * cosines - b * sines, b * cosines + a * sines], -1).reshape(x.shape)


def _turns() -> tuple[Any, Any]:
    """Cosines and sines of every place, (KEPT, head_size / 2)."""
    import numpy

    half = WIDTH // HEADS // 2
    angles = numpy.arange(KEPT)[:, None] * 10000.0 ** (-numpy.arange(half) / half)
    return numpy.cos(angles), numpy.sin(angles)


def _metadata() -> dict[str, Any]:
    found: dict[str, Any] = {
        "embedding_length": WIDTH, "block_count": DEPTH, "attention.head_count": HEADS, "feed_forward_length": INNER,
        "context_length": KEPT, "attention.layer_norm_rms_epsilon": EPSILON, "vocab_size": VOCABULARY,
    }  # fmt: skip
    words = {f"llama.{key}": value for key, value in found.items()}
    return {"general.architecture": "llama", "tokenizer.ggml.model": "no_vocab", **words}


class _LlamaDecode(Case):
    unit = "tokens/s"
    amount = 1.0
    tolerance = 0.1
    form: ClassVar[str]

    def inputs(self) -> Arrays:
        """tokens; w: the weights' numbers in float32; packed: the same as a file has them."""
        import numpy

        from hcq.frontend.io.gguf_writer import Packed

        shapes: dict[str, tuple[int, int]] = {"token_embd": (VOCABULARY, WIDTH)}
        norms = ["output_norm"]
        for layer in range(DEPTH):
            at = f"blk.{layer}."
            shapes |= {f"{at}attn_{part}": (WIDTH, WIDTH) for part in ("q", "k", "v", "output")}
            shapes |= {f"{at}ffn_{part}": (INNER, WIDTH) for part in ("gate", "up")}
            shapes[f"{at}ffn_down"] = (WIDTH, INNER)
            norms += [f"{at}attn_norm", f"{at}ffn_norm"]
        w: Arrays = {}
        packed: Arrays = {}
        for seed, (name, shape) in enumerate(shapes.items()):
            raw, numbers = FORMS[self.form](shape, shape[1] ** -0.5, seed)
            w[name], packed[name + ".weight"] = (
                numbers.astype("float32"),
                Packed(self.form, shape, raw.tobytes()),
            )
        for name in norms:
            w[name] = numpy.ones(WIDTH, "float32")
            packed[name + ".weight"] = Packed("F32", (WIDTH,), w[name].tobytes())
        tokens = numpy.random.default_rng(0).integers(0, VOCABULARY, BEFORE + 1)
        return {"tokens": tokens, "w": w, "packed": packed}

    def expected(self, inputs: Arrays) -> Any:
        import numpy

        def rms_norm(x: Any, shape: Any, weight: Any, epsilon: float) -> Any:
            return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

        F = SimpleNamespace(
            linear=lambda x, weight: x @ weight.T.astype("float64"),
            embedding=lambda index, table: table[index].astype("float64"),
            rms_norm=rms_norm, silu=lambda x: x / (1 + numpy.exp(-x)), stack=numpy.stack,
        )  # fmt: skip
        count = BEFORE + 1
        mask = numpy.tril(numpy.ones((count, count), bool))

        def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
            scores = numpy.where(mask, q @ k.swapaxes(1, 2) * q.shape[-1] ** -0.5, -numpy.inf)
            return softmax(scores) @ v

        turns = tuple(side[:count] for side in _turns())
        return _llama(F, inputs["w"], inputs["tokens"], (turns[0], turns[1]), attend)[0]

    def hcq(self, inputs: Arrays) -> Run:
        from hcq.frontend.more.llm.files import open_model
        from hcq.frontend.more.llm.session import Session

        with tempfile.TemporaryDirectory(prefix="hcq-bench-") as folder:
            session = Session(open_model(self._written(inputs, folder)).model, KEPT)
        tokens = inputs["tokens"].tolist()
        session.read(tokens[:-1])

        def run() -> Any:
            session.cut(BEFORE)
            return session.read(tokens[-1:])

        return waited(run)

    def llama_cpp(self, inputs: Arrays) -> Run:
        import llama_cpp
        import numpy

        with tempfile.TemporaryDirectory(prefix="hcq-bench-") as folder:
            model = llama_cpp.Llama(
                str(self._written(inputs, folder)), n_ctx=KEPT, n_threads=cores(), n_threads_batch=cores(),
                verbose=False,
            )  # fmt: skip
        tokens = inputs["tokens"].tolist()
        model.eval(tokens[:-1])

        def run() -> Any:
            model.n_tokens = BEFORE
            model.eval(tokens[-1:])
            return numpy.ctypeslib.as_array(model._ctx.get_logits(), (VOCABULARY,))

        return run

    def torch(self, inputs: Arrays) -> Run:
        import torch
        from torch.nn import functional

        F = SimpleNamespace(
            linear=functional.linear, embedding=functional.embedding, rms_norm=functional.rms_norm,
            silu=functional.silu, stack=torch.stack,
        )  # fmt: skip
        w = {name: torch.from_numpy(array) for name, array in inputs["w"].items()}
        tokens = torch.from_numpy(inputs["tokens"])
        cosines, sines = (torch.from_numpy(side).float() for side in _turns())
        keys, values = (torch.zeros(DEPTH, HEADS, KEPT, WIDTH // HEADS) for _ in range(2))

        def read(start: int, end: int) -> Any:
            def attend(layer: int, q: Any, k: Any, v: Any) -> Any:
                keys[layer, :, start:end], values[layer, :, start:end] = k, v
                k, v = keys[layer : layer + 1, :, :end], values[layer : layer + 1, :, :end]
                return functional.scaled_dot_product_attention(q[None], k, v, is_causal=start == 0)[0]

            with torch.inference_mode():
                return _llama(F, w, tokens[start:end], (cosines[start:end], sines[start:end]), attend)[0]

        read(0, BEFORE)
        return lambda: read(BEFORE, BEFORE + 1)

    def _written(self, inputs: Arrays, folder: str) -> Path:
        """The model as a GGUF file in a folder."""
        from hcq.frontend.io.gguf_writer import save_gguf

        path = Path(folder) / "model.gguf"
        save_gguf(inputs["packed"], path, _metadata())
        return path


class LlamaDecodeQ8(_LlamaDecode):
    name = "llama-decode-q8_0"
    about = (
        f"Llama, 138M random weights in Q8_0 (147 MB), batch 1: one token after {BEFORE}; in PyTorch float32"
    )
    form = "Q8_0"


class LlamaDecodeQ4(_LlamaDecode):
    name = "llama-decode-q4_k"
    about = (
        f"Llama, 138M random weights in Q4_K (78 MB), batch 1: one token after {BEFORE}; in PyTorch float32"
    )
    form = "Q4_K"


QUANTISED_CASES: tuple[type[Case], ...] = (LlamaDecodeQ8, LlamaDecodeQ4)
