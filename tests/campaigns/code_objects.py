"""Code objects of others: every form in which a linker writes relocations, every container, whole and damaged.

In       a random table of words that are to be relocated, as RELA, REL and RELR, with a section table and without; an
         object in random containers
Out      in every form the same memory; out of every container the same object; damaged, one clear error
Changes  nothing outside the worker
Next     hcq/code/elf_dynamic.py, hcq/amd/link.py, hcq/code/containers.py; readers.py (other files)
"""

from __future__ import annotations

import functools
import random
import struct

from hcq.amd.chip import CHIPS
from hcq.amd.link import RELATIVE64, Linked
from hcq.code.containers import taken_out
from hcq.errors import UsageError
from tests.campaigns.campaign import Campaign, Case, Outcome, Wrong

HEAD_BYTES = 64 + 56 * 2
DAMAGED_OF_A_CASE = 12
WAYS = ("rela", "rel", "relr")
VA = 0x7_0000_0000


def shared_object(words: dict[int, int], size: int, way: str) -> bytes:
    """A linked object of `size` bytes of data whose words (offset in the data -> what it points at) move with it."""
    data_at = 0x1000
    data = bytearray(size)
    entries = b""
    if way == "relr":
        entries, tag = relr(sorted(data_at + at for at in words)), 36
    else:
        tag = 7 if way == "rela" else 17
        for at, target in words.items():
            entries += struct.pack("<QQ", data_at + at, RELATIVE64) + (
                struct.pack("<q", target) if tag == 7 else b""
            )
    if way != "rela":  # the addend stands in the word
        for at, target in words.items():
            struct.pack_into("<Q", data, at, target)
    table_at = -(-(data_at + size) // 8) * 8
    dynamic_at = table_at + -(-len(entries) // 8) * 8
    sizes = {7: (8, 9, 24), 17: (18, 19, 16), 36: (35, 37, 8)}[tag]
    names, symbols = b"\0\0\0\0\0\0\0\0", bytes(24)
    name_at = dynamic_at + 16 * 9
    tags = (
        (tag, table_at), (sizes[0], len(entries)), (sizes[1], sizes[2]), (5, name_at), (10, len(names)),
        (6, name_at + 8), (11, 24), (4, name_at + 32), (0, 0),
    )  # fmt: skip
    body = bytes(data).ljust(table_at - data_at, b"\0") + entries.ljust(dynamic_at - table_at, b"\0")
    body += (
        b"".join(struct.pack("<qQ", *pair) for pair in tags)
        + names
        + symbols
        + struct.pack("<4I", 1, 1, 0, 0)
    )
    ident = b"\x7fELF\x02\x01\x01\x40\x02" + bytes(7)
    header = struct.pack("<16sHHIQQQIHHHHHH", ident, 3, 224, 1, 0, 64, 0, 0x41, 64, 56, 2, 0, 0, 0)
    segments = struct.pack("<IIQQQQQQ", 1, 6, HEAD_BYTES, data_at, data_at, len(body), len(body), 0x1000)
    where = HEAD_BYTES + dynamic_at - data_at
    segments += struct.pack(
        "<IIQQQQQQ", 2, 6, where, dynamic_at, dynamic_at, 16 * len(tags), 16 * len(tags), 8
    )
    return header + segments + body


def relr(places: list[int]) -> bytes:
    """Addresses in order, as SHT_RELR packs them."""
    made: list[int] = []
    at = 0
    while at < len(places):
        made.append(places[at])
        base = places[at] + 8
        at += 1
        while at < len(places) and places[at] < base + 63 * 8:
            bits = 0
            while at < len(places) and places[at] < base + 63 * 8:
                bits |= 1 << (places[at] - base) // 8
                at += 1
            made.append(bits << 1 | 1)
            base += 63 * 8
    return struct.pack(f"<{len(made)}Q", *made)


def relocations(rng: random.Random) -> list[bytes]:
    """The same words in each form make the same memory."""
    size = 8 * rng.randrange(1, 400)
    places = sorted(rng.sample(range(0, size, 8), rng.randrange(1, size // 8 + 1)))
    words = {at: 0x1000 + rng.randrange(size) for at in places}
    made = {way: shared_object(words, size, way) for way in WAYS}
    for way, image in made.items():
        memory = Linked(image, CHIPS["gfx1100"], way).place(VA)
        for at in range(0, size, 8):
            (word,) = struct.unpack_from("<Q", memory, 0x1000 + at)
            expected = VA + words[at] if at in words else 0
            if word != expected:
                raise Wrong(f"{way}: the word at {at:#x} of {size:#x} is {word:#x}, not {expected:#x}")
    return [*made.values()]


@functools.cache
def _objects() -> dict[str, bytes]:
    from tests.hcq.amd.kernels import image

    return {
        f"hipv4-amdgcn-amd-amdhsa--{arch}": image(arch) for arch in ("gfx90a", "gfx942", "gfx1100", "gfx1201")
    }


def nested(rng: random.Random) -> list[bytes]:
    """An object comes out of containers as it was put in."""
    from tests.hcq.code.test_containers import archive, bundle, compressed, package

    arch = rng.choice(("gfx90a", "gfx942", "gfx1100", "gfx1201"))
    parts = dict(rng.sample([*_objects().items()], rng.randrange(1, 5)))
    whole = bundle(parts)
    for _ in range(rng.randrange(3)):
        way = rng.randrange(4)
        if way == 0 and whole.startswith(b"__CLANG"):
            whole = compressed(whole, rng.randrange(1, 4))
        else:
            whole = (archive, package, bundle)[way % 3]({rng.choice(("a.o", "a rather long name.o")): whole})
    chip = CHIPS[arch]
    try:
        found = taken_out(whole, "k", arch, lambda data: Linked.fits(data, chip, True))
    except UsageError:
        if f"hipv4-amdgcn-amd-amdhsa--{arch}" in parts:
            raise Wrong(f"nothing for {arch} in {whole[:24]!r} of {[*parts]}") from None
        return [whole]
    if found != parts.get(f"hipv4-amdgcn-amd-amdhsa--{arch}"):
        raise Wrong(f"another object than was put in for {arch} came out of {whole[:24]!r}")
    return [whole]


def damaged(image: bytes, rng: random.Random) -> bool:
    """A damaged one is refused with a sentence, or loads. Whether it was refused."""
    made = bytearray(image)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(made)) if rng.random() < 0.5 else rng.randrange(min(len(made), 256))
        if rng.random() < 0.5 and at + 8 <= len(made):
            value = rng.choice((0, 1, 1 << 31, 1 << 63, 2**64 - 1, rng.getrandbits(64), len(made)))
            struct.pack_into("<Q", made, at & ~7 if at & ~7 <= len(made) - 8 else 0, value)
        else:
            made[at] ^= 1 << rng.randrange(8)
    try:
        found = taken_out(bytes(made), "k", "gfx1100", lambda data: Linked.fits(data, CHIPS["gfx1100"], True))
        Linked(found, CHIPS["gfx1100"], "k").place(VA)
    except UsageError as error:
        if not str(error).startswith("load('k'): "):
            raise Wrong(f"a damaged object: {error}") from None
        return True
    return False


def run(case: Case) -> Outcome:
    """Whole ones, and then the same with damage."""
    rng = case.rng()
    whole = relocations(rng) if rng.random() < 0.6 else nested(rng)
    refused = [damaged(rng.choice(whole), rng) for _ in range(DAMAGED_OF_A_CASE)]
    return Outcome.REFUSED if any(refused) else Outcome.RIGHT


CAMPAIGNS = (
    Campaign("code-objects", "code objects of others: relocations in each form, containers, damage", run, 40),
)
