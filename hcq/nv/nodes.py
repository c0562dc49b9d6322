"""Device files of NVIDIA's kernel driver, which makes none itself: they are made here, or the command is said.

In       the path of a file that is not there, while the module is loaded: a virtual machine without udev, before CUDA's
         first use
Out      a descriptor of it; DriverError with the command that makes it
Changes  /dev, as root; otherwise what nvidia-modprobe does, which is installed to act as root for this
Next     process.py, gpu.py (who open them), hcq/doctor/access.py (what else may be in the way of a file)
Source   NVIDIA's driver README, "How and when are the NVIDIA device files created?"; nvidia-modprobe(1); /proc/devices
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import subprocess

from hcq.errors import DriverError
from hcq.system.port import LinuxPort, Port, root_of

CONTROL_MINOR, UVM_MINOR = 255, 0
UVM = "/dev/nvidia-uvm"
MAKE = ("nvidia-modprobe", "-c0", "-u")
RUN_S = 30.0  # loading the module for unified memory takes seconds
PARAMS = "/proc/driver/nvidia/params"
USUAL_MODE = 0o666


class System:
    """What making a file takes of the operating system."""

    def is_root(self) -> bool:
        """Whether this process may make device files."""
        return os.geteuid() == 0

    def make(self, path: str, mode: int, major: int, minor: int) -> None:
        """A character device. Raises OSError."""
        os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
        os.chmod(path, mode)  # whatever the umask is

    def run(self, words: tuple[str, ...]) -> bool:
        """Run a program, where it is installed; whether it said that all is well."""
        program = shutil.which(words[0], path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin:/sbin")
        if program is None:
            return False
        try:
            ended = subprocess.run(
                [program, *words[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=RUN_S
            )
        except (OSError, subprocess.SubprocessError):
            return False
        return ended.returncode == 0


SYSTEM = System()


def is_loaded(port: Port) -> bool:
    """Whether the kernel has NVIDIA's module, whatever is in /dev."""
    return bool(_majors(port).keys() & {"nvidia", "nvidia-frontend"})


def open_node(port: Port, path: str, system: System | None = None) -> int:
    """Open a device file; one that is not there while its module is loaded is made first.

    Raises  DriverError as port.open, with the command that makes the file where it cannot be made from here
    """
    try:
        return port.open(path)
    except DriverError as error:
        if error.errno != errno.ENOENT or not isinstance(root_of(port), LinuxPort) or not is_loaded(port):
            raise
    why = _make(port, path, system or SYSTEM)
    try:
        return port.open(path)
    except DriverError as error:
        if error.errno == errno.ENOENT:
            refusal = DriverError(f"open({path}) -> ENOENT: the kernel has NVIDIA's module, and {why}")
            refusal.errno = errno.ENOENT
            raise refusal from None
        raise


def _make(port: Port, path: str, system: System) -> str:
    """Make a file. Returns what to say where it is still not there."""
    major, minor = _number(port, path)
    by_hand = f" (or: sudo mknod -m 666 {path} c {major} {minor})" if major else ""
    command = f"sudo {' '.join(MAKE)}{by_hand}"
    mode = _mode(port)
    if mode is None:
        return f"its parameter ModifyDeviceFiles is 0, so its files are not ours to make. Run: {command}"
    if major and system.is_root():
        try:
            system.make(path, mode, major, minor)
        except FileExistsError:  # another process was quicker
            return f"the file that was made is gone again. Run: {command}"
        except OSError as error:
            return f"this process may not make the file ({error.strerror}). Pass it into the container, or: {command}"
        return f"the file that was made is gone again. Run: {command}"
    number = re.fullmatch(r"/dev/nvidia(\d+)", path)
    system.run((MAKE[0], f"-c{number[1] if number else 0}", MAKE[2]))
    return f"nobody has made this file. Run: {command}"


def _number(port: Port, path: str) -> tuple[int, int]:
    """Major and minor of a device file; major 0 where its module is not loaded."""
    majors = _majors(port)
    if path == UVM:
        return majors.get("nvidia-uvm", 0), UVM_MINOR
    number = re.fullmatch(r"/dev/nvidia(\d+)", path)
    return majors.get("nvidia", majors.get("nvidia-frontend", 0)), int(number[1]) if number else CONTROL_MINOR


def _majors(port: Port) -> dict[str, int]:
    """Names of character devices and their major numbers."""
    text = _text(port, "/proc/devices").partition("Block devices")[0]
    return {name: int(number) for number, name in re.findall(r"^ *(\d+) (\S+)$", text, re.MULTILINE)}


def _mode(port: Port) -> int | None:
    """The permissions that the module's parameters want for its files; None where they are not to be touched."""
    params = dict(re.findall(r"^(\w+): (\w+)$", _text(port, PARAMS), re.MULTILINE))
    if params.get("ModifyDeviceFiles") == "0":
        return None
    mode = params.get("DeviceFileMode", "")
    return int(mode) & 0o777 if mode.isdecimal() else USUAL_MODE


def _text(port: Port, path: str) -> str:
    try:
        return port.read_file(path).decode("utf-8", "replace")
    except DriverError:
        return ""
