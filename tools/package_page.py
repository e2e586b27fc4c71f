"""The page of a package index, made of the README when the package is built: pictures and links to
other files work there too, or are left out."""

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


def page_of(readme: str, source: str) -> str:
    """Return the README with links into the repository at this URL. Without one, the text of a link
    stays, and a picture does not."""

    def moved(link: re.Match[str]) -> str:
        mark, text, path = link.groups()
        if not source:
            return "" if mark else text
        return f"{mark}[{text}]({source}/{'raw' if mark else 'blob'}/HEAD/{path})"

    return _LINK.sub(moved, readme)


def get_metadata_hook() -> type:
    """Return the hook that hatchling calls; only a build has hatchling."""
    from hatchling.metadata.plugin.interface import MetadataHookInterface

    class PackagePage(MetadataHookInterface):  # type: ignore[misc]
        def update(self, metadata: dict[str, Any]) -> None:
            """Set the description of the package."""
            readme = Path(self.root, "README.md").read_text(encoding="utf-8")
            text = page_of(readme, metadata.get("urls", {}).get("Source", ""))
            metadata["readme"] = {"content-type": "text/markdown", "text": text}

    return PackagePage
