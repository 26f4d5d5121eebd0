"""What abreast reports about itself: a standard logger, silent unless the application listens."""

from __future__ import annotations

import logging

log = logging.getLogger("abreast")
log.addHandler(logging.NullHandler())
