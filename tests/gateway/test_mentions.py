"""What results say of resources: shown under the right name, and all else as it was."""

import msgspec
import pytest

from portico.catalog.ownership import Owned, Ownership
from portico.gateway.mentions import Mentions
from portico.model.context import Context
from portico.model.message import Response

OWNERS = Ownership([Owned("first", ["note://a"], []), Owned("second", ["note://a"], [])])


@pytest.mark.parametrize(
    "number", ["1.000000000000000000001", "1e400", "-0", "1E5", "1" * 40, "0.10"]
)
def test_numbers_stay_as_they_are_where_a_resource_is_shown_otherwise(number: str) -> None:
    result = f'{{"uri":"note://a","n":[{number}]}}'.encode()
    shown = Mentions().noted(Response(id=b"1", result=result), "second", OWNERS, Context())
    escaped = b"portico://second/note%3A%2F%2Fa"
    if number == "-0":  # which is an integer, and none has it
        number = "0"
    assert shown.result == b'{"uri":"%b","n":[%b]}' % (escaped, number.encode())


def test_a_result_that_needs_no_change_is_the_very_same() -> None:
    response = Response(id=b"1", result=b'{ "uri" : "note://b", "n": 1.50 }')
    mentions, context = Mentions(), Context()
    assert mentions.noted(response, "second", OWNERS, context) is response
    assert mentions.owner("note://b", context) == "second"


def test_what_a_float_cannot_hold_hides_no_mention() -> None:
    mentions, context = Mentions(), Context()
    response = Response(id=b"1", result=b'{"n":1e400,"uri":"note://b"}')
    assert mentions.noted(response, "first", OWNERS, context) is response
    assert mentions.owner("note://b", context) == "first"


def _mention(mentions: Mentions, server: str, context: Context, *uris: str) -> list[str]:
    result = msgspec.json.encode([{"uri": uri} for uri in uris])
    noted = mentions.noted(Response(id=b"1", result=result), server, OWNERS, context)
    return [one["uri"] for one in msgspec.json.decode(noted.result)]


@pytest.mark.parametrize("spelling", ["item://5", "ITEM://5", "item://%35"])
def test_a_server_that_mentions_the_uri_of_another_does_not_get_it(spelling: str) -> None:
    mentions, context = Mentions(), Context()
    assert _mention(mentions, "first", context, "item://5") == ["item://5"]
    shown = _mention(mentions, "second", context, spelling)[0]
    assert OWNERS.read(shown) == ("second", spelling)
    assert mentions.owner("item://5", context) == "first"
    assert mentions.owner(spelling, context) == "first"


def test_however_much_a_server_mentions_the_mentions_of_others_stay() -> None:
    mentions, context = Mentions(), Context()
    _mention(mentions, "first", context, "item://5")
    for start in range(0, 5000, 1000):
        _mention(mentions, "second", context, *(f"x://{start + n}" for n in range(1000)))
    assert mentions.owner("x://0", context) is None
    assert mentions.owner("x://4999", context) == "second"
    _mention(mentions, "second", context, "item://5")
    assert mentions.owner("item://5", context) == "first"


def test_what_a_server_that_is_gone_has_mentioned_can_be_another_ones() -> None:
    mentions, context = Mentions(), Context()
    _mention(mentions, "gone", context, "item://5")
    assert _mention(mentions, "second", context, "item://5") == ["item://5"]
    assert mentions.owner("item://5", context) == "second"
