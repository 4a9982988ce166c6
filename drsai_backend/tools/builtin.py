"""Three tools that are safe to give to any agent: they read nothing, write nothing and always end quickly.

Each answers with text and raises `ValueError` with a sentence that helps the model to ask better.
"""

from __future__ import annotations

import ast
import math
import re
import zoneinfo
from datetime import UTC, datetime
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


def current_time(time_zone: str = "UTC") -> str:
    """The current date and time in a time zone, named like "Europe/Berlin", "Asia/Tokyo" or "UTC". A city works too."""
    name = _zone_name(time_zone.strip() or "UTC")
    local = datetime.now(UTC if name == "UTC" else zoneinfo.ZoneInfo(name))
    return f"{local:%A, %Y-%m-%d %H:%M:%S} {name} (UTC{local:%z})"


def _zone_name(asked: str) -> str:
    if asked.upper() in {"UTC", "GMT", "Z"}:
        return "UTC"
    known = zoneinfo.available_timezones()
    if not known:
        raise ValueError("this machine has no time zone data (install the package tzdata); only UTC is available")
    wanted = asked.replace(" ", "_").lower()
    matches = [name for name in known if name.lower() == wanted or name.lower().rsplit("/", 1)[-1] == wanted]
    if not matches:
        raise ValueError(f"unknown time zone: {asked}. Give a name like Europe/Berlin")
    # "Jamaica" is itself a zone and the end of "America/Jamaica"; the exact name goes first.
    return min(matches, key=lambda name: (name.lower() != wanted, name.count("/"), name))


_KINDS: Final[tuple[dict[str, float], ...]] = (
    {"mm": 0.001, "cm": 0.01, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048, "yd": 0.9144, "mi": 1609.344},
    {"mg": 1e-6, "g": 0.001, "kg": 1.0, "t": 1000.0, "oz": 0.028349523125, "lb": 0.45359237},
    {"ml": 0.001, "cl": 0.01, "l": 1.0, "gal": 3.785411784, "pt": 0.473176473, "cup": 0.2365882365},
    {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 604800.0},
    {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "knot": 1852 / 3600},
    {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30},
    {"c": 1.0, "f": 5 / 9, "k": 1.0},
)
_ZERO_IN_KELVIN: Final = {"c": 273.15, "f": 459.67 * 5 / 9, "k": 0.0}
_NAMES: Final = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "inch": "in", "inche": "in",
    "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g", "kilogram": "kg",
    "kilo": "kg", "tonne": "t", "ton": "t", "ounce": "oz", "pound": "lb", "milliliter": "ml", "liter": "l",
    "gallon": "gal", "pint": "pt", "millisecond": "ms", "second": "s", "sec": "s", "minute": "min", "hour": "h",
    "hr": "h", "day": "d", "kph": "km/h", "kmh": "km/h", "kn": "knot", "byte": "b", "kilobyte": "kb", "megabyte": "mb",
    "gigabyte": "gb", "terabyte": "tb", "celsius": "c", "fahrenheit": "f", "kelvin": "k",
}  # fmt: skip


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a value between units of length, mass, volume, time, speed, data or temperature.

    Units by symbol or English name: "km", "miles", "lb", "celsius", "mph". Gallons, pints and cups are those of the US.
    """
    source, target = _symbol(from_unit), _symbol(to_unit)
    for factors in _KINDS:
        if source in factors and target in factors:
            base = value * factors[source] + _ZERO_IN_KELVIN.get(source, 0.0)
            result = (base - _ZERO_IN_KELVIN.get(target, 0.0)) / factors[target]
            return f"{value:g} {from_unit} = {result:.6g} {to_unit}"
    raise ValueError(f"cannot convert {from_unit} to {to_unit}")


def _symbol(name: str) -> str:
    plain = name.strip().lower().replace("°", "").replace("metre", "meter").replace("litre", "liter")
    for candidate in (plain, plain.removesuffix("s")):
        symbol = _NAMES.get(candidate, candidate)
        if any(symbol in factors for factors in _KINDS):
            return symbol
    raise ValueError(f"unknown unit: {name}")
