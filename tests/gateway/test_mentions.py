"""What results say of resources: shown under the right name, and all else as it was."""

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
