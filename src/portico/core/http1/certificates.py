"""The TLS context: it trusts the system's certificates, or those that the environment names."""

import functools
import os
import re
import ssl
import sys

from portico.core.http1.errors import InvalidRequest, error_text

BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
"""Where systems keep their certificates, for a Python that was built to look elsewhere."""
_HASHED = re.compile(r"[0-9a-f]{8}\.\d+")


def tls_context() -> ssl.SSLContext:
    """Return the context of TLS handshakes; the first call is slow: it loads all certificates."""
    environ = os.environ
    return context_of(environ.get("SSL_CERT_FILE", ""), environ.get("SSL_CERT_DIR", ""))


@functools.cache
def context_of(file: str, folder: str) -> ssl.SSLContext:
    if not file and not folder and sys.platform != "linux":
        import truststore

        context: ssl.SSLContext = truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if file or folder:
            _load_from_environment(context, file, folder)
        else:
            _load_from_system(context)
    # The same for all three sources: Python's own defaults, which are strict from 3.13 on.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load_from_environment(context: ssl.SSLContext, file: str, folder: str) -> None:
    try:
        context.load_verify_locations(file or None, folder or None)
    except (OSError, ValueError) as error:  # an SSLError is an OSError
        why = f"SSL_CERT_FILE or SSL_CERT_DIR cannot be loaded: {error_text(error)}"
        raise InvalidRequest(why) from None


def _load_from_system(context: ssl.SSLContext) -> None:
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and any(map(_HASHED.fullmatch, os.listdir(paths.capath)))):
        context.set_default_verify_paths()
        return
    if bundle := next(filter(os.path.isfile, BUNDLES), None):
        context.load_verify_locations(bundle)
