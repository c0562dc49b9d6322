"""A process that speaks to the emulated resource manager and UVM in ioctls alone, without the driver of this package.

In       a word of HCQ_EMULATE
Out      Raw: each call is one method, and bring-up is the order that real hardware demands
Changes  the emulated driver
Next     test_rm.py, test_uvm.py, test_host.py, test_copy.py, test_compute.py
"""

from __future__ import annotations

import struct
import time
from typing import Any

import numpy as np

from hcq.emu.nv.rm import EmulatedRm
from hcq.emu.nv.spec import parse_all
from hcq.emu.port import EmulatedPort
from hcq.errors import DriverError
from hcq.nv.abi import ioctls as abi
from hcq.nv.abi.args import NO_FD
from hcq.nv.abi.classes import ARCHITECTURES, ClassId
from hcq.nv.abi.gpfifo import GpEntry
from hcq.nv.abi.image import KernelDescriptor, crc32
from hcq.nv.abi.ioctls import abi_for
from hcq.nv.abi.qmd import qmd_for
from hcq.nv.abi.status import NvStatus
from hcq.system import native
from hcq.system.port import MAP_FIXED, MAP_SHARED, PROT_READ, PROT_WRITE

ATTR_VIDEO, ATTR_SYSTEM = 0x1800_0000, 0x3A00_0000
EXTERNALLY_OWNED = 0x48
ENTRIES = 64
USERD_AT = ENTRIES * 8  # behind the ring
WINDOW = 0x10_0000_0000
WINDOW_BYTES = 512 << 20
POOL = 0x2_0000_0000
DEADLINE_SECONDS = 5
OPENED: list[Raw] = []


class Refused(Exception):
    """A status that is not NV_OK."""

    def __init__(self, status: int) -> None:
        super().__init__(NvStatus(status).name)
        self.status = NvStatus(status)


class Memory:
    """An allocation, its addresses, and its bytes where the process sees them."""

    def __init__(self, handle: int, va: int, size_bytes: int, is_video: bool) -> None:
        self.handle, self.va, self.size_bytes, self.is_video = handle, va, size_bytes, is_video
        self.host: Any = None
        self.cookie = 0

    def array(self, dtype: str = "u4") -> Any:
        return self.host.view(dtype)


