"""Tools to search, a stand-in for the model, and vectors that are waited for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from portico.gateway.search.tokens import terms


def tool(server: str, name: str, description: str = "", **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    schema = {"type": "object", "properties": properties}
    return {"server": server, "name": name, "description": description, "inputSchema": schema}


TOOLS = [
    tool("mail", "send_email", "Send a message to somebody.", to="Who gets it"),
    tool("papers", "download_paper", "Save the PDF of a paper."),
    tool("weather", "forecast", "The weather of the next days.", city="Where"),
    tool("github", "createIssue", "Open an issue in a repository."),
    tool("gitlab", "createIssue", "Open an issue in a project."),
]


class Letters:
    """A model that means letters: it counts the texts it was given, and can be told to fail."""

    name = "letters"

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.broken = False

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.broken:
            raise RuntimeError("out of letters")
        self.texts += texts
        vectors = np.full((len(texts), 26), 0.01, np.float32)
        for row, text in enumerate(texts):
            for letter in "".join(terms(text)):
                if "a" <= letter <= "z":
                    vectors[row, ord(letter) - 97] += 1
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors
