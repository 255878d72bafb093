"""Tables as all acts show them."""

from rich.table import Table


def table(title: str, *columns: str) -> Table:
    """An empty one."""
    made = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        made.add_column(column, overflow="fold")
    return made
