"""The settings of logins: each checked with its line, secrets never as defaults, never shown."""

from pathlib import Path

import pytest

from portico.core.config.read import read
from portico.core.documents.problems import ConfigError

URL = 'url = "https://x.test/mcp"\n'
MACHINE = 'grant = "client_credentials", client_id = "c"'
PEM = "-----BEGIN PRIVATE KEY-----"


def config(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "portico.toml"
    path.write_text(text)
    return path


def test_defaults_hold_for_every_server_that_says_nothing_else(tmp_path: Path) -> None:
    text = f"[auth]\nredirect_port = 9000\n[servers.a]\n{URL}[servers.b]\n{URL}"
    found = read(config(tmp_path, text + "auth = { redirect_port = 9001 }\n")).servers
    assert [found[name].auth.redirect_port for name in "ab"] == [9000, 9001]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f'[servers.a]\n{URL}auth = {{ client = "x" }}', "3: servers.a.auth.client: unknown key"),
        (f'[servers.a]\n{URL}auth = "x"', "3: servers.a.auth: must be a table"),
        (f'[servers.a]\n{URL}auth.issuer = "x.test"', "3: servers.a.auth.issuer: the URL has no"),
        (f'[servers.a]\n{URL}auth.client_secret = "s"', "servers.a.auth.client_secret: has no"),
        (f'[servers.a]\n{URL}auth.key = "a b"', "servers.a.auth.key: is not a valid header name"),
        (f'[servers.a]\n{URL}auth.grant = "password"', "password is not one of authorization_code"),
        (f"[servers.a]\n{URL}auth.redirect_port = 0", "servers.a.auth.redirect_port: must be 1 to"),
        ('[auth]\nclient_secret = "s"', "2: auth.client_secret: belongs to one server; move it to"),
        ("[auth]\nredirct_port = 1", "2: auth.redirct_port: unknown key; did you mean redirect_p"),
        ("auth = 1", "1: auth: must be a table"),
        ('[servers.a]\ncommand = "x"\nauth.key = "K"', "3: servers.a.auth: is for a url"),
        (
            f'[servers.a]\n{URL}client_secret = "s"',
            "3: servers.a.client_secret: belongs to the login; move it to servers.a.auth",
        ),
        (
            f'[servers.a]\n{URL}headers = {{ Client-Secret = "s" }}',
            "would be sent to the server itself; move it to servers.a.auth",
        ),
        (
            f'[servers.a]\n{URL}auth = {{ client_id = "c", client_secret = "{PEM}" }}',
            "client_secret: is a private key; write it to a file of mode 600, and name that in",
        ),
        (
            f'[servers.a]\n{URL}auth = {{ {MACHINE}, private_key = "{PEM}" }}',
            "private_key: must be a path, not the key itself; write the key to a file",
        ),
        (
            f'[servers.a]\n{URL}auth = {{ {MACHINE}, private_key = "key.pem" }}',
            "private_key: is not an absolute path",
        ),
        (f"[servers.a]\n{URL}auth = {{ {MACHINE} }}", "has nothing to log in with; add client_s"),
        (
            f'[servers.a]\n{URL}auth = {{ {MACHINE}, client_secret = "s", private_key = "/k" }}',
            "servers.a.auth: has both client_secret and private_key; remove one",
        ),
        (
            f'[servers.a]\n{URL}auth.grant = "client_credentials"',
            "client_credentials has no client_id; add client_id",
        ),
        (
            f'[servers.a]\n{URL}auth = {{ client_id = "c", private_key = "/k" }}',
            'is for the login of a machine; add grant = "client_credentials"',
        ),
        ('[auth]\nprivate_key = "/k"', "2: auth.private_key: belongs to one server; move it to"),
    ],
)
def test_a_wrong_setting_is_named_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(config(tmp_path, text))
    assert said in str(caught.value)


def test_a_secret_comes_from_elsewhere_and_is_not_shown(tmp_path: Path) -> None:
    entry = f'[servers.a]\n{URL}auth = {{ client_id = "me", client_secret = "${{S}}" }}'
    (server,) = read(config(tmp_path, entry), environ={"S": "s3cret"}).servers.values()
    assert server.auth.client_secret == "s3cret"
    assert "s3cret" not in repr(server.auth) + repr(server)
