"""AMD's runtime below HIP: the few calls of HSA that a launch and a copy need, under the names of driver_api.py.

In       libhsa-runtime64, where it is installed; ctypes, which Python brings
Out      HsaApi: open, load, launch, copy, synchronize; Failure naming a call that was refused
Changes  a queue and memory of a GPU, in this process
Next     driver_api.py (HIP and CUDA, which are asked first), watch.py (what the library asks of the kernel meanwhile)
Source   HSA Runtime Programmer's Reference Manual 1.2: calls, attributes, AQL; hsa_ext_amd.h: pools, copies, locks
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Any

from hcq.doctor.check import Failure, Skip

LIBRARIES = ("libhsa-runtime64.so.1", "libhsa-runtime64.so")
LOOK = "rocminfo  # does the vendor's runtime work at all?"
# hsa_agent_info_t, hsa_device_type_t, hsa_system_info_t
AGENT_NAME, AGENT_DEVICE, DEVICE_CPU, DEVICE_GPU, VERSION_MAJOR, VERSION_MINOR = 0, 17, 0, 1, 0, 1
# hsa_amd_memory_pool_info_t; hsa_amd_memory_pool_global_flag_t
POOL_SEGMENT, POOL_FLAGS, POOL_IS_ALLOCATABLE, GLOBAL = 0, 1, 5, 0
KERNARG_INIT, COARSE_GRAINED = 1, 4
# hsa_executable_symbol_info_t
KERNARG_BYTES, GROUP_BYTES, PRIVATE_BYTES, KERNEL_OBJECT = 11, 13, 14, 22
QUEUE_SIZE, PACKET_BYTES, QUEUE_BASE_AT, QUEUE_DOORBELL_AT = 64, 64, 8, 16
# of a packet's header: KERNEL_DISPATCH; acquire and release for the system
DISPATCH = 2 | 2 << 9 | 2 << 11
ONE_DIMENSION = 1
LESS, BLOCKED = 2, 0  # hsa_signal_condition_t, hsa_wait_state_t
WAIT_NS, PIECE_NS = 5_000_000_000, 100_000_000
KERNARG_ROOM = 4096
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p)
handle = ctypes.c_uint64


class HsaApi:
    """HSA in this process, on one GPU; a call is done when it returns. Raises Skip where it is not installed."""

    title, library_name, look = "HSA", LIBRARIES[0], LOOK

    def __init__(self) -> None:
        self.library = _library()
        self.gpu = self.cpu = 0
        self.agents: dict[int, list[int]] = {DEVICE_CPU: [], DEVICE_GPU: []}
        self.kernarg, self.queue = ctypes.c_void_p(), ctypes.c_void_p()
        self.done = handle()
        self.host_pool = self.device_pool = 0

    def call(self, name: str, *given: Any) -> None:
        """One call. Raises Failure with the status that it answered."""
        status = getattr(self.library, name)(*given)
        if status:
            said = ctypes.c_char_p()
            self.library.hsa_status_string(status, ctypes.byref(said))
            text = (said.value or b"").decode("utf-8", "replace").strip()
            raise Failure(f"{name} -> HSA status {status:#x}. {text}", LOOK)

    def open(self, number: int) -> str:
        """Start the runtime, make a queue on one of the GPUs: its architecture."""
        self.call("hsa_init")
        for agent in self._each("hsa_iterate_agents"):
            kind = self._number("hsa_agent_get_info", agent, AGENT_DEVICE)
            self.agents.setdefault(kind, []).append(agent)
        if len(self.agents[DEVICE_GPU]) <= number:
            raise Skip(f"HSA lists {len(self.agents[DEVICE_GPU])} GPUs")
        self.gpu, self.cpu = self.agents[DEVICE_GPU][number], self.agents[DEVICE_CPU][0]
        self.device_pool = self._pool(self.gpu, COARSE_GRAINED)
        self.host_pool = self._pool(self.cpu, KERNARG_INIT)
        self.kernarg = self._allocate(self.host_pool, KERNARG_ROOM)
        gpu = handle(self.gpu)
        self.call("hsa_amd_agents_allow_access", 1, ctypes.byref(gpu), None, self.kernarg)
        most = ctypes.c_uint32(2**32 - 1)
        self.call("hsa_queue_create", gpu, QUEUE_SIZE, 0, None, None, most, most, ctypes.byref(self.queue))
        self.call("hsa_signal_create", ctypes.c_int64(1), 0, None, ctypes.byref(self.done))
        name = ctypes.create_string_buffer(64)
        self.call("hsa_agent_get_info", gpu, AGENT_NAME, name)
        return name.value.decode()

    def version(self) -> str:
        """The interface's version, of which there are two parts."""
        found = [ctypes.c_uint16(), ctypes.c_uint16()]
        for attribute, into in zip((VERSION_MAJOR, VERSION_MINOR), found):
            self.call("hsa_system_get_info", attribute, ctypes.byref(into))
        return ".".join(str(one.value) for one in found)

    def load(self, image: bytes) -> ctypes.c_void_p:
        """An executable out of a linked code object."""
        reader, made = handle(), ctypes.c_void_p()
        self.image = ctypes.create_string_buffer(image, len(image))  # the reader reads it later
        size = ctypes.c_size_t(len(image))
        self.call("hsa_code_object_reader_create_from_memory", self.image, size, ctypes.byref(reader))
        self.call("hsa_executable_create_alt", 1, 0, None, ctypes.byref(made))
        self.call("hsa_executable_load_agent_code_object", made, handle(self.gpu), reader, None, None)
        self.call("hsa_executable_freeze", made, None)
        return made

    def function(self, module: ctypes.c_void_p, name: str) -> ctypes.c_void_p:
        """A kernel of an executable."""
        found, gpu = ctypes.c_void_p(), handle(self.gpu)
        symbol = f"{name}.kd".encode()
        given = module, symbol, ctypes.byref(gpu), ctypes.byref(found)
        self.call("hsa_executable_get_symbol_by_name", *given)
        return found

    def alloc(self, size_bytes: int) -> int:
        """Memory of the GPU: its address."""
        return self._allocate(self.device_pool, size_bytes).value or 0

    def launch(self, function: ctypes.c_void_p, blocks: int, threads: int, arguments: Sequence[Any]) -> None:
        """One launch of a row of blocks: a packet in the queue, and back when its signal says so."""
        wanted = KERNARG_BYTES, GROUP_BYTES, PRIVATE_BYTES
        kernarg, group, private = (
            self._number("hsa_executable_symbol_get_info", function.value or 0, one) for one in wanted
        )
        code = ctypes.c_uint64()
        self.call("hsa_executable_symbol_get_info", function, KERNEL_OBJECT, ctypes.byref(code))
        packed = pack(arguments).ljust(kernarg, b"\0")
        if len(packed) > KERNARG_ROOM:
            raise Failure(f"{len(packed)} bytes of arguments are more than {KERNARG_ROOM}.", LOOK)
        ctypes.memmove(self.kernarg, packed, len(packed))
        self._expect_one()
        packet = struct.pack(
            "<HHHHHHIIIIIQQQQ", DISPATCH, ONE_DIMENSION, threads, 1, 1, 0, blocks * threads, 1, 1, private, group,
            code.value, self.kernarg.value or 0, 0, self.done.value,
        )  # fmt: skip
        add = self.library.hsa_queue_add_write_index_screlease
        add.restype = ctypes.c_uint64
        index = add(self.queue, ctypes.c_uint64(1))
        queue = self.queue.value or 0
        base = ctypes.c_uint64.from_address(queue + QUEUE_BASE_AT).value
        at = base + index % QUEUE_SIZE * PACKET_BYTES
        ctypes.memmove(at + 4, packet[4:], PACKET_BYTES - 4)
        # the header last: from then on the packet processor may read all of it
        ctypes.c_uint32.from_address(at).value = int.from_bytes(packet[:4], "little")
        doorbell = ctypes.c_uint64.from_address(queue + QUEUE_DOORBELL_AT)
        self.library.hsa_signal_store_screlease(doorbell, ctypes.c_int64(index))
        self._wait("a launch")

    def copy_in(self, dst: int, host: Any, size_bytes: int) -> None:
        """Host to device."""
        self._copy_locked(host, size_bytes, lambda at: self._copy(dst, self.gpu, at, self.cpu, size_bytes))

    def copy_out(self, host: Any, src: int, size_bytes: int) -> None:
        """Device to host."""
        self._copy_locked(host, size_bytes, lambda at: self._copy(at, self.cpu, src, self.gpu, size_bytes))

    def synchronize(self) -> None:
        """Everything was done when it returned."""

    def _copy_locked(self, host: Any, size_bytes: int, copied: Callable[[int], None]) -> None:
        """Memory of this process, where the GPU reaches it meanwhile."""
        at, gpu = ctypes.c_void_p(), handle(self.gpu)
        size = ctypes.c_size_t(size_bytes)
        self.call("hsa_amd_memory_lock", host, size, ctypes.byref(gpu), 1, ctypes.byref(at))
        try:
            copied(at.value or 0)
        finally:
            self.call("hsa_amd_memory_unlock", host)

    def _copy(self, dst: int, to: int, src: int, from_: int, size_bytes: int) -> None:
        self._expect_one()
        given = (
            ctypes.c_void_p(dst),
            handle(to),
            ctypes.c_void_p(src),
            handle(from_),
            ctypes.c_size_t(size_bytes),
        )
        self.call("hsa_amd_memory_async_copy", *given, 0, None, self.done)
        self._wait("a copy")

    def _expect_one(self) -> None:
        self.library.hsa_signal_store_screlease(self.done, ctypes.c_int64(1))

    def _wait(self, what: str) -> None:
        """Until the signal is below 1. A wait may return early, so it goes on in pieces."""
        wait = self.library.hsa_signal_wait_scacquire
        wait.restype = ctypes.c_int64
        piece = ctypes.c_uint64(PIECE_NS)
        for _ in range(WAIT_NS // PIECE_NS):
            if wait(self.done, LESS, ctypes.c_int64(1), piece, BLOCKED) < 1:
                return
        raise Failure(f"HSA: {what} was not done after {WAIT_NS // 10**9} s.", LOOK)

    def _pool(self, agent: int, flag: int) -> int:
        """An agent's pool of memory with a flag."""
        for pool in self._each("hsa_amd_agent_iterate_memory_pools", handle(agent)):
            segment, flags, is_allocatable = (
                self._number("hsa_amd_memory_pool_get_info", pool, attribute)
                for attribute in (POOL_SEGMENT, POOL_FLAGS, POOL_IS_ALLOCATABLE)
            )
            if segment == GLOBAL and flags & flag and is_allocatable & 0xFF:
                return pool
        raise Failure(f"HSA: an agent has no pool of memory with flag {flag}.", LOOK)

    def _allocate(self, pool: int, size_bytes: int) -> ctypes.c_void_p:
        found = ctypes.c_void_p()
        size = ctypes.c_size_t(size_bytes)
        self.call("hsa_amd_memory_pool_allocate", handle(pool), size, 0, ctypes.byref(found))
        return found

    def _each(self, name: str, *given: Any) -> list[int]:
        """What an iterator of HSA calls back with."""
        found: list[int] = []

        def note(one: int, data: Any) -> int:
            found.append(one)
            return 0

        self.call(name, *given, CALLBACK(note), None)
        return found

    def _number(self, name: str, of: int, attribute: int) -> int:
        into = ctypes.c_uint32()
        self.call(name, handle(of), attribute, ctypes.byref(into))
        return into.value


def pack(arguments: Sequence[Any]) -> bytes:
    """Arguments as a kernel's segment has them: each at a multiple of its size."""
    made = b""
    for one in arguments:
        data = bytes(one)
        made = made.ljust(-(-len(made) // len(data)) * len(data), b"\0") + data
    return made


def _library() -> Any:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise Skip(f"{LIBRARIES[0]} is not installed: what AMD's runtime does is left out")
