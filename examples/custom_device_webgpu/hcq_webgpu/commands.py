"""Commands: what packets ask for, as calls of WebGPU, recorded until somebody has to know that it is done.

In       kernels with their arguments; ranges to copy and to fill
Out      work in WebGPU's queue, in order
Changes  the device's memory; a scratch buffer for copies
Next     processor.py (who asks), areas.py (addresses), kernel.py
Source   WebGPU (W3C): GPUComputePassEncoder, dynamic offsets; copyBufferToBuffer takes whole words, of two buffers

What goes from a buffer to itself, and what does not lie on words, goes by way of a scratch buffer, the latter with a
kernel that shifts bytes into words. Memory that the host sees, such as cells, is none of WebGPU's: what is to be copied
from it or into it the host copies, once all before is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hcq.errors import DriverError
from hcq.system import native
from hcq_webgpu.api import Gpu
from hcq_webgpu.areas import WORD, Area, Areas
from hcq_webgpu.kernel import Kernel

NUMBERS_BYTES = 64 << 10  # for the numbers of the launches of one submission to WebGPU
MOST_GROUPS = 4096  # of moves: each invocation does several words
MOST_KNOWN = 4096  # bind groups that are kept
LANES = 64
BEHIND = 16  # bytes: a shift reads as far behind its range, and drops it
ALL = (1 << 32) - 1
_EDGES = """
fn merged(old: u32, value: u32, word: u32) -> u32 {
  let head = select(0xffffffffu, first_mask, word == 0u);
  let mask = select(head, head & last_mask, word == count - 1u);
  return (old & ~mask) | (value & mask);
}
"""
_ENTRY = f"""
@compute @workgroup_size({LANES}) fn main(
  @builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>
) {{
  for (var word = id.x; word < count; word += groups.x * {LANES}u) {{"""
FILL = f"""
@group(0) @binding(0) var<storage, read_write> dst: array<u32>;
@group(0) @binding(1) var<uniform> at: u32;
@group(0) @binding(2) var<uniform> count: u32;
@group(0) @binding(3) var<uniform> first_mask: u32;
@group(0) @binding(4) var<uniform> last_mask: u32;
@group(0) @binding(5) var<uniform> even: u32;
@group(0) @binding(6) var<uniform> odd: u32;
{_EDGES}{_ENTRY}
    dst[at + word] = merged(dst[at + word], select(even, odd, word % 2u == 1u), word);
  }}
}}
"""
SHIFT = f"""
@group(0) @binding(0) var<storage, read_write> dst: array<u32>;
@group(0) @binding(1) var<storage, read_write> src: array<u32>;
@group(0) @binding(2) var<uniform> at: u32;
@group(0) @binding(3) var<uniform> count: u32;
@group(0) @binding(4) var<uniform> first_mask: u32;
@group(0) @binding(5) var<uniform> last_mask: u32;
@group(0) @binding(6) var<uniform> bits: u32;
{_EDGES}{_ENTRY}
    let high = src[word + 1u] << bits;
    let low = select(src[word] >> (32u - bits), 0u, bits == 0u);
    dst[at + word] = merged(dst[at + word], low | high, word);
  }}
}}
"""


class Commands:
    """What is recorded and not yet submitted, and who submits it. One thread at a time uses it."""

    def __init__(self, gpu: Gpu, areas: Areas) -> None:
        self.gpu, self.areas = gpu, areas
        self.encoder: Any = None
        self.computing: Any = None  # an open compute pass
        self.numbers = gpu.make_buffer(NUMBERS_BYTES, gpu.uniform)
        self.slot_bytes = gpu.limits["min-uniform-buffer-offset-alignment"]
        self.waiting = bytearray()  # numbers that are not in the buffer yet
        self.scratch: Any = None
        self.scratch_bytes = 0
        self.fill_kernel = Kernel(gpu, FILL.encode(), "main", "fill")
        self.shift_kernel = Kernel(gpu, SHIFT.encode(), "main", "copy")
        self.known: dict[tuple[Any, ...], Any] = {}  # bind groups
        self.seen_changes = 0

    # ------------------------------------------------------------ recording

    def _recorder(self) -> Any:
        if self.encoder is None:
            self.encoder = self.gpu.device.create_command_encoder()
        return self.encoder

    def _end_pass(self) -> None:
        if self.computing is not None:
            self.computing.end()
            self.computing = None

    def flush(self) -> None:
        """Submit what is recorded."""
        if self.encoder is None:
            return
        encoder, self.encoder = self.encoder, None
        self._end_pass()
        if self.waiting:
            self.gpu.queue.write_buffer(self.numbers, 0, bytes(self.waiting))
            self.waiting.clear()
        self.gpu.queue.submit([encoder.finish()])

    def finish(self) -> None:
        """Return once all that was asked for is done."""
        self.flush()
        self.gpu.finish()

    def drop(self) -> None:
        """Forget what is recorded; return once what was submitted is done."""
        self.encoder = self.computing = None
        self.waiting.clear()
        self.gpu.finish()

    # ------------------------------------------------------------ kernels

    def launch(self, kernel: Kernel, key: int, grid: tuple[int, int, int], data: bytes) -> None:
        """Dispatch a kernel. data: its arguments, in 64 bits each."""
        resources: list[tuple[Any, int, int]] = []
        words: list[bytes] = []
        places: list[int] = []
        for kind, slot in zip(kernel.kinds, kernel.slots):
            value = data[slot.offset : slot.offset + slot.size_bytes]
            if kind != "buffer":
                words.append(value)
                continue
            va = int.from_bytes(value, "little")
            area = self.areas.find(va)
            if area is None:
                raise DriverError(f"an argument, {va:#x}, is no memory of the device")
            places.append(va)
            resources.append((area.buffer, va - area.va, area.size_bytes - (va - area.va)))
        self._dispatch(kernel, (key, *places), resources, words, kernel.groups(grid))

    def _dispatch(
        self,
        kernel: Kernel,
        key: tuple[Any, ...],
        resources: Sequence[tuple[Any, int, int]],
        words: Sequence[bytes],
        groups: tuple[int, int, int],
    ) -> None:
        offsets = self._put(words)
        group = self._bind_group(kernel, key, resources)
        if self.computing is None:
            self.computing = self._recorder().begin_compute_pass()
        self.computing.set_pipeline(kernel.pipeline)
        self.computing.set_bind_group(0, group, offsets)
        self.computing.dispatch_workgroups(*groups)

    def _put(self, words: Sequence[bytes]) -> list[int]:
        """Where the numbers of a dispatch will be."""
        if len(self.waiting) + len(words) * self.slot_bytes > NUMBERS_BYTES:
            self.flush()
        offsets = []
        for word in words:
            offsets.append(len(self.waiting))
            self.waiting += word.ljust(self.slot_bytes, b"\0")
        return offsets

    def _bind_group(
        self, kernel: Kernel, key: tuple[Any, ...], resources: Sequence[tuple[Any, int, int]]
    ) -> Any:
        if self.seen_changes != self.areas.changes or len(self.known) > MOST_KNOWN:
            self.seen_changes = self.areas.changes
            self.known.clear()
        found = self.known.get(key)
        if found is None:
            rest = iter(resources)
            entries = []
            for at, kind in enumerate(kernel.kinds):
                buffer, offset, size = next(rest) if kind == "buffer" else (self.numbers, 0, WORD)
                entries.append(
                    {"binding": at, "resource": {"buffer": buffer, "offset": offset, "size": size}}
                )
            found = self.gpu.device.create_bind_group(layout=kernel.layout, entries=entries)
            self.known[key] = found
        return found

    # ------------------------------------------------------------ fills and copies

    def fill(self, dst: int, pattern: bytes, size_bytes: int) -> None:
        """Repeat 8 bytes from an address on."""
        area = self.areas.find(dst)
        if not size_bytes:
            return
        if area is None:
            self.finish()
            self.write(dst, (pattern * (size_bytes // 8 + 1))[:size_bytes])
            return
        shift = dst % WORD
        turned = (pattern * 2)[8 - shift : 16 - shift]  # as the words of memory have it
        words = [turned[:4], turned[4:]]
        self._move(self.fill_kernel, area, dst, size_bytes, [], words, "fill")

    def copy(self, dst: int, src: int, size_bytes: int) -> None:
        """Copy bytes; the ranges may overlap."""
        to, source = self.areas.find(dst), self.areas.find(src)
        if not size_bytes:
            return
        if to is None or source is None:
            self.finish()
            self.write(dst, self.read(src, size_bytes))
        elif dst % WORD or src % WORD or size_bytes % WORD:
            self._shift(dst, to, src, source, size_bytes)
        elif to is source:
            self._bounce(source, src - source.va, size_bytes, 0)
            self._recorder().copy_buffer_to_buffer(self.scratch, 0, to.buffer, dst - to.va, size_bytes)
        else:
            self._end_pass()
            self._recorder().copy_buffer_to_buffer(
                source.buffer, src - source.va, to.buffer, dst - to.va, size_bytes
            )

    def _bounce(self, source: Area, offset: int, size_bytes: int, into: int) -> None:
        """Copy words into the scratch buffer, from byte `into` on."""
        if self.scratch_bytes < into + size_bytes + BEHIND:
            self.flush()  # what is recorded keeps the one before, which WebGPU drops after it
            self.known.clear()
            self.scratch_bytes = max(1 << 16, 1 << (into + size_bytes + BEHIND).bit_length())
            self.scratch = self.gpu.make_buffer(self.scratch_bytes, self.gpu.storage)
        self._end_pass()
        self._recorder().copy_buffer_to_buffer(source.buffer, offset, self.scratch, into, size_bytes)

    def _shift(self, dst: int, to: Area, src: int, source: Area, size_bytes: int) -> None:
        """Copy what does not lie on words."""
        offset = src - source.va
        first, end = offset // WORD * WORD, -(-(offset + size_bytes) // WORD) * WORD
        # kernels take byte k of word w from byte 4 + 4 w + k - move: the range begins in the first word, or behind it
        begin = WORD if dst % WORD >= src % WORD else 0
        move = (dst - src) % WORD
        self._bounce(source, first, end - first, begin)
        scratch = (
            self.scratch,
            0,
            min(self.scratch_bytes, self.gpu.limits["max-storage-buffer-binding-size"]),
        )
        words = [(8 * move).to_bytes(4, "little")]
        self._move(self.shift_kernel, to, dst, size_bytes, [scratch], words, "copy")

    def _move(
        self,
        kernel: Kernel,
        area: Area,
        dst: int,
        size_bytes: int,
        more: list[tuple[Any, int, int]],
        words: list[bytes],
        what: str,
    ) -> None:
        """Dispatch a kernel that writes a range of bytes, word by word."""
        offset = dst - area.va
        first, end = offset // WORD, -(-(offset + size_bytes) // WORD)
        before, after = 8 * (offset % WORD), 8 * (4 * end - offset - size_bytes)
        numbers = (first, end - first, ALL << before & ALL, ALL >> after)
        words = [*[number.to_bytes(4, "little") for number in numbers], *words]
        groups = min(MOST_GROUPS, -(-(end - first) // LANES))
        resources = [(area.buffer, 0, area.size_bytes), *more]
        self._dispatch(kernel, (what, area.va), resources, words, (groups, 1, 1))

    def write(self, dst: int, data: bytes) -> None:
        """Bytes of the host, behind all that was submitted."""
        area = self.areas.find(dst)
        if area is None:
            native.write(dst, data, len(data))
        else:
            self.areas.write(area, dst, data)

    def read(self, src: int, size_bytes: int) -> bytes:
        """What memory holds, behind all that was submitted."""
        area = self.areas.find(src)
        return native.read(src, size_bytes) if area is None else self.areas.read(area, src, size_bytes)
