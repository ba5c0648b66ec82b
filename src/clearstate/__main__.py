"""``python -m clearstate`` is the command ``clearstate``."""

from clearstate.cli import main

if __name__ == "__main__":
    main()
