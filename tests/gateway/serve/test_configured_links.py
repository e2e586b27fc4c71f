"""The links of a config: loaded in order, each file once, or refused with the reason."""

import asyncio
from pathlib import Path

import pytest

from portico.core.config.schema import Config, Gateway
from portico.core.model.errors import PorticoError
from portico.gateway.serve.configured_links import load_configured
from tests.serve.components import CALC
from tests.support.clock import Clock

LINK = "\n\ndef link(next):\n    return next\n"
TWO = "\n\ndef first(next):\n    return next\n\n\ndef second(next):\n    return next\n"


def config(*links: Path | str) -> Config:
    return Config(path="portico.toml", gateway=Gateway(links=tuple(map(str, links))))


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


async def test_links_are_loaded_in_their_order_and_a_file_once(tmp_path: Path) -> None:
    loads = tmp_path / "loads"
    counting = f"with open({str(loads)!r}, 'a') as file:\n    file.write('x')\n"
    path = written(tmp_path / "some.py", f"{counting}{TWO}\nlinks = [first, second]\n")
    found = config(f"{path}:second", path, f"{path}:first")
    loaded = await load_configured(found)
    names = [getattr(link, "__name__", "") for link in loaded.links]
    assert names == ["second", "first", "second", "first"]
    assert loads.read_text() == "x"
    assert found.link_files == [str(path)] * 3
    assert (await load_configured(config())).links == ()


async def test_a_server_beside_a_link_is_a_member_named_after_the_file(tmp_path: Path) -> None:
    path = written(tmp_path / "guards.py", CALC + LINK)
    loaded = await load_configured(config(path))
    assert list(loaded.local) == ["guards"]
    with pytest.raises(PorticoError, match=r"guards is a member and a file of gateway\.links"):
        await load_configured(config(path), ["guards"])
    other = written(tmp_path / "other" / "guards.py", CALC + LINK)
    with pytest.raises(PorticoError, match=r"gateway\.links\[1\].*is named guards"):
        await load_configured(config(path, other))


async def test_what_is_not_middleware_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for path, words in (
        (written(tmp_path / "tools.json", '{"tools": []}'), "not middleware; give a Python file"),
        (written(tmp_path / "server.py", CALC), "contains no middleware"),
        (tmp_path / "folder.py", "a folder, not a file"),
        (tmp_path / "gone.py", "no such file"),
    ):
        with pytest.raises(PorticoError, match=words) as caught:
            await load_configured(config(path))
        assert str(caught.value).startswith("portico.toml: gateway.links[0]: ")


async def test_a_link_that_hangs_at_import_is_refused(tmp_path: Path, clock: Clock) -> None:
    path = written(tmp_path / "hangs.py", "import threading\nthreading.Event().wait()\n")
    loading = asyncio.ensure_future(load_configured(config(path)))
    await asyncio.sleep(0)
    await clock.advance(31)
    with pytest.raises(PorticoError, match=r"hangs\.py: not imported within 30 s"):
        await loading
