"""Laws of every atlas: differences are empty, mirrored and complete as they should be, and C lays structures out alike.

In       the atlases of AMD and NVIDIA
Out      pairs of releases compared in both directions; every structure of every release through C's own rules
Next     test_breaks.py (what differences mean for calls), test_command.py (the program)
"""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from hcq import backends
from hcq.atlas.command import atlases
from hcq.atlas.difference import Difference, difference
from hcq.atlas.text import as_c, as_data, diff_lines
from hcq.errors import UsageError
from hcq.system.abi_atlas import Atlas, Field, Interface, Structure, fields_of

EACH = pytest.mark.parametrize("atlas", atlases().values(), ids=atlases().keys())
SEED = 11
PAIRS = 60


def pairs_of(atlas: Atlas) -> list[tuple[Interface, Interface]]:
    """Neighbours, and others that are chosen at random."""
    known = atlas.releases()
    chosen = random.Random(SEED)
    pairs = [*pairwise(known), *((chosen.choice(known), chosen.choice(known)) for _ in range(PAIRS))]
    return [(atlas.at(older), atlas.at(newer)) for older, newer in pairs]


def applied(before: Interface, found: Difference) -> dict[str, tuple[int, set[Field]]]:
    """The structures of a release after a difference: name -> bytes, fields."""
    made = {one.name: (one.size_bytes, set(one.fields)) for one in before.structures.values()}
    for change in found.structures:
        if change.after is None:
            del made[change.name]
        elif change.before is None:
            made[change.name] = change.after.size_bytes, set(change.after.fields)
        else:
            fields = made[change.name][1]
            for field in change.fields:
                fields -= {field.before} - {None}
            for field in change.fields:
                fields |= {field.after} - {None}
            made[change.name] = change.after.size_bytes, fields
    return made


@EACH
def test_a_release_does_not_differ_from_itself(atlas: Atlas) -> None:
    for release in atlas.releases():
        found = difference(atlas.at(release), atlas.at(release))
        assert not found, release
    assert "nothing differs" in next(diff_lines(atlas, found, atlas.at(release), atlas.at(release)))


@EACH
def test_the_way_back_is_the_mirror_of_the_way_there(atlas: Atlas) -> None:
    for before, after in pairs_of(atlas):
        there, back = difference(before, after), difference(after, before)
        assert set(there.mirrored().values) == set(back.values)
        assert there.mirrored()._replace(values=()) == back._replace(values=())
        assert back.mirrored()._replace(values=()) == there._replace(values=())


@EACH
def test_a_difference_applied_to_a_release_makes_the_other(atlas: Atlas) -> None:
    for before, after in pairs_of(atlas):
        wanted = {one.name: (one.size_bytes, set(one.fields)) for one in after.structures.values()}
        assert applied(before, difference(before, after)) == wanted, (before.release, after.release)


@EACH
def test_every_structure_printed_as_c_is_laid_out_by_c_as_the_headers_have_it(atlas: Atlas) -> None:
    cffi = pytest.importorskip("cffi", reason="lays structures out by the rules of C")
    seen: set[tuple[str, str]] = set()
    for release in atlas.releases():
        for one in atlas.at(release).structures.values():
            if (one.name, one.since) in seen:
                continue
            seen.add((one.name, one.since))
            ffi = cffi.FFI()
            ffi.cdef(as_c(one))
            made = ffi.typeof(f"struct {one.header_name}")
            assert ffi.sizeof(made) == one.size_bytes, one.name
            for field in one.fields:
                array, _, inner = field.name.partition("{i}")
                path = [array.rstrip("_"), *([0, inner.lstrip("_")] if inner else [])]
                assert ffi.offsetof(made, *path) == field.offset, (one.name, field)
    assert len(seen) > 40


@EACH
def test_no_field_overlaps_another_and_every_call_takes_a_structure_that_is_there(atlas: Atlas) -> None:
    for release in atlas.releases():
        found = atlas.at(release)
        for one in found.structures.values():
            spans = sorted(span for field in one.fields for span in field.spans)
            assert all(end <= start for (_, end), (start, _) in pairwise(spans)), one.name
            assert not spans or spans[-1][1] <= one.size_bytes
        for call in found.calls.values():
            assert not call.structure or call.structure in found.structures, call
        for value in found.values:
            assert value.field in {field.name for field in found.structures[value.structure].fields}


@EACH
def test_a_release_stands_for_itself_its_beginning_for_the_newest_and_an_unknown_one_for_an_older(
    atlas: Atlas,
) -> None:
    known = atlas.releases()
    for release in known:
        assert atlas.resolve(release).name == release
        assert atlas.resolve(f"{release}.0.1").name == release
        assert "is not known" in atlas.resolve(f"{release}.0.1").note
    assert atlas.resolve("99999.1").name == known[-1]
    with pytest.raises(UsageError, match=rf"older than {known[0]}, the oldest known\. Known: {known[0]}, "):
        atlas.resolve("0.1")
    for text in ("new", "", "1..2", "-1", "1.2.", "1" * 40, "\u0661.\u0662"):
        with pytest.raises(UsageError, match="no release"):
            atlas.resolve(text)


def test_nvidias_branches_stand_for_their_newest_release_and_one_that_was_read_in_part_says_so() -> None:
    atlas = atlases()["nv"]
    assert atlas.resolve("570.86") == ("570.86.16", "nv 570.86: 570.86.16 is taken, the newest of 570.86.")
    assert atlas.resolve("580.142") == ("580.142", "")
    assert "only the channel's structure was read" in atlas.resolve("610.10").note


def test_a_structure_is_found_by_either_name_in_any_case_and_near_ones_are_named() -> None:
    found = atlases()["nv"].at("580.142")
    assert found.structure("rmallocargs") is found.structure("NVOS64_PARAMETERS")
    with pytest.raises(
        UsageError, match=r"580\.142 has no such structure\. Near it: RmAllocArgs, RmAllocMem"
    ):
        found.structure("RmAlloc")
    with pytest.raises(UsageError, match=r"Known: .*RmAllocArgs"):
        found.structure("nothing like it")


def test_moved_resized_renamed_new_and_gone_fields_are_told_apart() -> None:
    def made(text: str) -> Interface:
        fields = fields_of(text, 64, "X")
        return Interface("1", {"X": Structure("X", "x", 64, fields, "1")}, {})

    before = made("same@0:4 pad@4:4 moved@8:8 grown@16:4 both@24:4 gone@32:8 list@40:4*2")
    after = made("same@0:4 meaning@4:4 moved@48:8 grown@16:8 both@28:2 new@32:4 list@40:4*1")
    (change,) = difference(before, after).structures
    kinds = {(one.before or one.after or ("",))[0]: one.kind for one in change.fields}
    assert kinds == {
        "pad": "renamed",
        "moved": "moved",
        "grown": "resized",
        "both": "moved and resized",
        "gone": "removed",
        "new": "added",
        "list": "resized",
    }
    assert as_data(difference(before, after), before, after)["structures"][0]["bytes_after"] == 64


@pytest.mark.parametrize("text", ["a", "a@1", "a@-1:2", "a@0:0", "a@8:8", "a@0:4*4", "a@0:4*2/9"])
def test_a_field_that_is_written_wrongly_names_its_owner(text: str) -> None:
    with pytest.raises(UsageError, match=r"^here: "):
        fields_of(text, 12, "here")


def test_a_kind_of_device_without_an_atlas_is_not_listed() -> None:
    assert not backends.of("CPU").atlas
    assert set(atlases()) == {"kfd", "nv"}
