"""Lab 5: an off-by-one launch.

`launch` has the kernel write 2 * i into out[i], for n numbers. Something is wrong for some n, and it is two
things. The check tries some, and looks at what is written behind the end.

    python -m hcq.tools.labs check 5
"""

from typing import Any

KERNEL = """
extern "C" __global__ void doubled(int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) out[i] = 2 * i;
}
"""


def launch(dev: Any, kernel: Any, out: Any, n: int) -> None:
    """Let the kernel set all n elements of `out`."""
    blocks = max(n // 256, 1)
    dev.run(kernel, [out, n], grid=(blocks, 1, 1), block=(256, 1, 1))
