"""``python -m accord`` is the command ``accord``."""

from accord.cli import app

if __name__ == "__main__":
    app()
