"""Making a schedule that fails short: what is left is what the failure needs."""

from dataclasses import replace

from tests.simulation.schedule import Schedule, run


def failure(schedule: Schedule) -> str | None:
    """What a schedule breaks, in one line; none if it holds."""
    try:
        run(schedule)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what was looked for
        return f"{type(error).__name__}: {error}"
    return None


def shrink(schedule: Schedule, tries: int = 400) -> Schedule:
    """A shorter schedule that fails in the same way: halves are left out, then ever smaller parts."""
    wanted = _sort(failure(schedule))
    size = max(1, len(schedule.steps) // 2)
    while tries > 0:
        at, shorter = 0, False
        while at < len(schedule.steps) and tries > 0:
            less = replace(schedule, steps=schedule.steps[:at] + schedule.steps[at + size :])
            tries -= 1
            if _sort(failure(less)) == wanted:
                schedule, shorter = less, True
            else:
                at += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return _without_faults(schedule, wanted)


def _without_faults(schedule: Schedule, wanted: str) -> Schedule:
    for at, step in enumerate(schedule.steps):
        if step.fault is not None:
            steps = (*schedule.steps[:at], replace(step, fault=None), *schedule.steps[at + 1 :])
            if _sort(failure(replace(schedule, steps=steps))) == wanted:
                schedule = replace(schedule, steps=steps)
    return schedule


def _sort(words: str | None) -> str:
    """Failures are alike if they differ in names and numbers alone."""
    return "" if words is None else "".join(letter for letter in words[:60] if not letter.isdigit())


def shown(schedule: Schedule) -> str:
    """As it is written in a test."""
    steps = "".join(f"    {step},\n" for step in schedule.steps)
    return f"Schedule({schedule.seed}, {schedule.helpers}, {schedule.origins}, (\n{steps}))"
