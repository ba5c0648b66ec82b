"""``--html``: inspect and clear write a page for the browser, too."""

from __future__ import annotations

from pathlib import Path

import clearstate as cs
from clearstate.report import page

from .conftest import Command


def test_inspect_writes_a_page_besides_what_it_prints(command: Command, net: str) -> None:
    plain = command("inspect", net)
    done = command("inspect", net, "--html", "report.html")
    assert (done.code, done.out, done.err) == (0, plain.out, "")
    assert Path("report.html").read_text(encoding="utf-8") == page(cs.inspect(net))


def test_clear_writes_a_page_of_the_file_before_and_after(command: Command, net: str) -> None:
    done = command("clear", net, "-o", "small.t7", "--html", "report.html")
    assert done.code == 0
    text = Path("report.html").read_text(encoding="utf-8")
    assert "<h1>net.t7 → small.t7</h1>" in text
    assert "<b>4.9 MB → 315 kB</b>" in text
    dry = command("clear", net, "--dry-run", "--html", "dry.html")
    assert dry.code == 0
    assert "<b>4.9 MB → 315 kB</b>" in Path("dry.html").read_text(encoding="utf-8")


def test_a_page_never_replaces_a_model_and_nothing_is_done_then(command: Command, net: str, here: Path) -> None:
    before = (here / net).read_bytes()
    assert "net.t7 is no report but another file" in command("inspect", net, "--html", net).refused()
    assert "net.t7 is no report but another file" in command("clear", net, "-o", "new.t7", "--html", net).refused()
    assert (here / net).read_bytes() == before
    assert [path.name for path in here.iterdir()] == [net]
    assert command("inspect", net, "--html", "report.html").code == 0
    assert command("inspect", net, "--html", "report.html").code == 0


def test_a_page_shows_one_file(command: Command, net: str, here: Path) -> None:
    (here / "other.t7").write_bytes((here / net).read_bytes())
    assert command("inspect", net, "other.t7", "--html", "r.html").refused() == (
        "--html shows one file, and these are 2: call it for each"
    )
    assert "--html shows one file" in command("clear", ".", "--in-place", "--html", "r.html").refused()


def test_a_page_that_cannot_be_written_is_said_in_one_sentence(command: Command, net: str) -> None:
    done = command("inspect", net, "--html", "no/such/folder/r.html")
    assert done.code == 2
    assert done.err == "clearstate: cannot write no/such/folder/r.html: no such file or directory\n"


def test_no_page_is_written_of_a_file_that_cannot_be_read(command: Command, here: Path) -> None:
    (here / "bad.t7").write_bytes(b"not a model")
    assert command("inspect", "bad.t7", "--html", "r.html").code == 2
    assert command("clear", "bad.t7", "-o", "x.t7", "--html", "r.html").code == 2
    assert not Path("r.html").exists()
