"""Footguns of training: layers, optimizers, schedules, gradients and random numbers."""

from __future__ import annotations

import hcq
from hcq import Tensor, dtypes, nn, no_grad
from tests.frontend.footguns import T, gun


@gun
def module_attribute_number(jit):
    class Net(nn.Module):
        def __init__(s):
            super().__init__()
            s.l = nn.Linear(2, 2)
            s.k = 2.0

        def forward(s, x):
            return s.l(x) * s.k

    Tensor.manual_seed(0)
    n = Net()
    f = jit(lambda x: n(x))
    for i in range(8):
        if i == 4:
            n.k = 5.0
        yield f(T(1, 2))


@gun
def module_layer_replaced(jit):
    Tensor.manual_seed(0)
    n = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    other = nn.Linear(2, 2)
    keep = []
    f = jit(lambda x: n(x))
    for i in range(8):
        if i == 4:
            keep.append(n[0])
            n[0] = other
        yield f(T(1, 2))


@gun
def dropout_probability_changed(jit):
    d = nn.Dropout(0.5)
    f = jit(lambda x: d(x))
    Tensor.manual_seed(0)
    for i in range(8):
        if i == 4:
            d.p = 0.0
        yield f(T(*[1] * 8))


@gun
def lr_schedule(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.SGD([w], lr=0.1, momentum=0.9)
    sch = nn.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x) ** 2).sum()
        l.backward()
        opt.step()
        return l

    for _ in range(8):
        yield step(T(1, 0.5))
        sch.step()
        yield w * 1


@gun
def lr_schedule_inside(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.SGD([w], lr=0.1)
    sch = nn.optim.lr_scheduler.StepLR(opt, 2, 0.5)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x) ** 2).sum()
        l.backward()
        opt.step()
        sch.step()
        return l

    for _ in range(12):
        yield step(T(1, 0.5))
        yield w * 1


@gun
def momentum_changed(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.SGD([w], lr=0.1, momentum=0.9)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x) ** 2).sum()
        l.backward()
        opt.step()
        return l

    for i in range(8):
        if i == 4:
            opt.param_groups[0]["momentum"] = 0.1
        yield step(T(1, 0.5))
        yield w * 1


@gun
def weight_decay_changed(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.AdamW([w], lr=0.1)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x) ** 2).sum()
        l.backward()
        opt.step()
        return l

    for i in range(8):
        if i == 4:
            opt.param_groups[0]["weight_decay"] = 0.9
        if i == 6:
            opt.param_groups[0]["betas"] = (0.1, 0.2)
        yield step(T(1, 0.5))
        yield w * 1


@gun
def param_group_added(jit):
    w = nn.Parameter(T(1, 2))
    v = nn.Parameter(T(3, 4))
    opt = nn.optim.SGD([w], lr=0.1)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x * v) ** 2).sum()
        l.backward()
        opt.step()
        return l

    for i in range(8):
        if i == 4:
            opt.add_param_group({"params": [v]})
            v.grad = None
        yield step(T(1, 0.5))
        yield w * 1
        yield v * 1


@gun
def requires_grad_switched(jit):
    w = nn.Parameter(T(1, 2))
    v = nn.Parameter(T(3, 4))
    opt = nn.optim.SGD([w, v], lr=0.01)

    @jit
    def step(x):
        opt.zero_grad()
        l = ((w * x * v) ** 2).sum()
        l.backward()
        opt.step()
        return l

    for i in range(9):
        if i == 4:
            v.requires_grad_(False)
        if i == 7:
            v.requires_grad_(True)
        yield step(T(1, 0.5))
        yield w * 1
        yield v * 1


@gun
def train_eval(jit):
    Tensor.manual_seed(3)
    n = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5))
    f = jit(lambda x: n(x))
    for i in range(15):
        if i % 3 == 0:
            n.train(i % 2 == 0)
        yield f(Tensor([[1.0, i], [2, 3]]).realize())
        yield n[1].running_mean * 1
        yield n[1].num_batches_tracked


@gun
def functional_dropout(jit):
    Tensor.manual_seed(3)
    f = jit(lambda x, t: nn.functional.dropout(x, 0.5, training=t))
    for i in range(10):
        yield f(T(*[1] * 8), i % 2 == 0)


@gun
def seed_reproduces(jit):
    f = jit(lambda x: x + Tensor.rand(3) + Tensor.randn(3) * Tensor.randint(0, 5, (3,)))
    for s in (1, 2, 1):
        Tensor.manual_seed(s)
        for _ in range(4):
            yield f(T(1, 1, 1))


@gun
def seed_inside(jit):
    def g(x):
        Tensor.manual_seed(5)
        return x + Tensor.rand(3)

    f = jit(g)
    for _ in range(5):
        yield f(T(1, 1, 1))


@gun
def no_grad_inside(jit):
    w = nn.Parameter(T(2))

    @jit
    def f(x):
        with no_grad():
            y = w * x
        return y + w * 3

    for i in range(6):
        w.grad = None
        r = f(T(i))
        yield r
        yield r.requires_grad


