"""Which addresses and URLs may be reached, in every notation that something on the way may understand."""

from __future__ import annotations

import contextlib
import ipaddress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drsai_backend.errors import InvalidRequest, RefusedAddress
from drsai_backend.net.addresses import Reachable, endpoint_of, literal

PRIVATE = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
]


def notations(address: ipaddress.IPv4Address) -> list[str]:
    """The address as resolvers, gateways and tunnels take it."""
    number = int(address)
    a, b, c, d = address.packed
    high, low = number >> 16, number & 0xFFFF
    return [
        str(address),
        str(number),
        f"{number:#x}",
        f"0{a:o}.{b}.{c}.{d}",
        f"{a:#x}.{(b << 16) | (c << 8) | d}",
        f"{a}.{b}.{(c << 8) | d}",
        f"{address}.",
        f"[::ffff:{address}]",
        f"[::ffff:{high:x}:{low:x}]",
        f"[64:ff9b::{address}]",
        f"[2002:{high:x}:{low:x}::1]",
        f"[2001:0:{high:x}:{low:x}::ffff:ffff]",
        *([f"[::{address}]"] if number > 1 else []),
    ]


@given(st.sampled_from(PRIVATE).flatmap(lambda network: st.ip_addresses(network=network)))
def test_no_notation_of_a_private_address_passes(address: ipaddress.IPv4Address) -> None:
    for host in notations(address):
        with pytest.raises(InvalidRequest):  # RefusedAddress, but where httpx takes it for no host
            Reachable().check_url(f"https://{host}:8443/hook", "webhook_url")
        assert literal(host) is not None
    with pytest.raises(RefusedAddress, match="'intern'"):
        Reachable().check(["93.184.215.14", str(address)], "intern")


@given(st.ip_addresses(v=6))
def test_ipv6_outside_of_the_internet_is_refused(address: ipaddress.IPv6Address) -> None:
    if not address.is_global or address.is_multicast or address.is_site_local or address.is_link_local:
        assert not Reachable().allows(address)
    if Reachable().allows(address):
        known = [ipaddress.ip_network(each) for each in ("2000::/3", "64:ff9b::/96", "::ffff:0:0/96", "::/96")]
        assert any(address in network for network in known)


@pytest.mark.parametrize("host", ["[fe80::1]", "[fc00::1]", "[fec0::1]", "[ff02::1]", "[::]", "[::1]", "[2001:db8::1]"])
def test_ipv6_of_the_house(host: str) -> None:
    with pytest.raises(RefusedAddress):
        Reachable().check_url(f"https://{host}/", "webhook_url")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://example.org/", "https"),
        ("ftp://example.org/", "https"),
        ("file:///etc/passwd", "https|host"),
        ("example.org/hook", "https|host"),
        ("https://", "host"),
        ("https:///hook", "host"),
        ("https://xn--/", "no URL"),
        ("https://user:pass@example.org/", "user name"),
        ("https://example.org@127.0.0.1/", "user name"),
        ("https://@example.org/", "user name"),
        ("https://example.org\\@127.0.0.1/", "ASCII"),
        ("https://example.org/ x", "ASCII"),
        ("https://example.org/\r\nX: y", "ASCII"),
        ("https://exämple.org/", "ASCII"),
        ("https://example.org/#part", "fragment"),
        ("https://127.0.0.1%2f.example.org/", "host|URL"),
        ("https://[fe80::1%25eth0]/", "host|URL"),
        ("https://example.org:0/", "port"),
        ("https://example.org:70000/", "port"),
        ("https://example.org:x/", "URL"),
        ("https://[::1/", "URL"),
        ("https://example.org/" + "a" * 2048, "2048"),
        ("", "ASCII"),
    ],
)
def test_what_is_no_url_for_this(url: str, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says) as refused:
        Reachable().check_url(url, "webhook_url")
    assert refused.value.param == "webhook_url"


@given(st.text(max_size=60))
def test_whatever_is_said_is_taken_or_refused(text: str) -> None:
    for url in (text, f"https://{text}", f"https://example.org/{text}"):
        with contextlib.suppress(InvalidRequest):
            Reachable().check_url(url, "webhook_url")


def test_what_the_operator_allows() -> None:
    reachable = Reachable(["10.1.0.0/16", "::1", "127.0.0.1"])
    for url in ("https://10.1.2.3/", "http://[::1]:80/", "https://[::ffff:10.1.2.3]/", "http://2130706433/"):
        reachable.check_url(url, "webhook_url")
    for url in ("https://10.2.0.1/", "https://127.0.0.2/", "https://[::ffff:10.2.0.1]/", "https://169.254.169.254/"):
        with pytest.raises(RefusedAddress):
            reachable.check_url(url, "webhook_url")
    # One allowed half of a tunnel does not open the other.
    with pytest.raises(RefusedAddress):
        reachable.check_url("https://[2001:0:0a01:0203::80ff:fffd]/", "webhook_url")


def test_public_addresses_and_names_pass() -> None:
    for url in ("https://example.org/x?y=1", "https://1.1.1.1", "https://[2606:4700::1111]:8443/", "https://a.b.c/~d"):
        Reachable().check_url(url, "webhook_url")
    assert endpoint_of(httpx.URL("https://user.example.org/secret?token=1")) == "https://user.example.org:443"
    assert endpoint_of(httpx.URL("http://[2606:4700::1111]:81/x")) == "http://[2606:4700::1111]:81"
