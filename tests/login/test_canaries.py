"""No token, code, verifier or secret of a login goes anywhere else."""

import os
from pathlib import Path
from typing import Any

import pytest

from portico.upstream.auth.configured_login import login_credentials
from portico.upstream.wires.http_client import HttpClient
from portico.upstream.wires.streamable_http import Url
from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.serve.gateway import Gateway
from tests.wrap.faults import descendants

pytestmark = pytest.mark.slow


def command_lines(pid: int) -> str:
    """The titles and variables of a process and of all that it started."""
    found = []
    for one in {pid, *descendants(pid)}:
        for name in ("cmdline", "environ", "comm"):
            path = Path(f"/proc/{one}/{name}")
            found.append(path.read_bytes().decode(errors="replace") if path.exists() else "")
    return "\n".join(found)


def test_nothing_secret_is_logged_shown_or_sent_to_another_origin(tmp_path: Path) -> None:
    person = Person(tmp_path)
    secret = "s3cret-of-the-client"
    with IssuerRig() as rig, IssuerRig() as other:
        rig.metadata = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
        keys = f'{{ client_id = "mine", client_secret = "{secret}" }}'
        config = person.config(
            f"mine {rig.url} auth = {keys}", f"other {other.url}", gateway='expose = "all"'
        )
        person.log_in("mine")
        shown: list[Any] = [person.page()]
        with Gateway(person.home, config) as gateway, gateway.client() as client:
            for _ in range(3):
                shown.append(client.call("mine__whoami"))
                rig.expire_all()
            shown.append(client.call("other__whoami"))
            rig.redirect = other.url
            shown += [client.call("mine__whoami"), gateway.status()]
            rig.redirect = ""
            rig.repeats_token = True
            rig.revoke_all()
            shown += [client.call("mine__whoami"), client.ask("tools/list"), gateway.status()]
            shown += [person.run(*words).stdout for words in (["status", "--json"], ["status"])]
            shown += [command_lines(gateway.process.pid), gateway.stderr()]
        shown.append(person.run("servers", "list", "--json").stdout)
        shown.append(person.log_out("mine"))
        state = person.home / "state"
        shown += [path.read_bytes() for path in state.rglob("*") if path.is_file()]
        shown += other.requests
        secrets = [*rig.secrets(), secret]
        assert {"code", "access", "refresh"} <= {one.partition("-")[0] for one in secrets}
        assert len(rig.refreshes) >= 1
        text = "\n".join(map(str, shown))
        assert [one for one in secrets if one in text] == []
        assert any(path == "/mcp" for _, path, _, _ in other.requests)


def test_nothing_secret_is_in_what_a_crash_would_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person(tmp_path)
    monkeypatch.setenv("PORTICO_HOME", str(person.home))
    with IssuerRig() as rig:
        person.log_in(rig.url)
        login = login_credentials(rig.url, {})
        assert login is not None
        address = Url(rig.url, credentials=login)
        shown = [repr(one) for one in (login, address, HttpClient(address))]
        assert [one for one in rig.secrets() if one in "".join(shown)] == []
    assert os.listdir(person.home / "state" / "logins")
