"""How long it takes to start: the import, and the command line's help."""

import statistics
import subprocess
import sys
import time

from table import Row, main


def seconds(*arguments: str, runs: int) -> float:
    """The median of several fresh processes, the interpreter's own start included."""
    taken = []
    for _ in range(runs + 1):  # the first one compiles and fills caches
        began = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def rows(full: bool) -> list[Row]:
    runs = 21 if full else 7
    bare = seconds("-c", "pass", runs=runs) * 1e3
    against = f"the bare interpreter: {bare:.0f} ms"
    found = []
    for what, goal, arguments in (
        ("import multihop", 150, ("-c", "import multihop")),
        ("multihop --help", 400, ("-m", "multihop", "--help")),
        ("multihop eval --help", 0, ("-m", "multihop", "eval", "--help")),
    ):
        taken = seconds(*arguments, runs=runs) * 1e3
        found.append(Row("start", what, taken, "ms", against, goal=f"<= {goal}" if goal else ""))
    return found


if __name__ == "__main__":
    main(rows)
