"""Arguments: what a method's annotations say is what it takes; anything else is refused before it runs.

In       a class or a function with full annotations
Out      the same with its parameters checked, and integers and tuples in their plain form
Changes  `check_methods` replaces the public methods of a class, once, when its module is imported
Next     guards.py (what stands in front of a function), core/base.py (axes and shapes, whose values depend on
         the tensor), hcq/checks.py (the same for devices)

A parameter's annotation is its declaration: `start: int` takes an int and integers of other libraries, `index: Self` a
tensor on the same device. The annotations of a function are read once, at its first call. `Any`, and what is not
listed in KINDS, is left to the method.
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
from hcq.frontend.core.known_later import KnownLater
from hcq.frontend.ops.complex_arguments import in_complex
from hcq.frontend.ops.guards import HIGHEST, LOWEST, Rule, guarded
from hcq.ir.dtype import DType

if TYPE_CHECKING:
    import ast
    import inspect

F = TypeVar("F", bound=Callable[..., Any])
Check = Callable[[Any], Any]  # the value in its plain form; raises Refused

ALIASES = {"Sizes": "int | Sequence[int]", "Shape": "Sequence[int]", "Tensor": "Self", "Core": "Self"}


class Refused(Exception):
    """A value is not of a kind."""


class Kind(NamedTuple):
    """What one word of an annotation takes.

    words  for the message of a refusal
    check  the value in its plain form; raises Refused
    plain  types of which every value is right
    whole  ints of 64 bits are right, too
    """

    words: str
    check: Check
    plain: frozenset[type] = frozenset()
    whole: bool = False


def _read_back(value: Any) -> Any:
    """A tensor of no axes as the number that it holds, which is computed for this; anything else as it is."""
    return value.item() if isinstance(value, Core) and not value.node.shape else value  # type: ignore[attr-defined]


def _int(value: Any) -> int:
    value = _read_back(value)
    if not is_whole(value):
        raise Refused
    number = int(value.__index__())
    if not LOWEST <= number <= HIGHEST:
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
KINDS = {
    "int": Kind("an int", _int, whole=True),
    "float": Kind("a number", _float, frozenset({float}), whole=True),
    "Scalar": Kind("a number", _scalar, frozenset({float, int, bool})),
    "bool": Kind("True or False", _truth, frozenset({bool})),
    "str": Kind("a string", _of(str), frozenset({str})),
    "DType": Kind("a dtype, such as dtypes.float32", _dtype, frozenset({DType})),
    "AnyDType": Kind("a dtype, such as dtypes.complex64", _of(DType), frozenset({DType})),
    "Bound": Kind("a bound Variable", _of(KnownLater)),
    "Self": Kind("a tensor", _of(Core)),
    "None": Kind("None", _of(type(None)), frozenset({type(None)})),
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

    parameters = inspect.signature(function).parameters
    takes_self = next(iter(parameters), "") == "self"
    rules: dict[str, Rule] = {}
    for parameter in parameters.values():
        kind = None if isinstance(parameter.annotation, type) else _kind(str(parameter.annotation))
        if kind is None or parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            kind = Kind(f"{kind.words} each", _each(kind.check, tuple, are_ints=kind is KINDS["int"]))
        is_beside = takes_self and str(parameter.annotation) in ("Self", "Self | None")
        rules[parameter.name] = _rule(call or function.__name__, parameter, kind, takes_self, is_beside)
    if not rules and not takes_complex:
        return function
    otherwise = functools.partial(in_complex, call) if takes_complex else None
    return guarded(function, parameters, rules, otherwise)  # type: ignore[return-value]


def _rule(call: str, parameter: inspect.Parameter, kind: Kind, takes_self: bool, is_beside: bool) -> Rule:
    """How the argument of a parameter is looked at.

    takes_self  a method's, whose first argument is the object
    is_beside   a tensor, which must be where the call's first argument is
    """
    name = parameter.name
    # the constructor of a base that has no public name is called by the name of the class that is made
    is_of_class = takes_self and call.startswith("_")

    def taken(value: Any, first: Any) -> Any:
        try:
            return kind.check(value)
        except NotReal as why:
            refused: type[Exception] = NotReal
            what = str(why)
        except Refused as why:
            what = f"takes {kind.words}." + (f" It {why}." if why.args else "")
            refused = UsageError
        raise refused(f"[{type(first).__name__ if is_of_class else call}] {name}={shown(value)}: {what}")

    def beside(value: Any, first: Any) -> Any:
        tensor = value if isinstance(value, Core) else taken(value, first)
        if tensor.device != first.device:
            first._same_device(call, tensor)
        return tensor

    low, high = (LOWEST, HIGHEST) if kind.whole else (1, 0)
    return Rule(beside if is_beside else taken, parameter.default, low, high, kind.plain)


def listed(call: str, name: str, values: Any) -> list[Any]:
    """A list of what can be iterated once, such as a generator."""
    try:
        return list(values)
    except TypeError:
        raise UsageError(
            f"[{call}] {name}={shown(values)}: give a list of tensors, as model.parameters()."
        ) from None


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
        return Kind("a path", _of(os.PathLike))
    if not isinstance(tree, ast.Subscript) or not isinstance(tree.value, ast.Name):
        return None
    outer = tree.value.id
    inner = tree.slice.elts if isinstance(tree.slice, ast.Tuple) else [tree.slice]
    is_open = isinstance(inner[-1], ast.Constant) and inner[-1].value is Ellipsis
    kinds = [_read(part) for part in (inner[:-1] if is_open else inner)]
    if outer == "Mapping" and len(kinds) == 2 and kinds[1] is not None:
        return Kind(f"a mapping of names to {kinds[1].words}", _mapping(kinds[1].check))
    if outer not in ("tuple", "list", "Sequence") or any(kind is None for kind in kinds):
        return None
    first = kinds[0]
    assert first is not None
    if outer == "tuple" and not is_open:
        return Kind(f"{len(kinds)} of {first.words}", _each(first.check, tuple, len(kinds)))
    return Kind(f"a list of {first.words}", _each(first.check, tuple, are_ints=first is KINDS["int"]))


def _either(first: Kind, second: Kind) -> Kind:
    def check(value: Any) -> Any:
        try:
            return first.check(value)
        except Refused as why:
            if why.args:
                raise
            return second.check(value)

    words = first.words if second.words in first.words else f"{first.words}, or {second.words}"
    return Kind(words, check, first.plain | second.plain, first.whole or second.whole)


def _are_ints(values: tuple[Any, ...]) -> bool:
    """The quick test of a shape: plain ints of 64 bits."""
    return not values or (
        set(map(type, values)) == _ONLY_INT and LOWEST <= min(values) and max(values) <= HIGHEST
    )


def _each(
    check: Check, make: Callable[[Iterable[Any]], Any], count: int | None = None, are_ints: bool = False
) -> Check:
    """Several values, each of one kind, as a tuple or a list."""

    def check_each(value: Any) -> Any:
        if are_ints and type(value) is tuple and _are_ints(value):
            return value
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