class Raw:
    """One process with one GPU opened as far as `open` goes; the rest is done call by call."""

    def __init__(self, *words: str, gpu: int = 0, beside: Raw | None = None) -> None:
        """beside: another GPU of that process, with its client and its UVM file."""
        self.words = words or ("nv:sm_90",)
        self.beside = beside
        if beside is not None:
            self.words, self.port = beside.words, beside.port
        else:
            self.port = EmulatedPort([EmulatedRm(parse_all(list(self.words)))])
        self.rm: EmulatedRm = self.port.kernels[0]  # type: ignore[assignment]
        self.abi = abi_for(self.rm.version)
        self.arch = self.words[gpu].split(":")[1]
        self.engines = ARCHITECTURES[self.arch]
        self.emulated = self.rm.gpus[gpu]
        self.next_va = POOL
        self.put = 0
        OPENED.append(self)

    def end(self) -> None:
        """The process ends: its files close, and what they own goes."""
        for fd in list(self.port.files):
            self.port.close(fd)

    # ------------------------------------------------------------ calls

    def call(self, file: int, ioctl: Any, /, **fields: Any) -> Any:
        """Any call; Refused carries a status that is not NV_OK."""
        layout = self.abi.of(ioctl)
        argument = bytearray(layout(**fields).to_bytes())
        self.port.ioctl(file, ioctl.request, argument)
        got = layout.from_bytes(bytes(argument))
        status = got.values.get("rmstatus", got.values.get("status", 0))
        if status:
            raise Refused(status)
        return got

    def alloc(
        self, class_id: int, parent: int, structure: str | None = None, handle: int = 0, **fields: Any
    ) -> int:
        got = self.alloc_raw(
            class_id, parent, self.abi.make(structure, **fields).to_bytes() if structure else b"", handle
        )
        return int(got.hobjectnew)

    def alloc_raw(
        self, class_id: int, parent: int, params: bytes, handle: int = 0, size: int | None = None
    ) -> Any:
        memory = bytearray(params)
        where = native.address_of(memory) if params else 0
        got = self.call(
            self.ctl,
            abi.RM_ALLOC,
            hroot=self.client,
            hobjectparent=parent,
            hobjectnew=handle,
            hclass=class_id,
            pallocparms=where,
            paramssize=len(params) if size is None else size,
        )
        self.params = bytes(memory)
        return got

    def control(self, handle: int, command: int, size: int | None = None, **fields: Any) -> Any:
        layout = self.abi.layout(abi.CONTROLS[command])
        memory = bytearray(layout(**fields).to_bytes())
        self.call(
            self.ctl,
            abi.RM_CONTROL,
            hclient=self.client,
            hobject=handle,
            cmd=command,
            params=native.address_of(memory),
            paramssize=len(memory) if size is None else size,
        )
        return layout.from_bytes(bytes(memory))

    def free(self, handle: int) -> None:
        self.call(self.ctl, abi.RM_FREE, hroot=self.client, hobjectold=handle)

    def map(
        self, handle: int, size_bytes: int, fd: int | None = None, device: int = 0, offset: int = 0
    ) -> Any:
        """RM_MAP_MEMORY on a fresh file of a node, or on a given one. Returns the file and the answer."""
        got = self.call(
            self.ctl,
            abi.RM_MAP_MEMORY,
            hclient=self.client,
            hdevice=device or self.device,
            hmemory=handle,
            offset=offset,
            length=size_bytes,
            fd=fd if fd is not None else NO_FD,
        )
        return got

    # ------------------------------------------------------------ bring-up

    def open_client(self) -> Raw:
        if self.beside is not None:
            self.ctl, self.client = self.beside.ctl, self.beside.client
        else:
            self.ctl = self.port.open("/dev/nvidiactl")
            self.client = 0
            self.client = self.alloc(ClassId.NV01_ROOT_CLIENT, 0)
        self.node = f"/dev/nvidia{self.emulated.minor}"
        self.fd = self.port.open(self.node)
        self.call(self.fd, abi.REGISTER_FD, ctl_fd=self.ctl)
        return self

    def open_device(self) -> Raw:
        self.open_client()
        found = self.control(self.client, 0x205, gpuid=self.emulated.gpu_id)
        self.device = self.alloc(
            ClassId.NV01_DEVICE_0,
            self.client,
            "DeviceAlloc",
            deviceid=found.deviceinstance,
            hclientshare=self.client,
        )
        self.subdevice = self.alloc(ClassId.NV20_SUBDEVICE_0, self.device, "SubdeviceAlloc")
        uuid = self.control(self.subdevice, 0x2080014A, flags=2)
        self.uuid = uuid.data & (1 << 128) - 1
        self.usermode = self.alloc(self.engines.usermode, self.subdevice)
        fd = self.port.open(self.node)
        self.map(self.usermode, 0x10000, fd)
        at = self.port.mmap(0, 0x10000, PROT_READ | PROT_WRITE, MAP_SHARED, fd)
        self.registers = np.frombuffer(native.view(at, 0x10000), "<u4")
        return self

    def open_uvm(self, register: bool = True) -> Raw:
        self.open_device()
        if self.beside is not None:
            self.uvm, self.uvm2 = self.beside.uvm, self.beside.uvm2
        else:
            self.uvm = self.port.open("/dev/nvidia-uvm")
            self.call(self.uvm, abi.UVM_INITIALIZE)
            self.uvm2 = self.port.open("/dev/nvidia-uvm")
            self.call(self.uvm2, abi.UVM_MM_INITIALIZE, uvmfd=self.uvm)
        self.call(self.uvm, abi.UVM_REGISTER_GPU, gpu_uuid=self.uuid, rmctrlfd=NO_FD)
        self.space = self.alloc(
            ClassId.FERMI_VASPACE_A, self.device, "VaspaceAlloc", flags=EXTERNALLY_OWNED, vabase=0x1000
        )
        if register:
            self.register_space()
        return self

    def register_space(self) -> None:
        self.call(
            self.uvm,
            abi.UVM_REGISTER_GPU_VASPACE,
            gpuuuid=self.uuid,
            rmctrlfd=self.ctl,
            hclient=self.client,
            hvaspace=self.space,
        )

    def open_channel(self, schedule: bool = True, window: int = WINDOW, **fields: Any) -> Raw:
        self.open_uvm()
        self.ring = self.memory(1 << 16, is_video=self.emulated.spec.is_video_memory_mappable)
        self.ring.host[:] = 0
        self.notifier = self.memory(4096)
        self.add_group()
        self.add_channel(**fields)
        self.add_objects()
        self.register_channel(base=window)
        if schedule:
            self.schedule()
        return self

    def add_group(self, engine_type: int = 1) -> None:
        self.group = self.alloc(
            ClassId.KEPLER_CHANNEL_GROUP_A, self.device, "ChannelGroupAlloc", enginetype=engine_type
        )
        self.share = 0
        if engine_type == 1:
            self.share = self.alloc(
                ClassId.FERMI_CONTEXT_SHARE_A, self.group, "ContextShareAlloc", hvaspace=self.space, flags=1
            )

    def channel_fields(self, **fields: Any) -> dict[str, Any]:
        return {
            "hobjecterror": self.notifier.handle,
            "hobjectbuffer": self.ring.handle,
            "gpfifooffset": self.ring.va,
            "gpfifoentries": ENTRIES,
            "hcontextshare": self.share,
            "huserdmemory_0": self.ring.handle,
            "userdoffset_0": USERD_AT,
            **fields,
        }

    def add_channel(self, **fields: Any) -> None:
        self.channel = self.alloc(
            self.engines.gpfifo, self.group, "ChannelAlloc", **self.channel_fields(**fields)
        )
        self.userd = self.ring.host[USERD_AT : USERD_AT + 512].view("<u4")
        self.put = 0

    def add_objects(self) -> None:
        self.compute = self.alloc(self.engines.compute, self.channel)
        self.copy = self.alloc(self.engines.copy, self.channel)

    def register_channel(self, base: int = WINDOW, length: int = WINDOW_BYTES) -> None:
        self.call(
            self.uvm,
            abi.UVM_REGISTER_CHANNEL,
            gpuuuid=self.uuid,
            rmctrlfd=self.ctl,
            hclient=self.client,
            hchannel=self.channel,
            base=base,
            length=length,
        )

    def schedule(self) -> None:
        self.control(self.group, 0xA06C0101, benable=1)
        self.token = self.control(self.channel, 0xC36F0108).worksubmittoken

    # ------------------------------------------------------------ memory

    def allocate(self, size_bytes: int, is_video: bool = False) -> int:
        return self.alloc(
            ClassId.NV01_MEMORY_LOCAL_USER if is_video else ClassId.NV01_MEMORY_SYSTEM,
            self.device,
            "MemoryAlloc",
            owner=self.client,
            size=size_bytes,
            attr=ATTR_VIDEO if is_video else ATTR_SYSTEM,
        )

    def memory(self, size_bytes: int, is_video: bool = False, host: bool = True) -> Memory:
        """Memory that the process sees, unless `host` is false, and the GPU, at one address."""
        size_bytes = -(-size_bytes // 4096) * 4096
        made = Memory(self.allocate(size_bytes, is_video), self.take(size_bytes), size_bytes, is_video)
        if host:
            fd = self.port.open(self.node if is_video else "/dev/nvidiactl")
            made.cookie = self.map(made.handle, size_bytes, fd).plinearaddress
            at = self.port.mmap(made.va, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd)
            assert at == made.va
            made.host = np.frombuffer(native.view(at, size_bytes), np.uint8)
            self.port.close(fd)
        self.create_range(made.va, size_bytes)
        self.map_gpu(made)
        return made

    def take(self, size_bytes: int) -> int:
        """Addresses that nobody uses, with a gap behind them."""
        global _next_va
        va = _next_va
        _next_va += (size_bytes + 0xFFFF & ~0xFFFF) + 0x10000
        return va

    def create_range(self, va: int, size_bytes: int) -> None:
        self.call(self.uvm, abi.UVM_CREATE_EXTERNAL_RANGE, base=va, length=size_bytes)

    def map_gpu(self, memory: Memory, **fields: Any) -> None:
        self.call(
            self.uvm,
            abi.UVM_MAP_EXTERNAL_ALLOCATION,
            **{
                "base": memory.va,
                "length": memory.size_bytes,
                "pergpuattributes_0_gpuuuid": self.uuid,
                "pergpuattributes_0_gpumappingtype": 1,
                "gpuattributescount": 1,
                "rmctrlfd": self.ctl,
                "hclient": self.client,
                "hmemory": memory.handle,
                **fields,
            },
        )

    # ------------------------------------------------------------ work

    def push(self, words: list[int], ring: bool = True) -> None:
        """Put words into a fresh segment, an entry into the ring, and ring the doorbell."""
        segment = self.memory(4 * len(words))
        segment.array()[: len(words)] = words
        self.enter(segment.va, len(words), ring)

    def enter(self, va: int, length: int, ring: bool = True) -> None:
        self.enter_raw(GpEntry(get=va, length=length).words, ring)

    def enter_raw(self, words: Any, ring: bool = True) -> None:
        self.ring.array()[2 * self.put : 2 * self.put + 2] = words
        self.put = (self.put + 1) % ENTRIES
        self.userd[0x8C // 4] = self.put
        if ring:
            self.registers[0x90 // 4] = self.token

    def until(self, holds: Any, what: str = "it") -> None:
        """Wait for something to be true."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            assert time.monotonic() < deadline, f"waited for {what}; the log says {self.port.kernel_log()}"
            time.sleep(0.0002)

    def fault(self) -> tuple[int, str]:
        """Wait for the error notifier; the Xid, and the kernel's last line."""
        self.until(lambda: self.notifier.array("u2")[7] == 0xFFFF, "a fault")
        return int(self.notifier.array()[2]), self.port.kernel_log()[-1]


_next_va = POOL


def refusal(act: Any, *arguments: Any, **fields: Any) -> NvStatus | int:
    """The status, or the errno, with which a call is refused; NV_OK when it is not."""
    try:
        act(*arguments, **fields)
    except Refused as refused:
        return refused.status
    except DriverError as error:
        return int(error.errno or 0)
    return NvStatus.NV_OK


def methods(subchannel: int, address: int, *data: int) -> list[int]:
    """An incrementing header and its words."""
    return [1 << 29 | len(data) << 16 | subchannel << 13 | address >> 2, *data]


def release(va: int, value: int, control: int = 1 | 1 << 20) -> list[int]:
    """A host semaphore's release, after waiting for the engines."""
    return methods(0, 0x5C, va & 0xFFFFFFFF, va >> 32, value & 0xFFFFFFFF, value >> 32, control)


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


# ------------------------------------------------------------ kernels

SHARED_WINDOW, LOCAL_WINDOW = 0x70_0000_0000, 0xFF00_0000
BANKS = {  # ntid, nctaid, shared window, local window, stack pointer, parameters
    3: (0x000, 0x00C, 0x018, 0x020, 0x028, 0x160),
    4: (0x000, 0x00C, 0x018, 0x020, 0x028, 0x210),
    5: (0x360, 0x370, 0x2F0, 0x2F8, 0x37C, 0x380),
}
AXPY = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry axpy(.param .u64 axpy_y, .param .u64 axpy_x, .param .f32 axpy_a, .param .u32 axpy_n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<5>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [axpy_y];
    ld.param.u64 %rd2, [axpy_x];
    ld.param.f32 %f1, [axpy_a];
    ld.param.u32 %r1, [axpy_n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra END;
    mul.wide.u32 %rd3, %r5, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd5];
    ld.global.f32 %f3, [%rd4];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd4], %f4;
END:
    ret;
}
"""


class Loaded:
    """A kernel in GPU memory, with its descriptor before its code."""

    def __init__(self, raw: Raw, ptx: str, entry: str, param_bytes: int, **changes: Any) -> None:
        text = ptx.encode()
        self.memory = raw.memory(0x1000 + len(text))
        self.program = self.memory.va + 0x200
        self.put(text, entry, param_bytes, **changes)

    def put(self, text: bytes, entry: str, param_bytes: int, **changes: Any) -> None:
        va, host = self.memory.va, self.memory.host
        name = entry.encode() + b"\0"
        descriptor = KernelDescriptor(
            **{
                "ptx_address": va + 0x400,
                "ptx_bytes": len(text),
                "entry_name_address": va,
                "param_bytes": param_bytes,
                "ptx_crc32": crc32(text),
                **changes,
            }
        ).to_bytes()
        for at, data in ((0, name), (0x200 - 64, descriptor), (0x400, text)):
            host[at : at + len(data)] = np.frombuffer(data, np.uint8)


class Launch:
    """A QMD and its constant bank 0 in GPU memory."""

    def __init__(
        self,
        raw: Raw,
        program: int,
        params: bytes = b"",
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        **fields: Any,
    ) -> None:
        layout = qmd_for(raw.engines.compute)
        version = layout.version
        ntid, nctaid, shared, local, stack, at = BANKS[version]
        self.memory = raw.memory(0x4000)
        self.qmd_va, self.bank_va = self.memory.va, self.memory.va + 0x1000
        bank = bytearray(-(-max(at + len(params), 0x160) // 16) * 16)
        struct.pack_into("<3I", bank, ntid, *block)
        struct.pack_into("<3I", bank, nctaid, *grid)
        struct.pack_into(
            "<Q",
            bank,
            shared,
            SHARED_WINDOW if raw.emulated.chip.host_address_bits == 57 else LOW_SHARED_WINDOW,
        )
        struct.pack_into("<Q", bank, local, LOCAL_WINDOW)
        struct.pack_into("<I", bank, stack, 0xFFFDC0)
        bank[at : at + len(params)] = params
        self.bank = self.memory.host[0x1000 : 0x1000 + len(bank)]
        self.bank[:] = np.frombuffer(bytes(bank), np.uint8)
        self.values = {
            "grid_width": grid[0],
            "grid_height": grid[1],
            "grid_depth": grid[2],
            "cta_thread_dimension0": block[0],
            "cta_thread_dimension1": block[1],
            "cta_thread_dimension2": block[2],
            "program_address": program,
            "register_count": 32,
            "barrier_count": 1,
            "shared_memory_size": 0x400,
            "min_sm_config_shared_mem_size": 3,
            "target_sm_config_shared_mem_size": 3,
            "max_sm_config_shared_mem_size": 26,
            "constant_buffer_addr_0": self.bank_va,
            "constant_buffer_size_0": len(bank),
            "constant_buffer_valid_0": 1,
            "constant_buffer_invalidate_0": 1,
            **fields,
        }
        self.layout = layout
        self.write()

    def write(self, **fields: Any) -> None:
        """Write the QMD again, with other values."""
        self.values.update(fields)
        words = self.layout.launch(**self.values).words
        self.memory.array()[: len(words)] = words

    @property
    def words(self) -> list[int]:
        """The methods that launch it."""
        return methods(1, 0x2B4, self.qmd_va >> 8) + methods(1, 0x2C0, 3)


LOW_SHARED_WINDOW = 0xFE00_0000


def setup(raw: Raw) -> list[int]:
    """What a channel needs before its first launch."""
    shared = SHARED_WINDOW if raw.emulated.chip.host_address_bits == 57 else LOW_SHARED_WINDOW
    return [
        *methods(1, 0, raw.engines.compute),
        *methods(1, 0x2A0, shared >> 32, shared & 0xFFFFFFFF),
        *methods(1, 0x7B0, LOCAL_WINDOW >> 32, LOCAL_WINDOW & 0xFFFFFFFF),
    ]
