"""TLS: the certificate of a service, and connections before their handshake is done. Run by services."""

import asyncio
import logging
import math
import ssl
import time
from asyncio.sslproto import SSLProtocol
from pathlib import Path

from cryptography import x509

from maskedlark.web.connections import READ_WITHIN_S, Awaited, Connection, ConnectionLimiter
from maskedlark.web.errors import BadCertificate, CertificateExpired

_log = logging.getLogger(__name__)


class Certificate:
    """A service's certificate. New connections get the one that is in its files now."""

    def __init__(self, *files: Path) -> None:
        self._files, self._seen = files, [_read(path) for path in files]
        self.context, self._end = context(*files), _end(files[0])

    def renew(self) -> None:
        """Read the files again if they have changed. A pair that is only half written changes nothing."""
        try:
            if (seen := [_read(path) for path in self._files]) != self._seen:
                self.context, self._end = context(*self._files), _end(self._files[0])
                self._seen = seen
                _log.info("the certificate was renewed")
        except (BadCertificate, OSError) as error:
            _log.error("the certificate stays as it was: %s", error)

    def left_s(self) -> float:
        """Seconds until it ends."""
        return self._end - time.time()

    def check(self) -> None:
        """Return if it has not ended."""
        if self.left_s() <= 0:
            raise CertificateExpired("the certificate of this service has expired: renew its files")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadCertificate(f"{path} cannot be read: {error.strerror}") from None


def _end(certificate: Path) -> float:
    """When the service's own ends. Others of its chain may have ended where clients trust one above."""
    try:
        chain = x509.load_pem_x509_certificates(_read(certificate))
    except ValueError:
        raise BadCertificate(f"{certificate} is no chain of certificates in PEM") from None
    return chain[0].not_valid_after_utc.timestamp()


def context(certificate: Path, key: Path) -> ssl.SSLContext:
    """A service's TLS settings: 1.2 and later. Raises if the files cannot be used."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    # Otherwise a stranger could renegotiate all the time, at our cost.
    made.options |= ssl.OP_NO_RENEGOTIATION
    try:
        # A wrong password rather than none: without one OpenSSL would prompt on the terminal.
        made.load_cert_chain(certificate, key, password="")
    except ssl.SSLError as error:
        reason = f"{certificate} and {key} are no certificate and key in PEM, the key without password"
        if error.reason == "KEY_VALUES_MISMATCH":
            reason = f"{key} is not the key of the first certificate in {certificate}: give the pair"
        raise BadCertificate(reason) from None
    return made


class Handshake(SSLProtocol):
    """A TLS connection from its first byte: asyncio tells the inner protocol only after the handshake."""

    def __init__(
        self, inside: Connection, secured: ssl.SSLContext, limiter: ConnectionLimiter, within_s: float
    ) -> None:
        super().__init__(
            asyncio.get_running_loop(),
            inside,
            secured,
            None,  # type: ignore[arg-type]  # nobody waits for it
            server_side=True,
            ssl_handshake_timeout=math.ceil(within_s),
            ssl_shutdown_timeout=math.ceil(READ_WITHIN_S),
        )
        self._limiter = limiter
        self._inside = inside

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the handshake."""
        super().connection_made(transport)
        self._inside.unsecured = transport
        self._limiter.add(transport)

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came."""
        if self._inside.unsecured is not None:
            self._limiter.wait(self._inside.unsecured, Awaited.HANDSHAKE)
        super().buffer_updated(nbytes)

    def connection_lost(self, exc: BaseException | None) -> None:
        """It was closed, during the handshake or later."""
        if self._inside.unsecured is not None:
            self._limiter.remove(self._inside.unsecured)
        super().connection_lost(exc)
