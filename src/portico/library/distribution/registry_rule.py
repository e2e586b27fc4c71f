"""Where the requests for one registry may go: over HTTPS, or to this machine if that is set."""

from portico.core.config.publishing import RegistrySettings
from portico.core.http1.dial import permit_all
from portico.core.http1.url import Origin, parse_url
from portico.upstream.auth.address_rule import AddressRule, Permit
from portico.upstream.auth.flow_runner import address_rule
from portico.upstream.auth.web_url import is_this_machine


class RegistryRule:
    """The rule for one registry, its token service and the places that it redirects to."""

    def __init__(self, settings: RegistrySettings, addresses: AddressRule) -> None:
        self.settings = settings
        self.origin = own_origin(settings)
        self._addresses = addresses

    def refusal(self, origin: Origin) -> str:
        """Return why an origin may not be contacted; empty if it may."""
        if origin.scheme == "https":
            return ""
        if self.settings.insecure and is_this_machine(origin.host):
            return ""
        return f"{origin.shown} uses plain HTTP, where others could change data on its way"

    def is_direct(self, origin: Origin) -> bool:
        """True for this machine."""
        return is_this_machine(origin.host)

    def permit(self, origin: Origin) -> Permit:
        """Permit the addresses of the registry, and public ones; all, if it is not public."""
        return permit_all if origin == self.origin else self._addresses.permit(origin)

    def may_have_login(self, origin: Origin) -> bool:
        """True if a token service may get the user's credentials."""
        listed = {one.lower() for one in self.settings.token_hosts}
        return origin.host == self.origin.host or not listed.isdisjoint(
            (origin.host, origin.shown, origin.authority)
        )


def base_url(settings: RegistrySettings) -> str:
    """Return the URL of a registry without its path."""
    is_plain = settings.insecure and settings.url.startswith("http://")
    return f"{'http' if is_plain else 'https'}://{settings.host}"


def own_origin(settings: RegistrySettings) -> Origin:
    """Return the origin of a registry; raises InvalidRequest."""
    return parse_url(base_url(settings)).origin


async def rule_for(settings: RegistrySettings) -> RegistryRule:
    """Return the rule for a registry; it looks up the registry's addresses."""
    found = await address_rule(base_url(settings))
    trusted = frozenset(one.lower().partition(":")[0] for one in settings.token_hosts)
    return RegistryRule(settings, AddressRule(found.is_local, trusted))
