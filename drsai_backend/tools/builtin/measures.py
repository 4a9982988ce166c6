"""Measures are the time, anywhere, and units, which are converted."""

from __future__ import annotations

import math
import zoneinfo
from datetime import UTC, datetime
from typing import Final


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


# The symbols in lower case: no two kinds share one.
_KINDS: Final[tuple[dict[str, float], ...]] = (
    {
        "nm": 1e-9, "um": 1e-6, "mm": 0.001, "cm": 0.01, "dm": 0.1, "m": 1.0, "km": 1000.0, "in": 0.0254, "ft": 0.3048,
        "yd": 0.9144, "mi": 1609.344, "nmi": 1852.0,
    },
    {
        "cm2": 1e-4, "m2": 1.0, "ha": 1e4, "km2": 1e6, "sqin": 0.00064516, "sqft": 0.09290304, "acre": 4046.8564224,
        "sqmi": 2589988.110336,
    },
    {"mg": 1e-6, "g": 0.001, "kg": 1.0, "t": 1000.0, "oz": 0.028349523125, "lb": 0.45359237, "st": 6.35029318},
    {
        "ml": 0.001, "cl": 0.01, "dl": 0.1, "l": 1.0, "m3": 1000.0, "gal": 3.785411784, "qt": 0.946352946,
        "pt": 0.473176473, "cup": 0.2365882365, "floz": 0.0295735295625, "tbsp": 0.01478676478125,
        "tsp": 0.00492892159375,
    },
    {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "week": 604800.0},
    {"m/s": 1.0, "km/h": 1 / 3.6, "mph": 0.44704, "knot": 1852 / 3600},
    {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30},
    {"pa": 1.0, "hpa": 100.0, "mbar": 100.0, "kpa": 1e3, "bar": 1e5, "psi": 6894.757293168, "atm": 101325.0},
    {"j": 1.0, "kj": 1e3, "cal": 4.184, "kcal": 4184.0, "wh": 3600.0, "kwh": 3.6e6, "ev": 1.602176634e-19},
    {"w": 1.0, "kw": 1e3, "hp": 745.6998715822702},
    {"deg": math.pi / 180, "rad": 1.0},
    {"c": 1.0, "f": 5 / 9, "k": 1.0},
)  # fmt: skip
_ZERO_IN_KELVIN: Final = {"c": 273.15, "f": 459.67 * 5 / 9, "k": 0.0}
_NAMES: Final = {
    "millimeter": "mm", "centimeter": "cm", "meter": "m", "kilometer": "km", "inch": "in", "inche": "in",
    "foot": "ft", "feet": "ft", "yard": "yd", "mile": "mi", "milligram": "mg", "gram": "g", "kilogram": "kg",
    "kilo": "kg", "tonne": "t", "ton": "t", "ounce": "oz", "pound": "lb", "milliliter": "ml", "liter": "l",
    "gallon": "gal", "pint": "pt", "millisecond": "ms", "second": "s", "sec": "s", "minute": "min", "hour": "h",
    "hr": "h", "day": "d", "kph": "km/h", "kmh": "km/h", "kn": "knot", "byte": "b", "kilobyte": "kb", "megabyte": "mb",
    "gigabyte": "gb", "terabyte": "tb", "celsius": "c", "fahrenheit": "f", "kelvin": "k",
    "hectare": "ha", "square meter": "m2", "square kilometer": "km2", "square foot": "sqft", "square feet": "sqft",
    "square inch": "sqin", "square mile": "sqmi", "m²": "m2", "km²": "km2", "cm²": "cm2", "m³": "m3",
    "cubic meter": "m3", "nautical mile": "nmi", "µm": "um", "μm": "um", "micrometer": "um", "nanometer": "nm",
    "stone": "st", "quart": "qt", "fluid ounce": "floz", "tablespoon": "tbsp", "teaspoon": "tsp", "pascal": "pa",
    "atmosphere": "atm", "joule": "j", "kilojoule": "kj", "calorie": "cal", "kilocalorie": "kcal", "watt hour": "wh",
    "kilowatt hour": "kwh", "watt": "w", "kilowatt": "kw", "horsepower": "hp", "degree": "deg", "radian": "rad",
}  # fmt: skip


def convert_units(value: float, from_unit: str, to_unit: str) -> str:
    """Convert a value between units: length, area, mass, volume, time, speed, data, pressure, energy, power, angle,
    temperature.

    Units by symbol or English name: "km", "miles", "lb", "celsius", "mph". Gallons, pints and cups are those of the US.
    """
    if not math.isfinite(value):
        raise ValueError("the value is not a number")
    source, target = _symbol(from_unit), _symbol(to_unit)
    for factors in _KINDS:
        if source in factors and target in factors:
            base = value * factors[source] + _ZERO_IN_KELVIN.get(source, 0.0)
            result = (base - _ZERO_IN_KELVIN.get(target, 0.0)) / factors[target]
            return f"{_digits(value)} {from_unit} = {_digits(result)} {to_unit}"
    raise ValueError(f"cannot convert {from_unit} to {to_unit}")


def _digits(value: float) -> str:
    """Six of them; of a large number all before the point."""
    return f"{value:.6g}" if abs(value) < 1e5 else f"{round(value, 1):.15g}"


def _symbol(name: str) -> str:
    plain = name.strip().lower().replace("°", "").replace("metre", "meter").replace("litre", "liter")
    for candidate in (plain, plain.removesuffix("s")):
        symbol = _NAMES.get(candidate, candidate)
        if any(symbol in factors for factors in _KINDS):
            return symbol
    raise ValueError(f"unknown unit: {name}")
