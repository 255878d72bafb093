"""Certificates and keys of every wrong kind are one plain error, and nobody is asked for a password."""

import ssl

import pytest

from maskedlark.web.certificate import context
from maskedlark.web.errors import BadCertificate
from tests.unit.web import pem


@pytest.fixture
def pair(tmp_path):
    return pem.make(tmp_path)


def test_a_pair_makes_a_context_of_today(pair):
    made = context(*pair)
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2
    assert made.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.parametrize("place", [0, 1])
def test_a_file_that_is_missing_or_cannot_be_read_is_named(pair, place):
    pair[place].unlink()
    with pytest.raises(BadCertificate, match=rf"{pair[place].name} cannot be read: No such file"):
        context(*pair)
    pair[place].mkdir()
    with pytest.raises(BadCertificate, match=rf"{pair[place].name} cannot be read: Is a directory"):
        context(*pair)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize(
    "content", ["", "nonsense", "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"]
)
def test_what_is_no_pem_is_refused(pair, place, content):
    pair[place].write_text(content)
    with pytest.raises(BadCertificate, match="no certificate and key in PEM"):
        context(*pair)


def test_the_key_of_another_certificate_is_refused(pair, tmp_path):
    other = pem.make(tmp_path, "other")
    with pytest.raises(BadCertificate, match=r"other\.key is not the key of .*tls\.pem"):
        context(pair.certificate, other.key)
    with pytest.raises(BadCertificate):
        context(pair.key, pair.certificate)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path):
    with pytest.raises(BadCertificate, match="without password"):
        context(*pem.make(tmp_path, password=b"secret"))
