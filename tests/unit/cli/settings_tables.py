"""The tables of settings in docs/OPERATIONS.md, made from the models.

`python -m tests.unit.cli.settings_tables` writes them anew.
"""

import re
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from maskedlark.adserver import config as adserver
from maskedlark.adserver.config import Limits as AdserverLimits
from maskedlark.compute.settings import ComputeSettings
from maskedlark.helper import config as helper
from maskedlark.parameter_service import config as parameters
from maskedlark.parameters.policy import Policy
from maskedlark.web.config import Serving
from maskedlark.web.skeleton import described, is_table

PAGE = Path(__file__).parents[3] / "docs" / "OPERATIONS.md"
TABLES: dict[str, type[BaseModel]] = {
    "`parameters.toml`": parameters.Config,
    "`helper.toml`": helper.Config,
    "`[policy]` of a helper": Policy,
    "`[compute]` of a helper": ComputeSettings,
    "`[limits]` of a helper": helper.Limits,
    "`adserver.toml`": adserver.Config,
    "`[limits]` of an ad server": AdserverLimits,
    "`[serving]` of every party": Serving,
}
PLACE = re.compile(r"^### (`.*)\n\n\| key .*\n\|---.*\n((?:\|.*\n)+)", re.MULTILINE)


def table(form: type[BaseModel]) -> str:
    """A row for every key: its default, what it is for, an example where there is no default."""
    return "".join(_row(name, field) for name, field in form.model_fields.items())


def _row(name: str, field: FieldInfo) -> str:
    meaning, example = described(name, field)
    default = "required" if field.is_required() else _default(field)
    shown = "" if is_table(field) or default not in ("required", "none") else f": `{example}`"
    return f"| `{name}` | {default} | {'table: ' * is_table(field)}{meaning}{shown} |\n"


def _default(field: FieldInfo) -> str:
    if isinstance(field.default, BaseModel):
        return ""
    if field.default_factory not in (None, dict):
        return "by the machine"
    found = None if field.default_factory else field.default
    return "none" if found in (None, ()) else f"{found:g}" if isinstance(found, float) else str(found).lower()


def rewritten(page: str) -> str:
    """The page with all of its tables made anew."""
    return PLACE.sub(lambda at: at[0].replace(at[2], table(TABLES[at[1]])), page)


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
