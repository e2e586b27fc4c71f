"""The docs are whole: links lead somewhere, names and numbers are those of the code."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest

import portico
from portico.core.model import errors
from portico.core.model.methods import KNOWN
from portico.edge.transport.client_connection import MAX_RUNNING
from portico.edge.transport.http_app import HttpApp
from portico.edge.transport.http_limits import HttpLimits
from portico.edge.transport.modern_call import STATUS
from portico.edge.transport.pipes import MAX_LINE
from portico.edge.windows.connected_windows import MAX_WINDOWS
from portico.gateway.registry.registry import MIN_TOOLS_FOR_SEARCH
from portico.library.observe.delegation_metrics import DelegationMetrics
from portico.library.observe.metrics import Metrics
from portico.library.observe.prometheus import STATES, GatewayCollector
from portico.upstream.connections.policy import UpstreamPolicy
from portico.upstream.wires.http_client import Site
from tests.docs.pages import DOCS, ROOT, blocks, headings, pages, prose, section, text_of
from tools.map import GROUPS, kept_walk, page

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_TEST = re.compile(r"`(tests/[\w/]+\.py)(?:::(\w+))?`")
_SOURCE = re.compile(r"`((?:\w+/)+\w+\.py)`")
_GENERATED = "docs/use/performance.md"
"""Written by `make bench`."""


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
    return kept.replace(" ", "-")


@pytest.mark.parametrize("page", pages())
def test_every_link_inside_the_docs_leads_somewhere(page: str) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        name = str(target.relative_to(ROOT))
        assert target.exists() or name == _GENERATED, f"{page}: {link}"
        if anchor:
            assert anchor in map(_slug, headings(name)), f"{page}: {link}"


def test_every_page_can_be_reached_from_the_front() -> None:
    linked = {
        str((ROOT / page).parent.joinpath(link.partition("#")[0]).resolve().relative_to(ROOT))
        for page in pages()
        for link in _LINK.findall(prose(page))
        if not link.startswith("http")
    }
    assert set(pages()) - linked <= {"README.md"} | _decisions()


_PAPERS = {"README.md", "docs/develop/adding.md", "docs/develop/map.md", "docs/develop/tests.md"}
"""Pages that contributing leads to, and the front page itself."""


def test_the_front_page_leads_to_every_page() -> None:
    linked = {link.partition("#")[0] for link in _LINK.findall(section("README.md", "Learn more"))}
    assert set(pages()) - _decisions() - _PAPERS <= linked


def test_the_front_page_begins_with_how_to_install_it_and_names_uv() -> None:
    first = blocks("README.md")[0]
    assert (first.text, first.line < 12) == ("pipx install .\n", True)
    users = [
        page
        for page in ("README.md", "docs/use/serve.md", "docs/use/wrap.md")
        if "uvx " in text_of(page)
    ]
    assert [page for page in users if "](https://docs.astral.sh/uv/)" not in text_of(page)] == []


@pytest.mark.parametrize("page", pages())
def test_a_page_begins_with_what_it_is_for(page: str) -> None:
    title, empty, first, *_ = text_of(page).splitlines()
    assert (title[:2], empty) == ("# ", "")
    if page in _decisions() and not page.endswith("README.md"):
        assert first == "## Context"
    else:
        assert re.match(r"[\w`*\[]", first), page
        assert not first.startswith("```"), page


def _decisions() -> set[str]:
    return {page for page in pages() if page.startswith("docs/develop/decisions/")}


def _written() -> list[str]:
    """The pages in docs that explain something."""
    return [page for page in pages() if page.startswith("docs/")]


def test_every_public_name_is_documented() -> None:
    text = "\n".join(map(text_of, _written()))
    missing = [name for name in portico.__all__ if not re.search(rf"(?<!\w){name}(?!\w)", text)]
    assert missing == []


def test_every_part_of_a_server_is_documented() -> None:
    library = text_of("docs/write/library.md")
    parameters = inspect.signature(portico.Server).parameters
    assert [name for name in parameters if not re.search(rf"\b{name}\b", library)] == []
    text = "\n".join(map(text_of, _written()))
    methods = [name for name in dir(portico.Server) if not name.startswith("_")]
    assert [name for name in methods if not re.search(rf"\.{name}\b|`{name}", text)] == []
    mounting = section("docs/write/transports.md", "Mounting")
    options = set(inspect.signature(HttpApp).parameters) - {"endpoint", "pages", "running"}
    assert [name for name in options if f"`{name}`" not in mounting] == []


def test_every_limit_is_documented_with_its_default() -> None:
    table = section("docs/write/transports.md", "Limits")
    rows = dict(re.findall(r"^\| `(\w+)`(?: \*)? \| ([\d,.]+) ", table, re.MULTILINE))
    documented = {name: float(value.replace(",", "")) for name, value in rows.items()}
    assert documented == {
        name: getattr(HttpLimits(), name) for name in HttpLimits.__struct_fields__
    }


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("README.md", f"From {MIN_TOOLS_FOR_SEARCH} tools on, "),
        ("docs/use/serve.md", f"`search` from {MIN_TOOLS_FOR_SEARCH} tools on"),
        ("docs/use/serve.md", f"takes up to {MAX_WINDOWS} windows"),
        ("docs/write/transports.md", f"| length of a line | {MAX_LINE:,} bytes"),
        ("docs/write/transports.md", f"| calls at once | {MAX_RUNNING:,};"),
    ],
)
def test_a_number_in_the_text_is_that_of_the_code(page: str, said: str) -> None:
    assert said in text_of(page)


def test_every_error_code_is_documented() -> None:
    text = text_of("docs/write/errors.md")
    codes = {value for value in vars(errors).values() if isinstance(value, int)}
    assert [code for code in codes if f"`{code}`" not in text] == []
    for code, status in STATUS.items():
        assert f"| `{code}` | {status} |" in section("docs/write/errors.md", "HTTP statuses")


def test_every_kind_of_failure_of_an_upstream_is_documented() -> None:
    upstream = ROOT / "src" / "portico" / "upstream"
    files = [*upstream.glob("connections/*.py"), *upstream.glob("rpc/*.py")]
    kinds = {kind for file in files for kind in re.findall(r'kind="(\w+)"', file.read_text())}
    text = section("docs/use/wrap.md", "When it fails")
    assert [kind for kind in kinds - {"failed"} if f"| `{kind}` |" not in text] == []


def test_every_state_and_metric_of_a_gateway_is_documented() -> None:
    states = section("docs/use/observing.md", "States")
    assert [state for state in STATES if f"| `{state}` |" not in states] == []
    cache = {"hits": 0, "misses": 0}
    gateway = {"version": "", "uptime_s": 0, "tools": 0, "search": {"cache": cache}}
    status = {"gateway": gateway, "servers": []}
    printed = GatewayCollector(Metrics(), status, DelegationMetrics()).page().decode()
    table = section("docs/use/observing.md", "Metrics")
    names = set(re.findall(r"`(portico_\w+)", table))
    assert names == set(re.findall(r"^# TYPE (\w+)", printed, re.MULTILINE))


def test_the_limits_of_wrap_are_documented_with_their_defaults() -> None:
    plan, text = UpstreamPolicy(), section("docs/use/wrap.md", "Limits")
    defaults = {
        "`--init-timeout`": plan.limits.init_s,
        "`--list-timeout`": plan.limits.list_s,
        "`--call-timeout`": plan.limits.call_s,
        "`--idle-timeout`": plan.idle_s or 0,
        "`--max-in-flight`": plan.max_in_flight,
        "`--max-connections`": Site("").max_connections,
        "`--queue`": plan.max_queue,
        "`--instances`": plan.instances,
        "clients with a process of their own": plan.max_children,
        "suspended calls": plan.max_suspended,
    }
    rows = [(name, f"| {name} | {value:,.0f}") for name, value in defaults.items()]
    assert [name for name, row in rows if row not in text] == []


def test_every_error_class_is_documented() -> None:
    text = text_of("docs/write/errors.md")
    names = [name for name, each in vars(errors).items() if isinstance(each, type)]
    missing = [name for name in (*names, "DefinitionError") if not re.search(rf"\b{name}\b", text)]
    assert set(missing) <= {"Any"}


def test_every_method_is_in_the_table_of_versions() -> None:
    text = text_of("docs/write/versions.md")
    assert [method for method in KNOWN if f"`{method}`" not in text] == []


def test_the_map_is_that_of_the_source() -> None:
    assert text_of("docs/develop/map.md") == page(kept_walk()), "run `make map`"


def test_the_way_of_a_call_on_the_map_passes_modules_that_exist() -> None:
    steps = re.findall(r"<b>([\w.]+)</b><br>([\w, ]+)", kept_walk())
    assert len(steps) > 5
    source = ROOT / "src" / "portico"
    files = [
        source / package.replace(".", "/") / name
        for package, names in steps
        for name in names.split(", ")
    ]
    assert [str(file) for file in files if not file.with_suffix(".py").is_file()] == []


def test_what_a_newcomer_reads_is_short() -> None:
    assert len(text_of("CONTRIBUTING.md").encode()) <= 10_000


def test_no_package_is_too_large_to_know() -> None:
    source = ROOT / "src" / "portico"
    packages = [file.parent for file in source.rglob("__init__.py")]
    assert len(packages) > 30
    sizes = {
        str(package.relative_to(source)): sum(
            len(file.read_text().splitlines()) for file in package.glob("*.py")
        )
        for package in packages
    }
    assert {name: size for name, size in sizes.items() if size > 5_500} == {}


def test_the_map_has_the_groups_in_the_order_in_which_they_may_import() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    order = re.findall(r"\w+", " ".join(layers))
    assert list(GROUPS) == order[-7:]


CHANGES = dict(
    re.findall(
        r"^\| ([^|]+) \| (.+) \|$",
        section("CONTRIBUTING.md", "Where to change what").partition("|---|---|")[2],
        re.MULTILINE,
    )
)


@pytest.mark.parametrize("change", CHANGES)
def test_the_files_of_a_likely_change_exist(change: str) -> None:
    named = re.findall(r"`([\w./]+(?:\.py|\.md|/)|tests/\w+)`", CHANGES[change])
    places = (ROOT, ROOT / "src" / "portico")
    assert named
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_every_folder_of_tests_is_explained_or_mirrors_a_package() -> None:
    text = text_of("docs/develop/tests.md")
    source = {path.stem for path in (ROOT / "src" / "portico").iterdir()}
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert [name for name in folders - source if f"| `tests/{name}/` |" not in text] == []


@pytest.mark.parametrize("page", pages())
def test_every_source_file_that_is_named_exists(page: str) -> None:
    named = set(_SOURCE.findall(prose(page)))
    places = (ROOT, ROOT / "src", ROOT / "src" / "portico")
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.parametrize("page", pages())
def test_every_test_that_is_cited_exists(page: str) -> None:
    for file, name in _TEST.findall(text_of(page)):
        assert (ROOT / file).is_file(), f"{page}: {file}"
        assert not name or f"def {name}(" in (ROOT / file).read_text(), f"{page}: {file}::{name}"


def test_decisions_are_numbered_and_have_the_same_three_parts() -> None:
    notes = sorted((DOCS / "develop" / "decisions").glob("[0-9]*.md"))
    numbers = [note.name[:5] for note in notes]
    assert numbers == sorted(set(numbers)), "each number once; branches may leave gaps"
    for note in notes:
        page = str(note.relative_to(ROOT))
        title, *parts = headings(page)
        assert title.startswith(f"{int(note.name[:4])}. "), page
        assert parts == ["Context", "Decision", "Consequences"], page


def test_every_decision_is_listed() -> None:
    listed = text_of("docs/develop/decisions/README.md")
    notes = {Path(page).name for page in _decisions()} - {"README.md"}
    titles = {note: headings(f"docs/develop/decisions/{note}")[0] for note in notes}
    missing = [note for note, title in titles.items() if f"- [{title}]({note})\n" not in listed]
    assert missing == []


def test_every_threat_is_answered_by_a_test() -> None:
    _, *tables = text_of("docs/develop/threat-model.md").split(
        "\n| threat | what is done | shown by |\n"
    )
    rows = [row for table in tables for row in table.partition("\n\n")[0].splitlines()[1:]]
    assert len(rows) > 50
    assert [row for row in rows if not _TEST.search(row.rpartition(" | ")[2])] == []
