"""Networks of the shape of ResNet, MobileNet, BERT and GPT-2 give what ONNX's reference evaluator gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from hcq.frontend.more.onnx import OnnxModel  # noqa: E402

pytestmark = pytest.mark.thorough


class Net:
    """Nodes one after another, with random weights."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []

    def __call__(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def random(self, *shape: int, scale: float | None = None) -> str:
        scale = scale or float(np.prod(shape[1:] or 1)) ** -0.5
        return self.constant((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def conv(self, x: str, into: int, out: int, window: int, stride: int = 1, group: int = 1) -> str:
        w = self.random(out, into // group, window, window)
        pad = window // 2
        x = self("Conv", x, w, kernel_shape=[window] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group)
        near = [self.constant((self.rng.random(out) * 0.2 + n).astype(np.float32)) for n in (1, 0, 0, 1)]
        return self("BatchNormalization", x, *near)

    def linear(self, x: str, into: int, out: int) -> str:
        return self(
            "Add", self("MatMul", x, self.random(into, out, scale=into**-0.5)), self.random(out, scale=0.1)
        )

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def layer_norm(self, x: str, size: int, as_operator: bool) -> str:
        scale, bias = self.random(size, scale=1.0), self.random(size, scale=0.1)
        if as_operator:
            return self("LayerNormalization", x, scale, bias)
        middle = self(
            "Sub", x, self("ReduceMean", x, axes=[-1])
        )  # as exporters wrote it before there was one
        variance = self("ReduceMean", self("Pow", middle, self.constant(np.float32(2))), axes=[-1])
        root = self("Sqrt", self("Add", variance, self.constant(np.float32(1e-5))))
        return self("Add", self("Mul", self("Div", middle, root), scale), bias)

    def attention(self, x: str, size: int, heads: int, mask: str | None) -> str:
        """Shapes taken from x, as exporters do."""
        batch, length = (
            self("Unsqueeze", self("Gather", self("Shape", x), self.constant(np.int64(i))), self.ints(0))
            for i in (0, 1)
        )
        split = self("Concat", batch, length, self.ints(heads), self.ints(size // heads), axis=0)
        q, k, v = (
            self("Transpose", self("Reshape", self.linear(x, size, size), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = self("Div", self("MatMul", q, k), self.constant(np.float32((size // heads) ** 0.5)))
        if mask:
            scores = self("Add", scores, mask)
        found = self("Transpose", self("MatMul", self("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        whole = self("Reshape", found, self("Concat", batch, length, self.ints(size), axis=0))
        return self.linear(whole, size, size)

    def model(self, output: str, rank: int, opset: int = 17, **inputs: Any) -> Any:
        given = [helper.make_tensor_value_info(name, *facts) for name, facts in inputs.items()]
        out = helper.make_tensor_value_info(output, TensorProto.FLOAT, [None] * rank)
        graph = helper.make_graph(self.nodes, "net", given, [out], self.weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.checker.check_model(made)
        return made


def agrees(made: Any, *calls: dict[str, Any], tolerance: float = 1e-4) -> OnnxModel:
    """Each call three times: as it is, captured, and replayed."""
    ours, theirs = OnnxModel(made.SerializeToString()), ReferenceEvaluator(made)
    for inputs in calls:
        (want,) = theirs.run(None, inputs)
        for _ in range(3):
            (have,) = ours(**inputs).values()
            np.testing.assert_allclose(
                have.numpy(), want, rtol=tolerance, atol=tolerance * np.abs(want).max()
            )
        assert not ours.why_not_recorded
    return ours


def image(batch: int) -> dict[str, Any]:
    return {"image": np.random.default_rng(batch).standard_normal((batch, 3, 32, 32)).astype(np.float32)}


@pytest.mark.parametrize("bottleneck, blocks", [(False, (2, 2, 2, 2)), (True, (3, 4, 6, 3))])
def test_resnet_18_and_50(bottleneck: bool, blocks: tuple[int, ...]) -> None:
    net = Net()
    x, width, grown = "image", 8, 4 if bottleneck else 1
    x = net("Relu", net.conv(x, 3, width, 7, 2))
    x = net("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    have = width
    for stage, count in enumerate(blocks):
        size = width << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            y = x
            windows = (1, 3, 1) if bottleneck else (3, 3)
            channels = [have, *[size] * (len(windows) - 1), size * grown]
            for i, window in enumerate(windows):
                step = stride if window == 3 and (bottleneck or not i) else 1
                y = net.conv(y, channels[i], channels[i + 1], window, step)
                y = net("Relu", y) if i + 1 < len(windows) else y
            if stride > 1 or have != size * grown:
                x = net.conv(x, have, size * grown, 1, stride)
            have = size * grown
            x = net("Relu", net("Add", y, x))
    x = net("Flatten", net("GlobalAveragePool", x))
    out = net("Gemm", x, net.random(10, have), net.random(10), transB=1)
    made = net.model(out, 2, image=(TensorProto.FLOAT, ["batch", 3, 32, 32]))
    agrees(made, image(1), image(2), tolerance=1e-3)


def test_mobilenet_v2() -> None:
    net = Net()
    x, have = (
        net("Clip", net.conv("image", 3, 8, 3, 2), net.constant(np.float32(0)), net.constant(np.float32(6))),
        8,
    )
    for grow, size, stride in ((1, 8, 1), (4, 12, 2), (4, 12, 1), (4, 16, 2), (4, 16, 1)):
        y, wide = x, have * grow
        for into, out, window, step, group in ((have, wide, 1, 1, 1), (wide, wide, 3, stride, wide)):
            y = net("Clip", net.conv(y, into, out, window, step, group), net.constant(np.float32(0)), "")
        y = net.conv(y, wide, size, 1)
        x, have = (net("Add", x, y) if stride == 1 and have == size else y), size
    x = net("Squeeze", net("ReduceMean", x, axes=[2, 3]), net.ints(2, 3))
    made = net.model(
        net("Softmax", net.linear(x, have, 10), axis=-1), 2, image=(TensorProto.FLOAT, ["batch", 3, 32, 32])
    )
    agrees(made, image(1), image(3), tolerance=1e-3)


def test_bert() -> None:
    net, size = Net(), 32
    x = net(
        "Add",
        net("Gather", net.random(100, size, scale=1.0), "ids"),
        net("Gather", net.random(2, size), "kinds"),
    )
    length = net("Unsqueeze", net("Gather", net("Shape", "ids"), net.constant(np.int64(1))), net.ints(0))
    places = net("Slice", net.random(1, 64, size), net.ints(0), length, net.ints(1))
    x = net.layer_norm(net("Add", x, places), size, as_operator=False)
    wide = net("Cast", net("Unsqueeze", "mask", net.ints(1, 2)), to=TensorProto.FLOAT)
    mask = net("Mul", net("Sub", net.constant(np.float32(1)), wide), net.constant(np.float32(-10000)))
    for _ in range(2):
        x = net.layer_norm(net("Add", x, net.attention(x, size, 4, mask)), size, as_operator=False)
        y = net.linear(x, size, 4 * size)
        half = net("Div", y, net.constant(np.float32(2**0.5)))
        y = net(
            "Mul",
            net("Mul", y, net("Add", net("Erf", half), net.constant(np.float32(1)))),
            net.constant(np.float32(0.5)),
        )
        x = net.layer_norm(net("Add", x, net.linear(y, 4 * size, size)), size, as_operator=False)
    facts = (TensorProto.INT64, ["batch", "length"])
    made = net.model(net.linear(x, size, 5), 3, ids=facts, kinds=facts, mask=facts)

    def tokens(batch: int, length: int) -> dict[str, Any]:
        rng = np.random.default_rng(length)
        mask = np.ones((batch, length), np.int64)
        mask[-1, length // 2 :] = 0
        return {
            "ids": rng.integers(0, 100, (batch, length)),
            "kinds": rng.integers(0, 2, (batch, length)),
            "mask": mask,
        }

    agrees(made, tokens(1, 8), tokens(2, 12))


def test_gpt_2() -> None:
    net, size = Net(), 32
    table = net.random(100, size, scale=1.0)
    length = net("Gather", net("Shape", "ids"), net.constant(np.int64(1)))
    places = net("Range", net.constant(np.int64(0)), length, net.constant(np.int64(1)))
    x = net("Add", net("Gather", table, "ids"), net("Gather", net.random(64, size), places))
    square = net("Concat", *[net("Unsqueeze", length, net.ints(0))] * 2, axis=0)
    ones = net("ConstantOfShape", square, value=numpy_helper.from_array(np.array([1], np.float32)))
    below = net("Trilu", ones, upper=0)
    mask = net("Mul", net("Sub", net.constant(np.float32(1)), below), net.constant(np.float32(-10000)))
    for _ in range(2):
        x = net("Add", x, net.attention(net.layer_norm(x, size, True), size, 4, mask))
        y = net.linear(net.layer_norm(x, size, True), size, 4 * size)
        cube = net("Mul", net("Pow", y, net.constant(np.float32(3))), net.constant(np.float32(0.044715)))
        bent = net("Tanh", net("Mul", net("Add", y, cube), net.constant(np.float32((2 / np.pi) ** 0.5))))
        y = net(
            "Mul", net("Mul", y, net("Add", bent, net.constant(np.float32(1)))), net.constant(np.float32(0.5))
        )
        x = net("Add", x, net.linear(y, 4 * size, size))
    logits = net("MatMul", net.layer_norm(x, size, True), net("Transpose", table))
    made = net.model(logits, 3, ids=(TensorProto.INT64, ["batch", "length"]))
    rng = np.random.default_rng(1)
    agrees(made, *[{"ids": rng.integers(0, 100, shape)} for shape in ((1, 7), (2, 16))])
