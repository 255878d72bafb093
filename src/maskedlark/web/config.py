"""A party's one TOML file: read in one place, closed to unknown keys. Errors say what to write.

No web framework is imported here: measuring clients read the same file without one.
Every field of a party's model has a description that ends in an example: it is appended to each error about
that key, and `skeleton` and the tables of docs/OPERATIONS.md are made from it.
"""

import ipaddress
import json
import socket
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    IPvAnyNetwork,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from maskedlark.core.suggestions import did_you_mean
from maskedlark.errors import MaskedLarkError
from maskedlark.storage.engine import beside, parse
from maskedlark.web.errors import BadConfig
from maskedlark.wire.keys import MAX_ADDRESS
from maskedlark.wire.message import Settings


def address(text: str) -> str:
    """The address of a service, if it is one of HTTP, without a user, a query or a fragment."""
    try:
        url = urlsplit(text)
        wanted = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        wanted = None
    if not (wanted and text.isascii() and text.isprintable()) or "@" in text or "?" in text or "#" in text:
        raise ValueError("not an address that begins with https:// (or http://) and names a host")
    return text


def is_local(address: str) -> bool:
    """Whether its host is `localhost`, or a loopback or link-local address. No name is resolved."""
    host = str(urlsplit(address).hostname).rstrip(".")
    with suppress(OSError):  # As connecting reads it: 127.1 and 0x7f000001 are addresses too.
        host = socket.inet_ntoa(socket.inet_aton(host))
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host.rpartition(".")[2] == "localhost"
    number = getattr(number, "ipv4_mapped", None) or number
    return number.is_loopback or number.is_link_local or number.is_unspecified


def _database(text: str) -> str:
    parse(text)
    return text


Address = Annotated[str, Field(max_length=MAX_ADDRESS), AfterValidator(address)]
DatabaseUrl = Annotated[str, AfterValidator(_database)]
"""May contain a password: give its field repr=False."""


class PartyConfig(Settings):
    """Base of every party's model and of the tables in it. Paths are relative to the settings file."""

    def beside(self, folder: Path) -> Self:
        """A copy with absolute paths, resolved against this folder."""
        changes: dict[str, object] = {}
        for name, value in self:
            if isinstance(value, Path):
                changes[name] = folder / value
            elif isinstance(value, PartyConfig):
                changes[name] = value.beside(folder)
            elif name == "database" and value is not None:
                changes[name] = beside(value, folder)
        return self.model_copy(update=changes)


Port = Annotated[int, Field(ge=0, le=65_535)]
Wait = Annotated[float, Field(ge=0, le=3600)]


class Serving(PartyConfig):
    """The `[serving]` table of every party: where it listens, its limits, and how it stops."""

    host: str = Field(default="127.0.0.1", description='the address to listen on: host = "127.0.0.1"')
    port: Port = Field(default=0, description="0 is any free one: port = 8000")
    certificate: Path | None = Field(
        default=None, description='the chain of certificates, in PEM, for TLS: certificate = "tls/chain.pem"'
    )
    certificate_key: Path | None = Field(
        default=None, description='its private key, in PEM, without password: certificate_key = "tls/key.pem"'
    )
    processes: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="processes on this port, which share all but memory; more than one needs PostgreSQL: "
        "processes = 1",
    )
    max_connections: Annotated[int, Field(ge=1, le=1 << 20)] = Field(
        default=1024,
        description="at once; then who has sent nothing is cut off first: max_connections = 1024",
    )
    trusted_proxies: tuple[IPvAnyNetwork, ...] = Field(
        default=(), description='whose X-Forwarded-For names the sender: trusted_proxies = ["10.0.0.0/8"]'
    )
    idle_s: Annotated[float, Field(gt=0, le=3600)] = Field(
        default=15.0, description="seconds in which a connection must have asked something: idle_s = 15"
    )
    drain_s: Wait = Field(
        default=0.0, description="seconds, once told to stop, of still answering all but /ready: drain_s = 5"
    )
    stop_within_s: Wait = Field(
        default=10.0, description="seconds, after those, for what is under way: stop_within_s = 10"
    )
    metrics_port: Port | None = Field(
        default=None,
        description="where metrics are read, if anywhere; 0 is any free port, and several processes have as "
        "many ports from it on: metrics_port = 9100",
    )
    metrics_host: str = Field(
        default="127.0.0.1", description='the address of that, never a public one: metrics_host = "127.0.0.1"'
    )

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key go together: give both, or none")
        return self


Form = TypeVar("Form", bound=PartyConfig)
_ANOTHER_KIND = 3
"""So many unknown keys, and no more that are known, are no typing mistakes."""


def read(path: Path, form: type[Form]) -> Form:
    """The settings in a file, its paths resolved. Run by every party at its start."""
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise BadConfig(f"{path} is no TOML: {error}") from None
    except RecursionError:
        raise BadConfig(f"{path} is nested deeper than any settings") from None
    try:
        # Through JSON, so that lists are read as tuples; everything else is strict.
        return form.model_validate_json(json.dumps(table)).beside(path.parent.absolute())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        unknown = table.keys() - form.model_fields.keys()
        if len(unknown) >= max(_ANOTHER_KIND, len(table.keys() - unknown)):
            raise BadConfig(
                f"{path} is another kind of file: of {', '.join(sorted(unknown))} nothing is known here; "
                f"there are {', '.join(form.model_fields)}"
            ) from None
        raise BadConfig(f"{path}: {'; '.join(_fault(form, each) for each in faults)}") from None
    except TypeError:
        raise BadConfig(f"{path}: a date or time has no place here") from None
    except MaskedLarkError as error:
        raise BadConfig(f"{path}: {error}") from None
    except (ValueError, RecursionError):  # A hexadecimal integer may exceed the limit on decimal digits.
        raise BadConfig(f"{path} holds a number or a list that no setting takes") from None


def check(what: str, form: Any, text: str | None) -> None:  # noqa: ANN401 - a type, as pydantic takes it
    """Refuse a string, if given, that is no valid setting of this type. Run before writing it to a file."""
    try:
        TypeAdapter(form | None).validate_python(text, strict=True)
    except ValidationError as error:
        raise BadConfig(f"{what}: {_plain(error.errors()[0])}") from None


def _fault(form: type[BaseModel], fault: Any) -> str:  # noqa: ANN401 - pydantic's own record
    place = ".".join(map(str, fault["loc"]))
    if fault["type"] == "extra_forbidden":
        return f"{place} is not known; {_known(form, fault['loc'])}"
    first = str(fault["loc"][0]) if fault["loc"] else ""
    field = form.model_fields.get(first)
    return f"{place}: {_plain(fault)}" + ("" if field is None else f". Write {field.description}")


def _known(form: type[BaseModel], place: tuple[str | int, ...]) -> str:
    """The known keys of the (nested) table that holds an unknown key."""
    *tables, last = place
    for name in tables:
        inner = form.model_fields[str(name)].annotation
        assert isinstance(inner, type), "only a table of its own has keys of its own"
        assert issubclass(inner, BaseModel)
        form = inner
    where = f"[{'.'.join(map(str, tables))}] has" if tables else "there are"
    return did_you_mean(str(last), form.model_fields, where)


def _plain(fault: Any) -> str:  # noqa: ANN401 - pydantic's own record
    return str(fault["msg"]).removeprefix("Value error, ")
