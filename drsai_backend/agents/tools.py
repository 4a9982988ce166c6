"""Three tools that are safe to give to any agent: they read nothing, write nothing and always end quickly.

Each answers with text and raises `ValueError` with a sentence that helps the model to ask better.
"""

from __future__ import annotations

import ast
import math
import operator
import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

MAX_EXPRESSION = 500
"""Longest expression, in characters."""
MAX_DIGITS = 1_000
"""Largest whole number an expression may reach, in decimal digits."""
_MAX_BITS: Final = int(MAX_DIGITS * 3.33)

Number = int | float

# Python's parser warns about quotes and glued words ("1or 2"), in a way that no thread can silence for itself.
_PLAIN: Final = re.compile(r"[\w\s.+*/%^(),-]+")
_GLUED: Final = re.compile(r"\d(?!e[+-]?\d)[a-z]", re.IGNORECASE)
_CONSTANTS: Final[dict[str, float]] = {"pi": math.pi, "e": math.e, "tau": math.tau}


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
    return round(value, int(digits)) if digits else round(value)


_BINARY: Final[dict[type[ast.operator], Callable[[Number, Number], Number]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda left, right: left / right,
    ast.FloorDiv: lambda left, right: left // right,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "factorial": _factorial,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": _round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}


def calculator(expression: str) -> str:
    """Calculate an arithmetic expression, for example "(2 + 3) * 4", "2**10" or "sqrt(16)". Angles are in radians.

    Knows + - * / // % ** (also ^), parentheses, pi, e, tau, and abs, ceil, cos, exp, factorial, floor, log, log10,
    log2, max, min, round, sin, sqrt, tan.
    """
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(f"the expression is longer than {MAX_EXPRESSION} characters")
    if not _PLAIN.fullmatch(expression) or _GLUED.search(expression):
        raise ValueError(f"not an arithmetic expression: {expression}")
    try:
        tree = ast.parse(expression.strip().replace("^", "**"), mode="eval")
        value = _evaluate(tree.body)
        return _shown(value)
    except SyntaxError:
        raise ValueError(f"not an arithmetic expression: {expression}") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None
    except (RecursionError, MemoryError):
        raise ValueError("the expression is nested too deeply") from None
    except ValueError as error:
        raise ValueError(str(error).replace("math domain error", "a function got a number outside its range")) from None
    except TypeError:
        raise ValueError("a function got the wrong number of arguments") from None


def _evaluate(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as value):
            return _bounded(value)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _evaluate(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _bounded(_BINARY[type(op)](_evaluate(left), _evaluate(right)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _bounded(_FUNCTIONS[name](*(_evaluate(argument) for argument in arguments)))
        case _:
            pass
    raise ValueError(f"not allowed in an expression: {ast.unparse(node)}")


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise ValueError(f"a number has more than {MAX_DIGITS} digits")
    return value


def _shown(value: Number) -> str:
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            raise ValueError("the result is not a number")
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else f"{value:.12g}"
    return str(value)


def current_time(time_zone: str = "UTC") -> str:
    """The current date and time in a time zone, named like "Europe/Berlin", "Asia/Tokyo" or "UTC". A city works too."""
    return _now_in(time_zone, datetime.now(UTC))


def _now_in(time_zone: str, now: datetime) -> str:
    name = _zone_name(time_zone.strip() or "UTC")
    zone = UTC if name == "UTC" else zoneinfo.ZoneInfo(name)
    local = now.astimezone(zone)
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


_LENGTH: Final = {
    "mm": 0.001,
    "cm": 0.01,
    "m": 1.0,
    "km": 1000.0,
    "in": 0.0254,
    "ft": 0.3048,
    "yd": 0.9144,
    "mi": 1609.344,
}
_MASS: Final = {"mg": 1e-6, "g": 0.001, "kg": 1.0, "t": 1000.0, "oz": 0.028349523125, "lb": 0.45359237}
_VOLUME: Final = {"ml": 0.001, "cl": 0.01, "l": 1.0, "gal": 3.785411784, "pt": 0.473176473, "cup": 0.2365882365}
_TIME: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 604800.0}
_SPEED: Final = {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "knot": 1852 / 3600}
_DATA: Final = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30}
_KINDS: Final = (_LENGTH, _MASS, _VOLUME, _TIME, _SPEED, _DATA)
_KELVIN: Final[dict[str, tuple[float, float]]] = {"c": (1.0, 273.15), "f": (5 / 9, 459.67 * 5 / 9), "k": (1.0, 0.0)}
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
    source, target = _unit(from_unit), _unit(to_unit)
    if source in _KELVIN and target in _KELVIN:
        factor, offset = _KELVIN[source]
        out_factor, out_offset = _KELVIN[target]
        return f"{value:g} {from_unit} = {(value * factor + offset - out_offset) / out_factor:.6g} {to_unit}"
    for kind in _KINDS:
        if source in kind and target in kind:
            return f"{value:g} {from_unit} = {value * kind[source] / kind[target]:.6g} {to_unit}"
    raise ValueError(f"cannot convert {from_unit} to {to_unit}")


def _unit(name: str) -> str:
    plain = name.strip().lower().replace("°", "").replace("metre", "meter").replace("litre", "liter")
    for candidate in (plain, plain.removesuffix("s")):
        symbol = _NAMES.get(candidate, candidate)
        if symbol in _KELVIN or any(symbol in kind for kind in _KINDS):
            return symbol
    raise ValueError(f"unknown unit: {name}")
