"""Arguments: what a method's annotations say is what it takes; anything else is refused before it runs.

In       a class or a function with full annotations
Out      the same with its parameters checked, and integers and tuples in their plain form
Changes  `check_methods` replaces the public methods of a class, once, when its module is imported
Next     core/base.py (axes and shapes, whose values depend on the tensor), hcq/checks.py (the same for devices)

A parameter's annotation is its declaration: `start: int` takes an int and integers of other libraries, `index: Self` a
tensor on the same device. The checks of a function are compiled into one small function in front of it, a type test
for each parameter, so that a right call costs a tenth of a microsecond. `Any`, and what is not listed in KINDS, is left
to the method.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from hcq.checks import is_whole, shown
from hcq.frontend.core.base import Core
from hcq.frontend.core.errors import NotReal, UsageError
from hcq.frontend.ops.complex_arguments import in_complex
from hcq.frontend.symbolic.variable import Bound
from hcq.ir.dtype import DType

if TYPE_CHECKING:
    import ast

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Any], Any]  # the value in its plain form; raises Refused

ALIASES = {
    "Sizes": "int | Sequence[int]",
    "Shape": "Sequence[int]",
    "Tensor": "Self",
    "Core": "Self",
}


class Refused(Exception):
    """A value is not of a kind."""


class Kind(NamedTuple):
    """What one word of an annotation takes: in words, the test that a right call passes, and the whole check."""

    words: str
    quick: str  # an expression on {0}; "" for none
    check: Check


def _read_back(value: Any) -> Any:
    """A tensor of no axes as the number that it holds, which is computed for this; anything else as it is."""
    return value.item() if isinstance(value, Core) and not value.node.shape else value  # type: ignore[attr-defined]


def _int(value: Any) -> int:
    value = _read_back(value)
    if not is_whole(value):
        raise Refused
    number = int(value.__index__())
    if not -(2**63) <= number < 2**63:
        raise Refused("does not fit 64 bits")
    return number


def _float(value: Any) -> Any:
    value = _read_back(value)
    if isinstance(value, (bool, type)) or hasattr(value, "__len__") or not hasattr(value, "__float__"):
        raise Refused
    try:
        number = float(value)
    except (OverflowError, TypeError):
        raise Refused("is beyond every float") from None
    return value if isinstance(value, (int, float)) else number


def _scalar(value: Any) -> Any:
    value = _read_back(value)
    if isinstance(value, (bool, int, float)):
        return value
    if not hasattr(value, "__len__") and hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()  # a NumPy number counts as a Python one
        if isinstance(value, (bool, int, float)):
            return value
    if isinstance(value, complex):
        raise NotReal("takes a real number.")
    raise Refused


def _dtype(value: Any) -> DType:
    if not isinstance(value, DType):
        raise Refused
    if value.is_complex:
        raise NotReal("takes a dtype of real numbers. Compute in float32, and make complex numbers of that.")
    return value


def _of(kind: type) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, kind):
            raise Refused
        return value

    return check


def _truth(value: Any) -> bool:
    if type(value) is int and value in (0, 1):
        return bool(value)
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return bool(value)
    raise Refused


_ONLY_INT = {int}
_WHOLE = "(type({0}) is int and -0x8000000000000000 <= {0} <= 0x7fffffffffffffff)"
KINDS = {
    "int": Kind("an int", _WHOLE, _int),
    "float": Kind("a number", f"type({{0}}) is float or {_WHOLE}", _float),
    "Scalar": Kind("a number", "type({0}) is float or type({0}) is int or type({0}) is bool", _scalar),
    "bool": Kind("True or False", "{0} is True or {0} is False", _truth),
    "str": Kind("a string", "type({0}) is str", _of(str)),
    "DType": Kind("a dtype, such as dtypes.float32", "type({0}) is DType", _dtype),
    "AnyDType": Kind("a dtype, such as dtypes.complex64", "type({0}) is DType", _of(DType)),
    "Bound": Kind("a bound Variable", "type({0}) is Bound", _of(Bound)),
    "Self": Kind("a tensor", "isinstance({0}, Core)", _of(Core)),
    "None": Kind("None", "{0} is None", _of(type(None))),
}


def check_methods(cls: type, besides: str = "", meeting: frozenset[str] = frozenset()) -> None:
    """Check the arguments of the public methods, and of the one called `besides`, of a class and its bases.

    meeting  names of methods that do the same with complex numbers
    """
    for base in cls.__mro__:
        if not base.__module__.startswith("hcq.") or "_is_checked" in base.__dict__:
            continue
        for name, member in checked_members(base, base, besides, meeting):
            if member is not base.__dict__[name]:
                setattr(base, name, member)
        base._is_checked = True  # type: ignore[attr-defined]


def checked_members(
    owner: type, group: type, besides: str = "", meeting: frozenset[str] = frozenset()
) -> Iterator[tuple[str, Any]]:
    """What a class defines, for `owner` to have: its public methods check their arguments, the rest is as it is."""
    for name, member in list(vars(group).items()):
        wrap = type(member) if isinstance(member, (classmethod, staticmethod)) else _itself
        inner = member.__func__ if wrap is not _itself else member
        if (not name.startswith("_") or name == besides) and isinstance(inner, FunctionType):
            if name in meeting or any(_is_declared(text) for text in inner.__annotations__.values()):
                member = wrap(_at_first_call(owner, name, inner, wrap, name in meeting))
        yield name, member


def _itself(function: F) -> F:
    return function


def _is_declared(annotation: Any) -> bool:
    return isinstance(annotation, str) and not annotation.startswith(("Any", "Callable"))


def _at_first_call(
    base: type, name: str, inner: Callable[..., Any], wrap: Callable[[Any], Any], takes_complex: bool
) -> Any:
    """A method that makes its checks when it is first called, and is then replaced: most are never called.

    Who took it before, as in Sequential(Tensor.relu), goes on calling this one.
    """
    made: Callable[..., Any] | None = None

    @functools.wraps(inner)
    def first(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = checked(inner, base.__name__ if name == "__init__" else name, takes_complex)
            setattr(base, name, wrap(made))
        return made(*args, **kwargs)

    return first


def checked(function: F, call: str = "", takes_complex: bool = False) -> F:
    """The function with its arguments checked; itself when its annotations leave all of them to it.

    takes_complex  when it raises NotReal, the same is done with complex numbers
    """
    import inspect  # and what it imports: not before a method is called

    parameters = list(inspect.signature(function).parameters.values())
    names: dict[str, Any] = {
        "_inner": function,
        "Core": Core,
        "DType": DType,
        "Bound": Bound,
        "_are_ints": _are_ints,
    }
    lines: list[str] = []
    takes_self = bool(parameters) and parameters[0].name == "self"
    for parameter in parameters:
        kind = None if isinstance(parameter.annotation, type) else _kind(str(parameter.annotation))
        if kind is None or parameter.kind is parameter.VAR_KEYWORD:
            continue
        name = parameter.name
        text = str(parameter.annotation)
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = Kind(f"{kind.words} each", "not {0}", _each(kind.check, tuple))
        refuse = functools.partial(_refuse, call or function.__name__, name, kind)
        names[f"_check_{name}"] = refuse
        lines.append(
            f"    if not ({kind.quick.format(name)}): {name} = _check_{name}({name})"
            if kind.quick
            else f"    {name} = _check_{name}({name})"
        )
        if takes_self and text in ("Self", "Self | None"):
            guard = f"{name} is not None and " if "None" in text else ""
            lines.append(f"    if {guard}{name}.device != self.device: self._same_device({call!r}, {name})")
    if not lines and not takes_complex:
        return function
    heads, passes, defaults = _forwarded(function)
    names |= defaults
    source = [
        f"def _checked({', '.join(heads)}):",
        *lines,
        f"    return _inner({', '.join(passes)})",
    ]
    if takes_complex:  # what is not taken costs nothing
        names["NotReal"], names["_in_complex"] = NotReal, in_complex
        again = ", ".join([repr(call), *passes])
        source[1:] = ["    try:", *[f"    {line}" for line in source[1:]]]
        source += ["    except NotReal:", f"        return _in_complex({again})"]
    # a name in this folder: the search for the user's line in a stack skips it
    file = f"{os.path.dirname(__file__)}/arguments of {call or function.__name__}"
    exec(compile("\n".join(source), file, "exec"), names)
    made: Any = functools.wraps(function)(names["_checked"])
    return made  # type: ignore[no-any-return]


def _forwarded(function: Callable[..., Any]) -> tuple[list[str], list[str], dict[str, Any]]:
    """How its parameters are declared, how they are passed on, and its defaults by the names in the declarations."""
    import inspect

    heads: list[str] = []
    passes: list[str] = []
    defaults: dict[str, Any] = {}
    has_star = False
    for parameter in inspect.signature(function).parameters.values():
        name = parameter.name
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            has_star = True
            heads.append(star + name)
            passes.append(star + name)
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            heads.append("*")
            has_star = True
        default = ""
        if parameter.default is not parameter.empty:
            defaults[f"_default_{name}"] = parameter.default
            default = f"=_default_{name}"
        heads.append(name + default)
        passes.append(f"{name}={name}" if parameter.kind is parameter.KEYWORD_ONLY else name)
    return heads, passes, defaults


def listed(call: str, name: str, values: Any) -> list[Any]:
    """A list of what can be iterated once, such as a generator."""
    try:
        return list(values)
    except TypeError:
        raise UsageError(
            f"[{call}] {name}={shown(values)}: give a list of tensors, as model.parameters()."
        ) from None


def _refuse(call: str, name: str, kind: Kind, value: Any) -> Any:
    """The value in its plain form, where the quick test did not know it."""
    try:
        return kind.check(value)
    except NotReal as why:
        raise NotReal(f"[{call}] {name}={shown(value)}: {why}") from None
    except Refused as why:
        reason = f" It {why}." if why.args else ""
        raise UsageError(f"[{call}] {name}={shown(value)}: takes {kind.words}.{reason}") from None


@functools.cache
def _kind(annotation: str) -> Kind | None:
    """What an annotation takes; None when it is not checked here."""
    import ast

    try:
        return _read(ast.parse(annotation.strip(), mode="eval").body)
    except SyntaxError:
        return None


def _read(tree: ast.expr) -> Kind | None:
    import ast

    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.BitOr):
        first, second = _read(tree.left), _read(tree.right)
        return None if first is None or second is None else _either(first, second)
    if isinstance(tree, ast.Constant) and tree.value is None:
        return KINDS["None"]
    if isinstance(tree, ast.Name):
        return _kind(ALIASES[tree.id]) if tree.id in ALIASES and tree.id != "Self" else KINDS.get(tree.id)
    if isinstance(tree, ast.Subscript) and ast.unparse(tree.value) == "os.PathLike":
        return Kind("a path", "", _of(os.PathLike))
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        return None
    outer = tree.value.id
    inner = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    is_open = isinstance(inner[-1], ast.Constant) and inner[-1].value is Ellipsis
    kinds = [_read(part) for part in (inner[:-1] if is_open else inner)]
    if outer == "Mapping" and len(kinds) == 2 and kinds[1] is not None:
        return Kind(f"a mapping of names to {kinds[1].words}", "", _mapping(kinds[1].check))
    if outer not in ("tuple", "list", "Sequence") or any(kind is None for kind in kinds):
        return None
    first = kinds[0]
    assert first is not None
    if outer == "tuple" and not is_open:
        return Kind(f"{len(kinds)} of {first.words}", "", _each(first.check, tuple, len(kinds)))
    quick = "type({0}) is tuple and _are_ints({0})" if first is KINDS["int"] else ""
    return Kind(f"a list of {first.words}", quick, _each(first.check, tuple))


def _either(first: Kind, second: Kind) -> Kind:
    def check(value: Any) -> Any:
        try:
            return first.check(value)
        except Refused as why:
            if why.args:
                raise
            return second.check(value)

    quick = " or ".join(filter(None, (first.quick, second.quick)))
    words = first.words if second.words in first.words else f"{first.words}, or {second.words}"
    return Kind(words, quick, check)


def _are_ints(values: tuple[Any, ...]) -> bool:
    """The quick test of a shape: plain ints of 64 bits."""
    return not values or (
        set(map(type, values)) == _ONLY_INT and -(2**63) <= min(values) and max(values) < 2**63
    )


def _each(check: Check, make: Callable[[Iterable[Any]], Any], count: int | None = None) -> Check:
    """Several values, each of one kind, as a tuple or a list."""

    def check_each(value: Any) -> Any:
        if isinstance(value, (str, bytes, bytearray, Mapping, set, frozenset, Core)):
            raise Refused
        if not isinstance(value, Sequence) and not hasattr(value, "__iter__"):
            raise Refused
        try:
            found = make(check(each) for each in value)
        except TypeError:  # an array of no axis has __iter__, and refuses to be iterated
            raise Refused from None
        if count is not None and len(found) != count:
            raise Refused
        return found

    return check_each


def _mapping(check: Check) -> Check:
    def check_values(value: Any) -> Any:
        if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
            raise Refused
        for each in value.values():
            check(each)
        return value

    return check_values
