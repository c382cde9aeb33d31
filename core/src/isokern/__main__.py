"""`python -m isokern`: the same as the command `isokern`."""

from .cli import main

if __name__ == "__main__":
    main()
