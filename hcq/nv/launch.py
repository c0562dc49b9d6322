"""Launches: what a kernel's facts, a grid and arguments become in a QMD and constant bank 0.

In       a kernel at its address, the chip
Out      Launcher: for each size a template of a launch; `dispatch` fills in the arguments
Next     abi/qmd.py and abi/bank0.py (what is written), program.py (arguments), pushbuffer.py (where it is placed)
Source   clcbc0qmd.h and its siblings; SEND_PCAS_A, SEND_SIGNALING_PCAS2_B

A template counts addresses from its own start: the QMD is at 0, the constant bank behind it.
"""

from __future__ import annotations

import struct
from math import prod
from typing import Any, NamedTuple

from hcq.layout import Bits
from hcq.nv.abi.bank0 import STACK_RESERVED_BYTES, STACK_TOP, Bank0
from hcq.nv.abi.compute_methods import NoOperation, SendPcasA
from hcq.nv.abi.methods import COMPUTE_SUBCHANNEL, MAX_COUNT, immediate, incrementing, non_incrementing
from hcq.nv.abi.qmd import QmdType
from hcq.nv.address import LOCAL_WINDOW, SHARED_WINDOW
from hcq.nv.chip import RESERVED_SHARED_BYTES, Chip
from hcq.nv.encode import TWO_WORDS, WORD, Patch, Piece, wait_for_idle
from hcq.nv.link import Kernel

Grid = tuple[int, int, int]
GROUP_ID = 0x3F  # inferred: as CUDA's driver was seen to set it
MAX_MADE = 1024  # sizes of launches that are kept
CONST_BANK = 3  # .const variables
# inferred: whose the first half of the reserved shared memory is, and how much of it, nobody says
RESERVED_SLOT_AT = RESERVED_SHARED_BYTES // 2
# A QMD that is copied when it is scheduled may be written over afterwards; the second also fetches the program ahead.
# Inferred: which of them a generation wants, from what CUDA's driver was seen to send
INVALIDATE_COPY_SCHEDULE, INVALIDATE_PREFETCH_COPY_SCHEDULE = 3, 10


class Together(NamedTuple):
    """A launch whose blocks wait for one another, all of the grid.

    workspace   where they meet: eight bytes, of which a kernel finds the address in %envreg1 and %envreg2
    before      words that set it back
    """

    workspace: int
    before: bytes


