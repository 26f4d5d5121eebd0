"""The HTTP face: a FastAPI router to include in an application, and an application of its own."""

from abreast.errors import MissingExtraError

try:
    import fastapi as _fastapi  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtraError(f'The server needs its extra: pip install "abreast[server]" ({error.name} is missing).') from None

from abreast.server.app import create_app
from abreast.server.identity import Authenticate
from abreast.server.routes import router
from abreast.server.sse import Streams

__all__ = ["Authenticate", "Streams", "create_app", "router"]
