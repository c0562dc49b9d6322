"""Footguns of Python: variables, objects, lists and functions around a recorded function change."""

from __future__ import annotations

import functools
import random
import threading
import types

import numpy as np

from hcq import Tensor
from tests.frontend.footguns import DC, Box, T, gun


@gun
def attribute_number_changed_outside(jit):
    cfg = Box()
    cfg.scale = 2.0
    f = jit(lambda x: x * cfg.scale)
    for i in range(8):
        if i == 4:
            cfg.scale = 3.0
        yield f(T(1))


@gun
def dict_entry_changed_outside(jit):
    cfg = {"scale": 2.0}
    f = jit(lambda x: x * cfg["scale"])
    for i in range(8):
        if i == 4:
            cfg["scale"] = 3.0
        yield f(T(1))


@gun
def list_of_numbers_grows_outside(jit):
    ks = [1.0, 2.0]
    f = jit(lambda x: sum((x * k for k in ks), x * 0))
    for i in range(8):
        if i == 4:
            ks.append(5.0)
        yield f(T(1))


@gun
def list_of_tensors_entry_replaced_outside(jit):
    ws = [T(1), T(2)]
    keep = []
    f = jit(lambda x: x * ws[0] + ws[1])
    for i in range(8):
        if i == 4:
            keep.append(ws[0])
            ws[0] = T(10)
        yield f(T(1))


@gun
def attribute_tensor_replaced_outside(jit):
    b = Box()
    b.w = T(1)
    keep = []
    f = jit(lambda x: x * b.w)
    for i in range(8):
        if i == 4:
            keep.append(b.w)
            b.w = T(10)
        yield f(T(1))


@gun
def list_of_tensors_grows_outside(jit):
    ws = [T(1)]
    f = jit(lambda x: sum((x * w for w in ws), x * 0))
    for i in range(8):
        if i == 4:
            ws.append(T(5))
        yield f(T(1))


@gun
def method_self_number(jit):
    class M:
        def __init__(s):
            s.k = 2.0
            s.w = T(1)

        @jit
        def f(s, x):
            return x * s.k * s.w

    m = M()
    keep = []
    for i in range(12):
        if i == 4:
            m.k = 5.0
        if i == 8:
            keep.append(m.w)
            m.w = T(7)
        yield m.f(T(1))


@gun
def global_name_in_helper(jit):
    g = {"K": 2.0}
    exec("def helper(x): return x*K", g)
    h = g["helper"]
    f = jit(lambda x: h(x))
    for i in range(8):
        if i == 4:
            g["K"] = 4.0
        yield f(T(1))


@gun
def default_argument_tensor(jit):
    w = T(2)

    @jit
    def f(x, w=w, k=3.0):
        return x * w * k

    for i in range(8):
        if i == 4:
            w.assign(T(5)).realize()
        yield f(T(1))
        if i == 5:
            yield f(T(1), k=4.0)


@gun
def default_argument_mutated(jit):
    @jit
    def f(x, ks=[1.0]):  # noqa: B006
        return x * ks[0]

    inner = getattr(f, "function", f)
    for i in range(8):
        if i == 4:
            inner.__defaults__[0][0] = 9.0
        yield f(T(1))


@gun
def default_replaced(jit):
    @jit
    def f(x, k=1.0):
        return x * k

    inner = getattr(f, "function", f)
    for i in range(8):
        if i == 4:
            inner.__defaults__ = (9.0,)
        yield f(T(1))


@gun
def python_rng(jit):
    random.seed(0)
    f = jit(lambda x: x * random.random())
    for _ in range(5):
        yield f(T(1))


@gun
def time_in_function(jit):
    n = [0]

    def tick():
        n[0] += 1
        return float(n[0])

    f = jit(lambda x: x * tick())
    for _ in range(5):
        yield f(T(1))


@gun
def threads(jit):
    f = jit(lambda x: x * 2 + 1)
    out = [None] * 4

    def work(n):
        for i in range(6):
            out[n] = f(T(n + i)).item()

    ts = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    yield out


@gun
def exception_during_record(jit):
    fail = [False]

    @jit
    def f(x):
        y = x * 2
        if fail[0]:
            raise ValueError("boom")
        return y

    for i in range(8):
        fail[0] = i in (1, 5)
        try:
            yield f(T(i))
        except ValueError as e:
            yield str(e)


@gun
def generator_inside(jit):
    def parts(x):
        for k in range(3):
            yield x * k

    f = jit(lambda x: sum(parts(x)))
    for i in range(6):
        yield f(T(i))


@gun
def iterator_captured(jit):
    it = iter(range(100))
    f = jit(lambda x: x * next(it))
    for _ in range(6):
        yield f(T(1))


@gun
def numpy_captured(jit):
    n = np.ones(1, dtype=np.float32)
    f = jit(lambda x: x * Tensor(n))
    for i in range(6):
        if i == 4:
            n[0] = 5
        yield f(T(1))


@gun
def object_argument(jit):
    b = Box()
    b.k = 2.0
    f = jit(lambda x, b: x * b.k)
    for i in range(6):
        if i == 4:
            b.k = 3.0
        yield f(T(1), b)


