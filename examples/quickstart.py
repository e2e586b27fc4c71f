"""A small server with one of each: a tool, a resource, a prompt.

portico run examples/quickstart.py
"""

from portico import Context, Server

server = Server("quickstart", "1.0.0", instructions="Forecasts for a few cities.")

FORECASTS = {"paris": (18, "light rain"), "oslo": (9, "clear"), "lagos": (31, "sunny")}


@server.tool
async def forecast(city: str, days: int = 1, *, context: Context) -> dict[str, object]:
    """Forecast the weather of a city.

    Args:
        city: The city's name, in English.
        days: How many days ahead.
    """
    await context.progress(1, 2, f"looking up {city}")
    degrees, sky = FORECASTS.get(city.lower(), (20, "changeable"))
    return {"city": city, "days": days, "celsius": degrees, "sky": sky}


@server.resource("cities://all", mime_type="application/json")
def cities() -> list[str]:
    """The cities with a forecast of their own."""
    return sorted(FORECASTS)


@server.prompt
def packing_list(city: str) -> str:
    """What to pack for a trip."""
    return f"Ask for the forecast of {city} and tell me what to pack."
