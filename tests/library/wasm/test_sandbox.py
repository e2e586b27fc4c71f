"""Everything that is not granted is tried from inside a guest, and refused."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from portico.core.config.component_grants import GrantedFolder
from portico.edge.client.client import Client
from portico.upstream.auth.address_rule import is_global
from tests.library.wasm.hosting import WAIT_S, hosted, said, trying_guest
from tests.library.wasm.sites import Site, response, site
from tests.support.shared import unavailable
from tests.wrap.faults import until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wasm-sandbox")]


@asynccontextmanager
async def guest(folder: Path, **granted: Any) -> AsyncGenerator[Client, None]:
    async with hosted(trying_guest(), folder, **granted) as client:
        yield client


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder to grant, beside a secret, with links out of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "note.txt").write_text("inside")
    (tmp_path / "secret.txt").write_text("outside")
    (folder / "out").symlink_to(tmp_path / "secret.txt")
    (folder / "root").symlink_to("/")
    (folder / "up").symlink_to("..")
    return folder


async def test_without_grants_nothing_can_be_reached(tmp_path: Path, data: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        async with guest(tmp_path) as client:
            assert json.loads(await said(client, "env")) == {}
            for path in ("/etc/passwd", str(data / "note.txt"), "note.txt", "/"):
                assert (await said(client, "read", path=path)).startswith("failed: ")
            assert (await said(client, "list", path="/")).startswith("failed: ")
            assert (await said(client, "write", path="/tmp/x", text="x")).startswith("failed: ")
            assert (await said(client, "tcp", host="127.0.0.1", port=port)).startswith("failed: ")
            assert (await said(client, "udp", host="127.0.0.1", port=port)).startswith("failed: ")
            assert (await said(client, "listen", port=0)).startswith("failed: ")
            assert (await said(client, "dns", host="localhost")).startswith("failed: ")
            assert await said(client, "config", name="x") == "failed: the config 'x' is not granted"
            assert await said(client, "secret", name="x") == "failed: the secret 'x' is not granted"
            refused = await said(client, "fetch", request={"url": f"http://127.0.0.1:{port}/"})
            assert refused == f"failed: the host 127.0.0.1:{port} is not granted"
            assert await said(client, "add", a=1, b=2) == "3"


async def test_a_read_only_folder_is_read_and_never_left_or_written(
    tmp_path: Path, data: Path
) -> None:
    async with guest(tmp_path, files=(GrantedFolder(str(data), "/data"),)) as client:
        assert await said(client, "read", path="/data/note.txt") == "inside"
        for path in (
            *("/data/../secret.txt", "/data/out", "/data/up/secret.txt", "/data/root/etc/passwd"),
            *("/secret.txt", str(tmp_path / "secret.txt"), "/data/./../secret.txt"),
        ):
            assert (await said(client, "read", path=path)).startswith("failed: "), path
        for path in ("/data/new.txt", "/data/note.txt", "/data/../new.txt"):
            assert (await said(client, "write", path=path, text="x")).startswith("failed: "), path
        assert (await said(client, "link", target="/etc", path="/data/l")).startswith("failed: ")
    assert (data / "note.txt").read_text() == "inside"
    assert not (tmp_path / "new.txt").exists()


async def test_a_writable_folder_is_written_but_not_left(tmp_path: Path, data: Path) -> None:
    folder = GrantedFolder(str(data), "/data", is_writable=True)
    async with guest(tmp_path, files=(folder,)) as client:
        assert await said(client, "write", path="/data/new.txt", text="made") == "written"
        assert await said(client, "read", path="/data/new.txt") == "made"
        # A link that the guest makes itself leads it nowhere either.
        await said(client, "link", target="../secret.txt", path="/data/own")
        assert (await said(client, "read", path="/data/own")).startswith("failed: ")
        assert (await said(client, "write", path="/data/own", text="x")).startswith("failed: ")
        assert (await said(client, "write", path="/data/out", text="x")).startswith("failed: ")
    assert (tmp_path / "secret.txt").read_text() == "outside"


async def test_variables_config_and_secrets_are_granted_by_name(tmp_path: Path) -> None:
    granted = {"env": {"MODE": "fast"}, "config": {"unit": "km"}, "secrets": {"key": "s3"}}
    async with guest(tmp_path, **granted, tools=("env", "config", "sec*")) as client:
        assert json.loads(await said(client, "env")) == {"MODE": "fast"}
        assert await said(client, "config", name="unit") == "km"
        assert await said(client, "secret", name="key") == "s3"
        assert await said(client, "config", name="key") == "failed: the config 'key' is not granted"
        assert [tool["name"] for tool in await client.list_tools()] == ["env", "config", "secret"]


async def test_a_python_guest_that_misbehaves_fails_in_words(tmp_path: Path) -> None:
    async with guest(tmp_path, time_s=5.0, memory_mb=64) as client:
        assert "took longer than 5 s; grant more time" in await said(client, "loop")
        assert "MemoryError" in await said(client, "grow")
        assert "exited with code 1" in await said(client, "exit")
        assert "Recursion" in await said(client, "recurse")
        wrong = await said(client, "add", a=1)  # raises TypeError in the guest
        assert "failed" in wrong
        assert "missing 1 required positional argument" in wrong
        assert await said(client, "cancelled") == "False"


async def test_each_failure_of_a_shared_instance_has_its_own_reason(tmp_path: Path) -> None:
    async with guest(tmp_path, instance="shared") as client:
        assert await said(client, "add", a=1, b=2) == "3"
        assert "missing 1 required positional argument" in await said(client, "add", a=1)


async def test_a_cancelled_call_is_told_to_its_guest_and_ends(tmp_path: Path, data: Path) -> None:
    told, granted = data / "told.txt", (GrantedFolder(str(data), str(data), is_writable=True),)
    async with guest(tmp_path, files=granted, time_s=10 * WAIT_S, concurrency=1) as client:
        call = asyncio.create_task(client.call_tool("until_cancelled", {"path": str(told)}))
        assert await asyncio.to_thread(until, told.exists)
        call.cancel()
        assert await said(client, "add", a=1, b=2) == "3"
    assert told.read_text() == "cancelled"


async def test_a_cancelled_call_does_not_wait_for_a_site(tmp_path: Path) -> None:
    contacted = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        contacted.set()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    granted = {"http": (f"127.0.0.1:{port}",), "time_s": 10 * WAIT_S, "concurrency": 1}
    async with server, guest(tmp_path, **granted) as client:
        call = asyncio.create_task(fetched(client, f"http://127.0.0.1:{port}/"))
        await contacted.wait()
        call.cancel()
        assert await said(client, "add", a=1, b=2) == "3"


async def fetched(client: Client, url: str, **more: Any) -> str:
    return await said(client, "fetch", request={"url": url, **more})


async def test_a_granted_host_is_contacted_by_porticos_own_client(tmp_path: Path) -> None:
    async with site() as web, guest(tmp_path, http=(f"127.0.0.1:{web.port}",)) as client:
        url = f"http://127.0.0.1:{web.port}/path"
        answer = json.loads(
            await fetched(client, url, method="POST", headers={"x-a": "1"}, body="hi")
        )
        assert (answer["status"], answer["body"]) == (200, "fine")
        method, path, headers, body = web.requests[0]
        assert (method, path, headers["x-a"], body) == ("POST", "/path", "1", b"hi")
        web.answer = lambda _: response(b"\xff\x00")
        assert json.loads(await fetched(client, url))["bodyBase64"] == "/wA="


async def test_no_redirect_leads_to_a_host_that_is_not_granted(tmp_path: Path) -> None:
    async with (
        site() as web,
        site() as other,
        guest(tmp_path, http=(f"127.0.0.1:{web.port}",)) as client,
    ):
        web.answer = lambda path: (
            response(b"", "302 Found", location=f"http://127.0.0.1:{other.port}/")
            if path == "/out"
            else response(b"", "302 Found", location="/again")
        )
        url = f"http://127.0.0.1:{web.port}"
        refused = await fetched(client, f"{url}/out")
        assert refused == f"failed: the host 127.0.0.1:{other.port} is not granted"
        assert "more than 5 redirects" in await fetched(client, f"{url}/loop")
        assert other.requests == []


async def test_a_granted_name_that_leads_to_a_private_address_is_refused(tmp_path: Path) -> None:
    name = private_name()
    async with site() as web:
        hosts = (name, f"{name}:{web.port}", "*.example.com", "10.0.0.1")
        await _try_private_names(tmp_path, web, name, hosts)


def private_name() -> str:
    """Return the name of this machine, which leads to an address that is not public."""
    name = socket.gethostname()
    with suppress(OSError):
        if not any(is_global(str(one[4][0])) for one in socket.getaddrinfo(name, 80)):
            return name.lower()
    unavailable("the name of this machine leads to no private address")
    raise AssertionError


async def _try_private_names(tmp_path: Path, web: Site, name: str, hosts: tuple[str, ...]) -> None:
    async with guest(tmp_path, http=hosts) as client:
        for url in (f"http://{name}/", f"http://{name}:{web.port}/"):
            assert "which is not a public address" in await fetched(client, url)
        for url in (
            *(f"http://127.0.0.1:{web.port}/", "http://localhost/", "http://[::1]/"),
            *("http://example.com/", "http://evil-example.com/", "http://10.0.0.2/"),
            *("http://a.example.com:8080/", "http://2130706433/", "http://0x7f000001/"),
        ):
            assert "is not granted" in await fetched(client, url), url
        assert web.requests == []


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"url": "ftp://127.0.0.1/"}, "must begin with http:// or https://"),
    ({"url": "file:///etc/passwd"}, "must begin with http:// or https://"),
    ({"url": "http://"}, "no host"),
    ({}, "missing required field `url`"),
    ({"url": "http://127.0.0.1/", "method": "CONNECT"}, "unknown method"),
    ({"url": "http://127.0.0.1/", "headers": {"Host": "x"}}, "belongs to the connection"),
    ({"url": "http://127.0.0.1/", "headers": {"a": "1\r\nb: 2"}}, "not valid"),
    ({"url": "http://127.0.0.1/", "bodyBase64": "!"}, "not base64"),
]


async def test_a_request_that_is_not_valid_is_refused(tmp_path: Path) -> None:
    async with guest(tmp_path, http=("127.0.0.1",)) as client:
        for request, why in INVALID:
            assert why in await said(client, "fetch", request=request), request


async def test_a_site_that_does_not_answer_costs_no_more_than_the_time_of_the_call(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        async with guest(tmp_path, http=(f"127.0.0.1:{port}",), time_s=4.0) as client:
            refused = await fetched(client, f"http://127.0.0.1:{port}/")
            assert "time of the call is over" in refused or "took longer than 4 s" in refused
            assert await said(client, "add", a=1, b=2) == "3"
