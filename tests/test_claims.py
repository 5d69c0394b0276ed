"""Claims: one living worker at a time has a thing, and the dead keep nothing."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from multihop import claims, runs
from multihop.claims import Claims
from multihop.errors import BadInput, MultihopError

DIES = """
import sys, time
from pathlib import Path
from multihop.claims import Claims
with Claims(Path(sys.argv[1])) as claims:
    assert claims.take("x")
    print(claims.traces.name, flush=True)
    time.sleep(60)
"""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(folder: Path) -> str:
    """The trace file of a worker that was killed while it held x."""
    process = subprocess.Popen([sys.executable, "-c", DIES, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout
    file = process.stdout.readline().decode().strip()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    return file


def vanished(folder: Path) -> Claims:
    """A worker whose process died at once: its lock is gone, and nothing else."""
    dead = Claims(folder).__enter__()
    dead._end.set()
    os.close(dead._file)
    return dead


def elsewhere(folder: Path, monkeypatch) -> Claims:
    """A living worker that another host runs."""
    with monkeypatch.context() as other:
        other.setattr(claims, "_host", lambda: "another kernel")
        return Claims(folder).__enter__()


def test_only_one_worker_has_a_claim_until_it_gives_it_up(tmp_path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        assert one.take("x")
        assert not two.take("x")
        assert two.take("y")
        assert not two.free("x")
        one.finish("x")
        assert two.free("x")
        assert two.take("x")
        two.give_back("x")
        assert one.take("x")
    assert names(tmp_path) == []


def test_each_worker_writes_a_trace_file_of_its_own_and_the_first_is_used_again(tmp_path) -> None:
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        assert [one.traces.name, two.traces.name] == ["traces.jsonl", "traces-1.jsonl"]
    with Claims(tmp_path) as three:
        assert three.traces == tmp_path / runs.TRACES


def test_what_a_killed_process_held_is_taken_over_at_once(tmp_path) -> None:
    assert killed(tmp_path) == "traces.jsonl"
    with Claims(tmp_path) as one:
        assert one.traces == tmp_path / runs.TRACES
        assert one.free("x")
        assert one.take("x")
        with Claims(tmp_path) as two:
            assert not two.take("x")
    assert names(tmp_path) == []


def test_a_claim_goes_from_one_dead_worker_to_the_next(tmp_path) -> None:
    for _ in range(4):
        assert vanished(tmp_path).take("x")
    with Claims(tmp_path) as last:
        assert last.take("x")
        assert (tmp_path / ".claim-x.4").readlink() == Path(last.worker)
        last.finish("x")
        assert not [name for name in names(tmp_path) if ".claim-x" in name]
        assert last.take("x")
        assert (tmp_path / ".claim-x.0").readlink() == Path(last.worker)


def test_what_was_taken_over_and_given_back_undone_is_free_again(tmp_path) -> None:
    vanished(tmp_path).take("x")
    with Claims(tmp_path) as one, Claims(tmp_path) as two:
        assert one.take("x")
        one.give_back("x")
        assert two.take("x")
        assert not one.take("x")


def test_a_worker_of_another_host_is_dead_when_it_was_not_seen_to_beat(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(claims, "LEASE", 0.3)
    far = elsewhere(tmp_path, monkeypatch)
    assert far.take("x")
    with Claims(tmp_path) as near:
        assert near.traces.name == "traces-1.jsonl"
        end = time.monotonic() + 1.2  # four times the lease: alive, however slow
        while time.monotonic() < end:
            assert not near.take("x")
            time.sleep(0.02)
        assert far.holds("x")

        far._end.set()  # now it is cut off
        far._heart.join()
        assert not near.take("x")
        time.sleep(0.35)
        assert near.take("x")
        assert not far.holds("x")
        with pytest.raises(MultihopError, match=r"no sign of life for 0\.3 seconds"):
            far.check("x")
        far.give_back("x")  # what is not its own any more it leaves alone
        assert near.holds("x")
    os.close(far._file)


@pytest.mark.parametrize("hours", [-30, 30])
def test_a_clock_that_goes_wrong_says_nothing_of_who_lives(tmp_path, monkeypatch, hours) -> None:
    far = elsewhere(tmp_path, monkeypatch)
    assert far.take("x")
    with Claims(tmp_path) as near:
        for step in range(3):
            moment = time.time() + hours * 3600 + step
            os.utime(tmp_path / f".worker-{far.worker}", (moment, moment))
            assert not near.take("x")
    far.__exit__(None, None, None)
    assert names(tmp_path) == []


def test_the_living_of_another_host_are_left_alone_when_a_worker_clears_away(
    tmp_path, monkeypatch
) -> None:
    far = elsewhere(tmp_path, monkeypatch)
    far.take("x")
    vanished(tmp_path).take("y")
    with Claims(tmp_path):
        pass
    assert names(tmp_path) == sorted(
        [".claim-traces-0.0", ".claim-x.0", f".worker-{far.worker}"],
    )
    far.__exit__(None, None, None)


def test_a_worker_that_died_at_its_first_step_is_no_obstacle(tmp_path) -> None:
    (tmp_path / ".new.worker-a").write_text("")
    (tmp_path / ".worker-b").write_text("")  # a host that is not told is another one
    with Claims(tmp_path) as one:
        assert one.take("x")


def test_a_claim_that_ends_while_it_is_taken_over_is_not_taken(tmp_path, monkeypatch) -> None:
    """The dead worker's claim was taken over, done and given up between two looks."""
    vanished(tmp_path).take("x")
    with Claims(tmp_path) as slow, Claims(tmp_path) as fast:
        dead = slow._dead

        def meanwhile(worker: str) -> bool:
            found = dead(worker)
            monkeypatch.setattr(slow, "_dead", dead)
            assert fast.take("x")
            fast.finish("x")
            assert fast.take("x")  # from its beginning
            return found

        monkeypatch.setattr(slow, "_dead", meanwhile)
        assert not slow.take("x")
        assert fast.holds("x")
        fast.finish("x")
        assert slow.take("x")


