"""edit and assemble: text that a person can change, and the same bytes again."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hcq.command import Copy, Dispatch, Fill, Indirect, Signal, Wait
from hcq.errors import UsageError
from hcq.tools.trace.edit import assemble, edit
from hcq.trace.file import Trace
from hcq.trace.records import HEADS, MAGIC, Kind, pack_record
from tests.tools.trace.making import CELL, Maker


def text_of(content: bytes) -> str:
    return "\n".join(edit(content))


def test_a_recorded_program_comes_back_bit_for_bit(trace, capsule, tmp_path):
    text, back = tmp_path / "text", tmp_path / "back"
    assert trace("edit", capsule, "-o", text).status == 0
    assert trace("assemble", text, "-o", back).status == 0
    assert back.read_bytes() == capsule.read_bytes()


def test_standard_input_and_output_serve_as_files(capsule, monkeypatch, capfdbinary):
    import io

    from hcq.tools import hcq_trace

    text = text_of(capsule.read_bytes())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert hcq_trace.main(["assemble", "-"]) == 0
    assert capfdbinary.readouterr().out == capsule.read_bytes()


def test_packets_commands_and_strings_are_spelled_out(capsule):
    text = text_of(capsule.read_bytes())
    assert re.search(
        r"^  Fill opcode=FILL length=8 dst=0x[0-9a-f]+ pattern=0x0 size_bytes=0x1000$", text, re.M
    )
    assert re.search(r"^  Dispatch opcode=DISPATCH .* arguments=\[[0-9a-f ]+\]$", text, re.M)
    assert re.search(r"^  PackedDispatch verb=DISPATCH .* args=\[0x[0-9a-f]+ 0xf+d\]  # bi$", text, re.M)
    assert re.search(r'^  string \d+ "other"$', text, re.M)
    assert re.search(
        r"^  Submit device=0 .*# queue: main, site: <string>:10 in <module>, thread: MainThread$", text, re.M
    )


def test_a_changed_field_changes_the_packet_and_nothing_else(capsule):
    content = capsule.read_bytes()
    text, count = re.subn(r"pattern=0x0 ", "pattern=0xff ", text_of(content))
    assert count == 1
    before, after = Trace.parse(content), Trace.parse(assemble(text))
    changed = [(a, b) for a, b in zip(before.records, after.records) if a.raw != b.raw]
    assert [a.kind for a, _ in changed] == [Kind.SUBMIT]
    assert "pattern=0xff" in str(after.submissions[0].packets()[0])


def test_a_packet_more_needs_no_counting(capsule):
    text = text_of(capsule.read_bytes())
    more = text.replace("  commands:", "  Barrier opcode=BARRIER length=2\n  commands:", 1)
    made = Trace.parse(assemble(more)).submissions[0]
    assert type(made.packets()[-1]).__name__ == "Barrier"
    assert len(made.commands) == len(Trace.parse(capsule.read_bytes()).submissions[0].commands)


def test_a_cut_file_and_unknown_records_come_back(capsule):
    content = capsule.read_bytes()
    assert assemble(text_of(content[:-3])) == content[:-3]
    made = Maker()
    made.raw(99, b"text \xff\n of another kind", bytes(100) + b"data").raw(98)
    assert assemble(text_of(made.content)) == made.content
    assert "KIND_99" in text_of(made.content)


def test_every_command_comes_back():
    program = SimpleNamespace(args=("buffer", "int", "float"), entry=0x5000, packed=None)
    made = Maker()
    made.device()
    dispatch = Dispatch(program, (CELL, -5, 2.5), (1, 2, 3), (4, 5, 6), 7)  # type: ignore[arg-type]
    made.submit(
        dispatch,
        Copy(1, 2, 3),
        Fill(4, 5, 6),
        Wait(CELL, 1),
        Signal(CELL, 2),
        Indirect(8, 9, "g"),
        words=b"abc\0",
    )
    text = text_of(made.content)
    assert assemble(text) == made.content
    assert text.count("PackedOther") == 5
    assert "args=[0x10000 0xfffffffffffffffb 0x4004000000000000]  # bif" in text


kinds = st.one_of(st.sampled_from([int(kind) for kind in Kind]), st.integers(0, 0xFFFF))
texts = st.one_of(
    st.just(b""), st.binary(max_size=40), st.just(b'{"device":0,"name":"CPU"}'), st.just(b'{"a": "# b"}')
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(kinds, st.integers(0, 3), texts, st.binary(max_size=120)), max_size=6),
    st.binary(max_size=40),
)
def test_any_file_comes_back_bit_for_bit(records, rest):
    content = (
        MAGIC
        + b"".join(pack_record(kind, process, 5, text, data) for kind, process, text, data in records)
        + rest
    )
    assert assemble(text_of(content)) == content


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(HEADS)), st.data())
def test_any_head_comes_back(kind, data):
    made = Maker()
    made.device()
    head = data.draw(
        st.binary(min_size=4 * HEADS[kind].length_words, max_size=4 * HEADS[kind].length_words + 60)
    )
    made.raw(kind, b"", head)
    assert assemble(text_of(made.content)) == made.content


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("  hex 00", "line 1: a record begins at the margin"),
        ("WHAT process=1", "line 1: 'WHAT' is no kind of record"),
        ("MAP process=1 color=3", "line 1: MAP has no 'color'"),
        ("MAP process=x", "line 1: 'x' is no number"),
        ("MAP process=1 time_ns=2\n  hex 0", "line 2: "),
        ("MAP process=1\n  zeros -1", "line 2: zeros -1: takes 0"),
        ("MAP process=1\n  Alloc va=1", "line 2: 'Alloc' is neither hex, zeros, nor a head of this record"),
        ("ALLOC process=1\n  Alloc vb=1", "line 2: Alloc has no field 'vb'"),
        ("ALLOC process=1\n  Alloc va=0x1ffffffffffffffff", "the record that ends at line 2: Alloc.va"),
        ("ALLOC process=1\n  Alloc va=1 what", "line 2: 'what' is not key=value"),
        (
            "SUBMIT process=1\n  Submit device=0\n  words:\n  Fill dst=1",
            "line 4: there is no layout 'Fill' here",
        ),
        ("SUBMIT process=1\n  other:", "line 2: 'other:' is no section"),
        ("SUBMIT process=1\n  commands:\n  PackedOther verb=COPY first=x", "line 3: 'x' is no number"),
        ("STRING process=1\n  string 1 open", "line 2: "),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text, why):
    with pytest.raises(UsageError) as error:
        assemble(text)
    assert str(error.value).startswith(why)
    assert "\n" not in str(error.value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_one_sentence(text):
    try:
        assert assemble(text).startswith(MAGIC)
    except UsageError as error:
        assert "line" in str(error)
