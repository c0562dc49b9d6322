"""Records: what frozen dataclasses promise, they promise."""

from __future__ import annotations

import dataclasses

import pytest

from hcq.record import record


@record(frozen=True)
class Point:
    """A place."""

    x: int
    y: int = 2
    name: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Twin:
    x: int
    y: int = 2
    name: tuple[str, ...] = ()


def test_a_record_is_made_compared_hashed_and_shown_as_a_frozen_dataclass_is() -> None:
    for given in ([1], [1, 3], [1, 3, ("a",)]):
        one, twin = Point(*given), Twin(*given)
        assert (one.x, one.y, one.name) == (twin.x, twin.y, twin.name)
        assert repr(one) == repr(twin).replace("Twin", "Point")
        assert hash(one) == hash(twin) and one == Point(*given) and one != Point(7) and one != twin
    assert Point(y=4, x=1) == Point(1, 4)
    assert Point.__match_args__ == Twin.__match_args__ == ("x", "y", "name")
    with pytest.raises(TypeError, match=r"Point.*missing.*'x'"):
        Point()  # type: ignore[call-arg]


def test_a_record_does_not_change() -> None:
    one = Point(1)
    with pytest.raises(AttributeError, match=r"Point.x: a record does not change"):
        one.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del one.x
    assert one.x == 1


def test_dataclasses_knows_the_fields_of_a_record() -> None:
    assert dataclasses.replace(Point(1), y=5) == Point(1, 5)
    assert dataclasses.asdict(Point(1)) == dataclasses.asdict(Twin(1))
    assert dataclasses.is_dataclass(Point)
