"""wasi:http: every host or none, since the bindings of wasmtime cannot offer a part of it."""

from pathlib import Path

import pytest

from portico.library.wasm.loaded import ungranted
from tests.library.wasm.hosting import hosted, said, settings
from tests.library.wasm.http_guest import sending
from tests.library.wasm.sites import site
from tests.library.wasm.wat_guests import written

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wasm-sandbox")]

IMPORTS = ("wasi:io/poll@0.2.0", "wasi:http/types@0.2.0", "wasi:http/outgoing-handler@0.2.0")
NO_HOST = "but no host is granted"
ONLY_ANY = "but only http=any can be granted to it"


async def test_a_component_of_wasi_http_reaches_a_site_only_if_every_host_is_granted(
    tmp_path: Path,
) -> None:
    async with site() as web:
        host = f"127.0.0.1:{web.port}"
        source = written(sending(host), tmp_path)
        for hosts, why in (((), NO_HOST), ((host,), ONLY_ANY)):
            async with hosted(source, tmp_path, http=hosts) as client:
                refused = await said(client, "send")
                what = "guest failed: called wasi:http/types.[constructor]fields"
                assert refused == f"failed: {what}, {why}"
        assert web.requests == []
        async with hosted(source, tmp_path, http=("any",)) as client:
            assert await said(client, "send") == "1"
        assert [(method, path) for method, path, *_ in web.requests] == [("GET", "/")]


@pytest.mark.parametrize(
    ("hosts", "lines"),
    [
        ((), [f"imports wasi:http, {NO_HOST}"]),
        (("example.com",), [f"imports wasi:http, {ONLY_ANY}"]),
        (("any",), []),
    ],
)
def test_an_import_of_wasi_http_that_does_nothing_is_reported(
    tmp_path: Path, hosts: tuple[str, ...], lines: list[str]
) -> None:
    assert ungranted(IMPORTS, settings(tmp_path / "guest.wasm", tmp_path, http=hosts)) == lines
