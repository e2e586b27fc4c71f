"""Connects to a registry, with the user's credentials for it."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from portico.core.config.publishing import RegistrySettings
from portico.core.http1.cross_origin import CrossOriginClient
from portico.core.http1.errors import InvalidRequest
from portico.library.distribution.distribution_error import DistributionError
from portico.library.distribution.docker_config import login_for
from portico.library.distribution.registry_auth import RegistryAuth
from portico.library.distribution.registry_client import RegistryClient
from portico.library.distribution.registry_rule import rule_for

_CONNECT_S = 20.0


@asynccontextmanager
async def connected(settings: RegistrySettings) -> AsyncGenerator[RegistryClient, None]:
    """Yield a client of a registry, closed in the end; raises DistributionError."""
    try:
        rule = await rule_for(settings)
    except InvalidRequest as error:
        raise DistributionError(f"{settings.host} {error}") from None
    login = await login_for(settings.host, os.environ)
    client = CrossOriginClient(rule, _CONNECT_S)
    try:
        yield RegistryClient(client, rule, RegistryAuth(client, rule, login))
    finally:
        await client.close()
