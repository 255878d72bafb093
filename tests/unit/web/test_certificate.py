"""Certificates and keys of every wrong kind are one plain error, and nobody is asked for a password."""

import ssl

import pytest

from maskedlark.web.certificate import Certificate, context
from maskedlark.web.errors import BadCertificate, CertificateExpired
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
        Certificate(*pair)
    pair[place].mkdir()
    with pytest.raises(BadCertificate, match=rf"{pair[place].name} cannot be read: Is a directory"):
        Certificate(*pair)


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


def test_files_are_read_again_only_when_they_have_changed_and_are_a_pair(pair, tmp_path, caplog):
    made, other = Certificate(*pair), pem.make(tmp_path, "other", ends_in_s=1000)
    first = made.context
    made.renew()
    assert made.context is first
    assert 86_000 < made.left_s() <= 86_400
    for spoil in (pair.key.unlink, lambda: pair.key.write_bytes(other.key.read_bytes())):
        spoil()
        caplog.clear()
        made.renew()
        assert made.context is first
        assert "the certificate stays as it was: " in caplog.text
    pair.certificate.write_bytes(other.certificate.read_bytes())
    made.renew()
    assert made.context is not first
    assert 900 < made.left_s() <= 1000
    made.check()


def test_another_of_the_chain_may_have_ended(pair, tmp_path):
    ended = pem.make(tmp_path, "ended", ends_in_s=-1).certificate.read_bytes()
    pair.certificate.write_bytes(pair.certificate.read_bytes() + ended)
    Certificate(*pair).check()


def test_a_certificate_that_has_ended_is_said(tmp_path):
    with pytest.raises(CertificateExpired, match="renew its files"):
        Certificate(*pem.make(tmp_path, ends_in_s=-1)).check()
