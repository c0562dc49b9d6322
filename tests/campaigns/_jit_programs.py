"""Programs for the campaign of jit: a function that is recorded, what is around it, and what is done between its calls.

In       random numbers
Out      lines of Python: (part, line), parts in the order they are printed
Next     jit.py (runs them)

Every line stands for itself, so that a program with fewer lines is a program, or raises a NameError at once. Numbers
are small and halves of whole ones: sums are exact, in whatever order kernels add.
"""

from __future__ import annotations

from random import Random

Lines = list[tuple[str, str]]

PARTS = ("setup", "inner", "body", "outside")
SHAPE = "(2, 3)"
OUTER = ("c0", "c1", "c2", "c3")


def text(lines: Lines) -> str:
    """The program as Python."""
    found = {part: [line for p, line in lines if p == part] for part in PARTS}
    body = [f"        {line}" for line in found["body"]]
    if not any(line.lstrip().startswith("return") for line in body):
        body.append("        return None")
    inner = [f"        {line}" for line in found["inner"]]
    return "\n".join(
        [
            "def program():",
            "    failing = False",
            "    factor = 2.0",
            "    order = [1, 0]",
            "    kept = {}",
            *[f"    {line}" for line in found["setup"]],
            "    @jit",
            "    def g(x):",
            *inner,
            "        return x + 1",
            "    @jit",
            "    def f(x, y, n=1):",
            *body,
            *[f"    {line}" for line in found["outside"]],
            "",
        ]
    )


def draw(rng: Random) -> Lines:
    """A random program."""
    return _Drawing(rng).program()


def counting(rng: Random) -> str:
    """A program in which threads count; what it looks at is 0."""
    threads, calls, kind = (
        rng.randint(2, 4),
        rng.randint(2, 12),
        rng.choice(("lazy", "now", "setitem", "grad")),
    )
    change = {
        "lazy": "w.assign(w + x)",
        "now": "w.assign(w + x).realize()",
        "setitem": "w[0:1] = w + x",
        "grad": "w.assign(w + x); (v * x).sum().backward()",
    }[kind]
    return f"""
def program():
    import threading
    w = Tensor([0.0]).realize()
    v = Tensor([3.0], requires_grad=True)
    v.grad = Tensor([0.0])
    results = []
    @jit
    def f(x):
        {change}
        return w * 1, x + 5
    def work(number):
        mine = Tensor([1.0])
        for call in range({calls}):
            other = (Tensor([float(call)]) * 2 + number)
            counted, five = f(mine)
            results.append(counted)
            look(five=five - 6, other=other - (2 * call + number))
    threads = [threading.Thread(target=work, args=(number,)) for number in range({threads})]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    look(w=w - {threads * calls}, each=np.sort([r.item() for r in results]) - np.arange(1, {threads * calls} + 1))
    if {kind == "grad"}:
        look(grad=v.grad - {threads * calls})
"""


