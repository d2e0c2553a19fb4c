"""Rules with one sign flipped: each ``a + b`` made ``a - b`` or the other way round, each ``-a`` made ``a``, one at a time.

A mutant is the code of a function of `meintorch.rules`, compiled from its source after one change. It takes the place of
the function's own (``fun.__code__``), so that whoever holds the function runs the mutant.
"""

from __future__ import annotations

import ast
import dis
import inspect
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

Signed = ast.BinOp | ast.AugAssign | ast.UnaryOp

FLIPPED: dict[type[ast.AST], Any] = {ast.Add: ast.Sub(), ast.Sub: ast.Add(), ast.USub: ast.UAdd()}


@dataclass(frozen=True)
class Mutant:
    """The code of a function with one sign flipped."""

    id: str  # the function and the term, as the source has it
    original: CodeType
    code: CodeType


def mutants_of(path: str, chosen: Container[CodeType]) -> Iterator[Mutant]:
    """Yield all mutants of the functions in a file whose code is among those chosen."""
    body = ast.parse(Path(path).read_text()).body
    # Beside its imports a statement compiles to what the whole module makes of it: np.x is a function, not a method.
    imports: list[ast.stmt] = [x for x in body if isinstance(x, ast.Import | ast.ImportFrom)]
    for statement in body:
        module = ast.Module([*imports, statement], [])
        before = list(codes(compile(module, path, "exec")))
        for node in signed(statement):
            term = " ".join(ast.unparse(node).split())
            op = node.op
            node.op = FLIPPED[type(op)]
            after = list(codes(compile(module, path, "exec")))
            node.op = op
            changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new and old in chosen]
            if changed:  # the last is the innermost
                original, code = changed[-1]
                yield Mutant(f"{Path(path).stem}.{original.co_qualname}: {term}", original, code)


def codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object, then those of the functions inside it."""
    yield code
    for x in code.co_consts:
        if isinstance(x, CodeType):
            yield from codes(x)


def signed(node: ast.AST) -> Iterator[Signed]:
    """Yield the sums, differences and negations below a node; a number -1 for an axis or for a place in an array is none."""
    if isinstance(node, Signed) and type(node.op) in FLIPPED:
        yield node
    place = isinstance(node, ast.Call | ast.keyword | ast.Slice | ast.Subscript | ast.Tuple)
    for child in ast.iter_child_nodes(node):
        if not (place and isinstance(child, ast.UnaryOp) and isinstance(child.operand, ast.Constant)):
            yield from signed(child)


def has_sign(code: CodeType) -> bool:
    """Tell from its instructions whether a function adds, subtracts or negates."""
    return any(i.opname == "UNARY_NEGATIVE" or i.argrepr in {"+", "-", "+=", "-="} for i in dis.get_instructions(code))


def reached(rule: Callable[..., Any] | None) -> set[FunctionType]:
    """Return a rule together with the functions of `meintorch.rules` that it calls, directly or not."""
    found: set[FunctionType] = set()
    stack: list[Any] = [rule]
    while stack:
        fun = stack.pop()
        fun = inspect.unwrap(fun) if callable(fun) else fun
        if isinstance(fun, FunctionType) and fun not in found and fun.__module__.startswith("meintorch.rules"):
            found.add(fun)
            stack += [fun.__globals__.get(name) for code in codes(fun.__code__) for name in code.co_names]
            stack += [cell.cell_contents for cell in fun.__closure__ or ()]
    return found
