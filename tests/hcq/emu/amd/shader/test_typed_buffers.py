"""Typed buffer accesses: numbers of memory become those of registers as formats say, and the other way."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hcq.emu.amd.shader import disassembly
from hcq.emu.amd.shader.errors import IllegalOperation
from hcq.emu.amd.shader.memory import AddressSpace
from hcq.emu.amd.shader.typed_numbers import UNIFIED, Element, element_of, element_of_gfx9, loaded, stored
from tests.hcq.emu.amd.shader.assembler import assemble
from tests.hcq.emu.amd.shader.bench import ISAS, run_words

BASE, WORDS = 0x40_0000, 1024
ARCHS = ("gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1201")
GFX11 = UNIFIED[11]
OLD = 0xAAAA5555
# what LLVM 22's assembler (-mcpu=gfx1100) calls the formats 1, 2, ... 63
NAMES = """
8_UNORM 8_SNORM 8_USCALED 8_SSCALED 8_UINT 8_SINT 16_UNORM 16_SNORM 16_USCALED 16_SSCALED 16_UINT 16_SINT 16_FLOAT
8_8_UNORM 8_8_SNORM 8_8_USCALED 8_8_SSCALED 8_8_UINT 8_8_SINT 32_UINT 32_SINT 32_FLOAT 16_16_UNORM 16_16_SNORM
16_16_USCALED 16_16_SSCALED 16_16_UINT 16_16_SINT 16_16_FLOAT 10_11_11_FLOAT 11_11_10_FLOAT 10_10_10_2_UNORM
10_10_10_2_SNORM 10_10_10_2_UINT 10_10_10_2_SINT 2_10_10_10_UNORM 2_10_10_10_SNORM 2_10_10_10_USCALED
2_10_10_10_SSCALED 2_10_10_10_UINT 2_10_10_10_SINT 8_8_8_8_UNORM 8_8_8_8_SNORM 8_8_8_8_USCALED 8_8_8_8_SSCALED
8_8_8_8_UINT 8_8_8_8_SINT 32_32_UINT 32_32_SINT 32_32_FLOAT 16_16_16_16_UNORM 16_16_16_16_SNORM 16_16_16_16_USCALED
16_16_16_16_SSCALED 16_16_16_16_UINT 16_16_16_16_SINT 16_16_16_16_FLOAT 32_32_32_UINT 32_32_32_SINT 32_32_32_FLOAT
32_32_32_32_UINT 32_32_32_32_SINT 32_32_32_32_FLOAT
""".split()
# the same with -mcpu=gfx1030, of 1, 2, ... 77
NAMES_GFX10 = """
8_UNORM 8_SNORM 8_USCALED 8_SSCALED 8_UINT 8_SINT 16_UNORM 16_SNORM 16_USCALED 16_SSCALED 16_UINT 16_SINT 16_FLOAT
8_8_UNORM 8_8_SNORM 8_8_USCALED 8_8_SSCALED 8_8_UINT 8_8_SINT 32_UINT 32_SINT 32_FLOAT 16_16_UNORM 16_16_SNORM
16_16_USCALED 16_16_SSCALED 16_16_UINT 16_16_SINT 16_16_FLOAT 10_11_11_UNORM 10_11_11_SNORM 10_11_11_USCALED
10_11_11_SSCALED 10_11_11_UINT 10_11_11_SINT 10_11_11_FLOAT 11_11_10_UNORM 11_11_10_SNORM 11_11_10_USCALED
11_11_10_SSCALED 11_11_10_UINT 11_11_10_SINT 11_11_10_FLOAT 10_10_10_2_UNORM 10_10_10_2_SNORM 10_10_10_2_USCALED
10_10_10_2_SSCALED 10_10_10_2_UINT 10_10_10_2_SINT 2_10_10_10_UNORM 2_10_10_10_SNORM 2_10_10_10_USCALED
2_10_10_10_SSCALED 2_10_10_10_UINT 2_10_10_10_SINT 8_8_8_8_UNORM 8_8_8_8_SNORM 8_8_8_8_USCALED 8_8_8_8_SSCALED
8_8_8_8_UINT 8_8_8_8_SINT 32_32_UINT 32_32_SINT 32_32_FLOAT 16_16_16_16_UNORM 16_16_16_16_SNORM 16_16_16_16_USCALED
16_16_16_16_SSCALED 16_16_16_16_UINT 16_16_16_16_SINT 16_16_16_16_FLOAT 32_32_32_UINT 32_32_32_SINT 32_32_32_FLOAT
32_32_32_32_UINT 32_32_32_32_SINT 32_32_32_32_FLOAT
""".split()
OF_GENERATION = {10: NAMES_GFX10, 11: NAMES, 12: NAMES}
# what LLVM 22's assembler made of them
ENCODED = {
    "gfx90a": {
        "tbuffer_load_format_xyz v[4:6], v0, s[8:11], 0 offen dfmt:5 nfmt:0": (0xE8291000, 0x80020400),
        "tbuffer_store_format_x v4, v0, s[8:11], 0 offset:64 idxen dfmt:5 nfmt:0": (0xE82A2040, 0x80020400),
        "tbuffer_load_format_d16_xy v4, v0, s[8:11], 0 offen dfmt:5 nfmt:0": (0xE82C9000, 0x80020400),
    },
    "gfx1100": {
        "tbuffer_load_format_xyz v[4:6], v0, s[8:11], 0 offen format:5": (0xE8290000, 0x80420400),
        "tbuffer_store_d16_format_xyzw v[4:5], v0, s[8:11], 0 glc slc offen format:5": (
            0xE82FD000,
            0x80420400,
        ),
    },
    "gfx1201": {
        "tbuffer_load_format_xyz v[4:6], v0, s[8:11], null offen format:5": (0xC420807C, 0x42801004, 0),
        "tbuffer_store_format_x v4, v0, s[8:11], null offset:64 idxen format:5": (
            0xC421007C,
            0x82801004,
            0x4000,
        ),
    },
}
COMPONENTS = ("x", "xy", "xyz", "xyzw")


def lanes_of(arch: str) -> int:
    return 64 if ISAS[arch].is_gfx9 else 32


@pytest.mark.parametrize("arch", ENCODED)
def test_words_of_the_assembler_are_read_as_what_it_was_told(arch: str) -> None:
    for text, words in ENCODED[arch].items():
        assert disassembly.text(ISAS[arch], ISAS[arch].decode(words)) == text


def test_formats_have_the_components_of_their_names() -> None:
    for generation, names in OF_GENERATION.items():
        assert len(names) == len(UNIFIED[generation]) - 1
        for number, name in enumerate(names, 1):
            *widths, kind = name.split("_")
            element = element_of(generation, number)
            assert element == Element(tuple(int(width) for width in reversed(widths)), kind.lower())
        assert element_of(generation, 0) is None and element_of(generation, len(names) + 1) is None
    assert element_of_gfx9(4, 7) == Element((32,), "float") and element_of_gfx9(1, 7) is None


def exact(kind: str, width: int, bits: int) -> Fraction:
    """The number that bits stand for."""
    signed = bits - (1 << width) if bits >> width - 1 else bits
    if kind == "unorm":
        return Fraction(bits, (1 << width) - 1)
    if kind == "snorm":
        return max(Fraction(signed, (1 << width - 1) - 1), Fraction(-1))
    if kind in ("uscaled", "uint"):
        return Fraction(bits)
    if kind in ("sscaled", "sint"):
        return Fraction(signed)
    mantissa = {10: 5, 11: 6, 16: 10, 32: 23}[width]
    bias = 127 if width == 32 else 15
    exponent = bits >> mantissa & (255 if width == 32 else 31)
    low = bits & (1 << mantissa) - 1
    value = (Fraction(low, 1 << mantissa) + (exponent > 0)) * Fraction(2) ** (max(exponent, 1) - bias)
    return -value if width in (16, 32) and bits >> width - 1 else value


def some_bits(element: Element, rng: Any, count: int) -> Any:
    """(components, count) bits of finite numbers."""
    rows = []
    for width in element.widths:
        row = rng.integers(0, 1 << width, count, np.uint64)
        if element.kind == "float":  # neither infinities nor NaNs
            row &= np.uint64(~(1 << {10: 5, 11: 6, 16: 10, 32: 23}[width]) & (1 << width) - 1)
        rows.append(row)
    return np.stack(rows)


def packed(element: Element, rows: Any) -> Any:
    """(words, count) of memory."""
    whole = [0] * rows.shape[1]
    low = 0
    for width, row in zip(element.widths, rows):
        whole = [one | int(bits) << low for one, bits in zip(whole, row)]
        low += width
    return np.array(
        [[one >> 32 * n & 0xFFFFFFFF for one in whole] for n in range(max(1, low // 32))], np.uint32
    )


@pytest.mark.parametrize("element", GFX11[1:], ids=NAMES)
def test_what_is_loaded_is_the_number_and_what_is_stored_is_what_was_loaded(element: Element) -> None:
    rows = some_bits(element, np.random.default_rng(1), 200)
    words = packed(element, rows)
    found = loaded(element, words, False)
    assert found.shape == (4, 200)
    for width, row, bits in zip(element.widths, rows, found):
        expected = [exact(element.kind, width, int(one)) for one in row]
        if element.kind in ("uint", "sint"):
            assert [int(one) & 0xFFFFFFFF for one in expected] == bits.tolist()
        else:
            assert [np.float32(float(one)) for one in expected] == bits.view(np.float32).tolist()
    one = 1 if element.kind in ("uint", "sint") else 0x3F800000
    for component in range(len(element.widths), 4):
        assert (found[component] == (one if component == 3 else 0)).all()
    back = loaded(element, stored(element, found[: len(element.widths)], False), False)
    assert back.tolist() == found.tolist()
    if element.kind != "snorm":  # which has two of -1
        assert stored(element, found[: len(element.widths)], False).tolist() == words.tolist()


def test_what_is_stored_is_clamped() -> None:
    bits = np.array([[-2.0, 0.5, 7.0, np.nan]], np.float32).view(np.uint32)
    assert stored(Element((8,), "unorm"), bits, False).tolist() == [[0, 128, 255, 0]]
    assert stored(Element((8,), "snorm"), bits, False).tolist() == [[0x81, 64, 127, 0]]
    assert stored(Element((8,), "sscaled"), bits, False).tolist() == [[0xFE, 0, 7, 0]]
    large = np.array([[300, 5, 0xFFFFFFFF, 0x80000000]], np.uint32)
    assert stored(Element((8,), "uint"), large, False).tolist() == [[255, 5, 255, 255]]
    assert stored(Element((8,), "sint"), large, False).tolist() == [[127, 5, 255, 128]]
    small = np.array([[1e9, -1.0, 1.0, np.inf]], np.float32).view(np.uint32)
    assert stored(Element((11,), "float"), small, False).tolist() == [[0x7BF, 0, 15 << 6, 0x7C0]]


def descriptor(arch: str, name: str, records: int, selects: tuple[int, ...] = (4, 5, 6, 7)) -> dict[int, int]:
    """s[8:11]: memory of so many bytes, in a format."""
    control = sum(select << 3 * component for component, select in enumerate(selects))
    *widths, kind = name.split("_")
    if ISAS[arch].is_gfx9:
        data = {"8": 1, "16_16": 5, "8_8_8_8": 10, "32_32_32": 13, "32": 4}["_".join(widths)]
        number = {"UNORM": 0, "SNORM": 1, "UINT": 4, "SINT": 5, "FLOAT": 7}[kind]
        control |= data << 15 | number << 12
    else:
        control |= number_of(arch, name) << 12
    return dict(zip(range(8, 12), (BASE, 0, records, control)))


def number_of(arch: str, name: str) -> int:
    """The number of a format that has one for both."""
    return OF_GENERATION[ISAS[arch].generation].index(name) + 1


def memory_of(image: Any) -> AddressSpace:
    memory = AddressSpace()
    memory.map(BASE, image, name="data")
    return memory


def access(arch: str, name: str, count: int, **fields: int) -> tuple[int, ...]:
    data = "v4" if count == 1 else f"v[4:{3 + count}]"
    no_offset = "null" if arch.startswith("gfx12") else 0
    return tuple(assemble(ISAS[arch], name, (data, "v0", "s[8:11]", no_offset), offen=1, **fields))


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("fmt", ["8_8_8_8_UNORM", "16_16_SINT", "8_UINT", "32_32_32_FLOAT", "32_FLOAT"])
def test_a_load_by_the_descriptors_format_gives_its_components_and_zero_out_of_range(
    arch: str, fmt: str
) -> None:
    lanes = lanes_of(arch)
    element = GFX11[NAMES.index(fmt) + 1]
    size = element.size_bytes
    rows = some_bits(element, np.random.default_rng(2), lanes)
    words = packed(element, rows)
    image = np.zeros(16 * lanes, np.uint8)
    image.reshape(-1)[: size * lanes] = words.T.copy().view(np.uint8).reshape(lanes, -1)[:, :size].reshape(-1)
    records = size * (lanes - 3)
    v = {0: np.arange(lanes) * size, **{4 + n: OLD for n in range(4)}}
    b = run_words(
        arch,
        access(arch, "buffer_load_format_xyzw", 4),
        v=v,
        s=descriptor(arch, fmt, records),
        memory=memory_of(image),
        lanes=np.arange(lanes) != 1,
    )
    expected = loaded(element, words, False)
    expected[:, lanes - 3 :] = 0
    expected[:, 1] = OLD
    assert b.u32[4:8, 0].tolist() == expected.tolist()


@pytest.mark.parametrize("arch", ARCHS)
def test_a_descriptor_selects_components(arch: str) -> None:
    memory = memory_of(np.full(64, 0x04030201, np.uint32))
    s = descriptor(arch, "8_8_8_8_UINT", 256, (6, 0, 1, 4))
    b = run_words(arch, access(arch, "buffer_load_format_xyzw", 4), v={0: 0}, s=s, memory=memory)
    assert b.u32[4:8, 0, 0].tolist() == [3, 0, 1, 1]


@pytest.mark.parametrize("arch", ARCHS)
def test_the_format_of_the_instruction_is_used_and_stores_come_back(arch: str) -> None:
    lanes, isa = lanes_of(arch), ISAS[arch]
    fmt = {"dfmt": 5, "nfmt": 1} if isa.is_gfx9 else {"format": number_of(arch, "16_16_SNORM")}
    image = np.full(lanes, 0x77777777, np.uint32)
    x, y = np.linspace(-1.5, 1.5, lanes, dtype=np.float32), np.linspace(1, -1, lanes, dtype=np.float32)
    words = [
        *access(arch, "tbuffer_store_format_xy", 2, **fmt),
        *access(arch, "tbuffer_load_format_xyzw", 4, **fmt),
    ]
    v = {0: np.arange(lanes) * 4, 4: x.view(np.uint32), 5: y.view(np.uint32)}
    s = descriptor(arch, "32_FLOAT", 4 * lanes - 4)  # its format does not matter here
    b = run_words(arch, words, v=v, s=s, memory=memory_of(image))
    low, high = image.view(np.int16).reshape(-1, 2)[:-1].T
    assert low.tolist() == [round(float(one)) for one in np.clip(x[:-1].astype(np.float64), -1, 1) * 32767]
    assert high.tolist() == [round(float(one)) for one in y[:-1].astype(np.float64) * 32767]
    assert image[-1] == 0x77777777
    got = b.u32[4:8, 0].view(np.float32)
    assert got[0, :-1].tolist() == (low / 32767).astype(np.float32).tolist() and got[0, -1] == 0
    assert got[2, 0] == 0 and got[3, 0] == 1


@pytest.mark.parametrize("arch", ARCHS)
def test_components_of_16_bits_lie_two_in_a_register(arch: str) -> None:
    isa = ISAS[arch]
    image = np.full(64, 0xFF804020, np.uint32)
    name = "buffer_load_format_d16_xyz" if isa.generation <= 10 else "buffer_load_d16_format_xyz"
    s = descriptor(arch, "8_8_8_8_UNORM", 256)
    b = run_words(arch, access(arch, name, 2), v={0: 0, 4: OLD, 5: OLD}, s=s, memory=memory_of(image))
    halves = [int(np.float16(one / 255).view(np.uint16)) for one in (0x20, 0x40, 0x80)]
    kept = 0 if isa.is_gfx9 else OLD & 0xFFFF0000
    assert b.u32[4:6, 0, 0].tolist() == [halves[0] | halves[1] << 16, halves[2] | kept]
    name = "buffer_store_format_d16_hi_x" if isa.generation <= 10 else "buffer_store_d16_hi_format_x"
    s = descriptor(arch, "8_UINT", 256)
    v = {0: np.arange(lanes_of(arch)), 4: 0x00050009}
    run_words(arch, access(arch, name, 1), v=v, s=s, memory=memory_of(image))
    assert image[0] == 0x05050505


@pytest.mark.parametrize("arch", ARCHS)
def test_what_no_source_says_is_refused(arch: str) -> None:
    image = np.zeros(64, np.uint32)
    with pytest.raises(IllegalOperation, match="it stores 1 components as 4"):
        s = descriptor(arch, "8_8_8_8_UNORM", 256)
        run_words(arch, access(arch, "buffer_store_format_x", 1), s=s, memory=memory_of(image))
    with pytest.raises(IllegalOperation, match="format 0x0 is none"):
        s = {8: BASE, 10: 256}
        run_words(arch, access(arch, "buffer_load_format_x", 1), s=s, memory=memory_of(image))