class _Drawing:
    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.lines: Lines = []
        self.temps = 0
        self.held: list[str] = []
        self.results: list[str] = []
        self.count = 0
        self.uses = {
            name: rng.random() < chance
            for name, chance in {
                "w": 0.55,
                "opt": 0.5,
                "bn": 0.2,
                "drop": 0.2,
                "rand": 0.15,
                "kept": 0.15,
                "inner": 0.25,
                "index": 0.25,
                "factor": 0.15,
                "failing": 0.12,
            }.items()
        }

    def say(self, part: str, line: str) -> None:
        self.lines.append((part, line))

    def data(self) -> str:
        values = [[self.rng.randint(-4, 4) / 2 for _ in range(3)] for _ in range(2)]
        return f"Tensor({values})"

    def program(self) -> Lines:
        self.setup()
        self.body()
        self.outside()
        return self.lines

    # -- what is outside --

    def setup(self) -> None:
        rng = self.rng
        for name in OUTER:
            kind = rng.randrange(9)
            if kind < 4:
                line = f"{name} = {self.data()}"
            elif kind == 4:
                line = f"{name} = {self.data()} * 2"
            elif kind == 5 and name != "c0":
                line = f"{name} = {rng.choice(('Tensor(c0)', 'c0.detach()', 'c0.flip(0)', 'c0 * 2', 'c0'))}"
            elif kind == 6:
                line = f"{name} = Tensor.zeros(2, 3)"
            elif kind == 7:
                line = f"{name} = Tensor({self.number()}).expand(2, 3)"
            else:
                line = f"{name} = {self.data()}.realize().flip(1)"
            self.say("setup", line)
        if self.uses["w"]:
            self.say("setup", f"w = Tensor({[[1.0, 2.0, 3.0], [0.5, 1.5, 2.5]]}, requires_grad=True)")
            if self.uses["opt"]:
                kind = rng.choice(("SGD([w], lr=0.5)", "SGD([w], lr=0.5, momentum=0.5)", "Adam([w], lr=0.5)"))
                self.say("setup", f"opt = nn.optim.{kind}")
        if self.uses["bn"]:
            self.say("setup", "bn = nn.BatchNorm1d(3)")
        if self.uses["drop"]:
            self.say("setup", "drop = nn.Dropout(0.5)")
        if self.uses["inner"]:
            for _ in range(rng.randint(0, 2)):
                self.say("inner", self.assignment(["x"], "inside g"))
            self.say("inner", f"x = x * {rng.choice(OUTER)}")

    def number(self) -> str:
        return self.rng.choice(("1.0", "0.5", "-1.0", "2.0", "0.0", "-0.5"))

    def assignment(self, names: list[str], where: str) -> str:
        rng = self.rng
        target, other = rng.choice(OUTER), rng.choice(names)
        value = rng.choice(
            (
                f"{target} * 0.5 + {other}",
                f"{other} + {self.number()}",
                f"{target} + 1",
                f"{rng.choice(OUTER)} * 0.5 - {other}",
                f"{other}",
            )
        )
        kind = rng.randrange(7)
        if kind < 3:
            return f"{target}.assign({value})"
        if kind < 5:
            return f"{target}.assign({value}).realize()"
        if kind == 5:
            return f"{target}[{rng.randrange(2)}] = ({value})[{rng.randrange(2)}]"
        return f"{target}[{rng.randrange(2)}, 1:] = {self.number()}"

    # -- the function --

    def temp(self, expression: str) -> None:
        self.say("body", f"t{self.temps} = {expression}")
        self.temps += 1

    def inside(self) -> str:
        return self.rng.choice([*[f"t{n}" for n in range(self.temps)], "x", "y"])

    def body(self) -> None:
        rng, uses = self.rng, self.uses
        if uses["failing"]:
            if rng.random() < 0.5:
                self.say("body", f"{rng.choice(OUTER)}.assign(x * 2)")
            self.say("body", "if failing: raise ZeroDivisionError('now')")
        self.temp(
            rng.choice(("x + c0", "x * c1 + y", "c0 * 0.5 + x", "x + y * n", "(x + c2).relu()", "x * 1"))
        )
        if uses["w"] and rng.random() < 0.5:
            self.say(
                "body", rng.choice(("w.grad = None", "opt.zero_grad()" if uses["opt"] else "w.grad = None"))
            )
        for _ in range(rng.randint(1, 6)):
            kind = rng.randrange(13)
            a, b, c = self.inside(), self.inside(), rng.choice(OUTER)
            if kind < 3:
                self.temp(
                    rng.choice((f"{a} + {c}", f"{a} * 0.5 + {b}", f"{a} - {c} * {self.number()}", f"{c} * 1"))
                )
            elif kind == 3:
                self.temp(
                    rng.choice(
                        (f"{a}.flip(0)", f"{a}.sum(0) + {b}", f"{a}.max() + {b}", f"{c}.detach() + {a}")
                    )
                )
            elif kind == 4:
                self.say("body", f"{a}.realize()" if a[0] == "t" else f"{c}.realize()")
            elif kind < 8:
                self.say("body", self.assignment([a, b], "inside f"))
            elif kind == 8 and uses["w"]:
                self.say("body", f"(w * {a}.detach()).sum().backward()")
                if uses["opt"] and rng.random() < 0.7:
                    self.say("body", "opt.step()")
            elif kind == 9 and uses["w"]:
                self.temp(
                    rng.choice((f"w * {a}", "w.detach() * 2", f"{a} + (0 if w.grad is None else w.grad)"))
                )
            elif kind == 10:
                self.feature(a)
            elif kind == 11 and uses["kept"]:
                self.say("body", f"kept['{rng.choice('ab')}'] = {rng.choice((a, f'{a} * 2', f'{a}[0]'))}")
            else:
                self.temp(f"{a} * n")
        for name in ("bn", "drop", "rand", "inner", "index", "factor"):
            if uses[name]:
                self.feature(self.inside(), name)
        self.say("body", f"return {self.returned()}")

    def feature(self, a: str, name: str = "") -> None:
        rng = self.rng
        known = [n for n in ("bn", "drop", "rand", "inner", "index", "factor") if self.uses[n]]
        name = name or (rng.choice(known) if known else "")
        expression = {
            "bn": f"bn({a})",
            "drop": f"drop({a})",
            "rand": f"{a} + Tensor.randint(3, size=(2, 3))",
            "inner": f"g({a})",
            "index": rng.choice((f"{a}[order]", f"{a}[:, [2, 0, 1]]", f"{a}[[1, 1]]")),
            "factor": f"{a} * factor",
        }.get(name, f"{a} + 1")
        self.temp(expression)

    def returned(self) -> str:
        rng = self.rng
        last = f"t{self.temps - 1}"
        return rng.choice(
            (
                last,
                last,
                f"({last}, {self.inside()})",
                f"[{last}, {{'a': {self.inside()}, 'n': n}}]",
                f"({last}, {rng.choice(OUTER)})",
                f"{last}.flip(1)",
                f"({last}[0], {last})",
                "None",
                f"{rng.choice(OUTER)}",
                f"({last}, w.grad)" if self.uses["w"] else last,
            )
        )

    # -- calls, and what comes between --

    def outside(self) -> None:
        rng = self.rng
        alias = rng.random()
        for _ in range(rng.randint(5, 12)):
            for _ in range(rng.choice((0, 0, 1, 1, 2))):
                self.between()
            self.call(alias)
            if rng.random() < 0.3:
                self.look()
        self.look(everything=True)

    def argument(self, alias: float) -> str:
        rng = self.rng
        # what shares memory with a tensor that is written to is refused: in a few programs only
        if alias < 0.12:
            return rng.choice((rng.choice(OUTER), "c0.flip(0)", *self.held[-2:], self.data()))
        kinds = [self.data(), self.data(), "s0", "s0.flip(0)", "s0 * 2", "Tensor.ones(2, 3)"]
        return rng.choice(kinds)

    def call(self, alias: float) -> None:
        rng = self.rng
        if self.count == 0:
            self.say("outside", f"s0 = {self.data()}")
        x = self.argument(alias)
        y = x if rng.random() < 0.15 and x[0] in "sc" else self.argument(alias)
        n = rng.choice(("", "", "", "", "", "", ", 1", ", 1.0", ", n=1", ", 0.0", ", -0.0", ", True"))
        name = f"r{self.count}"
        self.count += 1
        how = rng.random()
        if self.uses["failing"] and how < 0.2:
            self.say("outside", f"failing = {rng.choice((True, False))}")
        if self.uses["failing"]:
            self.say("outside", f"{name} = None")
            lines = f"try: {name} = f({x}, {y}{n})"
            self.say("outside", f"{lines}\n    except ZeroDivisionError: pass")
        elif how < 0.06:
            self.say("outside", f"{name} = in_thread(lambda: f({x}, {y}{n}))")
        elif how < 0.1:
            self.say("outside", f"with no_grad(): {name} = f({x}, {y}{n})")
        else:
            self.say("outside", f"{name} = f({x}, {y}{n})")
        self.results.append(name)

    def between(self) -> None:
        rng, uses = self.rng, self.uses
        c = rng.choice(OUTER)
        kind = rng.randrange(12)
        if kind < 3:
            self.say("outside", self.assignment([rng.choice(OUTER), self.data()], "outside"))
        elif kind == 3:
            self.say("outside", f"{c}.assign({self.data()})")
        elif kind < 6:
            name = f"h{len(self.held)}"
            kinds = [
                f"{c} * 2",
                f"{c}[1:]",
                f"Tensor({c})",
                f"{c}.detach()",
                f"{c} + {rng.choice(OUTER)}",
                f"{c}",
            ]
            kinds += ["w.grad", "w * 3", "w.detach()"] if uses["w"] else []
            self.say("outside", f"{name} = {rng.choice(kinds)}")
            if rng.random() < 0.7:  # else it stays lazy until the end, too
                self.held.append(name)
        elif kind == 6 and uses["w"]:
            lines = ["w.grad = None", f"(w * {c}.detach()).sum().backward()", "w[0] = 1.0"]
            lines += ["opt.zero_grad()", "opt.lr = 0.25"] if uses["opt"] else []
            self.say("outside", rng.choice(lines))
        elif kind == 7 and (uses["bn"] or uses["drop"]):
            name = "bn" if uses["bn"] else "drop"
            self.say("outside", f"{name}.{rng.choice(('eval', 'train'))}()")
        elif kind == 8 and (uses["factor"] or uses["index"]):
            self.say("outside", "factor = 3.0" if uses["factor"] else "order.reverse()")
        elif kind == 9:
            self.say(
                "outside",
                rng.choice((f"{c}.realize()", "Tensor.manual_seed(3)", "reset(f)", f"{c} = {self.data()}")),
            )
        elif kind == 10 and uses["inner"]:
            self.say("outside", f"look(inner=g({self.data()}))")
        elif self.results:
            self.say("outside", f"look(again={rng.choice(self.results)})")

    def look(self, everything: bool = False) -> None:
        names = [*OUTER, *self.held, *self.results]
        names += ["kept"] if self.uses["kept"] else []
        parts = [f"{name}={name}" for name in names]
        if self.uses["w"]:
            parts += ["w=w", "grad=w.grad"]
        if self.uses["bn"]:
            parts += ["mean=bn.running_mean", "batches=bn.num_batches_tracked"]
        if not everything:
            parts = self.rng.sample(parts, self.rng.randint(1, len(parts)))
        self.say("outside", f"look({', '.join(parts)})")
