"""Which keys each table may have, and how each is read."""

from portico.config.values import (
    Reader,
    a_table,
    address,
    choice,
    filled,
    flag,
    number,
    pairs,
    table,
    text,
    texts,
    whole,
)

TYPES = ("stdio", "http", "sse")

SERVER: dict[str, Reader] = {
    "command": filled,
    "args": texts,
    "env": pairs,
    "cwd": filled,
    "url": filled,
    "headers": pairs,
    "type": choice(*TYPES),
    "enabled": flag,
    "title": text,
    "description": text,
    "tags": texts,
    "tools": table({"allow": texts, "deny": texts}),
    "timeouts": table(
        {"init": number(), "list": number(), "call": number(), "idle": number(or_none=True)}
    ),
    "instances": whole(1, 1000),
    "sharing": choice("auto", "shared", "per-client"),
    "may_ask": flag,
    "era": choice("auto", "modern", "legacy"),
    "max_in_flight": whole(1),
    "max_connections": whole(1),
    "max_tools": whole(1, 100_000),
    "auth": a_table,
}

# The names are those of `transport.limits.Limits`, which a test compares.
_LIMITS = """
    body_bytes body_s bodies_bytes unread_bytes connections half_open header_bytes header_count
    header_s keep_alive_s stall_s quiet_s running streams sessions session_idle_s session_streams
    notices replay_events replay_bytes session_replay_bytes all_replay_bytes retry_ms
"""
_MAY_BE_0 = {name for name in _LIMITS.split() if "replay" in name} | {"retry_ms"}
LIMITS: dict[str, Reader] = {
    name: number() if name.endswith("_s") else whole(0 if name in _MAY_BE_0 else 1)
    for name in _LIMITS.split()
}

GATEWAY: dict[str, Reader] = {
    "expose": choice("auto", "search", "all"),
    "pinned": texts,
    "name_limit": whole(32, 1024),
    "max_tools": whole(1, 100_000),
    "http": address,
    "auth": choice("token", "none"),
    "log": filled,
    "cache_mb": whole(1, 1_000_000),
    "drain": number(or_none=True),
    "drain_notice_s": number(or_none=True),
    "watchdog_ms": whole(0, 3_600_000),
    "limits": table(LIMITS),
}

KEYS_OF = {"openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}
"""The providers of rerankers, and the variable that each one's key is in."""

RERANK: dict[str, Reader] = {
    "provider": choice(*KEYS_OF),
    "model": filled,
    "url": filled,
    "key_env": filled,
    "timeout_ms": whole(1),
}

SEARCH: dict[str, Reader] = {
    "default_limit": whole(1, 50),
    "vectors": flag,
    "model": filled,
    "rerank": table(RERANK),
}

GROUP: dict[str, Reader] = {"servers": texts}

LATER = ("components", "profiles", "agents_defaults", "agents", "routing")
"""Tables that are known, but that nothing uses yet."""
TOP = ("gateway", "search", "servers", "groups", "mcp_servers", *LATER)
