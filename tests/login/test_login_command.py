"""`portico servers login` against a server of ours: every wrong turn has a clear end."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import pytest

from portico.upstream.process.family import Family
from portico.upstream.wires.child_wire import Command
from tests.login.people import Person
from tests.rigs.issuer import IssuerRig
from tests.support.running import WAIT_S
from tests.upstream.process.test_child_process import next_of, opened
from tests.wrap.faults import portico_command, until

pytestmark = pytest.mark.slow


@pytest.fixture
def rig() -> Iterator[IssuerRig]:
    with IssuerRig() as made:
        yield made


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_a_login_serves_call_and_inspect_of_that_url_and_ends_with_a_logout(
    rig: IssuerRig, person: Person
) -> None:
    before = person.call(rig.url, "whoami")
    assert before.returncode == 1
    assert f"requires a login (HTTP 401); run `portico servers login {rig.url}`" in before.stderr

    told = person.log_in(rig.url)
    assert (told["account"], told["scopes"]) == ("ann@people.test", ["read"])
    assert person.call(rig.url, "whoami").stdout == "you are ann\n"
    assert "of_ann" in person.run("inspect", rig.url).stdout
    page = person.page()
    assert "Logged in" in page
    assert "ann@people.test" in page
    assert rig.url in page
    assert "prefers-color-scheme: dark" in page

    listed = person.run("servers", "list").stdout
    assert re.search(r"as ann@people.test \(read\), refreshed in (1 h|60 min)", listed), listed

    assert person.log_out(rig.url)["changed"] is True
    assert [token.partition("-")[0] for token in rig.revoked] == ["refresh", "access"]
    assert "requires a login" in person.call(rig.url, "whoami").stderr
    again = person.run("servers", "logout", rig.url)
    assert (again.returncode, again.stdout) == (0, f"{rig.url} was not logged in\n")


def test_two_entries_of_one_url_are_two_accounts(rig: IssuerRig, person: Person) -> None:
    person.config(f"first {rig.url}", f"second {rig.url}")
    person.log_in("first")
    rig.person = "bob"
    person.log_in("second")
    assert person.call("first", "whoami").stdout == "you are ann\n"
    assert person.call("second", "whoami").stdout == "you are bob\n"
    assert len(rig.registered) == 1, "a client is kept for its issuer"


def test_the_login_of_a_removed_server_is_listed_and_can_be_ended(
    rig: IssuerRig, person: Person
) -> None:
    person.config(f"mine {rig.url}")
    person.log_in("mine")
    assert person.run("servers", "remove", "mine").returncode == 0
    assert "mine  logged in as ann@people.test" in person.run("servers", "list").stdout
    assert person.log_out("mine")["changed"] is True
    assert len(rig.revoked) == 2
    assert "logged in" not in person.run("servers", "list").stdout


WRONG = [
    ("metadata", {"issuer": "https://evil.test"}, "is that of another issuer"),
    (
        "metadata",
        {"code_challenge_methods_supported": ["plain"]},
        "does not support PKCE with S256",
    ),
    ("metadata", {"token_endpoint": "http://10.0.0.1/token"}, "must use https"),
    ("metadata", {"registration_endpoint": None}, "set client_id"),
    ("resource", {"resource": "https://evil.test/mcp"}, "about another server"),
    ("response", {"iss": "https://evil.test"}, "came from another authorization server"),
    ("response", {"code": None, "error": "access_denied"}, "was denied: access_denied"),
    ("answer", {"token_type": "mac"}, "issues mac tokens"),
    ("answer", {"access_token": "two words"}, "no usable access token"),
]


@pytest.mark.parametrize(("part", "change", "said"), WRONG)
def test_a_wrong_server_ends_the_login_with_one_clear_line(
    rig: IssuerRig, person: Person, part: str, change: dict[str, object], said: str
) -> None:
    setattr(rig, part, change)
    done = person.run("servers", "login", rig.url)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"portico: cannot log in at {rig.url}: ")
    assert said in last
    assert "Traceback" not in done.stderr
    assert not list((person.home / "state" / "logins").glob("[0-9a-f]" * 32))


def test_a_server_that_is_down_says_so(rig: IssuerRig, person: Person) -> None:
    rig.is_down = True
    done = person.run("servers", "login", rig.url)
    assert "returned HTTP 503; try again later" in done.stderr
    gone = person.run("servers", "login", "http://127.0.0.1:1/mcp")
    assert "cannot be reached" in gone.stderr


def test_a_lifetime_that_is_no_number_is_unknown(rig: IssuerRig, person: Person) -> None:
    for lifetime in (-5, "soon", None):
        rig.answer = {"expires_in": lifetime}
        assert person.log_in(rig.url)["expires"] is None
        assert person.call(rig.url, "whoami").stdout == "you are ann\n"


def test_a_login_needs_a_place_that_can_keep_it(rig: IssuerRig, person: Person) -> None:
    person.home.mkdir()
    (person.home / "state").write_text("in the way")
    done = person.run("servers", "login", rig.url)
    assert done.returncode == 1
    assert "logins cannot be stored in" in done.stderr
    assert rig.requests == [], "before anybody is asked"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere"], "there is no server 'nowhere'"),
        (["here", "--scope"], "--scope needs S"),
        (["http://intranet.test/mcp"], "the URL must use https"),
        (["local"], "local is a command; only a server at a URL has a login"),
        (["fixed"], "the headers of fixed in the config contain authorization already"),
        ([], "login needs the NAME of a server"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(person: Person, words: list[str], said: str) -> None:
    path = person.config("here https://x.test/mcp", "fixed https://x.test/mcp")
    text = path.read_text() + '\nheaders = { Authorization = "x" }\n'
    path.write_text(text + '[servers.local]\ncommand = "true"\n')
    done = person.run("servers", "login", *words)
    assert done.returncode in (1, 2)
    assert said in done.stderr


def test_options_of_a_login_are_for_a_login(person: Person) -> None:
    done = person.run("servers", "list", "--no-browser")
    assert "--no-browser works only with login" in done.stderr


class Waiting:
    """A login that waits for the person, who has not visited the page."""

    def __init__(self, person: Person, target: str, *options: str) -> None:
        self.process = subprocess.Popen(
            portico_command(person.home, "servers", "login", target, "--no-browser", *options),
            env=person.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.said: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        assert until(lambda: any("paste the URL" in line for line in self.said))
        self.url = next(line for line in self.said if line.startswith("  http")).strip()
        query = parse_qs(urlsplit(self.url).query)
        self.redirect, self.state = query["redirect_uri"][0], query["state"][0]

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line.rstrip("\n"))

    def __enter__(self) -> "Waiting":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait(WAIT_S)
        self._reading.join(WAIT_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def paste(self, text: str) -> None:
        """Type a line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def ended(self) -> str:
        """The URL at which a browser on another machine ends, which cannot reach us."""
        parts = urlsplit(self.url)
        connection = HTTPConnection(parts.netloc, timeout=WAIT_S)
        with closing(connection):
            connection.request("GET", f"{parts.path}?{parts.query}")
            with connection.getresponse() as response:
                return str(response.headers["location"])


