"""Methods, headers and ring slots: no words are lost or raise. That each decodes to itself is in test_layout.py."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.errors import DriverError, UsageError
from hcq.nv.abi import classes, compute_methods, copy_methods, gpfifo, host_methods, methods
from hcq.nv.abi.classes import ARCHITECTURES, ClassId
from hcq.nv.abi.method import Method

ROOT = Path(__file__).parents[3]
ENGINES = ("host_methods", "compute_methods", "copy_methods")
WORD = st.integers(0, 2**32 - 1)
HOPPER = methods.decoder("sm_90")


def test_a_release_is_five_words_behind_one_header() -> None:
    push = methods.incrementing(
        0,
        host_methods.SemAddrLo(offset=0x2000_0010),
        host_methods.SemAddrHi(offset=2),
        host_methods.SemPayloadLo(payload=7),
        host_methods.SemPayloadHi(),
        host_methods.SemExecute(operation=host_methods.SemExecuteOperation.RELEASE, release_wfi=1),
    )
    assert push.words == (0x20050017, 0x2000_0010, 2, 7, 0, 0x100001)
    (shown,) = HOPPER(push.words)
    assert repr(shown) == (
        "Push(INC_METHOD, subchannel=0, SEM_ADDR_LO(offset=0x20000010), SEM_ADDR_HI(offset=2), "
        "SEM_PAYLOAD_LO(payload=7), SEM_PAYLOAD_HI(), SEM_EXECUTE(operation=RELEASE, release_wfi=EN))"
    )


def test_a_copy_launch_has_the_word_that_is_known_to_work() -> None:
    word = copy_methods.LaunchDma(
        data_transfer_type=copy_methods.DataTransferType.NON_PIPELINED,
        src_memory_layout=1,
        dst_memory_layout=1,
    ).word
    assert word == 0x182
    assert compute_methods.LaunchDma(dst_memory_layout=1, sysmembar_disable=1).word == 0x41


def test_a_launch_names_the_address_of_its_qmd() -> None:
    push = methods.incrementing(1, compute_methods.SendPcasA(qmd_address_shifted8=0x2_0000_0100))
    assert push.words == (0x200120AD, 0x2000001)
    with pytest.raises(UsageError, match="not a multiple of 256"):
        compute_methods.SendPcasA(qmd_address_shifted8=0x2_0000_0110)


# how many addresses each class takes
METHODS = {
    "AMPERE_CHANNEL_GPFIFO_A": 22,
    "HOPPER_CHANNEL_GPFIFO_A": 22,
    "BLACKWELL_CHANNEL_GPFIFO_A": 22,
    "BLACKWELL_CHANNEL_GPFIFO_B": 22,
    "AMPERE_COMPUTE_A": 441,
    "AMPERE_COMPUTE_B": 446,
    "ADA_COMPUTE_A": 446,
    "HOPPER_COMPUTE_A": 446,
    "BLACKWELL_COMPUTE_A": 438,
    "BLACKWELL_COMPUTE_B": 438,
    "AMPERE_DMA_COPY_A": 39,
    "AMPERE_DMA_COPY_B": 41,
    "HOPPER_DMA_COPY_A": 42,
    "BLACKWELL_DMA_COPY_A": 42,
    "BLACKWELL_DMA_COPY_B": 42,
}


def test_a_class_has_as_many_methods_as_when_each_was_listed() -> None:
    counts = {class_id.name: len(methods.methods_of(class_id)) for class_id in ClassId}
    assert {name: count for name, count in counts.items() if count} == METHODS


def test_a_class_that_differs_keeps_the_rest_and_its_own_are_kinds_of_what_they_replace() -> None:
    hopper, ampere = (
        methods.methods_of(each) for each in (ClassId.HOPPER_DMA_COPY_A, ClassId.AMPERE_DMA_COPY_A)
    )
    changed = {at: method for at, method in ampere.items() if hopper[at] is not method}
    assert set(hopper) > set(ampere)
    assert {method.__name__ for method in changed.values()} == {
        "SetSemaphoreAC6b5", "SetRenderEnableAC6b5", "OffsetInUpperC6b5", "OffsetOutUpperC6b5", "LaunchDmaC6b5",
    }  # fmt: skip
    assert all(issubclass(method, hopper[at]) for at, method in changed.items())
    assert not hasattr(changed[copy_methods.LaunchDma.at], "copy_type")


def test_what_a_file_has_not_is_refused_by_name() -> None:
    with pytest.raises(AttributeError, match=r"copy_methods\.tsv has no method and no enum 'LaunchDna'"):
        copy_methods.LaunchDna  # noqa: B018
    with pytest.raises(UsageError, match=r"copy_methods\.tsv has no enum 'Nothing'\. It has: "):
        copy_methods.FILE.fields("kind@3:0/Nothing")
    with pytest.raises(UsageError, match=r"copy_methods\.tsv: 'kind@3:' is not name@high:low"):
        copy_methods.FILE.fields("kind@3:")


def test_every_name_that_code_takes_from_a_file_is_in_it() -> None:
    """Type checkers do not read the files."""
    files = {f"hcq.nv.abi.{one}": sys.modules[f"hcq.nv.abi.{one}"] for one in (*ENGINES, "qmd")}
    found = 0
    for path in [
        path for folder in ("hcq/nv", "hcq/emu/nv", "tools/hw/nv") for path in (ROOT / folder).rglob("*.py")
    ]:
        tree = ast.parse(path.read_text())
        aliases: dict[str, Any] = {}
        for node in ast.walk(tree):
            for name in node.names if isinstance(node, ast.ImportFrom) else ():
                if node.module in files:
                    assert hasattr(files[node.module], name.name), (path, name.name)
                if f"{node.module}.{name.name}" in files:
                    aliases[name.asname or name.name] = files[f"{node.module}.{name.name}"]
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in aliases
            ):
                assert hasattr(aliases[node.value.id], node.attr), (path, node.attr)
                found += 1
    assert found > 50


@given(st.lists(WORD, max_size=30))
def test_any_words_decode_without_loss(words: list[int]) -> None:
    for arch in ARCHITECTURES:
        shown = methods.decoder(arch)(words)
        assert [word for packet in shown for word in packet.words] == words
        assert all(repr(packet) for packet in shown)


@given(st.sampled_from(sorted(ARCHITECTURES)), st.data())
def test_every_method_of_a_class_is_named_behind_its_header(arch: str, data: st.DataObject) -> None:
    engines = ARCHITECTURES[arch]
    for subchannel, owner in ((0, engines.gpfifo), (1, engines.compute), (4, engines.copy)):
        address, method = data.draw(st.sampled_from(sorted(methods.methods_of(owner).items())))
        words = methods.non_incrementing(subchannel, method, [data.draw(WORD)]).words
        (shown,) = methods.decoder(arch)(words)
        assert isinstance(shown, methods.Push)
        assert shown.words == words
        assert shown.writes()[0][0] == method.at <= address
        assert shown.methods[0].method.vendor == method.vendor


def test_the_same_words_mean_what_each_generation_says() -> None:
    high = methods.incrementing(0, host_methods.SemAddrHi(offset=0x1FF)).words
    assert "unclaimed" not in repr(methods.decoder("sm_90")(high))
    assert "unclaimed_word_0=0x00000100" in repr(methods.decoder("sm_86")(high))


def test_set_object_binds_a_class_to_its_subchannel() -> None:
    bind = methods.incrementing(2, host_methods.SetObject(nvclass=ClassId.HOPPER_COMPUTE_A)).words
    launch = methods.immediate(2, compute_methods.SendPcasA()).words
    assert "UNKNOWN" in repr(methods.decode(launch))
    assert "SEND_PCAS_A" in repr(methods.decode([*bind, *launch]))


def test_the_three_kinds_of_runs_write_where_they_say() -> None:
    load = compute_methods.LoadInlineData
    assert [at for at, _ in methods.non_incrementing(1, load, [1, 2, 3]).writes()] == [0x1B4] * 3
    launch = compute_methods.LaunchDma(dst_memory_layout=1)
    assert [at for at, _ in methods.increment_once(1, launch, [1, 2]).writes()] == [0x1B0, 0x1B4, 0x1B4]
    assert methods.immediate(1, launch).writes() == [(0x1B0, 1)]


def test_a_run_that_ends_early_says_how_many_words_are_missing() -> None:
    words = methods.non_incrementing(1, compute_methods.LoadInlineData, range(5)).words
    (shown,) = HOPPER(words[:4])
    assert "missing_words=2" in repr(shown)


def test_words_behind_the_end_of_a_segment_are_shown_as_unread() -> None:
    end = methods.Push(sec_op=methods.SecOp.END_PB_SEGMENT).words
    assert repr(HOPPER([0, *end, 5])[2]) == "Unread(data=[00000005])"
    assert repr(HOPPER([0])[0]) == "Push(NOP)"


def test_mistakes_are_told_before_they_are_words() -> None:
    with pytest.raises(UsageError, match="SEM_EXECUTE at 0x6c does not follow SEM_ADDR_LO at 0x5c"):
        methods.incrementing(0, host_methods.SemAddrLo(), host_methods.SemExecute())
    with pytest.raises(UsageError, match="does not fit 13 bits"):
        methods.immediate(1, compute_methods.SendPcasA(qmd_address_shifted8=0x2000 << 8))
    with pytest.raises(UsageError, match="a header takes 1 to 8191"):
        methods.non_incrementing(1, compute_methods.LoadInlineData, [0] * 8192)
    with pytest.raises(UsageError, match="at least one method"):
        methods.incrementing(1)
    with pytest.raises(UsageError, match="unknown architecture"):
        methods.decoder("sm_75")


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_no_two_methods_of_a_class_share_an_address(arch: str) -> None:
    engines = ARCHITECTURES[arch]
    for owner in (engines.gpfifo, engines.compute, engines.copy):
        table = methods.methods_of(owner)
        assert len({method.vendor for method in table.values()}) == len(set(table.values()))
        assert all(issubclass(method, Method) and at % 4 == 0 for at, method in table.items())


def test_methods_a_class_has_not_are_unknown_to_it() -> None:
    assert compute_methods.SetTextureHeaderVersion.at not in methods.methods_of(ClassId.ADA_COMPUTE_A)
    assert 0x290 in methods.methods_of(ClassId.ADA_COMPUTE_A)  # CHECK_QMD_VERSION
    assert 0x290 not in methods.methods_of(ClassId.HOPPER_COMPUTE_A)


def test_a_slot_of_the_ring_has_address_and_length_where_the_gpu_reads_them() -> None:
    entry = gpfifo.GpEntry(get=0x2_0000_0040, length=6)
    assert int.from_bytes(entry.to_bytes(), "little") == 0x2_0000_0040 | 6 << 42
    assert gpfifo.decode_entry(*entry.words) == entry
    base = gpfifo.GpControl(operand=1 << 8, opcode=gpfifo.GpOpcode.SET_PB_SEGMENT_EXTENDED_BASE)
    assert base.words == (0x100, 4)
    assert gpfifo.decode_entry(*base.words) == base


def test_the_newest_listed_class_is_taken() -> None:
    listed = [ClassId.AMPERE_COMPUTE_B, ClassId.HOPPER_COMPUTE_A, 0x1234]
    assert classes.newest(listed, classes.COMPUTE) == ClassId.HOPPER_COMPUTE_A
    with pytest.raises(DriverError, match="it lists 0x1234"):
        classes.newest([0x1234], classes.COPY)
