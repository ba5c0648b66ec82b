"""Many checkpoints at a time: in processes, on a cluster of Dask's, elsewhere; a bad one does not stop the rest."""

from __future__ import annotations

import multiprocessing
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch

import clearstate as cs
from tests.pt.programs import PROGRAMS, training
from tests.pt.test_programs import equal, read
from tests.pt.test_sharded import laid

from .conftest import Command


@pytest.fixture
def models(here: Path) -> Path:
    """Five checkpoints in folders, one of them cut, and an optimizer alone."""
    t = training()
    for i, name in enumerate(("timm", "nanoGPT", "a module", "a state dict")):
        path = here / "models" / f"run{i % 2}" / f"{i}.pt"
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(PROGRAMS[name].save(t), path)
    torch.save(t.optimizer.state_dict(), here / "models" / "run0" / "optimizer.pt")
    (here / "models" / "cut.pt").write_bytes((here / "models" / "run0" / "0.pt").read_bytes()[:3000])
    (here / "models" / "notes.txt").write_text("not a model")
    return here / "models"


GOOD = {"run0/0.pt", "run1/1.pt", "run0/2.pt", "run1/3.pt"}


def files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(place, name), folder) for place, _, names in os.walk(folder) for name in names}


def check(done: Any, models: Path, new: Path) -> None:
    """All good files are there and are the same models; the cut one was named, the optimizer left alone."""
    assert done.code == 2
    assert done.err.count("clearstate: ") == done.err.count("\n") == 1, done.err
    assert "cut.pt" in done.err
    assert "mistake" not in done.err
    assert "4 files cleared, 1 could not be" in done.out
    assert "Left alone, since nothing would be left of them:" in done.out
    assert "run0/optimizer.pt." in "".join(done.out.split())
    assert files(new) == GOOD
    for name in GOOD:
        assert cs.verify(models / name, new / name), name
        assert (new / name).stat().st_size < (models / name).stat().st_size


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_bad_file_does_not_stop_the_rest(command: Command, models: Path, here: Path, jobs: str) -> None:
    before = {path: path.read_bytes() for path in models.rglob("*.pt")}
    check(command("clear", "models", "-o", "new/", "--jobs", jobs), models, here / "new")
    assert {path: path.read_bytes() for path in models.rglob("*.pt")} == before


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_in_place_replaces_what_is_whole_and_leaves_the_rest(command: Command, models: Path, jobs: str) -> None:
    before = {path: path.read_bytes() for path in models.rglob("*.pt")}
    done = command("clear", "models", "--in-place", "--jobs", jobs)
    assert done.code == 2
    for path, data in before.items():
        same = path.read_bytes() == data
        assert same is (os.path.relpath(path, models) not in GOOD), path
    assert not [path for path in models.rglob("*") if path.suffix not in (".pt", ".txt") and path.is_file()]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """The address of a scheduler with two workers, each a process of its own."""
    import distributed

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
        ) as made:
            assert len(made.workers) == 2
            yield made.scheduler_address


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_of_two_processes_clears_each_file_as_a_task(
    command: Command, models: Path, here: Path, cluster: str
) -> None:
    check(command("clear", models, "-o", here / "new", "--dask", cluster), Path("models"), here / "new")


@pytest.mark.filterwarnings("ignore")
def test_options_reach_the_workers(command: Command, models: Path, here: Path, cluster: str) -> None:
    words = ("--dask", cluster, "--plain", "--dtype", "float16")
    done = command("clear", models / "run1", "-o", here / "new", *words)
    assert done.code == 0, done
    made = torch.load(here / "new" / "1.pt", weights_only=True)["model"]
    assert made["_orig_mod.first.weight"].dtype is torch.float16
    assert made["_orig_mod.norm.running_mean"].dtype is torch.float32


