"""What a client is shown, by all that is known of it: the first source that says something."""

import pytest

from portico.core.config.client_exposure import KNOWN_CLIENTS, client_of_environment, known_client
from portico.core.config.schema import ClientSettings
from portico.edge.fit.exposure_choice import ClientFacts, GatewayFacts, choose

MANY, FEW = (GatewayFacts({}, "auto", has_many, 30) for has_many in (True, False))
CLAUDE = ClientFacts(name="claude-code", version="2.1.326")
GEMINI = ClientFacts(name="gemini-cli-mcp-client", version="0.61.0")


def configured(expose: str = "auto", **clients: str | None) -> GatewayFacts:
    settings = {name: ClientSettings(expose=value) for name, value in clients.items()}
    return GatewayFacts(settings, expose, True, 30)


@pytest.mark.parametrize(
    ("facts", "gateway", "expose", "why"),
    [
        (CLAUDE, MANY, "all", "clientInfo claude-code 2.1.326: it searches tools itself"),
        (GEMINI, MANY, "search", "clientInfo gemini-cli-mcp-client 0.61.0: it reads every tool"),
        (GEMINI, FEW, "all", "fewer than 30 tools"),
        (ClientFacts(name="claude-code", version="2.1.6"), MANY, "search", "it reads every tool"),
        (ClientFacts(name="claude-code", version="next"), MANY, "all", "it searches tools itself"),
        (ClientFacts(name="qwen-cli-mcp-client-portico", version="0.0.1"), MANY, "all", "itself"),
        (ClientFacts(name="mine", version="1"), MANY, "search", "unknown client mine 1"),
        (ClientFacts(name="mine", version="1"), FEW, "all", "unknown client mine 1"),
        (ClientFacts(), MANY, "search", "the client has sent no name"),
        (ClientFacts(expose="all", name=GEMINI.name), MANY, "all", "--expose is all"),
        (ClientFacts(expose="auto", name="mine"), configured(mine="all"), "search", "unknown"),
        (CLAUDE, configured(claude="search"), "search", "[clients.claude] expose is search"),
        (CLAUDE, configured(claude="auto"), "all", "clientInfo"),
        (CLAUDE, configured(claude=None), "all", "clientInfo"),
        (CLAUDE, configured("search"), "search", "[gateway] expose is search"),
        (CLAUDE, configured("search", claude="all"), "all", "[clients.claude] expose is all"),
        (ClientFacts(given="gemini", name=CLAUDE.name), MANY, "search", "--client gemini"),
        (ClientFacts(given="codex"), MANY, "all", "--client codex"),
        (ClientFacts(given="mine", name=CLAUDE.name), MANY, "all", "clientInfo claude-code"),
        (ClientFacts(name="x", environment="claude"), MANY, "all", "environment is that of claude"),
        (ClientFacts(environment="opencode"), MANY, "search", "environment is that of opencode"),
        (ClientFacts(name=CLAUDE.name, environment="gemini"), MANY, "all", "clientInfo"),
    ],
)
def test_the_first_source_that_says_something_decides(
    facts: ClientFacts, gateway: GatewayFacts, expose: str, why: str
) -> None:
    choice = choose(facts, gateway)
    assert (choice.expose, choice.searches) == (expose, expose == "search")
    assert why in choice.why


def test_the_number_of_tools_may_be_unknown_at_the_start() -> None:
    gateway = GatewayFacts({}, "auto", True, 30, is_counted=False)
    assert "the number of tools was not known" in choose(GEMINI, gateway).why


def test_a_long_name_is_cut_in_what_people_read() -> None:
    choice = choose(ClientFacts(name="x" * 9000), MANY)
    assert len(choice.why) < 200
    assert len(choice.client) == 80


@pytest.mark.parametrize("name", ["", "Claude-Code", "claude-code ", "qwen", "claude-code-2"])
def test_names_are_compared_exactly(name: str) -> None:
    assert (known_client(name) is None) == (name != "qwen")


def test_an_environment_with_the_variables_of_two_clients_points_to_none() -> None:
    assert client_of_environment({"CLAUDECODE": "1", "PATH": ""}) == "claude"
    assert client_of_environment({"CLAUDECODE": "1", "OPENCODE": "1"}) == ""
    assert client_of_environment({"PATH": ""}) == ""


def test_no_two_clients_share_a_name_or_a_variable() -> None:
    names = [name for one in KNOWN_CLIENTS for name in (*one.wire, *one.variables)]
    assert len(names) == len({*names})
    assert len({one.name for one in KNOWN_CLIENTS}) == len(KNOWN_CLIENTS)
