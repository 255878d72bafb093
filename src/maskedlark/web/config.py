"""A party's one TOML file: read in one place, closed to unknown keys. What is wrong says what to write.

Every field of a party's model has a description that ends in an example: it follows each error about that
key, and `skeleton` and the tables of docs/OPERATIONS.md are made of it.
"""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter, ValidationError

from maskedlark.core.near import instead
from maskedlark.errors import MaskedLarkError
from maskedlark.parameters.settings import Settings
from maskedlark.storage.engine import beside, parse
from maskedlark.web.errors import BadConfig
from maskedlark.wire.keys import MOST_ADDRESS


def _address(text: str) -> str:
    try:
        url = urlsplit(text)
        wanted = url.scheme in ("http", "https") and url.hostname and url.port != 0
    except ValueError:
        wanted = None
    if not (wanted and text.isascii() and text.isprintable()) or "@" in text or "?" in text or "#" in text:
        raise ValueError("not an address that begins with https:// (or http://) and names a host")
    return text


def _database(text: str) -> str:
    parse(text)
    return text


Address = Annotated[str, Field(max_length=MOST_ADDRESS), AfterValidator(_address)]
DatabaseUrl = Annotated[str, AfterValidator(_database)]
"""It may hold a password: give its field repr=False."""


class PartyConfig(Settings):
    """What every party's model is: settings whose paths are relative to the file that they are in."""

    def beside(self, folder: Path) -> Self:
        """The same with absolute paths: relative ones are relative to this folder."""
        return resolved(self, folder)


Form = TypeVar("Form", bound=PartyConfig)
Part = TypeVar("Part", bound=Settings)


def resolved(settings: Part, folder: Path) -> Part:
    """The same settings, their paths and those of their tables relative to this folder."""
    changes: dict[str, object] = {}
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, Path):
            changes[name] = folder / value
        elif isinstance(value, Settings):
            changes[name] = resolved(value, folder)
        elif name == "database" and value is not None:
            changes[name] = beside(value, folder)
    return settings.model_copy(update=changes)


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
        # Through JSON, which has lists where Python has tuples: strict about everything else.
        found = form.model_validate_json(json.dumps(table))
        return found.beside(path.parent.absolute())
    except ValidationError as error:
        faults = error.errors(include_url=False, include_context=False, include_input=False)
        raise BadConfig(f"{path}: {'; '.join(_fault(form, each) for each in faults)}") from None
    except TypeError:
        raise BadConfig(f"{path}: a date or time has no place here") from None
    except MaskedLarkError as error:
        raise BadConfig(f"{path}: {error}") from None
    except (ValueError, RecursionError):  # A whole number in hexadecimal may have more digits than text may.
        raise BadConfig(f"{path} holds a number or a list that no setting takes") from None


def check(what: str, form: Any, text: str) -> None:  # noqa: ANN401 - a type, as pydantic takes it
    """Refuse a text that no setting of this form could be. Run before a file is written with it."""
    try:
        TypeAdapter(form).validate_python(text, strict=True)
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
    """What there is in the table, of tables in tables, where a key is not known."""
    *tables, last = place
    for name in tables:
        inner = form.model_fields[str(name)].annotation
        assert isinstance(inner, type), "only a table of its own has keys of its own"
        assert issubclass(inner, BaseModel)
        form = inner
    where = f"[{'.'.join(map(str, tables))}] has" if tables else "there are"
    return instead(str(last), form.model_fields, where)


def _plain(fault: Any) -> str:  # noqa: ANN401 - pydantic's own record
    return str(fault["msg"]).removeprefix("Value error, ")