@pytest.mark.filterwarnings("ignore")
def test_a_scheduler_that_does_not_answer_is_named(
    command: Command, models: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import distributed

    real = distributed.Client
    monkeypatch.setattr(distributed, "Client", lambda address, timeout, **how: real(address, timeout="1s", **how))
    text = command("clear", models, "-o", here / "new", "--dask", "tcp://127.0.0.1:9").refused()
    assert "no scheduler of Dask answers at tcp://127.0.0.1:9" in text
    assert not (here / "new").exists()


def test_a_folder_with_an_index_is_one_model_among_others(command: Command, here: Path) -> None:
    (here / "all").mkdir()
    laid(here / "all" / "shards")
    torch.save(training().net.state_dict(), here / "all" / "x.pt")
    done = command("clear", "all", "-o", "new/")
    assert done.code == 0, done
    assert "2 files cleared" in done.out
    assert files(here / "new") == files(here / "all")
    assert command("verify", "all/shards", "new/shards").code == 0
    done = command("clear", "all", "--in-place")
    assert done.code == 0, done
    assert command("verify", "all/shards", "new/shards").code == 0


def test_more_jobs_than_a_number_is_refused(command: Command, models: Path) -> None:
    for word in ("none", "0", "-1", "2.5"):
        assert "--jobs" in command("clear", "models", "-o", "new/", "--jobs", word).refused()


# files elsewhere


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pseudo_dirs[:] = [""]
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def put(system: Any, path: Path, place: str) -> None:
    system.pipe(place, path.read_bytes())


def test_a_file_elsewhere_is_inspected_cleared_and_verified(
    command: Command, models: Path, here: Path, elsewhere: Any
) -> None:
    put(elsewhere, models / "run0" / "0.pt", "/bucket/x.pt")
    old = "memory://bucket/x.pt"
    done = command("inspect", old)
    assert done.code == 0, done
    assert f"clearstate clear {old} -o memory://bucket/x-cleared.pt" in " ".join(done.out.split())
    assert command("clear", old, "-o", "memory://bucket/new/y.pt").code == 0
    assert command("clear", old, "-o", "y.pt").code == 0
    assert command("clear", models / "run0" / "0.pt", "-o", "memory://bucket/z.pt").code == 0
    written = (here / "y.pt").read_bytes()
    assert elsewhere.cat("/bucket/new/y.pt") == elsewhere.cat("/bucket/z.pt") == written
    assert command("verify", old, "y.pt").code == 0
    assert command("verify", "memory://bucket/new/y.pt", "y.pt").code == 0
    assert command("clear", old, "--in-place").code == 0
    assert elsewhere.cat("/bucket/x.pt") == written


def test_a_pattern_and_a_folder_elsewhere(command: Command, models: Path, here: Path, elsewhere: Any) -> None:
    for name in GOOD:
        put(elsewhere, models / name, f"/bucket/{name}")
    put(elsewhere, models / "cut.pt", "/bucket/cut.pt")
    done = command("clear", "memory://bucket", "-o", "new/")
    assert done.code == 2
    assert "memory://bucket/cut.pt" in done.err
    assert files(here / "new") == GOOD
    done = command("clear", "memory://bucket/run1/*.pt", "-o", "memory://out/")
    assert done.code == 0, done
    assert sorted(elsewhere.find("/out")) == ["/out/1.pt", "/out/3.pt"]


def test_shards_elsewhere_come_and_go_together(command: Command, here: Path, elsewhere: Any) -> None:
    folder = laid(here / "old")
    for path in folder.iterdir():
        put(elsewhere, path, f"/bucket/m/{path.name}")
    index = "memory://bucket/m/model.safetensors.index.json"
    assert command("inspect", index).code == 0
    assert command("verify", index, "old").code == 0
    done = command("clear", index, "-o", "new/")
    assert done.code == 0, done
    assert "config.json and the like are still to be copied" in " ".join(done.out.split())
    assert files(here / "new") == files(folder)
    for name in "config.json", "training_args.bin":
        elsewhere.pipe(f"/bucket/m/{name}", b"{}")
    done = command("clear", index, "-o", "whole/")
    assert "Copied beside the new index: config.json" in " ".join(done.out.split()), done
    assert files(here / "whole") == files(folder) | {"config.json"}
    done = command("clear", index, "-o", "memory://bucket/one.safetensors")
    assert done.code == 0, done
    assert command("verify", "memory://bucket/one.safetensors", "old").code == 0


@pytest.mark.parametrize("verb", ["inspect", "clear", "verify"])
def test_what_is_wrong_elsewhere_is_said_with_its_address(
    command: Command, models: Path, here: Path, elsewhere: Any, verb: str
) -> None:
    put(elsewhere, models / "cut.pt", "/bucket/cut.pt")
    rest = {"inspect": [], "clear": ["-o", "new.pt"], "verify": ["memory://bucket/cut.pt"]}[verb]
    for address, words in (
        ("memory://bucket/cut.pt", "memory://bucket/cut.pt"),
        ("memory://bucket/none.pt", "cannot read memory://bucket/none.pt: no such file"),
        ("nowhere://bucket/none.pt", "nowhere"),
    ):
        text = command(verb, address, *rest).refused()
        assert words in text, text
        assert "/tmp" not in text
    assert not (here / "new.pt").exists()


class Locked(fsspec.AbstractFileSystem):  # type: ignore[misc]
    """A store whose library raises errors of its own making, as those of S3 and of the Hub do."""

    protocol = "locked"

    class NoCredentials(Exception):
        pass

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise self.NoCredentials("Unable to locate\n  credentials.")

    info = ls = isdir = glob = get_file = put_file = makedirs = _refuse


@pytest.mark.parametrize(
    "words",
    [
        ("inspect", "ADDRESS/x.pt"),
        ("inspect", "ADDRESS/*.pt"),
        ("verify", "ADDRESS/x.pt", "models/run0/0.pt"),
        ("clear", "ADDRESS/x.pt", "-o", "new.pt"),
        ("clear", "ADDRESS/x.pt", "--in-place"),
        ("clear", "models/run0/0.pt", "-o", "ADDRESS/new.pt"),
        ("clear", "models/run0/0.pt", "models/run1/1.pt", "-o", "ADDRESS/", "--jobs", "1"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    "address, reason",
    [
        ("locked://bucket", "cannot be reached: Unable to locate credentials"),
        ("nowhere://bucket", "cannot be reached: Protocol not known: nowhere"),
        ("reference://bucket", "cannot be reached: "),  # it misses an argument: a TypeError
        ("http://127.0.0.1:1", "cannot read http://127.0.0.1:1/"),
    ],
    ids=lambda text: text.partition(":")[0],
)
def test_whatever_a_backend_raises_is_a_sentence_with_the_address(
    command: Command, models: Path, here: Path, words: tuple[str, ...], address: str, reason: str
) -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    done = command(*(word.replace("ADDRESS", address) for word in words))
    assert done.code == 2
    for line in done.err.splitlines():
        assert line.startswith("clearstate: ")
        assert f"{address}/" in line
        assert reason in line.replace("cannot write", "cannot read")
        assert "mistake" not in line
    assert 1 <= len(done.err.splitlines()) <= 2
    assert "Traceback" not in done.err + done.out
    assert not (here / "new.pt").exists()


def test_a_package_that_is_missing_is_named(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    from fsspec.registry import known_implementations

    lacking = {"class": "no_such_package.System", "err": "Install no_such_package to reach it"}
    monkeypatch.setitem(known_implementations, "lacking", lacking)
    text = command("inspect", "lacking://bucket/x.pt").refused()
    assert text == "lacking://bucket/x.pt cannot be reached: Install no_such_package to reach it"


def test_in_python_the_backends_own_error_is_the_cause() -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    with pytest.raises(cs.ClearstateError, match=r"^locked://bucket/x\.pt cannot be reached: Unable") as caught:
        cs.inspect("locked://bucket/x.pt")
    assert isinstance(caught.value.__cause__, Locked.NoCredentials)


def test_what_fails_halfway_is_not_delivered(
    command: Command, models: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clearstate.formats.pt import door

    put(elsewhere, models / "run0" / "0.pt", "/bucket/x.pt")
    before = elsewhere.cat("/bucket/x.pt")

    def differs(*_: Any, **__: Any) -> list[str]:
        return ["state_dict.first.weight: made to differ"]

    monkeypatch.setattr(door, "differences", differs)
    text = command("clear", "memory://bucket/x.pt", "--in-place").refused()
    assert "made to differ" in text
    assert elsewhere.cat("/bucket/x.pt") == before


def test_the_same_file_twice_is_cleared_once_in_processes(command: Command, models: Path, here: Path) -> None:
    done = command("clear", "models/run1/1.pt", "models/run1", "-o", "new/", "--jobs", "2")
    assert done.code == 0, done
    assert files(here / "new") == {"1.pt", "3.pt"}


def test_no_thread_or_process_is_left_behind(command: Command, models: Path, here: Path) -> None:
    before, children = threading.active_count(), set(multiprocessing.active_children())
    command("clear", "models", "-o", "new/", "--jobs", "2")
    equal(read(models / "run1" / "3.pt"), read(here / "new" / "run1" / "3.pt"))
    assert set(multiprocessing.active_children()) == children
    assert threading.active_count() <= before + 1
