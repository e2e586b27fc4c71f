"""Machines log in by themselves at an authorization server by others, oidc-provider."""

import json
import os
import re
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from portico.core.config.auth_settings import AuthSettings
from portico.upstream.auth.client_assertion import AssertionKey
from portico.upstream.auth.flow import GrantRefused, LoginNeeded
from portico.upstream.auth.flow_runner import FlowRunner, address_rule
from portico.upstream.auth.login import LoginPlace
from portico.upstream.auth.login_flow import LoginSettings
from portico.upstream.auth.login_store import LoginStore
from portico.upstream.auth.machine_credentials import MachineCredentials
from portico.upstream.auth.machine_flow import log_in_machine
from tests.login.people import Person
from tests.login.test_oidc import Provider, provider
from tests.serve.gateway import Gateway
from tests.wrap.faults import until

pytestmark = pytest.mark.slow

SECRETS = {"farm": "s3cret", "posts": "p/st:ed"}
EC = ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()


def shifted(off_s: float) -> float:
    return time.time() + off_s


def number(value: int, size: int) -> str:
    return urlsafe_b64encode(value.to_bytes(size, "big")).rstrip(b"=").decode()


def jwk(key: Any) -> dict[str, str]:
    """The public part of a key, as an authorization server knows it."""
    public = key.public_key()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        point = public.public_numbers()
        return {"kty": "EC", "crv": "P-256", "x": number(point.x, 32), "y": number(point.y, 32)}
    if isinstance(key, rsa.RSAPrivateKey):
        found = public.public_numbers()
        return {"kty": "RSA", "n": number(found.n, 256), "e": number(found.e, 3)}
    raw = urlsafe_b64encode(public.public_bytes_raw()).rstrip(b"=").decode()
    return {"kty": "OKP", "crv": "Ed25519", "x": raw}


def signer(name: str, key: Any, **more: str) -> dict[str, Any]:
    return {
        "client_id": name,
        "token_endpoint_auth_method": "private_key_jwt",
        "jwks": {"keys": [{**jwk(key), "kid": "k1"}]},
        **more,
    }


MACHINES = [
    {"client_id": "farm", "client_secret": "s3cret"},
    {
        "client_id": "posts",
        "client_secret": "p/st:ed",
        "token_endpoint_auth_method": "client_secret_post",
    },
    signer("ec", EC),
    signer("rsa", RSA, token_endpoint_auth_signing_alg="RS256"),
    signer("ed", ED, token_endpoint_auth_signing_alg="EdDSA"),
]


def key_file(folder: Path, key: Any = EC, mode: int = 0o600) -> Path:
    path = folder / "key.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(mode)
    return path


@pytest.fixture(scope="module")
def issuer() -> Iterator[Provider]:
    with provider(machines=MACHINES) as made:
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def table(client: str, **more: str) -> str:
    pairs = {"grant": "client_credentials", "client_id": client, **more}
    fields = ", ".join(f'{key} = "{value}"' for key, value in pairs.items())
    return f'auth = {{ {fields}, scopes = ["mcp:read"] }}'


@pytest.mark.parametrize("client", ["farm", "posts", "ec", "rsa", "ed"])
def test_a_machine_logs_in_with_its_secret_or_its_key(
    issuer: Provider, person: Person, client: str
) -> None:
    key = {"ec": EC, "rsa": RSA, "ed": ED}.get(client)
    with_key = {} if key is None else {"private_key": str(key_file(person.desk, key))}
    by = with_key or {"client_secret": SECRETS[client]}
    person.config(f"mine {issuer.url} {table(client, **by)}")
    done = person.call("mine", f"whoami_{client}")
    assert done.stdout == f"whoami_{client} is {client} with mcp:read\n", done.stderr
    tokens = len(issuer.seen()["token"])
    assert person.call("mine", f"whoami_{client}").returncode == 0
    assert len(issuer.seen()["token"]) == tokens, "all processes share it"
    listed = person.run("servers", "list").stdout
    assert f"logged in as {client} (mcp:read), refreshed in" in listed


def test_an_expired_token_is_renewed_without_a_word(person: Person) -> None:
    with provider(machines=MACHINES, life_s=2) as issuer:
        auth = table("ec", private_key=str(key_file(person.desk)))
        config = person.config(f"mine {issuer.url} {auth}", gateway='expose = "all"')
        with Gateway(person.home, config) as gateway, gateway.client() as client:

            def renewed() -> bool:
                assert client.said("mine__whoami_ec") == "whoami_ec is ec with mcp:read"
                return len(issuer.seen()["token"]) >= 4

            assert until(renewed)
            issuer.get("/test/revoke")
            assert client.said("mine__whoami_ec") == "whoami_ec is ec with mcp:read"
            assert gateway.status()["mine"]["login"]["account"] == "ec"


