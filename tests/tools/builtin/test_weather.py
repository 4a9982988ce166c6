"""`weather`, against a server that answers as Open-Meteo does."""

from __future__ import annotations

from typing import Any

import pytest

from drsai_backend.config import Settings
from drsai_backend.errors import ConfigurationError
from drsai_backend.tools import ToolBase
from drsai_backend.tools.builtin import builtin_tools
from tests.tools.builtin.calling import said
from tests.tools.http.conftest import Said, Sent, Site

PLACES = {
    "results": [
        {
            "id": 2988507, "name": "Paris", "latitude": 48.85341, "longitude": 2.3488, "elevation": 42.0,
            "feature_code": "PPLC", "country_code": "FR", "admin1_id": 3012874, "timezone": "Europe/Paris",
            "population": 2138551, "country_id": 3017382, "country": "France", "admin1": "Île-de-France",
        },
        {
            "id": 4717560, "name": "Paris", "latitude": 33.66094, "longitude": -95.55551, "elevation": 183.0,
            "feature_code": "PPLA2", "country_code": "US", "timezone": "America/Chicago", "country": "United States",
            "admin1": "Texas", "admin2": "Lamar",
        },
    ],
    "generationtime_ms": 0.6,
}  # fmt: skip
FORECAST: dict[str, Any] = {
    "latitude": 48.86, "longitude": 2.3399997, "generationtime_ms": 0.2, "utc_offset_seconds": 3600,
    "timezone": "Europe/Paris", "timezone_abbreviation": "GMT+1", "elevation": 43.0,
    "current_units": {
        "time": "iso8601", "interval": "seconds", "temperature_2m": "°C", "apparent_temperature": "°C",
        "relative_humidity_2m": "%", "precipitation": "mm", "weather_code": "wmo code", "wind_speed_10m": "km/h",
    },
    "current": {
        "time": "2026-11-23T04:15", "interval": 900, "temperature_2m": 7.4, "apparent_temperature": 4.1,
        "relative_humidity_2m": 81, "precipitation": 0.0, "weather_code": 61, "wind_speed_10m": 14.8,
    },
    "daily_units": {
        "time": "iso8601", "weather_code": "wmo code", "temperature_2m_max": "°C", "temperature_2m_min": "°C",
        "precipitation_sum": "mm", "precipitation_probability_max": "%", "wind_speed_10m_max": "km/h",
    },
    "daily": {
        "time": ["2026-11-23", "2026-11-24"], "weather_code": [63, 3], "temperature_2m_max": [9.1, 8.0],
        "temperature_2m_min": [5.2, -1.5], "precipitation_sum": [6.3, 0.0], "wind_speed_10m_max": [25.6, 18.0],
        "precipitation_probability_max": [100, None],
    },
}  # fmt: skip


def weather(site: Site, **options: Any) -> ToolBase:
    settings = Settings(_env_file=None, weather_url=site.url, geocoding_url=f"{site.url}/places")
    return builtin_tools(["weather"], settings, weather=options)[0]


def answer(sent: Sent) -> Said:
    return Said(PLACES if sent.path == "/places/v1/search" else FORECAST)


async def test_the_weather_of_a_place(site: Site) -> None:
    site.answer = answer
    assert (await said(weather(site), place="Paris", days=2)).splitlines() == [
        "Paris, Île-de-France, France",
        "Now (2026-11-23T04:15, Europe/Paris): light rain, 7.4°C (feels like 4.1°C), humidity 81%, "
        "precipitation 0 mm, wind 14.8 km/h",
        "2026-11-23: rain, 5.2 to 9.1°C, precipitation 6.3 mm (probability 100%), wind up to 25.6 km/h",
        "2026-11-24: overcast, -1.5 to 8°C, precipitation 0 mm (probability unknown), wind up to 18 km/h",
    ]
    place, forecast = site.requests
    assert dict(place.query) == {"name": "Paris", "count": "20", "language": "en", "format": "json"}
    query = dict(forecast.query)
    assert (forecast.path, query["latitude"], query["longitude"]) == ("/v1/forecast", "48.85341", "2.3488")
    assert (query["timezone"], query["forecast_days"]) == ("auto", "2")
    assert "temperature_unit" not in query


async def test_other_units_and_one_of_several_places(site: Site) -> None:
    site.answer = answer
    assert (await said(weather(site), place="Paris, texas", units="imperial")).startswith(
        "Paris, Texas, United States\n"
    )
    query = dict(site.requests[-1].query)
    assert (query["latitude"], query["temperature_unit"], query["wind_speed_unit"], query["precipitation_unit"]) == (
        "33.66094", "fahrenheit", "mph", "inch",
    )  # fmt: skip
    assert await said(weather(site), place="Paris, Peru") == (
        "! There is no Paris in Peru. There are: Paris, Île-de-France, France; Paris, Texas, United States."
    )


async def test_a_place_that_nobody_knows(site: Site) -> None:
    site.answer = lambda sent: Said({"generationtime_ms": 0.5})
    assert "No place is known by the name 'Xyz'" in await said(weather(site), place="Xyz")
    assert "No place is known" in await said(weather(site), place=" , ")


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Said({"error": True, "reason": "Daily API request limit exceeded."}, 429), "(429). Try again later"),
        (Said({"error": True, "reason": "x"}, 400), "an error (400)"),
        (Said("oops"), "no JSON"),
        (Said({}), "another form"),
        (Said({**FORECAST, "current": None}), "another form"),
        (Said({**FORECAST, "daily": {"time": "now"}}), "another form"),
        (Said("", 301, headers={"location": "http://169.254.169.254/"}), "sent on to another address"),
        (Said(b" " * 2_100_000), "more than"),
    ],
)
async def test_a_forecast_that_cannot_be_used(site: Site, found: Said, text: str) -> None:
    site.answer = lambda sent: Said(PLACES) if sent.path.startswith("/places") else found
    told = await said(weather(site), place="Paris")
    assert told.startswith("! ")
    assert text in told


async def test_holes_in_a_forecast(site: Site) -> None:
    """Values that are missing are said to be unknown, and codes nobody knows are shown."""
    daily = {"time": ["2026-11-23"], "weather_code": [42], "temperature_2m_max": []}
    site.answer = lambda sent: (
        answer(sent) if sent.path.startswith("/places") else Said({**FORECAST, "current": {}, "daily": daily})
    )
    told = await said(weather(site), place="Paris")
    assert "sky unknown, unknown (feels like unknown)" in told
    assert "2026-11-23: weather code 42, unknown to unknown" in told


async def test_a_service_that_hangs(site: Site) -> None:
    site.answer = lambda sent: Said("", delay=5)
    assert (await said(weather(site, timeout=0.1), place="Paris")).startswith("! ")


@pytest.mark.parametrize("options", [{"url": "x"}, {"geocoding_url": "https://"}, {"units": "kelvin"}])
def test_options_that_cannot_work(site: Site, options: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^weather: {next(iter(options))}"):
        weather(site, **options)
