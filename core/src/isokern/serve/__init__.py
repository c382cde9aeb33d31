"""An HTTP server that speaks OpenAI's API over an engine: `application` for any ASGI server, `Server` for uvicorn.

`pip install isokern[serve]` brings what it needs.
"""

from .app import application
from .server import Server
from .service import Limits, Service

__all__ = ["Limits", "Server", "Service", "application"]
