"""What results say of resources: shown under the right name, and all else as it was."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.core.catalog.resource_origins import ResourceOrigins
from portico.core.catalog.resource_routing import ResourceRouting, ServerResources
from portico.core.model.context import Context
from portico.core.model.message import Response

OWNERS = ResourceRouting(
    [ServerResources("first", ["note://a"], []), ServerResources("second", ["note://a"], [])]
)


@pytest.mark.parametrize(
    "number", ["1.000000000000000000001", "1e400", "-0", "1E5", "1" * 40, "0.10"]
)
def test_numbers_stay_as_they_are_where_a_resource_is_shown_otherwise(number: str) -> None:
    result = f'{{"uri":"note://a","n":[{number}]}}'.encode()
    response = Response(id=b"1", result=result)
    shown = ResourceOrigins().rewrite_uris(response, "second", OWNERS, Context())
    escaped = b"portico://second/note%3A%2F%2Fa"
    assert shown.result == b'{"uri":"%b","n":[%b]}' % (escaped, number.encode())


def test_a_result_that_needs_no_change_is_the_very_same() -> None:
    response = Response(id=b"1", result=b'{ "uri" : "note://b", "n": 1.50 }')
    origins, context = ResourceOrigins(), Context()
    assert origins.rewrite_uris(response, "second", OWNERS, context) is response
    assert origins.owner("note://b", context) == "second"


def test_what_a_float_cannot_hold_hides_no_mention() -> None:
    origins, context = ResourceOrigins(), Context()
    response = Response(id=b"1", result=b'{"n":1e400,"uri":"note://b"}')
    assert origins.rewrite_uris(response, "first", OWNERS, context) is response
    assert origins.owner("note://b", context) == "first"


def test_of_very_many_links_the_first_thousand_are_noted() -> None:
    origins, context = ResourceOrigins(), Context()
    links = [{"type": "resource_link", "name": "n", "uri": f"link://{n}"} for n in range(5000)]
    response = Response(id=b"1", result=json.dumps({"content": links}).encode())
    assert origins.rewrite_uris(response, "first", OWNERS, context) is response
    found = [n for n in range(5000) if origins.owner(f"link://{n}", context) == "first"]
    assert found == list(range(1000))


_TEXTS = st.sampled_from(["note://a", 'x"uri', '{"uri":"note://a"}', "\\", "\u20ac", "uri"])
_RESULTS = st.recursive(
    _TEXTS | st.none() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["uri", "resourceUri", "x", "curi"]), inner, max_size=3)
    ),
)


def _shown(value: Any) -> Any:
    """The same with every URI under its own server's name, by a walk over all of it."""
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        keys = ("uri", "resourceUri")
        return {
            key: OWNERS.exposed_uri("second", of)
            if key in keys and isinstance(of, str)
            else _shown(of)
            for key, of in value.items()
        }
    return value


@given(_RESULTS, st.sampled_from([None, 1]))
def test_uris_are_found_where_a_parser_finds_them(value: Any, indent: int | None) -> None:
    response = Response(id=b"1", result=json.dumps({"r": value}, indent=indent).encode())
    noted = ResourceOrigins().rewrite_uris(response, "second", OWNERS, Context())
    assert json.loads(noted.result) == _shown({"r": value})


def _mention(origins: ResourceOrigins, server: str, context: Context, *uris: str) -> list[str]:
    result = msgspec.json.encode([{"uri": uri} for uri in uris])
    noted = origins.rewrite_uris(Response(id=b"1", result=result), server, OWNERS, context)
    return [one["uri"] for one in msgspec.json.decode(noted.result)]


@pytest.mark.parametrize("spelling", ["item://5", "ITEM://5", "item://%35"])
def test_a_server_that_mentions_the_uri_of_another_does_not_get_it(spelling: str) -> None:
    origins, context = ResourceOrigins(), Context()
    assert _mention(origins, "first", context, "item://5") == ["item://5"]
    shown = _mention(origins, "second", context, spelling)[0]
    assert OWNERS.resolve(shown) == ("second", spelling)
    assert origins.owner("item://5", context) == "first"
    assert origins.owner(spelling, context) == "first"


def test_however_much_a_server_mentions_the_mentions_of_others_stay() -> None:
    origins, context = ResourceOrigins(), Context()
    _mention(origins, "first", context, "item://5")
    for start in range(0, 5000, 1000):
        _mention(origins, "second", context, *(f"x://{start + n}" for n in range(1000)))
    assert origins.owner("x://0", context) is None
    assert origins.owner("x://4999", context) == "second"
    _mention(origins, "second", context, "item://5")
    assert origins.owner("item://5", context) == "first"


def test_what_a_server_that_is_gone_has_mentioned_can_be_another_ones() -> None:
    origins, context = ResourceOrigins(), Context()
    _mention(origins, "gone", context, "item://5")
    assert _mention(origins, "second", context, "item://5") == ["item://5"]
    assert origins.owner("item://5", context) == "second"
