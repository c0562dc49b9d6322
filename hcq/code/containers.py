"""Containers: files that hold code objects, known by their first bytes; what is for a device is taken out of them.

In       the bytes that somebody wants to load
Out      the object in them that fits the device; or an error that names the container, and the tool that opens it
Next     elf.py (what is inside), nv/fatbin.py (NVIDIA's), hcq/device.py: take_out (who asks)
Source   clang's ClangOffloadBundler (format, and CCOB's versions 1 to 3), LLVM's OffloadBinary; ar(5)

No number in them is trusted: every part lies in the file, and nothing takes more memory than MAX_BYTES.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from hcq.errors import UsageError

MAX_BYTES = 1 << 29  # of what is decompressed
MAX_DEPTH = 4  # of containers in containers
MAX_MEMBERS = 1 << 16
SHOWN = 8  # names in an error
NO_ZSTD = "which this Python cannot read: take Python 3.14, or pip install zstandard"
BUNDLE, COMPRESSED, PACKAGE = b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB", b"\x10\xff\x10\xad"
ARCHIVE, FATBIN = b"!<arch>\n", b"\x50\xed\x55\xba"


class Kind(NamedTuple):
    """A format: what it is called, and what to do with it."""

    title: str
    fix: str


_UNBUNDLE = (
    "Take it apart with clang-offload-bundler --unbundle --type=o --targets=..., or compile it with "
    "--no-gpu-bundle-output"
)
_COMPILE = "Compile it for the device: clang -c, or llc -filetype=obj"
KINDS: dict[bytes, Kind] = {
    BUNDLE: Kind("a clang offload bundle", _UNBUNDLE),
    COMPRESSED: Kind("a compressed clang offload bundle", f"{_UNBUNDLE} -no-offload-compress"),
    PACKAGE: Kind(
        "an LLVM offload binary, as clang-offload-packager writes it",
        "Take it apart with llvm-offload-binary (clang-offload-packager in older releases)",
    ),
    FATBIN: Kind(
        "an NVIDIA fat binary (fatbin)", "Take it apart with cuobjdump -xelf all or cuobjdump -xptx all"
    ),
    b"\xb1\x43\x62\x46": Kind(
        "the wrapper of an NVIDIA fat binary (fatbin), which only points at one",
        "Load what nvcc -fatbin writes",
    ),
    ARCHIVE: Kind("an archive of ar", "Take it apart with ar x"),
    b"!<thin>\n": Kind("a thin archive of ar, which only names files", "Load one of those files"),
    b"BC\xc0\xde": Kind("LLVM bitcode", _COMPILE),
    b"\xde\xc0\x17\x0b": Kind("LLVM bitcode in a wrapper", _COMPILE),
    b"\x03\x02\x23\x07": Kind(
        "a SPIR-V module", "Translate it with llvm-spirv -r, and compile that for the device"
    ),
    b"\x07\x23\x02\x03": Kind(
        "a SPIR-V module", "Translate it with llvm-spirv -r, and compile that for the device"
    ),
    b"MTLB": Kind(
        "a Metal library (metallib)",
        "METAL takes the source of its kernels; metal-objdump shows what is in it",
    ),
}


class Member(NamedTuple):
    """Something in a container."""

    name: str
    data: bytes


Opener = Callable[[bytes, str], list[Member]]


def kind_of(image: bytes) -> Kind | None:
    """What container, or foreign form of code, these bytes begin; None for anything else."""
    return next((kind for first, kind in KINDS.items() if image.startswith(first)), None)


def taken_out(
    image: bytes,
    label: str,
    what: str,
    fits: Callable[[bytes], int],
    entry: str | None = None,
    more: Mapping[bytes, Opener] | None = None,
) -> bytes:
    """The object that fits best, where these bytes are a container; else the bytes themselves.

    what     the device in words, such as "gfx1100"
    fits     how well an object fits it: 0 not at all, more is better
    entry    a kernel that is wanted: of several that fit alike the one that names it
    more     openers of formats that only some devices know, by their first bytes
    Raises   UsageError that names the container and the tool that opens it, when nothing in it fits, or several do
    """
    kind = kind_of(image)
    if kind is None:
        return image
    openers = {**_OPENERS, **(more or {})}
    members = _leaves(image, label, openers, 0)
    if members is None:
        raise UsageError(f"load({label!r}): this is {kind.title}, which {what} does not run. {kind.fix}.")
    best = max((fits(one.data) for one in members), default=0)
    found = [one for one in members if best and fits(one.data) == best]
    if len(found) > 1 and entry is not None:
        found = [one for one in found if entry.encode() in one.data] or found
    if len({one.data for one in found}) == 1:
        return found[0].data
    if found:
        raise UsageError(
            f"load({label!r}): this is {kind.title} with {len(found)} objects that fit {what} ({_names(found)}). "
            f"Load one of them. {kind.fix}."
        )
    raise UsageError(
        f"load({label!r}): this is {kind.title}, and nothing in it is for {what}: it holds {_names(members)}. "
        f"Compile it for {what}. {kind.fix}."
    )


def _names(members: Sequence[Member]) -> str:
    rest = f" and {len(members) - SHOWN} more" if len(members) > SHOWN else ""
    return (", ".join(ascii(one.name)[1:-1][:80] for one in members[:SHOWN]) + rest) or "nothing"


def _leaves(image: bytes, label: str, openers: Mapping[bytes, Opener], depth: int) -> list[Member] | None:
    """Everything in a container that is none itself; None where the bytes are of a kind that nobody opens."""
    opener = next((one for first, one in openers.items() if image.startswith(first)), None)
    if opener is None or depth > MAX_DEPTH:
        return None
    found: list[Member] = []
    for member in opener(image, label):
        inside = _leaves(member.data, label, openers, depth + 1)
        found += [member] if inside is None else inside
        if len(found) > MAX_MEMBERS:
            raise damaged(image, label, f"it holds more than {MAX_MEMBERS} parts")
    return found


def damaged(image: bytes, label: str, why: str) -> UsageError:
    """The error for a container with something wrong in it."""
    kind = kind_of(image)
    return UsageError(
        f"load({label!r}): this is {kind.title if kind else 'a container'}, and it is damaged: {why}. Make it again."
    )


def part(image: bytes, label: str, offset: int, size: int, what: str) -> bytes:
    """Bytes of a container. Raises UsageError, saying what they are, when they do not lie in it."""
    if offset + size > len(image):
        raise damaged(image, label, f"{what} would end at byte {offset + size} of {len(image)}")
    return image[offset : offset + size]


def inflated(image: bytes, label: str, data: bytes, size: int, method: str) -> bytes:
    """Data that is compressed by zlib or zstd, of a size that is known before.

    Raises  UsageError when it is damaged, larger than MAX_BYTES, or this Python has no zstd
    """
    if method == "zstd" and not has_zstd():
        kind = kind_of(image)
        title, fix = kind or ("a container", "")
        raise UsageError(f"load({label!r}): this is {title}, compressed by zstd ({NO_ZSTD}). {fix}.")
    if size > MAX_BYTES:
        raise damaged(image, label, f"a part would have {size} bytes; {MAX_BYTES} at most")
    try:
        made = zlib.decompressobj().decompress(data, size + 1) if method == "zlib" else _zstd(data, size)
    except Exception as error:  # each library has its own
        raise damaged(image, label, f"{method}: {error}") from None
    if len(made) != size:
        raise damaged(image, label, f"a part has {len(made)} bytes, not the {size} that it says")
    return made


def has_zstd() -> bool:
    """Whether this Python decompresses zstd: from 3.14 on, others with the package zstandard."""
    return any(find_spec(name) is not None for name in ("compression", "zstandard"))


def _zstd(data: bytes, size: int) -> bytes:
    """At most so many bytes and one more."""
    if find_spec("compression") is not None:
        from compression.zstd import ZstdDecompressor  # type: ignore[import-not-found, unused-ignore]

        return bytes(ZstdDecompressor().decompress(data, size + 1))
    import zstandard  # type: ignore[import-not-found, unused-ignore]

    return bytes(zstandard.ZstdDecompressor().stream_reader(data).read(size + 1))


# ---------------------------------------------------------------- formats


def _bundle(image: bytes, label: str) -> list[Member]:
    """__CLANG_OFFLOAD_BUNDLE__: a number of parts, each with offset, size and a name such as hipv4-...--gfx1100."""
    at = len(BUNDLE)
    (count,) = struct.unpack("<Q", part(image, label, at, 8, "the number of its parts"))
    at += 8
    if count > MAX_MEMBERS:
        raise damaged(image, label, f"it counts {count} parts")
    found = []
    for _ in range(count):
        offset, size, length = struct.unpack("<QQQ", part(image, label, at, 24, "its table"))
        name = part(image, label, at + 24, length, "a name").decode("utf-8", "replace")
        at += 24 + length
        found.append(Member(name, part(image, label, offset, size, f"part {name[:80]!r}")))
    return found


def _compressed(image: bytes, label: str) -> list[Member]:
    """CCOB: version, method, sizes whose width depends on the version, a hash, a bundle that is compressed."""
    version, method = struct.unpack("<HH", part(image, label, 4, 4, "its header"))
    layouts = {1: "<IQ", 2: "<IIQ", 3: "<QQQ"}
    if version not in layouts or method > 1:
        raise damaged(image, label, f"version {version} with method {method} is none that is known")
    layout = struct.Struct(layouts[version])
    *sizes, _ = layout.unpack(part(image, label, 8, layout.size, "its header"))
    end = sizes[0] if len(sizes) == 2 else len(image)
    start = 8 + layout.size
    data = part(image, label, start, max(end - start, 0), "its contents")
    made = inflated(image, label, data, sizes[-1], "zstd" if method else "zlib")
    if not made.startswith(BUNDLE):
        raise damaged(image, label, "there is no bundle in it")
    return _bundle(made, label)


def _package(image: bytes, label: str) -> list[Member]:
    """0x10FF10AD: binaries one after the other, each with one image and strings that say what it is for."""
    found: list[Member] = []
    at = 0
    while image.startswith(PACKAGE, at):
        version, size, entry_at, entry_bytes = struct.unpack(
            "<IQQQ", part(image, label, at + 4, 28, "its header")
        )
        if version != 1 or entry_bytes < 40 or size < 72:
            raise damaged(image, label, f"version {version} with entries of {entry_bytes} bytes is not known")
        whole = part(image, label, at, size, "a binary")
        _, _, _, strings_at, count, image_at, image_bytes = struct.unpack(
            "<HHIQQQQ", part(whole, label, entry_at, 40, "an entry")
        )
        if count > MAX_MEMBERS:
            raise damaged(image, label, f"it counts {count} strings")
        said = {}
        for number in range(count):
            key, value = struct.unpack("<QQ", part(whole, label, strings_at + 16 * number, 16, "a string"))
            said[_text(whole, key)] = _text(whole, value)
        name = " ".join(said[key] for key in ("triple", "arch") if said.get(key)) or f"image {len(found)}"
        found.append(Member(name, part(whole, label, image_at, image_bytes, "an image")))
        at += -(-size // 8) * 8
        if len(found) > MAX_MEMBERS:
            raise damaged(image, label, f"it holds more than {MAX_MEMBERS} binaries")
    return found


def _text(data: bytes, at: int) -> str:
    return data[at : data.find(b"\0", at)][:256].decode("utf-8", "replace") if at < len(data) else ""


def _archive(image: bytes, label: str) -> list[Member]:
    """ar: members with headers of 60 characters; long names are in a member of their own (GNU), or before the data."""
    found: list[Member] = []
    long_names = b""
    at = len(ARCHIVE)
    while at + 60 <= len(image):
        header = image[at : at + 60]
        digits = header[48:58].strip()
        if header[58:] != b"`\n" or not digits.isdigit():
            raise damaged(image, label, f"the header at byte {at} is none")
        size = int(digits)
        data = part(image, label, at + 60, size, "a member")
        name = header[:16].rstrip()
        at += 60 + size + (size & 1)
        if name == b"//":
            long_names = data
        elif name.startswith(b"#1/") and name[3:].isdigit():
            length = min(int(name[3:]), size)
            found.append(Member(data[:length].rstrip(b"\0").decode("utf-8", "replace"), data[length:]))
        elif name not in (b"/", b"/SYM64/"):
            if name.startswith(b"/") and name[1:].isdigit():
                name = long_names[int(name[1:]) :].partition(b"\n")[0]
            found.append(Member(name.rstrip(b"/").decode("utf-8", "replace"), data))
        if len(found) > MAX_MEMBERS:
            raise damaged(image, label, f"it holds more than {MAX_MEMBERS} members")
    return found


_OPENERS: dict[bytes, Opener] = {
    BUNDLE: _bundle,
    COMPRESSED: _compressed,
    PACKAGE: _package,
    ARCHIVE: _archive,
}
