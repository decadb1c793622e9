"""`python -m berth.cli` is `berth`."""

from berth.cli.main import run

if __name__ == "__main__":
    run()
