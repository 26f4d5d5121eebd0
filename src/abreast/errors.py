"""Everything that abreast raises, in one tree.

    AbreastError
    |-- ConfigurationError          the program must change
    |   |-- NotTrackedError
    |   |-- LoaderError
    |   |-- ContextError
    |   |-- StateSchemaError
    |   `-- MissingExtraError
    |-- CaptureError                an operator must act on the database
    |   |-- NotInstalledError
    |   `-- CaptureOutdatedError
    |-- InputError                  the caller asked for something that is not there or not allowed
    |   |-- UnknownWorkspaceError
    |   |-- UnknownEntityError
    |   |-- AbsentError
    |   |-- DecisionError
    |   |-- MutationReusedError
    |   `-- MarkError
    |-- RereadError                 what was read is out of date: read again, then decide again
    |   |-- VersionConflictError
    |   |-- DecidedError
    |   `-- OutdatedError
    |-- RefusedError                the application said no; a repeat gets the same answer
    |   `-- NotAllowedError
    |-- LeaseError                  the run may not go on
    |   |-- ThreadBusyError
    |   `-- LeaseLostError
    `-- UnavailableError            may pass: try again

The branches follow what a caller can do. The message defaults to the class's docstring.
"""

from __future__ import annotations

from typing import Any


class AbreastError(Exception):
    """Something went wrong in abreast."""

    def __init__(self, message: str | None = None, **fields: Any) -> None:
        self.message = message or (type(self).__doc__ or "").strip().splitlines()[0]
        self.fields = fields
        for name, value in fields.items():
            setattr(self, name, value)
        super().__init__(self.message)


class ConfigurationError(AbreastError):
    """The hub is set up in a way that cannot work."""


class NotTrackedError(ConfigurationError):
    """This table is not tracked. Declare it with hub.track(...)."""


class LoaderError(ConfigurationError):
    """A loader failed or returned something that is not JSON. Nothing was told and no cursor moved."""


class ContextError(ConfigurationError):
    """The run context is missing or names no workspace. Pass context=... on every run and every resume."""


class StateSchemaError(ConfigurationError):
    """The graph's state has no place for the mark. Let its state class inherit abreast.langgraph.SyncState."""


class MissingExtraError(ConfigurationError):
    """An optional part of abreast is not installed."""


class CaptureError(AbreastError):
    """Changes of a tracked table are not captured as declared."""


class NotInstalledError(CaptureError):
    """The tables of abreast are not in this database. Run hub.install() or `abreast install`."""


class CaptureOutdatedError(CaptureError):
    """The triggers in the database do not fit the declared tables. Run hub.install() or `abreast install` again."""


class InputError(AbreastError):
    """The request names something that does not exist or may not be used."""


class UnknownWorkspaceError(InputError):
    """No such workspace: it has neither a head nor a tracked row."""


class UnknownEntityError(InputError):
    """No such row, or this person may not read it."""


class AbsentError(InputError):
    """There is no such thing here, or it is not this person's to see; nobody is told which."""


class DecisionError(InputError):
    """This is not a decision that can be made here. Nothing was decided; the approval stays open."""


class MutationReusedError(InputError):
    """This mutation id was used for another write. A new intention needs a new id."""


class MarkError(InputError):
    """The mark in this conversation's state is not one that abreast wrote."""


class RereadError(AbreastError):
    """What was read is out of date. Read again, then decide again."""


class VersionConflictError(RereadError):
    """The row has changed since it was read. Nothing was written; read it again.

    `entity_type` and `entity_id` name the row, `expected` is the version that was read, `version` the current one and
    `row` the current values.
    """

    entity_type: str
    entity_id: str
    expected: int
    version: int
    row: Any


class DecidedError(RereadError):
    """Another decision was made before this one. That one stands.

    `approval` is the approval's id, `status` what was decided.
    """

    approval: str
    status: str


class OutdatedError(RereadError):
    """What the call touches has changed since it was proposed. Nothing was decided; look at the changes, then confirm.

    `approval` is the approval's id, `changes` what has changed, and `revisions` what a decision must name as `confirmed`.
    """

    approval: str
    changes: Any
    revisions: Any


class RefusedError(AbreastError):
    """The application refused this write.

    Raised by the application's own code inside `hub.write`: what the block wrote is rolled back, and the refusal is
    the mutation's outcome. Fields must be JSON.
    """


class NotAllowedError(RefusedError):
    """This person may see this, but not do it."""


class LeaseError(AbreastError):
    """This run does not hold its thread."""


class ThreadBusyError(LeaseError):
    """Another run holds this conversation. Wait until it has ended, or tell the person so.

    `thread` is the conversation, `run` the run that holds it, `seconds` how long at most it does if it has died.
    """

    thread: str
    run: str | None
    seconds: float


class LeaseLostError(LeaseError):
    """This run lost its conversation to another one. Nothing of it was written; end it."""


class UnavailableError(AbreastError):
    """The database did not answer. Nothing was told and no cursor moved; try again."""
