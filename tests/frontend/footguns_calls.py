"""Footguns of calls: arguments, results, views, writes in place, shapes, jit inside of jit."""

from __future__ import annotations

import collections

import numpy as np

import hcq
from hcq import Tensor, nn
from tests.frontend.footguns import DC, T, gun

NT = collections.namedtuple("NT", "a b")


@gun
def item_inside(jit):
    f = jit(lambda x: x * x.sum().item())
    for i in range(5):
        yield f(T(i + 1))


@gun
def branch_on_tensor(jit):
    f = jit(lambda x: x * 2 if (x.sum() > 2) else x)
    for i in range(5):
        yield f(T(i + 1))


@gun
def numpy_inside(jit):
    f = jit(lambda x: x * 2 + Tensor(x.numpy()))
    for i in range(5):
        yield f(T(i + 1))


@gun
def for_over_tensor(jit):
    f = jit(lambda x: sum((r * r for r in x), Tensor.zeros(2)))
    for i in range(5):
        yield f(hcq.tensor([[1.0 * i, 2], [3, 4]]).realize())


@gun
def len_of_tensor(jit):
    f = jit(lambda x: x / len(x))
    for i in range(6):
        yield f(T(*range(1, 2 + i % 2 + 1)))


@gun
def inplace_on_argument(jit):
    @jit
    def f(x):
        x.add_(1.0)
        return x * 2

    for i in range(5):
        x = T(i)
        yield f(x)
        yield x


@gun
def inplace_on_view_of_argument(jit):
    @jit
    def f(x):
        v = x[:1]
        v.mul_(2.0)
        return x * 1

    for i in range(5):
        x = T(i, 1)
        yield f(x)
        yield x


@gun
def setitem_on_argument(jit):
    @jit
    def f(x):
        x[0] = 7.0
        return x * 1

    for i in range(5):
        x = T(i, 1)
        yield f(x)
        yield x


@gun
def out_argument_list(jit):
    @jit
    def f(x, out):
        out.append(x * 2)
        return x

    for i in range(5):
        o = []
        f(T(i), o)
        yield o


@gun
def inplace_on_captured(jit):
    a = T(0, 0)

    @jit
    def f(x):
        a.add_(x)
        a[0] = a[1] * 2
        a.mul_(0.5)
        return a.sum()

    for _ in range(6):
        yield f(T(1, 2))
        yield a * 1


@gun
def inplace_on_clone(jit):
    @jit
    def f(x):
        y = x.clone()
        y.add_(1.0)
        y[0] = 5.0
        y.zero_() if False else None
        return y

    for i in range(6):
        yield f(T(i, 2))


@gun
def inplace_on_temp(jit):
    @jit
    def f(x):
        y = x * 2
        y += 1
        y.clamp_(0, 3)
        y.relu_()
        return y, x

    for i in range(6):
        yield f(T(i, 2))


@gun
def view_of_captured_written(jit):
    a = T(0, 0, 0)

    @jit
    def f(x):
        v = a[1:]
        v.copy_(x)
        return a * 1

    for i in range(6):
        yield f(T(i, 2))
        yield a * 1


@gun
def results_are_views_of_one_another(jit):
    @jit
    def f(x):
        y = x + 1
        return y, y[0], y.T[1:], y.detach()

    for i in range(5):
        found = f(Tensor([[float(i), 1.0], [2.0, 3.0]]))
        for number, each in enumerate(found):
            each.mul_(number + 2.0)
            yield found


@gun
def results_are_views_of_what_is_gone(jit):
    @jit
    def f(x):
        y = x + 1
        return y[:2], {"rest": y[1:]}

    for i in range(5):
        first, rest = f(T(i, 1, 2))
        first.add_(10.0)
        yield first, rest
        rest = rest["rest"] if isinstance(rest, dict) else rest
        rest.zero_()
        yield first


@gun
def result_is_a_view_of_an_argument(jit):
    @jit
    def f(x):
        return x[1:], x * 2

    whole = T(1, 2, 3, 4, 5, 6)
    for i in range(6):
        for x in (T(i, 1, 2), T(i, 1, 2) + 1, whole[::2], whole.reshape(2, 3)[1]):
            part, other = f(x)
            part.add_(10.0)
            yield x, part, other, whole
            x.mul_(2.0)
            yield part


@gun
def result_is_a_view_of_what_the_call_wrote(jit):
    a = Tensor([[1.0, 2.0], [3.0, 4.0]]).realize()

    @jit
    def f(x):
        a.add_(x)
        x.mul_(2.0)
        return a[0], x[:1]

    before = []
    for i in range(5):
        x = T(i, 1)
        row, first = f(x)
        before.append(row)
        row.add_(100.0)
        first.sub_(1.0)
        yield a, x, before


@gun
def result_is_a_view_of_what_is_kept(jit):
    kept = {}

    @jit
    def f(x):
        kept["y"] = x * 2
        return kept["y"][0]

    for i in range(5):
        row = f(Tensor([[float(i), 1.0], [2.0, 3.0]]))
        row.add_(10.0)
        yield kept["y"]
        kept["y"].mul_(2.0)
        yield row


@gun
def result_is_a_view_of_a_gradient(jit):
    w = Tensor([1.0, 2.0], requires_grad=True)

    @jit
    def f(x):
        w.grad = None
        (w * x).sum().backward()
        return w.grad[:1]

    for i in range(5):
        first = f(T(i, 2))
        first.add_(10.0)
        yield w.grad
        w.grad.mul_(2.0)
        yield first