@gun
def no_grad_outside(jit):
    w = nn.Parameter(T(2))
    f = jit(lambda x: w * x)
    for i in range(8):
        if i % 2:
            with no_grad():
                r = f(T(i))
        else:
            r = f(T(i))
        yield r
        yield r.requires_grad


@gun
def gradient_through(jit):
    w = nn.Parameter(T(2))
    f = jit(lambda x: (w * x).sum())
    for i in range(6):
        w.grad = None
        f(T(i)).backward()
        yield w.grad


@gun
def gradient_to_argument(jit):
    f = jit(lambda x: (x * x).sum())
    for i in range(6):
        x = T(i).requires_grad_()
        f(x).backward()
        yield x.grad


@gun
def grad_function_inside(jit):
    f = jit(lambda x: hcq.func.grad(lambda y: (y * y).sum())(x))
    for i in range(6):
        yield f(T(i))


@gun
def jit_inside_grad(jit):
    f = jit(lambda x: (x * x).sum())
    g = hcq.func.grad(f)
    for i in range(6):
        yield g(T(i))
        yield f(T(i))


@gun
def autocast_inside(jit):
    Tensor.manual_seed(0)
    l = nn.Linear(2, 2)

    @jit
    def f(x):
        with hcq.autocast(x.device, dtypes.bfloat16):
            return l(x)

    for i in range(6):
        r = f(T(i, 1))
        yield r.float()
        yield r.dtype.name


@gun
def jit_of_module(jit):
    Tensor.manual_seed(0)
    n = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    f = jit(n)
    for i in range(10):
        n.train(i < 5)
        yield f(T(i, 1))


@gun
def scaler_in_jit(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.Adam([w], lr=0.1)
    sc = hcq.torch.amp.GradScaler(init_scale=8.0, growth_interval=2)

    @jit
    def step(x):
        opt.zero_grad()
        sc.scale((w * x).sum()).backward()
        sc.step(opt)
        sc.update()

    for i in range(9):
        step(T(1, 1) if i != 6 else T(float("inf"), 1))
        yield w * 1
        yield sc.get_scale()


@gun
def scaler_factor_changed(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.Adam([w], lr=0.1)
    sc = hcq.torch.amp.GradScaler(init_scale=8.0, growth_interval=1)

    @jit
    def step(x):
        opt.zero_grad()
        sc.scale((w * x).sum()).backward()
        sc.step(opt)
        sc.update()

    for i in range(7):
        if i == 4:
            sc.set_growth_factor(4.0)
        step(T(1, 1))
        yield w * 1
        yield sc.get_scale()


@gun
def grad_accumulation(jit):
    w = nn.Parameter(T(1, 2))
    opt = nn.optim.SGD([w], lr=0.1)

    @jit
    def micro(x):
        (w * x).sum().backward()

    for i in range(9):
        micro(T(i, 1))
        yield w.grad * 1
        if i % 3 == 2:
            opt.step()
            opt.zero_grad()


@gun
def load_state_dict_between(jit):
    Tensor.manual_seed(0)
    n = nn.Linear(2, 2)
    s = {k: v.clone().realize() * 0 for k, v in n.state_dict().items()}
    f = jit(lambda x: n(x))
    for i in range(6):
        if i == 4:
            n.load_state_dict(s)
        yield f(T(i, 1))


@gun
def module_to_dtype(jit):
    Tensor.manual_seed(0)
    n = nn.Linear(2, 2)
    f = jit(lambda x: n(x.cast(n.weight.dtype)).float())
    for i in range(6):
        if i == 4:
            n.half()
        yield f(T(i, 1))


@gun
def data_assign(jit):
    w = nn.Parameter(T(1, 2))
    f = jit(lambda x: w * x)
    for i in range(6):
        if i == 4:
            w.data = T(5, 6)
        yield f(T(i, 1)).detach()


@gun
def hook_added(jit):
    Tensor.manual_seed(0)
    n = nn.Linear(2, 2)
    f = jit(lambda x: n(x))
    for i in range(6):
        if i == 4:
            n.register_forward_hook(lambda m, a, o: o * 10)
        yield f(T(i, 1))


@gun
def list_of_layer_objects(jit):
    Tensor.manual_seed(0)
    ls = [nn.Linear(1, 1), nn.Linear(1, 1)]

    class Net:
        def __init__(s):
            s.layers = list(ls)

        def __call__(s, x):
            for l in s.layers:
                x = l(x)
            return x

    n = Net()
    f = jit(n.__call__)
    for i in range(8):
        if i == 4:
            n.layers.pop()
        yield f(T(1))


@gun
def tensor_grad_none_inside(jit):
    w = nn.Parameter(T(1))

    @jit
    def f(x):
        if w.grad is not None:
            w.grad = None
        (w * x).sum().backward()
        return w.grad * 2

    for i in range(6):
        yield f(T(i))


@gun
def rnn_state_dict(jit):
    st = {"h": T(0)}

    @jit
    def f(x):
        st["h"].assign(st["h"] * 0.5 + x)
        return st["h"] * 1

    for i in range(8):
        if i == 5:
            st["h"].zero_()
        yield f(T(1))
