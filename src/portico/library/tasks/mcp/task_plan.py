"""The table by which the link of tasks decides about a call.

The first row that matches decides; a dash matches everything.

      in task  tool     required  client    bound  budget  text      passes  plan
   1  yes      -        -         -         -      -       -         -       PLAIN
   2  -        unknown  -         -         -      -       -         -       LOOK_UP
   3  -        -        yes       without   yes    -       -         -       REQUIRE
   4  -        none     -         explicit  yes    -       -         -       FORBID
   5  -        own      -         -         -      -       -         -       OWN
   6  -        remote   yes       without   -      -       yes       -       WAIT
   7  -        -        -         without   -      yes     yes       -       RUN by time
   8  -        -        -         without   -      -       -         -       PLAIN
   9  -        remote   -         -         -      -       -         yes     FORWARD
  10  -        remote   -         -         -      yes     -         -       RUN by server or time
  11  -        remote   -         -         -      -       -         -       RUN by server
  12  -        -        -         explicit  -      -       -         -       SUBMIT
  13  -        start    -         -         -      -       -         -       SUBMIT
  14  -        manual   -         -         -      yes     -         -       RUN by handler or time
  15  -        manual   -         -         -      -       -         -       RUN by handler
  16  -        -        -         -         -      yes     -         -       RUN by time
  17  -        -        -         -         -      -       -         -       PLAIN
"""

from enum import Enum, StrEnum
from functools import cache
from typing import NamedTuple

from portico.library.functions.task_mode import TaskSupport


class ClientSupport(StrEnum):
    """The support for tasks that a client has declared in a call."""

    WITHOUT = "without"
    ABLE = "able"
    """A modern client, which accepts a task."""
    EXPLICIT = "explicit"
    """A legacy client, which requires one."""


class Step(Enum):
    """The treatment of a call."""

    PLAIN = "plain"
    """Make a plain call."""
    LOOK_UP = "look up"
    """Decide once the tools of the server are known."""
    REQUIRE = "require"
    """Refuse it: the tool runs only as a task."""
    FORBID = "forbid"
    """Refuse it: the tool does not run as a task."""
    OWN = "own"
    """Make a call whose handler stores the task."""
    WAIT = "wait"
    """Let the server create a task, and wait for its result."""
    FORWARD = "forward"
    """Let the server create a task, which passes unchanged."""
    SUBMIT = "submit"
    """Store the call, which a worker then makes."""
    RUN = "run"
    """Make a call that its server, its handler or a time may make a task."""


class Facts(NamedTuple):
    """All that decides about a call."""

    in_task: bool
    """True if it is a task already."""
    tool: TaskSupport
    is_required: bool
    """True if the tool runs only as a task."""
    client: ClientSupport
    is_bound: bool
    """True if the tool's declaration binds the client, which has seen it."""
    has_budget: bool
    """True if the call becomes a task by itself, after a time."""
    may_answer_with_text: bool
    """True if a client without tasks can get a text in place of the result."""
    passes: bool
    """True if the tasks of the only server pass unchanged."""


class Plan(NamedTuple):
    """The treatment of a call, and all that may make it a task."""

    step: Step
    by_server: bool = False
    by_handler: bool = False
    by_time: bool = False


_YES = (True,)
_REMOTE, _WITHOUT = (TaskSupport.REMOTE,), (ClientSupport.WITHOUT,)
_ROWS: tuple[tuple[dict[str, tuple[object, ...]], Plan], ...] = (
    ({"in_task": _YES}, Plan(Step.PLAIN)),
    ({"tool": (TaskSupport.UNKNOWN,)}, Plan(Step.LOOK_UP)),
    ({"is_required": _YES, "client": _WITHOUT, "is_bound": _YES}, Plan(Step.REQUIRE)),
    (
        {"tool": (TaskSupport.NONE,), "client": (ClientSupport.EXPLICIT,), "is_bound": _YES},
        Plan(Step.FORBID),
    ),
    ({"tool": (TaskSupport.OWN,)}, Plan(Step.OWN)),
    (
        {"tool": _REMOTE, "is_required": _YES, "client": _WITHOUT, "may_answer_with_text": _YES},
        Plan(Step.WAIT),
    ),
    (
        {"client": _WITHOUT, "has_budget": _YES, "may_answer_with_text": _YES},
        Plan(Step.RUN, by_time=True),
    ),
    ({"client": _WITHOUT}, Plan(Step.PLAIN)),
    ({"tool": _REMOTE, "passes": _YES}, Plan(Step.FORWARD)),
    ({"tool": _REMOTE, "has_budget": _YES}, Plan(Step.RUN, by_server=True, by_time=True)),
    ({"tool": _REMOTE}, Plan(Step.RUN, by_server=True)),
    ({"client": (ClientSupport.EXPLICIT,)}, Plan(Step.SUBMIT)),
    ({"tool": (TaskSupport.START,)}, Plan(Step.SUBMIT)),
    (
        {"tool": (TaskSupport.MANUAL,), "has_budget": _YES},
        Plan(Step.RUN, by_handler=True, by_time=True),
    ),
    ({"tool": (TaskSupport.MANUAL,)}, Plan(Step.RUN, by_handler=True)),
    ({"has_budget": _YES}, Plan(Step.RUN, by_time=True)),
    ({}, Plan(Step.PLAIN)),
)


@cache
def plan(facts: Facts) -> Plan:
    """Return what to do with a call: the first row of the table that matches."""
    known = facts._asdict()
    for wanted, found in _ROWS:
        if all(known[name] in values for name, values in wanted.items()):
            return found
    raise AssertionError(facts)  # the last row matches everything
