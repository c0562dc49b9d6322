"""Copies of tiles: a tile is what NumPy cuts out of the tensor, zeros around it, its pieces where the swizzle says."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.emu.nv.shader.errors import Deadlock, KernelFault, MisalignedAccess, PageFault, PtxError
from hcq.nv.abi.tensor_map import ElementType, Fill, Swizzle, TensorMap
from hcq.nv.tensor_map import tile_bytes, tiled
from tests.hcq.emu.nv.shader.running import Launch, needs_nvjitlink

HEADER = ".version 8.3\n.target sm_90a\n.address_size 64\n"
TYPES = {
    ElementType.U8: np.uint8,
    ElementType.F16: np.float16,
    ElementType.F32: np.float32,
    ElementType.S64: np.int64,
}
SPANS = {Swizzle.NONE: 16, Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
WAIT = """{{ .reg .pred %done; WAIT{0}: mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], {1};
@%done bra DONE{0}; bra WAIT{0}; DONE{0}: }}"""
PROLOGUE = """.shared .align 1024 .b8 tile[{bytes}]; .shared .align 8 .b64 bar;
.reg .b64 %map, %out, %at, %v, %tx; .reg .b32 %i, %tile, %bar, %c<5>, %s; .reg .pred %first, %out_of;
mov.u32 %i, %tid.x; mov.u32 %tile, tile; mov.u32 %bar, bar; setp.eq.u32 %first, %i, 0;
mov.b64 %map, MAP; cvta.param.u64 %map, %map; ld.param.u64 %out, [OUT];
mov.u32 %s, %i; FILL: setp.ge.u32 %out_of, %s, {words}; @%out_of bra FILLED;
{{ .reg .b32 %a, %old; mov.u32 %old, 0xAAAAAAAA; mad.lo.u32 %a, %s, 4, %tile; st.shared.u32 [%a], %old; }}
add.u32 %s, %s, 32; bra FILL; FILLED:
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; bar.sync 0;
"""
EPILOGUE = """mov.u32 %s, %i; COPY: setp.ge.u32 %out_of, %s, {words}; @%out_of bra COPIED;
{{ .reg .b32 %a, %x; mad.lo.u32 %a, %s, 4, %tile; ld.shared.u32 %x, [%a]; mul.wide.u32 %at, %s, 4;
add.u64 %at, %at, %out; st.global.u32 [%at], %x; }} add.u32 %s, %s, 32; bra COPY; COPIED: ret; }}"""


def kernel(body: str, size_bytes: int) -> str:
    text = PROLOGUE + body.replace("{", "{{").replace("}", "}}") + EPILOGUE
    words = text.format(bytes=size_bytes, words=size_bytes // 4)
    return f"{HEADER}.visible .entry k(.param .align 64 .b8 MAP[128], .param .u64 OUT) {{ {words}"


def loading(
    place: tuple[int, ...], size_bytes: int, waits: bool = True, mode: str = "tile.", told: int = -1
) -> str:
    coordinates = ", ".join(f"%c{i}" for i in range(len(place)))
    moves = " ".join(f"mov.u32 %c{i}, {value % 2**32};" for i, value in enumerate(place))
    told = size_bytes if told < 0 else told
    return f"""{moves} @!%first bra ISSUED;
    mbarrier.arrive.expect_tx.shared::cta.b64 %tx, [%bar], {told};
    cp.async.bulk.tensor.{len(place)}d.shared::cluster.global.{mode}mbarrier::complete_tx::bytes
    [%tile], [%map, {{{coordinates}}}], [%bar];
    ISSUED: {WAIT.format(0, 0) if waits else ""}"""


class Tensor:
    """A tensor in memory with rows of their own pitch, and maps of it."""

    def __init__(self, element: ElementType, shape: tuple[int, ...], seed: int = 1) -> None:
        self.launch, self.element = Launch(), element
        scalar = TYPES[element]
        size = np.dtype(scalar).itemsize
        pitch = -(-shape[-1] * size // 16) * 16 // size + 16 // size
        rng = np.random.default_rng(seed)
        self.whole = rng.integers(0, 100, (*shape[:-1], pitch)).astype(scalar)
        self.values = self.whole[..., : shape[-1]]
        self.va = self.launch.buffer(self.whole)

    def map(self, box: tuple[int, ...], **options) -> bytes:
        dims, strides = self.values.shape[::-1], self.values.strides[::-1][1:]
        return tiled(self.va, self.element, dims, strides, box[::-1], **options)

    def tile(self, box, place, steps=None, fill=0) -> np.ndarray:
        """What NumPy cuts out, the slowest dimension first."""
        steps = steps or (1,) * len(box)
        counts = [-(-size // step) for size, step in zip(box, steps)]
        found = np.full(counts, fill, self.values.dtype)
        for index in itertools.product(*map(range, counts)):
            at = tuple(start + step * i for start, step, i in zip(place, steps, index))
            if all(0 <= i < size for i, size in zip(at, self.values.shape)):
                found[index] = self.values[at]
        return found

    def run(self, text: str, out: np.ndarray, tensor_map: bytes, **options) -> np.ndarray:
        self.launch.run(self.launch.load(text, "k"), 1, 32, tensor_map, out, **options)
        return out


def swizzled(data: np.ndarray, swizzle: Swizzle) -> np.ndarray:
    """Bytes where the manual's tables put them: 16-byte pieces change places in a line by its number."""
    pieces = data.view(np.uint8).reshape(-1, 16)
    found = np.empty_like(pieces)
    for i in range(len(pieces)):
        found[i ^ (i >> 3) % (SPANS[swizzle] // 16)] = pieces[i]
    return found.reshape(-1)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_tile_is_what_numpy_cuts_out_whatever_the_rank_and_the_place(data):
    element = data.draw(st.sampled_from(list(TYPES)))
    rank = data.draw(st.integers(1, 5))
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(rank - 1)) + (data.draw(st.integers(1, 40)),)
    per_row = 16 // np.dtype(TYPES[element]).itemsize
    box = tuple(data.draw(st.integers(1, 3)) for _ in range(rank - 1)) + (
        per_row * data.draw(st.integers(1, 3)),
    )
    place = tuple(data.draw(st.integers(-5, 12)) for _ in range(rank))
    steps = tuple(data.draw(st.integers(1, 3)) for _ in range(rank - 1)) + (1,)
    tensor = Tensor(element, shape)
    wanted = tensor.tile(box, place, steps)
    assert wanted.nbytes == tile_bytes(box, element, steps)
    text = kernel(loading(place[::-1], wanted.nbytes), wanted.nbytes)
    out = np.empty_like(wanted)
    tensor.run(text, out, tensor.map(box, steps=steps[::-1]))
    assert out.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_pieces_change_places_as_the_manual_says(swizzle):
    tensor = Tensor(ElementType.F16, (64, 64))
    box = (32, SPANS[swizzle] // 2)
    wanted = tensor.tile(box, (8, 16))
    out = np.empty_like(wanted)
    tensor.run(kernel(loading((16, 8), wanted.nbytes), wanted.nbytes), out, tensor.map(box, swizzle=swizzle))
    assert out.tobytes() == swizzled(wanted, swizzle).tobytes()


def test_what_is_outside_may_read_as_nan():
    tensor = Tensor(ElementType.F32, (4, 8))
    out = np.empty((4, 8), np.float32)
    tensor.run(kernel(loading((4, 2), 128), 128), out, tensor.map((4, 8), fill=Fill.NAN))
    assert (np.isnan(out) == np.isnan(tensor.tile((4, 8), (2, 4), fill=np.nan))).all()
    assert np.isnan(out).sum() == 24


STORE = """@!%first bra STORED;
cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {%c2, %c3}], [%tile];
cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; STORED: bar.sync 0;"""


@pytest.mark.parametrize("swizzle", list(Swizzle))
@pytest.mark.parametrize("place", [(0, 0), (20, -8), (-3, 28), (40, 40)])
def test_what_a_swizzle_brings_it_takes_back_to_where_the_tensor_is(swizzle, place):
    tensor = Tensor(ElementType.F16, (32, 32))
    box = (8, 8 if swizzle == Swizzle.NONE else 16)
    before, tile = tensor.whole.copy(), tensor.tile(box, (4, 8))
    moves = f"mov.u32 %c2, {place[1] % 2**32}; mov.u32 %c3, {place[0] % 2**32};"
    text = kernel(loading((8, 4), tile.nbytes) + moves + STORE, tile.nbytes)
    tensor.run(text, np.empty(tile.nbytes, np.uint8), tensor.map(box, swizzle=swizzle))
    for r, c in np.ndindex(box):
        if 0 <= place[0] + r < 32 and 0 <= place[1] + c < 32:
            before[place[0] + r, place[1] + c] = tile[r, c]
    assert (tensor.whole == before).all()


def test_a_tile_is_added_to_the_tensor():
    tensor = Tensor(ElementType.F32, (8, 8))
    wanted = tensor.values + 0
    wanted[4:, 4:] += tensor.values[0:4, 0:4]
    reduce = STORE.replace(
        "cp.async.bulk.tensor.2d.global.shared::cta", "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add"
    )
    text = kernel(loading((0, 0), 128) + "mov.u32 %c2, 4; mov.u32 %c3, 4;" + reduce, 128)
    tensor.run(text, np.empty(128, np.uint8), tensor.map((4, 8)))
    found = tensor.values.copy()
    assert (found[4:, 4:] == wanted[4:, 4:]).all()
    assert (found[:4] == wanted[:4]).all()


def test_a_kernel_that_does_not_wait_sees_what_was_there_before():
    tensor = Tensor(ElementType.F32, (8, 8))
    out = np.zeros(32, np.uint32)
    tensor.run(kernel(loading((0, 0), 128, waits=False), 128), out, tensor.map((4, 8)))
    assert (out == 0xAAAAAAAA).all()


def test_a_wait_for_the_wrong_phase_ends_with_a_sentence_that_names_it():
    tensor = Tensor(ElementType.F32, (8, 8))
    text = kernel(loading((0, 0), 128), 128).replace("[%bar], 0;\n@%done", "[%bar], 1;\n@%done")
    text = text.replace("ISSUED:", "ISSUED: " + WAIT.format(1, 0), 1)
    with pytest.raises(
        Deadlock, match="in a phase of parity 1, which is waited for; it expects 1 more arrivals and 0"
    ):
        tensor.run(text, np.zeros(32, np.uint32), tensor.map((4, 8)))


def test_bytes_that_never_come_are_counted_in_the_report():
    tensor = Tensor(ElementType.F32, (8, 8))
    with pytest.raises(Deadlock, match="it expects 0 more arrivals and 64 more bytes"):
        tensor.run(kernel(loading((0, 0), 128, told=192), 128), np.zeros(32, np.uint32), tensor.map((4, 8)))


def changed(tensor: Tensor, box: tuple[int, ...] = (4, 8), **fields: int) -> bytes:
    made = TensorMap.decode(np.frombuffer(tensor.map(box), np.uint32).tolist())
    return TensorMap(**{**made.values, **fields}).to_bytes()


@pytest.mark.parametrize(
    "fields, why",
    [
        ({"rank_less_1": 2}, "it has 3 dimensions, the instruction 2"),
        ({"rank_less_1": 7}, "it has 8 dimensions"),
        ({"element_type": 13}, "element type is 13, which has no meaning"),
        ({"interleave": 1}, "interleaved layouts are not emulated"),
        ({"global_address": 0x10000008}, "no multiple of 16"),
        ({"stride_low0": 0}, "a stride is 0"),
        ({"box0_less_1": 6}, "a row of its box has 28 bytes"),
        ({"box0_less_1": 15, "swizzle": 1}, "more than the swizzle's span of 32"),
        ({"element_type": 2, "fill": 1}, "U32 has no NaN"),
    ],
)
def test_a_map_that_makes_no_sense_is_refused_before_memory_is_touched(fields, why):
    tensor = Tensor(ElementType.F32, (8, 8))
    out = np.zeros(32, np.uint32)
    with pytest.raises(KernelFault, match=why):
        tensor.run(kernel(loading((0, 0), 128), 128), out, changed(tensor, **fields))


def test_a_map_of_memory_that_is_not_there_is_a_page_fault_at_the_copy():
    tensor = Tensor(ElementType.F32, (8, 8))
    with pytest.raises(PageFault, match=r"bulk load at 0x.*nothing is mapped there"):
        tensor.run(
            kernel(loading((0, 0), 128), 128),
            np.zeros(32, np.uint32),
            changed(tensor, dim1_less_1=999, global_address=0x70000000),
        )


def test_a_tile_that_shared_memory_does_not_hold_is_refused():
    tensor = Tensor(ElementType.F32, (64, 8))
    with pytest.raises(PageFault, match="bulk copy in shared memory at 0x"):
        tensor.run(kernel(loading((0, 0), 128), 128), np.zeros(32, np.uint32), tensor.map((64, 8)))


@pytest.mark.parametrize(
    "old, new, error, why",
    [
        ("[%tile], [%map", "[%tile+64], [%map", KernelFault, "no multiple of 128"),
        ("[%map, {", "[%map+32, {", KernelFault, "not aligned to 64 bytes"),
        ("}], [%bar];", "}], [%bar+4];", MisalignedAccess, "access to an mbarrier"),
        (", %c1}", "}", PtxError, "1 coordinates, not 2"),
        ("global.tile.", "global.im2col.", PtxError, "the mode .im2col is not emulated"),
        ("tensor.2d", "tensor.6d", PtxError, "expected a number of dimensions"),
        ("complete_tx::bytes\n", "complete_tx::bytes.multicast::cluster\n", PtxError, "operands are missing"),
    ],
)
def test_what_an_instruction_must_not_say_is_refused(old, new, error, why):
    tensor = Tensor(ElementType.F32, (8, 8))
    text = kernel(loading((0, 0), 128), 128)
    assert old in text
    with pytest.raises(error, match=why):
        tensor.run(text.replace(old, new), np.zeros(32, np.uint32), tensor.map((4, 8)))


def test_a_multicast_reaches_the_only_block_and_no_other():
    tensor = Tensor(ElementType.F32, (8, 8))
    text = kernel(loading((0, 0), 128), 128).replace("tx::bytes\n", "tx::bytes.multicast::cluster\n")
    out = np.zeros((4, 8), np.float32)
    tensor.run(text.replace("}], [%bar];", "}], [%bar], 1;"), out, tensor.map((4, 8)))
    assert (out == tensor.values[:4]).all()
    with pytest.raises(KernelFault, match="the mask 0x3 names blocks of the cluster"):
        tensor.run(text.replace("}], [%bar];", "}], [%bar], 3;"), out, tensor.map((4, 8)))


def test_every_field_that_a_kernel_replaces_is_the_one_that_the_driver_wrote():
    one = Tensor(ElementType.F32, (8, 8))
    wanted = tiled(
        0x123456789ABCDE0, ElementType.BF16, (7, 5, 3), (1 << 38, 1 << 39), (32, 2, 4), steps=(1, 2, 3),
        swizzle=Swizzle.B64, fill=Fill.NAN,
    )  # fmt: skip
    map_at = one.launch.buffer(memory := np.frombuffer(one.map((4, 8)), np.uint8).copy())
    lines = ["ld.param.u64 %a, [P]; mov.b64 %v, 0x123456789ABCDE0;"]

    def replace(what: str, *values: str, bits: int = 32) -> None:
        lines.append(f"tensormap.replace.tile.{what}.global.b1024.b{bits} [%a], {', '.join(values)};")

    replace("global_address", "%v", bits=64)
    replace("rank", "2")
    for i, (dim, box, step) in enumerate(zip((7, 5, 3), (32, 2, 4), (1, 2, 3))):
        replace("global_dim", str(i), str(dim)), replace("box_dim", str(i), str(box))
        replace("element_stride", str(i), str(step))
    lines.append(f"mov.b64 %v, {1 << 38};")
    replace("global_stride", "0", "%v", bits=64)
    lines.append(f"mov.b64 %v, {1 << 39};")
    replace("global_stride", "1", "%v", bits=64)
    (
        replace("elemtype", "10"),
        replace("interleave_layout", "0"),
        replace("swizzle_mode", "2"),
        replace("fill_mode", "1"),
    )
    text = f"{HEADER}.visible .entry k(.param .u64 P) {{ .reg .b64 %a, %v; {' '.join(lines)} ret; }}"
    one.launch.run(one.launch.load(text, "k"), 1, 1, np.uint64(map_at))
    assert memory.tobytes() == wanted


@needs_nvjitlink
def test_the_vendors_assembler_takes_the_text_of_these_tests():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    store = "mov.u32 %c2, 4; mov.u32 %c3, 4;" + STORE
    assert link_ptx(kernel(loading((0, 0), 128) + store, 128), "sm_90a")


def test_one_block_of_a_pair_counts_what_comes_to_both():
    sync = "barrier.cluster.arrive; barrier.cluster.wait;"
    body = f"""mov.u32 %c3, %cluster_ctarank; mov.u32 %c0, 0; shl.b32 %c1, %c3, 2; mad.wide.u32 %out, %c3, 128, %out;
    setp.eq.u32 %out_of, %c3, 0; and.pred %out_of, %out_of, %first;
    @%out_of mbarrier.arrive.expect_tx.shared::cta.b64 %tx, [%bar], 256; {sync} and.b32 %c4, %bar, 0xfeffffff;
    @%first cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2
    [%tile], [%map, {{%c0, %c1}}], [%c4];
    setp.ne.u32 %out_of, %c3, 0; @%out_of bra LATER; {WAIT.format(0, 0)} LATER: {sync}"""
    tensor = Tensor(ElementType.F32, (8, 8))
    out, text, box = np.zeros((2, 4, 8), np.float32), kernel(body, 128), tensor.map((4, 8))
    tensor.launch.run(tensor.launch.load(text, "k"), 2, 32, box, out, cluster=(2, 1, 1))
    assert (out.reshape(8, 8) == tensor.values).all()
    with pytest.raises(KernelFault, match="the mbarrier is not in the shared memory of the block"):
        apart = tensor.launch.load(text.replace(".cta_group::2", ""), "k")
        tensor.launch.run(apart, 2, 32, box, out, cluster=(2, 1, 1))


def rows_named(column: int, rows: tuple[int, ...], size_bytes: int, scatters: bool = False) -> str:
    places = "{%c0, " + ", ".join(map(str, rows)) + "}"
    if scatters:
        return f"""mov.u32 %c0, {column}; @!%first bra OVER; fence.proxy.async.shared::cta;
        cp.async.bulk.tensor.2d.global.shared::cta.tile::scatter4.bulk_group [%map, {places}], [%tile];
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; OVER:"""
    return f"""mov.u32 %c0, {column}; @!%first bra ISSUED;
    mbarrier.arrive.expect_tx.shared::cta.b64 %tx, [%bar], {size_bytes};
    cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes
    [%tile], [%map, {places}], [%bar]; ISSUED: {WAIT.format(0, 0)}"""


@pytest.mark.parametrize("swizzle", list(Swizzle))
def test_four_rows_of_a_tensor_are_gathered(swizzle):
    """A row outside reads as zeros, and so do columns."""
    tensor = Tensor(ElementType.F16, (40, 72))
    width, rows = SPANS[swizzle] // 2, (17, 3, 39, -1)
    wanted = np.concatenate([tensor.tile((1, width), (row, 64)) for row in rows])
    out = np.empty_like(wanted)
    text = kernel(rows_named(64, rows, wanted.nbytes), wanted.nbytes)
    tensor.run(text, out, tensor.map((1, width), swizzle=swizzle))
    assert out.tobytes() == swizzled(wanted, swizzle).tobytes()


def test_four_rows_are_scattered_into_a_tensor():
    tensor = Tensor(ElementType.F32, (10, 16))
    before, rows = tensor.values.copy(), (7, 0, 4, 12)
    out = np.empty((4, 8), np.uint32)
    tensor.run(kernel(rows_named(8, rows, out.nbytes, scatters=True), out.nbytes), out, tensor.map((1, 8)))
    wanted = before.view(np.uint32).copy()
    wanted[list(rows[:3]), 8:16] = 0xAAAAAAAA
    assert np.array_equal(tensor.values.view(np.uint32), wanted)


def test_rows_are_gathered_by_maps_whose_boxes_have_one():
    tensor = Tensor(ElementType.F16, (40, 72))
    with pytest.raises(KernelFault, match="has 2 rows, not one"):
        tensor.run(
            kernel(rows_named(0, (0, 1, 2, 3), 128), 128), np.zeros(64, np.uint16), tensor.map((2, 16))
        )


@needs_nvjitlink
def test_the_vendors_assembler_takes_gathers_and_scatters():
    from hcq.nv.toolchain.nvjitlink import link_ptx

    for scatters in (False, True):
        text = kernel(rows_named(0, (0, 1, 2, 3), 128, scatters), 128)
        assert link_ptx(text.replace("8.3", "8.6").replace("sm_90a", "sm_100a"), "sm_100a")
