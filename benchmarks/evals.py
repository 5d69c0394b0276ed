"""What the benchmarks over runs share: indexes, `multihop` as a command, options for `eval`."""

import argparse
import subprocess
import sys
from pathlib import Path


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The command line; what stands after -- is `rest`, for `multihop eval`."""
    parser.epilog = "After --: further options of `multihop eval`."
    own, rest = sys.argv[1:], []
    if "--" in own:
        own, rest = own[: own.index("--")], own[own.index("--") + 1 :]
    return parser.parse_args(own, argparse.Namespace(rest=rest))


def index(data: Path, runs: Path, name: str) -> Path:
    """The index of a set's corpus, built where there is none."""
    folder = runs / "indexes" / name
    if not folder.exists():
        call("index", str(data / f"{name}_corpus.jsonl"), "--into", str(folder))
    return folder


def call(*arguments: str, shown: bool = False, fine: tuple[int, ...] = (0,)) -> None:
    """Run `multihop`; another exit code than the fine ones ends the benchmark."""
    command = [sys.executable, "-m", "multihop", *arguments]
    print("+", " ".join(arguments), file=sys.stderr, flush=True)
    out = None if shown else subprocess.DEVNULL
    if subprocess.run(command, check=False, stdout=out).returncode not in fine:
        sys.exit(f"Stopped: {' '.join(arguments)}")