def test_one_who_died_while_it_finished_leaves_nothing_in_the_way(tmp_path) -> None:
    vanished(tmp_path).take("x")
    second = vanished(tmp_path)
    assert second.take("x")
    (tmp_path / ".claim-x.0").unlink()  # the first half of `finish`
    with Claims(tmp_path) as one:
        assert one.take("x")
        assert one.holds("x")
    assert names(tmp_path) == []


def test_without_symbolic_links_there_is_one_clear_line(tmp_path, monkeypatch) -> None:
    def refuse(self: Path, target: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    with pytest.raises(BadInput, match="makes no symbolic links"), Claims(tmp_path):
        pass
    assert names(tmp_path) == []


@pytest.mark.parametrize("seed", range(3))
def test_no_two_living_workers_ever_have_the_same_claim(tmp_path, seed) -> None:
    """Threads that take, finish, give back and die at random; each holder looks for another."""
    holder: dict[str, list[str]] = {name: [] for name in "abc"}
    slips: list[str] = []
    taken = Counter[str]()

    def work(number: int) -> None:
        chance = random.Random(seed * 100 + number)
        for _ in range(6):
            worker = Claims(tmp_path).__enter__()
            for _ in range(12):
                name = chance.choice("abc")
                if not worker.take(name):
                    continue
                holder[name].append(worker.worker)
                if len(holder[name]) > 1:
                    slips.append(name)
                time.sleep(0)
                taken[name] += 1
                holder[name].remove(worker.worker)
                end = chance.random()
                if end < 0.15:  # dies
                    worker._end.set()
                    os.close(worker._file)
                    break
                (worker.finish if end < 0.6 else worker.give_back)(name)
            else:
                worker.__exit__(None, None, None)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert slips == []
    assert min(taken[name] for name in "abc") > 5
    with Claims(tmp_path):
        pass
    assert names(tmp_path) == []
