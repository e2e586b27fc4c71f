"""Wrong usage: exit code 2, what is wrong, what would be right, and no value of anybody's."""

import pytest

from portico.commands.cli.main import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_that_there_is_not_is_named(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--nonsense"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"usage: portico {name} ")
    assert f"there is no option --nonsense; `portico {name} --help` lists all" in said.err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("serve --htpp 8000", "--http"),
        ("wrap --idle-timeot 3 -- x", "--idle-timeout"),
        ("run --handler f.py tools.json", "--handlers"),
        ("call x y --tokn=abc", "--token"),
        ("inspect --jsn x", "--json"),
        ("search create --limt 3", "--limit"),
        ("describe x --confg y", "--config"),
        ("servers add x --heder A:b https://x", "--header"),
        ("status --wacth", "--watch"),
        ("logs --folow", "--follow"),
    ],
)
def test_the_nearest_option_is_suggested(
    typed: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert f"; did you mean {meant}?\n" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["wrap --idle 3 -- x", "serve --no-ref", "status --js"])
def test_half_an_option_is_none(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(typed.split()) == 2
    assert "there is no option --" in capsys.readouterr().err


@pytest.mark.parametrize("typed", ["call x y --tokn abc-123", "inspect x --tokn=abc-123"])
def test_the_value_of_an_unknown_option_is_not_repeated(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    assert "abc-123" not in capsys.readouterr().err


def test_words_behind_two_dashes_are_no_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--", "--nonsense"]) == 1
    assert "'--nonsense' is neither a file, an alias nor a command" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("servers ad", "ACTION cannot be 'ad'; did you mean add?"),
        ("servers fly", "ACTION cannot be 'fly'; choose from list, add, remove"),
        ("serve --expose sarch", "--expose cannot be 'sarch'; did you mean search?"),
        ("serve --port 80", "there is no option --port; use --http [HOST:]PORT"),
        ("run x.py --host 0.0.0.0", "there is no option --host; use --http [HOST:]PORT"),
        ("serve --http", "--http needs [HOST:]PORT, such as --http 8000"),
        ("serve --group", "--group needs NAME"),
        ("-v", "there is no option '-v'; did you mean '--version'?"),
        ("serve -v", "there is no option -v; `portico serve --help` lists all"),
        ("call x y -tabc-123", "there is no option -t; `portico call --help` lists all"),
        ("call --port 80 x y", "there is no option --port; `portico call --help` lists all"),
        ("--port 80", "there is no option '--port'; options come after a command, as in `portico"),
        ("--token=abc-123 call x y", "there is no option '--token'; options come after a command"),
    ],
)
def test_usual_mistakes_get_the_right_words(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(typed.split()) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "abc-123" not in err
