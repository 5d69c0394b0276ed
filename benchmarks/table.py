"""What every benchmark reports: rows of one table."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """One measurement.

    Attributes:
        part: Which benchmark it belongs to, as "scheduler".
        what: What was measured, in words.
        value: The absolute figure.
        unit: Its unit.
        against: What it is compared with, in the same run; empty when with nothing.
        ratio: Value over the other's, or as `against` says; None without a comparison.
        goal: What is to be reached, as "<= 1.10"; empty when nothing was set.
    """

    part: str
    what: str
    value: float
    unit: str
    against: str = ""
    ratio: float | None = None
    goal: str = ""

    @property
    def reached(self) -> bool | None:
        """Whether the goal is met: by the ratio where there is one, else by the value."""
        if not self.goal:
            return None
        sign, bound = self.goal.split()
        figure = self.value if self.ratio is None else self.ratio
        return figure <= float(bound) if sign == "<=" else figure >= float(bound)


def figure(value: float) -> str:
    """A number with about three digits that mean something."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def show(rows: Sequence[Row]) -> None:
    """Print rows as a table."""
    table = Table("part", "what", "value", "against", "ratio", "goal")
    for row in rows:
        mark = {None: "", True: " ok", False: " MISSED"}[row.reached]
        table.add_row(
            row.part,
            row.what,
            f"{figure(row.value)} {row.unit}",
            row.against,
            "" if row.ratio is None else f"{row.ratio:.3f}",
            row.goal + mark,
        )
    Console(width=150).print(table)


def about() -> dict[str, str]:
    """Where and when: goes beside every table."""
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "commit": commit or "unknown",
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{len(os.sched_getaffinity(0))} cores, {pages / 2**30:.0f} GiB, "
        f"{platform.machine()}, Python {platform.python_version()}",
    }


def main(part: Callable[[bool], list[Row]]) -> None:
    """Run one benchmark alone: `python benchmarks/NAME.py [--full] [--json FILE]`."""
    found = part("--full" in sys.argv)
    show(found)
    if "--json" in sys.argv:
        path = Path(sys.argv[sys.argv.index("--json") + 1])
        path.write_text(json.dumps({**about(), "rows": [asdict(row) for row in found]}, indent=1))