@gun
def argument_is_view_of_captured(jit):
    a = T(1, 2, 3)

    @jit
    def f(x):
        r = x * 2
        a.add_(1.0)
        return r

    for _ in range(6):
        yield f(a[1:])
        yield a * 1


@gun
def dtype_shape_changes(jit):
    f = jit(lambda x: x * 2)
    for _ in range(4):
        for x in (
            T(1),
            T(1, 2),
            hcq.tensor([1, 2]),
            Tensor([[1.0]]),
            Tensor([1.0]).half(),
            hcq.tensor([True]),
            Tensor(2.0),
            Tensor.zeros(0),
        ):
            yield f(x.realize())


@gun
def none_vs_tensor(jit):
    f = jit(lambda x, m=None: x if m is None else x * m)
    for i in range(9):
        yield f(T(i)) if i % 3 == 0 else f(T(i), None) if i % 3 == 1 else f(T(i), T(2))


@gun
def kwargs_order(jit):
    f = jit(lambda a, b, c=None: a - b if c is None else a - b * c)
    for i in range(9):
        yield f(a=T(i), b=T(1))
        yield f(b=T(1), a=T(i))
        yield f(T(i), b=T(1))
        yield f(T(i), T(1))
        yield f(c=T(2), a=T(i), b=T(1))


@gun
def dict_order(jit):
    f = jit(lambda d: (lambda a, b: a - b)(*d.values()))
    for i in range(6):
        yield f({"a": T(i), "b": T(1)})
        yield f({"b": T(1), "a": T(i)})


@gun
def dataclass_in(jit):
    f = jit(lambda d: d.a * d.k + d.b)
    for i in range(6):
        yield f(DC(T(i), T(1), 2.0))


@gun
def dataclass_out(jit):
    f = jit(lambda x: DC(x * 2, x + 1))
    for i in range(6):
        r = f(T(i))
        yield r.a
        yield r.b
        yield r.k


@gun
def namedtuple_in_out(jit):
    f = jit(lambda d: NT(d.a * 2, [d.b, {"x": d.a}]))
    for i in range(6):
        yield f(NT(T(i), T(1)))


@gun
def ordered_dict(jit):
    f = jit(lambda d: collections.OrderedDict(z=d["a"] * 2, y=d["a"]))
    for i in range(6):
        r = f(collections.OrderedDict(a=T(i)))
        yield type(r).__name__
        yield dict(r)


@gun
def defaultdict_out(jit):
    def g(x):
        d = collections.defaultdict(list)
        d["a"].append(x * 2)
        return d

    f = jit(g)
    for i in range(6):
        r = f(T(i))
        yield type(r).__name__
        yield dict(r)


@gun
def return_argument(jit):
    f = jit(lambda x, y: (x, y, x))
    for i in range(6):
        x, y = T(i), T(1)
        a, b, c = f(x, y)
        yield a is x, b is y, c is x


@gun
def return_same_twice(jit):
    def g(x):
        y = x * 2
        return y, y, [y]

    f = jit(g)
    for i in range(6):
        a, b, c = f(T(i))
        yield a is b is c[0]
        yield a


@gun
def alias_inputs(jit):
    f = jit(lambda x, y: x * 2 - y)
    for i in range(6):
        a = T(i, 3)
        yield f(a, a)
        yield f(a, T(1, 1))
        yield f(a[:1], a[1:])


@gun
def nested_jit(jit):
    w = T(1)
    g = jit(lambda x: x * w + 1)
    f = jit(lambda x: g(g(x)) * 2)
    for i in range(8):
        if i == 4:
            w.assign(T(3)).realize()
        yield f(T(i))
        yield g(T(i))


@gun
def nested_jit_of_other_shapes(jit):
    g = jit(lambda x: x.sum())
    f = jit(lambda x: g(x) + g(x[:1]))
    for i in range(8):
        yield f(T(i, 2))
        yield f(T(i, 2, 3))


@gun
def generator_function(jit):
    @jit
    def f(x):
        yield x * 2
        yield x * 3

    for i in range(6):
        yield list(f(T(i)))


@gun
def numpy_argument(jit):
    f = jit(lambda x, n: x * Tensor(n))
    for i in range(6):
        yield f(T(1), np.array([float(i)], dtype=np.float32))


@gun
def module_argument(jit):
    Tensor.manual_seed(0)
    a, b = nn.Linear(1, 1), nn.Linear(1, 1)
    f = jit(lambda m, x: m(x))
    for i in range(8):
        yield f(a, T(i))
        yield f(b, T(i))


@gun
def set_argument(jit):
    f = jit(lambda x, s: x * sum(s))
    for _ in range(6):
        yield f(T(1), {1.0, 2.0})


@gun
def enumerate_counter_argument(jit):
    f = jit(lambda x, i: x * i)
    for i in range(6):
        yield f(T(1), i)


@gun
def float_argument_many(jit):
    f = jit(lambda x, i: x * i)
    for i in range(40):
        yield f(T(1), i * 0.5)


@gun
def numpy_scalar_argument(jit):
    f = jit(lambda x, i: x * float(i))
    for i in range(6):
        yield f(T(1), np.float32(i % 2))


@gun
def result_tuple_types(jit):
    f = jit(lambda x: (x * 2, None, 3, "a", [x], {"k": (x + 1,)}))
    for i in range(6):
        yield f(T(i))


@gun
def result_shape_tuple(jit):
    f = jit(lambda x: (x * 2, x.shape, x.dtype, x.device))
    for i in range(6):
        yield f(T(i))[0]


@gun
def complex_args(jit):
    f = jit(lambda z: z * z)
    for i in range(5):
        yield hcq.view_as_real(f(Tensor.complex(T(i), T(1))))
