"""All benchmarks, one after the other, each in a process of its own.

    python benchmarks/run.py [--full] [--only loop,start] [--write docs/performance.md]

With --write each part's table replaces the one in that file, with commit, date, machine and
command above it. Ratios are of one run on one machine; absolute figures are that machine's.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from table import Row, figure, show

PARTS = {
    "loop": "LM tokens and calls against the released code's policy",
    "embedded": "The embedded model against evaluating every prompt anew",
    "sameness": "Whether reading on changes what the embedded model writes",
    "scheduler": "Questions per second against the bound and against lock-step",
    "own_time": "Our own processor time per LM call",
    "bm25": "BM25 against Lucene and bm25s",
    "start": "Importing and starting",
}
HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="the sizes that the goals speak of")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, parted by commas")
    parser.add_argument("--write", type=Path, help="a Markdown file with a place for each part")
    asked = parser.parse_args()
    chosen = asked.only.split(",")
    if unknown := set(chosen) - set(PARTS):
        parser.error(f"no part is named {min(unknown)}; known: {', '.join(PARTS)}")

    failed, found = [], list[Row]()
    for name in chosen:
        print(f"--- {name}: {PARTS[name]}", file=sys.stderr, flush=True)
        told = run(name, full=asked.full)
        if told is None:
            failed.append(name)
            continue
        found += [Row(**row) for row in told["rows"]]
        if asked.write:
            write(asked.write, name, told)
    show(found)
    missed = [row for row in found if row.reached is False]
    print(
        f"{len(found)} figures, {len(missed)} goals missed, parts that failed: {failed or 'none'}"
    )
    return 1 if failed else 0


def run(name: str, *, full: bool) -> dict[str, Any] | None:
    """One part's rows, and what they were measured with; None when it failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.json"
        command = [sys.executable, str(HERE / f"{name}.py"), *(["--full"] if full else [])]
        if subprocess.run([*command, "--json", str(path)], check=False).returncode:
            return None
        told: dict[str, Any] = json.loads(path.read_text())
    told["command"] = f"python benchmarks/{name}.py" + (" --full" if full else "")
    return told


def write(page: Path, name: str, told: dict[str, Any]) -> None:
    """Put a part's table into its place on the page."""
    place = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    text = page.read_text(encoding="utf-8")
    if not place.search(text):
        raise SystemExit(f"{page}: has no place for {name} (<!-- {name} --> ... <!-- end -->).")
    page.write_text(
        place.sub(lambda found: found[1] + markdown(told) + found[2], text), encoding="utf-8"
    )


def markdown(told: dict[str, Any]) -> str:
    lines = [
        f"`{told['command']}`, commit {told['commit']}, {told['date']}, {told['machine']}.",
        "",
        "| what | figure | against | ratio | goal |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in [Row(**row) for row in told["rows"]]:
        reached = {None: "", True: "", False: " (missed)"}[row.reached]
        ratio = "" if row.ratio is None else f"{row.ratio:.3f}"
        lines.append(
            f"| {row.what} | {figure(row.value)} {row.unit} | {row.against} | {ratio} "
            f"| {row.goal}{reached} |"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
