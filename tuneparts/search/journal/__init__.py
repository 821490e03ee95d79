"""What happened in a search, in order, on disk before anyone else is told.

The driver appends one line per event. The journal is the truth that everything else can be
rebuilt from: after a crash the plan is replayed against it, and what the MLflow server missed
while it was away is sent again from it. Appending the same row twice changes nothing.

Its first line says in which version of the format the others are written.
"""

from tuneparts.search.journal.events import (
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
from tuneparts.search.journal.file import Journal, read, records, stops
from tuneparts.search.journal.lines import VERSION, decode, encode, is_header
from tuneparts.search.journal.record import TrialRecord

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
    "is_header",
    "read",
    "records",
    "stops",
    "tell",
]
