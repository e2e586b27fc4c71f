"""The definitions of the tools that delegate tasks to agents."""

from typing import TYPE_CHECKING, Any

from portico.library.tasks.mcp.task_tool_definitions import hints

if TYPE_CHECKING:
    from portico.core.config.agents_schema import AgentEntry, AgentsConfig

DELEGATE, AGENT_STATUS = "delegate_task", "agent_status"
AGENT_TOOL_NAMES = (DELEGATE, AGENT_STATUS)
MAX_PROMPT = 1_000_000
"""Characters of a prompt and its context."""
_ALWAYS_LISTED = {"anthropic/alwaysLoad": True}
_MAX_SHOWN = 12


def delegate_definition(config: "AgentsConfig") -> dict[str, Any]:
    """Return the definition of `delegate_task`, which names the agents."""
    enabled = [entry for entry in config.entries.values() if entry.enabled]
    types = sorted({word for entry in enabled for word in entry.capabilities})
    shown = "; ".join(map(_described, enabled[:_MAX_SHOWN]))
    more = f"; and {len(enabled) - _MAX_SHOWN} more" if len(enabled) > _MAX_SHOWN else ""
    text = {"type": "string"}
    properties = {
        "task_type": {"type": "string", "enum": types} if types else text,
        "prompt": {"type": "string", "description": "the whole task: the agent sees nothing else"},
        "agent_id": {"type": "string", "description": "only this agent"},
        "background": {"type": "boolean", "default": False, "description": "return at once"},
        "context": {"description": "text, JSON, or resource links to read"},
        "cwd": {"type": "string", "description": "the folder to work in"},
        "timeout_s": {"type": "number", "exclusiveMinimum": 0},
        "resume": {"type": "string", "description": "a finished task to continue"},
    }
    return {
        "name": DELEGATE,
        "description": f"Hand a whole task to another agent. Agents: {shown}{more}.",
        "inputSchema": {
            "type": "object",
            "properties": properties,
            "required": ["prompt"],
        },
        "annotations": hints(destroys=True, reaches_out=True),
        "_meta": _ALWAYS_LISTED,
    }


def status_definition() -> dict[str, Any]:
    """Return the definition of `agent_status`."""
    properties = {
        "task_id": {"type": "string"},
        "wait_s": {"type": "number", "minimum": 0, "maximum": 50},
        "answer": {"type": "string", "description": "to an open question addressed to you"},
    }
    return {
        "name": AGENT_STATUS,
        "description": "Agents, their quota and tasks; or the state and result of one task.",
        "inputSchema": {"type": "object", "properties": properties},
        "annotations": hints(destroys=True, reaches_out=True),  # an answer may allow anything
        "_meta": _ALWAYS_LISTED,
    }


def _described(entry: "AgentEntry") -> str:
    skills = ", ".join(entry.capabilities)
    about = f" - {entry.description}" if entry.description else ""
    return f"{entry.id} ({skills}){about}"
