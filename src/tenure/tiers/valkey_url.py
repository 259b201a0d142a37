"""What the address of a pool says: which servers, a cluster or one, with TLS or without, as whom.
Used by the Valkey tier when it is made; it connects to nothing."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import unquote

from tenure.checks import encodable
from tenure.errors import ConfigError
from tenure.tiers.protocol import Address, Login

__all__ = ["Place", "parse_url"]

_FORMS = "embedded, valkey://host:port, valkeys:// (TLS), valkey+cluster://host:port,host:port, valkeys+cluster://, unix:///path"
_SCHEMES = {
    f"{name}{secure}{cluster}": (bool(secure), bool(cluster))
    for name in ("valkey", "redis")
    for secure in ("", "s")
    for cluster in ("", "+cluster")
}
"""Each: with TLS, a cluster."""


class Place(NamedTuple):
    """The servers, whether they are a cluster, and how to log in."""

    seeds: list[Address]
    cluster: bool
    login: Login


def parse_url(url: str, user: str | None = None, password: str | None = None, ca: str | None = None) -> Place:
    """What a url says; user and password given here go before its own. ca: a file of the authorities to trust with TLS, None for
    the system's. Raises ConfigError."""
    if not isinstance(url, str):
        raise ConfigError(f"url is {url!r}: one of {_FORMS} is needed")
    for what, secret in (("user", user), ("password", password)):
        if secret is not None and (not isinstance(secret, str) or not encodable(secret)):
            raise ConfigError(f"{what} is a {type(secret).__name__}: text is needed")
    scheme, found, rest = url.partition("://")
    if scheme == "unix" and rest:
        return Place([Address(rest, None)], False, Login(user, password))
    if not found or scheme not in _SCHEMES:
        raise ConfigError(f"url is {_shown(url)!r}: one of {_FORMS} is needed")
    secure, cluster = _SCHEMES[scheme]
    before, at, hosts = rest.rpartition("@")
    hosts, _, database = hosts.partition("/")
    if at:
        name, colon, secret = before.partition(":")
        user = user or unquote(name) or None
        password = password or (unquote(secret) if colon else None)
    seeds = [_address(host, url) for host in hosts.split(",")]
    if len(seeds) > 1 and not cluster:
        raise ConfigError(f"url is {_shown(url)!r}: several servers are a cluster: {scheme}+cluster://")
    if database and (cluster or not database.isdecimal() or not database.isascii()):
        raise ConfigError(f"url is {_shown(url)!r}: behind the servers only the number of a single server's database may stand")
    return Place(seeds, cluster, Login(user, password, int(database or 0), _tls(ca) if secure else None))


def _address(host: str, url: str) -> Address:
    name, colon, port = host.rpartition(":")
    if not colon:
        name, port = host, "6379"
    if not name or not port.isdecimal() or not 0 < int(port) < 65536 or not _is_host(name):
        raise ConfigError(f"url is {_shown(url)!r}: {host!r} is no host:port")
    return Address(name.strip("[]"), int(port))


def _is_host(name: str) -> bool:
    """Whether it can be looked up: no part is empty or too long, no letter impossible."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return "\0" not in name


def _tls(ca: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, TypeError) as error:
        raise ConfigError(f"ca is {ca!r}: a file of certificates is needed: {error}") from None


def _shown(url: str) -> str:
    """Without what is secret."""
    scheme, found, rest = url.partition("://")
    return f"{scheme}{found}{rest.rpartition('@')[2]}"
