"""The README, the pages in docs and CONTRIBUTING: all that they show is run, all that they name is there."""
