"""A small server with a tool, a resource and a prompt.

Run it with:

    portico run examples/quickstart.py
"""

from portico import Context, Server

server = Server("quickstart", "1.0.0", instructions="Forecasts for a few cities.")

FORECASTS = {"paris": (18, "light rain"), "oslo": (9, "clear"), "lagos": (31, "sunny")}


@server.tool
async def forecast(city: str, days: int = 1, *, context: Context) -> dict[str, object]:
    """Forecast the weather in a city.

    Args:
        city: Name of the city, in English.
        days: Number of days to forecast.
    """
    await context.progress(1, 2, f"looking up {city}")
    degrees, sky = FORECASTS.get(city.lower(), (20, "changeable"))
    return {"city": city, "days": days, "celsius": degrees, "sky": sky}


@server.resource("cities://all", mime_type="application/json")
def cities() -> list[str]:
    """The cities that have a forecast."""
    return sorted(FORECASTS)


@server.prompt
def packing_list(city: str) -> str:
    """A packing list for a trip."""
    return f"Get the forecast for {city} and tell me what to pack."
