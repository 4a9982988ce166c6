"""Conversion of units."""

from __future__ import annotations

from typing import Final

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
