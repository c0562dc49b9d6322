"""Say what is on an image by a residual network: from an ONNX file, from safetensors, or with random weights.

In       a model as .onnx, or torchvision's ResNet-18 weights as .safetensors; an image as .ppm or .npy; flags (--help)
Out      the most likely classes, and how long an image takes
Changes  without a model: a file of random weights, which is then read as any other
Next     textures.py (a residual network that is trained), docs/onnx.md, docs/state.md
Source   He, Zhang, Ren, Sun: "Deep Residual Learning for Image Recognition", CVPR 2016

    python examples/resnet.py
    python examples/resnet.py --model resnet50.onnx --image cat.ppm
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

import hcq
from hcq import Tensor, jit, nn
from hcq.frontend.more.onnx import OnnxModel
from hcq.torch import no_grad

MEAN, DEVIATION = (
    (0.485, 0.456, 0.406),
    (0.229, 0.224, 0.225),
)  # of ImageNet's images, as all such weights expect


class BasicBlock(nn.Module):
    """Two convolutions beside a path; names of state are torchvision's."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        beside = [nn.Conv2d(before, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)]
        self.downsample = nn.Sequential(*beside) if before != width else None

    def forward(self, x: Tensor) -> Tensor:
        found = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (found + (x if self.downsample is None else self.downsample(x))).relu()


class ResNet18(nn.Module):
    """Images (n, 3, h, w) -> scores of 1,000 classes (n, 1000)."""

    def __init__(self) -> None:
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64)
        widths = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(BasicBlock(before, width, stride), BasicBlock(width, width, 1))
            for before, width, stride in widths
        )
        self.fc = nn.Linear(512, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bn1(self.conv1(x)).relu().max_pool2d(3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def load(path: Path) -> Callable[[Tensor], Tensor]:
    """A function from images to scores."""
    if path.suffix == ".onnx":
        model = OnnxModel(str(path))
        (port, *others), out = model.inputs, model.outputs[0].name
        if others:
            raise SystemExit(f"{path}: takes {len(model.inputs)} inputs; this program gives it one image.")
        return lambda x: model(**{port.name: x})[out]
    net = ResNet18()
    net.load_state_dict(hcq.load(path))
    net.eval()
    return jit(lambda x: net(x))


def image_of(path: str | None, size: int) -> Any:
    """An image (1, 3, size, size), its middle square, with ImageNet's mean and deviation."""
    if path is None:
        y, x = np.mgrid[:size, :size] / size
        pixels = np.stack([x, y, (np.sin(40 * x) * np.sin(40 * y) + 1) / 2], 2)
    elif path.endswith(".npy"):
        pixels = np.load(path, allow_pickle=False) / 255
    else:
        head, width, height, most, raw = Path(path).read_bytes().split(maxsplit=4)
        if head != b"P6" or most != b"255":
            raise SystemExit(
                f"{path}: is not a binary PPM of 8 bits (P6). Convert it: magick picture.jpg picture.ppm"
            )
        pixels = (
            np.frombuffer(raw, np.uint8, int(width) * int(height) * 3).reshape(int(height), int(width), 3)
            / 255
        )
    if pixels.ndim != 3 or pixels.shape[2] != 3 or min(pixels.shape[:2]) < 1:
        raise SystemExit(f"{path}: has shape {pixels.shape}; an image is (height, width, 3).")
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    at = ((np.arange(size) + 0.5) * side / size).astype(int)
    square = pixels[top : top + side, left : left + side][at][:, at]
    return ((square - MEAN) / DEVIATION).transpose(2, 0, 1)[None].astype(np.float32)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="Say what is on an image by a residual network.", epilog="HCQ_DEVICE picks the device."
    )
    parser.add_argument(
        "--model",
        metavar="FILE",
        help=".onnx of one image, or ResNet-18 as .safetensors (default: random weights)",
    )
    parser.add_argument(
        "--image", metavar="FILE", help=".ppm, or .npy of (height, width, 3) (default: a pattern)"
    )
    parser.add_argument("--labels", metavar="FILE.txt", help="a line for each class")
    parser.add_argument("--size", type=int, default=224, help="pixels of a side (default 224)")
    parser.add_argument("--seed", type=int, default=1, help="of random weights (default 1)")
    options = parser.parse_args(argv)
    if options.size < 32:
        parser.error("--size is 32 or more")
    path = Path(options.model or Path(tempfile.gettempdir()) / "hcq-resnet18.safetensors")
    if options.model is None:
        Tensor.manual_seed(options.seed)
        hcq.save(ResNet18().state_dict(), path)
        print(f"no --model: random weights, in {path}")
    classify = load(path)
    image = Tensor(image_of(options.image, options.size)).realize()
    times = []
    with no_grad():
        for _ in range(5):
            began = time.perf_counter()
            chances = classify(image).softmax(-1).numpy()[0]
            times.append(time.perf_counter() - began)
    names = Path(options.labels).read_text(encoding="utf-8").splitlines() if options.labels else []
    print(f"{1e3 * min(times):.1f} ms an image; the first, with compiling, {times[0]:.1f} s")
    for number in chances.argsort()[::-1][:5]:
        print(
            f"  {100 * chances[number]:5.1f} %  {names[number] if number < len(names) else f'class {number}'}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
