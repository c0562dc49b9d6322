"""A function that reads `.grad` reads, replayed, the gradient that is there, whoever holds the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hcq import Tensor, jit
from hcq.errors import UsageError
from tests.campaigns._jit_programs import draw, text
from tests.campaigns.campaign import Case
from tests.campaigns.jit import verdict

Wrap = Callable[[Callable[..., Any]], Any]


class World:
    """Two weights with gradients, a constant, a place to keep things."""

    def __init__(self) -> None:
        self.w = Tensor([1.0, 2.0], requires_grad=True)
        self.v = Tensor([3.0, 4.0], requires_grad=True)
        self.c = Tensor([0.5, 0.25]).realize()
        self.kept: dict[str, Any] = {}
        self.set(1)

    def set(self, n: int) -> None:
        """Replace both gradients by what a backward() finds."""
        self.w.grad = self.v.grad = None
        (self.w * (10.0 * n) + self.v * (100.0 * n)).sum().backward()


def plus(x: Tensor, gradient: Tensor | None) -> Tensor:
    return x * 1 if gradient is None else x + gradient


# what the function does
INSIDE: dict[str, Callable[[World, Tensor], Any]] = {
    "returns it": lambda s, x: s.w.grad,
    "returns it twice": lambda s, x: {"a": [s.w.grad, x * 2], "b": s.w.grad},
    "returns a view of it": lambda s, x: None if s.w.grad is None else (x + 1, s.w.grad[:1]),
    "adds it": lambda s, x: plus(x, s.w.grad),
    "adds and returns it": lambda s, x: (plus(x, s.w.grad), s.w.grad),
    "adds it to what was held": lambda s, x: plus(plus(x, s.kept.get("held")), s.w.grad),
    "adds what was held": lambda s, x: plus(x, s.kept.get("held")),
    "looks and adds what was held": lambda s, x: plus(x, s.kept.get("held")) if s.w.grad is not None else x,
    "gives it to the other": lambda s, x: (x + 1, setattr(s.v, "grad", s.w.grad)),
    "exchanges them": lambda s, x: (setattr_both(s.w, s.v, s.v.grad, s.w.grad), x + 1)[1],
    "clears it": lambda s, x: (plus(x, s.w.grad), setattr(s.w, "grad", None)),
    "returns and clears it": lambda s, x: (s.w.grad, setattr(s.w, "grad", None)),
    "doubles it": lambda s, x: None if s.w.grad is None else (setattr(s.w, "grad", s.w.grad * 2), x + 1)[1],
    "cuts it in place": lambda s, x: (
        None if s.w.grad is None else (s.w.grad.assign(s.w.grad * 0.5), x + 1)[1]
    ),
    "adds to it": lambda s, x: ((s.w * x).sum().backward(), x + 1)[1],
    "returns it and adds to it": lambda s, x: (s.w.grad, (s.w * x).sum().backward()),
    "assigns it": lambda s, x: None if s.w.grad is None else s.c.assign(s.c + s.w.grad) * 1,
}


def setattr_both(a: Any, b: Any, x: Any, y: Any) -> None:
    a.grad, b.grad = x, y


# what is done before call n
OUTSIDE: dict[str, Callable[[World, int], Any]] = {
    "nothing": lambda s, n: None,
    "replaced": lambda s, n: s.set(n),
    "replaced now and then": lambda s, n: s.set(n) if n % 3 == 0 else None,
    "held and replaced": lambda s, n: (s.kept.__setitem__(str(n), s.w.grad), s.set(n)),
    "held and replaced now and then": lambda s, n: (
        (s.kept.__setitem__(str(n), s.w.grad), s.set(n)) if n % 3 == 0 else None
    ),
    "held once, replaced later": lambda s, n: s.kept.setdefault("held", s.w.grad) if n < 4 else s.set(n),
    "its view held": lambda s, n: (
        s.kept.setdefault("held", None if s.w.grad is None else s.w.grad.detach()) if n < 4 else s.set(n)
    ),
    "held and dropped": lambda s, n: (s.kept.pop("now", None), s.kept.__setitem__("now", s.w.grad), s.set(n)),
    "cleared": lambda s, n: setattr(s.w, "grad", None) if n == 4 else None,
    "held and cleared": lambda s, n: (
        (s.kept.__setitem__("then", s.w.grad), setattr(s.w, "grad", None)) if n == 4 else None
    ),
    "added to": lambda s, n: (s.w * float(n)).sum().backward(),
    "held and added to": lambda s, n: (s.kept.__setitem__(str(n), s.w.grad), (s.w * 2.0).sum().backward()),
    "written in place": lambda s, n: None if s.w.grad is None else s.w.grad.assign(s.w.grad + n),
    "held and written in place": lambda s, n: (
        None if s.w.grad is None else (s.kept.setdefault("held", s.w.grad), s.w.grad.assign(s.w.grad + n))
    ),
    "the other's": lambda s, n: setattr(s.w, "grad", s.v.grad) if n < 4 else s.set(n),
    "the constant": lambda s, n: setattr(s.w, "grad", s.c) if n < 4 else s.set(n),
    "the constant later": lambda s, n: setattr(s.w, "grad", s.c) if n == 4 else None,
    "of another shape": lambda s, n: setattr(s.w, "grad", Tensor([7.0]).realize()) if n == 4 else None,
    "a view": lambda s, n: setattr(s.w, "grad", s.c.flip(0)),
}


def shown(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.tolist()
    if isinstance(tree, dict):
        return {key: shown(item) for key, item in tree.items()}
    return [shown(item) for item in tree] if isinstance(tree, (list, tuple)) else tree


def story(inside: str, outside: str, wrap: Wrap, looks: bool) -> Iterator[Any]:
    """What eight calls give, and what they leave; with `looks` every value is read after each call."""
    s, results = World(), []
    f = wrap(lambda x: INSIDE[inside](s, x))
    for n in range(1, 9):
        OUTSIDE[outside](s, n)
        results.append(f(Tensor([float(n), -float(n)])))
        if looks:
            yield shown([results[-1], s.w.grad, s.v.grad])
    yield shown([results, s.w.grad, s.v.grad, s.c, s.kept])


# a sum of two shapes, a write to a view: errors without jit, too
NO_PROGRAMS = {
    ("adds to it", "of another shape"),
    ("returns it and adds to it", "of another shape"),
    ("cuts it in place", "a view"),
}


@pytest.mark.sampled(80)
@pytest.mark.parametrize("outside", OUTSIDE)
@pytest.mark.parametrize("inside", INSIDE)
def test_what_reads_a_gradient_gives_what_it_gives_without_jit(inside, outside):
    if (inside, outside) in NO_PROGRAMS:
        pytest.skip("an error without jit, too")
    looks = (list(INSIDE).index(inside) + list(OUTSIDE).index(outside)) % 2 == 0
    wanted = list(story(inside, outside, lambda function: function, looks))
    assert list(story(inside, outside, jit, looks)) == wanted


def test_a_returned_gradient_is_the_one_that_is_there_though_somebody_holds_the_one_before():
    w = Tensor([1.0], requires_grad=True)
    f = jit(lambda: w.grad)
    found = []
    for n in (1.0, 1.0, 1.0, 2.0):
        if n != 1.0 or not found:
            w.grad = None
            (w * n).sum().backward()
        found.append(f())
        assert found[-1] is w.grad
    assert [gradient.item() for gradient in found] == [1.0, 1.0, 1.0, 2.0]


def test_the_campaigns_program_sees_with_jit_what_it_sees_without():
    assert verdict(text(draw(Case("saved", 1, 74).rng()))) == ("", False)


@pytest.mark.parametrize("reads", [lambda x, g: x + g, lambda x, g: g, lambda x, g: (x + g, g, g[:1])])
def test_gradients_that_are_held_and_replaced_outside_are_read_by_one_recording(reads):
    w = Tensor([1.0, 2.0], requires_grad=True)
    calls, held = [], []

    @jit
    def f(x):
        calls.append(1)
        return reads(x, w.grad)

    for n in range(1, 20):
        if n % 3 == 1:
            w.grad = None
            (w * float(n)).sum().backward()
        held += [w.grad, f(Tensor([1.0, 2.0]))]
    assert len(calls) < 5
    first = held[-1][0] if isinstance(held[-1], tuple) else held[-1]
    assert first.tolist() == ([19.0, 19.0] if first is w.grad else [20.0, 21.0])


def test_a_gradient_from_before_that_is_kept_somewhere_is_no_recording():
    w = Tensor([1.0], requires_grad=True)
    kept = {}

    @jit
    def f(x):
        kept["gradient"] = w.grad
        return x + 1

    with pytest.raises(UsageError, match=r"keeps the \.grad of a tensor .*return it, or keep a clone"):
        for n in range(1, 20):
            w.grad = None
            (w * float(n)).sum().backward()
            f(Tensor([1.0]))
            assert kept["gradient"] is w.grad
    assert n > 3


def test_a_gradient_that_is_set_to_what_it_was_is_set_by_every_replay():
    w, v = Tensor([1.0], requires_grad=True), Tensor([2.0], requires_grad=True)
    w.grad = v.grad = Tensor([5.0]).realize()

    @jit
    def f(x):
        before, w.grad = w.grad, v.grad
        return x + before

    found = []
    for n in range(8):
        found.append(f(Tensor([0.0])).item())
        v.grad = Tensor([float(n)]).realize()
    assert found == [5.0, 5.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_a_gradient_that_is_written_in_place_is_not_written_once_it_is_replaced():
    w = Tensor([1.0], requires_grad=True)
    cut = jit(lambda: w.grad.assign(w.grad * 0.5).sum())
    w.grad = first = Tensor([8.0]).realize()
    for _ in range(4):
        cut()
    w.grad = Tensor([4.0]).realize()
    assert [cut().item(), cut().item(), cut().item()] == [2.0, 1.0, 0.5]
    assert first.item() == 0.5


def test_a_gradient_in_memory_that_the_function_writes_is_read_before():
    w, c = Tensor([1.0], requires_grad=True), Tensor([1.0]).realize()
    f = jit(lambda: c.assign(c + w.grad) * 1)
    w.grad = Tensor([10.0]).realize()
    found = [f().item() for _ in range(4)]
    w.grad = c
    assert [*found, f().item(), f().item(), f().item()] == [11.0, 21.0, 31.0, 41.0, 82.0, 164.0, 328.0]
