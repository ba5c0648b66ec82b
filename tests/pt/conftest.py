"""The command, for tests of checkpoints that go through it."""

from tests.cli.conftest import command, here

__all__ = ["command", "here"]
