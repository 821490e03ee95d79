"""What happened in a search, in order, on disk before anyone else is told.

The driver appends one line per event. The journal is the truth that everything else can be
rebuilt from: after a crash the plan is replayed against it, and what the MLflow server missed
while it was away is sent again from it. Appending the same row twice changes nothing.

Its first line says in which version of the format the others are written; a file without such a
line is of version 1. Lines of older versions are migrated while they are read.
"""

from tuneparts.journal.events import (
    Event,
    Observer,
    Outcome,
    ReplicateStopped,
    ResultTold,
    RoundFailed,
    Row,
    Stops,
    TrialEnded,
    TrialEvent,
    TrialId,
    TrialRetried,
    TrialRunning,
    TrialStarted,
    TrialVoided,
    tell,
)
from tuneparts.journal.file import (
    Journal,
    read,
    records,
    stops,
)
from tuneparts.journal.lines import VERSION, decode, encode, header
from tuneparts.journal.record import TrialRecord

__all__ = [
    "VERSION",
    "Event",
    "Journal",
    "Observer",
    "Outcome",
    "ReplicateStopped",
    "ResultTold",
    "RoundFailed",
    "Row",
    "Stops",
    "TrialEnded",
    "TrialEvent",
    "TrialId",
    "TrialRecord",
    "TrialRetried",
    "TrialRunning",
    "TrialStarted",
    "TrialVoided",
    "decode",
    "encode",
    "header",
    "read",
    "records",
    "stops",
    "tell",
]
