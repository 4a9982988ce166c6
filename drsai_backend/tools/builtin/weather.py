"""The weather comes from Open-Meteo."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias, cast

from pydantic import Field

from drsai_backend.errors import ConfigurationError, ToolError
from drsai_backend.json_types import JsonObject
from drsai_backend.tools.base import ToolBase
from drsai_backend.tools.builtin.services import ask, endpoint, rows
from drsai_backend.tools.function import tool

Units: TypeAlias = Literal["metric", "imperial"]
MAX_DAYS: Final = 16
FORECAST: Final = "https://api.open-meteo.com"
GEOCODING: Final = "https://geocoding-api.open-meteo.com"
_PLACES: Final = 20
"""Places of one name among which the right one is looked for."""
_NOW: Final = (
    "temperature_2m", "apparent_temperature", "relative_humidity_2m", "precipitation", "weather_code", "wind_speed_10m",
)  # fmt: skip
_DAY: Final = (
    "weather_code", "temperature_2m_max", "temperature_2m_min", "precipitation_sum", "precipitation_probability_max",
    "wind_speed_10m_max",
)  # fmt: skip
_SKY: Final = {  # WMO's codes, those that the service uses
    0: "clear", 1: "mainly clear", 2: "partly cloudy", 3: "overcast", 45: "fog", 48: "fog with rime",
    51: "light drizzle", 53: "drizzle", 55: "dense drizzle", 56: "light freezing drizzle", 57: "freezing drizzle",
    61: "light rain", 63: "rain", 65: "heavy rain", 66: "light freezing rain", 67: "freezing rain", 71: "light snow",
    73: "snow", 75: "heavy snow", 77: "snow grains", 80: "light showers", 81: "showers", 82: "violent showers",
    85: "light snow showers", 86: "snow showers", 95: "thunderstorm", 96: "thunderstorm with hail",
    99: "thunderstorm with heavy hail",
}  # fmt: skip


def weather(
    *, url: str = FORECAST, geocoding_url: str = GEOCODING, units: Units = "metric", timeout: float = 15.0
) -> ToolBase:
    """A tool that tells the weather of a place, now and for the coming days.

    Args:
        url: the forecast's host, without `/v1/forecast`.
        geocoding_url: the host that finds places, without `/v1/search`.
        units: `metric` (°C, km/h, mm) or `imperial` (°F, mph, inch), where the model does not say it.
        timeout: seconds of a call.

    Raises:
        ConfigurationError: a URL or the units cannot be used.
    """
    forecast_host = endpoint("url (DRSAI_WEATHER_URL)", url)
    places_host = endpoint("geocoding_url (DRSAI_GEOCODING_URL)", geocoding_url)
    if units not in ("metric", "imperial"):
        raise ConfigurationError("units: metric or imperial")
    usual = units

    @tool(name="weather", idempotent=True, timeout=timeout)
    async def tell(
        place: Annotated[str, Field(min_length=1, max_length=200)],
        days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = 3,
        units: Units = usual,
    ) -> str:
        """The weather of a place, now and for the coming days.

        Args:
            place: a city, with its country or region where there are several: "Paris", "Paris, Texas"
            days: how many days, today included
            units: metric (°C, km/h, mm) or imperial (°F, mph, inch)
        """
        found = await _place(places_host, place, timeout)
        query: dict[str, str | int | float] = {
            "latitude": _coordinate(found, "latitude"),
            "longitude": _coordinate(found, "longitude"),
            "current": ",".join(_NOW),
            "daily": ",".join(_DAY),
            "timezone": "auto",
            "forecast_days": days,
        }
        if units == "imperial":
            query |= {"temperature_unit": "fahrenheit", "wind_speed_unit": "mph", "precipitation_unit": "inch"}
        told = await ask("Open-Meteo", f"{forecast_host}/v1/forecast", query, timeout=timeout)
        return "\n".join([_named(found), _now(told), *_days(told)])

    return tell


async def _place(host: str, place: str, timeout: float) -> JsonObject:
    """Return what is known of a place: the first one, or the first that has what stands behind the comma."""
    name, *wanted = [part.strip() for part in place.split(",") if part.strip()] or [place]
    query: dict[str, str | int | float] = {"name": name, "count": _PLACES, "language": "en", "format": "json"}
    answer = await ask("Open-Meteo", f"{host}/v1/search", query, timeout=timeout)
    found = rows("Open-Meteo", answer, "results", optional="generationtime_ms" in answer)
    if not found:
        raise ToolError(f"No place is known by the name {name!r}. Give a city, by its English or local name.")
    fitting = [each for each in found if all(_lies_in(each, part) for part in wanted)]
    if not fitting:
        known = "; ".join(map(_named, found[:5]))
        raise ToolError(f"There is no {name} in {', '.join(wanted)}. There are: {known}.")
    return fitting[0]


def _lies_in(place: JsonObject, part: str) -> bool:
    names = (place.get(key) for key in ("country", "country_code", "admin1", "admin2", "admin3"))
    return part.casefold() in {name.casefold() for name in names if isinstance(name, str)}


def _named(place: JsonObject) -> str:
    names = (place.get(key) for key in ("name", "admin1", "country"))
    return ", ".join(dict.fromkeys(name for name in names if isinstance(name, str) and name))


def _coordinate(place: JsonObject, name: str) -> float:
    value = place.get(name)
    if not isinstance(value, int | float):
        raise _other_form()
    return value


def _now(told: JsonObject) -> str:
    now, units = _object(told, "current"), _object(told, "current_units")

    def shown(name: str) -> str:
        return _shown(now.get(name), units.get(name))

    return (
        f"Now ({now.get('time', 'local time unknown')}, {told.get('timezone', 'time zone unknown')}): "
        f"{_sky(now.get('weather_code'))}, {shown('temperature_2m')} (feels like {shown('apparent_temperature')}), "
        f"humidity {shown('relative_humidity_2m')}, precipitation {shown('precipitation')}, "
        f"wind {shown('wind_speed_10m')}"
    )


def _days(told: JsonObject) -> list[str]:
    daily, units = _object(told, "daily"), _object(told, "daily_units")
    times: object = daily.get("time")
    if not isinstance(times, list):
        raise _other_form()
    lines = list[str]()
    for number, day in enumerate(cast("list[object]", times)[:MAX_DAYS]):
        value = {name: _nth(daily.get(name), number) for name in _DAY}
        low, high = value["temperature_2m_min"], _shown(value["temperature_2m_max"], units.get("temperature_2m_max"))
        lines.append(
            f"{day}: {_sky(value['weather_code'])}, {_shown(low, '')} to {high}, "
            f"precipitation {_shown(value['precipitation_sum'], units.get('precipitation_sum'))} "
            f"(probability {_shown(value['precipitation_probability_max'], '%')}), "
            f"wind up to {_shown(value['wind_speed_10m_max'], units.get('wind_speed_10m_max'))}"
        )
    return lines


def _object(told: JsonObject, name: str) -> JsonObject:
    value: object = told.get(name)
    if not isinstance(value, dict):
        raise _other_form()
    return cast("JsonObject", value)


def _nth(values: object, number: int) -> object:
    found = cast("list[object]", values) if isinstance(values, list) else []
    return found[number] if number < len(found) else None


def _shown(value: object, unit: object) -> str:
    if not isinstance(value, int | float):
        return "unknown"
    sign = unit if isinstance(unit, str) else ""
    return f"{value:g}{sign}" if sign in ("", "%") or sign.startswith("°") else f"{value:g} {sign}"


def _sky(code: object) -> str:
    return _SKY.get(code, f"weather code {code}") if isinstance(code, int) else "sky unknown"


def _other_form() -> ToolError:
    return ToolError("Open-Meteo answered with JSON of another form than it is known for.")
