"""The troubleshooting page has a line for everything that is refused, found by the words of the message itself."""

from __future__ import annotations

import re

import pytest
from tools.site.messages import LISTS, PAGE, SECTIONS, cell, kinds, listed, messages, messages_of, updated

import clearstate as cs
from clearstate.cli import run
from clearstate.formats.kinds import KINDS

PAGE_TEXT = PAGE.read_text(encoding="utf-8")


def test_every_message_of_the_program_has_its_line_and_no_line_is_of_old() -> None:
    assert updated(PAGE_TEXT, messages()) == PAGE_TEXT, "run tools/site/messages.py, and say what is to be done"


def test_every_line_says_what_is_to_be_done() -> None:
    silent = [
        line for name, lines in listed(PAGE_TEXT).items() if name not in LISTS for line in lines if not lines[line]
    ]
    assert not silent
    assert set(listed(PAGE_TEXT)) == {name for name, _ in SECTIONS}


def test_every_kind_of_file_that_is_told_has_its_line() -> None:
    assert kinds() in PAGE_TEXT
    assert len(kinds().splitlines()) == len(KINDS) + 2


@pytest.mark.parametrize(
    "arguments",
    [
        "inspect missing*.t7",
        "clear model.t7",
        "clear model.t7 -o model.t7",
        "clear model.t7 -o a.safetensors",
        "clear model.t7 -o a.t7 --drop parameter",
        "clear model.t7 -o a.t7 --use ema",
        "clear train.pt -o a.safetensors",
        "clear last.ckpt -o a.ckpt --use ema",
        "clear last.ckpt -o a.ckpt --drop nothing",
        "verify model.t7 last.ckpt",
        "convert model.t7 -o a.txt",
        "convert last.ckpt --to nn -o a.t7",
        "inspect cut.t7",
        "inspect cut.pt",
        "inspect page.t7",
    ],
)
def test_what_the_command_says_is_found_on_the_page(
    arguments: str, sampled: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split()) == 2
    said = " ".join(capsys.readouterr().err.split())
    lines = [line for lines in listed(PAGE_TEXT).values() for line in lines]
    lines += re.findall(r"^\| (`[^`]*`) \|", kinds(), re.MULTILINE)
    patterns = (re.escape(line.strip("`")).replace("…", ".*") for line in lines)
    assert [p for p in patterns if re.search(p, said.replace("`", "'")) and len(p.replace(".*", "")) > 10], said


def test_messages_in_python_are_found_on_the_page() -> None:
    with pytest.raises(ValueError, match="no role") as caught:
        cs.clear_state(cs.formats.t7.Table(), drop=["weights"])
    words = re.sub(r"'weights'", "…", str(caught.value)).partition(" are ")[0]
    assert words in PAGE_TEXT


def test_texts_that_branch_are_several_messages() -> None:
    source = 'def f(x):\n    what = f"a {x}" if x else "nothing"\n    raise FormatError(what + " here", "none")\n'
    assert [m.text for m in messages_of(source, "formats/t7/a.py")] == [
        "expected a … here, found none",
        "expected nothing here, found none",
    ]
    assert cell("a`b|c  d……") == "`a'b/c d…`"
