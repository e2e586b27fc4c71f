"""How a tool supports tasks."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from portico.core.model.errors import RegistrationError

MANUAL, REQUIRED, OPTIONAL = "manual", "required", "optional"
OWN = "own"
"""For tools of Portico itself, whose handlers store their tasks."""


class TaskSupport(StrEnum):
    """The way in which calls of a tool become tasks."""

    NONE = "none"
    UNKNOWN = "unknown"
    """No tool has the name, or its server was not listed yet."""
    START = "start"
    """Its calls are tasks from their start."""
    MANUAL = "manual"
    """Its handler decides when the call becomes a task."""
    OWN = "own"
    """Its handler stores the task itself, with `DelegationControl`."""
    REMOTE = "remote"
    """Its server creates the tasks itself."""


class TaskMode(Struct, frozen=True):
    """How a tool supports tasks."""

    support: TaskSupport = TaskSupport.START
    is_required: bool = False
    """True if it runs only as a task."""

    @property
    def is_seen(self) -> bool:
        """True if the link must see its calls also where clients do not mention tasks."""
        return self.is_required or self.support is TaskSupport.OWN


NO_TASKS = TaskMode(TaskSupport.NONE)


def registered_mode(task: object) -> TaskMode | None:
    """Return the mode for the `task` of a registration; raises RegistrationError."""
    modes = {
        False: None,
        None: None,
        True: TaskMode(),
        REQUIRED: TaskMode(is_required=True),
        MANUAL: TaskMode(TaskSupport.MANUAL),
        OWN: TaskMode(TaskSupport.OWN),
    }
    if isinstance(task, bool | str | None) and task in modes:
        return modes[task]
    raise RegistrationError(f"task must be True, 'required' or 'manual', not {task!r}")


def defined_mode(definition: Mapping[str, Any]) -> TaskMode | None:
    """Return the mode that a tool's definition declares."""
    execution = definition.get("execution")
    support = execution.get("taskSupport") if isinstance(execution, Mapping) else None
    if support not in (OPTIONAL, REQUIRED):
        return None
    return TaskMode(is_required=support == REQUIRED)


def task_support(mode: TaskMode) -> dict[str, Any]:
    """Return the field of a definition that declares a mode (2025-11-25)."""
    return {"taskSupport": REQUIRED if mode.is_required else OPTIONAL}