def test_on_a_remote_machine_the_redirected_url_is_pasted(rig: IssuerRig, person: Person) -> None:
    with Waiting(person, rig.url) as one, Waiting(person, rig.url) as other:
        one.paste(other.ended())
        one.paste("nonsense")
        assert until(lambda: sum("paste it" in line for line in one.said) == 2)
        one.paste(one.ended())
        assert one.process.wait(WAIT_S) == 0
    assert person.call(rig.url, "whoami").stdout == "you are ann\n"


def test_a_wrong_callback_is_refused_and_the_right_one_works_once(
    rig: IssuerRig, person: Person
) -> None:
    with Waiting(person, rig.url) as login:
        host = login.redirect.removesuffix("/callback")
        for wrong in (f"{login.redirect}?state=other&code=x", login.redirect, f"{host}/other"):
            with pytest.raises(HTTPError) as caught, urlopen(wrong, timeout=WAIT_S):
                pass
            assert caught.value.code in (400, 404)
            caught.value.close()
        assert login.process.poll() is None
        ended = login.ended()
        with urlopen(ended, timeout=WAIT_S) as page:
            assert "Logged in" in page.read().decode()
        assert login.process.wait(WAIT_S) == 0
        with pytest.raises(OSError, match="refused"):
            urlopen(ended, timeout=WAIT_S)


def test_a_login_that_nobody_completes_ends(rig: IssuerRig, person: Person) -> None:
    done = person.run("servers", "login", rig.url, "--timeout", "0.5", how="leave")
    assert done.returncode == 1
    assert "the login was not completed within 0.5 s" in done.stderr


def test_a_plain_key_is_stored_and_sent_in_the_header_of_the_config(
    rig: IssuerRig, person: Person
) -> None:
    rig.lets_in = frozenset({"server/discover", "tools/list", "tools/call"})
    person.config(f'keyed {rig.url} auth = {{ key = "X-Api-Key" }}')
    done = person.run("servers", "login", "keyed", "--key", given="k3y-of-mine\n")
    assert done.returncode == 0, done.stderr
    assert "k3y-of-mine" not in done.stdout + done.stderr
    assert person.call("keyed", "whoami").returncode == 0
    assert rig.requests[-1][2]["x-api-key"] == "k3y-of-mine"
    for bad in ("", "two words\n", "\x1b[2J\n"):
        refused = person.run("servers", "login", "keyed", "--key", given=bad)
        assert "nothing was stored" in refused.stderr
    assert person.call("keyed", "whoami").returncode == 0


def test_a_damaged_login_asks_for_another_and_a_login_replaces_it(
    rig: IssuerRig, person: Person
) -> None:
    person.log_in(rig.url)
    (stored,) = (person.home / "state" / "logins").glob("[0-9a-f]" * 32)
    stored.write_bytes(b"damaged")
    done = person.call(rig.url, "whoami")
    assert "the stored login is damaged; run `portico servers login" in done.stderr
    person.log_in(rig.url)
    assert person.call(rig.url, "whoami").stdout == "you are ann\n"


def test_json_tells_what_happened_and_nothing_secret(rig: IssuerRig, person: Person) -> None:
    told = person.log_in(rig.url)
    assert told["server"] == rig.url
    shown = json.dumps(told) + person.run("servers", "list", "--json").stdout
    assert not [secret for secret in rig.secrets() if secret in shown]
    assert os.listdir(person.desk)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has keepers")
async def test_a_login_below_an_agent_is_refused(rig: IssuerRig, tmp_path: Path) -> None:
    words = portico_command(tmp_path, "servers", "login", rig.url)
    said = ["sh", "-c", f"{shlex.join(words)} 2>&1 | tr '\\n' ' '; echo"]
    wire, inbox = await opened(Command(tuple(said), family=Family()))
    assert b"only a person may use it" in await next_of(inbox)
    await inbox.end
    await wire.close()
    assert rig.requests == []
