"""From an agent's config entry to the way it is started."""

from portico.agents.turns.delegation import AgentLaunch
from portico.core.config.agents_schema import AgentEntry


def launch_of(entry: AgentEntry) -> AgentLaunch:
    """Return how the configured agent is started, and what it may do.

    Its process runs in the folder of the task, for which `entry.cwd` is only a default.
    """
    preset = entry.known if entry.permissions.restricts else None
    return AgentLaunch(
        name=entry.id,
        argv=(entry.command, *entry.args),
        kind=entry.kind,
        env=entry.env,
        timeouts=entry.timeouts,
        permissions=entry.permissions,
        callbacks=entry.callbacks,
        mode=entry.mode,
        config_options=entry.options,
        auth_method=entry.auth_method,
        login=entry.login_command,
        session_meta={} if preset is None else preset.session_meta,
    )