class Launcher:
    """One kernel at its address. `dispatch` is the hot path: bytes made before, with the arguments between them."""

    def __init__(self, chip: Chip, kernel: Kernel, va: int, sm_count: int) -> None:
        self.chip, self.kernel, self.va, self.sm_count = chip, kernel, va, sm_count
        qmd, bank0 = chip.qmd, chip.bank0
        self.qmd_bytes = 4 * qmd.length_words
        end = max(kernel.param_base + kernel.param_bytes, bank0.param_base)
        self.bank_bytes = -(-end // 16) * 16
        self.data_bytes = 4 + self.qmd_bytes + self.bank_bytes
        self.params_at = 4 + self.qmd_bytes + kernel.param_base
        self._tail = self._methods()
        self._made: dict[tuple[Grid, Grid, int, Together | None], tuple[type[Piece], bytes, bytes]] = {}
        # what all launches of the kernel share
        self._piece = self._piece_of(0, False)

    @property
    def is_too_large(self) -> bool:
        """Launch data are the words behind one header."""
        return (self.data_bytes - 4) // 4 > MAX_COUNT

    def dispatch(
        self,
        arguments: bytes,
        grid: Grid,
        block: Grid,
        dynamic_shared: int = 0,
        together: Together | None = None,
    ) -> Piece:
        """The words of one launch; `arguments` are all bytes of the parameters."""
        made = self._made.get((grid, block, dynamic_shared, together))
        if made is None:
            made = self._make(grid, block, dynamic_shared, together)
        piece, head, tail = made
        return piece(head + arguments + tail)

    def _make(
        self, grid: Grid, block: Grid, dynamic_shared: int, together: Together | None
    ) -> tuple[type[Piece], bytes, bytes]:
        """The kind of launches of this size, and what stands before and behind their arguments."""
        workspace, before = together or (0, b"")
        words = memoryview(
            self._qmd(grid, block, dynamic_shared) + self._bank(grid, block, dynamic_shared, workspace)
        ).cast("I")
        data = non_incrementing(COMPUTE_SUBCHANNEL, NoOperation, words).to_bytes() + before + self._tail
        piece = self._piece if together is None else self._piece_of(len(before), True)
        made = piece, data[: self.params_at], data[self.params_at + self.kernel.param_bytes :]
        if len(self._made) >= MAX_MADE:
            self._made.clear()
        self._made[grid, block, dynamic_shared, together] = made
        return made

    def _piece_of(self, before_bytes: int, is_alone: bool) -> type[Piece]:
        """Launches that begin with so many bytes of other methods."""
        facts = {
            "data_bytes": self.data_bytes,
            "patches": self._addresses(before_bytes),
            "launches": 1,
            "is_alone": is_alone,
        }
        return type("LaunchPiece", (Piece,), facts)

    def resident_blocks(self, block: Grid, dynamic_shared: int) -> int:
        """How many blocks of this size the GPU can run at a time."""
        threads = block[0] * block[1] * block[2]
        shared = self.shared_bytes(dynamic_shared)
        return self.sm_count * self.chip.resident_blocks(shared, threads, self.kernel.registers)

    def shared_bytes(self, dynamic_shared: int) -> int:
        """SHARED_MEMORY_SIZE of a launch that adds so much dynamic shared memory."""
        return self.chip.shared_bytes(self.kernel.static_shared, dynamic_shared)

    @property
    def local_bytes(self) -> int:
        """Local memory of each thread."""
        stack = self.kernel.stack_bytes
        return -(-(stack + STACK_RESERVED_BYTES) // 16) * 16 if stack else 0

    def _qmd(self, grid: Grid, block: Grid, dynamic_shared: int) -> bytes:
        kernel, chip = self.kernel, self.chip
        shared = self.shared_bytes(dynamic_shared)
        values: dict[str, Any] = {
            "qmd_group_id": GROUP_ID,
            "invalidate_texture_header_cache": 1,
            "invalidate_texture_sampler_cache": 1,
            "invalidate_texture_data_cache": 1,
            "invalidate_shader_data_cache": 1,
            "cwd_membar_type": 1,
            "cta_thread_dimension0": block[0],
            "cta_thread_dimension1": block[1],
            "cta_thread_dimension2": block[2],
            "grid_width": grid[0],
            "grid_height": grid[1],
            "grid_depth": grid[2],
            "program_address": self.va + kernel.code_at,
            "register_count": kernel.registers,
            "barrier_count": max(kernel.barriers, 1),
            "shared_memory_size": shared,
            "min_sm_config_shared_mem_size": chip.sm_config(shared),
            "target_sm_config_shared_mem_size": chip.target_sm_config(
                shared, block[0] * block[1] * block[2], kernel.registers
            ),
            "max_sm_config_shared_mem_size": chip.largest_sm_config,
            "shader_local_memory_high_size": self.local_bytes,
            "sass_version": chip.sass_version,
            "constant_buffer_addr_0": self.qmd_bytes,
            "constant_buffer_size_0": self.bank_bytes,
            "constant_buffer_valid_0": 1,
            "constant_buffer_invalidate_0": 1,
        }
        for bank, offset, size in kernel.banks:
            values[f"constant_buffer_addr_{bank}"] = self.va + offset
            values[f"constant_buffer_size_{bank}"] = -(-size // 16) * 16
            values[f"constant_buffer_valid_{bank}"] = 1
            values[f"constant_buffer_invalidate_{bank}"] = (
                1  # the host, or a copy, may have filled a variable
            )
        if (
            prod(kernel.cluster) > 1
        ):  # inferred from the fields' names: CUDA's driver was not seen to launch one
            values["qmd_type"] = QmdType.GRID_GPC_CGA
            for direction, size in zip(("width", "height", "depth"), kernel.cluster):
                values[f"gpc_cga_{direction}"] = size
        return chip.qmd.launch(**values).to_bytes()

    def _bank(self, grid: Grid, block: Grid, dynamic_shared: int, workspace: int) -> bytes:
        """The driver's part of constant bank 0, and room for the parameters."""
        kernel, chip = self.kernel, self.chip
        params_at = self.qmd_bytes + kernel.param_base
        # the reserved part of shared memory is its first KiB, or its last
        reserved_end = RESERVED_SHARED_BYTES if chip.shared_first else self.shared_bytes(dynamic_shared)
        bank3 = next((offset for bank, offset, _ in kernel.banks if bank == CONST_BANK), None)
        values = {
            **{f"ntid_{axis}": size for axis, size in zip("xyz", block)},
            **{f"nctaid_{axis}": size for axis, size in zip("xyz", grid)},
            **{f"nclusterid_{axis}": size // width for axis, size, width in zip("xyz", grid, kernel.cluster)},
            "shared_window": SHARED_WINDOW,
            "local_window": LOCAL_WINDOW,
            "stack_pointer": STACK_TOP,
            "dynamic_shared_bytes": dynamic_shared,
            "reserved_shared_bytes": RESERVED_SHARED_BYTES,
            "reserved_shared_end": reserved_end,
            "reserved_shared_slot": reserved_end - RESERVED_SHARED_BYTES + RESERVED_SLOT_AT,
            "aggr_shared_bytes": max(kernel.static_shared, RESERVED_SHARED_BYTES) + dynamic_shared,
            "nsmid": self.sm_count,
            "bank_address": self.qmd_bytes,
            "const_address": 0 if bank3 is None else self.va + bank3,
            "param_end_offset": kernel.param_base + kernel.param_bytes,
            "param_address": params_at,
            "param_end": params_at + kernel.param_bytes,
            **{f"cluster_nctaid_{axis}": width for axis, width in zip("xyz", kernel.cluster)},
            **{
                f"cluster_reciprocal_{axis}": _reciprocal(width) for axis, width in zip("xyz", kernel.cluster)
            },
            "cluster_nctarank": prod(kernel.cluster),
            "is_explicit_cluster": int(prod(kernel.cluster) > 1),
            # %envreg1 is the high half of the workspace's address, %envreg2 the low one
            "envreg": (workspace >> 32) << 32 | (workspace & 0xFFFFFFFF) << 64,
        }
        layout: type[Bank0] = chip.bank0
        filled = layout(
            **{
                name: values[name.removesuffix("_low")]
                for name in layout.fields
                if name.removesuffix("_low") in values
            }
        )
        return filled.to_bytes().ljust(self.bank_bytes, b"\0")

    def _addresses(self, before_bytes: int) -> tuple[Patch, ...]:
        """Where the address of the launch data goes: into the QMD, into the bank, into the method that launches."""
        qmd, bank0 = self.chip.qmd, self.chip.bank0
        found: list[Patch] = [self._in_words(qmd.fields["constant_buffer_addr_0"], 4)]
        for name in bank0.addresses:
            found.append((4 + self.qmd_bytes + bank0.fields[name].byte_offset, 0, TWO_WORDS))
        method = self.data_bytes + before_bytes + 4
        found.append((method, SendPcasA.qmd_address_shifted8.unit.bit_length() - 1, WORD))
        return tuple(found)

    def _in_words(self, field: Bits, start: int) -> Patch:
        """A field that begins a word and goes on into the next: what is above it there is not reached by the sum."""
        return start + field.low // 8, field.unit.bit_length() - 1, TWO_WORDS

    def _methods(self) -> bytes:
        action = INVALIDATE_PREFETCH_COPY_SCHEDULE if self.chip.arch == "sm_90" else INVALIDATE_COPY_SCHEDULE
        return (
            incrementing(COMPUTE_SUBCHANNEL, SendPcasA()).to_bytes()
            + immediate(COMPUTE_SUBCHANNEL, self.chip.launch_method(pcas_action=action)).to_bytes()
            + wait_for_idle()
        )


def _reciprocal(size: int) -> int:
    """1 / size as the bits of a float."""
    (bits,) = struct.unpack("<I", struct.pack("<f", 1 / size))
    return int(bits)
