# SPDX-License-Identifier: Apache-2.0
"""Derived values of a cell: `{=sqrt(work*100)}` in a command is arithmetic over the cell's own numbers."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from memoir._core import Error

_OPERATORS: dict[type, Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., float]] = {
    "sqrt": math.sqrt,
    "log2": math.log2,
    "exp2": lambda x: 2.0**x,
    "ceil": math.ceil,
    "floor": math.floor,
    "round": lambda x, digits=0.0: round(x, int(digits)),
    "int": int,
    "abs": abs,
    "min": min,
    "max": max,
}


def evaluate(text: str, values: Mapping[str, str]) -> str:
    """The value as a command has it: a whole number where it is one, else with six digits.

    Knows + - * / // %, parentheses, and sqrt log2 exp2 ceil floor round int abs min max. Never runs anything else.
    Raises memoir.Error for anything that is not such an expression, names what is not a number, or has no finite value.
    """
    try:
        result = _value(ast.parse(text.strip(), mode="eval").body, values)
        if not math.isfinite(result):
            raise ValueError("is not finite")
    except Error:
        raise
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        shown = text if len(text) <= 80 else f"{text[:80]}..."
        raise Error(f"{{={shown}}}: {str(error)[:200] or type(error).__name__}") from None
    return str(int(result)) if result == int(result) else f"{result:.6g}"


def names(text: str) -> set[str]:
    """The placeholders that an expression uses; empty for what is none: evaluate() says why."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)


def _value(node: ast.AST, values: Mapping[str, str]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return float(number)  # whole ones grow without an end
        case ast.Name(id=name) if name in values:
            try:
                return float(values[name])
            except ValueError:
                raise Error(f"{{=...}}: {name} is {values[name]!r} here, which is not a number") from None
        case ast.Name(id=name):
            raise Error(f"{{=...}}: nothing is called {name}; there are {', '.join(values)}")
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, values), _value(right, values))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(operand, values))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return float(_FUNCTIONS[name](*(_value(argument, values) for argument in arguments)))
    raise Error(f"{{=...}}: use + - * / // %, parentheses and {', '.join(_FUNCTIONS)}")