@gun
def object_argument_with_tensor(jit):
    b = Box()
    b.w = T(2)
    keep = []
    f = jit(lambda x, b: x * b.w)
    for i in range(6):
        if i == 4:
            keep.append(b.w)
            b.w = T(3)
        yield f(T(1), b)


@gun
def lambda_argument(jit):
    f = jit(lambda x, g: g(x))
    k = 2.0

    def g(x):
        return x * k

    for i in range(8):
        if i == 4:
            k = 3.0
        yield f(T(1), g)


@gun
def partial_argument(jit):
    kk = [2.0]
    f = jit(functools.partial(lambda x, k: x * k[0], k=kk))
    for i in range(8):
        if i == 4:
            kk[0] = 3.0
        yield f(T(1))


@gun
def callable_object(jit):
    class C:
        def __init__(s):
            s.k = 2.0

        def __call__(s, x):
            return x * s.k

    c = C()
    f = jit(c)
    for i in range(8):
        if i == 4:
            c.k = 3.0
        yield f(T(1))


@gun
def nonlocal_counter(jit):
    n = 0

    @jit
    def f(x):
        nonlocal n
        n += 1
        return x * 2

    for i in range(6):
        f(T(i))
    yield n


@gun
def attribute_state(jit):
    b = Box()
    b.h = T(0)

    @jit
    def f(x):
        b.h = b.h * 0.5 + x
        return b.h * 1

    for _ in range(6):
        yield f(T(1))


@gun
def last_value_attribute(jit):
    b = Box()

    @jit
    def f(x):
        b.last = x * 3
        return x * 2

    for i in range(6):
        f(T(i))
        yield b.last


@gun
def del_captured(jit):
    ws = {"a": T(1), "b": T(2)}
    f = jit(lambda x: sum((x * w for w in ws.values()), x * 0))
    for i in range(8):
        if i == 4:
            del ws["a"]
        yield f(T(1))


@gun
def class_attribute(jit):
    class C:
        k = 2.0

    f = jit(lambda x: x * C.k)
    for i in range(8):
        if i == 4:
            C.k = 3.0
        yield f(T(1))


@gun
def module_global_attr(jit):
    m = types.ModuleType("m")
    m.k = 2.0
    f = jit(lambda x: x * m.k)
    for i in range(8):
        if i == 4:
            m.k = 3.0
        yield f(T(1))


@gun
def nested_config(jit):
    cfg = {"opt": {"k": [2.0]}}
    b = Box()
    b.c = cfg
    f = jit(lambda x: x * b.c["opt"]["k"][0])
    for i in range(8):
        if i == 4:
            cfg["opt"]["k"][0] = 3.0
        yield f(T(1))


@gun
def dataclass_config(jit):
    c = DC(1, 2, 2.0)
    f = jit(lambda x: x * c.k)
    for i in range(8):
        if i == 4:
            c.k = 3.0
        yield f(T(1))


@gun
def property_config(jit):
    class P:
        def __init__(s):
            s._k = 2.0

        @property
        def k(s):
            return s._k

    c = P()
    f = jit(lambda x: x * c.k)
    for i in range(8):
        if i == 4:
            c._k = 3.0
        yield f(T(1))


@gun
def helper_method(jit):
    class P:
        def __init__(s):
            s._k = 2.0

        def scale(s, x):
            return x * s._k

    c = P()
    f = jit(lambda x: c.scale(x))
    for i in range(8):
        if i == 4:
            c._k = 3.0
        yield f(T(1))


@gun
def getattr_config(jit):
    c = Box()
    c.k = 2.0
    f = jit(lambda x: x * c.k)
    for i in range(8):
        if i == 4:
            c.k = 3.0
        yield f(T(1))


@gun
def local_alias_config(jit):
    c = Box()
    c.k = 2.0

    @jit
    def f(x):
        d = c
        return x * d.k

    for i in range(8):
        if i == 4:
            c.k = 3.0
        yield f(T(1))


@gun
def list_of_layers_grows(jit):
    ls = [lambda x: x * 2]
    f = jit(lambda x: [x := l(x) for l in ls][-1])
    for i in range(8):
        if i == 4:
            ls.append(lambda x: x + 100)
        yield f(T(1))


@gun
def closure_deep(jit):
    def make(k):
        def g(x):
            return x * k["v"]

        return g

    k = {"v": 2.0}
    g = make(k)
    f = jit(lambda x: g(x))
    for i in range(8):
        if i == 4:
            k["v"] = 3.0
        yield f(T(1))


@gun
def string_list(jit):
    acts = ["relu"]
    f = jit(lambda x: getattr(x, acts[0])())
    for i in range(8):
        if i == 4:
            acts[0] = "exp"
        yield f(T(-1))


@gun
def kept_in_list_slot(jit):
    h = [T(0)]

    @jit
    def f(x):
        h[0] = x * 2
        return x

    for i in range(6):
        f(T(i))
        yield h[0]


@gun
def state_replaced_outside(jit):
    st = {"h": T(0)}
    keep = []

    @jit
    def f(x):
        st["h"].assign(st["h"] * 0.5 + x)
        return st["h"] * 1

    for i in range(8):
        if i == 5:
            keep.append(st["h"])
            st["h"] = T(100)
        yield f(T(1))
        yield st["h"] * 1
