"""Categories as texts: the same category whether a table holds 3, 3.0 or "3"."""

from maskedlark.features.column import Column, Value

NOT_A_CATEGORY = "neither text nor number; turn it into a text first"


def texts(column: Column) -> list[str]:
    """Every distinct category that is not missing."""
    return column.present(text, NOT_A_CATEGORY)


def text(value: Value) -> str:
    """A category's text. Data frames turn whole numbers into floats where one is missing; this undoes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else repr(float(value))
    if not isinstance(value, str | int):
        raise TypeError
    return str(value)
