"""`python -m tuneparts` is the command `tuneparts`, where that is not on the path."""

from tuneparts.cli.main import main

if __name__ == "__main__":
    main()
