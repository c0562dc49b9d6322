"""Use a device's queue by hand: load an object, bind buffers, dispatch, wait. No tensors anywhere.

In       nothing; the kernel is the text below (any object made by `cc -c` loads the same way)
Out      what the kernel computed, how long it took, and the packets that made it happen
Changes  nothing that lasts
Next     docs/cpu-device.md (packets and calling convention), digits.py (the same device under a tensor program)

    python examples/raw_queue.py
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a checkout works uninstalled

import hcq

# void scale(float *out, const float *in, int64_t n, double factor): out[i] = in[i] * factor
#
# A kernel is a plain C function: buffers are pointers, integers int64_t, floats double. One more argument follows, a
# pointer that says which groups of the grid this call is to do; a kernel for grid (1, 1, 1) need not look at it.
KERNEL = """
define void @scale(ptr %out, ptr %in, i64 %n, double %factor) {
entry:
  %wanted = fptrunc double %factor to float
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %end
body:
  %from = getelementptr float, ptr %in, i64 %i
  %to = getelementptr float, ptr %out, i64 %i
  %x = load float, ptr %from
  %y = fmul float %x, %wanted
  store float %y, ptr %to
  %next = add i64 %i, 1
  br label %head
end:
  ret void
}
"""


def assemble(text: str) -> bytes:
    """LLVM IR to an ELF object for this machine; `cc -c -O2` on a C file does as well."""
    try:
        import llvmlite.binding as llvm
    except ModuleNotFoundError:
        sys.exit("this example assembles its kernel with LLVM: pip install 'hcq[tensor]'")

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic")
    return bytes(machine.emit_object(module))


def main() -> int:
    n = 1024
    device = hcq.open("CPU")
    program = device.load(
        assemble(KERNEL), "scale", args=("buffer", "buffer", "int", "float"), sources={"ir": KERNEL}
    )
    source, out = device.alloc(4 * n, "source"), device.alloc(4 * n, "out")
    source.write(struct.pack(f"<{n}f", *range(n)))

    queue = device.queue()
    times = device.alloc(16, "times")
    queue.timestamp(times, 0)
    queue.dispatch(program, [out, source, n, 0.5], grid=(1, 1, 1), block=(1, 1, 1))
    queue.timestamp(times, 8)
    print("recorded, and decoded from its words again:")
    for packet in device.decode(memoryview(queue.words).cast("I")):
        print(f"  {packet}")

    done = queue.submit()
    done.wait(timeout_ms=1000)
    numbers = struct.unpack(f"<{n}f", out.read())
    print(f"computed: {numbers[:4]} ... {numbers[-1]}")
    assert numbers == tuple(0.5 * i for i in range(n))
    began, ended = struct.unpack("<2Q", times.read())
    print(f"between the two timestamps: {ended - began} ns")
    return 0


if __name__ == "__main__":
    sys.exit(main())
