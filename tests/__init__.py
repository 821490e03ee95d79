"""The tests; a package so that `python -m tests.harness` finds its parts."""