def test_a_machine_gets_the_scopes_that_a_call_lacks_by_itself(
    issuer: Provider, person: Person
) -> None:
    person.config(f"mine {issuer.url} {table('farm', client_secret='s3cret')}")
    done = person.call("mine", "write")
    assert done.stdout == "write is farm with mcp:read mcp:write\n", done.stderr


def test_a_wrong_key_and_a_wrong_secret_say_so_and_do_not_flood_the_issuer(
    issuer: Provider, person: Person
) -> None:
    other = key_file(person.desk, ec.generate_private_key(ec.SECP256R1()))
    config = person.config(
        f"key {issuer.url} {table('ec', private_key=str(other))}",
        f"secret {issuer.url} {table('farm', client_secret='wrong')}",
        gateway='expose = "all"',
    )
    for name in ("key", "secret"):
        done = person.call(name, "whoami_ec")
        assert done.returncode == 1
        assert f"{name} cannot log in: " in done.stderr
        assert "refused to issue a token: client authentication failed" in done.stderr
        assert f"run `portico servers login {name}`" in done.stderr
    with Gateway(person.home, config) as gateway:
        assert until(lambda: gateway.status()["key"]["state"] == "login")
        key_file(person.desk)  # the right one, at the same place
        done = person.run("servers", "login", "key", "--json")
        assert json.loads(done.stdout)["running"] == ["key"], done.stderr
        assert until(lambda: gateway.status()["key"]["tools"] == 2)


@pytest.mark.parametrize("off_s", [-3600, 3600])
async def test_a_clock_that_is_off_is_corrected_by_that_of_the_issuer(
    issuer: Provider, tmp_path: Path, off_s: int
) -> None:
    auth = AuthSettings(
        grant="client_credentials",
        client_id="ec",
        private_key=str(key_file(tmp_path)),
        scopes=("mcp:read",),
    )
    store = LoginStore(str(tmp_path / "state"))
    credentials = MachineCredentials(
        LoginPlace(issuer.url, "mine"), auth, store, clock=partial(shifted, off_s)
    )
    await credentials.obtain()
    assert (credentials.header() or "").startswith("Bearer ")


async def test_an_expired_assertion_is_refused_and_the_clock_is_named(
    issuer: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = AssertionKey.assertion

    def expired(self: AssertionKey, client: str, audience: str, *rest: Any) -> str:
        accepted, now, nonce = rest
        return late(self, client, audience, accepted, now - 7200, nonce)

    monkeypatch.setattr(AssertionKey, "assertion", expired)
    auth = AuthSettings(grant="client_credentials", client_id="ec")
    settings = LoginSettings(place=LoginPlace(issuer.url, "mine"), auth=auth)
    for off_s in (0, -3600):
        clock = partial(shifted, off_s)
        flow = log_in_machine(settings, AssertionKey(EC), os.urandom, clock)
        with pytest.raises(GrantRefused, match="refused to issue a token") as caught:
            await FlowRunner(await address_rule(issuer.url)).run(flow)
        assert caught.value.code == "invalid_client"
        named = re.search(r"the clock of this machine is (35|36)\d\d s behind", str(caught.value))
        assert (named is not None) == (off_s != 0), str(caught.value)


@pytest.mark.parametrize(
    ("mode", "content", "said"),
    [
        (0o640, None, "can be read by others (mode 640); run `chmod 600 "),
        (0o604, None, "can be read by others (mode 604); run `chmod 600 "),
        (0o600, "nonsense", "is not a private key in PEM format"),
    ],
)
async def test_a_key_file_that_is_wrong_is_not_used(
    issuer: Provider, tmp_path: Path, mode: int, content: str | None, said: str
) -> None:
    path = key_file(tmp_path, mode=mode)
    if content is not None:
        path.write_text(content)
    auth = AuthSettings(grant="client_credentials", client_id="ec", private_key=str(path))
    credentials = MachineCredentials(
        LoginPlace(issuer.url, "mine"), auth, LoginStore(str(tmp_path / "state"))
    )
    tokens = len(issuer.seen()["token"])
    with pytest.raises(LoginNeeded) as caught:
        await credentials.obtain()
    assert said in str(caught.value)
    assert len(issuer.seen()["token"]) == tokens
    assert (credentials.status() or {})["needed"].startswith("cannot log in: ")
