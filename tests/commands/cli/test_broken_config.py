"""Commands beside a gateway that runs, while its config file on disk cannot be used."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.observed import Window, portico, prepared
from tests.wrap.standing import until

pytestmark = pytest.mark.slow

_BROKEN = {
    "not TOML": ("[servers.maths\n", ":1:15: not valid TOML"),
    "a misspelt key": ("[servers.maths]\ncomand = 'x'\n", ":2: servers.maths.comand: unknown key"),
    "gone": (None, ": the file was deleted"),
}


@pytest.fixture(params=_BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder with a gateway that runs, whose config was good when it started; and why it is
    not any more."""
    text, why = _BROKEN[request.param]
    config = prepared(tmp_path)
    with Window(tmp_path) as window:
        window.ready()
        window.call("execute_tool", name="maths__add", arguments={"a": 1})
        config.unlink()
        if text is not None:
            config.write_text(text)
        yield tmp_path, why


def test_status_shows_that_the_config_was_rejected_until_it_is_good_again(
    broken: tuple[Path, str],
) -> None:
    home, why = broken
    config = home / "portico.toml"

    def rejected() -> str:
        ran = portico(home, "status", "--json", "--config", str(config))
        assert ran.returncode == 0, ran.stderr
        (gateway,) = json.loads(ran.stdout)
        assert [one["server"] for one in gateway["servers"]] == ["maths"]
        return str(gateway["rejected"])

    until(rejected, "it does not say so")
    assert rejected().startswith(f"{config}{why}")
    shown = portico(home, "status", "--config", str(config))
    assert shown.returncode == 0
    assert "  config not reloaded; keeping the previous one:\n    " in shown.stdout
    assert f"    {config}{why}" in shown.stdout
    assert "\n  maths  " in shown.stdout
    prepared(home)
    until(lambda: not rejected(), "it is still rejected")
    assert "not reloaded" not in portico(home, "status", "--config", str(config)).stdout


def test_commands_use_the_gateway_that_runs_and_say_what_is_wrong_with_the_file(
    broken: tuple[Path, str],
) -> None:
    home, why = broken
    config = home / "portico.toml"
    why = why.replace("the file was deleted", "no such file")
    log = home / "home" / "state" / "logs" / "serve.log"
    until(lambda: log.exists() and "add" in log.read_text(), "the call is not logged")
    for words, wanted in (
        (("search", "add two numbers"), "maths__add"),
        (("describe", "maths__add"), "Add two numbers."),
        (("call", "maths__add", '{"a": 4}'), "5"),
        (("servers", "list"), "maths  pid "),
        (("servers", "refresh"), "maths  pid "),
        (("logs",), "add{a:int}"),
    ):
        ran = portico(home, *words, "--config", str(config))
        assert ran.returncode == 0, (words, ran.stderr)
        assert wanted in ran.stdout, words
        if words != ("servers", "refresh"):  # which does not need the file
            assert ran.stderr.startswith(f"portico: {config}{why}"), words
            assert "running gateway" in ran.stderr or "showing the log at" in ran.stderr


def test_without_a_gateway_a_broken_config_is_an_error(tmp_path: Path) -> None:
    config = prepared(tmp_path)
    config.write_text("[servers.maths\n")
    for words in (("search", "x"), ("call", "maths__add"), ("servers", "list"), ("logs",)):
        ran = portico(tmp_path, *words, "--config", str(config))
        assert (ran.returncode, ran.stdout) == (1, ""), words
        assert ran.stderr.startswith(f"portico: {config}:1:15: not valid TOML"), words
