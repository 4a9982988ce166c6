"""The calculator always ends quickly, whatever it is asked: it gives a result or says what is wrong."""

from __future__ import annotations

import ast
import math
import re
from typing import Any, Final, TypeAlias

from simpleeval import InvalidExpression, SimpleEval

from drsai_backend.json_types import JsonObject

MAX_EXPRESSION = 500
"""Longest expression, in characters."""
MAX_DIGITS = 1_000
"""Largest whole number that a product or a power in an expression may reach, in decimal digits."""
_MAX_BITS: Final = int(MAX_DIGITS * 3.33)

Number: TypeAlias = int | float

# Python's parser warns about quotes and glued words ("1or 2"), in a way that no thread can silence for itself.
_PLAIN: Final = re.compile(r"[\w .+*/%^(),-]+")
_GLUED: Final = re.compile(r"\d(?!e[+-]?\d)[a-z]", re.IGNORECASE)


def _product(left: Number, right: Number) -> Number:
    result = left * right
    if isinstance(result, int) and result.bit_length() > _MAX_BITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return result


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int):
        if abs(base) > 1 and math.log2(abs(base)) * abs(exponent) > _MAX_BITS:
            raise ValueError("the power is too large")
        return base**exponent
    result = float(base) ** float(exponent)
    if isinstance(result, complex):
        raise ValueError("a root of a negative number is not a real number")
    return result


def _factorial(value: Number) -> int:
    if value != int(value) or not 0 <= value <= 400:
        raise ValueError("factorial takes whole numbers from 0 to 400")
    return math.factorial(int(value))


def _round(value: Number, digits: Number = 0) -> Number:
    return round(value, max(-MAX_DIGITS, min(MAX_DIGITS, int(digits)))) if digits else round(value)


_OF_MATH: Final = ("ceil", "cos", "exp", "floor", "log", "log10", "log2", "sin", "sqrt", "tan")
_FUNCTIONS: Final[JsonObject] = {
    **{name: getattr(math, name) for name in _OF_MATH},
    "abs": abs,
    "factorial": _factorial,
    "max": max,
    "min": min,
    "round": _round,
}
_EVALUATOR: Final[Any] = SimpleEval(functions=_FUNCTIONS, names={"pi": math.pi, "e": math.e, "tau": math.tau})
_EVALUATOR.operators |= {ast.Mult: _product, ast.Pow: _power}
# It knows texts, lists, attributes and conditions, too; an expression needs none of them.
_EVALUATOR.nodes = {
    kind: _EVALUATOR.nodes[kind] for kind in (ast.Expr, ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp, ast.Call)
}


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression, for example "(2 + 3) * 4", "2**10" or "sqrt(16)". Angles are in radians.

    Knows + - * / // % ** (also ^), parentheses, pi, e, tau, and abs, ceil, cos, exp, factorial, floor, log, log10,
    log2, max, min, round, sin, sqrt, tan.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"the expression is longer than {MAX_EXPRESSION} characters")
    plain = " ".join(expression.split())
    if not _PLAIN.fullmatch(plain) or _GLUED.search(plain):
        raise ValueError(f"not an arithmetic expression: {expression}")
    try:
        value: object = _EVALUATOR.eval(plain.replace("^", "**"))
    except SyntaxError:
        raise ValueError(f"not an arithmetic expression: {expression}") from None
    except OverflowError:
        raise ValueError("the result is too large") from None
    except (RecursionError, MemoryError):
        raise ValueError("the expression is nested too deeply") from None
    except (InvalidExpression, ArithmeticError, TypeError) as error:
        raise ValueError(str(error)) from None
    if not isinstance(value, Number) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("the result is not a number")
    if isinstance(value, int):
        return str(value)
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
