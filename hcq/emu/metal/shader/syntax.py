"""The tree of a kernel: expressions and statements, as they stand in the text.

In       nothing
Out      node classes
Next     parser.py (makes them), translate.py (reads them)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hcq.emu.metal.shader.types import Type

ELEMENTS = "thread_elements"  # the member function that has what a thread holds of a matrix


@dataclass
class Number:
    """A literal. kind: the type it has by its form."""

    value: int | float
    kind: Type


@dataclass
class Name:
    """A variable."""

    name: str
    line: int


@dataclass
class Unary:
    """- ! ~ * &"""

    sign: str
    value: Expression


@dataclass
class Binary:
    """Two operands."""

    sign: str
    left: Expression
    right: Expression


@dataclass
class Choice:
    """condition ? yes : no"""

    condition: Expression
    yes: Expression
    no: Expression


@dataclass
class Cast:
    """(type)value, or type(value)."""

    kind: Type
    value: Expression


@dataclass
class Call:
    """A function, a built-in one, or a vector made of its lanes. kind: of as_type<kind>, or of the vector."""

    name: str
    arguments: list[Expression]
    line: int
    kind: Type | None = None


@dataclass
class Index:
    """base[index]"""

    base: Expression
    index: Expression


@dataclass
class Member:
    """A lane by name, or ELEMENTS: what a thread has of a matrix."""

    base: Expression
    name: str


Expression = Number | Name | Unary | Binary | Choice | Cast | Call | Index | Member


@dataclass
class Declare:
    """A variable, with its first value, or with none; sizes: of an array, each dimension."""

    kind: Type
    name: str
    value: Expression | None
    line: int
    sizes: tuple[int, ...] = ()


@dataclass
class Assign:
    """target = value"""

    target: Expression
    value: Expression
    line: int


@dataclass
class If:
    """With what is done otherwise."""

    condition: Expression
    then: list[Statement]
    otherwise: list[Statement]
    line: int


@dataclass
class For:
    """for (kind name = low; condition; name = step, after) body"""

    kind: Type
    name: str
    low: Expression
    condition: Expression
    step: Expression
    body: list[Statement]
    line: int
    after: list[Statement] = field(default_factory=list)


@dataclass
class Leave:
    """break, or continue."""

    is_continue: bool
    line: int


@dataclass
class Return:
    """The value of a function; None ends a kernel."""

    value: Expression | None
    line: int


@dataclass
class Do:
    """An expression for what it does: a barrier, a product of matrices, an atomic operation, a function."""

    value: Call
    line: int


Statement = Declare | Assign | If | For | Leave | Return | Do


@dataclass
class Parameter:
    """Of a function; of a kernel also its attribute: "buffer(0)", "thread_position_in_threadgroup"."""

    kind: Type
    name: str
    attribute: str = ""
    is_const: bool = False


@dataclass
class Function:
    """A function or a kernel.

    shared   threadgroup memory it declares, name -> (element, bytes); shapes: the dimensions of each, () of one number
    """

    name: str
    result: Type | None
    parameters: list[Parameter]
    body: list[Statement]
    shared: dict[str, tuple[Type, int]] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    most_threads: int = 0
