"""python -m examples.movein"""

from __future__ import annotations

if __name__ == "__main__":
    try:
        from .app import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("examples"):
            raise
        needed = 'pip install "abreast[langchain,cli]"'
        raise SystemExit(f"The example needs more packages ({error.name} is missing): {needed}") from None
    raise SystemExit(main())
