import sys


def run() -> int:
    try:
        from dflash_lightning.main import main

        return main()
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] == "dflash_lightning":
            raise
        raise SystemExit(
            f"cli.py: {sys.executable} has no package {error.name}. Use .venv/bin/python, which `make "
            "install` creates, or install this project for the Python you started: pip install -e ."
        ) from error


if __name__ == "__main__":
    raise SystemExit(run())
