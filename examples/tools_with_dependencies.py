"""A tool whose database comes from the system: the model never sees it, and a test stands in for it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from drsai_backend import Depends, dependency_overrides, tool
from drsai_backend.tools import call_tool


async def forecasts() -> AsyncIterator[dict[str, str]]:
    """Stands for a connection: opened before a call, closed after it."""
    print("connected")
    yield {"Rome": "sun"}
    print("closed")


@tool(timeout=5, idempotent=True)
async def forecast(city: str, db: Annotated[dict[str, str], Depends(forecasts)], days: int = 1) -> str:
    """Forecast the weather of a city.

    Args:
        city: its English name
        days: how many
    """
    return f"{city}: {', '.join([db[city]] * days)}"


async def main() -> None:
    print("parameters:", ", ".join(forecast.parameters["properties"]))
    print((await call_tool(forecast, {"city": "Rome", "days": 2})).to_text())
    print((await call_tool(forecast, {"city": "Rome", "days": "many"})).to_text())
    with dependency_overrides({forecasts: lambda: {"Rome": "rain"}}):
        print((await call_tool(forecast, {"city": "Rome"})).to_text())


if __name__ == "__main__":
    asyncio.run(main())
