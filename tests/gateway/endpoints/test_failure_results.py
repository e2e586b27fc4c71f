"""What a model reads of a failure, and whose failure it was."""

import pytest

from portico.core.model.message import Response
from portico.gateway.endpoints.failure_results import gateway_failure


def failure(error: str) -> Response:
    return Response(id=b"1", error=error.encode(), code=-32603)


def test_a_failure_of_ours_is_known_by_its_kind_and_server() -> None:
    error = '{"code":-32603,"message":"gone","data":{"kind":"exited","server":"files"}}'
    found = gateway_failure(failure(error), "files")
    assert found is not None
    assert found.message == "gone"
    assert gateway_failure(failure(error), "mail") is None


@pytest.mark.parametrize("data", ['{"n":1e400}', "5", "null", '"x"', '{"kind":"exited"}'])
def test_whatever_a_server_says_went_wrong_is_its_own(data: str) -> None:
    error = f'{{"code":-1,"message":"no","data":{data}}}'
    assert gateway_failure(failure(error), "files") is None
