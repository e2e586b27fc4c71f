"""The content blocks of a prompt, in the forms that the agent supports."""

from collections.abc import Mapping, Sequence
from typing import Any

from portico.agents.turns.acp_connection import AgentProfile
from portico.agents.turns.delegation import AgentPrompt
from portico.agents.turns.turn_updates import content_text

Block = Mapping[str, Any]


def prompt_blocks(prompt: AgentPrompt, profile: AgentProfile) -> list[Block]:
    """Return the blocks to send. Text and links are mandatory; the rest becomes text if need be."""
    context = [_supported(block, profile) for block in prompt.blocks]
    return [*context, {"type": "text", "text": prompt.text}]


def prompt_text(text: str, blocks: Sequence[Block]) -> str:
    """Return a whole prompt as one text, for agents that take nothing else."""
    context = [content_text(block) for block in blocks]
    return "\n\n".join(part for part in (*context, text) if part)


def _supported(block: Block, profile: AgentProfile) -> Block:
    kind = block.get("type")
    capability = {"resource": "embeddedContext", "image": "image", "audio": "audio"}.get(str(kind))
    if capability is None or profile.has("promptCapabilities", capability):
        return block
    return {"type": "text", "text": content_text(block)}
