"""A GPU of the process: its file, its RM device, its place in UVM. Made once, and kept while the process lives.

In       one entry of the driver's list of cards
Out      Gpu: handles, UUID, classes, doorbell page, sizes
Changes  attaches the GPU, which can take seconds; what fails half-way is given back
Next     process.py (the client), device.py (the steps that call these functions), channel.py (what comes next)
Source   ctrl0000.h, ctrl0080.h, ctrl2080.h; uvm_ioctl.h. One UVM file knows one address space for each GPU
"""

from __future__ import annotations

import struct
import threading

from hcq.errors import DriverError, HcqError
from hcq.nv.abi import ioctls as calls
from hcq.nv.abi.args import Args
from hcq.nv.abi.classes import COMPUTE, COPY, GPFIFO, USERMODE, ClassId, newest
from hcq.nv.abi.controls import ControlId
from hcq.nv.abi.gpfifo import USERMODE_BYTES
from hcq.nv.chip import Chip, chip_of
from hcq.nv.ioctl import call
from hcq.nv.process import NvProcess
from hcq.nv.rm import Rm
from hcq.system import native
from hcq.system.port import Port, of_process

GID_BINARY = 2  # the UUID as 16 bytes
SM_VERSION, MAX_WARPS_PER_SM, NUM_GPCS, TPCS_PER_GPC, SMS_PER_TPC = 12, 13, 20, 23, 32  # of GR_GET_INFO
BAR1_SIZE_KB, RAM_SIZE_KB = 5, 7  # of FB_GET_INFO_V2
VASPACE_FLAGS = 0x48  # IS_EXTERNALLY_OWNED: by UVM; ENABLE_PAGE_FAULTING
VASPACE_BASE = 0x1000
# whose doorbell may be in BAR1. In BAR0 of such GPUs it overtakes stores (kbusFlushPcieForBar0Doorbell_GH100)
BAR1_USERMODES = frozenset({ClassId.HOPPER_USERMODE_A, ClassId.BLACKWELL_USERMODE_A})


class Gpu:
    """What devices on one GPU share. The functions are called in this order, each as a step of opening.

    fd  its file, open since the GPU was found
    """

    def __init__(self, process: NvProcess, card: Args, fd: int) -> None:
        self.process, self.card = process, card
        self.path = f"/dev/nvidia{card.values['minor_number']}"
        self.gpu_id = int(card.values["gpu_id"])
        self.fd = fd
        self.device = self.subdevice = self.vaspace = 0
        self.uuid = b""
        self.sm_version = 0  # as long as nobody has asked
        self.is_registered = False
        self.doorbell_va = 0
        self.reads_put_back = False  # before the doorbell is rung
        self.is_ready = False
        self.usermodes: list[ClassId] = []
        self.tpcs_of_gpcs: list[int] = []  # as far as RM tells it
        self.chip: Chip

    def attach(self, port: Port) -> None:
        """Tie the GPU's file to the client."""
        rm = self.process.client(port)
        call(rm.abi, port, self.fd, calls.REGISTER_FD, ctl_fd=rm.ctl_fd)

    def make_device(self, rm: Rm) -> None:
        """The device and its subdevice."""
        found = rm.control(rm.client, ControlId.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2, gpuid=self.gpu_id).values
        self.device = rm.alloc(
            rm.client, ClassId.NV01_DEVICE_0, deviceid=found["deviceinstance"], hclientshare=rm.client
        )
        self.subdevice = rm.alloc(
            self.device, ClassId.NV20_SUBDEVICE_0, subdeviceid=found["subdeviceinstance"]
        )

    def ask(self, rm: Rm) -> None:
        """Its UUID, what it is called, how many SMs it has, how much memory, and how much of that the host sees."""
        gid = rm.control(self.subdevice, ControlId.NV2080_CTRL_CMD_GPU_GET_GID_INFO, flags=GID_BINARY)
        self.uuid = int(gid.values["data"]).to_bytes(256, "little")[:16]
        named = rm.control(self.subdevice, ControlId.NV2080_CTRL_CMD_GPU_GET_NAME_STRING)
        text = int(named.values["gpunamestring"]).to_bytes(64, "little").partition(b"\0")[0]
        self.name = text.decode("ascii", "replace")
        names = (SM_VERSION, MAX_WARPS_PER_SM, NUM_GPCS, TPCS_PER_GPC, SMS_PER_TPC)
        version, self.max_warps, gpcs, tpcs, sms = rm.control_list(
            self.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_INFO, "grinfo", names
        )
        self.sm_version = version
        # of the design: local memory is laid out for those that this part lacks, too
        self.tpc_count = gpcs * tpcs
        self.sm_count = self._tpcs(rm, gpcs) * sms
        wanted = (BAR1_SIZE_KB, RAM_SIZE_KB)
        pairs = b"".join(struct.pack("<2I", index, 0) for index in wanted)
        fields = {"fbinfolistsize": len(wanted), "fbinfolist": int.from_bytes(pairs, "little")}
        got = int(
            rm.control(self.subdevice, ControlId.NV2080_CTRL_CMD_FB_GET_INFO_V2, **fields).values[
                "fbinfolist"
            ]
        )
        bar1_kb, ram_kb = (got >> 64 * number + 32 & 0xFFFFFFFF for number in range(2))
        self.bar1_bytes, self.ram_bytes = bar1_kb << 10, ram_kb << 10

    def _tpcs(self, rm: Rm, gpcs: int) -> int:
        """How many TPCs there are: each GPC says its own; one that is not there says 0."""
        self.tpcs_of_gpcs = []
        for gpc in range(gpcs):
            try:
                said = rm.control(self.subdevice, ControlId.NV2080_CTRL_CMD_GR_GET_TPC_MASK, gpcid=gpc)
            except DriverError:  # a sandbox, or a part of a GPU, which has fewer
                break
            self.tpcs_of_gpcs.append(int(said.values["tpcmask"]).bit_count())
        return sum(self.tpcs_of_gpcs) or self.tpc_count

    def pick_classes(self, rm: Rm) -> None:
        """The newest classes that this GPU lists and we know."""
        layout = rm.control(self.device, ControlId.NV0080_CTRL_CMD_GPU_GET_CLASSLIST_V2)
        count = int(layout.values["numclasses"])
        listed = [int(layout.values["classlist"]) >> 32 * number & 0xFFFFFFFF for number in range(count)]
        self.chip = chip_of(newest(listed, COMPUTE)).with_sms(self.sm_version)
        for wanted, known in ((self.chip.engines.copy, COPY), (self.chip.engines.gpfifo, GPFIFO)):
            if wanted not in listed:
                raise DriverError(
                    f"GPU {self.gpu_id:#x} lists {self.chip.engines.compute.name} without {wanted.name}, but "
                    f"{newest(listed, known).name}. This driver does not know such a GPU."
                )
        newest(listed, USERMODE)
        self.usermodes = [known for known in USERMODE if known in listed]

    def map_doorbell(self, rm: Rm) -> None:
        """The page where a store makes the GPU look at a channel. Some containers allow only an older class for it."""
        for number, usermode in enumerate(self.usermodes, 1):
            # inferred: through BAR1, as CUDA's driver was seen to map it. Without parameters it would be in BAR0
            is_new = usermode in BAR1_USERMODES
            fields = {"bbar1mapping": 1} if is_new else {}
            try:
                page = rm.alloc(self.subdevice, usermode, **fields)
                break
            except DriverError:
                if number == len(self.usermodes):
                    raise
        self.reads_put_back = not is_new and not BAR1_USERMODES.isdisjoint(self.usermodes)
        self.doorbell_va, _ = rm.map(self.subdevice, page, USERMODE_BYTES, self.path)
        self.doorbell = native.view(self.doorbell_va, USERMODE_BYTES)

    def register(self, port: Port) -> None:
        """Tell UVM of the GPU."""
        self.process.open_uvm(port)
        self.process.register_gpu(port, self.uuid)
        self.is_registered = True

    def make_vaspace(self, rm: Rm, port: Port) -> None:
        """An address space whose page tables are UVM's."""
        self.vaspace = rm.alloc(
            self.device, ClassId.FERMI_VASPACE_A, flags=VASPACE_FLAGS, vabase=VASPACE_BASE
        )
        call(
            rm.abi,
            port,
            self.process.uvm_fd,
            calls.UVM_REGISTER_GPU_VASPACE,
            gpuuuid=int.from_bytes(self.uuid, "little"),
            rmctrlfd=rm.ctl_fd,
            hclient=rm.client,
            hvaspace=self.vaspace,
        )
        self.is_ready = True

    def give_up(self, port: Port) -> None:
        """Give back what half an opening made. The error that led here is the one to raise, so nothing is raised."""
        try:
            if self.doorbell_va:
                port.munmap(self.doorbell_va, USERMODE_BYTES)
            if self.is_registered:
                self.process.unregister_gpu(port, self.uuid)
            if self.device:
                self.process.client(port).free(self.device)
            if self.fd >= 0:
                port.close(self.fd)
        except HcqError:
            return


class Gpus:
    """The GPUs of the process that were attached. `attaching` is held while one is."""

    def __init__(self) -> None:
        self.attaching = threading.RLock()
        self.ready: dict[int, Gpu] = {}  # by the driver's id


def gpus_of(port: Port) -> Gpus:
    """The GPUs of the process as the operating system behind a port knows them."""
    return of_process(port, Gpus)
